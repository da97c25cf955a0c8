"""The forms of a kernel that may suit a chip's units: the kernel as it is first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from tilewright.analyze.nests import guarded_factors, nests
from tilewright.analyze.rewrite import replace_in
from tilewright.base.errors import ScheduleError
from tilewright.base.remembered import Remembered
from tilewright.ir.expr import BinaryOp, Buffer, Load, Var
from tilewright.ir.loop import Accumulate, If, Kernel, walk_statements
from tilewright.ir.substitute import substitute
from tilewright.plan.as_products import product_forms
from tilewright.plan.constant_arrays import constant_forms
from tilewright.plan.diagonal import diagonal_forms
from tilewright.plan.fit_operators import with_small_numbers
from tilewright.plan.fused_axes import fused_form, wants_long_axes
from tilewright.plan.group_forms import group_forms
from tilewright.plan.lane_products import lane_forms
from tilewright.plan.limit_forms import limit_form
from tilewright.plan.narrowing_limits import with_narrowing_limits
from tilewright.plan.overlapping_blocks import overlapping_forms
from tilewright.plan.packed_windows import packed_forms
from tilewright.plan.phases import phase_forms
from tilewright.plan.residual_products import residual_forms
from tilewright.plan.single_columns import with_single_columns
from tilewright.plan.stepped import stepped_forms
from tilewright.plan.unit_form import MadeArray, UnitForm, composed, fresh
from tilewright.plan.window_phases import window_forms
from tilewright.plan.window_products import window_product_forms
from tilewright.plan.window_rows import row_forms
from tilewright.target.target import Target


def unit_forms(
    kernel: Kernel, target: Target, *, fused: bool = True, every_axis: bool = True
) -> Iterator[UnitForm]:
    """The forms of a kernel in normal form; `fused` also with neighbouring axes as one, where units
    want those; and with blocks along `every_axis`, as others may have made arrays, or along those
    alone that fill them best. What happens under conditions is left as it is. ScheduleError where
    a loop adds to its sums several times. The forms of a kernel that was asked for lately are
    remembered: it is looked at on its own, as a piece of a stream, and with arrays inside."""
    return iter(_remembered(kernel, target, fused, every_axis))


@lru_cache(maxsize=64)
def _remembered(
    kernel: Kernel, target: Target, fused: bool, every_axis: bool
) -> Remembered[UnitForm]:
    return Remembered(lambda: _find_forms(kernel, target, fused, every_axis))


def _find_forms(
    kernel: Kernel, target: Target, fused: bool, every_axis: bool
) -> Iterator[UnitForm]:
    _check_sums(kernel)
    fuses = fused and wants_long_axes(target)
    before: tuple[UnitForm, ...] = ()  # the last one with longer axes
    for form in _forms(kernel, target, every_axis):
        yield form
        longer = fused_form(form) if fuses else None
        if longer is not None:
            yield replace(longer, instead=before) if form.instead else longer
        before = () if longer is None else (longer,)


def _check_sums(kernel: Kernel) -> None:
    for nest in nests(kernel.body):
        count = sum(isinstance(w, Accumulate) for w in nest.writes)
        if count > 1:
            raise ScheduleError(
                f"{nest.buffer.name} is added to {count} times in one loop, and units add one term",
                program=nest.stmt,
                hint="add the terms up in one statement, or in a loop for each",
            )


def _forms(kernel: Kernel, target: Target, every_axis: bool) -> Iterator[UnitForm]:
    yield UnitForm(kernel)
    short = with_small_numbers(kernel, target)
    if short != kernel:
        yield UnitForm(short)
        kernel = short
    for limited in with_narrowing_limits(kernel, target):
        yield UnitForm(limited)
    if any(isinstance(x, If) for x in walk_statements(kernel.body)):
        return
    twice = with_two_operands(kernel)
    if twice is not None:
        yield twice
    columns = with_single_columns(kernel)
    if columns is not None:
        yield columns
        yield from (composed(columns, x) for x in packed_forms(columns.kernel, target))
    split = (*group_forms(kernel, target), *phase_forms(kernel), *diagonal_forms(kernel, target))
    for form in split:
        yield form
        yield from (composed(form, x) for x in packed_forms(form.kernel, target))
    yield from overlapping_forms(kernel, target, inputs=every_axis)
    yield from lane_forms(kernel, target)
    yield from packed_forms(kernel, target)
    yield from row_forms(kernel, target)
    yield from stepped_forms(kernel)
    yield from window_forms(kernel, target)
    yield from window_product_forms(kernel, target)
    yield from product_forms(kernel, target, every_axis=every_axis)
    limited_form = limit_form(kernel, target)
    if limited_form is not None:
        products = product_forms(limited_form.kernel, target, every_axis=every_axis)
        yield from (composed(limited_form, x) for x in products)
    yield from residual_forms(kernel, target)
    yield from constant_forms(kernel, target)


def with_two_operands(kernel: Kernel) -> UnitForm | None:
    """The kernel of two inputs that hold the same, where a contraction has both factors from one;
    None for others."""
    for nest in nests(kernel.body):
        update = nest.update
        pair = guarded_factors(update.value) if update is not None else None
        if update is None or update.op is not BinaryOp.ADD or pair is None:
            continue
        first, second = pair
        if first.buffer == second.buffer and first != second and first.buffer in kernel.inputs:
            return _with_another(kernel, update, second)
    return None


def _with_another(kernel: Kernel, update: Accumulate, read: Load) -> UnitForm:
    """The kernel with an input of its own for a read of an update."""
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    again = read.buffer.with_(name=fresh(f"{read.buffer.name}_again", names))
    value = substitute(update.value, {read: Load(again, read.indices)})
    body = replace_in(kernel.body, update, update.with_(value=value))
    form = kernel.with_(inputs=(*kernel.inputs, again), body=body)
    return UnitForm(form, {again.name: MadeArray((read.buffer.name,))})
