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
from tilewright.plan.normal_form import normal_form
from tilewright.plan.residual_products import residual_forms
from tilewright.plan.unit_plan import adds_to_others, nests
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


@settings(max_examples=15, deadline=None)
@given(KERNELS)
def test_forms_compute_the_same(program: Kernel):
    (form,) = residual_forms(normal_form(program), VTA)
    arrays = arrays_of(program)
    np.testing.assert_array_equal(
        computed(form, program, arrays), fast_interpret(program, arrays)[0]
    )
    assert sum(adds_to_others(n) for n in nests(form.kernel.body)) == 1


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


def test_columns_that_are_another_loop():
    """Two rows of VTA are channels where columns are pixels: the residual's blocks are not."""
    with pytest.raises(ScheduleError, match="no instructions of vta make"):
        build_chip(with_residual(5, 16, 6), vta(batch=2))


@settings(max_examples=8, deadline=None)
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
