"""What follows a contraction, on chips that do element-wise work in different ways: apart, in
place, and as part of a store. Exact to the bit."""

import numpy as np
import pytest
from byte_kernels import conv_layer, layer
from epilogue_chips import CHIPS

from tilewright import i8
from tilewright.chip import build_chip

LAYER = layer.bind(M=128, N=96, K=64)
CONV = conv_layer.bind(H=16, V=16, R=3, C=32, F=32)


def finished(acc: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.clip((acc + b) >> 8, -128, 127).astype(np.int8)


def expected_layer(a: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return finished(a.astype(np.int32) @ w.astype(np.int32), b)


def expected_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = [a.astype(np.int32) for a in (x, w)]
    parts = (wide[0][r : r + 16, s : s + 16] @ wide[1][r, s] for r in range(3) for s in range(3))
    return finished(sum(parts), b)


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "single"])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "function, expected",
    [(LAYER, expected_layer), (CONV, expected_conv)],
    ids=["gemm", "conv"],
)
def test_exact(function, expected, chip: str, overlap: bool):
    rng = np.random.default_rng(0)
    built = build_chip(function.kernel, CHIPS[chip](), overlap=overlap)
    arrays = [
        rng.integers(-128, 128, b.shape).astype(b.dtype.numpy)
        if b.dtype == i8
        else rng.integers(-5000, 5000, b.shape).astype(np.int32)
        for b in function.kernel.inputs
    ]
    result = np.zeros(function.kernel.outputs[0].shape, np.int8)
    built(*arrays, result)
    np.testing.assert_array_equal(result, expected(*arrays))
    assert len(np.unique(result)) > 50
