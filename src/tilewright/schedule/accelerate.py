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
before the loops that do not change it (`hoist`). Then all loops over tiles become one (`sink`,
`fuse`), and `pipeline` overlaps its stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass
from typing import TypeVar

from tilewright.analyze.nests import Nest, guarded_factors, nests, stride
from tilewright.analyze.rewrite import uses
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import DRAM, Buffer, Expr, Load, Var
from tilewright.ir.graph import Layout
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    Stmt,
    buffers_written,
    loads,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.schedule.fold import Around, Fold, fold
from tilewright.schedule.map_values import Rows, map_values
from tilewright.schedule.parallelize import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import Loop
from tilewright.schedule.units import Mapping, Unit, copies, mappings, units
from tilewright.target.target import Target

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """A contraction, how a unit does it, how many iterations of each loop one tile holds, the order
    of the loops over tiles, outermost first, how many steps `ahead` of their use operands are
    brought, whether what is added to a sum is what it begins with (`seeded`), and whether what
    consecutive tiles share is kept (`rings`)."""

    nest: Nest
    mapping: Mapping
    tile: Names[Var, int]
    order: tuple[Var, ...] = ()
    ahead: int = 1
    seeded: bool = False
    rings: bool = False

    @property
    def unit(self) -> Unit:
        return self.mapping.unit

    @property
    def reads(self) -> tuple[tuple[Load, Load], ...]:
        """The program's factors, each with the unit's operand for it."""
        assert self.nest.update is not None
        pair = guarded_factors(self.nest.update.value)
        assert pair is not None
        ours = (self.unit.left, self.unit.right)
        return tuple(zip(pair, ours[::-1] if self.mapping.swapped else ours, strict=True))

    @property
    def axes(self) -> list[For]:
        """The loops that move the result."""
        theirs, _ = self.result
        moving = set().union(*map(variables, theirs.indices))
        return [x for x in self.nest.axes if x.var in moving]

    @property
    def result(self) -> tuple[Load, Load]:
        """Likewise what is computed."""
        update = self.nest.update
        assert update is not None
        return Load(update.buffer, update.indices), self.unit.operands[2]

    def loop_of(self, axis: Var) -> For | None:
        """The loop that is a bound axis of the unit."""
        return dict(self.mapping.axes).get(axis)

    def step(self, axis: Var) -> int:
        """Iterations of a bound axis in one call."""
        loop = self.loop_of(axis)
        assert loop is not None
        extent = self.tile.get(loop.var, loop.extent)
        assert isinstance(extent, int)
        return self.unit.step(axis, extent)


def find_mapping(s: Schedule, target: Target) -> tuple[Nest, Mapping]:
    """A kernel's contraction, and a way for one of the target's units to do it without waste."""
    for nest in nests(s.kernel.body):
        found = [m for unit in units(target) for m in mappings(nest, unit) if m.waste == 1.0]
        if found:  # loops further in step by less in memory
            order = [loop.var for loop in (*nest.axes, *nest.reduce)]
            return nest, max(found, key=lambda m: sum(order.index(x.var) for _, x in m.axes))
    raise ScheduleError(
        f"no instruction of {target.name} takes a contraction of this kernel",
        program=s.kernel,
        hint="each axis of an instruction needs a loop that plays its part and divides by its size",
    )


def accelerate(
    s: Schedule, target: Target, plan: Plan, *, overlap: bool = True
) -> dict[str, Layout]:
    """Applies the schedule in the module's docstring; without `overlap` one tile is done after
    the other. Returns the arrangements in which parameters must lie in memory, by name; the others
    are row-major."""
    if plan.unit.whole:
        return _accelerate_whole(s, target, plan, overlap=overlap)
    result = plan.nest.buffer
    acc = result if result in set(s.allocations()) else s.cache_write(s.buffer(result.name))
    if plan.seeded:
        s.init_with(acc)
    layouts = _pack_parameters(s, target, plan, acc)
    acc, tiles, inside = _tile_result(s, plan, acc)
    update = _order_update(s, target, acc, plan)
    locals_ = _bring_operands(s, target, update.parts or tiles[-1], acc, plan, update.inner)
    s.tensorize(update.first, plan.unit.instruction)
    for name in (*locals_, *([acc.name] if update.cleared else [])):
        map_values(s, target, Loop(_nest_of(s, s.buffer(name)).axes[0].var))
    map_values(s, target, Loop(inside[0]), _rows(plan, target, inside))
    around = [*tiles, update.parts] if update.parts is not None else tiles
    _hoist_all(s, around)
    # A tile is worked on while another is stored; while a third is begun, if that takes a move.
    turns = (2, 3 if plan.seeded else 2) if overlap else (1, 1)
    loop = _flatten(s, around, acc.name, *turns)
    count = s.for_(loop).extent
    if overlap and isinstance(count, int) and count > plan.ahead:
        s.pipeline(loop, _stages(s, loop, plan.ahead))
    return layouts


def _rows(plan: Plan, target: Target, inside: list[Var]) -> Rows:
    """How a tile of the result lies in the unit's memory, by the loops over it."""
    loops = dict(zip([x.var for x in plan.axes], inside, strict=True))
    theirs, ours = plan.result
    rows = rows_of(plan, target, theirs, ours)
    axes = [axis for axis, _ in _operand_axes(plan, ours)]
    others = [axis for axis in axes if axis not in dict(rows)]
    order = _rows_last(inside, *([loops[_var(plan, v)] for v in vs] for vs in (others, dict(rows))))
    return Rows(order, tuple((loops[_var(plan, axis)], size) for axis, size in rows))


def _rows_last(places: Sequence[T], others: Sequence[T], rows: Sequence[T]) -> tuple[T, ...]:
    """The order of a unit's operand in its memory: as it is, but that rows follow each other along
    the `others` of the unit's axes."""
    order = [p for p in places if p not in others]
    if others:
        last = rows[-1]
        order = [*(p for p in order if p != last), last]
    return (*order, *others)


# ---------------------------------------------------------------- layouts


def _var(plan: Plan, axis: Var) -> Var:
    loop = plan.loop_of(axis)
    assert loop is not None
    return loop.var


def _operand_axes(plan: Plan, ours: Load) -> list[tuple[Var, int]]:
    """The bound axes along which a unit's operand lies, outermost first, and their sizes."""
    found = []
    for i in ours.indices:
        axes = [v for v in variables(i) if plan.loop_of(v) is not None]
        found += [(v, plan.step(v)) for v in axes]
    return found


def rows_of(plan: Plan, target: Target, theirs: Load, ours: Load) -> list[tuple[Var, int]]:
    """The last axes of a unit's operand, as many as lie side by side in what moves it at once."""
    axes = [x for x in _operand_axes(plan, ours) if _moves(theirs, _var(plan, x[0]))]
    source, place = theirs.buffer.memory, ours.buffer.memory
    moves = [*copies(target, source, place), *copies(target, place, source)]
    wanted = row_elements(moves[0]) if moves else axes[-1][1]
    rows: list[tuple[Var, int]] = []
    while axes and math.prod(size for _, size in rows) < wanted:
        rows.insert(0, axes.pop())
    return rows


def row_elements(move: Instruction) -> int:
    """Elements that an instruction moves of which no field says how far apart they are."""
    loops = [x for x in walk_statements(move.body) if isinstance(x, For)]
    return math.prod(x.extent for x in loops if isinstance(x.extent, int))


BURST = 64  # bytes: fewer that lie apart are moved no faster


def layout_of(
    rows: Sequence[tuple[Var, int]], plan: Plan, theirs: Load, ours: Load, s: Schedule
) -> Layout | None:
    """How a parameter has to lie in memory so that an operand's rows are whole, and short ones
    follow each other; None for as it is."""
    if not rows:
        return None
    short = math.prod(size for _, size in rows) * theirs.buffer.dtype.bytes < BURST
    if len(rows) == 1 and not short:
        last = _var(plan, rows[0][0])
        if stride(theirs.buffer, theirs.indices, last, s.simplifier) == 1:
            return None
    if short:
        return local_layout(plan, rows, theirs, ours)
    blocks = tuple((_position(theirs.indices, _var(plan, axis)), size) for axis, size in rows)
    return Layout(tuple(range(len(theirs.indices))), blocks)


def _position(indices: Sequence[Expr], var: Var) -> int:
    return next(p for p, i in enumerate(indices) if var in variables(i))


def _pack_parameters(s: Schedule, target: Target, plan: Plan, acc: Buffer) -> dict[str, Layout]:
    """Arranges parameters in blocks, where the instructions that move them need it."""
    layouts: dict[str, Layout] = {}
    for theirs, ours in (*plan.reads, *made_of(s, plan, acc)):
        layout = layout_of(rows_of(plan, target, theirs, ours), plan, theirs, ours, s)
        if layout is not None and theirs.buffer.name not in layouts:
            s.pack_layout(s.buffer(theirs.buffer.name), layout)
            layouts[theirs.buffer.name] = layout
    return layouts


def made_of(s: Schedule, plan: Plan, acc: Buffer) -> Iterator[tuple[Load, Load]]:
    """What the nest behind the sums touches with them, by the loops of the contraction, if it goes
    along the rows of the unit's result: what it writes, then what it reads."""
    read, nest = _consumer(s, acc)
    theirs, ours = plan.result
    names = dict(zip(read.indices, theirs.indices, strict=True))
    along = {_var(plan, axis) for axis, _ in _operand_axes(plan, ours)}
    if not plan.unit.whole:
        along = {_var(plan, _operand_axes(plan, ours)[-1][0])}
    for access in (Load(nest.store.buffer, nest.store.indices), *loads(nest.store.value)):
        if access.buffer != acc:
            indices = tuple(substitute(i, names) for i in access.indices)
            if any(along & variables(i) for i in indices):
                yield Load(access.buffer, indices), ours


def _arrangement(
    plan: Plan,
    rows: Sequence[tuple[Var, int]],
    ours: Load,
    indices: tuple[Expr, ...],
    inner: Names[Var, Loop],
) -> Layout:
    """The layout of a unit's operand in its memory, rows innermost: `indices` are a local buffer's
    subscripts, `inner` the loops that are the unit's axes."""
    places = {axis: _position(indices, inner[axis].var) for axis, _ in _operand_axes(plan, ours)}
    return _held(rows, places, len(indices))


def local_layout(plan: Plan, rows: Sequence[tuple[Var, int]], theirs: Load, ours: Load) -> Layout:
    """Likewise, in terms of the program's subscripts."""
    axes = [axis for axis, _ in _operand_axes(plan, ours) if _moves(theirs, _var(plan, axis))]
    places = {axis: _position(theirs.indices, _var(plan, axis)) for axis in axes}
    return _held(rows, places, len(theirs.indices))


def _moves(load: Load, var: Var) -> bool:
    return any(var in variables(i) for i in load.indices)


def _held(rows: Sequence[tuple[Var, int]], places: Names[Var, int], rank: int) -> Layout:
    blocks = tuple((places[axis], size) for axis, size in rows)
    others = [p for axis, p in places.items() if axis not in dict(rows)]
    return Layout(_rows_last(range(rank), others, [p for p, _ in blocks]), blocks)


# ---------------------------------------------------------------- tiles


def _tile_result(s: Schedule, plan: Plan, acc: Buffer) -> tuple[Buffer, list[Loop], list[Var]]:
    """Cuts what is made of the sums into tiles, and moves the accumulation into the loops over
    them. Returns those, and the loops inside a tile, by the axes of the contraction."""
    read, _ = _consumer(s, acc)
    outer, inner = {}, []
    theirs, _ = plan.result
    axes = plan.axes
    for axis in axes:
        (var,) = variables(read.indices[_position(theirs.indices, axis.var)])
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


def _consumer(s: Schedule, acc: Buffer) -> tuple[Load, Nest]:
    """The one read of the sums, element by element, and the nest behind them that does it."""
    found = [
        (x, n)
        for n in nests(s.kernel.body)
        if n.buffer != acc
        for x in dict.fromkeys(loads(n.store.value))
        if x.buffer == acc
    ]
    if len(found) != 1 or not all(isinstance(i, Var) for i in found[0][0].indices):
        raise ScheduleError(
            f"{acc.name} is read in {len(found)} ways, and a chip's tiles need one, element by"
            " element",
            program=s.kernel,
            hint="inline what comes between",
        )
    return found[0]


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
    unit, nest = plan.unit, _nest_of(s, acc)
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
    bound = [inner[axis] for axis in unit.bound]
    if clears:
        first = _fold_init(s, acc, plan, nest, handles, parts, inner)
    else:
        loops = [handles[x.var] for x in (*nest.axes, *nest.reduce)]
        folded = fold(unit, _around(s, nest, loops, handles), _entries(target, unit))
        once = [x for x in loops if x not in folded.loops]
        s.reorder(*parts, *once, *folded.loops, *bound)
        first = _fuse_lists(s, folded, bound)
    fused = parts[0] if parts else None
    for loop in parts[1:]:
        fused = s.fuse(fused, loop)
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
    handles: Names[Var, Loop],
    parts: list[Loop],
    inner: Names[Var, Loop],
) -> Loop:
    """Orders the loops with the initialisation in the first call of the unit; its outermost."""
    unit = plan.unit
    rows, sums = ([handles[x.var] for x in loops] for loops in (nest.axes, nest.reduce))
    used = set().union(*(variables(i) for i in unit.update.indices))
    summed = [inner[axis] for axis in unit.bound if axis not in used]
    s.reorder(*parts, *sums, *summed)
    for loop in (*parts, *sums):
        s.fold_init(acc, loop)
    spatial = [inner[axis] for axis in unit.bound if axis in used]
    s.reorder(*rows, *parts, *sums, *spatial)
    s.reorder(*parts, *rows)
    return spatial[0]


def _around(
    s: Schedule, nest: Nest, loops: Sequence[Loop], handles: Names[Var, Loop]
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


def _fuse_lists(s: Schedule, folded: Fold, bound: list[Loop]) -> Loop:
    """Makes one loop of those that a list repeats; the outermost of the unit's loops."""
    loops = [[x.loop for x in loops] for _, loops in folded.axes]
    for n, several in enumerate(loops):
        if several:
            one = several[0]
            for loop in several[1:]:
                one = s.fuse(one, loop)
            loops[n] = [one]
    return next(x for several in (*loops, bound) for x in several)


def _bring_operands(
    s: Schedule, target: Target, loop: Loop, acc: Buffer, plan: Plan, inner: Names[Var, Loop]
) -> list[str]:
    """Copies of the operands in the unit's memories, arranged as the unit takes them; their
    names."""
    theirs, ours = plan.result
    write = _update_of(s, acc).update
    assert write is not None
    rows = rows_of(plan, target, theirs, ours)
    layout = _arrangement(plan, rows, ours, write.indices, inner)
    s.pack_layout(s.set_memory(acc, ours.buffer.memory), layout)
    names = []
    for load, ours in plan.reads:
        rows = rows_of(plan, target, load, ours)
        buffer = s.buffer(load.buffer.name)
        local = s.cache_read(buffer, loop, ours.buffer.memory, far_axes(buffer))
        indices = next(x.indices for x in _reads(s, acc.name) if x.buffer == local)
        s.pack_layout(local, _arrangement(plan, rows, ours, indices, inner))
        names.append(local.name)
    return names


def far_axes(buffer: Buffer) -> tuple[int, ...]:
    """The axes along which neighbours are so far apart that those nobody needs are left out."""
    shape = [n if isinstance(n, int) else 1 for n in buffer.shape]
    far = (math.prod(shape[d + 1 :]) * buffer.dtype.bytes for d in range(len(shape)))
    return tuple(d for d, n in enumerate(far) if n >= BURST)


def _reads(s: Schedule, name: str) -> Iterator[Load]:
    update = _update_of(s, s.buffer(name)).update
    assert update is not None
    return loads(update.value)


def _update_of(s: Schedule, buffer: Buffer) -> Nest:
    """The nest that accumulates into a buffer, wherever it stands."""
    return next(n for n in _nests_of(s.kernel.body, buffer) if n.update is not None)


def _nest_of(s: Schedule, buffer: Buffer) -> Nest:
    """The nest that computes a buffer, wherever it stands: the first."""
    return next(_nests_of(s.kernel.body, buffer))


def _nests_of(block: Block, buffer: Buffer) -> Iterator[Nest]:
    yield from (n for n in nests(block) if n.buffer == buffer)
    for stmt in block:
        for inner in sub_blocks(stmt):
            yield from _nests_of(inner, buffer)


# ---------------------------------------------------------------- whole operators


def _accelerate_whole(
    s: Schedule, target: Target, plan: Plan, *, overlap: bool
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
    _, nest = _consumer(s, acc)
    local = s.cache_write(s.buffer(nest.buffer.name), unit.result.buffer.memory)
    tiles, inside = _tile_copy(s, plan, acc, nest.buffer.name)
    local = s.compute_at(local, tiles[-1])
    spatial = _made_in_order(s, plan, acc, local)
    s.compute_at(s.buffer(acc.name), spatial[-1])
    summed = {x.var for x in plan.nest.reduce}
    s.reorder(*(Loop(x.var) for _, x in plan.mapping.axes if x.var in summed))
    memory = unit.result.buffer.memory
    held = [s.cache_read(s.buffer(b.name), tiles[-1], memory) for b in s.kernel.inputs]
    if plan.rings:
        held = [_keep_shared(s, buffer, tiles[-1]) for buffer in held]
    s.tensorize(spatial[0], unit.instruction)
    for buffer in held:  # a ring is filled by two nests
        while (nest := next(_nests_of(s.kernel.body, s.buffer(buffer.name)), None)) is not None:
            map_values(s, target, Loop(nest.axes[0].var))
    map_values(s, target, Loop(inside[0]))
    _hoist_all(s, tiles)
    loop = _flatten(s, tiles, local.name, *((2, 2) if overlap else (1, 1)))
    count = s.for_(loop).extent
    if overlap and isinstance(count, int) and count > plan.ahead:
        s.pipeline(loop, _stages(s, loop, plan.ahead))
    return layouts


def _keep_shared(s: Schedule, buffer: Buffer, loop: Loop) -> Buffer:
    """What a tile has in common with the one before stays in memory, in a buffer so long that all
    tiles of a loop lie behind each other: an operator's operand cannot go round an end."""
    fill = _nest_of(s, buffer).store
    (read,) = loads(fill.value)
    turns = s.for_(loop).extent
    for axis, i in enumerate(read.indices):
        step, extent = s.simplifier.linear(i).get(loop.var, 0), buffer.shape[axis]
        if step > 0 and isinstance(turns, int) and isinstance(extent, int):
            return attempt(s.ring_buffer, buffer, loop, extent + (turns - 1) * step) or buffer
    return buffer


def order_of(plan: Plan, theirs: Load, ours: Load) -> tuple[int, ...]:
    """The subscripts of a parameter in the order of a whole operator's operand; those that are none
    of its own first."""
    places = {}
    for d, i in enumerate(ours.indices):
        loops = {_var(plan, v) for v in variables(i) if plan.loop_of(v) is not None}
        for p, e in enumerate(theirs.indices):
            if loops & variables(e):
                places[p] = d
    return tuple(sorted(range(len(theirs.indices)), key=lambda p: places.get(p, -1)))


def _order_parameters(s: Schedule, plan: Plan, acc: Buffer) -> dict[str, Layout]:
    """Arranges parameters in the order of a whole operator's operands."""
    made = next(made_of(s, plan, acc))
    layouts: dict[str, Layout] = {}
    for theirs, ours in (*plan.reads, made):
        order = order_of(plan, theirs, ours)
        if order != tuple(range(len(order))):
            layouts[theirs.buffer.name] = Layout(order)
            s.pack_layout(s.buffer(theirs.buffer.name), Layout(order))
    return layouts


def _tile_copy(s: Schedule, plan: Plan, acc: Buffer, name: str) -> tuple[list[Loop], list[Var]]:
    """Cuts what copies the result into tiles: the loops over them, and those inside of one."""
    read, nest = _consumer(s, acc)
    theirs, _ = plan.result
    axes = dict(zip(read.indices, theirs.indices, strict=True))
    copy = _nest_of(s, s.buffer(name))
    outer: dict[Var, Loop] = {}
    inside = []
    for var, i in zip(copy.store.indices, nest.store.indices, strict=True):
        (axis,) = variables(axes[i])
        (loop,) = variables(var)
        size = plan.tile.get(axis, 1)
        if size == s.for_(Loop(loop)).extent:
            inside.append(Loop(loop))
        else:
            outer[axis], part = s.split(Loop(loop), size)
            inside.append(part)
    if not outer:
        once, inside[0] = s.split(inside[0], int(s.for_(inside[0]).extent))
        outer[Var("once")] = once
    tiles = list(dict.fromkeys(outer[v] for v in (*plan.order, *outer) if v in outer))
    s.reorder(*tiles, *inside)
    return tiles, [x.var for x in inside]


def _made_in_order(s: Schedule, plan: Plan, acc: Buffer, local: Buffer) -> list[Loop]:
    """The loops that make a tile of the result, in the order of the operator's axes."""
    made = _nest_of(s, local)
    read = next(x for x in loads(made.store.value) if x.buffer.name == acc.name)
    inner = {x.var for x in made.axes}
    theirs, _ = plan.result
    ours = {}
    for i, axis in zip(read.indices, theirs.indices, strict=True):
        (var,) = variables(axis)
        for v in variables(i) & inner:  # none for a loop that runs once
            ours[var] = Loop(v)
    order = [ours[x.var] for _, x in plan.mapping.axes if x.var in ours]
    s.reorder(*order)
    return order


# ---------------------------------------------------------------- one loop


def _hoist_all(s: Schedule, around: Sequence[Loop]) -> None:
    """Brings what is the same in every iteration of a loop before it."""
    for loop in reversed(around):
        for stmt in s.for_(loop).body:
            if isinstance(stmt, Alloc):
                attempt(s.hoist, stmt.buffer, loop)


def _flatten(s: Schedule, around: Sequence[Loop], result: str, depth: int, tiles: int) -> Loop:
    """Makes one loop of those over tiles. Buffers that an outer one fills for an inner one have
    `depth` places, that of the result has `tiles`."""
    loop = around[0]
    for inner in around[1:]:
        used, turns = s.for_(inner).body, s.for_(loop).extent
        for stmt in s.for_(loop).body:
            if isinstance(stmt, Alloc) and any(uses(x, stmt.buffer) for x in used):
                places = tiles if stmt.buffer.name == result else depth
                places = min(places, turns) if isinstance(turns, int) else places
                s.multi_buffer(stmt.buffer, [loop], places)
        s.sink(loop, inner)
        loop = s.fuse(loop, inner)
    return loop


def _stages(s: Schedule, loop: Loop, ahead: int) -> tuple[int, ...]:
    """Moves in, work so many steps later, moves out one later."""

    def stage(stmt: Stmt) -> int:
        calls = [x for x in walk_statements((stmt,)) if isinstance(x, Call)]
        written = {b.memory for b in buffers_written((stmt,))}
        read = {r.buffer.memory for x in calls for r in x.regions} - written
        return ahead + 1 if DRAM in written else 0 if DRAM in read else ahead

    return tuple(stage(x) for x in s.for_(loop).body if not isinstance(x, Alloc))
