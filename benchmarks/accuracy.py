"""Every model of the zoo compiled, against onnxruntime: values, symbolic batches, other targets.

    python benchmarks/accuracy.py                    all; what `make accuracy` runs
    python benchmarks/accuracy.py --models bert,lstm some

Each model runs on this machine's own instructions, and on a processor described as having AVX2 and
no more; those that can have a symbolic batch are compiled once and run at five sizes. A result is
right where it is within 1e-3 of each element plus 1e-4 of the output's largest magnitude. An output
that varies less than that says nothing: it counts as a failure too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from engines import Arrays, OnnxRuntime
from rich.console import Console
from rich.table import Table
from zoo import ZOO, sample_inputs

import tilewright
from tilewright.targets import cpu

RELATIVE, ABSOLUTE = 1e-3, 1e-4
BATCHES = (1, 2, 3, 5, 8)
SYMBOLIC = ("mobilenetv2", "resnet18", "lstm", "gpt2")


@dataclass(frozen=True)
class Comparison:
    """One model, run one way. `error` is the largest difference by the largest magnitude; `used` is
    the largest share of the allowed difference; `spread` the standard deviation of the output by
    the mean allowed difference."""

    model: str
    target: str
    batch: int
    error: float
    used: float
    spread: float

    @property
    def right(self) -> bool:
        return self.used <= 1 and self.spread > 1


def compare(
    model: str, target: str, batch: int, found: list[np.ndarray], wanted: list[np.ndarray]
) -> Comparison:
    """The worst over all outputs."""
    errors, used, spreads = [], [], []
    for a, b in zip(found, wanted, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(f"{model}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}")
        size = float(np.abs(b).max())
        difference = np.abs(a.astype(np.float64) - b)
        allowed = RELATIVE * np.abs(b) + ABSOLUTE * size
        errors.append(float(difference.max()) / size)
        used.append(float((difference / allowed).max()))
        spreads.append(float(b.std() / allowed.mean()))
    return Comparison(model, target, batch, max(errors), max(used), min(spreads))


def comparisons(names: list[str]) -> Iterator[Comparison]:
    """All of them, model after model."""
    for name in names:
        model = ZOO[name]()
        inputs = sample_inputs(model)
        wanted = reference(model, inputs)
        for target in (cpu.host(), cpu.host(threads=1), cpu.cpu("avx2")):
            module = tilewright.compile(model, target=target)
            label = f"{target.name}, {target.cores} threads" if target.cores > 1 else target.name
            yield compare(name, label, 1, listed(module(**inputs)), wanted)
        if name in SYMBOLIC:
            yield from symbolic(name)


def symbolic(name: str) -> Iterator[Comparison]:
    """Compiled once for any batch."""
    model = ZOO[name](batch="batch")
    module = tilewright.compile(model, target=cpu.host())
    for batch in BATCHES:
        inputs = sample_inputs(model, seed=batch, batch=batch)
        found = listed(module(**inputs))
        yield compare(name, "host, symbolic batch", batch, found, reference(model, inputs))


def reference(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray]:
    """What onnxruntime computes."""
    engine = OnnxRuntime()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        engine.load(path, 1)
        return [np.asarray(a) for a in engine.run(inputs)]


def listed(found: np.ndarray | tuple[np.ndarray, ...]) -> list[np.ndarray]:
    return list(found) if isinstance(found, tuple) else [found]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", default=",".join(ZOO), metavar="A,B", help="default: all")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args()
    names = options.models.split(",")
    unknown = [n for n in names if n not in ZOO]
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(ZOO)}")
    console = Console(stderr=True, highlight=False)
    found = []
    for one in comparisons(names):
        found.append(one)
        console.print(f"… {one.model}, {one.target}, batch {one.batch}")
    if options.json:
        print(json.dumps([{**asdict(c), "right": c.right} for c in found], indent=2))
    else:
        Console().print(table(found))
    return int(not all(c.right for c in found))


def table(found: list[Comparison]) -> Table:
    shown = Table(box=None)
    for heading in ("model", "target", "batch", "error", "of allowed", "spread", ""):
        shown.add_column(heading, justify="left" if heading in ("model", "target") else "right")
    for c in found:
        numbers = (f"{c.error:.0e}", f"{c.used:.1%}", f"{c.spread:,.0f}x")
        shown.add_row(c.model, c.target, str(c.batch), *numbers, "✓" if c.right else "✗")
    return shown


if __name__ == "__main__":
    sys.exit(main())
