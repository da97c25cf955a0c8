"""Products and convolutions of any size: what does not fill a fixed unit is padded, and loops may
run once. Exact to the bit."""

import numpy as np
import pytest
from byte_kernels import gemm, layer, plane_layer, plane_sums
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright import i8
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


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.int32) @ b.astype(np.int32)


def convolve(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    views = np.lib.stride_tricks.sliding_window_view(x.astype(np.int32), w.shape[2:], (1, 2))
    return np.einsum("chvrs,fcrs->fhv", views[:, ::stride, ::stride], w.astype(np.int32))


def narrow(total: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.clip((total + bias) >> 8, -128, 127).astype(np.int8)


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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chip", CHIPS)
@given(SIZE, SIZE, SIZE)
@example(1, 1, 1)
@example(1, 20, 3)
@example(20, 1, 3)
@example(7, 3, 1)
@settings(max_examples=3)
def test_products(chip: str, m: int, n: int, k: int):
    kernel = (gemm if chip == "tiny" else layer).bind(M=m, N=n, K=k).kernel
    a, b, *bias = inputs(kernel)
    total = matmul(a, b)
    check(chip, kernel, [a, b, *bias], narrow(total, *bias) if bias else total)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "chip", ["tiny", pytest.param("vta", marks=pytest.mark.long), "gemmini", "conv_engine"]
)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(2, 9), st.integers(1, 4), st.integers(1, 2)
)
@settings(max_examples=3)
def test_convolutions(chip: str, c: int, f: int, n: int, k: int, stride: int):
    stride = 1 if chip == "tiny" else stride  # whose rows lie one after the other
    kernel = (plane_sums if chip == "tiny" else plane_layer)(c, f, n, k, stride).kernel
    x, w, *bias = inputs(kernel)
    total = convolve(x, w, stride)
    wanted = narrow(total, bias[0][:, None, None]) if bias else total
    check(chip, kernel, [x, w, *bias], wanted)
