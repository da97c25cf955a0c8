"""Kernels on chips, in simulated cycles: the same on every machine.

    python benchmarks/chips.py              a table; what `make bench-chips` runs
    python benchmarks/chips.py --json FILE  all figures as well

Each kernel is compiled from the chip's description alone, twice: with tiles that overlap and with
one tile after another. The bound is counted without a simulator (schedule/choose_tiles.py): the
unit at work all the time, or all operands moved once, between one smallest load and one smallest
store. Results are compared with numpy, to the bit.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tilewright import cast, dims, grid, i8, i32, kernel, reduce
from tilewright.chip import build_chip, lower_bound
from tilewright.ir.loop import Kernel
from tilewright.targets.tiny import tiny

M, N, K, H, W, C, F = dims("M N K H W C F")


@kernel
def gemm(A: i8[M, K], B: i8[K, N], R: i32[M, N]):
    for i, j in grid(M, N):
        R[i, j] = 0
        for k in reduce(K):
            R[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])


@kernel
def conv3x3(X: i8[C, H + 2, W + 2], Q: i8[F, C, 3, 3], R: i32[F, H, W]):
    """Padding already there."""
    for f, h, w in grid(F, H, W):
        R[f, h, w] = 0
        for c, r, s in reduce(C, 3, 3):
            R[f, h, w] += cast(i32, X[c, h + r, w + s]) * cast(i32, Q[f, c, r, s])


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of bytes, in i32."""
    return a.astype(np.int32) @ b.astype(np.int32)


def convolve(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Nine products, one for each element of the window."""
    height, width = x.shape[1] - 2, x.shape[2] - 2
    planes = x.transpose(1, 2, 0)
    parts = (
        matmul(planes[r : r + height, s : s + width], q[:, :, r, s].T)
        for r in range(3)
        for s in range(3)
    )
    return sum(parts).transpose(2, 0, 1)


Reference = Callable[[np.ndarray, np.ndarray], np.ndarray]

CASES: dict[str, tuple[Kernel, Reference]] = {
    "GEMM 256³": (gemm.bind(M=256, N=256, K=256).kernel, matmul),
    "3×3, 32→64 channels, 32×32": (conv3x3.bind(C=32, F=64, H=32, W=32).kernel, convolve),
}


@dataclass(frozen=True)
class Row:
    """One kernel on one chip. Times in cycles; `busy` by queue, of the overlapped one."""

    chip: str
    kernel: str
    bound: int
    overlapped: int
    single: int
    busy: dict[str, int]
    waits: int
    instructions: int
    exact: bool
    compile_s: float


def measure(name: str, program: Kernel, reference: Reference) -> Row:
    """Builds and runs a kernel both ways."""
    chip = tiny()
    arrays = [
        np.random.default_rng(i).integers(-128, 128, b.shape).astype(np.int8)
        for i, b in enumerate(program.inputs)
    ]
    start = time.perf_counter()
    overlapped = build_chip(program, chip)
    seconds = time.perf_counter() - start
    single = build_chip(program, chip, overlap=False)
    wanted = reference(*arrays)
    results = [f(*arrays, np.zeros(wanted.shape, np.int32)) for f in (overlapped, single)]
    return Row(
        chip.name,
        name,
        lower_bound(program, chip).cycles,
        overlapped.timeline.cycles,
        single.timeline.cycles,
        dict(overlapped.timeline.busy),
        overlapped.waits.count,
        len(overlapped.stream),
        all(np.array_equal(r, wanted) for r in results),
        seconds,
    )


def table(rows: list[Row]) -> Table:
    shown = Table(box=None)
    left = ("chip", "kernel")
    right = ("bound", "overlapped", "of bound", "single", "of bound", "exact", "compile s")
    for heading in (*left, *right):
        shown.add_column(heading, justify="left" if heading in left else "right")
    for r in rows:
        numbers = (f"{r.overlapped:,}", f"{r.bound / r.overlapped:.1%}")
        numbers += (f"{r.single:,}", f"{r.bound / r.single:.1%}", "✓" if r.exact else "✗")
        shown.add_row(r.chip, r.kernel, f"{r.bound:,}", *numbers, f"{r.compile_s:.1f}")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    rows = [measure(name, *case) for name, case in CASES.items()]
    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2))
    return int(not all(r.exact for r in rows))


if __name__ == "__main__":
    sys.exit(main())
