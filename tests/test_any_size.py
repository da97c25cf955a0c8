"""Products and convolutions of any size: what does not fill a fixed unit is padded, and loops may
run once. Exact to the bit."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewright
from tilewright import cast, grid, i8, i32, local, reduce
from tilewright.chip import build_chip
from tilewright.ir.loop import Kernel
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

CHIPS = {
    "tiny": tiny(),
    "vta": vta(),
    "gemmini": gemmini(),
    "conv_engine": conv_engine(),
    "dsp": dsp(),
}


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


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.int32) @ b.astype(np.int32)


def convolve(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    views = np.lib.stride_tricks.sliding_window_view(x.astype(np.int32), w.shape[2:], (1, 2))
    return np.einsum("chvrs,fcrs->fhv", views[:, ::stride, ::stride], w.astype(np.int32))


def narrow(total: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.clip((total + bias) >> 7, -128, 127).astype(np.int8)


def inputs(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.integers(-128, 128, b.shape).astype(np.int8)
        if b.dtype == i8
        else rng.integers(-5000, 5000, b.shape).astype(np.int32)
        for b in kernel.inputs
    ]


def check(chip: str, kernel: Kernel, arrays: list[np.ndarray], wanted: np.ndarray) -> None:
    built = build_chip(kernel, CHIPS[chip])
    result = np.zeros(wanted.shape, wanted.dtype)
    assert built(*arrays, result) is result
    np.testing.assert_array_equal(result, wanted)
    assert built.bound.cycles <= built.cycles


SIZE = st.integers(1, 50)


@pytest.mark.parametrize("chip", CHIPS)
@given(SIZE, SIZE, SIZE)
@example(1, 1, 1)
@example(1, 20, 3)
@example(20, 1, 3)
@example(7, 3, 1)
@settings(max_examples=5)
def test_products(chip: str, m: int, n: int, k: int):
    kernel = (gemm if chip == "tiny" else layer)(m, n, k)
    a, b, *bias = inputs(kernel)
    total = matmul(a, b)
    check(chip, kernel, [a, b, *bias], narrow(total, *bias) if bias else total)


@pytest.mark.parametrize("chip", [name for name in CHIPS if name != "dsp"])
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(2, 9), st.integers(1, 4), st.integers(1, 2)
)
@settings(max_examples=5)
def test_convolutions(chip: str, c: int, f: int, n: int, k: int, stride: int):
    stride = 1 if chip == "tiny" else stride  # whose rows lie one after the other
    kernel = (plain_conv if chip == "tiny" else conv)(c, f, n, k, stride)
    x, w, *bias = inputs(kernel)
    total = convolve(x, w, stride)
    wanted = narrow(total, bias[0][:, None, None]) if bias else total
    check(chip, kernel, [x, w, *bias], wanted)
