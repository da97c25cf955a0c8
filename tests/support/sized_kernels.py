"""Products and convolutions of any size in bytes, alone and as layers: with a bias, shifted and
clipped."""

import tilewright
from tilewright import cast, grid, i8, i32, local, reduce
from tilewright.ir.loop import Kernel


def gemm(m: int, n: int, k: int) -> Kernel:
    @tilewright.kernel
    def gemm(A: i8[m, k], B: i8[k, n], C: i32[m, n]):
        for i, j in grid(m, n):
            C[i, j] = 0
            for d in reduce(k):
                C[i, j] += cast(i32, A[i, d]) * cast(i32, B[d, j])

    return gemm.kernel


def layer(m: int, n: int, k: int) -> Kernel:
    """The same with a bias, shifted and clipped."""

    @tilewright.kernel
    def layer(A: i8[m, k], B: i8[k, n], bias: i32[n], C: i8[m, n]):
        total = local(i32[m, n])
        for i, j in grid(m, n):
            total[i, j] = 0
            for d in reduce(k):
                total[i, j] += cast(i32, A[i, d]) * cast(i32, B[d, j])
        for i, j in grid(m, n):
            C[i, j] = cast(i8, max(min((total[i, j] + bias[j]) >> 7, 127), -128))

    return layer.kernel


def conv(c: int, f: int, n: int, k: int, stride: int) -> Kernel:
    rows = (n - 1) * stride + k

    @tilewright.kernel
    def conv(X: i8[c, rows, rows], W: i8[f, c, k, k], bias: i32[f], Y: i8[f, n, n]):
        total = local(i32[f, n, n])
        for o, y, x in grid(f, n, n):
            total[o, y, x] = 0
            for i, r, s in reduce(c, k, k):
                pixel = X[i, y * stride + r, x * stride + s]
                total[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])
        for o, y, x in grid(f, n, n):
            Y[o, y, x] = cast(i8, max(min((total[o, y, x] + bias[o]) >> 7, 127), -128))

    return conv.kernel


def plain_conv(c: int, f: int, n: int, k: int, stride: int) -> Kernel:
    rows = (n - 1) * stride + k

    @tilewright.kernel
    def plain_conv(X: i8[c, rows, rows], W: i8[f, c, k, k], Y: i32[f, n, n]):
        for o, y, x in grid(f, n, n):
            Y[o, y, x] = 0
            for i, r, s in reduce(c, k, k):
                pixel = X[i, y * stride + r, x * stride + s]
                Y[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])

    return plain_conv.kernel
