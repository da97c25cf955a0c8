"""Reads that are 0 outside of an input, on chips whose instructions do not guard: the input comes
with its border."""

import numpy as np
import pytest
from byte_kernels import padded_conv, shifted
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import cast, grid, i8, i32, kernel, reduce
from tilewright.base.errors import ScheduleError
from tilewright.chip import lower_bound
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.plan.borders import Border, with_borders
from tilewright.targets.chips import CHIPS


def layer(c: int, size: int, f: int, window: int, stride: int, before: int, after: int):
    """A convolution with so many 0s before and after the picture's rows and columns."""
    return padded_conv(c, size, f, window, stride, before, after, shifted)


def expected(x, w, b, stride: int, before: int, after: int) -> np.ndarray:
    wide = np.pad(x.astype(np.int32), ((0, 0), (before, after), (before, after)))
    views = np.lib.stride_tricks.sliding_window_view(wide, w.shape[2:], axis=(1, 2))
    sums = np.einsum("chvrs,fcrs->fhv", views[:, ::stride, ::stride], w.astype(np.int32))
    return np.clip((sums + b[:, None, None]) >> 8, -128, 127).astype(np.int8)


def arrays(program: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-128, 128, b.shape).astype(b.dtype.numpy) for b in program.inputs]


LAYERS = {  # channels, size, filters, window, stride, 0s before and after
    "3x3": (32, 14, 32, 3, 1, 1, 1),
    "3x3/2, at the end alone": (16, 16, 16, 3, 2, 0, 1),
    "5x5": (16, 9, 16, 5, 1, 2, 2),
    "first": (3, 32, 16, 7, 2, 3, 3),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("chip", ["vta", "gemmini", "conv_engine"])
def test_a_picture_gets_its_border(chip: str, name: str):
    shape = LAYERS[name]
    function = layer(*shape)
    built = function.build(CHIPS[chip]())
    x, w, b = arrays(function.kernel)
    wanted = expected(x, w, b, *shape[4:])
    result = np.zeros_like(wanted)
    assert built(x, w, b, result) is result
    np.testing.assert_array_equal(result, wanted)
    assert built.replay(x, w, b, wanted, orders=2) is None
    assert built.bound.cycles == lower_bound(function.kernel, CHIPS[chip]()).cycles <= built.cycles
    assert built.source is function.kernel


def test_on_a_statically_scheduled_chip():
    @kernel
    def rows(X: i8[16, 64], W: i8[32, 3, 64], Y: i32[16, 32]):
        for t, f in grid(16, 32):
            Y[t, f] = 0
            for r, c in reduce(3, 64):
                Y[t, f] += cast(i32, X[t + r - 1, c] if 0 <= t + r - 1 < 16 else 0) * cast(
                    i32, W[f, r, c]
                )

    x, w = arrays(rows.kernel)
    wide = np.pad(x.astype(np.int32), ((1, 1), (0, 0)))
    wanted = sum(wide[r : r + 16] @ w[:, r].astype(np.int32).T for r in range(3))
    built = rows.build(CHIPS["dsp"]())
    np.testing.assert_array_equal(built(x, w, np.zeros_like(wanted)), wanted)


# ---------------------------------------------------------------- the kernel


@settings(max_examples=60)
@given(
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3),
    st.integers(0, 3), st.integers(0, 3), st.integers(1, 2),
)  # fmt: skip
def test_it_computes_the_same(c, size, window, stride, before, after, f):
    if size + before + after < window:
        return
    program = layer(c, size, f, window, stride, before, after).kernel
    wider, borders = with_borders(program)
    x, w, b = arrays(program)
    inputs = dict(zip(program.inputs, (x, w, b), strict=True))
    none = Border((0,) * 4)
    held = [np.pad(a, [(n, t - m - n) for n, m, t in zip(borders.get(k.name, none).before, a.shape,
            k.shape, strict=False)])
            for k, a in zip(wider.inputs, (x, w, b), strict=True)]  # fmt: skip
    assert "select" not in str(wider) or before == after == 0
    (first,) = interpret(program, list(inputs.values()))
    (second,) = interpret(wider, held)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, expected(x, w, b, stride, before, after))


def test_every_read_moves_with_the_border():
    @kernel
    def both(X: i8[8], W: i8[3], Y: i32[8]):
        for i in range(8):
            Y[i] = i32(X[i])
            for r in reduce(3):
                Y[i] += i32(X[i + r - 1] if 0 <= i + r - 1 < 8 else 0) * i32(W[r])

    wider, borders = with_borders(both.kernel)
    assert borders == {"X": Border((1,))}
    assert str(wider) == (
        "def both(X: i8[10], W: i8[3], Y: out(i32[8])):\n"
        "    for i in range(8):\n"
        "        Y[i] = cast(i32, X[i + 1])\n"
        "        for r in range(3):\n"
        "            Y[i] += cast(i32, X[i + r]) * cast(i32, W[r])"
    )


def test_guards_that_are_not_for_bounds_stay():
    """0 where there is an element, as well: a triangle."""

    @kernel
    def triangle(A: i8[64, 64], B: i8[64, 64], C: i32[64, 64]):
        for i, j in grid(64, 64):
            C[i, j] = 0
            for k in reduce(64):
                C[i, j] += cast(i32, A[i, k] if k <= i else 0) * cast(i32, B[j, k])

    assert with_borders(triangle.kernel) == (triangle.kernel, {})
    with pytest.raises(ScheduleError, match="no instruction of vta takes a contraction"):
        triangle.build(CHIPS["vta"]())
