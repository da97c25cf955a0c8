"""The ways for a chip's units to do a kernel's contraction."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from tilewright.analyze.nests import Nest, nests
from tilewright.base.errors import ScheduleError, TilewrightError
from tilewright.ir.expr import Var
from tilewright.ir.loop import Kernel, loads
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.missing_operations import missing_operation
from tilewright.plan.unit_plan import Epilogue, added_product, epilogue_for
from tilewright.plan.units import AxisMapping, has_contraction, mappings, units
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target


class NoMapping(ScheduleError):
    """No unit takes a contraction, whatever is made of its sums; or there is none."""


def first_reason(refusals: Sequence[TilewrightError]) -> TilewrightError:
    """Why forms of a kernel are refused: of those of which a unit takes the contraction, if there
    are any, the first."""
    return next((e for e in refusals if not isinstance(e, NoMapping)), refusals[0])


def find_mappings(
    kernel: Kernel, target: Target, refused: Collection[Epilogue] = ()
) -> Iterator[tuple[Kernel, Nest, AxisMapping]]:
    """The ways for the target's units to do a kernel's contraction, those that take least time
    first; each with the kernel, whose loops are filled to what the unit takes. Those are left out
    for which an epilogue is `refused` by the time that it is their turn."""
    refusal = None
    none = True
    every_nest = nests(kernel.body)
    sums = {n.buffer for n in every_nest if n.update is not None}
    for nest in every_nest:
        if added_product(nest) and sums & {x.buffer for x in loads(nest.store.value)}:
            continue  # a part of the epilogue of those sums
        every = (*nest.axes, *nest.reduce)
        order = [loop.var for loop in every]
        extents = {x.var: x.extent for x in every if isinstance(x.extent, int)}
        found = [m for unit in units(target) for m in mappings(nest, unit) if m.waste < math.inf]
        # Of those that take as long, fewer calls, then loops further in: they step by less in
        # memory.
        costs = {m: (m.least_cycles(extents), m.around(extents)) for m in found}
        found.sort(key=lambda m: (costs[m], -sum(order.index(x.var) for _, x in m.axes)))
        for mapping in found:
            if epilogue_for(nest, mapping) in refused:
                continue
            longer = {v: n for v, n in mapping.extents.items() if n != extents[v]}
            try:
                filled = _filled(kernel, frozenset(longer.items()))
            except ScheduleError as error:
                refusal = refusal or error
                continue
            none = False
            yield _mapped(filled, nest.buffer.name, mapping)
    if none:
        reason = f"no instruction of {target.name} takes a contraction of this kernel"
        if not has_contraction(kernel):
            reason = missing_operation(kernel, target) or (
                f"{kernel.name} has no contraction, and all that {target.name} computes begins with"
                " one"
            )
        raise refusal or NoMapping(
            reason,
            program=kernel,
            hint="each axis of an instruction needs a loop that plays its part",
        )


@lru_cache(maxsize=64)
def _filled(kernel: Kernel, longer: frozenset[tuple[Var, int]]) -> Kernel:
    """The kernel with some longer loops: many mappings want the same."""
    return fill_kernel(kernel, dict(longer))


def _mapped(kernel: Kernel, result: str, mapping: AxisMapping) -> tuple[Kernel, Nest, AxisMapping]:
    """A mapping with the loops of a schedule of the filled kernel."""
    nest = _only_nest(kernel, result)
    loops = {x.var: x for x in (*nest.axes, *nest.reduce)}
    axes = tuple((axis, loops[x.var]) for axis, x in mapping.axes)
    return kernel, nest, replace(mapping, axes=axes)


@lru_cache(maxsize=64)
def _only_nest(kernel: Kernel, result: str) -> Nest:
    found = [n for n in nests(Schedule(kernel).kernel.body) if n.buffer.name == result]
    if len(found) != 1:
        raise ScheduleError(
            f"{result} has no loop around its sum, and a unit makes several sums",
            program=kernel,
            hint="give the result an axis: of one element, if there is one",
        )
    return found[0]
