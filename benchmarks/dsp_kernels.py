"""Kernels for signal processors, and what they compute."""

import numpy as np

from tilewright import cast, dims, grid, i8, i32, kernel, local, reduce
from tilewright.ir.python.words import out

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
def conv(X: i8[H + R - 1, W + R - 1, C], Q: i8[F, R, R, C], Y: i32[H, W, F]):
    """Channels last; padding is there already."""
    for h, w, f in grid(H, W, F):
        Y[h, w, f] = 0
        for r, s, c in reduce(R, R, C):
            Y[h, w, f] += cast(i32, X[h + r, w + s, c]) * cast(i32, Q[f, r, s, c])


@kernel
def layer(X: i8[H + R - 1, W + R - 1, C], Q: i8[F, R, R, C], B: i32[F], Y: out(i8[H, W, F])):
    """A convolution with what follows it in a network of bytes: bias, scaling, no negative ones."""
    A = local(i32[H, W, F])
    for h, w, f in grid(H, W, F):
        A[h, w, f] = 0
        for r, s, c in reduce(R, R, C):
            A[h, w, f] += cast(i32, X[h + r, w + s, c]) * cast(i32, Q[f, r, s, c])
    for h, w, f in grid(H, W, F):
        Y[h, w, f] = cast(i8, max(min((A[h, w, f] + B[f]) >> 8, 127), 0))


@kernel
def depthwise(X: i8[H + R - 1, W + R - 1, C], Q: i8[R, R, C], Y: out(i8[H, W, C])):
    """Sums are scaled and saturated."""
    A = local(i32[H, W, C])
    for h, w, c in grid(H, W, C):
        A[h, w, c] = 0
        for r, s in reduce(R, R):
            A[h, w, c] += cast(i32, X[h + r, w + s, c]) * cast(i32, Q[r, s, c])
    for h, w, c in grid(H, W, C):
        Y[h, w, c] = cast(i8, max(min(A[h, w, c] >> 8, 127), -128))


# ---------------------------------------------------------------- what they compute


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of rows with rows, in i32."""
    return a.astype(np.int32) @ b.astype(np.int32).T


def row_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.int32) * b.astype(np.int32)).sum(1, dtype=np.int32)


def filtered(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int32), len(q))
    return windows @ q.astype(np.int32)


def convolved(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """One product for each element of the window."""
    window = q.shape[1]
    h, w = (n - window + 1 for n in x.shape[:2])
    y = np.zeros((h, w, q.shape[0]), np.int32)
    for r in range(window):
        for s in range(window):
            y += x[r : r + h, s : s + w].astype(np.int32) @ q[:, r, s].astype(np.int32).T
    return y


def in_bytes(x: np.ndarray, q: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.clip((convolved(x, q) + b) >> 8, 0, 127).astype(np.int8)


def filtered_channels(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    window = q.shape[0]
    h, w = (n - window + 1 for n in x.shape[:2])
    y = np.zeros((h, w, x.shape[2]), np.int32)
    for r in range(window):
        for s in range(window):
            y += x[r : r + h, s : s + w].astype(np.int32) * q[r, s].astype(np.int32)
    return np.clip(y >> 8, -128, 127).astype(np.int8)
