"""Copying an array: the yardstick for kernels that memory limits.

    python examples/kernels/copy_array.py            64 MiB, on one core
    python examples/kernels/copy_array.py 4096 4096

Nothing that reads one array and writes another of that size can be faster, with the same stores.
"""

import sys

from common import Case, random, vectors, zeros

import tilewright as tw
from tilewright import Schedule, dims, f32, grid
from tilewright.schedule.primitives.loops import Tail
from tilewright.target.target import Target
from tilewright.targets import cpu

M, N = dims("M N", min=1)


@tw.kernel
def copy_array(X: f32[M, N], Y: f32[M, N]):
    for i, j in grid(M, N):
        Y[i, j] = X[i, j]


def schedule(program: tw.KernelFunction, target: Target, *, nontemporal: bool = False) -> Schedule:
    """One loop over all elements, in four vectors at a time: 256 bytes between two branches."""
    s = tw.Schedule(program)
    lanes = target.vector.lanes(f32)
    everything = s.fuse(s.loop("i"), s.loop("j"))
    size = min(4 * lanes, s.for_(everything).extent)
    _, four = s.split(everything, size, Tail.SHIFT)
    vectors(s, four, min(lanes, size))
    if nontemporal:
        s.store_nontemporal(s.buffer("Y"))
    return s


def case(m: int = 16384, n: int = 1024) -> Case:
    target = cpu.host(threads=1)
    x = random(m, n)
    s = schedule(copy_array.bind(M=m, N=n), target)
    return Case(s, target, (x, zeros(m, n)), lambda: x, bytes=8.0 * m * n)


if __name__ == "__main__":
    case(*map(int, sys.argv[1:])).show()
