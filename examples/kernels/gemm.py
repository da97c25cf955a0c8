"""Matrix multiplication written as a kernel, and scheduled by hand.

    python examples/kernels/gemm.py            1024 x 1024 x 1024, on one core
    python examples/kernels/gemm.py 2048 2     another size, on two cores

The schedule is the classic one (Goto and van de Geijn, TOMS 2008): a tile of C stays in registers
while K is walked once; the columns of B that a tile needs are packed side by side, so that every
read is of the next vector. What it keeps where is said step by step; `s.check()` runs it against
the loops it began with.
"""

import sys

from common import Case, random, vectors, zeros

import tilewright as tw
from tilewright import Schedule, dims, f32, grid, reduce
from tilewright.schedule.primitives.loops import Tail
from tilewright.target.target import Target
from tilewright.targets import cpu

M, N, K = dims("M N K")

ROWS = 4
"""Rows of a register tile. With 4 vectors in a row they are 16 sums: each step of K reads 4 vectors
and 4 numbers for 16 multiply-adds, half as many reads as the machine could do meanwhile, and the
sums, vectors and numbers fit 32 registers. 4 divides the usual sizes."""


@tw.kernel
def gemm(A: f32[M, K], B: f32[K, N], C: f32[M, N]):
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in reduce(K):
            C[i, j] += A[i, k] * B[k, j]


def schedule(program: tw.KernelFunction, target: Target) -> Schedule:
    """The program in register tiles of ROWS x (4 vectors)."""
    lanes = target.vector.lanes(f32)
    columns = lanes * (4 if target.vector.registers >= 32 else 2)
    s = tw.Schedule(program)

    # C is computed tile by tile in registers, and copied out. A panel of columns is done from top
    # to bottom: the last tile of rows begins early enough to be full, and does some rows again.
    tile = s.cache_write(s.buffer("C"), "register")
    i, j = s.loop("i_c"), s.loop("j_c")
    rows = s.for_(i).extent
    row, i = s.split(i, min(ROWS, rows) if isinstance(rows, int) else ROWS, Tail.SHIFT)
    panel, j = s.split(j, columns)
    s.reorder(panel, row, i, j)
    tile = s.compute_at(tile, row)

    # The panel of B is packed: 256 bytes for each k, one behind the other, read in order. For
    # K = 1024 it takes 256 KiB, and stays in L2 while all rows pass; the rows of A pass through L1,
    # 16 bytes for each k. (In place, rows of B would be N apart: a page each, and few cache sets.)
    s.cache_read(s.buffer("B"), panel)
    vectors(s, s.loop("B_local_1"), lanes)

    # K outside, the tile's rows and vectors inside, written out.
    s.split_init(tile)
    s.reorder(s.loop("k"), s.loop("i"), s.loop("j"))
    for rows, lane in (("i_init", "j_init"), ("i", "j"), (i, j)):
        s.unroll(s.loop(str(rows)))
        vectors(s, s.loop(str(lane)), lanes)
    if target.cores > 1:
        s.parallel(panel)
    return s


def case(m: int = 1024, n: int = 1024, k: int = 1024, cores: int = 1) -> Case:
    target = cpu.host(threads=cores)
    a, b = random(m, k), random(k, n)
    s = schedule(gemm.bind(M=m, N=n, K=k), target)
    return Case(s, target, (a, b, zeros(m, n)), lambda: a @ b, flops=2.0 * m * n * k)


def main(n: int = 1024, cores: int = 1) -> None:
    case(n, n, n, cores).show()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
