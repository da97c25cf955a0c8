"""What quantisation loses, beside onnxruntime's own static quantiser.

    python benchmarks/quantization.py                    the digits, trained
    python benchmarks/quantization.py resnet18 bert      networks of the zoo, seeded weights
    python benchmarks/quantization.py --json FILE        the figures as well

All quantised models are run by onnxruntime, ours by tilewright as well. Both quantisers see the
same samples: the digits 128 images of training, judged by 360 held-out ones; the others 4 random
inputs, judged by 4 others. onnxruntime's has weights of i8 with a scale for each channel and
activations of i8 from the least and greatest numbers; its networks are folded first.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from quantized_models import BUILDERS, quantize_model
from rich.console import Console
from rich.table import Table
from zoo import sample_inputs

import tilewright

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
TRAINED = ("digits", "digits_residual")
SCHEMES = ("int8", "pow2")
PEER = "onnxruntime"
SAMPLES = 4  # random inputs to calibrate with, and as many to judge by

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A float model with samples to calibrate with, samples to judge by, and, for the trained, the
    class of each."""

    name: str
    model: onnx.ModelProto
    calibration: list[Arrays]
    held_out: list[Arrays]
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class Row:
    """`right` of how many samples; the mean error of an output's elements and its root mean square
    by that of the float model's; the share of places with the class that floats give, and, of ours,
    with the same class in onnxruntime as in tilewright, and how far these two are from each other
    at most, in steps of the output."""

    model: str
    by: str
    right: int | None
    mean_error: float
    relative_error: float
    same_class: float
    same_in_both: float | None = None
    steps_apart: float | None = None
    seconds: float | None = None


def trained(name: str) -> Case:
    """A network of examples/digits."""
    with np.load(DIGITS / "calibration.npz") as file:
        calibration = [{"image": file["image"]}]
    with np.load(DIGITS / "held_out.npz") as file:
        images, labels = file["images"], file["labels"]
    return Case(name, onnx.load(DIGITS / f"{name}.onnx"), calibration, [{"image": images}], labels)


def seeded(name: str) -> Case:
    """A network of the zoo."""
    model = BUILDERS[name]()
    inputs = [sample_inputs(model, seed) for seed in range(2 * SAMPLES)]
    return Case(name, model, inputs[:SAMPLES], inputs[SAMPLES:])


def measure(case: Case) -> list[Row]:
    """The float model, onnxruntime's quantiser, and ours with either scheme."""
    wanted = outputs(case, in_onnxruntime(case.model))
    theirs = outputs(case, in_onnxruntime(quantize_model(case.model, "s8", case.calibration)))
    rows = [judge(case, "float32", wanted, wanted), judge(case, PEER, wanted, theirs)]
    for scheme in SCHEMES:
        start = time.perf_counter()
        made = tilewright.quantize(case.model, joined(case.calibration), scheme=scheme).model
        seconds = time.perf_counter() - start
        module = tilewright.compile(made)
        name = made.graph.output[0].name
        ours = outputs(case, lambda x, m=module, n=name: m.run(x)[n])
        in_theirs = outputs(case, in_onnxruntime(made))
        apart = np.abs(ours - in_theirs).max() / step_of(made)
        same = np.mean(ours.argmax(-1) == in_theirs.argmax(-1))
        row = judge(case, scheme, wanted, in_theirs)
        rows.append(
            Row(**{**asdict(row), "same_in_both": same, "steps_apart": apart, "seconds": seconds})
        )
    return rows


def in_onnxruntime(model: onnx.ModelProto) -> Run:
    """The first output of a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # it may complain of its own quantiser's models
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda inputs: session.run(None, inputs)[0]


def outputs(case: Case, run: Run) -> np.ndarray:
    """The first output for all samples to judge by."""
    return np.concatenate([run(inputs) for inputs in case.held_out])


def joined(samples: list[Arrays]) -> Mapping[str, np.ndarray]:
    """Samples one after another along the first axis."""
    return {name: np.concatenate([s[name] for s in samples]) for name in samples[0]}


def judge(case: Case, by: str, wanted: np.ndarray, found: np.ndarray) -> Row:
    """One model's output beside the float model's."""
    right = None if case.labels is None else int((found.argmax(-1) == case.labels).sum())
    error = found.astype(np.float64) - wanted
    relative = np.sqrt(np.square(error).sum() / np.square(wanted, dtype=np.float64).sum())
    same = float(np.mean(found.argmax(-1) == wanted.argmax(-1)))
    return Row(case.name, by, right, float(np.abs(error).mean()), float(relative), same)


def step_of(model: onnx.ModelProto) -> float:
    """The scale of the first output, or of all its numbers where it is a float's."""
    name = model.graph.output[0].name
    maker = next(n for n in model.graph.node if name in n.output)
    if maker.op_type != "DequantizeLinear":
        return 1.0
    scale = next(t for t in model.graph.initializer if t.name == maker.input[1])
    return float(onnx.numpy_helper.to_array(scale))


def table(rows: list[Row]) -> Table:
    shown = Table(box=None)
    for heading in ("model", "quantised by"):
        shown.add_column(heading)
    figures = ("read right", "mean error", "relative", "class of floats")
    for heading in (*figures, "same class in both", "steps apart", "seconds"):
        shown.add_column(heading, justify="right")
    for r in rows:
        shown.add_row(
            r.model,
            r.by,
            "" if r.right is None else str(r.right),
            f"{r.mean_error:.4f}",
            f"{r.relative_error:.2%}",
            f"{r.same_class:.1%}",
            *("" if v is None else f"{v:.1%}" for v in (r.same_in_both,)),
            *("" if v is None else f"{v:.3g}" for v in (r.steps_apart, r.seconds)),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("networks", nargs="*", default=TRAINED, help="of the digits or the zoo")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.networks:
        rows += measure(trained(name) if name in TRAINED else seeded(name))
    Console(width=120).print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2, default=float))


if __name__ == "__main__":
    main()
