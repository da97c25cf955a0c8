"""How much the two modes of rounding differ, on the quantised digits network.

    python benchmarks/rounding.py
    python benchmarks/rounding.py --json FILE

ONNX rounds halves to even; chips add half a unit and shift. Both modes run on the host here, on all
held-out images; on chips results are those of the second, to the bit.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from quantise import quantise  # noqa: E402  (the path above)

import tilewright  # noqa: E402
from tilewright.options import Options  # noqa: E402

DIGITS = ROOT / "examples" / "digits"
CALIBRATION = 64  # images


def main() -> None:
    """Compile three times, run, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with np.load(DIGITS / "held_out.npz") as file:
        images, labels = file["images"], file["labels"]
    floats = onnx.load(DIGITS / "digits.onnx")
    model = quantise(floats, {"image": images[:CALIBRATION]})
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
