"""Contractions on a chip's own instructions: the default schedule of a chip with queues.

    for tiles of the result:                                         stage
        for parts of the sums:
            data_local = alloc in the unit's memory; copy in         0
            weight_local = alloc in the unit's memory; copy in       0
            acc = alloc in the unit's memory; for …: unit(…)         1
        what follows the sums, element by element                    1
        copy out                                                     2

Which instructions copy and which loops the unit takes follows from their meanings (units.py). Each
local buffer is arranged as its operand wants. What is the same for several tiles is brought once,
before the loops that do not change it (`hoist`), what follows the sums perhaps before all tiles.
How far stages are apart is the plan's: operands come `ahead` steps early, results have `places` to
wait in until they are stored; with one place a tile is finished and stored in portions. All loops
over tiles become one (`sink`, `fuse`), and `pipeline` overlaps its stages.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.analyze.nests import Nest
from tilewright.ir.expr import Buffer, Cast, Expr, Load, Var
from tilewright.ir.loop import loads, walk_statements
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.accelerate_whole import accelerate_whole
from tilewright.plan.fold import Around, Fold, fold
from tilewright.plan.interleave import calls_apart
from tilewright.plan.map_values import Rows, bring_part, map_values
from tilewright.plan.one_loop import flatten, hoist_all, stages_of
from tilewright.plan.unit_plan import (
    Plan,
    consumer_of,
    far_axes,
    held_layout,
    layout_of,
    local_layout,
    made_of,
    nest_with,
    nests_with,
    operand_axes,
    position_of,
    rows_last,
    rows_of,
    var_of,
)
from tilewright.plan.units import Unit
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target


def accelerate(
    s: Schedule, target: Target, plan: Plan, *, overlap: bool = True
) -> dict[str, Layout]:
    """Applies the schedule in the module's docstring; without `overlap` one tile is done after
    the other. Returns the arrangements in which parameters must lie in memory, by name; the others
    are row-major."""
    if plan.unit.whole:
        return accelerate_whole(s, target, plan, overlap=overlap)
    result = plan.nest.buffer
    acc = result if result in set(s.allocations()) else s.cache_write(s.buffer(result.name))
    if plan.seeded:
        s.init_with(acc)
    layouts = _pack_parameters(s, target, plan, acc)
    if plan.once:
        _bring_once(s, target, plan, acc)
    acc, tiles, inside = _tile_result(s, plan, acc)
    update = _order_update(s, target, acc, plan)
    locals_ = _bring_operands(s, target, update.parts or tiles[-1], acc, plan, update.inner)
    s.tensorize(update.first, plan.unit.instruction)
    for name in (*locals_, *([acc.name] if update.cleared else [])):
        map_values(s, target, Loop(nest_with(s, s.buffer(name)).axes[0].var), None, plan.interleave)
    around = [*tiles, update.parts] if update.parts is not None else tiles
    ahead, places = _pace(s, plan, tiles, around) if overlap else (0, 1)
    rows = _rows(plan, target, inside)
    if overlap and places == 1 and plan.portioned is not None:
        rows, inside = _finish_in_portions(s, plan, plan.portioned, rows, inside)
    map_values(s, target, Loop(inside[0]), rows, plan.interleave)
    hoist_all(s, around, acc.name)
    # A tile is worked on while others are stored; while one more is begun, if that takes a move.
    loop = flatten(s, around, acc.name, min(2, ahead + 1), places + (plan.seeded and overlap))
    if overlap:
        s.pipeline(loop, stages_of(s, loop, ahead, places))
    return layouts


def _pace(
    s: Schedule, plan: Plan, tiles: Sequence[Loop], around: Sequence[Loop]
) -> tuple[int, int]:
    """Steps that operands are brought ahead, and places of the result: no more than there are."""
    count, steps = (
        math.prod(n for x in loops if isinstance(n := s.for_(x).extent, int))
        for loops in (tiles, around)
    )
    ahead = min(plan.ahead, steps - 1)
    return ahead, min(plan.places, count, steps - ahead)


def _finish_in_portions(
    s: Schedule, plan: Plan, portioned: Var, rows: Rows, inside: list[Var]
) -> tuple[Rows, list[Var]]:
    """Cuts what follows the sums of a tile into portions, so that the first leave while others are
    worked on; returns the loops inside of a portion."""
    var = inside[[x.var for x in plan.axes].index(portioned)]
    extent = s.for_(Loop(var)).extent
    assert isinstance(extent, int)
    outer, inner = s.split(Loop(var), extent // plan.portions)
    names = {v: inner.var if v == var else v for v in inside}
    s.reorder(outer, *(Loop(names[v]) for v in inside))
    return rows.renamed(names), list(names.values())


def _rows(plan: Plan, target: Target, inside: list[Var]) -> Rows:
    """How a tile of the result lies in the unit's memory, by the loops over it."""
    loops = dict(zip([x.var for x in plan.axes], inside, strict=True))
    access, operand = plan.result
    rows = rows_of(plan, target, access, operand)
    axes = [axis for axis, _ in operand_axes(plan, operand)]
    others = [axis for axis in axes if axis not in dict(rows)]
    blocks = tuple((loops[var_of(plan, axis)], size) for axis, size in rows)
    order = rows_last(inside, [loops[var_of(plan, v)] for v in others], [v for v, _ in blocks])
    return Rows(order, blocks)


def _pack_parameters(s: Schedule, target: Target, plan: Plan, acc: Buffer) -> dict[str, Layout]:
    """Arranges parameters in blocks, where the instructions that move them need it."""
    layouts: dict[str, Layout] = {}
    for access, operand in (*plan.reads, *made_of(s, plan, acc)):
        layout = layout_of(rows_of(plan, target, access, operand), plan, access, operand, s, target)
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
    return held_layout(rows, places, len(indices))


def _bring_once(s: Schedule, target: Target, plan: Plan, acc: Buffer) -> None:
    """Brings what the nest behind the sums reads besides them before everything else."""
    _, operand = plan.result
    for access, _ in made_of(s, plan, acc):
        read, nest = consumer_of(s, acc)
        part = next(_parts(nest.store.value, access.buffer), None)
        if part is not None:
            rows = _rows(plan, target, _vars_behind(plan, read))
            bring_part(s, target, Loop(nest.axes[0].var), rows, part, operand.buffer.memory)


def _parts(value: Expr, buffer: Buffer) -> Iterator[Expr]:
    """Where a value reads a buffer, with the conversion of what is read, if there is one."""
    reads = [x for x in value.walk() if isinstance(x, Load) and x.buffer.name == buffer.name]
    yield from (x for x in value.walk() if isinstance(x, Cast) and x.a in reads)
    yield from reads


def _vars_behind(plan: Plan, read: Load) -> list[Var]:
    """The loops behind the sums, by the axes of the contraction."""
    access, _ = plan.result
    places = (position_of(access.indices, axis.var) for axis in plan.axes)
    return [next(iter(variables(read.indices[p]))) for p in places]


# ---------------------------------------------------------------- tiles


def _tile_result(s: Schedule, plan: Plan, acc: Buffer) -> tuple[Buffer, list[Loop], list[Var]]:
    """Cuts what is made of the sums into tiles, and moves the accumulation into the loops over
    them. Returns those, and the loops inside a tile, by the axes of the contraction."""
    read, _ = consumer_of(s, acc)
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
    return s.compute_at(acc, tiles[-1]), tiles, [x.var for x in inner]


# ---------------------------------------------------------------- sums


@dataclass(frozen=True)
class Update:
    """The loops of an accumulation: over parts of the sums (None if one tile has them whole), the
    outermost of the unit's, and the unit's by axis; `cleared` if it needs zeros to begin with."""

    parts: Loop | None
    first: Loop
    inner: dict[Var, Loop]
    cleared: bool


def _order_update(s: Schedule, target: Target, acc: Buffer, plan: Plan) -> Update:
    """Parts of the sums outside, then what repeats the unit, then the unit's axes; where the unit
    can begin a sum, the initialisation goes into its first call."""
    unit, nest = plan.unit, nest_with(s, acc)
    clears = unit.clears and not plan.seeded
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
    if clears:
        first = _fold_init(s, acc, plan, nest, handles, parts, inner)
    else:
        turns = _take_turns(s, target, plan, handles)
        loops = [handles[x.var] for x in (*nest.axes, *nest.reduce)]
        folded = fold(unit, _around(s, nest, loops, handles), _entries(target, unit))
        once = [x for x in loops if x not in folded.loops]
        s.reorder(*parts, *once, *folded.outside, *turns, *folded.inside, *fixed)
        first = _fuse_lists(s, folded, fixed)
    fused = functools.reduce(s.fuse, parts) if parts else None
    return Update(fused, first, inner, not clears)


def _cut_parts(s: Schedule, plan: Plan, nest: Nest, handles: dict[Var, Loop]) -> list[Loop]:
    """The loops over parts of the sums; `handles` are then those inside of a part."""
    parts = []
    for x in nest.reduce:
        size = plan.tile.get(x.var)
        if size is not None and size != x.extent:
            part, handles[x.var] = s.split(Loop(x.var), size)
            parts.append(part)
    return parts


def _fold_init(
    s: Schedule,
    acc: Buffer,
    plan: Plan,
    nest: Nest,
    handles: Mapping[Var, Loop],
    parts: list[Loop],
    inner: Mapping[Var, Loop],
) -> Loop:
    """Orders the loops with the initialisation in the first call of the unit; its outermost."""
    unit = plan.unit
    loops = (*nest.axes, *nest.reduce)  # of one iteration, some of the former are inside of sums
    around = {x.var for x in loops if any(y is nest.store for y in walk_statements((x,)))}
    rows = [handles[x.var] for x in loops if x.var in around]
    sums = [handles[x.var] for x in loops if x.var not in around]
    used = set().union(*(variables(i) for i in unit.update.indices))
    summed = [inner[axis] for axis in unit.fixed if axis not in used]
    s.reorder(*parts, *sums, *summed)
    for loop in (*parts, *sums):
        s.fold_init(acc, loop)
    spatial = [inner[axis] for axis in unit.fixed if axis in used]
    # Sums are complete a few rows after the others, and can leave: as few as stay apart.
    outer, between = _cut_rows(s, plan, rows)
    s.reorder(*outer, *parts, *sums, *between, *spatial)
    s.reorder(*parts, *outer)
    return spatial[0]


def _cut_rows(s: Schedule, plan: Plan, rows: list[Loop]) -> tuple[list[Loop], list[Loop]]:
    """The loops over a unit's rows, those around the sums and those between two additions to the
    same ones: as many calls as take longer than results do."""
    steps = {axis: plan.step(axis) for axis in plan.unit.fixed}
    missing = calls_apart(plan.unit, steps)
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


def _take_turns(s: Schedule, target: Target, plan: Plan, handles: dict[Var, Loop]) -> list[Loop]:
    """Cuts a tile into the parts that take turns, along the outermost axis of the sums in memory
    that allows it: the loop over them, if there is one."""
    access, operand = plan.result
    held = local_layout(plan, rows_of(plan, target, access, operand), access, operand)
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
    """The loops that run more than once."""
    moving = {handles[x.var] for x in nest.axes}
    found = [(x, s.for_(x).extent) for x in loops]
    return [Around(x, n, x in moving) for x, n in found if isinstance(n, int) and n > 1]


def _entries(target: Target, unit: Unit) -> int:
    """Micro-operations that fit their memory."""
    kind = unit.instruction.micro_ops
    if kind is None:
        return 1
    size = target.memory(kind.memory).size
    return 1 << 62 if size is None else size // kind.bytes


def _fuse_lists(s: Schedule, folded: Fold, fixed: list[Loop]) -> Loop:
    """Makes one loop of those that a list repeats; the outermost of the unit's loops."""
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
) -> list[str]:
    """Copies of the operands in the unit's memories, arranged as the unit takes them; their
    names."""
    access, operand = plan.result
    write = _update_of(s, acc).update
    assert write is not None
    rows = rows_of(plan, target, access, operand)
    layout = _arrangement(plan, rows, operand, write.indices, inner)
    s.pack_layout(s.set_memory(acc, operand.buffer.memory), layout)
    names = []
    for load, operand in plan.reads:
        rows = rows_of(plan, target, load, operand)
        buffer = s.buffer(load.buffer.name)
        local = s.cache_read(buffer, loop, operand.buffer.memory, far_axes(buffer, target))
        indices = next(x.indices for x in _reads(s, acc.name) if x.buffer == local)
        s.pack_layout(local, _arrangement(plan, rows, operand, indices, inner))
        names.append(local.name)
    return names


def _reads(s: Schedule, name: str) -> Iterator[Load]:
    update = _update_of(s, s.buffer(name)).update
    assert update is not None
    return loads(update.value)


def _update_of(s: Schedule, buffer: Buffer) -> Nest:
    """The nest that accumulates into a buffer, wherever it stands."""
    return next(n for n in nests_with(s.kernel.body, buffer) if n.update is not None)
