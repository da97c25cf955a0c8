"""Whole models on simulated chips beside the host.

    python benchmarks/chip_models.py                 digits on every chip, ResNet-18 on VTA
    python benchmarks/chip_models.py --chips vta,dsp --models resnet18:gemmini,mobilenetv2:gemmini
    python benchmarks/chip_models.py --chips "" --models resnet50+wide:vta,resnet18:vta64
    python benchmarks/chip_models.py --json FILE     the figures as well

Both networks of examples/digits are quantised with scales that are powers of two, calibrated on
images of training, and run on all 360 held-out ones; the zoo's have seeded weights and one seeded
input, and +wide leaves sums of convolutions that additions take as they are. Rounding is half up.
Every result is compared with the host's, to the bit, and the first with the interpreter's, which
rounds functions of floats otherwise (BERT's softmax). Cycles are those of the timed simulator, host
and copies left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table
from zoo import ZOO, sample_inputs

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.options import Options
from tilewright.program.host_program import Submit
from tilewright.runtime.call_timeline import runs_of
from tilewright.runtime.module import Module
from tilewright.targets.chips import CHIPS

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
NETWORKS = ("digits", "digits_residual")
SIZES = {f"vta{n}": partial(CHIPS["vta"], block=n) for n in (32, 64)}
BUILT = {**CHIPS, **SIZES}


@dataclass(frozen=True)
class Row:
    """One model on one chip: `products` are its convolutions and products of matrices, `submits`
    the streams of neighbouring kernels that the chip ran; `moved` are the bytes of their transfers,
    `apart` those of each kernel's operands and results once, `least` those of the streams'; seconds
    of compiling, and of one call with its simulation."""

    model: str
    chip: str
    products: int
    submits: int
    cycles: int
    bound: int  # cycles that no schedule of the streams beats, whatever they keep inside
    milliseconds: float
    moved: int
    apart: int
    least: int
    exact: bool  # as the host's
    interpreted: bool  # as the interpreter's
    accuracy: float | None
    compile_s: float
    call_s: float
    file_bytes: int


def measure(
    name: str,
    model: onnx.ModelProto,
    chip: str,
    calls: Sequence[tuple[np.ndarray, ...]],
    labels: np.ndarray | None = None,
) -> Row:
    """Compiles a model for a chip and the host, and runs it on the operands of each call."""
    dims = {d.dim_param: 1 for d in model.graph.input[0].type.tensor_type.shape.dim if d.dim_param}
    options = Options(rounding="half_up", dims=dims)
    start = time.perf_counter()
    module = tilewright.compile(
        model, target={"npu": BUILT[chip](), "host": "host"}, options=options
    )
    compiled = time.perf_counter() - start
    host = tilewright.compile(model, options=options)
    module(*calls[0])
    start = time.perf_counter()
    found = [module(*x) for x in calls]
    spent = (time.perf_counter() - start) / len(calls)
    graph = import_model(model.SerializeToString(), dims=options.dims, half_up=True)
    exact = all(_same(a, host(*x)) for a, x in zip(found, calls, strict=True))
    interpreted = _same(found[0], evaluate_graph(graph, list(calls[0])))
    right = (
        None if labels is None else [x.argmax() == n for x, n in zip(found, labels, strict=True)]
    )
    program = module.program
    pairs = zip(program.host.steps, program.steps, strict=True)
    given = [(step, facts) for step, facts in pairs if isinstance(step, Submit)]
    steps, runs = [facts for _, facts in given], runs_of(program)
    moved = sum(runs[step.device, step.kernel].facts.moved for step, _ in given)
    return Row(
        name,
        chip,
        sum(n.op_type in ("Conv", "Gemm", "MatMul") for n in model.graph.node),
        len(steps),
        sum(s.cycles or 0 for s in steps),
        sum(s.bound or 0 for s in steps),
        sum(s.picoseconds or 0 for s in steps) / 1e9,
        moved,
        sum(int(p.bytes or 0) for s in steps for p in s.pieces or (s,)),
        sum(int(s.bytes or 0) for s in steps),
        exact,
        interpreted,
        None if right is None else float(np.mean(right)),
        compiled,
        spent,
        _size(module),
    )


def _same(a: Any, b: Any) -> bool:
    """Whether results are equal, of which there may be several."""
    pairs = zip(*([x] if isinstance(x, np.ndarray) else list(x) for x in (a, b)), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def _size(module: Module) -> int:
    return sum(len(data) for part in module.program.parts for _, data in part.files)


def quantised(path: Path) -> onnx.ModelProto:
    """A network of digits with scales that are powers of two."""
    with np.load(DIGITS / "calibration.npz") as file:
        return tilewright.quantize(path, dict(file), scheme="pow2").model


def table(rows: list[Row]) -> Table:
    shown = Table(box=None)
    for heading in ("model", "chip"):
        shown.add_column(heading)
    figures = (
        "products",
        "submits",
        "cycles",
        "of bound",
        "ms",
        "MB moved",
        "apart",
        "least",
        "exact",
        "interpreted",
        "read right",
    )
    for heading in (*figures, "compiled", "a call"):
        shown.add_column(heading, justify="right")
    for r in rows:
        right = "" if r.accuracy is None else f"{r.accuracy:.1%}"
        sizes = (f"{n / 1e6:.3g}" for n in (r.moved, r.apart, r.least))
        numbers = (
            str(r.products),
            str(r.submits),
            f"{r.cycles:,}",
            f"{r.bound / r.cycles:.1%}" if r.cycles else "",
            f"{r.milliseconds:.3g}",
            *sizes,
        )
        times = (f"{r.compile_s:.1f} s", f"{r.call_s:.3g} s")
        same = ("✓" if x else "✗" for x in (r.exact, r.interpreted))
        shown.add_row(r.model, r.chip, *numbers, *same, right, *times)
    return shown


def _known(case: str, parser: argparse.ArgumentParser) -> tuple[str, str, str, bool]:
    """The name, network, chip and width of sums that `NAME[+wide]:CHIP` says."""
    name, _, chip = case.partition(":")
    network, _, wide = name.partition("+")
    if network not in ZOO or chip not in BUILT or wide not in ("", "wide"):
        known = f"one of {', '.join(ZOO)} with a chip of {', '.join(BUILT)}"
        parser.error(f"{case!r} is not {known}")
    return name, network, chip, bool(wide)


def of_digits(chips: Sequence[str]) -> list[Row]:
    """The networks of digits on each chip, on all held-out images."""
    with np.load(DIGITS / "held_out.npz") as file:
        images, labels = file["images"], file["labels"]
    calls = [(x[None],) for x in images]
    models = {name: quantised(DIGITS / f"{name}.onnx") for name in NETWORKS}
    return [measure(name, m, chip, calls, labels) for name, m in models.items() for chip in chips]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--chips", default=",".join(CHIPS), help="for the digits")
    parser.add_argument(
        "--models", default="resnet18:vta,resnet18+wide:vta", help="of the zoo, NAME[+wide]:CHIP"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = [_known(each, parser) for each in filter(None, options.models.split(","))]
    chips = list(filter(None, options.chips.split(",")))
    for chip in chips:
        if chip not in BUILT:
            parser.error(f"{chip!r} is not one of {', '.join(BUILT)}")
    rows = of_digits(chips) if chips else []
    for name, network, chip, wide in cases:
        floats = ZOO[network]()
        inputs = sample_inputs(floats)
        model = tilewright.quantize(floats, inputs, scheme="pow2", wide_sums=wide).model
        rows.append(measure(name, model, chip, [tuple(inputs.values())]))
    Console(width=150).print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2))
    sys.exit(not all(r.exact for r in rows))


if __name__ == "__main__":
    main()
