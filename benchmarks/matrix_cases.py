"""Kernels that networks need, in bytes: what the chips' matrix takes (matrix.py). Inputs in order,
then the result; sums are of 32 bits, and shifted and clipped to bytes."""

from collections.abc import Callable, Iterator

import numpy as np
from attention_cases import attention, gelu, layer_norm, product_16, softmax
from chip_kernels import SHIFT, Case, narrow, product
from vector_cases import (
    average_pool,
    global_average,
    hard_swish,
    leaky,
    max_pool,
    relu6,
    rescaled,
    residual,
    wide,
)

from tilewright import cast, grid, i8, i32, kernel, local, reduce


def dense(batch: int, c: int = 512, f: int = 512) -> Case:
    @kernel
    def dense(X: i8[batch, c], W: i8[f, c], bias: i32[f], Y: i8[batch, f]):
        total = local(i32[batch, f])
        for i, j in grid(batch, f):
            total[i, j] = 0
            for k in reduce(c):
                total[i, j] += cast(i32, X[i, k]) * cast(i32, W[j, k])
        for i, j in grid(batch, f):
            Y[i, j] = cast(i8, max(min((total[i, j] + bias[j]) >> SHIFT, 127), -128))

    return Case(f"dense, batch {batch}", dense.kernel, lambda x, w, b: narrow(product(x, w.T) + b))


def taps(x: np.ndarray, k: int, step: int, dilation: int, n: int) -> Iterator[np.ndarray]:
    """What each place of a window sees, rows first: pictures [channels, rows, columns]."""
    reach = step * (n - 1) + 1
    for r, s in np.ndindex(k, k):
        a, b = r * dilation, s * dilation
        yield x[:, a : a + reach : step, b : b + reach : step]


def convolved(x: np.ndarray, w: np.ndarray, n: int, step: int, dilation: int) -> np.ndarray:
    """Sums [filters, n, n] of a picture with its border."""
    f, c, k, _ = w.shape
    total = np.zeros((f, n * n), np.int32)
    for (r, s), part in zip(np.ndindex(k, k), taps(x, k, step, dilation, n), strict=True):
        total += product(w[:, :, r, s], part.reshape(c, -1))
    return total.reshape(f, n, n)


def bordered(x: np.ndarray, before: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (before, before), (before, before)))


def conv(
    name: str, n: int, c: int, f: int, k: int, step: int = 1, dilation: int = 1, before: int = 0
) -> Case:
    """A convolution with padding, as people write it."""
    m = (n + 2 * before - dilation * (k - 1) - 1) // step + 1

    @kernel
    def conv(X: i8[c, n, n], W: i8[f, c, k, k], bias: i32[f], Y: i8[f, m, m]):
        total = local(i32[f, m, m])
        for o, y, x in grid(f, m, m):
            total[o, y, x] = 0
            for i, r, s in reduce(c, k, k):
                p = y * step + r * dilation - before
                q = x * step + s * dilation - before
                pixel = X[i, p, q] if 0 <= p < n and 0 <= q < n else 0
                total[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])
        for o, y, x in grid(f, m, m):
            Y[o, y, x] = cast(i8, max(min((total[o, y, x] + bias[o]) >> SHIFT, 127), -128))

    def reference(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
        sums = convolved(bordered(x, before), w, m, step, dilation)
        return narrow(sums + bias[:, None, None])

    return Case(name, conv.kernel, reference)


def residual_conv(n: int, c: int, f: int) -> Case:
    """A 3x3 convolution, to which an activation is added."""

    @kernel
    def conv(X: i8[c, n, n], W: i8[f, c, 3, 3], bias: i32[f], R: i8[f, n, n], Y: i8[f, n, n]):
        total = local(i32[f, n, n])
        for o, y, x in grid(f, n, n):
            total[o, y, x] = 0
            for i, r, s in reduce(c, 3, 3):
                p = y + r - 1
                q = x + s - 1
                pixel = X[i, p, q] if 0 <= p < n and 0 <= q < n else 0
                total[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])
        for o, y, x in grid(f, n, n):
            sums = (total[o, y, x] + bias[o]) >> SHIFT
            Y[o, y, x] = cast(i8, max(min(sums + cast(i32, R[o, y, x]), 127), -128))

    def reference(x: np.ndarray, w: np.ndarray, bias: np.ndarray, r: np.ndarray) -> np.ndarray:
        sums = convolved(bordered(x, 1), w, n, 1, 1) + bias[:, None, None]
        return np.clip((sums >> SHIFT) + wide(r), -128, 127).astype(np.int8)

    return Case("3×3 with a residual", conv.kernel, reference)


def scaled_conv(n: int, c: int, f: int) -> Case:
    """A 1x1 convolution with a multiplier for each channel."""

    @kernel
    def conv(X: i8[c, n, n], W: i8[f, c], bias: i32[f], M: i32[f], Y: i8[f, n, n]):
        total = local(i32[f, n, n])
        for o, y, x in grid(f, n, n):
            total[o, y, x] = 0
            for i in reduce(c):
                total[o, y, x] += cast(i32, X[i, y, x]) * cast(i32, W[o, i])
        for o, y, x in grid(f, n, n):
            sums = (total[o, y, x] + bias[o] >> 7) * M[o] >> 16
            Y[o, y, x] = cast(i8, max(min(sums, 127), -128))

    def reference(x: np.ndarray, w: np.ndarray, bias: np.ndarray, m: np.ndarray) -> np.ndarray:
        sums = product(w, x.reshape(c, -1)) + bias[:, None] >> 7
        return np.clip(sums * m[:, None] >> 16, -128, 127).astype(np.int8).reshape(f, n, n)

    return Case("1×1 with per-channel scales", conv.kernel, reference)


def grouped(n: int, groups: int, c: int, f: int) -> Case:
    """A 3x3 convolution by groups of c channels to f."""

    @kernel
    def conv(
        X: i8[groups, c, n, n], W: i8[groups, f, c, 3, 3], bias: i32[groups, f],
        Y: i8[groups, f, n, n],
    ):  # fmt: skip
        total = local(i32[groups, f, n, n])
        for g, o, y, x in grid(groups, f, n, n):
            total[g, o, y, x] = 0
            for i, r, s in reduce(c, 3, 3):
                p = y + r - 1
                q = x + s - 1
                pixel = X[g, i, p, q] if 0 <= p < n and 0 <= q < n else 0
                total[g, o, y, x] += cast(i32, pixel) * cast(i32, W[g, o, i, r, s])
        for g, o, y, x in grid(groups, f, n, n):
            sums = (total[g, o, y, x] + bias[g, o]) >> SHIFT
            Y[g, o, y, x] = cast(i8, max(min(sums, 127), -128))

    def reference(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
        parts = [convolved(bordered(a, 1), b, n, 1, 1) for a, b in zip(x, w, strict=True)]
        return narrow(np.stack(parts) + bias[:, :, None, None])

    return Case(f"3×3, {groups} groups of {c}", conv.kernel, reference)


def depthwise(n: int, c: int) -> Case:
    @kernel
    def conv(X: i8[c, n, n], W: i8[c, 3, 3], bias: i32[c], Y: i8[c, n, n]):
        total = local(i32[c, n, n])
        for o, y, x in grid(c, n, n):
            total[o, y, x] = 0
            for r, s in reduce(3, 3):
                p = y + r - 1
                q = x + s - 1
                pixel = X[o, p, q] if 0 <= p < n and 0 <= q < n else 0
                total[o, y, x] += cast(i32, pixel) * cast(i32, W[o, r, s])
        for o, y, x in grid(c, n, n):
            Y[o, y, x] = cast(i8, max(min((total[o, y, x] + bias[o]) >> SHIFT, 127), -128))

    def reference(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
        seen = taps(bordered(x, 1), 3, 1, 1, n)
        pairs = zip(np.ndindex(3, 3), seen, strict=True)
        sums = sum(wide(part) * wide(w[:, r, s, None, None]) for (r, s), part in pairs)
        return narrow(sums + bias[:, None, None])

    return Case("depthwise 3×3", conv.kernel, reference)


def transposed(n: int, c: int, f: int, k: int) -> Case:
    """A transposed convolution of stride 2 without overhang: each result is a sum over the places
    of the window that reach it."""
    m, each = 2 * n, k // 2
    before = (k - 2) // 2

    @kernel
    def conv(X: i8[c, n, n], W: i8[c, f, k, k], bias: i32[f], Y: i8[f, m, m]):
        total = local(i32[f, n, 2, n, 2])
        for o, y, a, x, b in grid(f, n, 2, n, 2):
            total[o, y, a, x, b] = 0
            for i, r, s in reduce(c, each, each):
                # Place u of a window lands on row 2 p + u - before.
                u = (a + before) % 2 + 2 * r
                v = (b + before) % 2 + 2 * s
                p = y + (a + before) // 2 - r
                q = x + (b + before) // 2 - s
                pixel = X[i, p, q] if 0 <= p < n and 0 <= q < n else 0
                total[o, y, a, x, b] += cast(i32, pixel) * cast(i32, W[i, o, u, v])
        for o, y, a, x, b in grid(f, n, 2, n, 2):
            sums = (total[o, y, a, x, b] + bias[o]) >> SHIFT
            Y[o, y * 2 + a, x * 2 + b] = cast(i8, max(min(sums, 127), -128))

    def reference(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
        full = np.zeros((f, 2 * n + k - 2, 2 * n + k - 2), np.int32)
        for u, v in np.ndindex(k, k):
            part = product(w[:, :, u, v].T, x.reshape(c, -1)).reshape(f, n, n)
            full[:, u : u + 2 * n : 2, v : v + 2 * n : 2] += part
        inner = full[:, before : before + m, before : before + m]
        return narrow(inner + bias[:, None, None])

    return Case(f"transposed {k}×{k}/2", conv.kernel, reference)


def product_of_two(n: int, c: int) -> Case:
    """Two activations, as in attention."""

    @kernel
    def scores(Q: i8[n, c], K: i8[n, c], Y: i8[n, n]):
        total = local(i32[n, n])
        for i, j in grid(n, n):
            total[i, j] = 0
            for k in reduce(c):
                total[i, j] += cast(i32, Q[i, k]) * cast(i32, K[j, k])
        for i, j in grid(n, n):
            Y[i, j] = cast(i8, max(min(total[i, j] >> SHIFT, 127), -128))

    return Case("product of two activations", scores.kernel, lambda a, b: narrow(product(a, b.T)))


def gram(n: int, c: int) -> Case:
    """One array as both operands."""

    @kernel
    def gram(X: i8[n, c], Y: i8[n, n]):
        total = local(i32[n, n])
        for i, j in grid(n, n):
            total[i, j] = 0
            for k in reduce(c):
                total[i, j] += cast(i32, X[i, k]) * cast(i32, X[j, k])
        for i, j in grid(n, n):
            Y[i, j] = cast(i8, max(min(total[i, j] >> SHIFT, 127), -128))

    return Case("X·Xᵀ", gram.kernel, lambda x: narrow(product(x, x.T)))


def transpose(n: int, m: int) -> Case:
    @kernel
    def transpose(X: i8[n, m], Y: i8[m, n]):
        for i, j in grid(m, n):
            Y[i, j] = X[j, i]

    return Case("transpose", transpose.kernel, lambda x: x.T)


def two_convs(n: int, c: int) -> Case:
    """A 3x3 convolution behind a 1x1."""

    @kernel
    def chain(X: i8[c, n, n], V: i8[c, c], B: i32[c], W: i8[c, c, 3, 3], D: i32[c], Y: i8[c, n, n]):
        first = local(i32[c, n, n])
        middle = local(i8[c, n, n])
        second = local(i32[c, n, n])
        for o, y, x in grid(c, n, n):
            first[o, y, x] = 0
            for i in reduce(c):
                first[o, y, x] += cast(i32, X[i, y, x]) * cast(i32, V[o, i])
        for o, y, x in grid(c, n, n):
            middle[o, y, x] = cast(i8, max(min((first[o, y, x] + B[o]) >> SHIFT, 127), 0))
        for o, y, x in grid(c, n, n):
            second[o, y, x] = 0
            for i, r, s in reduce(c, 3, 3):
                p = y + r - 1
                q = x + s - 1
                pixel = middle[i, p, q] if 0 <= p < n and 0 <= q < n else 0
                second[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])
        for o, y, x in grid(c, n, n):
            Y[o, y, x] = cast(i8, max(min((second[o, y, x] + D[o]) >> SHIFT, 127), -128))

    def reference(
        x: np.ndarray, v: np.ndarray, b: np.ndarray, w: np.ndarray, d: np.ndarray
    ) -> np.ndarray:
        sums = product(v, x.reshape(c, -1)) + b[:, None] >> SHIFT
        middle = np.clip(sums, 0, 127).astype(np.int8).reshape(c, n, n)
        return narrow(convolved(bordered(middle, 1), w, n, 1, 1) + d[:, None, None])

    return Case("3×3 behind 1×1", chain.kernel, reference)


Make = Callable[[], Case]
MATRIX: tuple[Make, ...] = (
    lambda: dense(1),
    lambda: dense(16),
    lambda: dense(128),
    lambda: conv("1×1", 28, 128, 128, 1),
    lambda: conv("3×3", 28, 64, 64, 3, before=1),
    lambda: conv("5×5", 28, 32, 64, 5, before=2),
    lambda: conv("1×1/2", 28, 128, 256, 1, 2),
    lambda: conv("3×3/2", 28, 64, 128, 3, 2, before=1),
    lambda: conv("3×3 dilated by 2", 28, 64, 64, 3, 1, 2, before=2),
    lambda: grouped(28, 4, 32, 32),
    lambda: transposed(14, 64, 64, 2),
    lambda: transposed(14, 64, 64, 4),
    lambda: conv("first 7×7/2", 112, 3, 64, 7, 2, before=3),
    lambda: conv("first 3×3/2", 112, 3, 32, 3, 2, before=1),
    lambda: depthwise(28, 128),
    lambda: product_of_two(128, 64),
    lambda: gram(128, 64),
    lambda: residual_conv(28, 64, 64),
    lambda: scaled_conv(28, 128, 128),
    lambda: rescaled(128, 28),
    lambda: residual(128, 28),
    lambda: max_pool(64, 56, 3, 2, 1),
    lambda: average_pool(128, 28),
    lambda: global_average(512, 7),
    lambda: relu6(96, 56),
    lambda: leaky(128, 26),
    lambda: hard_swish(240, 14),
    lambda: transpose(128, 256),
    lambda: two_convs(28, 64),
    lambda: product_16(256, 256, 256),
    lambda: softmax(128, 128),
    lambda: layer_norm(128, 256),
    lambda: gelu(128, 512),
    lambda: attention(128, 64),
)
