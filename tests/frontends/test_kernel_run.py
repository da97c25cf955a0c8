"""Kernels written in Python mean what numpy says: by the interpreter, and as machine code."""

import math

import numpy as np
import pytest

from tilewright import (
    bool_,
    dims,
    erf,
    exp,
    f16,
    f32,
    grid,
    i8,
    i32,
    kernel,
    local,
    out,
    parallel,
    reduce,
    select,
    unroll,
    vectorize,
)
from tilewright.ir.arguments import check_arguments
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
TWO = cpu.host(threads=2)
B, M, N, K = dims("B M N K")
STEP = 2
SCALE = 0.5
RELU = True


@kernel
def gemm(A: f32[M, K], B: f32[K, N], C: f32[M, N]):
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in reduce(K):
            C[i, j] += A[i, k] * B[k, j]


def gemm_reference(A, B):
    return A @ B


@kernel
def softmax(X: f32[M, N], Y: f32[M, N]):
    for i in range(M):
        top: f32 = X[i, 0]
        for j in reduce(N):
            top = max(top, X[i, j])
        total: f32 = 0.0
        for j in range(N):
            e = exp(X[i, j] - top)
            total += e
            Y[i, j] = e
        for j in range(N):
            Y[i, j] /= total


def softmax_reference(X):
    e = np.exp(X - X.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@kernel
def convolve(X: f32[M, N], W: f32[3, 3], bias: f32, Y: out(f32[M, N])):
    """3 x 3, with zeros around."""
    for i, j in grid(M, N):
        total: f32 = bias
        for a, b in reduce(3, 3):
            y = i + a - 1
            x = j + b - 1
            inside = 0 <= y < M and 0 <= x < N
            total += X[y, x] * W[a, b] if inside else 0.0
        if RELU:
            total = max(total, 0.0)
        Y[i, j] = total


def convolve_reference(X, W, bias):
    padded = np.pad(X, 1)
    rows, columns = X.shape
    parts = [padded[a : a + rows, b : b + columns] * W[a, b] for a in range(3) for b in range(3)]
    return np.maximum(sum(parts) + bias, 0).astype(np.float32)


@kernel
def recurrent(X: f32[N], decay: f32, H: f32[N]):
    h: f32 = 0.0
    for t in range(N):
        h = h * decay + X[t]
        H[t] = h


def recurrent_reference(X, decay):
    h, states = np.float32(0), []
    for x in X:
        h = h * np.float32(decay) + x
        states.append(h)
    return np.array(states, np.float32)


@kernel
def prefix_sum(X: i32[N], Y: i32[N]):
    Y[0] = X[0]
    for t in range(1, N):
        Y[t] = Y[t - 1] + X[t]


def prefix_sum_reference(X):
    return np.cumsum(X, dtype=np.int32)


@kernel
def backwards(X: f32[N], Y: f32[N]):
    """The greatest element from here to the end."""
    Y[N - 1] = X[N - 1]
    for t in range(N - 2, -1, -1):
        Y[t] = max(X[t], Y[t + 1])


def backwards_reference(X):
    return np.maximum.accumulate(X[::-1])[::-1]


@kernel
def gather(X: f32[M, N], rows: i32[K], Y: f32[K, N]):
    for i, j in grid(K, N):
        known = rows[i] >= 0 and rows[i] < i32(M)
        Y[i, j] = X[rows[i], j] if known else -1.0


def gather_reference(X, rows):
    return np.stack(
        [X[r] if 0 <= r < len(X) else np.full(X.shape[1], -1, np.float32) for r in rows]
    )


@kernel
def histogram(X: i32[N], counts: i32[8]):
    for i in range(8):
        counts[i] = 0
    for i in range(N):
        counts[X[i] % 8] += 1


def histogram_reference(X):
    return np.bincount(X % 8, minlength=8).astype(np.int32)


@kernel
def argmax(X: f32[M, N], at: i32[M], value: f32[M]):
    for i in range(M):
        best: f32 = X[i, 0]
        place: i32 = 0
        for j in range(1, N):
            if X[i, j] > best:
                best = X[i, j]
                place = i32(j)
        at[i] = place
        value[i] = best


def argmax_reference(X):
    return X.argmax(1).astype(np.int32), X.max(1)


@kernel
def triangle(X: f32[M, M], Y: f32[M, M]):
    for i, j in grid(M, M):
        Y[i, j] = 0.0
    for i in range(M):
        for j in range(i + 1):
            Y[i, j] = X[i, j]


def triangle_reference(X):
    return np.tril(X)


@kernel
def quantized_dot(X: i8[M, K], W: i8[K], Y: i8[M]):
    for i in range(M):
        acc: i32 = 0
        for k in reduce(K):
            acc += i32(X[i, k]) * i32(W[k])
        Y[i] = i8(min(max(acc >> 4, -128), 127))


def quantized_dot_reference(X, W):
    return np.clip((X.astype(np.int32) @ W.astype(np.int32)) >> 4, -128, 127).astype(np.int8)


@kernel
def tiled_transpose(X: f32[16, 24], Y: f32[24, 16]):
    for io, jo in grid(2, 3):
        t = local(f32[8, 8])
        for i, j in grid(8, 8):
            t[i, j] = X[io * 8 + i, jo * 8 + j]
        for i, j in grid(8, 8):
            Y[jo * 8 + i, io * 8 + j] = t[j, i]


def tiled_transpose_reference(X):
    return X.T


@kernel
def conditions(X: f32[N], A: bool_[N], B: bool_[N], Y: i32[N]):
    for i in range(N):
        A[i] = 0.0 < X[i] < 2.0 or X[i] == -1.0
        B[i] = not A[i]
        B[i] |= X[i] != X[i]
        if A[i]:
            Y[i] = 1
        elif B[i] and i % 2 == 0:
            Y[i] = 2
        else:
            Y[i] = 3
        Y[i] = (Y[i] << 1) ^ 5 & ~2


def conditions_reference(X):
    A = (X > 0) & (X < 2) | (X == -1)
    B = ~A | np.isnan(X)
    Y = np.where(A, 1, np.where(B & (np.arange(len(X)) % 2 == 0), 2, 3))
    return A, B, ((Y << 1) ^ 5 & ~2).astype(np.int32)


@kernel
def every_other(X: f32[2 * N], Y: f32[N]):
    for i in range(0, 2 * N, STEP):
        Y[i // STEP] = X[i] * SCALE


def every_other_reference(X):
    return X[::2] * np.float32(0.5)


@kernel
def half(X: f16[N], Y: f32[N]):
    for i in range(N):
        x = f32(X[i])
        Y[i] = x * 0.5 * (1.0 + erf(x / 1.4142135))


def half_reference(X):
    x = X.astype(np.float64)
    return (x * 0.5 * (1 + np.vectorize(math.erf)(x / 1.4142135))).astype(np.float32)


@kernel
def kinds(X: f32[M, 16], Y: f32[M, 16]):
    for i in parallel(M):
        for j in vectorize(16):
            Y[i, j] = select(X[i, j] > 0.0, X[i, j], 0.0)
        for j in unroll(4):
            Y[i, j] -= 1.0


def kinds_reference(X):
    y = np.maximum(X, 0)
    y[:, :4] -= 1
    return y


def floats(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def ints(low, high, *shape, dtype=np.int32):
    return np.random.default_rng(0).integers(low, high, shape).astype(dtype)


CASES = [
    (gemm, [floats(9, 5), floats(5, 20)]),
    (softmax, [floats(6, 33)]),
    (convolve, [floats(7, 9), floats(3, 3), 0.5]),
    (recurrent, [floats(19), 0.5]),
    (prefix_sum, [ints(-9, 9, 20)]),
    (backwards, [floats(21)]),
    (gather, [floats(5, 7), ints(-2, 7, 11)]),
    (histogram, [ints(0, 100, 50)]),
    (argmax, [floats(4, 18)]),
    (triangle, [floats(7, 7)]),
    (quantized_dot, [ints(-128, 128, 5, 40, dtype=np.int8), ints(-9, 9, 40, dtype=np.int8)]),
    (tiled_transpose, [floats(16, 24)]),
    (conditions, [np.array([-2, -1, 0, 1, 2, np.nan, 1.5], np.float32)]),
    (every_other, [floats(14)]),
    (half, [floats(20, dtype=np.float16)]),
    (kinds, [floats(5, 16)]),
]


def reference_of(function, inputs):
    results = globals()[f"{function.name}_reference"](*inputs)
    return results if isinstance(results, tuple) else (results,)


def tupled(results):
    return results if isinstance(results, tuple) else (results,)


def sizes_of(function, inputs):
    return check_arguments(function.name, function.kernel.inputs, inputs)[1]


@pytest.mark.parametrize("function, inputs", CASES, ids=[f.name for f, _ in CASES])
def test_interpreter(function, inputs):
    found = tupled(function.interpret(*inputs))
    for a, b in zip(found, reference_of(function, inputs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


def check_code(function, built, inputs):
    """Machine code, called with its arrays, gives what numpy says."""
    expected = reference_of(function, inputs)
    outputs = [np.full(e.shape, 7, e.dtype) for e in expected]
    given, made = iter(inputs), iter(outputs)
    written = {b.name for b in function.kernel.outputs}
    arguments = [next(made if name in written else given) for name in function.parameters]
    returned = tupled(built(*arguments))
    assert all(a is b for a, b in zip(returned, outputs, strict=True))
    for a, b in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("target", [HOST, TWO], ids=["alone", "shared"])
@pytest.mark.parametrize("function, inputs", CASES, ids=[f.name for f, _ in CASES])
def test_machine_code(function, inputs, target):
    bound = function.bind(**sizes_of(function, inputs))
    check_code(function, bound.build(target), inputs)


@pytest.mark.parametrize("function, inputs", CASES, ids=[f.name for f, _ in CASES])
def test_symbolic_machine_code(function, inputs):
    check_code(function, function.build(HOST), inputs)


@pytest.mark.parametrize("n", [1, 8, 16, 17])
@pytest.mark.parametrize("level", ["sse2", "avx2"])
def test_square_matrices(level, n):
    """As many rows in a tile as lanes in a vector, among others."""
    bound = gemm.bind(M=n, N=n, K=n)
    check_code(gemm, bound.build(cpu.cpu(level)), [floats(n, n), floats(n, n)])
