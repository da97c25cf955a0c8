"""Layer normalization of every row of a matrix, written as a kernel, and scheduled by hand.

    python examples/kernels/layer_norm.py              16384 rows of 1024 (64 MiB), on one core
    python examples/kernels/layer_norm.py 1000 1000

A row is read from memory once and written once: 4 KiB of X, 4 KiB of Y and 8 KiB of scales and
shifts stay in L1 (32 KiB) while the row is passed over three times. The second pass stores what it
computes in Y: so memory fetches and writes back lines during two passes, and the last finds them
in L1. (Read X again in the last pass instead, and it takes a fifth longer.)
"""

import sys

import numpy as np
from common import Case, random, zeros

import tilewright as tw
from tilewright import Schedule, dims, f32, reduce, sqrt
from tilewright.target.target import Target
from tilewright.targets import cpu

M, N = dims("M N", min=1)
EPSILON = 1e-5

CHAINS = 4
"""Vectors that are worked on at a time: a sum waits for its last value for 4 cycles or so."""


@tw.kernel
def layer_norm(X: f32[M, N], G: f32[N], B: f32[N], Y: f32[M, N]):
    for i in range(M):
        total: f32 = 0.0
        for j in reduce(N):
            total += X[i, j]
        mean: f32 = total / f32(N)
        squares: f32 = 0.0
        for j in range(N):
            Y[i, j] = X[i, j] - mean
            squares += Y[i, j] * Y[i, j]
        scale: f32 = 1.0 / sqrt(squares / f32(N) + EPSILON)
        for j in range(N):
            Y[i, j] = Y[i, j] * scale * G[j] + B[j]


def schedule(program: tw.KernelFunction, target: Target) -> Schedule:
    """The three passes in vectors."""
    s = tw.Schedule(program)
    for name in ("j", "j_1", "j_2"):
        _, lanes = s.split(s.loop(name), CHAINS * target.vector.lanes(f32))
        s.vectorize(lanes)
    return s


def case(m: int = 16384, n: int = 1024) -> Case:
    target = cpu.host(threads=1)
    x, g, b = random(m, n), random(n), random(n)
    s = schedule(layer_norm.bind(M=m, N=n), target)
    return Case(s, target, (x, g, b, zeros(m, n)), lambda: by_numpy(x, g, b), bytes=8.0 * m * n)


def by_numpy(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON) * g + b


if __name__ == "__main__":
    case(*map(int, sys.argv[1:])).show()
