"""Kernels of bytes that tests of chips share: products and convolutions, alone and as layers, with
a bias, a shift and limits. Those with sizes for names are bound: `gemm.bind(M=64, N=32, K=16)`."""

from collections.abc import Callable

from tilewright import cast, dims, grid, i8, i32, kernel, local, reduce
from tilewright.kernels import KernelFunction

M, N, K = dims("M N K")
C, F, H, S, V, R = dims("C F H S V R")


# ---------------------------------------------------------------- products


@kernel
def gemm(A: i8[M, K], B: i8[K, N], C: i32[M, N]):
    for i, j in grid(M, N):
        C[i, j] = 0
        for k in reduce(K):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])


@kernel
def dots(A: i8[M, K], B: i8[N, K], C: i32[M, N]):
    """Rows by rows."""
    for i, j in grid(M, N):
        C[i, j] = 0
        for k in reduce(K):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[j, k])


@kernel
def layer(A: i8[M, K], B: i8[K, N], b: i32[N], Y: i8[M, N]):
    """A bias for each column, a shift, clipped."""
    acc = local(i32[M, N])
    for i, j in grid(M, N):
        acc[i, j] = 0
        for k in reduce(K):
            acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(M, N):
        Y[i, j] = cast(i8, max(min((acc[i, j] + b[j]) >> 8, 127), -128))


# ---------------------------------------------------------------- convolutions


@kernel
def conv(X: i8[H + R - 1, V + R - 1, C], W: i8[R, R, C, F], Y: i32[H, V, F]):
    """Channels last."""
    for h, w, o in grid(H, V, F):
        Y[h, w, o] = 0
        for r, s, c in reduce(R, R, C):
            Y[h, w, o] += cast(i32, X[h + r, w + s, c]) * cast(i32, W[r, s, c, o])


@kernel
def conv_layer(X: i8[H + R - 1, V + R - 1, C], W: i8[R, R, C, F], b: i32[F], Y: i8[H, V, F]):
    """Channels last, a bias, a shift, clipped."""
    acc = local(i32[H, V, F])
    for h, w, o in grid(H, V, F):
        acc[h, w, o] = 0
        for r, s, c in reduce(R, R, C):
            acc[h, w, o] += cast(i32, X[h + r, w + s, c]) * cast(i32, W[r, s, c, o])
    for h, w, o in grid(H, V, F):
        Y[h, w, o] = cast(i8, max(min((acc[h, w, o] + b[o]) >> 8, 127), -128))


@kernel
def planes(X: i8[C, S, S], W: i8[F, C, 3, 3], b: i32[F], Y: i8[F, S, S]):
    """A convolution of planes with padding of 1, a bias, a scale, clipped."""
    sums = local(i32[F, S, S])
    for f, h, v in grid(F, S, S):
        sums[f, h, v] = 0
        for c, r, s in reduce(C, 3, 3):
            i = h + r - 1
            j = v + s - 1
            inside = 0 <= i < S and 0 <= j < S
            sums[f, h, v] += i32(X[c, i, j] if inside else 0) * i32(W[f, c, r, s])
    for f, h, v in grid(F, S, S):
        Y[f, h, v] = i8(max(min((sums[f, h, v] + b[f]) * 3 >> 9, 120), -120))


def shifted(total, bias):
    """What follows the sums of most chips' layers."""
    return max(min((total + bias) >> 8, 127), -128)


def scaled(total, bias):
    return max(min((total + bias) * 3 >> 9, 120), -120)


def padded_conv(
    c: int, size: int, f: int, window: int, stride: int, before: int, after: int, finish: Callable
) -> KernelFunction:
    """Planes, with so many 0s before and after their rows and columns; `finish` is `shifted` or
    `scaled`."""
    made = (size + before + after - window) // stride + 1

    @kernel
    def conv(X: i8[c, size, size], W: i8[f, c, window, window], b: i32[f], Y: i8[f, made, made]):
        sums = local(i32[f, made, made])
        for o, h, v in grid(f, made, made):
            sums[o, h, v] = 0
            for d, r, s in reduce(c, window, window):
                i = h * stride + r - before
                j = v * stride + s - before
                inside = 0 <= i < size and 0 <= j < size
                sums[o, h, v] += i32(X[d, i, j] if inside else 0) * i32(W[o, d, r, s])
        for o, h, v in grid(f, made, made):
            Y[o, h, v] = i8(finish(sums[o, h, v], b[o]))

    return conv


def plane_layer(c: int, f: int, n: int, window: int, stride: int) -> KernelFunction:
    """Planes of n x n results, whose operands are as large as is read; finished by `shifted`."""
    rows = (n - 1) * stride + window

    @kernel
    def conv(X: i8[c, rows, rows], W: i8[f, c, window, window], bias: i32[f], Y: i8[f, n, n]):
        total = local(i32[f, n, n])
        for o, y, x in grid(f, n, n):
            total[o, y, x] = 0
            for i, r, s in reduce(c, window, window):
                pixel = X[i, y * stride + r, x * stride + s]
                total[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])
        for o, y, x in grid(f, n, n):
            Y[o, y, x] = i8(shifted(total[o, y, x], bias[o]))

    return conv


def plane_sums(c: int, f: int, n: int, window: int, stride: int) -> KernelFunction:
    """The same, without what follows the sums."""
    rows = (n - 1) * stride + window

    @kernel
    def conv(X: i8[c, rows, rows], W: i8[f, c, window, window], Y: i32[f, n, n]):
        for o, y, x in grid(f, n, n):
            Y[o, y, x] = 0
            for i, r, s in reduce(c, window, window):
                pixel = X[i, y * stride + r, x * stride + s]
                Y[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])

    return conv
