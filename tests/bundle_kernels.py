"""Kernels for signal processors, and what they compute."""

import numpy as np

from tilewright import cast, dims, grid, i8, i32, kernel, local, reduce
from tilewright.ir.kernel_words import out

M, N, K, T, H, W, C, F, R = dims("M N K T H W C F R", min=1)
LOCAL = "local"


@kernel
def dots(A: i8[M, K], B: i8[N, K], R: i32[M, N]):
    """Every row of A with every row of B."""
    for i, j in grid(M, N):
        R[i, j] = 0
        for k in reduce(K):
            R[i, j] += cast(i32, A[i, k]) * cast(i32, B[j, k])


@kernel
def pairs(A: i8[N, K] @ LOCAL, B: i8[N, K] @ LOCAL, R: out(i32[N] @ LOCAL)):
    """Each row of A with the same row of B; all of it is in local memory."""
    for i in range(N):
        R[i] = 0
        for k in reduce(K):
            R[i] += cast(i32, A[i, k]) * cast(i32, B[i, k])


@kernel
def fir(X: i8[T + K - 1], Q: i8[K], Y: i32[T]):
    for t in range(T):
        Y[t] = 0
        for k in reduce(K):
            Y[t] += cast(i32, X[t + k]) * cast(i32, Q[k])


@kernel
def convolution(X: i8[H + R - 1, W + R - 1, C], Q: i8[F, R, R, C], Y: i32[H, W, F]):
    """Channels last; padding is there already."""
    for h, w, f in grid(H, W, F):
        Y[h, w, f] = 0
        for r, s, c in reduce(R, R, C):
            Y[h, w, f] += cast(i32, X[h + r, w + s, c]) * cast(i32, Q[f, r, s, c])


@kernel
def clipped_depthwise(X: i8[H + 2, W + 2, C], Q: i8[3, 3, C], Y: out(i8[H, W, C])):
    """Each channel on its own; the sums are scaled and saturated."""
    A = local(i32[H, W, C])
    for h, w, c in grid(H, W, C):
        A[h, w, c] = 0
        for r, s in reduce(3, 3):
            A[h, w, c] += cast(i32, X[h + r, w + s, c]) * cast(i32, Q[r, s, c])
    for h, w, c in grid(H, W, C):
        Y[h, w, c] = cast(i8, max(min(A[h, w, c] >> 7, 127), -128))


@kernel
def layer(X: i8[H + R - 1, W + R - 1, C], Q: i8[F, R, R, C], B: i32[F], Y: out(i8[H, W, F])):
    """A convolution, its bias, and what follows in a network of bytes."""
    A = local(i32[H, W, F])
    for h, w, f in grid(H, W, F):
        A[h, w, f] = 0
        for r, s, c in reduce(R, R, C):
            A[h, w, f] += cast(i32, X[h + r, w + s, c]) * cast(i32, Q[f, r, s, c])
    for h, w, f in grid(H, W, F):
        Y[h, w, f] = cast(i8, max(min((A[h, w, f] + B[f]) >> 8, 127), 0))


def layer_reference(x: np.ndarray, q: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.clip((convolve(x, q) + b) >> 8, 0, 127).astype(np.int8)


def fir_reference(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int32), len(q))
    return windows @ q.astype(np.int32)


def convolve(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """One product for each element of the window."""
    filters, rows, columns, _ = q.shape
    height, width = x.shape[0] - rows + 1, x.shape[1] - columns + 1
    y = np.zeros((height, width, filters), np.int32)
    for r in range(rows):
        for s in range(columns):
            part = x[r : r + height, s : s + width].astype(np.int32)
            y += part @ q[:, r, s].astype(np.int32).T
    return y


def depthwise_reference(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    height, width = x.shape[0] - 2, x.shape[1] - 2
    parts = (
        x[r : r + height, s : s + width].astype(np.int32) * q[r, s].astype(np.int32)
        for r in range(3)
        for s in range(3)
    )
    return np.clip(sum(parts) >> 7, -128, 127).astype(np.int8)
