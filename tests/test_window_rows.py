"""Windows in rows that overlap: of inputs, and of what another contraction made."""

import numpy as np
import pytest
from fast_interpret import fast_interpret
from form_kernels import arrays_of, computed, first_layer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit_chips import dram_engine

from tilewright import cast, grid, i8, i32, kernel, local, reduce
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.loop import Kernel
from tilewright.ir.python.words import out
from tilewright.plan.normal_form import normal_form
from tilewright.plan.split_kernel import split_kernel
from tilewright.plan.window_rows import row_forms, rows_apart
from tilewright.targets.gemmini import gemmini

ENGINE = dram_engine()


def chain(c: int, f: int, n: int, k: int, wide: int, step: int, before: int) -> Kernel:
    """A convolution of windows of k rows, `wide` places each, behind one of single places."""
    m, w = (n + 2 * before - k) // step + 1, (n + 2 * before - wide) // step + 1

    @kernel
    def chain(X: i8[c, n, n], V: i8[f, c], B: i32[f], W: i8[f, f, k, wide], Y: out(i8[f, m, w])):
        first = local(i32[f, n, n])
        middle = local(i8[f, n, n])
        second = local(i32[f, m, w])
        for o, y, x in grid(f, n, n):
            first[o, y, x] = 0
            for i in reduce(c):
                first[o, y, x] += cast(i32, X[i, y, x]) * cast(i32, V[o, i])
        for o, y, x in grid(f, n, n):
            middle[o, y, x] = cast(i8, max(min((first[o, y, x] + B[o]) >> 6, 127), 0))
        for o, y, x in grid(f, m, w):
            second[o, y, x] = 0
            for i, r, s in reduce(f, k, wide):
                p = y * step + r - before
                q = x * step + s - before
                pixel = middle[i, p, q] if 0 <= p < n and 0 <= q < n else 0
                second[o, y, x] += cast(i32, pixel) * cast(i32, W[o, i, r, s])
        for o, y, x in grid(f, m, w):
            Y[o, y, x] = cast(i8, max(min(second[o, y, x] >> 7, 127), -128))

    return chain.kernel


def compared(built: ChipKernel, program: Kernel) -> None:
    arrays = arrays_of(program)
    (output,) = program.outputs
    result = built(*arrays, np.zeros(output.shape, np.int8))
    np.testing.assert_array_equal(result, fast_interpret(program, arrays)[0])


CHAINS = st.builds(
    chain, st.integers(1, 20), st.integers(1, 20), st.integers(5, 8), st.integers(1, 4),
    st.integers(1, 4), st.integers(1, 2), st.integers(0, 1),
)  # fmt: skip


@pytest.mark.long
@given(CHAINS)
@example(chain(16, 32, 6, 3, 3, 1, 1))
@example(chain(3, 17, 9, 3, 3, 2, 0))
@example(chain(5, 16, 7, 2, 4, 1, 0))
@settings(max_examples=4, deadline=None)
def test_behind_another_contraction(program: Kernel):
    """A chip without a memory of its own makes the rows by a piece between the two, or says what
    does not work."""
    try:
        built = build_chip(program, ENGINE)
    except ScheduleError:
        return
    compared(built, program)


def test_three_pieces():
    """Rows of three pictures' size, all of which a few calls make, and not nine."""
    program = chain(16, 64, 28, 3, 3, 1, 1)
    _, rows, second = build_chip(program, ENGINE).pieces
    assert rows.cycles < second.cycles / 8
    assert second.cycles < 1.01 * second.bound
    single = chain(16, 24, 6, 1, 1, 1, 0)
    built = build_chip(single, ENGINE)
    assert len(built.pieces) == 2
    compared(built, single)
    assert len(build_chip(program, gemmini()).pieces) == 2  # whose loads bring windows


def test_what_makes_the_rows():
    """All rows of a picture are one loop; with windows that move by two, only those of each."""
    one, two = (
        rows_apart(split_kernel(normal_form(chain(4, 8, 6, 3, 3, step, 1)), ENGINE).pieces[1],
                   "middle")
        for step in (1, 2)
    )  # fmt: skip
    assert one is not None
    assert two is not None
    assert str(one[0]) == (
        "def chain_2_rows(middle: i8[8, 64], middle_rows: out(i8[48, 3, 8])):\n"
        "    for y_2_x5f_x_2_1 in range(48):\n"
        "        for r in range(3):\n"
        "            for i_1 in range(8):\n"
        "                middle_rows[y_2_x5f_x_2_1, r, i_1] = middle[i_1, r * 8 + y_2_x5f_x_2_1]"
    )
    assert str(two[0]).splitlines()[1:] == [
        "    for y_2 in range(3):",
        "        for x_2_1 in range(7):",
        "            for r in range(3):",
        "                for i_1 in range(8):",
        "                    middle_rows[y_2, x_2_1, r, i_1] = middle[i_1, y_2 * 2 + r, x_2_1]",
    ]
    assert rows_apart(one[1], "W") is None


@pytest.mark.parametrize("step", [1, 2])
def test_of_an_input(step: int):
    """Three times the picture instead of nine, for units that take rows from outside alone."""
    program = normal_form(first_layer(3, 20, 9, 3, step))
    (form,) = row_forms(program, ENGINE)
    (picture,) = (b for b in form.kernel.inputs if b.name == "X")
    n = (9 - 3) // step + 1
    assert picture.shape == (n, ((n - 1) * step + 3) * 9)
    assert list(row_forms(program, gemmini())) == []
    arrays = arrays_of(program)
    np.testing.assert_array_equal(
        computed(form, program, arrays, fast_interpret), fast_interpret(program, arrays)[0]
    )
