"""What transformers have between their products, in floats, and a head of attention: the chips'
matrix takes them (matrix.py). Sums and functions are of 32 bits."""

import math

import ml_dtypes
import numpy as np
from chip_kernels import Case

from tilewright import bf16, cast, exp, f32, grid, kernel, local, reduce, sqrt, tanh

LOWEST = -3.0e38
CLOSE, CLOSE_16 = 1e-4, 2e-2  # relative errors: sums in other orders, and results of 8 bits


def softmax(n: int, m: int) -> Case:
    """Of rows."""

    @kernel
    def softmax(X: f32[n, m], Y: f32[n, m]):
        for i in grid(n):
            most: f32 = LOWEST
            for j in reduce(m):
                most = max(most, X[i, j])
            total: f32 = 0.0
            for j in reduce(m):
                total += exp(X[i, j] - most)
            for j in grid(m):
                Y[i, j] = exp(X[i, j] - most) / total

    return Case(f"softmax {n}x{m}", softmax.kernel, softmaxed, tolerance=CLOSE)


def softmaxed(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def layer_norm(n: int, m: int) -> Case:
    """Of rows, with a scale and an offset for each column."""

    @kernel
    def layer_norm(X: f32[n, m], G: f32[m], B: f32[m], Y: f32[n, m]):
        for i in grid(n):
            total: f32 = 0.0
            for j in reduce(m):
                total += X[i, j]
            mean: f32 = total * (1.0 / m)
            squares: f32 = 0.0
            for j in reduce(m):
                squares += (X[i, j] - mean) * (X[i, j] - mean)
            scale: f32 = 1.0 / sqrt(squares * (1.0 / m) + 0.00001)
            for j in grid(m):
                Y[i, j] = (X[i, j] - mean) * scale * G[j] + B[j]

    def reference(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g + b

    return Case(f"layer norm {n}x{m}", layer_norm.kernel, reference, tolerance=CLOSE)


def gelu(n: int, m: int) -> Case:
    """By its hyperbolic tangent."""
    scale = math.sqrt(2 / math.pi)

    @kernel
    def gelu(X: f32[n, m], Y: f32[n, m]):
        for i, j in grid(n, m):
            inner = X[i, j] * scale + X[i, j] * X[i, j] * X[i, j] * (0.044715 * scale)
            Y[i, j] = X[i, j] * 0.5 * (tanh(inner) + 1.0)

    def reference(x: np.ndarray) -> np.ndarray:
        return x * 0.5 * (np.tanh(scale * (x + 0.044715 * x**3)) + 1)

    return Case(f"GELU {n}x{m}", gelu.kernel, reference, tolerance=CLOSE)


def attention(n: int, d: int) -> Case:
    """A head of n places, d wide; its queries are scaled already."""

    @kernel
    def attention(Q: bf16[n, d], K: bf16[n, d], V: bf16[n, d], Y: bf16[n, d]):
        scores = local(f32[n, n])
        for i, j in grid(n, n):
            scores[i, j] = 0.0
            for k in reduce(d):
                scores[i, j] += cast(f32, Q[i, k]) * cast(f32, K[j, k])
        weights = local(bf16[n, n])
        for i in grid(n):
            most: f32 = LOWEST
            for j in reduce(n):
                most = max(most, scores[i, j])
            total: f32 = 0.0
            for j in reduce(n):
                total += exp(scores[i, j] - most)
            for j in grid(n):
                weights[i, j] = cast(bf16, exp(scores[i, j] - most) / total)
        found = local(f32[n, d])
        for i, k in grid(n, d):
            found[i, k] = 0.0
            for j in reduce(n):
                found[i, k] += cast(f32, weights[i, j]) * cast(f32, V[j, k])
        for i, k in grid(n, d):
            Y[i, k] = cast(bf16, found[i, k])

    def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        q, k, v = (x.astype(np.float32) for x in (q, k, v))
        weights = softmaxed(q @ k.T).astype(ml_dtypes.bfloat16).astype(np.float32)
        return (weights @ v).astype(ml_dtypes.bfloat16)

    return Case(f"attention head {n}x{d}", attention.kernel, reference, tolerance=CLOSE_16)


def product_16(n: int, m: int, k: int) -> Case:
    """Matrices of 16-bit floats."""

    @kernel
    def product(A: bf16[n, k], B: bf16[m, k], Y: bf16[n, m]):
        total = local(f32[n, m])
        for i, j in grid(n, m):
            total[i, j] = 0.0
            for c in reduce(k):
                total[i, j] += cast(f32, A[i, c]) * cast(f32, B[j, c])
        for i, j in grid(n, m):
            Y[i, j] = cast(bf16, total[i, j])

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)

    return Case(f"bf16 product {n}x{m}x{k}", product.kernel, reference, tolerance=CLOSE_16)
