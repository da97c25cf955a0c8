"""Contractions along several loops as one: each form computes the same, and a chip whose unit
multiplies lane by lane does them where channels are fewer than lanes."""

import numpy as np
import pytest
from fast_interpret import fast_interpret
from form_kernels import arrays_of, computed, depthwise, rescaled
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_kernels import added, check, first, second

from tilewright import grid, i8, i32, kernel, local, reduce
from tilewright.backends.bundles.resource_bound import ResourceBound
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.lane_products import lane_forms
from tilewright.plan.missing_operations import missing_operation
from tilewright.plan.normal_form import normal_form
from tilewright.plan.same_kernels import with_param_names
from tilewright.plan.unit_forms import unit_forms
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.vta import vta

DSP = dsp()


def sums_of_windows(c: int, n: int, k: int) -> Kernel:
    """No border, and nothing follows."""
    m = n - k + 1

    @kernel
    def sums(X: i8[c, n, n], W: i8[c, k, k], Y: out(i32[c, m, m])):
        for o, y, x in grid(c, m, m):
            Y[o, y, x] = 0
            for r, s in reduce(k, k):
                Y[o, y, x] += i32(X[o, y + r, x + s]) * i32(W[o, r, s])

    return sums.kernel


def products(c: int, n: int) -> Kernel:
    """Of two pictures, element by element."""

    @kernel
    def products(X: i8[c, n, n], V: i8[c, n, n], b: i32[c], Y: out(i8[c, n, n])):
        total = local(i32[c, n, n])
        for o, y, x in grid(c, n, n):
            total[o, y, x] = 0
            for _ in reduce(1):
                total[o, y, x] += i32(X[o, y, x]) * i32(V[o, y, x])
        for o, y, x in grid(c, n, n):
            Y[o, y, x] = i8(max(min(total[o, y, x] + b[o] >> 7, 127), -128))

    return products.kernel


def test_a_window_slides_by_as_many_elements_as_there_are_channels():
    """Only with channels innermost: of pixels in a row some are left out at its end."""
    (form,) = lane_forms(normal_form(sums_of_windows(16, 10, 3)), DSP)
    assert (
        str(form.kernel)
        == """\
def sums(X: i8[10, 160], W: i8[3, 3, 64], Y: out(i32[8, 128])):
    for y in range(8):
        for part in range(2):
            for lane in range(64):
                Y[y, part * 64 + lane] = i32(0)
                for r in range(3):
                    for s in range(3):
                        Y[y, part * 64 + lane] += \
cast(i32, X[y + r, part * 64 + lane + s * 16]) * cast(i32, W[r, s, lane])"""
    )


LANES = st.one_of(
    st.builds(depthwise, st.sampled_from([1, 4, 8, 16, 32, 64, 128]), st.sampled_from([4, 8]),
              st.sampled_from([1, 3]), st.just(1), st.integers(0, 1)),
    st.builds(sums_of_windows, st.sampled_from([4, 8, 16, 64]), st.integers(4, 10),
              st.integers(1, 3)),
    st.builds(products, st.sampled_from([1, 4, 16, 64]), st.sampled_from([4, 6, 8])),
    st.builds(rescaled, st.sampled_from([4, 16, 64, 128]), st.sampled_from([4, 16]),
              st.integers(-300, 300), st.integers(-128, 127), st.sampled_from([0, 64]),
              st.integers(0, 9)),
)  # fmt: skip


@given(LANES)
@settings(max_examples=8, deadline=None)
def test_every_form_computes_the_same(program: Kernel):
    arrays = arrays_of(program)
    wanted = fast_interpret(program, arrays)[0]
    for form in unit_forms(normal_form(program), DSP):
        np.testing.assert_array_equal(computed(form, program, arrays, fast_interpret), wanted)


@given(LANES)
@settings(max_examples=4, deadline=None)
def test_the_signal_processor_does_them(program: Kernel):
    try:
        built = build_chip(program, DSP)
    except ScheduleError:
        return
    arrays = arrays_of(program)
    (output,) = program.outputs
    result = built(*arrays, np.zeros(output.shape, output.dtype.numpy))
    np.testing.assert_array_equal(result, fast_interpret(program, arrays)[0])
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles


@pytest.mark.long
def test_lanes_are_filled():
    """16 channels of eight pixels fill two registers, where each pixel alone would fill a quarter
    of one: so do depthwise convolutions and additions."""
    window = build_chip(depthwise(16, 8, 3, 1, 1), DSP)
    assert next(b for b in window.form.kernel.inputs if b.name == "X").shape == (10, 160)
    assert window.bound is not None
    assert window.bound.cycles == 8 * 2 * (9 + 1)  # products, and packing: sums begin with the bias
    both = build_chip(rescaled(16, 64, 3, 5, 1, 1), DSP)
    assert [b.shape for b in both.form.kernel.inputs] == [(3, 1024), (3, 64)]  # one is ones
    assert isinstance(both.bound, ResourceBound)
    assert both.bound.slots["mac"] == 16 * (3 + 1)


def test_no_form():
    """No number of loops fills lanes; pixels of a window lie two apart; no unit has lanes."""
    for program in (sums_of_windows(10, 5, 3), depthwise(16, 8, 3, 2, 1)):
        assert list(lane_forms(normal_form(program), DSP)) == []
    assert list(lane_forms(normal_form(sums_of_windows(16, 10, 3)), vta())) == []


@pytest.mark.long
def test_convolutions_and_an_addition_are_one_program():
    """The depthwise one finds zeros around what was made, and the addition reads both where they
    lie."""

    @kernel
    def middle(B: i8[16, 8, 8], W2: i8[16, 3, 3], C: out(i8[16, 8, 8])):
        total = local(i32[16, 8, 8])
        for o, y, x in grid(16, 8, 8):
            total[o, y, x] = 0
            for r, s in reduce(3, 3):
                i = y + r - 1
                j = x + s - 1
                pixel = B[o, i, j] if 0 <= i < 8 and 0 <= j < 8 else 0
                total[o, y, x] += i32(pixel) * i32(W2[o, r, s])
        for o, y, x in grid(16, 8, 8):
            C[o, y, x] = i8(max(min(total[o, y, x] >> 6, 127), -128))

    last = with_param_names(added(16, 8, 3, 5), {"A": "B", "B": "C"})
    built = check(first(16, 8), second(16, 8), middle.kernel, last, target=DSP)
    assert len(built.pieces) == 4
    assert {b.name for b in built.kernel.inputs} == {"X", "V", "W", "W2", "factors"}
    sizes = {b.name: b.shape for b in built.stream.constants}
    assert sizes["B"] == sizes["C"] == (16 * 10 * 10,)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("c", [8, 20])
def test_fewer_channels_than_a_unit_makes(c: int):
    """What is made has room for 16 or 32, and is read where it lies."""
    built = check(first(c, 6), second(c, 6), target=DSP)
    sizes = {b.name: b.shape for b in built.stream.constants}
    assert sizes["A"] == (-(-c // 16) * 16 * 8 * 8,)


def test_what_no_instruction_does():
    @kernel
    def largest(X: i8[4, 8], Y: out(i8[4])):
        for i in range(4):
            Y[i] = -128
            for k in reduce(8):
                Y[i] = max(Y[i], X[i, k])

    @kernel
    def halves(X: i8[8], Y: out(i8[8])):
        for i in range(8):
            Y[i] = X[i] >> 1

    @kernel
    def gated(X: i8[8], Y: out(i8[8])):
        for i in range(8):
            Y[i] = i8(i32(X[i]) * max(min(i32(X[i]) + 48, 96), 0) * 171 >> 14)

    def said(program: Kernel) -> list[str | None]:
        return [missing_operation(program, t) for t in (DSP, conv_engine(), vta())]

    two = "takes the maximum of two elements"
    assert said(largest.kernel) == [
        f"no instruction of dsp {two}", f"no instruction of conv_engine {two}", None,
    ]  # fmt: skip
    assert said(halves.kernel) == [None, None, None]
    assert said(gated.kernel) == ["no instruction of dsp multiplies numbers of i32", None, None]
