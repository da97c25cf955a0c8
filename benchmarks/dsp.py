"""Kernels on the statically scheduled signal processor, in simulated cycles: the same on every
machine.

    python benchmarks/dsp.py                 two tables; what `make bench-dsp` runs
    python benchmarks/dsp.py --json FILE     all figures as well
    python benchmarks/dsp.py --asm KERNEL    its bundles

Each kernel is compiled from the chip's description alone. The bound is counted without a simulator,
from the program's operations: as many cycles as its busiest slot has operations, spread over the
slots of that kind (the resource bound of modulo scheduling, for all iterations), or as its bytes
need. "model" is how far off the model was that chose the plan; seconds are the processor's. Results
are compared with numpy, to the bit. The second table is a convolution by 7x7 on a chip with little
local memory, which keeps what tiles have in common in a ring buffer, or does not.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from dsp_kernels import (
    conv,
    convolved,
    depthwise,
    dots,
    filtered,
    filtered_channels,
    fir,
    in_bytes,
    layer,
    pairs,
    product,
    row_products,
)
from rich.console import Console
from rich.table import Table

from tilewright.backends.bundles.code import loops
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Kernel
from tilewright.targets.dsp import dsp

Reference = Callable[..., np.ndarray]

CASES: Mapping[str, tuple[Kernel, Reference]] = {
    "dot products, 64 by 1024 of 256": (dots.bind(M=64, N=1024, K=256).kernel, product),
    "dot products of 256 pairs, local": (pairs.bind(N=256, K=256).kernel, row_products),
    "FIR, 64 taps, 64 Ki samples": (fir.bind(T=65536, K=64).kernel, filtered),
    "3×3, 64→64 channels, 56×56": (conv.bind(H=56, W=56, C=64, F=64, R=3).kernel, convolved),
    "the same with bias, in bytes": (layer.bind(H=56, W=56, C=64, F=64, R=3).kernel, in_bytes),
    "depthwise 3×3, 128 channels, 56×56": (
        depthwise.bind(H=56, W=56, C=128, R=3).kernel,
        filtered_channels,
    ),
}
SMALL = {"local": 16 << 10, "bandwidth": 4}
RINGS: Mapping[str, tuple[Kernel, Reference]] = {
    "7×7, 16→16 channels, 56×56": (conv.bind(H=56, W=56, C=16, F=16, R=7).kernel, convolved),
    "depthwise 7×7, 64 channels, 28×28": (
        depthwise.bind(H=28, W=28, C=64, R=7).kernel,
        filtered_channels,
    ),
}


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Row:
    """One kernel: cycles; those that its slots need, and that the model expected; cycles between
    iterations of the loop that runs most, and at least; seconds; bytes that the DMA engine moves;
    microjoules."""

    kernel: str
    bound: int
    bottleneck: str
    cycles: int
    predicted: float
    interval: int
    least: int
    exact: bool
    compile_s: float
    run_s: float
    moved: int
    microjoules: float

    @property
    def share(self) -> float:
        return self.bound / self.cycles


def measure(name: str, program: Kernel, reference: Reference, **options: object) -> Row:
    """Builds and runs a kernel; `options` are the chip's, and `rings`."""
    rings = bool(options.pop("rings", True))
    start = time.process_time()
    built = build_chip(program, dsp(**options), rings=rings)
    compiled = time.process_time()
    exact = right(built, reference)
    stop = time.process_time()
    interval, least = intervals(built)
    t, bound = built.timeline, built.bound
    return Row(
        name, bound.cycles, bound.bottleneck, built.cycles, built.predicted or 0.0, interval, least,
        exact, compiled - start, stop - compiled, sum(t.moved.values()), t.joules * 1e6,
    )  # fmt: skip


def right(built: ChipKernel, reference: Reference) -> bool:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, b.shape).astype(b.dtype.numpy) for b in built.source.inputs]
    (output,) = built.source.outputs
    result = built(*arrays, np.zeros(output.shape, output.dtype.numpy))
    return np.array_equal(result, reference(*arrays))


def intervals(built: ChipKernel) -> tuple[int, int]:
    """Cycles between iterations of the loop that runs most, and what they must be at least."""
    found = [x.pipelined for s in built.program.sections for x in loops(s.code) if x.pipelined]
    p = max(found, key=lambda p: p.count)
    return p.interval, max(p.slots, p.recurrence)


def bounds_table(rows: list[Row]) -> Table:
    shown = Table(box=None)
    right_ = ("bound", "cycles", "of bound", "model", "interval", "at least", "exact")
    right_ += ("compile s", "run s")
    for heading in ("kernel", "by", *right_):
        shown.add_column(heading, justify="right" if heading in right_ else "left")
    for r in rows:
        shown.add_row(
            r.kernel, r.bottleneck, f"{r.bound:,}", f"{r.cycles:,}", f"{r.share:.1%}",
            f"{r.predicted / r.cycles - 1:+.1%}", str(r.interval), str(r.least),
            "✓" if r.exact else "✗", f"{r.compile_s:.1f}", f"{r.run_s:.1f}",
        )  # fmt: skip
    return shown


def rings_table(pairs_: list[tuple[Row, Row]]) -> Table:
    shown = Table(box=None)
    for heading in ("kernel", "rings", "cycles", "DMA bytes", "µJ", "exact"):
        shown.add_column(heading, justify="left" if heading in ("kernel", "rings") else "right")
    for off, on in pairs_:
        for name, r in (("off", off), ("on", on)):
            mark = "✓" if r.exact else "✗"
            energy = f"{r.microjoules:,.1f}"
            shown.add_row(r.kernel, name, f"{r.cycles:,}", f"{r.moved:,}", energy, mark)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--asm", metavar="KERNEL", help="print the bundles of a kernel")
    options = parser.parse_args()
    if options.asm is not None:
        name = next(n for n in CASES if n.startswith(options.asm))
        print(build_chip(CASES[name][0], dsp()).assembly)
        return 0
    rows = [measure(name, *case) for name, case in CASES.items()]
    ringed = [
        (measure(name, *case, rings=False, **SMALL), measure(name, *case, rings=True, **SMALL))
        for name, case in RINGS.items()
    ]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    console.print(bounds_table(rows))
    little = f"{SMALL['local'] >> 10} KiB of local memory, {SMALL['bandwidth']} bytes a cycle:"
    console.print(f"\n{little}")
    console.print(rings_table(ringed))
    if options.json is not None:
        both = [[asdict(off), asdict(on)] for off, on in ringed]
        figures = {"bounds": [asdict(r) for r in rows], "rings": both}
        options.json.write_text(json.dumps(figures, indent=2))
    every = [*rows, *(r for pair in ringed for r in pair)]
    return int(not all(r.exact for r in every))


if __name__ == "__main__":
    sys.exit(main())
