"""Transposing a matrix, written as a kernel, and scheduled by hand.

python examples/kernels/transpose.py              4096 x 4096 (64 MiB), on one core
python examples/kernels/transpose.py 1000 1000
"""

import sys

from common import Case, random, zeros

import tilewright as tw
from tilewright import Schedule, dims, f32, grid
from tilewright.schedule.loops import Tail
from tilewright.target.target import Target
from tilewright.targets import cpu

M, N = dims("M N", min=1)

TILE = 1024
"""Rows and columns that are done together. Every line of a column lies in another page: a tile's
pages (1024 of X, 1024 of Y) must fit the table of their addresses (3072 entries in L2's TLB), and
each looked up serves more lines the larger the tile is. A tile's row is one page of X, 4 KiB, read
in order; more of it, or fewer rows, are both slower."""


@tw.kernel
def transpose(X: f32[M, N], Y: f32[N, M]):
    for i, j in grid(M, N):
        Y[j, i] = X[i, j]


def schedule(program: tw.KernelFunction, target: Target) -> Schedule:
    """Squares of as many rows as a vector has lanes: 16 x 16, a cache line in each direction."""
    s = tw.Schedule(program)
    lanes = target.vector.lanes(f32)

    # Both loops in tiles, and those in squares; what is left over at the edges begins earlier.
    loops = []
    for name in ("i", "j"):
        loop = s.loop(name)
        tile = max(1, min(TILE, s.for_(loop).extent // lanes * lanes))
        outer, loop = s.split(loop, tile, Tail.SHIFT)
        loops.append((outer, *s.split(loop, min(lanes, tile))))
    (i_tile, i_square, i), (j_tile, j_square, j) = loops
    s.reorder(i_tile, j_tile, i_square, j_square, j, i)  # 16 rows of X: as many as are prefetched

    # A square: its rows are read as vectors, turned in registers (64 shuffles of two vectors each,
    # codegen/llvm_transpose.py), and written as vectors.
    s.unroll(j)
    s.vectorize(i)
    return s


def case(m: int = 4096, n: int = 4096) -> Case:
    target = cpu.host(threads=1)
    x = random(m, n)
    s = schedule(transpose.bind(M=m, N=n), target)
    return Case(s, target, (x, zeros(n, m)), lambda: x.T, bytes=8.0 * m * n)


if __name__ == "__main__":
    case(*map(int, sys.argv[1:])).show()
