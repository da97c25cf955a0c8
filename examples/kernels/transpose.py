"""Transposing a matrix, written as a kernel, and scheduled by hand.

python examples/kernels/transpose.py              4096 x 4096 (64 MiB), on one core
python examples/kernels/transpose.py 1000 1000
"""

import sys

from common import Case, random, zeros

import tilewright as tw
from tilewright import Schedule, dims, f32, grid
from tilewright.schedule.primitives.loops import Tail
from tilewright.target.target import Target
from tilewright.targets import cpu

M, N = dims("M N", min=1)

TILE = 128
"""Rows and columns of X that are done together: 64 KiB, two of which fit the second cache, also
where rows lie a power of two apart and share its places. A tile's columns are written as 512 bytes
of a row of Y, one behind the other: memory takes them as fast as a whole array in order, and single
lines at half that rate."""


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
        size = max(1, min(TILE, s.for_(loop).extent // lanes * lanes))
        outer, loop = s.split(loop, size, Tail.SHIFT)
        loops.append((outer, *s.split(loop, min(lanes, size))))
    (i_tile, i_square, i), (j_tile, j_square, j) = loops
    s.reorder(i_tile, j_tile, j_square, i_square, j, i)
    tile = s.fuse(i_tile, j_tile)

    # A square: its rows are read as vectors, turned in registers (64 shuffles of two vectors each,
    # backends/native/transpose.py), and written as vectors, whole lines of Y that need not be read
    # before.
    s.unroll(j)
    s.vectorize(i)
    s.store_nontemporal(s.buffer("Y"))

    # Squares in a row of Y are copies: the processor guesses what an instruction will read next,
    # and one that jumps from row to row has it fetch lines in vain. Each square asks for a part of
    # the next tile, in the order of memory.
    s.unroll(i_square)
    s.unroll(s.prefetch(s.buffer("X"), tile, i_square))
    return s


def case(m: int = 4096, n: int = 4096) -> Case:
    target = cpu.host(threads=1)
    x = random(m, n)
    s = schedule(transpose.bind(M=m, N=n), target)
    return Case(s, target, (x, zeros(n, m)), lambda: x.T, bytes=8.0 * m * n)


if __name__ == "__main__":
    case(*map(int, sys.argv[1:])).show()
