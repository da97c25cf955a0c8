"""Kernels without a contraction, with numpy for what they should give, and a chip that has a vector
unit of floats."""

import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright import exp, f32, grid, i8, i32, kernel, local, reduce
from tilewright.ir.loop import Kernel
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, view
from tilewright.target.target import Target

C, H, O = 32, 14, 7


@dataclass(frozen=True)
class Case:
    """A kernel of bytes: inputs in order, then the result."""

    kernel: Kernel
    expected: Callable[..., np.ndarray]


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.int32) for a in arrays]


def clip(a: np.ndarray) -> np.ndarray:
    return np.clip(a, -128, 127)


def windows(x: np.ndarray, size: int, step: int, out: int) -> list[np.ndarray]:
    """What each place of a window sees of pictures [channels, rows, columns]."""
    last = step * (out - 1) + 1
    return [
        x[:, r : r + last : step, s : s + last : step] for r in range(size) for s in range(size)
    ]


@kernel
def add(x: i8[C, H, H], y: i8[C, H, H], z: out(i8[C, H, H])):
    for c, h, w in grid(C, H, H):
        total = i32(x[c, h, w]) * 77 + i32(y[c, h, w]) * 51 + 64 >> 7
        z[c, h, w] = i8(max(min(total, 127), -128))


@kernel
def add_odd(x: i8[5, 3, 7], y: i8[5, 3, 7], z: out(i8[5, 3, 7])):
    for c, h, w in grid(5, 3, 7):
        z[c, h, w] = i8(max(min(i32(x[c, h, w]) + i32(y[c, h, w]) >> 1, 127), -128))


@kernel
def relu6(x: i8[C, H, H], z: out(i8[C, H, H])):
    for c, h, w in grid(C, H, H):
        z[c, h, w] = max(min(x[c, h, w], i8(96)), i8(0))


@kernel
def hard_swish(x: i8[C, H, H], z: out(i8[C, H, H])):
    for c, h, w in grid(C, H, H):
        gate = max(min(i32(x[c, h, w]) + 48, 96), 0)
        z[c, h, w] = i8(i32(x[c, h, w]) * gate * 171 >> 14)


@kernel
def leaky(x: i8[C, H, H], z: out(i8[C, H, H])):
    for c, h, w in grid(C, H, H):
        z[c, h, w] = i8(max(i32(x[c, h, w]), i32(x[c, h, w]) * 13 >> 7))


@kernel
def distance(x: i8[C, H, H], y: i8[C, H, H], z: out(i8[C, H, H])):
    for c, h, w in grid(C, H, H):
        z[c, h, w] = i8(min(abs(i32(x[c, h, w]) - i32(y[c, h, w])), 127))


@kernel
def scale(x: i8[C, H, H], s: i32[C], z: out(i8[C, H, H])):
    for c, h, w in grid(C, H, H):
        z[c, h, w] = i8(max(min(i32(x[c, h, w]) * s[c] >> 5, 127), -128))


@kernel
def copy(x: i8[C, H, H], z: out(i8[C, H, H])):
    for c, h, w in grid(C, H, H):
        z[c, h, w] = x[c, h, w]


@kernel
def max_pool(x: i8[C, H, H], z: out(i8[C, O, O])):
    for c, h, w in grid(C, O, O):
        most: i8 = -128
        for r, s in reduce(3, 3):
            i = h * 2 + r - 1
            j = w * 2 + s - 1
            most = max(most, x[c, i, j] if 0 <= i < H and 0 <= j < H else -128)
        z[c, h, w] = most


@kernel
def max_pool_last(x: i8[H, H, C], z: out(i8[O, O, C])):
    for h, w, c in grid(O, O, C):
        most: i8 = -128
        for r, s in reduce(2, 2):
            most = max(most, x[h * 2 + r, w * 2 + s, c])
        z[h, w, c] = most


@kernel
def large_pool(x: i8[C, 15, 15], z: out(i8[C, O, O])):
    for c, h, w in grid(C, O, O):
        most: i8 = -128
        for r, s in reduce(9, 9):
            most = max(most, x[c, h + r, w + s])
        z[c, h, w] = most


@kernel
def average(x: i8[C, H, H], z: out(i8[C, O, O])):
    for c, h, w in grid(C, O, O):
        total: i32 = 0
        for r, s in reduce(2, 2):
            total += i32(x[c, h * 2 + r, w * 2 + s])
        z[c, h, w] = i8(total + 2 >> 2)


@kernel
def global_average(x: i8[64, O, O], z: out(i8[64])):
    for c in grid(64):
        total: i32 = 0
        for r, s in reduce(O, O):
            total += i32(x[c, r, s])
        z[c] = i8(total * 1337 >> 16)


@kernel
def large_average(x: i8[C, 64, 64], z: out(i8[C])):
    for c in grid(C):
        total: i32 = 0
        for r, s in reduce(64, 64):
            total += i32(x[c, r, s])
        z[c] = i8(total >> 12)


@kernel
def row_maximum(x: i8[128, 96], z: out(i8[128])):
    for i in grid(128):
        most: i8 = -128
        for j in reduce(96):
            most = max(most, x[i, j])
        z[i] = most


@kernel
def squares(x: i8[96, 64], z: out(i8[64])):
    for i in grid(64):
        total: i32 = 0
        for j in reduce(96):
            total += i32(x[j, i]) * i32(x[j, i])
        z[i] = i8(min(total >> 15, 127))


@kernel
def centred(x: i8[C, 64], z: out(i8[C, 64])):
    mean = local(i32[64])
    for i in grid(64):
        mean[i] = 0
        for k in reduce(C):
            mean[i] += i32(x[k, i])
    for c, i in grid(C, 64):
        z[c, i] = i8(max(min(i32(x[c, i]) - (mean[i] >> 5), 127), -128))


def padded(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-128)


def hard_swished(x: np.ndarray) -> np.ndarray:
    return x * np.clip(x + 48, 0, 96) * 171 >> 14


def last_pooled(x: np.ndarray) -> np.ndarray:
    return x.reshape(O, 2, O, 2, C).max((1, 3))


CASES = {
    "add": Case(add.kernel, lambda x, y: clip(x * 77 + y * 51 + 64 >> 7)),
    "add, odd": Case(add_odd.kernel, lambda x, y: clip(x + y >> 1)),
    "relu6": Case(relu6.kernel, lambda x: np.clip(x, 0, 96)),
    "hard swish": Case(hard_swish.kernel, hard_swished),
    "leaky": Case(leaky.kernel, lambda x: np.maximum(x, x * 13 >> 7)),
    "distance": Case(distance.kernel, lambda x, y: np.minimum(abs(x - y), 127)),
    "scale": Case(scale.kernel, lambda x, s: clip(x * s[:, None, None] >> 5)),
    "copy": Case(copy.kernel, lambda x: x),
    "max pool": Case(max_pool.kernel, lambda x: np.max(windows(padded(x), 3, 2, O), 0)),
    "max pool, channels last": Case(max_pool_last.kernel, last_pooled),
    "large pool": Case(large_pool.kernel, lambda x: np.max(windows(x, 9, 1, O), 0)),
    "average": Case(average.kernel, lambda x: np.sum(windows(x, 2, 2, O), 0) + 2 >> 2),
    "global average": Case(global_average.kernel, lambda x: x.sum((1, 2)) * 1337 >> 16),
    "large average": Case(large_average.kernel, lambda x: x.sum((1, 2)) >> 12),
    "row maximum": Case(row_maximum.kernel, lambda x: x.max(1)),
    "squares": Case(squares.kernel, lambda x: np.minimum((x * x).sum(0) >> 15, 127)),
    "centred": Case(centred.kernel, lambda x: clip(x - (x.sum(0) >> 5))),
}


def arguments(case: Kernel, seed: int = 0) -> list[np.ndarray]:
    """Inputs over the whole range of bytes, numbers of 8 bits for others; then the result."""
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(-128, 128, b.shape).astype(b.dtype.numpy) for b in case.inputs]
    (result,) = case.outputs
    return [*inputs, np.zeros(result.shape, result.dtype.numpy)]


# ---------------------------------------------------------------- a vector unit

LOWEST = -3.0e38


def vector_chip(lanes: int = 8, size: int = 32 << 10) -> Target:
    """A chip whose unit works on rows of f32, not in place but for sums and maxima."""
    t = TargetBuilder("vectors", clock=1e9)
    t.memory("dram", bandwidth=16, latency=50)
    t.memory("rows", size)
    load, compute, store = t.queues("load", "compute", "store", depth=32)
    t.tokens((load, compute), (compute, store))
    R, S = dims("R S", max=1024)
    STEP = Range(0, 1 << 20)
    far, near = view(f32[R, S, lanes] @ "dram", "x", "y"), view(f32[R, S, lanes] @ "rows", "a", "b")
    other = view(f32[R, S, lanes] @ "rows", "c", "d")
    made = view(out(f32[R, S, lanes] @ "rows"), "e", "f")

    @t.instruction(load)
    def load_rows(src: far, dst: out(f32[R, S, lanes] @ "rows"), x: STEP, y: STEP):
        for i, j, k in grid(R, S, lanes):
            dst[i, j, k] = src[i, j, k]
        cost(setup=8, bytes=R * S * max(64, 4 * lanes))

    @t.instruction(store)
    def store_rows(
        src: f32[R, S, lanes] @ "rows",
        dst: view(out(f32[R, S, lanes] @ "dram"), "x", "y"),
        x: STEP,
        y: STEP,
    ):
        for i, j, k in grid(R, S, lanes):
            dst[i, j, k] = src[i, j, k]
        cost(setup=8, bytes=R * S * max(64, 4 * lanes))

    pairs = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}
    for name, op in pairs.items():

        @t.instruction(compute, name=name)
        def combine(
            p: near, q: other, z: made, a: STEP, b: STEP, c: STEP, d: STEP, e: STEP, f: STEP
        ):
            for i, j, k in grid(R, S, lanes):
                z[i, j, k] = op(p[i, j, k], q[i, j, k])
            cost(busy=R * S, latency=6)

    for name, op in {"sum": operator.add, "most": max}.items():

        @t.instruction(compute, name=name)
        def accumulate(p: near, z: made, a: STEP, b: STEP, e: STEP, f: STEP):
            for i, j, k in grid(R, S, lanes):
                z[i, j, k] = op(z[i, j, k], p[i, j, k])
            cost(busy=R * S, latency=6)

    @t.instruction(compute)
    def exponent(p: near, z: made, a: STEP, b: STEP, e: STEP, f: STEP):
        for i, j, k in grid(R, S, lanes):
            z[i, j, k] = exp(p[i, j, k])
        cost(busy=2 * R * S, latency=12)

    for name, value in {"zero": 0.0, "lowest": LOWEST}.items():

        @t.instruction(compute, name=name)
        def fill(z: made, e: STEP, f: STEP):
            for i, j, k in grid(R, S, lanes):
                z[i, j, k] = value
            cost(busy=R * S, latency=2)

    return t.build()


N, M = 64, 96


@kernel
def softmax(x: f32[N, M], y: out(f32[N, M])):
    most = local(f32[M])
    for i in grid(M):
        most[i] = LOWEST
        for j in reduce(N):
            most[i] = max(most[i], x[j, i])
    e = local(f32[N, M])
    for j, i in grid(N, M):
        e[j, i] = exp(x[j, i] - most[i])
    total = local(f32[M])
    for i in grid(M):
        total[i] = 0.0
        for j in reduce(N):
            total[i] += e[j, i]
    for j, i in grid(N, M):
        y[j, i] = e[j, i] / total[i]
