"""Windows that move by several elements, of an array for each phase; values that are computed in
wider types and need no more bits; stores in parts."""

from collections.abc import Callable

import numpy as np
import pytest
from form_kernels import arrays_of, average, computed, depthwise, first_layer, pool
from unit_chips import dram_engine

from tilewright import cast, grid, i8, i32, kernel, local, reduce
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Call, Kernel, walk_statements
from tilewright.plan.fused_axes import fused_form
from tilewright.plan.normal_form import normal_form
from tilewright.plan.unit_form import MadeArray, UnitForm
from tilewright.plan.unit_forms import unit_forms
from tilewright.plan.window_phases import window_forms
from tilewright.targets.gemmini import gemmini
from tilewright.targets.vta import vta


def run(built: ChipKernel, program: Kernel) -> None:
    """Compares a kernel on a chip with the interpreter, to the bit."""
    arrays = arrays_of(program)
    (output,) = program.outputs
    result = built(*arrays, np.zeros([int(n) for n in output.shape], np.int8))
    np.testing.assert_array_equal(result, interpret(program, arrays)[0])


def called(built: ChipKernel) -> set[str]:
    return {x.instruction.name for x in walk_statements(built.kernel.body) if isinstance(x, Call)}


@pytest.mark.long
def test_maxima_of_an_array_for_each_phase():
    """Of a window of three there is one element in a phase, which the others are compared with in
    its place: nothing is cleared or copied, and results lie one after the other."""
    program = pool(32, 29, 3, 2, 0, False)
    built = build_chip(program, vta())
    shapes = {b.name: b.shape for b in built.form.kernel.inputs}
    assert shapes == {
        "X_0_0": (32, 15, 15), "X_0_1": (32, 15, 14), "X_1_0": (32, 14, 15), "X_1_1": (32, 14, 14),
    }  # fmt: skip
    assert called(built) == {"load_acc8", "max", "store_rows"}
    rows = 29 * 14 + 14 * 14  # each is compared with two others, two cycles each
    assert built.cycles < 1.25 * 2 * (rows * 2 * 2 + 29 * 29 * 16 / 8)
    run(built, program)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size, step", [(2, 2), (3, 3), (3, 2), (5, 3), (4, 3), (4, 2), (3, 1)])
@pytest.mark.parametrize("least", [False, True])
def test_sizes_of_windows(size: int, step: int, least: bool):
    """Where every phase has several elements of a window, or windows move by one, there is no such
    form."""
    program = pool(5, 11, size, step, 1, least)
    forms = list(window_forms(normal_form(program), vta()))
    assert bool(forms) == (step > 1 and size < 2 * step)
    run(build_chip(program, vta()), program)


def test_few_arrays():
    """A tile has a part of each array: 1,024 of them are too many."""
    assert not list(window_forms(normal_form(average(16, 32, 32, 3, 128)), vta()))
    assert list(window_forms(normal_form(average(16, 6, 3, 3, 128)), vta()))
    assert not list(window_forms(normal_form(pool(16, 9, 3, 2, 0, False)), gemmini()))


# ---------------------------------------------------------------- wider than they need to be


@kernel
def in_two_steps(X: i8[32, 14, 15], Y: i8[32, 13, 14]):
    row = local(i8[32, 14, 14])
    for c, y, x in grid(32, 14, 14):
        row[c, y, x] = max(X[c, y, x], X[c, y, x + 1])
    for c, y, x in grid(32, 13, 14):
        Y[c, y, x] = max(row[c, y, x], row[c, y + 1, x])


@kernel
def sums_in_two_steps(X: i8[32, 14, 15], Y: i8[32, 13, 14]):
    row = local(i8[32, 14, 14])
    for c, y, x in grid(32, 14, 14):
        half = cast(i32, X[c, y, x]) + cast(i32, X[c, y, x + 1]) >> 1
        row[c, y, x] = cast(i8, max(min(half, 127), -128))
    for c, y, x in grid(32, 13, 14):
        Y[c, y, x] = cast(i8, cast(i32, row[c, y, x]) + cast(i32, row[c, y + 1, x]) >> 1)


@kernel
def pool_in_two_steps(X: i8[32, 14, 15], Y: i8[32, 13, 14]):
    row = local(i8[32, 14, 14])
    for c, y, x in grid(32, 14, 14):
        row[c, y, x] = X[c, y, x]
        for s in reduce(2):
            row[c, y, x] = max(row[c, y, x], X[c, y, x + s])
    for c, y, x in grid(32, 13, 14):
        Y[c, y, x] = row[c, y, x]
        for r in reduce(2):
            Y[c, y, x] = max(Y[c, y, x], row[c, y + r, x])


@pytest.mark.parametrize("steps", [in_two_steps, sums_in_two_steps, pool_in_two_steps])
def test_what_needs_no_more_bits_stays_in_the_accumulators(steps):
    """A maximum of bytes is one, whatever the type it is computed in: it need not go through the
    memory outside to be cut off."""
    built = build_chip(steps.kernel, vta())
    stores = [x for x in walk_statements(built.kernel.body) if isinstance(x, Call)
              and x.instruction.name == "store_rows"]  # fmt: skip
    assert {r.buffer.name for x in stores for r in x.regions if r.buffer.memory == "dram"} == {"Y"}
    run(built, steps.kernel)


# ---------------------------------------------------------------- axes as one


@pytest.mark.long
@pytest.mark.parametrize(
    "make, calls",
    [
        (lambda: depthwise(32, 14, 3, 1, 1), 2),  # for each 16 channels
        (lambda: first_layer(3, 20, 15, 3, 2), 1),
        (lambda: average(32, 12, 2, 128, 256), 1),  # channels are rows as well
    ],
)
def test_rows_and_columns_as_one_axis(make: Callable[[], Kernel], calls: int):
    """An engine that reads its rows outside begins one call for a whole picture, not one for each
    of its lines."""
    program = make()
    built = build_chip(program, dram_engine())
    assert len(built.stream.fields) == calls
    run(built, program)


def test_axes_that_are_no_neighbours_stay_apart():
    @kernel
    def turned(X: i8[4, 6, 16], W: i8[8, 16], Y: i8[6, 4, 8]):
        total = local(i32[6, 4, 8])
        for x, y, o in grid(6, 4, 8):
            total[x, y, o] = 0
            for k in reduce(16):
                total[x, y, o] += cast(i32, X[y, x, k]) * cast(i32, W[o, k])
        for x, y, o in grid(6, 4, 8):
            Y[x, y, o] = cast(i8, max(min(total[x, y, o] >> 4, 127), -128))

    @kernel
    def placed(X: i8[4, 6, 16], Y: i8[4, 6, 16]):
        for y, x, k in grid(4, 6, 16):
            Y[y, x, k] = X[y, x, k] if y < x else cast(i8, 0)

    assert fused_form(UnitForm(normal_form(turned.kernel))) is None
    assert fused_form(UnitForm(normal_form(placed.kernel))) is None
    shapes = [tuple(f.kernel.outputs[0].shape) for f in unit_forms(
        normal_form(first_layer(3, 20, 9, 3, 2)), vta())]  # fmt: skip
    assert all(len(shape) >= 3 for shape in shapes)  # whose loads go through several axes


@kernel
def halves(X: i8[32, 8, 8], Y: i8[32, 8, 8], Z: i8[32, 8, 8]):
    most = local(i8[32, 8, 8])
    for c, h, w in grid(32, 8, 8):
        most[c, h, w] = max(X[c, h, w], Y[c, h, w])
    for c, h, w in grid(32, 8, 8):
        Z[c, h, w] = most[c, h, w] >> i8(1)


@kernel
def wrapped_halves(X: i8[32, 8, 8], Y: i8[32, 8, 8], Z: i8[32, 8, 8]):
    most = local(i8[32, 8, 8])
    for c, h, w in grid(32, 8, 8):
        most[c, h, w] = max(X[c, h, w], Y[c, h, w])
    for c, h, w in grid(32, 8, 8):
        Z[c, h, w] = (most[c, h, w] * most[c, h, w]) >> i8(1)


def test_shifts_of_bytes():
    """A maximum of bytes can be shifted in a wider type; a product of them is cut off first, which
    no instruction does."""
    run(build_chip(halves.kernel, vta()), halves.kernel)
    with pytest.raises(ScheduleError, match="no instructions of vta make Z"):
        build_chip(wrapped_halves.kernel, vta())


def test_axes_in_another_order():
    """An array that the host makes anyway may have them in any order: here columns are outside."""

    @kernel
    def turned(X: i8[6, 5, 16], W: i8[16, 16], Y: i8[5, 6, 16]):
        total = local(i32[5, 6, 16])
        for y, x, o in grid(5, 6, 16):
            total[y, x, o] = 0
            for k in reduce(16):
                total[y, x, o] += cast(i32, X[x, y, k]) * cast(i32, W[o, k])
        for y, x, o in grid(5, 6, 16):
            Y[y, x, o] = cast(i8, max(min(total[y, x, o] >> 4, 127), -128))

    program = normal_form(turned.kernel)
    assert fused_form(UnitForm(program)) is None
    form = fused_form(UnitForm(program, {"X": MadeArray(("X",))}))
    assert form is not None
    assert [b.shape for b in form.kernel.params] == [(30, 16), (16, 16), (30, 16)]
    arrays = arrays_of(turned.kernel)
    wanted = interpret(turned.kernel, arrays)[0]
    np.testing.assert_array_equal(computed(form, turned.kernel, arrays), wanted)
