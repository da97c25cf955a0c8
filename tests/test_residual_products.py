"""Residuals behind convolutions as products with the identity: they compute the same, and take less
time where a vector unit would load and add them."""

import numpy as np
import pytest
from fast_interpret import fast_interpret
from form_kernels import arrays_of, computed
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import grid, i8, i32, kernel, local, reduce
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.normal_form import normal_form
from tilewright.plan.residual_products import residual_forms
from tilewright.plan.unit_plan import added_product, nests
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta

VTA = vta()
CHIPS = {
    "VTA": VTA,
    "larger blocks": vta(block=32),
    "few accumulators": vta(alu=1, acc=16 << 10),
}


def with_residual(
    c: int, f: int, n: int, k: int = 1, times: int = 1, half: int = 1, kind=i8, border: int = 0
) -> Kernel:
    """A convolution whose rounded sums are added to a residual, of which a border is left out."""
    m = n + k - 1

    @kernel
    def conv(
        X: i8[c, m, m],
        W: i8[f, c, k, k],
        b: i32[f],
        R: kind[f, n + 2 * border, n + 2 * border],
        Y: out(i8[f, n, n]),
    ):
        total = local(i32[f, n, n])
        for o, y, x in grid(f, n, n):
            total[o, y, x] = 0
            for i, r, s in reduce(c, k, k):
                total[o, y, x] += i32(X[i, y + r, x + s]) * i32(W[o, i, r, s])
        for o, y, x in grid(f, n, n):
            rounded = max(min((total[o, y, x] + b[o]) >> 7, 127), -128)
            both = rounded * 2 + i32(R[o, y + border, x + border]) * times + half
            Y[o, y, x] = i8(max(min(both >> 1, 127), 0))

    return conv.kernel


KERNELS = st.builds(
    with_residual, st.integers(1, 20), st.sampled_from([16, 32, 48]), st.integers(1, 6),
    st.sampled_from([1, 3]), st.sampled_from([1, 2, -3, 127, -128]), st.integers(0, 1),
    border=st.integers(0, 1),
)  # fmt: skip


def test_the_form():
    (form,) = residual_forms(normal_form(with_residual(8, 32, 4)), VTA)
    assert (
        str(form.kernel).partition("    for o_1_1")[2]
        == """\
 in range(32):
        for y_1_1 in range(4):
            for x_1_1 in range(4):
                total_1[o_1_1, y_1_1, x_1_1] = \
max(min(total[o_1_1, y_1_1, x_1_1] + b[o_1_1] >> i32(7), i32(127)), i32(-128)) * i32(2)
                for term in range(16):
                    total_1[o_1_1, y_1_1, x_1_1] += cast(i32, R[o_1_1 // 16 * 16 + term, \
y_1_1, x_1_1]) * cast(i32, identity[o_1_1 % 16, term])
    for o_1 in range(32):
        for y_1 in range(4):
            for x_1 in range(4):
                Y[o_1, y_1, x_1] = cast(i8, max(min(total_1[o_1, y_1, x_1] + i32(1) >> i32(1), \
i32(127)), i32(0)))"""
    )
    np.testing.assert_array_equal(form.made["identity"].of([]), np.eye(16, dtype=np.int8))


@pytest.mark.long
@settings(max_examples=4, deadline=None)
@given(KERNELS)
def test_forms_compute_the_same(program: Kernel):
    (form,) = residual_forms(normal_form(program), VTA)
    arrays = arrays_of(program)
    np.testing.assert_array_equal(
        computed(form, program, arrays), fast_interpret(program, arrays)[0]
    )
    assert sum(added_product(n) is not None for n in nests(form.kernel.body)) == 1


@pytest.mark.parametrize(
    "program",
    [
        with_residual(8, 24, 4),  # no whole blocks of columns
        with_residual(8, 32, 4, times=128),  # more than a byte holds
        with_residual(8, 32, 4, times=0),
        with_residual(8, 32, 4, kind=i32),
    ],
)
def test_what_has_no_such_form(program: Kernel):
    assert not list(residual_forms(normal_form(program), VTA))


def test_units_that_cannot_add_to_what_they_made():
    """Between sums and residual there is a shift, and Gemmini shifts where it stores."""
    with pytest.raises(ScheduleError, match="no instructions of gemmini make"):
        build_chip(with_residual(16, 32, 4), gemmini())


@pytest.mark.long
def test_columns_that_are_another_loop():
    """Two rows of VTA are channels where columns are pixels: the residual's blocks are not."""
    with pytest.raises(ScheduleError, match="no instructions of vta make"):
        build_chip(with_residual(5, 16, 6), vta(batch=2))


@pytest.mark.long
@settings(max_examples=4, deadline=None)
@given(KERNELS, st.sampled_from([*CHIPS]))
def test_chips_compute_the_same(program: Kernel, chip: str):
    built, arrays = build_chip(program, CHIPS[chip]), arrays_of(program)
    wanted = fast_interpret(program, arrays)[0]
    result = np.zeros_like(wanted)
    built(*arrays, result)
    np.testing.assert_array_equal(result, wanted)
    assert built.replay(*arrays, wanted.copy(), orders=2) is None
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles


def channels_inside(f: int, n: int) -> Kernel:
    """The sums lie pixel by pixel, the results row by row of channels."""

    @kernel
    def conv(X: i8[16, n, n], W: i8[f, 16], R: i8[f, n, n], Y: out(i8[n, f, n])):
        total = local(i32[n, n, f])
        for y, x, o in grid(n, n, f):
            total[y, x, o] = 0
            for i in reduce(16):
                total[y, x, o] += i32(X[i, y, x]) * i32(W[o, i])
        for x, o, y in grid(n, f, n):
            Y[x, o, y] = i8(max(min((total[y, x, o] >> 7) + i32(R[o, y, x]), 127), -128))

    return conv.kernel


def channels_outside(f: int, n: int) -> Kernel:
    """The other way round."""

    @kernel
    def conv(X: i8[16, n, n], W: i8[f, 16], R: i8[f, n, n], Y: out(i8[n, n, f])):
        total = local(i32[f, n, n])
        for o, y, x in grid(f, n, n):
            total[o, y, x] = 0
            for i in reduce(16):
                total[o, y, x] += i32(X[i, y, x]) * i32(W[o, i])
        for y, x, o in grid(n, n, f):
            Y[y, x, o] = i8(max(min((total[o, y, x] >> 7) + i32(R[o, y, x]), 127), -128))

    return conv.kernel


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [channels_inside, channels_outside])
@pytest.mark.parametrize("sizes", [(16, 2), (32, 6)])
def test_sums_in_another_order_than_results(program, sizes: tuple[int, int]):
    """What takes the place of sums lies as they do: calls that step through them stay right."""
    plain = program(*sizes)
    built, arrays = build_chip(plain, VTA), arrays_of(plain)
    wanted = fast_interpret(plain, arrays)[0]
    result = np.zeros_like(wanted)
    built(*arrays, result)
    np.testing.assert_array_equal(result, wanted)
    assert "identity" in built.form.made


def test_calls_do_not_step_through_what_lies_otherwise():
    """The product steps through `u` as it lies, so that `total` cannot take its place."""

    @kernel
    def both(X: i8[16, 2, 2], W: i8[16, 16], R: i8[16, 2, 2], I: i8[16, 16], Y: out(i8[2, 16, 2])):
        total = local(i32[2, 2, 16])
        u = local(i32[2, 16, 2])
        for y, x, o in grid(2, 2, 16):
            total[y, x, o] = 0
            for i in reduce(16):
                total[y, x, o] += i32(X[i, y, x]) * i32(W[o, i])
        for x, o, y in grid(2, 16, 2):
            u[x, o, y] = total[y, x, o] >> 7
            for k in reduce(16):
                u[x, o, y] += i32(R[k, y, x]) * i32(I[o, k])
        for x, o, y in grid(2, 16, 2):
            Y[x, o, y] = i8(max(min(u[x, o, y], 127), -128))

    with pytest.raises(ScheduleError, match="no instructions of vta make u"):
        analytic_model(both.kernel, VTA)


@pytest.mark.parametrize("most", [False, True])
def test_an_authors_own_additions_are_no_residual_products(most: bool):
    """What is added as it is, or is a maximum, is refused in words."""

    @kernel
    def own(X: i8[16, 4, 4], W: i8[32, 16], R: i32[32], Y: out(i8[32, 4, 4])):
        total = local(i32[32, 4, 4])
        u = local(i32[32, 4, 4])
        for o, y, x in grid(32, 4, 4):
            total[o, y, x] = 0
            for i in reduce(16):
                total[o, y, x] += i32(X[i, y, x]) * i32(W[o, i])
        for o, y, x in grid(32, 4, 4):
            u[o, y, x] = total[o, y, x] >> 4
            for i in reduce(32):
                if most:
                    u[o, y, x] = max(u[o, y, x], R[i])
                else:
                    u[o, y, x] += R[i]
        for o, y, x in grid(32, 4, 4):
            Y[o, y, x] = i8(max(min(u[o, y, x], 127), -128))

    with pytest.raises(ScheduleError, match="no instructions of vta make total"):
        build_chip(own.kernel, VTA)


def test_residuals_take_a_cycle_a_row():
    """By hand: 784 rows of 16 channels (196 pixels of 64 channels) take 36 products each, and one
    for the residual; 1 cycle to be cleared, and 2 for each of nine operations: the bias, the
    shift, two limits, times 2, plus 1, the shift and two limits more."""
    built = build_chip(with_residual(64, 64, 14, 3), VTA)
    assert "identity" in built.form.made
    names = {site.instruction.name for site in built.stream.sites}
    assert "load_acc8" not in names
    assert built.cycles < 784 * (36 + 1 + 1 + 2 * 9) * 1.03
    assert built.predicted is not None
    assert built.predicted == pytest.approx(built.cycles, rel=0.03)
