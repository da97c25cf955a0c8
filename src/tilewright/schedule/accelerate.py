"""Contractions on a chip's own instructions: the default schedule of a chip with queues.

    for tiles of the result:                                         stage
        data_local = alloc in the unit's memory; copy in             0
        weight_local = alloc in the unit's memory; copy in           0
        acc = alloc in the unit's memory; for …: unit(…)             1
        copy out                                                     2

Which instructions copy and which loops the unit takes follows from their meanings (units.py). Each
local buffer is arranged as its operand wants: the operand's last axis innermost, the others right
before it. `pipeline` then overlaps the stages of successive tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Names
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, factors, nests, stride
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import DRAM, Buffer, Load, Var
from tilewright.ir.graph import Layout
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    Stmt,
    buffers_written,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.schedule.map_values import Rows, map_values
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import Loop
from tilewright.schedule.units import Mapping, Unit, mappings, units
from tilewright.target.target import Target


@dataclass(frozen=True)
class Plan:
    """A contraction, how a unit does it, and how many iterations of each loop one tile holds: all
    of a sum where nothing is said of it."""

    nest: Nest
    mapping: Mapping
    tile: Names[Var, int]

    @property
    def unit(self) -> Unit:
        return self.mapping.unit

    @property
    def reads(self) -> tuple[tuple[Load, Load], ...]:
        """The program's factors, each with the unit's operand for it."""
        assert self.nest.update is not None
        pair = factors(self.nest.update.value)
        assert pair is not None
        ours = (self.unit.left, self.unit.right)
        return tuple(zip(pair, ours[::-1] if self.mapping.swapped else ours, strict=True))

    def loop_of(self, axis: Var) -> For:
        return dict(self.mapping.axes)[axis]


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
    result = plan.nest.buffer
    acc = result if result in set(s.allocations()) else s.cache_write(s.buffer(result.name))
    layouts = _pack_parameters(s, plan)
    acc, loop, inside = _tile_result(s, plan, acc)
    update = _order_update(s, acc, plan)
    locals_ = _bring_operands(s, update.parts or loop, acc, plan, update.inner)
    s.tensorize(update.first, plan.unit.instruction)
    for name in locals_:
        map_values(s, target, Loop(_nest_of(s, s.buffer(name)).axes[0].var))
    map_values(s, target, Loop(inside[0]), _rows(plan, inside))
    if update.parts is not None:  # one loop over the parts of all sums
        s.multi_buffer(s.buffer(acc.name), [loop], 2 if overlap else 1)
        s.sink(loop, update.parts)
        loop = s.fuse(loop, update.parts)
    count = s.for_(loop).extent
    if overlap and isinstance(count, int) and count > 1:
        s.pipeline(loop, _stages(s, loop))
    return layouts


def _rows(plan: Plan, inside: list[Var]) -> Rows:
    """How a tile of the result lies in the unit's memory, by the loops over it."""
    loops = dict(zip([x.var for x in plan.nest.axes], inside, strict=True))
    places = []
    for i in plan.unit.update.indices:
        (axis,) = variables(i)
        places.append(loops[plan.loop_of(axis).var])
    *others, last = places
    (axis,) = variables(plan.unit.update.indices[-1])
    rest = [v for v in inside if v not in places]
    return Rows((*rest, last, *others), last, plan.unit.size(axis))


# ---------------------------------------------------------------- layouts


def _pack_parameters(s: Schedule, plan: Plan) -> dict[str, Layout]:
    """Parameters whose elements do not lie side by side along the operand's last axis are
    blocked along it."""
    update = plan.nest.update
    assert update is not None
    places = [(load.buffer, load.indices, ours) for load, ours in plan.reads]
    places.append((update.buffer, update.indices, plan.unit.update))
    layouts: dict[str, Layout] = {}
    for buffer, indices, ours in places:
        (axis,) = variables(ours.indices[-1])
        var = plan.loop_of(axis).var
        if stride(buffer, indices, var, s.simplifier) != 1:
            position = next(p for p, i in enumerate(indices) if var in variables(i))
            layout = Layout(tuple(range(len(indices))), ((position, plan.unit.size(axis)),))
            s.pack_layout(s.buffer(buffer.name), layout)
            layouts[buffer.name] = layout
    return layouts


def _arrangement(plan: Plan, ours: Load, indices: tuple, inner: Names[Var, Loop]) -> Layout:
    """The layout in which an operand's axes step through memory as the unit expects: `indices`
    are a local buffer's subscripts, `inner` the loops that are the unit's axes."""
    places = []
    for i in ours.indices:
        (axis,) = variables(i)
        places.append(next(p for p, e in enumerate(indices) if inner[axis].var in variables(e)))
    *others, last = places
    (axis,) = variables(ours.indices[-1])
    rest = [p for p in range(len(indices)) if p not in places]
    return Layout((*rest, last, *others), ((last, plan.unit.size(axis)),))


# ---------------------------------------------------------------- tiles


def _tile_result(s: Schedule, plan: Plan, acc: Buffer) -> tuple[Buffer, Loop, list[Var]]:
    """Cuts what is made of the sums into tiles, one loop over all of them; the accumulation moves
    into it. Returns that loop, and those inside a tile, by the axes of the contraction."""
    read = _consumer(s, acc)
    outer, inner = [], []
    update = plan.nest.update
    assert update is not None
    for axis in plan.nest.axes:
        position = next(p for p, i in enumerate(update.indices) if axis.var in variables(i))
        (var,) = variables(read.indices[position])
        o, i = s.split(Loop(var), plan.tile.get(axis.var, 1))
        outer.append(o)
        inner.append(i)
    s.reorder(*outer, *inner)
    fused = outer[0]
    for loop in outer[1:]:
        fused = s.fuse(fused, loop)
    return s.compute_at(acc, fused), fused, [x.var for x in inner]


def _consumer(s: Schedule, acc: Buffer) -> Load:
    """The one read of the sums, element by element, by the nest behind them."""
    found = [
        x
        for n in nests(s.kernel.body)
        if n.buffer != acc
        for x in dict.fromkeys(y for y in n.store.value.walk() if isinstance(y, Load))
        if x.buffer == acc
    ]
    if len(found) != 1 or not all(isinstance(i, Var) for i in found[0].indices):
        raise ScheduleError(
            f"{acc.name} is read in {len(found)} ways, and a chip's tiles need one, element by"
            " element",
            program=s.kernel,
            hint="inline what comes between",
        )
    return found[0]


@dataclass(frozen=True)
class Update:
    """The loops of an accumulation: over parts of the sums (None if one tile has them whole), the
    outermost of the unit's, and the unit's by axis."""

    parts: Loop | None
    first: Loop
    inner: dict[Var, Loop]


def _order_update(s: Schedule, acc: Buffer, plan: Plan) -> Update:
    """Parts of the sums outside, then tiles' rows, then the unit's axes; the initialisation where
    the unit clears."""
    nest = _nest_of(s, acc)
    handles = {x.var: Loop(x.var) for x in (*nest.axes, *nest.reduce)}
    parts = []
    for x in nest.reduce:
        size = plan.tile.get(x.var)
        if size is not None and size != x.extent:
            part, handles[x.var] = s.split(Loop(x.var), size)
            parts.append(part)
    inner: dict[Var, Loop] = {}
    for axis, loop in plan.mapping.axes:
        handles[loop.var], inner[axis] = s.split(handles[loop.var], plan.unit.size(axis))
    rows, sums = ([handles[x.var] for x in loops] for loops in (nest.axes, nest.reduce))
    used = set().union(*(variables(i) for i in plan.unit.update.indices))
    summed = [inner[axis] for axis, _ in plan.mapping.axes if axis not in used]
    s.reorder(*parts, *sums, *summed)
    for loop in (*parts, *sums):
        s.fold_init(acc, loop)
    spatial = [inner[axis] for axis, _ in plan.mapping.axes if axis in used]
    s.reorder(*rows, *parts, *sums, *spatial)
    s.reorder(*parts, *rows)
    fused = parts[0] if parts else None
    for loop in parts[1:]:
        assert fused is not None
        fused = s.fuse(fused, loop)
    return Update(fused, spatial[0], inner)


def _bring_operands(
    s: Schedule, loop: Loop, acc: Buffer, plan: Plan, inner: Names[Var, Loop]
) -> list[str]:
    """Copies of the operands in the unit's memories, arranged as the unit takes them; their
    names."""
    update = plan.unit.update
    write = _nest_of(s, acc).update
    assert write is not None
    layout = _arrangement(plan, Load(update.buffer, update.indices), write.indices, inner)
    s.pack_layout(s.set_memory(acc, update.buffer.memory), layout)
    names = []
    for load, ours in plan.reads:
        local = s.cache_read(s.buffer(load.buffer.name), loop, ours.buffer.memory)
        indices = next(x.indices for x in _reads(s, acc.name) if x.buffer == local)
        s.pack_layout(local, _arrangement(plan, ours, indices, inner))
        names.append(local.name)
    return names


def _reads(s: Schedule, name: str) -> Iterator[Load]:
    update = _nest_of(s, s.buffer(name)).update
    assert update is not None
    return (x for x in update.value.walk() if isinstance(x, Load))


def _nest_of(s: Schedule, buffer: Buffer) -> Nest:
    """The nest that computes a buffer, wherever it stands."""

    def search(block: Block) -> Nest | None:
        for nest in nests(block):
            if nest.buffer == buffer:
                return nest
        found = (search(b) for stmt in block for b in sub_blocks(stmt))
        return next((n for n in found if n is not None), None)

    found = search(s.kernel.body)
    assert found is not None, f"nothing computes {buffer}"
    return found


# ---------------------------------------------------------------- stages


def _stages(s: Schedule, loop: Loop) -> tuple[int, ...]:
    """Moves in, work, moves out."""

    def stage(stmt: Stmt) -> int:
        calls = [x for x in walk_statements((stmt,)) if isinstance(x, Call)]
        written = {b.memory for b in buffers_written((stmt,))}
        read = {r.buffer.memory for x in calls for r in x.regions} - written
        return 2 if DRAM in written else 0 if DRAM in read else 1

    return tuple(stage(x) for x in s.for_(loop).body if not isinstance(x, Alloc))
