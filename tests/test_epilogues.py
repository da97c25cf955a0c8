"""What follows a contraction, on chips that do element-wise work in different ways: apart, in
place, and as part of a store. Exact to the bit."""

import numpy as np
import pytest
from epilogue_chips import CHIPS

import tilewright
from tilewright import cast, grid, i8, i32, local, reduce
from tilewright.chip import build_chip


@tilewright.kernel
def layer(A: i8[128, 64], B: i8[64, 96], b: i32[96], Y: i8[128, 96]):
    """The sum, a bias for each column, a shift, clipped."""
    acc = local(i32[128, 96])
    for i, j in grid(128, 96):
        acc[i, j] = 0
        for k in reduce(64):
            acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(128, 96):
        Y[i, j] = cast(i8, max(min((acc[i, j] + b[j]) >> 8, 127), -128))


@tilewright.kernel
def conv_layer(X: i8[18, 18, 32], W: i8[3, 3, 32, 32], b: i32[32], Y: i8[16, 16, 32]):
    acc = local(i32[16, 16, 32])
    for h, w, o in grid(16, 16, 32):
        acc[h, w, o] = 0
        for r, s, c in reduce(3, 3, 32):
            acc[h, w, o] += cast(i32, X[h + r, w + s, c]) * cast(i32, W[r, s, c, o])
    for h, w, o in grid(16, 16, 32):
        Y[h, w, o] = cast(i8, max(min((acc[h, w, o] + b[o]) >> 7, 127), -128))


def finished(acc: np.ndarray, b: np.ndarray, by: int) -> np.ndarray:
    return np.clip((acc + b) >> by, -128, 127).astype(np.int8)


def expected_layer(a: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return finished(a.astype(np.int32) @ w.astype(np.int32), b, 8)


def expected_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = [a.astype(np.int32) for a in (x, w)]
    parts = (wide[0][r : r + 16, s : s + 16] @ wide[1][r, s] for r in range(3) for s in range(3))
    return finished(sum(parts), b, 7)


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "single"])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "function, expected",
    [(layer, expected_layer), (conv_layer, expected_conv)],
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
