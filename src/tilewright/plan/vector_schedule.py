"""Tiling for element-wise instructions: the schedule of a kernel without a contraction on a chip
with queues.

    for tiles of the result:                                         stage
        X_rows = alloc in the unit's memory; copy in                 0
        Y_rows = alloc in the unit's memory; clear it                1
        for r, s: Y_rows max= X_rows                                 1
        copy out                                                     2

Every buffer lies in rows of `lanes` elements along one loop of the result, the lane loop. What is
computed before the result is computed for each tile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeVar

from tilewright.analyze.nests import Nest, factors, nests
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import DRAM, Buffer, Expr, Load, Var
from tilewright.ir.loop import (
    Alloc,
    Call,
    For,
    Kernel,
    Stmt,
    buffers_written,
    loads,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.accelerate import order_update
from tilewright.plan.map_values import Parts, RowLayout, map_accumulation, map_values
from tilewright.plan.one_loop import flatten, hoist_all, stages_by_queue, stages_of
from tilewright.plan.rates import block_cycles, calls
from tilewright.plan.row_products import common_layout, find_product
from tilewright.plan.unit_plan import Plan, nest_with, nests_with, outer_loop
from tilewright.plan.vector_form import VectorForm
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

T = TypeVar("T")

PARTS_COST = 1.3  # of the cycles that bringing a factor at once takes: it may come in parts


@dataclass(frozen=True)
class VectorPlan:
    """How element-wise instructions do a kernel, in tiles."""

    lane: Var  # the loop of the result along which rows lie
    lanes: int  # elements of a row
    tile: Mapping[Var, int]  # iterations of each of the result's loops in one tile
    prefetch_distance: int = 1  # steps between the load of a tile and its use
    result_buffers: int = 2  # tiles of the result that exist at once
    interleave: int = 1  # parts of a tile that take turns, so that no instruction waits
    store_parts: int = 1  # in which a tile is stored, so that loads need not wait for all of it
    by_queue: bool = False  # every queue works on a tile of its own

    @property
    def parts(self) -> Parts:
        return Parts(self.interleave, self.store_parts)


@dataclass(frozen=True)
class Tiled:
    """The layouts in which parameters must lie in memory, and the buffers in which a schedule holds
    each of the kernel's local ones (in place of others, where instructions work so), by name; its
    loop over tiles, unless that is a pipeline."""

    layouts: dict[str, Layout]
    held: dict[str, str]
    loop: Loop


def tile_vectors(
    s: Schedule, target: Target, plan: VectorPlan, form: VectorForm, *, overlap: bool = True
) -> Tiled:
    """Builds the schedule in the module's docstring, of a kernel in that form; without `overlap`
    one tile is done after the other."""
    memories = form.memories
    local = [n.buffer.name for n in nests(s.kernel.body) if n.buffer.name in memories]
    rows = _Rows(lane_axes(s, plan.lane), plan.lanes, bool(form.products))
    blocks = _common_blocks(s, target, form, rows)
    layouts = _pack_parameters(s, target, rows, blocks)
    sliced = sliced_reduction(s.kernel, memories)
    tiles, inside, lane = place_tiles(s, plan)
    around = [*tiles]
    if sliced is not None and sliced.loop in plan.tile:
        around.append(_slice(s, sliced, plan.tile[sliced.loop]))
    for name in local:
        buffer = s.set_memory(s.buffer(name), memories[name])
        layout = blocks.get(name) or rows.layout(buffer)
        if layout is not None:
            s.pack_layout(buffer, layout)
    held = {name: _map_local(s, target, name, plan, rows, form) for name in local}
    map_values(s, target, Loop(inside[0]), rows.of_loops(inside, lane), plan.parts)
    result = held[sliced.result] if sliced is not None else ""
    hoist_all(s, around, result)
    loop = flatten(s, around, result, plan.prefetch_distance + 1, plan.result_buffers)
    count = s.for_(loop).extent
    if overlap and isinstance(count, int) and count > 1:
        _overlap(s, target, loop, plan, count)
    return Tiled(layouts, held, loop)


def _overlap(s: Schedule, target: Target, loop: Loop, plan: VectorPlan, count: int) -> None:
    """Makes the steps of the loop over tiles, so many, a pipeline."""
    distance = min(plan.prefetch_distance, count - 1)
    if plan.by_queue:
        stages = stages_by_queue(s, loop, max(distance, 1))
        s.pipeline(loop, [min(n, count - 1) for n in stages])
        return
    buffers = min(plan.result_buffers, count - distance)
    order = _order(s, target, loop) if distance else ()
    s.pipeline(loop, stages_of(s, target, loop, distance, buffers), order)


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class _Rows:
    """How buffers lie in rows of so many `lanes`: along which of its axes each does, None for one
    that has a number for each row; whether those of one block follow each other, as a matrix unit
    takes them."""

    axes: Mapping[str, int | None]
    lanes: int
    blocked: bool

    def layout(self, buffer: Buffer) -> Layout | None:
        """The layout of a buffer; None for numbers."""
        axis = self.axes[buffer.name]
        order = self._order(range(len(buffer.shape)), axis) if axis is not None else ()
        return Layout(order, ((axis, self.lanes),)) if axis is not None else None

    def of_loops(self, loops: Sequence[Var], along: Var) -> RowLayout:
        """The same of a buffer that loops go through, by these loops."""
        return RowLayout(self._order(loops, along), ((along, self.lanes),), self.blocked)

    def _order(self, axes: Sequence[T], along: T) -> tuple[T, ...]:
        if not self.blocked:
            return tuple(axes)
        others = [x for x in axes if x != along]
        return (*others[:-1], along, *others[-1:])


def result_nest(s: Schedule) -> Nest:
    """The nest that computes the kernel's only output."""
    found = [n for n in nests(s.kernel.body) if n.buffer in s.kernel.outputs]
    if len(found) != 1 or found[0].update is not None or not found[0].axes:
        raise ScheduleError("a chip's tiles need one result, in a loop", program=s.kernel)
    return found[0]


def lane_axes(s: Schedule, lane: Var) -> dict[str, int | None]:
    """Along which of its axes each buffer lies in rows, if the result does along a loop; None for
    one that has a number for each row. A row is of neighbours everywhere: ScheduleError where an
    access does not follow the loop as it is."""
    return _follow_lane(s, lane)[0]


def lane_loops(s: Schedule, lane: Var) -> list[Var]:
    """The loop of each nest that goes along those rows."""
    return _follow_lane(s, lane)[1]


def number_loops(s: Schedule, lane: Var) -> set[Var]:
    """The loops, of any nest, along which numbers of rows lie that are computed."""
    lanes = lane_axes(s, lane)
    made = {n.buffer.name for n in nests(s.kernel.body)}
    numbers = {name for name in made if lanes.get(name, 0) is None}
    accesses = [
        x
        for n in nests(s.kernel.body)
        for x in (Load(n.buffer, n.store.indices), *(x for w in n.writes for x in loads(w.value)))
    ]
    return {v for x in accesses if x.buffer.name in numbers for v in variables(x.indices[-1])}


def _follow_lane(s: Schedule, lane: Var) -> tuple[dict[str, int | None], list[Var]]:
    result = result_nest(s)
    first = _place(s, Load(result.buffer, result.store.indices), lane)
    found: dict[str, int | None] = {result.buffer.name: first}
    loops = []
    for nest in reversed(nests(s.kernel.body)):
        if nest.buffer.name not in found:
            continue
        along = _loop_along(s, nest, found)
        if along is not None:
            loops.append(along)
        pair = factors(nest.update.value) if nest.update is not None else None
        if pair is not None:
            rows = next((x for x in pair if along not in variables(x)), pair[0])
            found.setdefault(rows.buffer.name, _place_of_terms(s, nest, rows))
            continue
        for read in dict.fromkeys(x for w in nest.writes for x in loads(w.value)):
            follows = along is not None and any(along in variables(i) for i in read.indices)
            place = _place(s, read, along) if along is not None and follows else None
            if found.setdefault(read.buffer.name, place) != place:
                _refuse(s, read, along if along is not None else read)
    return found, loops


def _loop_along(s: Schedule, nest: Nest, found: Mapping[str, int | None]) -> Var | None:
    """The loop of a nest along which rows lie: of its result, or, where that is a number for each
    row, of what it adds up; None where it computes numbers of numbers."""
    place = found[nest.buffer.name]
    if place is not None:
        along = nest.store.indices[place]
        if not isinstance(along, Var):
            _refuse(s, Load(nest.buffer, nest.store.indices), along)
        return along
    over = {x.var for x in nest.reduce}
    reads = [x for w in nest.writes for x in loads(w.value)]
    for read in reads:
        at = found.get(read.buffer.name)
        if at is not None and read.indices[at] in over:
            along = read.indices[at]
            return along if isinstance(along, Var) else None
    return next((v for x in reads if isinstance(v := x.indices[-1], Var) and v in over), None)


def _place_of_terms(s: Schedule, nest: Nest, rows: Load) -> int:
    """The axis along which the first factor of a product lies in rows: the last that its sums go
    along."""
    over = {x.var for x in nest.reduce}
    places = [p for p, i in enumerate(rows.indices) if i in over]
    if not places:
        _refuse(s, rows, rows)
    return places[-1]


def _place(s: Schedule, access: Load, along: Expr) -> int:
    places = [p for p, i in enumerate(access.indices) if variables(i) & variables(along)]
    if len(places) != 1 or access.indices[places[0]] != along:
        _refuse(s, access, along)
    return places[0]


def _refuse(s: Schedule, access: Load, along: Expr) -> NoReturn:
    raise ScheduleError(
        f"{access} does not follow {along} as rows of a chip's memory do", program=s.kernel
    )


def _pack_parameters(
    s: Schedule, target: Target, rows: _Rows, blocks: Mapping[str, Layout]
) -> dict[str, Layout]:
    """Arranges parameters in rows, where they do not lie so, or in blocks."""
    layouts = {}
    for buffer in s.kernel.params:
        layout = blocks.get(buffer.name)
        axis = rows.axes.get(buffer.name)
        if axis is not None:
            short = rows.lanes * buffer.dtype.bytes < target.memory(buffer.memory).line
            if axis != len(buffer.shape) - 1 or (rows.blocked and short):
                layout = rows.layout(buffer)
        if layout is not None:
            layouts[buffer.name] = layout
            s.pack_layout(buffer, layout)
    return layouts


# ---------------------------------------------------------------- tiles


def place_tiles(s: Schedule, plan: VectorPlan) -> tuple[list[Loop], list[Var], Var]:
    """Cuts the result into tiles, and computes everything else where a tile needs it. Returns the
    loops over tiles, those in a tile, and which of these goes along rows."""
    result = result_nest(s)
    tiles: list[Loop] = []
    inside: dict[Var, Loop] = {}
    cut = [x for x in result.axes if x.extent != plan.tile[x.var]] or result.axes[:1]
    for x in result.axes:
        inside[x.var] = Loop(x.var)
        if x in cut:
            outer, inside[x.var] = s.split(Loop(x.var), plan.tile[x.var])
            tiles.append(outer)
    s.reorder(*tiles, *inside.values())
    for buffer in reversed(list(s.allocations())):
        s.compute_at(buffer, tiles[-1])
    return tiles, [x.var for x in inside.values()], inside[plan.lane].var


# ---------------------------------------------------------------- instructions


def _map_local(
    s: Schedule, target: Target, name: str, plan: VectorPlan, rows: _Rows, form: VectorForm
) -> str:
    """Gives what computes a local buffer to instructions; returns the name of the buffer that holds
    it then."""
    if name in form.products:
        return _map_product(s, target, name, form.common, plan.interleave)
    if name in form.common:
        return _bring_common(s, target, name)
    if nest_with(s, s.buffer(name)).update is not None:
        s.split_init(s.buffer(name))
    nest = nest_with(s, s.buffer(name))
    (along,) = variables(nest.store.indices[-1])
    numbers = rows.axes[name] is None
    if numbers:  # which lie one after the other
        _check_numbers(s, nest, along, plan.lanes)
        s.split(Loop(along), plan.lanes)
        nest = nest_with(s, s.buffer(name))
    loops = [x.var for x in nest.axes]
    layout = RowLayout(tuple(loops), ()) if numbers else rows.of_loops(loops, along)
    held = _in_place(s, nest)
    if held is None:
        held = map_values(s, target, Loop(loops[0]), layout, plan.parts)
    update = next((n for n in nests_with(s.kernel.body, held) if n.update is not None), None)
    if update is not None:
        assert isinstance(update.stmt, For)
        rows_along = _row_of(update, plan) if numbers else None
        map_accumulation(s, target, Loop(update.stmt.var), rows_along)
    return held.name


def _check_numbers(s: Schedule, nest: Nest, along: Var, lanes: int) -> None:
    """Refuses numbers of rows that fill no rows themselves."""
    count = s.for_(Loop(along)).extent
    if not isinstance(count, int) or count % lanes:
        raise ScheduleError(
            f"{nest.buffer.name} has {count} numbers along {along}, which fill no rows of {lanes}",
            program=nest.stmt,
            hint=f"make it a multiple of {lanes}",
        )


def _map_product(
    s: Schedule, target: Target, name: str, common: Collection[str], interleave: int
) -> str:
    """Gives sums of products to a matrix unit."""
    nest = nest_with(s, s.buffer(name))
    product = find_product(nest, target, common)
    if product is None:
        raise ScheduleError(
            f"no unit of {target.name} makes {name} in tiles like these", program=nest.stmt
        )
    before = {r.buffer for c in _calls_for(s, product.rows.buffer) for r in c.regions}
    made = not before & {*s.kernel.params}  # which comes part by part, as what made it does
    plan = Plan(nest, product.mapping, {}, sums_outermost=made)
    update = order_update(s, target, s.buffer(name), plan)
    s.tensorize(update.first, product.unit.instruction)
    if update.separate_init:
        map_values(s, target, outer_loop(nest_with(s, s.buffer(name))), None, Parts(interleave))
    return name


def _bring_common(s: Schedule, target: Target, name: str) -> str:
    """Brings the factor that all rows have in common: in parts along its outermost axis, since
    products begin with the first of them, if that costs little."""
    before = s.moment
    map_values(s, target, outer_loop(nest_with(s, s.buffer(name))))
    whole, cycles = s.moment, _cycles_of(s, target, name)
    s.back_to(before)
    nest = nest_with(s, s.buffer(name))
    loops = {x.var: Loop(x.var) for x in nest.axes}
    parts = nest.buffer.shape[0]
    along = next((v for v in loops if v in variables(nest.store.indices[0])), None)
    extent = s.for_(loops[along]).extent if along is not None else 1
    if along is not None and isinstance(parts, int) and isinstance(extent, int) and parts < extent:
        outer, loops[along] = s.split(loops[along], extent // parts)
        s.reorder(outer, *loops.values())
        map_values(s, target, next(iter(loops.values())))
        if _cycles_of(s, target, name) <= PARTS_COST * cycles:
            return name
    s.back_to(whole)
    return name


def _cycles_of(s: Schedule, target: Target, name: str) -> float:
    """How long the calls take that fill a buffer."""
    found = _calls_for(s, s.buffer(name))
    return sum(n * block_cycles((c,), target) for c, n in found.items())


def _calls_for(s: Schedule, buffer: Buffer) -> dict[Call, float]:
    """The calls that fill a buffer, and how often each is done."""
    return {c: n for c, n in calls(s.kernel.body) if buffer in buffers_written((c,))}


def _common_blocks(s: Schedule, target: Target, form: VectorForm, rows: _Rows) -> dict[str, Layout]:
    """The layouts of the factors that all rows have in common, and of the parameters that they are
    brought from. ScheduleError where what a unit takes in blocks would lie in rows."""
    found: dict[str, Layout] = {}
    every = {n.buffer.name: n for n in nests(s.kernel.body)}
    for name in form.products:
        product = find_product(every[name], target, form.common)
        local = product.common.buffer.name if product is not None else ""
        if product is None or local in rows.axes:
            raise ScheduleError(
                f"{name} is a product of {target.name}'s where rows lie along other loops",
                program=every[name].stmt,
            )
        found[local] = common_layout(product)
        source = every[local].store.value
        if isinstance(source, Load) and source.buffer in s.kernel.inputs:
            found[source.buffer.name] = found[local]
    return found


def _in_place(s: Schedule, nest: Nest) -> Buffer | None:
    """Leaves elements that are only copied where they are; returns the buffer that they are in."""
    read = nest.store.value
    if not isinstance(read, Load):
        return None
    kinds = [(b.memory, b.dtype) for b in (read.buffer, nest.buffer)]
    same = kinds[0] == kinds[1] and read.buffer in set(s.allocations())
    return read.buffer if same and attempt(s.reuse, nest.buffer, read.buffer) else None


def _row_of(update: Nest, plan: VectorPlan) -> Var:
    """The loop of a reduction along which its operand's rows lie, in blocks of lanes."""
    assert update.update is not None
    (read,) = dict.fromkeys(loads(update.update.value))
    (along,) = variables(read.indices[-1])
    return along


# ---------------------------------------------------------------- slices


@dataclass(frozen=True)
class SlicedReduction:
    """A reduction whose operand may be brought in slices, along its outermost loop."""

    result: str
    operand: str
    loop: Var
    extent: int


def sliced_reduction(kernel: Kernel, memories: Mapping[str, str]) -> SlicedReduction | None:
    """The reduction of a kernel of which a tile need not have the whole operand at once: the only
    one that reads what was brought for it, and nothing else does."""
    found = []
    every = nests(kernel.body)
    brought = {n.buffer.name for n in every if n.update is None and n.buffer.name in memories}
    for nest in every:
        read = {x.buffer.name for w in nest.writes for x in loads(w.value)} & brought
        first = {x.buffer.name for x in loads(nest.store.value)}
        if nest.update is None or not nest.reduce or first & read:
            continue
        operands = {x.buffer.name for x in loads(nest.update.value)} & read
        extent = nest.reduce[0].extent
        if len(operands) == 1 and isinstance(extent, int):
            (operand,) = operands
            found.append(SlicedReduction(nest.buffer.name, operand, nest.reduce[0].var, extent))
    if len(found) != 1:
        return None
    users = [
        n
        for n in every
        if any(x.buffer.name == found[0].operand for w in n.writes for x in loads(w.value))
    ]
    return found[0] if len(users) == 1 else None


def _slice(s: Schedule, sliced: SlicedReduction, size: int) -> Loop:
    """Cuts the reduction into slices, and brings the operand of each where it is needed. Returns
    the loop over slices."""
    s.split_init(s.buffer(sliced.result))
    outer, _ = s.split(Loop(sliced.loop), size)
    buffer = s.buffer(sliced.result)
    update = next(n for n in nests_with(s.kernel.body, buffer) if n.update is not None)
    rest = [Loop(x.var) for x in (*update.axes, *update.reduce) if x.var != outer.var]
    order = [x.var for x in walk_statements((update.stmt,)) if isinstance(x, For)]
    rest.sort(key=lambda x: order.index(x.var))
    s.reorder(outer, *rest)
    s.compute_at(s.buffer(sliced.operand), outer)
    return outer


# ---------------------------------------------------------------- order


def _order(s: Schedule, target: Target, loop: Loop) -> tuple[int, ...]:
    """The places of a step's statements: where one queue loads and works, loads come behind as
    much of the work as takes the time of a store, so that the last step's results leave while the
    queue does not want the memory outside."""
    body = [x for x in s.for_(loop).body if not isinstance(x, Alloc)]
    outside = [outside_of(x) for x in body]
    found = {kind: [k for k, x in enumerate(outside) if x == kind] for kind in Transfer}
    loads_, work, stores = (found[kind] for kind in Transfer)
    queues = [
        {c.instruction.queue for k in part for c, _ in calls((body[k],))} for part in (loads_, work)
    ]
    if not queues[0] & queues[1] or len(work) < 2:
        return ()
    wanted = block_cycles(tuple(body[k] for k in stores), target)
    first, done = 0, 0.0
    while first < len(work) - 1 and done < wanted:
        done += block_cycles((body[work[first]],), target)
        first += 1
    turns = [*work[:first], *loads_, *work[first:], *stores]
    return tuple(turns.index(k) for k in range(len(body)))


class Transfer(Enum):
    """What a statement has to do with the memory outside."""

    LOAD = "load"
    WORK = "work"
    STORE = "store"


def outside_of(stmt: Stmt) -> Transfer:
    """What a statement has to do with it."""
    written = {b.memory for b in buffers_written((stmt,))}
    read = {r.buffer.memory for c, _ in calls((stmt,)) for r in c.regions}
    if DRAM in written:
        return Transfer.STORE
    return Transfer.LOAD if DRAM in read else Transfer.WORK
