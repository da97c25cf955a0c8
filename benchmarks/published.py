"""ResNet-18 in int8 as VTA is handed it, on a machine that knows nothing but VTA's published facts.

    python benchmarks/published.py             some minutes: the model is compiled four times
    python benchmarks/published.py --digits    the digits network: a minute

The folder that `dump --stage stream --binary` writes runs on tests/support/vta_published.py beside
the simulator, which has to give the same bytes for every submit: kernels apart, and as subgraphs;
with queues of any depth, and of 8 commands and 8 tokens.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table
from zoo import resnet18, sample_inputs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from vta_beside import Beside  # noqa: E402  (the path above)
from vta_published import Dump, Report  # noqa: E402

import tilewright  # noqa: E402
from tilewright.options import Options  # noqa: E402
from tilewright.targets.vta import vta  # noqa: E402

DEPTHS: list[dict[str, int]] = [{}, {"commands": 8, "tokens": 8}]


def run(model: onnx.ModelProto, image: np.ndarray, subgraphs: bool, folder: Path):
    """Rows of the table: for each depth of queues what the machine did, and how long it took."""
    dims = {d.dim_param: 1 for d in model.graph.input[0].type.tensor_type.shape.dim if d.dim_param}
    options = Options(dims=dims, rounding="half_up", subgraphs=subgraphs, cache=False)
    devices = {"host": "host", "vta": vta()}
    module = tilewright.compile(model, target=devices, options=options)
    module.save(folder / "model.tw")
    found = tilewright.compile(model, target=devices, options=options, until="stream")
    found.save(folder / "dump")
    wanted = module(image)
    for depth in DEPTHS:
        made: list[Beside] = []

        def beside(part, depth=depth, made=made) -> Beside:
            made.append(Beside(part, Dump(folder / "dump"), **depth))
            return made[-1]

        published = tilewright.load(folder / "model.tw", devices={"simulator": beside})
        start = time.perf_counter()
        equal = np.array_equal(published(image), wanted)
        yield depth, equal, made[0].reports, time.perf_counter() - start


def row(subgraphs: bool, depth: dict[str, int], reports: list[Report], seconds: float, equal: bool):
    """Texts of one row."""
    counts = {k: sum(r.counts.get(k, 0) for r in reports) for k in reports[0].counts}
    products = sum(r.rows.get("gemm", 0) for r in reports)
    return (
        "subgraphs" if subgraphs else "kernels",
        str(depth.get("commands", "any")),
        str(len(reports)),
        f"{sum(counts.values()):,}",
        f"{products:,}",
        str(max(r.tokens for r in reports)),
        str(max(r.shift for r in reports)),
        f"{seconds:.1f} s",
        "✓" if equal else "✗",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--digits", action="store_true", help="the digits network instead")
    options = parser.parse_args()
    if options.digits:
        with np.load(ROOT / "examples" / "digits" / "held_out.npz") as file:
            images = file["images"]
        floats = onnx.load(ROOT / "examples" / "digits" / "digits.onnx")
        model, image = (
            tilewright.quantize(floats, {"image": images[:64]}, scheme="pow2").model,
            images[:1],
        )
    else:
        floats = resnet18()
        inputs = sample_inputs(floats)
        model, image = tilewright.quantize(floats, inputs, scheme="pow2").model, inputs["image"]
    headings = ("", "queues", "submits", "instructions", "products", "tokens", "shift", "", "equal")
    shown, exact = Table(*headings, box=None), True
    for subgraphs in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            for depth, equal, reports, seconds in run(model, image, subgraphs, Path(folder)):
                shown.add_row(*row(subgraphs, depth, reports, seconds, equal))
                exact &= equal
    Console(width=120).print(shown)
    return int(not exact)


if __name__ == "__main__":
    sys.exit(main())
