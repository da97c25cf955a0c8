"""Tiling for a unit: the default schedule of a contraction on a chip with queues.

    for tiles of the result:                                         stage
        for slices of the reduction:
            data_local = alloc in the unit's memory; copy in         0
            weight_local = alloc in the unit's memory; copy in       0
            acc = alloc in the unit's memory; for …: unit(…)         1
        epilogue, element by element                                 1
        copy out                                                     2

Which instructions copy and which loops the unit takes follows from their meanings (units.py). Each
local buffer is arranged as its operand wants. An operand that is the same for several tiles is
loaded once, before the loops that do not change it (`hoist`); the epilogue's perhaps before all
tiles. The plan says how far stages are apart: operands are loaded `prefetch_distance` steps early,
and the result has `result_buffers`; with one, a tile is finished and stored in chunks. All loops
over tiles become one (`sink`, `fuse`), and `pipeline` overlaps its stages.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.analyze.nests import Nest
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Cast, Expr, Load, Var
from tilewright.ir.loop import Alloc, For, loads, walk_statements
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.accelerate_whole import accelerate_whole
from tilewright.plan.equal_units import equal_instructions
from tilewright.plan.fold import Around, Fold, fold
from tilewright.plan.interleave import calls_apart
from tilewright.plan.map_values import Parts, RowLayout, bring_part, map_values
from tilewright.plan.one_loop import flatten, hoist_all, stages_of
from tilewright.plan.operand_blocks import block_places, memory_between
from tilewright.plan.stacked_inputs import Stacks, bring_apart, stacks_in
from tilewright.plan.unit_plan import (
    Plan,
    contiguous_axes,
    epilogue_accesses,
    exits,
    layout_with_rows_last,
    nest_with,
    nests_with,
    operand_axes,
    operand_layout,
    outer_loop,
    parameter_layout,
    position_of,
    residual_plan,
    rows_last,
    var_of,
    widely_strided_axes,
)
from tilewright.plan.units import Unit
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target


def tile_for_unit(
    s: Schedule,
    target: Target,
    plan: Plan,
    *,
    overlap: bool = True,
    stacks: Stacks = MappingProxyType({}),
) -> dict[str, Layout]:
    """Builds the default schedule of a contraction on a chip's matrix instruction, which the
    module's docstring shows; without `overlap` one tile is done after the other. The parts of
    `stacks` are brought one by one. Returns the layouts in which parameters must lie in
    memory, by name; the others are row-major."""
    if plan.unit.whole:
        return accelerate_whole(s, target, plan, overlap=overlap, stacks=stacks)
    result = plan.nest.buffer
    acc = result if result in set(s.allocations()) else s.cache_write(s.buffer(result.name))
    if plan.starts_with_addend:
        s.init_with(acc)
    layouts = _pack_parameters(s, target, plan, acc)
    stacks = stacks_in(stacks, layouts)
    if plan.preloaded:
        _preload_epilogue_operands(s, target, plan, acc)
    *before_last, _ = exits(s, acc)
    acc, tiles, inside = _tile_result(s, plan, acc)
    update = order_update(s, target, acc, plan)
    locals_ = _bring_operands(s, target, update.parts or tiles[-1], acc, plan, update.inner)
    blocks = _bring_blocks(s, target, acc, plan, update)
    s.tensorize(update.first, plan.unit.instruction)
    made_of, residuals = _add_residuals(s, target, plan, before_last)
    starts = [outer_loop(nest_with(s, s.buffer(name))) for name in blocks]
    for name, source in locals_.items():
        local = s.buffer(name)
        one = [outer_loop(nest_with(s, local))]
        starts += bring_apart(s, local, stacks[source]) if source in stacks else one
    if update.separate_init:
        starts.append(outer_loop(nest_with(s, s.buffer(acc.name))))
    for loop in starts:
        map_values(s, target, loop, None, Parts(plan.interleave))
    around = [*tiles, update.parts] if update.parts is not None else tiles
    distance, buffers, cleared = _pace(s, plan, tiles, around) if overlap else (0, 1, 0)
    before = set(s.allocations())
    for loop, vars_ in made_of:
        map_values(s, target, loop, _rows(plan, target, vars_), Parts(plan.interleave))
    rows = _rows(plan, target, inside)
    if overlap and buffers == 1 and plan.chunked_axis is not None:
        rows, inside = _finish_in_chunks(s, plan, plan.chunked_axis, rows, inside)
    map_values(s, target, Loop(inside[0]), rows, Parts(plan.interleave))
    late = set(s.allocations()) - before if plan.late else set()  # what the epilogue brings
    hoist_all(s, around, acc.name)
    factors = (*locals_, *residuals) if plan.outer_places == 1 else ()
    single = _in_outer_loops(s, around, factors)
    # One buffer for each tile of the result that is computed or stored; one more for each whose
    # accumulator has its start value early.
    early = distance if plan.starts_with_addend else cleared
    results = buffers + _tiles_ahead(s, tiles, around, early)
    loop = flatten(s, around, acc.name, min(2, distance + 1), results, single)
    if overlap:
        brought = {b.name: b for b in s.allocations()}
        late |= {brought[name] for name in single}
        s.pipeline(loop, stages_of(s, target, loop, distance, buffers, cleared, late))
    return layouts


def _pace(
    s: Schedule, plan: Plan, tiles: Sequence[Loop], around: Sequence[Loop]
) -> tuple[int, int, int]:
    """Returns (prefetch distance in steps, result buffers, clear distance in steps), limited by the
    number of pipeline steps and of tiles."""
    count, steps = (
        math.prod(n for x in loops if isinstance(n := s.for_(x).extent, int))
        for loops in (tiles, around)
    )
    distance = min(plan.prefetch_distance, steps - 1)
    buffers = min(plan.result_buffers, count, steps - distance)
    return distance, buffers, min(plan.clear_distance, steps - buffers)


def _in_outer_loops(s: Schedule, around: Sequence[Loop], names: Iterable[str]) -> list[str]:
    """Returns those of some buffers that all but the innermost of the loops over tiles fill."""
    allocs = {x.buffer.name for loop in around[:-1] for x in s.for_(loop).body
              if isinstance(x, Alloc)}  # fmt: skip
    return [name for name in names if name in allocs]


def _tiles_ahead(s: Schedule, tiles: Sequence[Loop], around: Sequence[Loop], distance: int) -> int:
    """How many tiles further on a step is that is done so many steps early, at most."""
    inner = (s.for_(x).extent for x in around[len(tiles) :])
    return -(-distance // math.prod(n for n in inner if isinstance(n, int)))


def _finish_in_chunks(
    s: Schedule, plan: Plan, axis: Var, rows: RowLayout, inside: list[Var]
) -> tuple[RowLayout, list[Var]]:
    """Splits the epilogue and the store of a tile into chunks along an axis, so that one chunk is
    stored while the next is computed; returns the loops inside of a chunk."""
    var = inside[[x.var for x in plan.axes].index(axis)]
    extent = s.for_(Loop(var)).extent
    assert isinstance(extent, int)
    outer, inner = s.split(Loop(var), extent // plan.store_chunks)
    names = {v: inner.var if v == var else v for v in inside}
    s.reorder(outer, *(Loop(names[v]) for v in inside))
    return rows.renamed(names), list(names.values())


def _rows(plan: Plan, target: Target, inside: list[Var]) -> RowLayout:
    """Returns the layout of a result tile in the unit's memory, by the loops over it."""
    loops = dict(zip([x.var for x in plan.axes], inside, strict=True))
    access, operand = plan.result
    rows = contiguous_axes(plan, target, access, operand)
    axes = [axis for axis, _ in operand_axes(plan, operand)]
    others = [axis for axis in axes if axis not in dict(rows)]
    blocks = tuple((loops[var_of(plan, axis)], size) for axis, size in rows)
    order = rows_last(inside, [loops[var_of(plan, v)] for v in others], [v for v, _ in blocks])
    return RowLayout(order, blocks)


def _add_residuals(
    s: Schedule, target: Target, plan: Plan, made: Sequence[tuple[Load, Nest]]
) -> tuple[list[tuple[Loop, list[Var]]], list[str]]:
    """Gives products that add residuals to what is `made` of the sums to the unit; returns what
    makes that, the outermost loop of each nest and its loops by the axes of the contraction, and
    the names of the factors' copies."""
    found, names = [], list[str]()
    for read, before in made:
        result = s.buffer(before.buffer.name)
        nest = nest_with(s, result)
        own = residual_plan(plan, nest, read)
        update = order_update(s, target, result, own)
        loop = _update_of(s, result).stmt
        assert isinstance(loop, For)
        assert isinstance(loop.extent, int)
        outermost = Loop(loop.var)
        once, inner = s.split(outermost, loop.extent)  # around what comes right before it
        axes = {axis: inner if x == outermost else x for axis, x in update.inner.items()}
        locals_ = _bring_operands(s, target, once, result, own, axes)
        names += locals_
        for name in locals_:
            s.hoist(s.buffer(name), once)
        fused = s.fuse(once, inner)
        first = fused if update.first == outermost else update.first
        s.tensorize(first, plan.unit.instruction)
        for name in locals_:
            map_values(
                s, target, outer_loop(nest_with(s, s.buffer(name))), None, Parts(plan.interleave)
            )
        init = nest_with(s, s.buffer(result.name))
        renamed = {x.var: y.var for x, y in zip(nest.axes, init.axes, strict=True)}
        found.append((outer_loop(init), [renamed[v] for v in _vars_behind(plan, read)]))
    return found, names


def _pack_parameters(s: Schedule, target: Target, plan: Plan, acc: Buffer) -> dict[str, Layout]:
    """Arranges parameters in blocks, where the instructions that copy them need it."""
    layouts: dict[str, Layout] = {}
    for access, operand in (*plan.reads, *epilogue_accesses(s, plan, acc)):
        layout = parameter_layout(
            contiguous_axes(plan, target, access, operand), plan, access, operand, s, target
        )
        if layout is not None and access.buffer.name not in layouts:
            s.pack_layout(s.buffer(access.buffer.name), layout)
            layouts[access.buffer.name] = layout
    return layouts


def _arrangement(
    plan: Plan,
    rows: Sequence[tuple[Var, int]],
    operand: Load,
    indices: tuple[Expr, ...],
    inner: Mapping[Var, Loop],
) -> Layout:
    """The layout of a unit's operand in its memory, rows innermost: `indices` are a local buffer's
    subscripts, `inner` the loops that are the unit's axes."""
    places = {
        axis: position_of(indices, inner[axis].var) for axis, _ in operand_axes(plan, operand)
    }
    return layout_with_rows_last(rows, places, len(indices))


def _preload_epilogue_operands(s: Schedule, target: Target, plan: Plan, acc: Buffer) -> None:
    """Copies the epilogue's other operands (a bias) into local memory once, before all tiles."""
    _, operand = plan.result
    for access, _ in epilogue_accesses(s, plan, acc, residuals=False):
        for read, nest in exits(s, acc):
            part = next(_parts(nest.store.value, access.buffer), None)
            if part is not None:
                rows = _rows(plan, target, _vars_behind(plan, read))
                before = s.moment
                try:
                    bring_part(s, target, outer_loop(nest), rows, part, operand.buffer.memory)
                except ScheduleError:  # what is made of the sums brings it where it can
                    s.back_to(before)


def _parts(value: Expr, buffer: Buffer) -> Iterator[Expr]:
    """Where a value reads a buffer, with the conversion of what is read, if there is one."""
    reads = [x for x in value.walk() if isinstance(x, Load) and x.buffer.name == buffer.name]
    yield from (x for x in value.walk() if isinstance(x, Cast) and x.a in reads)
    yield from reads


def _vars_behind(plan: Plan, read: Load) -> list[Var]:
    """Returns the epilogue's loops, by the axes of the contraction."""
    access, _ = plan.result
    places = (position_of(access.indices, axis.var) for axis in plan.axes)
    return [next(iter(variables(read.indices[p]))) for p in places]


# ---------------------------------------------------------------- tiles


def _tile_result(s: Schedule, plan: Plan, acc: Buffer) -> tuple[Buffer, list[Loop], list[Var]]:
    """Splits the epilogue into tiles and computes the accumulator inside the tile loops. Returns
    (local accumulator, tile loops, loops within a tile by the axes of the contraction)."""
    *before, (read, _) = exits(s, acc)
    outer: dict[Var, Loop] = {}
    inner: list[Loop] = []
    axes = plan.axes
    for axis, var in zip(axes, _vars_behind(plan, read), strict=True):
        size = plan.tile.get(axis.var, 1)
        last = axis is axes[-1] and not outer
        if size == axis.extent and not last:
            inner.append(Loop(var))
        else:
            outer[axis.var], part = s.split(Loop(var), size)
            inner.append(part)
    tiles = [outer[v] for v in (*plan.order, *outer) if v in outer]
    tiles = list(dict.fromkeys(tiles))
    s.reorder(*tiles, *inner)
    for _, nest in reversed(before):
        s.compute_at(s.buffer(nest.buffer.name), tiles[-1])
    return s.compute_at(s.buffer(acc.name), tiles[-1]), tiles, [x.var for x in inner]


# ---------------------------------------------------------------- sums


@dataclass(frozen=True)
class Update:
    """The loops of the accumulation, ordered for the unit."""

    parts: Loop | None  # over slices of the reduction; None if one tile has all of it
    first: Loop  # the outermost loop to tensorize
    inner: dict[Var, Loop]  # the loop of each fixed axis of the unit
    separate_init: bool  # whether a nest of its own initialises the accumulator
    around: tuple[Loop, ...]  # what repeats the unit, outermost first, without `parts`


def order_update(s: Schedule, target: Target, acc: Buffer, plan: Plan) -> Update:
    """Puts the slices of the reduction outside, then what repeats the unit, then the unit's axes;
    where the unit can begin a sum, its first call initialises the accumulator."""
    unit, nest = plan.unit, nest_with(s, acc)
    from_array = any(True for _ in loads(nest.store.value))  # what the author's sums begin with
    clears = unit.clears and not (plan.starts_with_addend or from_array)
    if not clears:
        s.split_init(acc)
        nest = _update_of(s, acc)
    handles = {x.var: Loop(x.var) for x in (*nest.axes, *nest.reduce)}
    parts = _cut_parts(s, plan, nest, handles)
    inner: dict[Var, Loop] = {}
    whole = []
    for axis, loop in plan.mapping.axes:
        handles[loop.var], inner[axis] = s.split(handles[loop.var], plan.step(axis))
        whole.append(handles[loop.var])
    fixed = [inner[axis] for axis in unit.fixed]
    blocks = _loops_of_blocks(target, plan)
    if clears:
        first, around = _fold_init(s, target, acc, plan, nest, handles, parts, inner, blocks)
    else:
        turns = _split_interleaved(s, target, plan, handles)
        loops = [handles[x.var] for x in (*nest.axes, *nest.reduce)]
        folded = fold(unit, _around(s, nest, loops, handles), _entries(target, unit))
        once = [x for x in loops if x not in folded.loops]
        around = [*once, *folded.outside, *turns, *folded.inside]
        if blocks is not None:
            outside = [handles[x.var] for x in (*nest.axes, *nest.reduce) if x.var in blocks]
            around = [*outside, *(x for x in around if x not in outside)]
        s.reorder(*parts, *around, *fixed)
        first = _fuse_lists(s, folded, fixed)
    fused = functools.reduce(s.fuse, parts) if parts else None
    return Update(fused, first, inner, not clears, tuple(around))


def _loops_of_blocks(target: Target, plan: Plan) -> frozenset[Var] | None:
    """The loops along which an operand lies that comes to the unit block by block; None if none
    does. They are around all others, so that each block comes once for a tile."""
    if plan.sums_outermost:
        return frozenset()
    found = [access for access, operand in plan.brought if memory_between(target, access, operand)]
    return frozenset().union(*(variables(i) for x in found for i in x.indices)) if found else None


def _cut_parts(s: Schedule, plan: Plan, nest: Nest, handles: dict[Var, Loop]) -> list[Loop]:
    """Returns the loops over slices of the reduction; `handles` then has those within a slice."""
    parts = []
    for x in nest.reduce:
        size = plan.tile.get(x.var)
        if size is not None and size != x.extent:
            part, handles[x.var] = s.split(Loop(x.var), size)
            parts.append(part)
    return parts


def _fold_init(
    s: Schedule,
    target: Target,
    acc: Buffer,
    plan: Plan,
    nest: Nest,
    handles: Mapping[Var, Loop],
    parts: list[Loop],
    inner: Mapping[Var, Loop],
    blocks: frozenset[Var] | None,
) -> tuple[Loop, list[Loop]]:
    """Orders the loops so that the unit's first call initialises, those of `blocks` outside of
    others; returns the outermost loop to tensorize, and what is around it, without the parts."""
    unit = plan.unit
    loops = (*nest.axes, *nest.reduce)  # axes of extent 1 may stand inside reduction loops
    around = {x.var for x in loops if any(y is nest.store for y in walk_statements((x,)))}
    rows = [handles[x.var] for x in loops if x.var in around]
    sums = [handles[x.var] for x in loops if x.var not in around]
    used = set().union(*(variables(i) for i in unit.update.indices))
    summed = [inner[axis] for axis in unit.fixed if axis not in used]
    s.reorder(*parts, *sums, *summed)
    for loop in (*parts, *sums):
        s.fold_init(acc, loop)
    spatial = [inner[axis] for axis in unit.fixed if axis in used]
    # Put just enough rows inside the reduction to cover the unit's latency, so that finished rows
    # can be stored early.
    several = len(equal_instructions(target, unit.instruction))
    if blocks is None:
        outer, between = _cut_rows(s, plan, rows, several)
    else:
        outer = [handles[x.var] for x in loops if x.var in around and x.var in blocks]
        between = [x for x in rows if x not in outer]
    s.reorder(*outer, *parts, *sums, *between, *spatial)
    s.reorder(*parts, *outer)
    return spatial[0], [*outer, *sums, *between]


def _cut_rows(
    s: Schedule, plan: Plan, rows: list[Loop], units: int
) -> tuple[list[Loop], list[Loop]]:
    """Returns (row loops outside the reduction, row loops inside it): the inner ones have enough
    calls of each of so many equal units to cover the latency between two additions to one
    accumulator."""
    steps = {axis: plan.step(axis) for axis in plan.unit.fixed}
    missing = calls_apart(plan.unit, steps) * units
    outer = list(rows)
    between: list[Loop] = []
    while outer and missing > 1:
        loop = outer.pop()
        extent = s.for_(loop).extent
        assert isinstance(extent, int)
        most = min((n for n in range(1, extent + 1) if extent % n == 0 and n >= missing),
                   default=extent)  # fmt: skip
        if most < extent:
            around, loop = s.split(loop, most)
            outer.append(around)
        between.insert(0, loop)
        missing = -(-missing // most)
    return outer, between


def _split_interleaved(
    s: Schedule, target: Target, plan: Plan, handles: dict[Var, Loop]
) -> list[Loop]:
    """Splits one axis of the result, the outermost in memory that divides, into `plan.interleave`
    parts; returns the loop over the parts, or nothing if no axis divides."""
    access, operand = plan.result
    held = operand_layout(plan, contiguous_axes(plan, target, access, operand), access, operand)
    axes = [x for p in held.order for x in handles if x == access.indices[p]]
    for var in axes if plan.interleave > 1 else ():
        extent = s.for_(handles[var]).extent
        if isinstance(extent, int) and extent % plan.interleave == 0:
            turns, handles[var] = s.split(handles[var], extent // plan.interleave)
            return [turns]
    return []


def _around(
    s: Schedule, nest: Nest, loops: Sequence[Loop], handles: Mapping[Var, Loop]
) -> list[Around]:
    """Returns the loops that run more than once."""
    spatial = {handles[x.var] for x in nest.axes}
    found = [(x, s.for_(x).extent) for x in loops]
    return [Around(x, n, x in spatial) for x, n in found if isinstance(n, int) and n > 1]


def _entries(target: Target, unit: Unit) -> int:
    """Returns how many micro-operations fit in their memory; 1 if the unit has none."""
    kind = unit.instruction.micro_ops
    if kind is None:
        return 1
    size = target.memory(kind.memory).size
    return 1 << 62 if size is None else size // kind.bytes


def _fuse_lists(s: Schedule, folded: Fold, fixed: list[Loop]) -> Loop:
    """Fuses the loops folded into each free axis; returns the outermost loop to tensorize."""
    loops = [[x.loop for x in loops] for _, loops in folded.axes]
    for n, several in enumerate(loops):
        if several:
            one = several[0]
            for loop in several[1:]:
                one = s.fuse(one, loop)
            loops[n] = [one]
    return next(x for several in (*loops, fixed) for x in several)


def _bring_operands(
    s: Schedule, target: Target, loop: Loop, acc: Buffer, plan: Plan, inner: Mapping[Var, Loop]
) -> dict[str, str]:
    """Copies the operands into the unit's memories, arranged as the unit takes them; returns the
    names of what is copied, by the copies'."""
    access, operand = plan.result
    write = _update_of(s, acc).update
    assert write is not None
    rows = contiguous_axes(plan, target, access, operand)
    layout = _arrangement(plan, rows, operand, write.indices, inner)
    s.pack_layout(s.set_memory(acc, operand.buffer.memory), layout)
    names = {}
    for load, operand in plan.brought:
        rows = contiguous_axes(plan, target, load, operand)
        buffer = s.buffer(load.buffer.name)
        memory = memory_between(target, load, operand) or operand.buffer.memory
        local = s.cache_read(buffer, loop, memory, widely_strided_axes(buffer, target))
        indices = next(x.indices for x in _reads(s, acc.name) if x.buffer == local)
        s.pack_layout(local, _arrangement(plan, rows, operand, indices, inner))
        names[local.name] = buffer.name
    return names


def _bring_blocks(
    s: Schedule, target: Target, acc: Buffer, plan: Plan, update: Update
) -> list[str]:
    """Copies blocks of operands from a memory between to the unit's own, each in front of the calls
    that take it, where another may be in use still; returns the copies' names."""
    found = []
    for load, operand in plan.brought:
        if memory_between(target, load, operand) is None:
            continue
        reads = list(_reads(s, acc.name))
        read = reads[[x.buffer.name for x, _ in plan.reads].index(load.buffer.name)]
        used = set().union(*(variables(i) for i in read.indices))
        last = max((k for k, x in enumerate(update.around) if x.var in used), default=0)
        outside = update.around[: last + 1]
        block = s.cache_read(read.buffer, outside[-1], operand.buffer.memory)
        rows = contiguous_axes(plan, target, load, operand)
        indices = next(x.indices for x in _reads(s, acc.name) if x.buffer == block)
        s.pack_layout(block, _arrangement(plan, rows, operand, indices, update.inner))
        if outside[-1].var not in used:  # one block is all that a tile takes
            s.hoist(s.buffer(block.name), outside[0])
        else:
            places = block_places(target, operand.buffer)
            s.multi_buffer(s.buffer(block.name), outside, places)
        found.append(block.name)
    return found


def _reads(s: Schedule, name: str) -> Iterator[Load]:
    update = _update_of(s, s.buffer(name)).update
    assert update is not None
    return loads(update.value)


def _update_of(s: Schedule, buffer: Buffer) -> Nest:
    """The nest that accumulates into a buffer, wherever it stands."""
    return next(n for n in nests_with(s.kernel.body, buffer) if n.update is not None)
