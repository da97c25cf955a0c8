"""Whole operators of a chip: an instruction that does sums and what follows them does a tile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.analyze.linear import linear
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.loop import (
    loads,
)
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.map_values import map_values
from tilewright.plan.one_loop import flatten, hoist_all, stages_of
from tilewright.plan.rates import calls
from tilewright.plan.stacked_inputs import Stacks, bring_apart, stacks_in
from tilewright.plan.unit_plan import (
    Plan,
    epilogue_accesses,
    epilogue_of,
    nest_with,
    nests_with,
    order_of,
    outer_loop,
)
from tilewright.plan.whole_rings import keep_shared
from tilewright.schedule.match.unify import Unifier
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target


def accelerate_whole(
    s: Schedule, target: Target, plan: Plan, *, overlap: bool, stacks: Stacks
) -> dict[str, Layout]:
    """An instruction that does a whole operator does a tile of it: operands are brought, and the
    result is stored, in the order of its own axes."""
    acc, unit = plan.nest.buffer, plan.unit
    if acc not in set(s.allocations()):
        raise ScheduleError(
            f"{unit.instruction} keeps its sums to itself, and {acc.name} is a parameter",
            program=s.kernel,
            hint="it makes of the sums what its description says: narrow them in the kernel",
        )
    layouts = _order_parameters(s, plan, acc)
    stacks = stacks_in(stacks, layouts)
    _, nest = epilogue_of(s, acc)
    memory = unit.result.buffer.memory
    direct = nest.buffer.memory == memory  # results are written where they are wanted
    local = s.buffer(nest.buffer.name)
    local = local if direct else s.cache_write(local, memory)
    tiles, inside = _tile_copy(s, plan, acc, nest.buffer.name)
    local = local if direct else s.compute_at(local, tiles[-1])
    spatial = _made_in_order(s, plan, acc, local, tiles)
    s.compute_at(s.buffer(acc.name), spatial[-1])
    summed = {x.var for x in plan.nest.reduce}
    s.reorder(*(Loop(x.var) for _, x in plan.mapping.axes if x.var in summed))
    held = {
        b.name: s.cache_read(s.buffer(b.name), tiles[-1], place, slack=target.memory(b.memory).line)
        for b in s.kernel.inputs
        if (place := _place_of(plan, b)) != b.memory
    }
    hoist_all(s, tiles)
    once: list[str] = []
    if plan.rings:
        tiles, once = keep_shared(
            s, target, tiles, local.name, plan.prefetch_distance if overlap else 0
        )
    s.tensorize(spatial[0], unit.instruction)
    _check_taken(s, plan, tiles[-1])
    for name, buffer in held.items():
        for part in bring_apart(s, s.buffer(buffer.name), stacks[name]) if name in stacks else ():
            map_values(s, target, part)
        # A ring is filled by two nests.
        while (fill := next(nests_with(s.kernel.body, s.buffer(buffer.name)), None)) is not None:
            map_values(s, target, outer_loop(fill))
    if not direct:
        map_values(s, target, Loop(inside[0]))
    loop = flatten(s, tiles, local.name, *((2, 2) if overlap else (1, 1)), once)
    count = s.for_(loop).extent
    distance = min(plan.prefetch_distance, count - 1) if isinstance(count, int) else 0
    if overlap and held and distance > 0:
        s.pipeline(loop, stages_of(s, target, loop, distance))
    return layouts


def check_whole(s: Schedule, plan: Plan) -> None:
    """Refuses what an operator makes of its sums in no tiles; costs no scheduling."""
    _, nest = epilogue_of(s, plan.nest.buffer)
    unit = plan.unit.instruction
    unifier = Unifier(unit, s.simplifier)
    if not unifier.makes(nest.store.value, plan.nest.buffer):
        raise ScheduleError(
            f"the nest of {nest.axes[0].var} is no {unit.name}: {unifier.obstacles}",
            program=nest.stmt,
        )


def _check_taken(s: Schedule, plan: Plan, tile: Loop) -> None:
    """Refuses calls that take less than the plan's steps: an operand did not go along."""
    nest, unit = plan.nest, plan.unit.instruction
    loops = [(x, 1) for x in nest.axes] + [(x, x.extent) for x in nest.reduce]
    sizes = [plan.tile.get(x.var, whole) for x, whole in loops]
    steps = math.prod(plan.step(axis) for axis, _ in plan.mapping.axes)
    wanted = math.prod(n for n in sizes if isinstance(n, int)) // steps
    count = sum(n for call, n in calls(s.for_(tile).body) if call.instruction == unit)
    if count > wanted:
        raise ScheduleError(
            f"{unit.name} does a tile of {nest.buffer.name} in {count} calls, and could in"
            f" {wanted}: some operand does not go along with its axes",
            program=s.kernel,
        )


def _place_of(plan: Plan, buffer: Buffer) -> str:
    """The memory in which an operator takes an input."""
    factors = {access.buffer.name: operand.buffer.memory for access, operand in plan.reads}
    unit = plan.unit
    known = {x.buffer for x in unit.operands}
    others = [b.memory for b in unit.instruction.operands if b not in known]
    return factors.get(buffer.name, (*others, unit.result.buffer.memory)[0])


def _order_parameters(s: Schedule, plan: Plan, acc: Buffer) -> dict[str, Layout]:
    """Arranges parameters in the order of a whole operator's operands."""
    made = next(epilogue_accesses(s, plan, acc))
    layouts: dict[str, Layout] = {}
    for access, operand in (*plan.reads, made):
        wanted = _order_as_it_lies(plan, access, operand)
        if wanted != tuple(range(len(wanted))):
            layouts[access.buffer.name] = Layout(wanted)
            s.pack_layout(s.buffer(access.buffer.name), Layout(wanted))
    return layouts


def check_orders(plan: Plan) -> None:
    """Refuses factors that lie with their axes in another order than an operator takes them in;
    costs no scheduling."""
    for access, operand in plan.reads:
        _order_as_it_lies(plan, access, operand)


def _order_as_it_lies(plan: Plan, access: Load, operand: Load) -> tuple[int, ...]:
    """The order in which a parameter's axes lie, from outside inwards: that of the operand's axes,
    or refused where the parameter has another."""
    order = order_of(plan, access, operand)
    wanted = dict(plan.mapping.orders).get(access.buffer.name, order)
    several = [d for d, n in enumerate(access.buffer.shape) if n != 1]
    as_it_lies, as_taken = ([d for d in x if d in several] for x in (wanted, order))
    if plan.mapping.between:  # steps of fields lead along all but the innermost
        as_it_lies, as_taken = as_it_lies[-1:], as_taken[-1:]
    if as_it_lies != as_taken:
        raise ScheduleError(
            f"{access.buffer.name} lies with its axes in the order {wanted}, and"
            f" {plan.unit.instruction.name} takes them in the order {order}",
            program=plan.nest.stmt,
        )
    return wanted


def _tile_copy(s: Schedule, plan: Plan, acc: Buffer, name: str) -> tuple[list[Loop], list[Var]]:
    """Cuts what copies the result into tiles: the loops over them, and those inside of one."""
    read, nest = epilogue_of(s, acc)
    access, _ = plan.result
    axes = dict(zip(read.indices, access.indices, strict=True))
    places = [i if i in axes else _without_offset(i) for i in nest.store.indices]
    stepped = next(
        (i for i, v in zip(nest.store.indices, places, strict=True) if v not in axes), None
    )
    if stepped is not None:
        raise ScheduleError(
            f"{nest.buffer.name} is written at {stepped}, and {plan.unit.instruction.name} writes"
            " its results one after the other",
            program=nest.stmt,
        )
    copy = nest_with(s, s.buffer(name))  # which is what makes it, if that needs no copy
    outer: dict[Var, Loop] = {}
    inside = []
    over = {
        loop: axis
        for at, i in zip(copy.store.indices, places, strict=True)
        for loop in variables(at)
        for axis in variables(axes[i])
    }
    for x in copy.axes:
        axis = over.get(x.var)  # None for a loop that runs once
        size = 1 if axis is None else plan.tile.get(axis, 1)
        if axis is None or size == x.extent:
            inside.append(Loop(x.var))
        else:
            outer[axis], part = s.split(Loop(x.var), size)
            inside.append(part)
    if not outer:
        once, inside[0] = s.split(inside[0], int(s.for_(inside[0]).extent))
        outer[Var("once")] = once
    tiles = list(dict.fromkeys(outer[v] for v in (*plan.order, *outer) if v in outer))
    s.reorder(*tiles, *inside)
    return tiles, [x.var for x in inside]


def _without_offset(i: Expr) -> Expr:
    """A loop, of a subscript that is some places further (a border)."""
    loops = [v for v, step in linear(i).items() if isinstance(v, Var) and step == 1]
    return loops[0] if len(loops) == 1 and len(variables(i)) == 1 else i


def _made_in_order(
    s: Schedule, plan: Plan, acc: Buffer, local: Buffer, tiles: Sequence[Loop]
) -> list[Loop]:
    """The loops that make a tile of the result, in the order of the operator's axes."""
    made = nest_with(s, local)
    read = next(x for x in loads(made.store.value) if x.buffer.name == acc.name)
    around = {s.for_(x).var for x in tiles}  # of the same nest, where the result needs no copy
    inner = {x.var for x in made.axes} - around
    access, _ = plan.result
    loop_of = {}
    for i, axis in zip(read.indices, access.indices, strict=True):
        for var in variables(axis):
            for v in variables(i) & inner:  # none for a loop that runs once
                loop_of[var] = Loop(v)
    order = [loop_of[x.var] for _, x in plan.mapping.axes if x.var in loop_of]
    s.reorder(*order)
    return order or [Loop(made.axes[-1].var)]
