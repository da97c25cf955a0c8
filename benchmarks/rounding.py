"""How much the two modes of rounding differ, on the quantised digits network.

    python benchmarks/rounding.py
    python benchmarks/rounding.py --json FILE

ONNX rounds halves to even; chips add half a unit and shift. Both modes run on the host here, on all
held-out images; on chips results are those of the second, to the bit.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import tilewright
from tilewright.options import Options

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"


def main() -> None:
    """Compile three times, run, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with np.load(DIGITS / "held_out.npz") as file:
        images, labels = file["images"], file["labels"]
    floats = DIGITS / "digits.onnx"
    with np.load(DIGITS / "calibration.npz") as file:
        model = tilewright.quantize(floats, dict(file), scheme="pow2").model
    scores = {
        "float32": tilewright.compile(floats)(images),
        "int8, halves to even": tilewright.compile(model)(images),
        "int8, halves up": tilewright.compile(model, options=Options(rounding="half_up"))(images),
    }
    even, up = list(scores.values())[1:]
    found = {
        "accuracy": {name: float((s.argmax(1) == labels).mean()) for name, s in scores.items()},
        "scores": int(even.size),
        "scores that differ": int((even != up).sum()),
        "largest difference in steps": int(np.abs(even - up).max() / _step(even)),
    }
    print("| mode | held-out digits read right |\n|---|---:|")
    for name, share in found["accuracy"].items():
        print(f"| {name} | {share:.2%} |")
    print(
        f"\nOf {even.size:,} scores {found['scores that differ']} differ between the two modes,"
        f" by at most {found['largest difference in steps']} steps of the output's scale."
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


def _step(scores: np.ndarray) -> float:
    """The scale of quantised scores: the least difference between two."""
    return float(np.diff(np.unique(scores)).min())


if __name__ == "__main__":
    main()
