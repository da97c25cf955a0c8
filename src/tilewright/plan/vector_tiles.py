"""Which tiles to give a kernel that element-wise instructions do, and a matrix unit where there are
products among it: its forms, the loops along which rows may lie, and what a model expects of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.analyze.nests import Nest, nests
from tilewright.base.errors import ScheduleError
from tilewright.base.node import cached_property
from tilewright.ir.expr import Load, Var
from tilewright.ir.loop import Kernel, loads
from tilewright.plan.bound import ContractionBound
from tilewright.plan.control import Control
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.fit_operators import row_instructions, row_size
from tilewright.plan.missing_operations import missing_operation, missing_type
from tilewright.plan.vector_form import VectorForm, flat_form, vector_form
from tilewright.plan.vector_model import VectorChoice, VectorModel
from tilewright.plan.vector_schedule import (
    VectorPlan,
    lane_axes,
    lane_loops,
    number_loops,
    result_nest,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

SAME = 0.01  # of the cycles: no difference
NEAR = 1.5  # times the cycles of the best: another way to lay rows that is worth a try


@dataclass(frozen=True, eq=False)
class VectorChoices:
    """The models of a kernel's forms, and the cycles that no plan of theirs can beat."""

    models: tuple[VectorModel, ...]
    bound: ContractionBound

    @cached_property
    def plans(self) -> tuple[VectorChoice, ...]:
        """Plans that fit the memories, the fastest first."""
        return _in_order([c for m in self.models for c in m.choices()])


def vector_choices(kernel: Kernel, target: Target, control: Control) -> VectorChoices:
    """The plans for a kernel without a contraction. ScheduleError if no instruction does what the
    kernel does, TargetError if no tile fits."""
    sizes = row_sizes(target)
    if not sizes:
        rows = f"and no instruction of {target.name} works on rows of its own memories"
        raise ScheduleError(
            missing_operation(kernel, target) or f"{kernel.name} has no contraction, {rows}",
            program=kernel,
            hint="an ALU or a vector unit would: one instruction for each operator",
        )
    missing = missing_type(kernel, target)
    if missing is not None:
        raise ScheduleError(missing, program=kernel, hint="quantize it, or leave it to the host")
    models: list[VectorModel] = []
    forms, refusal = _forms(kernel, target)
    for form, lanes in itertools.product(forms, sizes):
        for each, loop in _lane_loops(form, lanes):
            try:
                filled, plan = _filled(each, VectorPlan(loop, lanes, {}))
                models.append(VectorModel(filled, target, plan, control))
            except ScheduleError as error:
                refusal = refusal or error
    if not models:
        raise refusal or ScheduleError(
            f"no loop of {kernel.name} goes along rows of {' or '.join(map(str, sizes))} elements"
            f" in all of its arrays, as instructions of {target.name} do",
            program=kernel,
            hint="a loop of the result has to be a subscript of every array, as it is",
        )
    bound = min((m.bound() for m in models), key=lambda b: b.cycles)
    return VectorChoices(tuple(models), bound)


def _forms(kernel: Kernel, target: Target) -> tuple[list[VectorForm], ScheduleError | None]:
    """The kernel as instructions take it that accumulate rows, or along them; why not, if none
    do."""
    found, refusal = [], None
    reduces = any(n.update is not None for n in nests(kernel.body))
    ways = ((False, True), (False, False), (True, False)) if reduces else ((False, False),)
    for along_rows, in_place in ways:
        try:
            form = vector_form(kernel, target, along_rows=along_rows, in_place=in_place)
        except ScheduleError as error:
            refusal = refusal or error
            continue
        if form not in found:
            found.append(form)
    return found, refusal if not found else None


def _in_order(found: list[VectorChoice]) -> tuple[VectorChoice, ...]:
    """Choices in the order in which they are worth a try."""
    if not found:
        return ()
    # Of those that take as long, the one that wants arrays as they lie; then, of each way to lay
    # rows, the best one first: what memory does with short runs is seen only once it is built.
    found.sort(key=lambda c: c.cycles * (1.0 if c.form.is_flat else 1 + SAME))
    first = {(c.plan.lane, c.plan.lanes): c for c in reversed(found)}
    heads = [c for c in found if c in first.values() and c.cycles < NEAR * found[0].cycles]
    return (*heads, *(c for c in found if c not in heads))


def row_sizes(target: Target) -> list[int]:
    """How many elements the rows of the target's element-wise instructions have."""
    return list(dict.fromkeys(row_size(i) for i in row_instructions(target)))


def _lane_loops(form: VectorForm, lanes: int) -> Iterator[tuple[VectorForm, Var]]:
    """The loops of the result along which rows may lie: all as one, if arrays are walked through as
    they lie, then those that are filled up least."""
    flat = flat_form(form)
    if flat is not None:
        (loop,) = result_nest(Schedule(flat.kernel)).axes
        if isinstance(loop.extent, int) and loop.extent % lanes == 0:
            yield flat, loop.var
    s = Schedule(form.kernel)
    inner_first = reversed(result_nest(s).axes)
    axes = [(x.var, x.extent) for x in inner_first if isinstance(x.extent, int)]
    axes.sort(key=lambda x: -(-x[1] // lanes) * lanes / x[1])
    for var, _ in axes:
        try:
            lane_axes(s, var)
        except ScheduleError:
            continue
        yield form, var


def _filled(form: VectorForm, plan: VectorPlan) -> tuple[VectorForm, VectorPlan]:
    """The form with its lane loop, and those of other nests that go along with it, filled to whole
    rows; likewise loops along which numbers of rows lie."""
    s = Schedule(form.kernel)
    every = nests(s.kernel.body)
    now = {x.var: int(x.extent) for n in every for x in (*n.axes, *n.reduce)}
    along = lane_loops(s, plan.lane) if now[plan.lane] % plan.lanes else []
    along += _linked(every, number_loops(s, plan.lane))
    wanted = {v: -(-now[v] // plan.lanes) * plan.lanes for v in along}
    if all(now[v] == n for v, n in wanted.items()):
        return form, plan
    filled = fill_kernel(form.kernel, wanted)
    return replace(form, kernel=filled, source=filled), plan


def _linked(every: Sequence[Nest], loops: Collection[Var]) -> list[Var]:
    """These loops, and those that go along the same axes of arrays that are made."""
    made = {n.buffer for n in every}
    places = [
        (i, (x.buffer, d))
        for n in every
        for x in (Load(n.buffer, n.store.indices), *(x for w in n.writes for x in loads(w.value)))
        for d, i in enumerate(x.indices)
        if x.buffer in made and isinstance(i, Var)
    ]
    found: set[Var] = set(loops)
    while True:
        axes = {axis for var, axis in places if var in found}
        more = {var for var, axis in places if axis in axes}
        if more <= found:
            return sorted(found, key=str)
        found |= more
