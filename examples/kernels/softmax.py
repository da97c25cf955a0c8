"""Softmax of every row of a matrix, written as a kernel, and scheduled by hand.

    python examples/kernels/softmax.py              16384 rows of 1024 (64 MiB), on one core
    python examples/kernels/softmax.py 1000 1000

A row is read from memory once and written once: 4 KiB of X and 4 KiB of Y stay in L1 (32 KiB) while
they are passed over three times. The exponentials are stored in Y at once: so memory fetches its
lines during the pass that computes most, and the last pass finds them in L1.
"""

import sys

import numpy as np
from common import Case, random, zeros

import tilewright as tw
from tilewright import Schedule, dims, exp, f32, reduce
from tilewright.target.target import Target
from tilewright.targets import cpu

M, N = dims("M N", min=1)

CHAINS = 4
"""Vectors that are worked on at a time. One exponential is a chain of about 20 instructions, each
waiting some 4 cycles for the one before; four of them side by side keep the units busy, and their
values fit the registers. Maxima and sums wait for themselves in the same way. The last pass has no
chain: it takes one vector at a time."""


@tw.kernel
def softmax(X: f32[M, N], Y: f32[M, N]):
    for i in range(M):
        top: f32 = X[i, 0]
        for j in reduce(N):
            top = max(top, X[i, j])
        total: f32 = 0.0
        for j in range(N):
            Y[i, j] = exp(X[i, j] - top)
            total += Y[i, j]
        scale: f32 = 1.0 / total  # a product takes a tenth of the time of a quotient
        for j in range(N):
            Y[i, j] = Y[i, j] * scale


def schedule(program: tw.KernelFunction, target: Target) -> Schedule:
    """The three passes in vectors."""
    s = tw.Schedule(program)
    for name, chains in (("j", CHAINS), ("j_1", CHAINS), ("j_2", 1)):
        _, lanes = s.split(s.loop(name), chains * target.vector.lanes(f32))
        s.vectorize(lanes)
    return s


def case(m: int = 16384, n: int = 1024) -> Case:
    target = cpu.host(threads=1)
    x = random(m, n)
    x *= 10
    s = schedule(softmax.bind(M=m, N=n), target)
    return Case(s, target, (x, zeros(m, n)), lambda: by_numpy(x), bytes=8.0 * m * n)


def by_numpy(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    case(*map(int, sys.argv[1:])).show()
