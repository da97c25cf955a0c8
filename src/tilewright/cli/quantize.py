"""`tilewright quantize`: a float model in 8-bit integers, as ONNX, calibrated on data of a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.base.errors import ModelError
from tilewright.cli import show
from tilewright.cli.arrays import read_arrays
from tilewright.cli.layout import Column, fit_table, make_console
from tilewright.cli.listing import Json, Quiet
from tilewright.cli.output import file_for, put, say
from tilewright.cli.progress import Progress
from tilewright.frontends.onnx.load import load_model
from tilewright.quantization.post_training import MSE, quantize
from tilewright.quantization.ranges import METHODS
from tilewright.quantization.report import QuantizationReport, decibels_text
from tilewright.quantization.scales import ACTIVATIONS, I8, INT8, SCHEMES
from tilewright.runtime.container import is_program
from tilewright.runtime.system import format_bytes, require_memory

SHOWN = 6  # nodes in floats that a reason names
COLUMNS = (
    Column("layer", is_name=True),
    Column("operator", spare=1),
    Column(">alone"),
    Column(">so far"),
)

app = typer.Typer()

FloatModel = Annotated[Path, typer.Argument(help="a float32 .onnx model")]
Data = Annotated[
    Path,
    typer.Option(
        "--calibrate",
        metavar="FILE.npz",
        help="samples: an array for each input by its name, or the array of the only one",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="by default, MODEL.SCHEME.onnx; - is stdout"),
]
Scheme = Annotated[
    str,
    typer.Option(
        "--scheme",
        metavar="|".join(SCHEMES),
        help="of scales: any, weights with one for each channel; or powers of two, for chips",
    ),
]
Method = Annotated[
    str, typer.Option("--method", metavar="|".join(METHODS), help="how ranges are chosen")
]
Activations = Annotated[
    str,
    typer.Option(
        "--activations",
        metavar="|".join(ACTIVATIONS),
        help="of int8: with zero points, or without",
    ),
]
PerTensor = Annotated[
    bool, typer.Option("--per-tensor", help="weights of int8 with one scale for all channels")
]
Percentile = Annotated[
    float, typer.Option("--percentile", help="of the method of that name: what ranges cover")
]
NoCorrection = Annotated[
    bool, typer.Option("--no-bias-correction", help="leave mean errors of channels")
]
WideSums = Annotated[
    bool,
    typer.Option(
        "--wide-sums", help="of pow2: additions take a convolution's sums, not rounded to 8 bits"
    ),
]
KeepFloat = Annotated[
    list[str] | None,
    typer.Option("--keep-float", metavar="NODE", help="stays in floats; repeatable"),
]
Most = Annotated[int | None, typer.Option("--samples", min=1, help="only so many; by default, all")]


@app.command(
    name="quantize",
    epilog="Example: tilewright quantize examples/digits/digits.onnx"
    " --calibrate examples/digits/calibration.npz -o int8.onnx",
)
def quantize_(
    model: FloatModel,
    data: Data,
    output: Output = None,
    scheme: Scheme = INT8,
    method: Method = MSE,
    activations: Activations = I8,
    per_tensor: PerTensor = False,
    percentile: Percentile = 99.99,
    no_correction: NoCorrection = False,
    wide_sums: WideSums = False,
    keep_float: KeepFloat = None,
    samples: Most = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Quantize a float model to 8 bits, calibrated on samples of its inputs.

    What is written is ONNX with pairs of QuantizeLinear and DequantizeLinear, for any runtime. The
    table shows the signal-to-noise ratio of each layer alone and with all before it."""
    if model.suffix == ".tw" or is_program(model):
        raise ModelError(f"{model} is compiled already", hint="give the .onnx model it was made of")
    path = file_for(model, f".{scheme}.onnx", output, "a quantized model")
    progress = Progress(quiet or json)
    start = time.perf_counter()

    with progress.working("quantizing"):
        made = quantize(
            load_model(model, require_memory, whole=True),
            read_arrays(data),
            scheme=scheme,
            method=method,
            activations=activations,
            per_tensor=per_tensor,
            percentile=percentile,
            bias_correction=not no_correction,
            wide_sums=wide_sums,
            keep_float=keep_float or (),
            most=samples,
            watch=progress.count,
        )
    size = made.save(path)
    seconds = time.perf_counter() - start
    if json:
        found = {"model": str(model), **report_json(made.report)}
        found |= {"file": str(path), "bytes": size, "seconds": seconds}
        put(show.to_json(found), beside=path)
    elif not quiet:
        _show(made.report, path)
        wrote = f"wrote {path}: {format_bytes(size)}, quantized in {seconds:.1f} s"
        say(wrote, beside=path)


def report_json(report: QuantizationReport) -> dict[str, Any]:
    return {
        "scheme": report.scheme,
        "method": report.method,
        "samples": report.samples,
        "scales": report.values,
        "layers": [
            {"node": x.node, "operator": x.operator, "alone_db": x.alone, "so_far_db": x.so_far}
            for x in report.layers
        ],
        "floats": [
            {"node": n.node, "operator": n.operator, "reason": n.reason} for n in report.floats
        ],
        "outputs": [
            {"name": o.name, "db": o.decibels, "relative": o.relative, "largest": o.largest}
            for o in report.outputs
        ],
    }


def _show(report: QuantizationReport, path: Path) -> None:
    rows = [
        [x.node, x.operator, decibels_text(x.alone), decibels_text(x.so_far)] for x in report.layers
    ]
    put(fit_table(COLUMNS, rows, make_console().width), beside=path)
    reasons: dict[str, list[str]] = {}
    for n in report.floats:
        reasons.setdefault(n.reason, []).append(n.node)
    for reason, nodes in reasons.items():
        more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
        say(f"in floats: {', '.join(nodes[:SHOWN])}{more}: {reason}", beside=path)
    for o in report.outputs:
        off = f"{o.relative:.2%} of it, {o.largest:.3g} at most"
        say(f"output {o.name}: {decibels_text(o.decibels)}, off by {off}", beside=path)
    say(
        f"{len(report.layers)} layers in {report.scheme}, {len(report.floats)} nodes in floats;"
        f" calibrated on {report.samples} samples",
        beside=path,
    )
