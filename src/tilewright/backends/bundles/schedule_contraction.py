"""The schedule of a contraction on a statically scheduled chip.

    for tiles of the result:                                           stage
        X_local, W_local = alloc in local memory; transfer in          0
        for blocks of a tile:
            sums = alloc in registers
            for steps of the sum:
                x, w = alloc in registers; load
                sums += x * w, one operation after another             1
            store what is made of the sums
        transfer out                                                   2

What is innermost overlaps: the steps of the sums, with the sums held in registers, or whole blocks
whose sums are unrolled. An operand that does not change with what overlaps is loaded before it.
Which instructions load, store and clear follows from their meanings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tilewright.analyze.nests import Nest, factors, nest_of
from tilewright.backends.bundles.move import is_move, map_move, memory_before
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import DRAM, Buffer, Expr, Load, Var
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    Stmt,
    Store,
    buffers_written,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.map_values import RowLayout, map_values
from tilewright.plan.stacked_inputs import Stacks, bring_apart, stacks_in
from tilewright.plan.units import AxisMapping, Unit
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

Orders = Mapping[str, tuple[int, ...]]  # of the axes of inputs, by name


@dataclass(frozen=True)
class BundlePlan:
    """A contraction and how a unit does it.

    `tile` and `block` say how many iterations of each of the result's loops are in local memory,
    and in registers, at a time. `order` has the loops over tiles, outermost first. `steady` are the
    loops over blocks of which the iterations overlap; where there are none, those of the sums do.
    With `ring`, local memory keeps what consecutive tiles have in common. Inputs named in `lying`
    have their axes in that order in memory, from outside inwards, but for what the unit wants.
    Where it `begins`, what is added to the sums is loaded for them to begin with.
    """

    nest: Nest
    mapping: AxisMapping
    tile: Mapping[Var, int]
    block: Mapping[Var, int]
    order: tuple[Var, ...]
    steady: tuple[Var, ...] = ()
    ring: bool = False
    lying: Orders = field(default_factory=dict)
    begins: bool = False

    @property
    def unit(self) -> Unit:
        return self.mapping.unit

    @property
    def extents(self) -> dict[Var, int]:
        """Iterations of the contraction's loops, added ones included."""
        return {x.var: int(x.extent) for x in (*self.nest.axes, *self.nest.reduce)}

    @property
    def reads(self) -> tuple[tuple[Load, Load], ...]:
        """The program's factors, each with the unit's operand for it."""
        assert self.nest.update is not None
        pair = factors(self.nest.update.value)
        assert pair is not None
        operands = (self.unit.left, self.unit.right)
        return tuple(zip(pair, operands[::-1] if self.mapping.swapped else operands, strict=True))

    @property
    def result(self) -> Load:
        """The unit's operand for the sums."""
        return Load(self.unit.update.buffer, self.unit.update.indices)

    def loop_of(self, axis: Var) -> Var:
        return dict(self.mapping.axes)[axis].var

    def sliding(self, load: Load) -> int | None:
        """The subscript of an operand along which consecutive tiles have elements in common, if
        the unit does not go along it."""
        last, taken = self.order[-1], {loop.var for _, loop in self.mapping.axes}
        along = [variables(i) for i in load.indices]
        found = [d for d, used in enumerate(along) if last in used]
        if len(found) != 1 or len(along[found[0]]) < 2 or along[found[0]] & taken:
            return None
        return found[0]

    def size(self, var: Var) -> int:
        """Iterations of a loop that the unit takes at once."""
        axis = next((a for a, x in self.mapping.axes if x.var == var), None)
        return self.unit.size(axis) if axis is not None else 1


def schedule_bundles(
    s: Schedule,
    target: Target,
    plan: BundlePlan,
    *,
    overlap: bool = True,
    stacks: Stacks = MappingProxyType({}),
) -> dict[str, Layout]:
    """Applies the schedule in the module's docstring; without `overlap` transfers and work take
    turns. The parts of `stacks` are brought one by one. Returns the arrangements in which
    parameters must lie in memory, by name; the others are row-major."""
    near = memory_before(target, plan.reads[0][1].buffer.memory)
    if plan.begins:
        s.init_with(plan.nest.buffer)
    stages = _stages(s, plan, near)
    layouts, held = _choose_layouts(s, plan, stages)
    tiles = _cut_tiles(s, plan, stages)
    blocks = _cut_blocks(s, plan, stages)
    for name, layout in held.items():
        s.pack_layout(s.buffer(name), layout)
    sums, first = _order_sums(s, plan, stages)
    moving = blocks[-1] if plan.steady else sums
    _bring_operands(s, plan, near, tiles, moving, stacks_in(stacks, layouts))
    _bring_others(s, stages, near, tiles)
    s.tensorize(first, plan.unit.instruction)
    _map_rest(s, target, plan, stages)
    files = [operand.buffer.memory for _, operand in plan.reads]
    for loop in reversed(blocks):
        _hoist(s, loop, files)
    if tiles:
        for loop in reversed(tiles):
            _hoist(s, loop, [near])
        count = s.for_(tiles[-1]).extent
        if overlap and isinstance(count, int) and count > 1:
            _overlap(s, stages, tiles[-1])
    return layouts


# ---------------------------------------------------------------- stages


@dataclass(frozen=True)
class _Stages:
    """The names of what is computed: the sums, in registers; what is made of them, in local
    memory; and the result, if it is elsewhere. With the loops that make the last two, by those of
    the sums."""

    sums: str
    near: str
    result: str
    making: Mapping[Var, Var]
    copying: Mapping[Var, Var]


def _stages(s: Schedule, plan: BundlePlan, near: str) -> _Stages:
    memory = plan.result.buffer.memory
    result = plan.nest.buffer
    if result in set(s.allocations()):
        sums = s.set_memory(result, memory)
        nest = _nest_reading(s, sums.name)
        result = nest.buffer
        assert isinstance(nest.stmt, For)
        # What is written may have a border, which others count with: it stays as it is.
        close = result if result.memory == near else s.split_value(Loop(nest.stmt.var), (), near)
    else:
        close = result if result.memory == near else s.cache_write(result, near)
        sums = s.cache_write(close, memory)
    update = _nest_of(s, sums.name).update
    assert update is not None
    axes = [x.var for x in plan.nest.axes if x.extent != 1]
    making = _following(s, sums.name, axes, update.indices)
    copying: list[Var] = []
    if close.name != result.name:
        copying = _following(s, close.name, making, _nest_of(s, close.name).store.indices)
    return _Stages(
        sums.name,
        close.name,
        result.name,
        dict(zip(axes, making, strict=True)),
        dict(zip(axes, copying, strict=False)),
    )


def _nest_reading(s: Schedule, name: str) -> Nest:
    """The nest that is made of a buffer."""
    for nest in _all_nests(s.kernel.body):
        if nest.buffer.name != name and any(x.buffer.name == name for x in _loads(nest)):
            return nest
    raise ScheduleError(f"nothing is made of {name}", program=s.kernel)


def _nest_of(s: Schedule, name: str) -> Nest:
    """The nest that computes a buffer."""
    return next(n for n in _all_nests(s.kernel.body) if n.buffer.name == name)


def _all_nests(block: Block) -> Iterator[Nest]:
    """The nests of loops in a block, and in the blocks in it."""
    for stmt in block:
        nest = nest_of(stmt) if isinstance(stmt, For) else None
        if nest is not None:
            yield nest
        else:
            for inner in sub_blocks(stmt):
                yield from _all_nests(inner)


def _loads(nest: Nest) -> list[Load]:
    return [x for w in nest.writes for x in w.value.walk() if isinstance(x, Load)]


def _following(s: Schedule, name: str, axes: Sequence[Var], indices: Sequence[Expr]) -> list[Var]:
    """The loops of the nest that is made of a buffer, element by element, which play the part of
    `axes` in the buffer's own subscripts."""
    read = {x for x in _loads(_nest_reading(s, name)) if x.buffer.name == name}
    places = [next(p for p, i in enumerate(indices) if var in variables(i)) for var in axes]
    found = [x.indices[p] for x in read for p in places]
    if len(read) > 1 or not all(isinstance(i, Var) for i in found):
        shown = " and ".join(sorted(map(str, read)))
        raise ScheduleError(
            f"{name} is read as {shown}, and tiles need one read, element by element",
            program=s.kernel,
            hint="inline what comes between",
        )
    return [i for i in found if isinstance(i, Var)]


# ---------------------------------------------------------------- layouts


def layout_for(
    plan: BundlePlan, name: str, indices: Sequence[Expr], operand: Load
) -> Layout | None:
    """The layout in which a buffer, accessed at `indices`, steps as the unit's operand does: its
    axes innermost, the last one in pieces of its size. None if row-major is that."""
    order = plan.lying.get(name, tuple(range(len(indices))))
    places = []
    for i in operand.indices:
        loops = {plan.loop_of(axis) for axis in variables(i)}
        places.append(next(p for p, e in enumerate(indices) if variables(e) & loops))
    *others, last = places
    rest = [p for p in order if p not in places]
    if not others:
        found = (*rest, last)
        return None if found == tuple(range(len(indices))) else Layout(found)
    size = operand.buffer.shape[-1]
    assert isinstance(size, int)
    return Layout((*rest, last, *others), ((last, size),))


def _choose_layouts(
    s: Schedule, plan: BundlePlan, stages: _Stages
) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Packs the parameters as the unit wants them. Returns how they lie then, and how the sums and
    what is made of them will, once they are cut."""
    update = _nest_of(s, stages.sums).update
    assert update is not None
    wanted = {load.buffer.name: (load.indices, operand) for load, operand in plan.reads}
    wanted |= {stages.sums: (update.indices, plan.result)}
    for name, loops in ((stages.result, stages.copying), (stages.near, stages.making)):
        if loops:
            wanted[name] = (_result_indices(s, name, loops), plan.result)
    found = {
        name: layout_for(plan, name, indices, operand)
        for name, (indices, operand) in wanted.items()
    }
    chosen = {name: layout for name, layout in found.items() if layout is not None}
    params = {b.name for b in s.kernel.params}
    for name in chosen.keys() & params:
        s.pack_layout(s.buffer(name), chosen[name])
    return (
        {name: layout for name, layout in chosen.items() if name in params},
        {name: layout for name, layout in chosen.items() if name not in params},
    )


def _result_indices(s: Schedule, name: str, loops: Mapping[Var, Var]) -> tuple[Expr, ...]:
    """The subscripts with which a buffer is written, in the variables of the sums, which these
    loops stand for."""
    follow: dict[Expr, Expr] = {loop: axis for axis, loop in loops.items()}
    return tuple(substitute(i, follow) for i in _nest_of(s, name).store.indices)


# ---------------------------------------------------------------- tiles and blocks


def _cut(
    s: Schedule, loops: Mapping[Var, Var], sizes: Mapping[Var, int], order: Sequence[Var]
) -> dict[Var, Loop]:
    """Cuts loops into pieces; the loops over pieces go outside, in an order. There is always one.
    `loops` maps the loops of the sums to those that are cut; they are returned by the former."""
    outer: dict[Var, Loop] = {}
    inner: list[Loop] = []
    for axis, var in loops.items():
        extent, size = s.for_(Loop(var)).extent, sizes[axis]
        if size == extent and not (axis == order[-1] and not outer):
            inner.append(Loop(var))
        else:
            outer[axis], part = s.split(Loop(var), size)
            inner.append(part)
    found = {axis: outer[axis] for axis in order if axis in outer}
    s.reorder(*found.values(), *inner)
    return found


def _cut_tiles(s: Schedule, plan: BundlePlan, stages: _Stages) -> list[Loop]:
    """The loops over tiles of local memory; none if the result is there."""
    if not stages.copying:
        return []
    tiles = list(_cut(s, stages.copying, plan.tile, plan.order).values())
    s.compute_at(s.buffer(stages.near), tiles[-1])
    s.compute_at(s.buffer(stages.sums), tiles[-1])
    return tiles


def _cut_blocks(s: Schedule, plan: BundlePlan, stages: _Stages) -> list[Loop]:
    """The loops over blocks of registers; the last goes through all that overlap."""
    axes = list(stages.making)
    order = [a for a in axes if a not in plan.steady] + [a for a in axes if a in plan.steady]
    cut = _cut(s, stages.making, plan.block, order)
    s.compute_at(s.buffer(stages.sums), list(cut.values())[-1])
    outer = [loop for axis, loop in cut.items() if axis not in plan.steady]
    steady = [loop for axis, loop in cut.items() if axis in plan.steady]
    for loop in steady[1:]:
        steady[0] = s.fuse(steady[0], loop)
    blocks = [*outer, *steady[:1]]
    return blocks


def _order_sums(s: Schedule, plan: BundlePlan, stages: _Stages) -> tuple[Loop, Loop]:
    """Steps of the sums outside, then a block's rows, then the unit's axes. Returns the loop over
    all steps and the unit's outermost."""
    unit = plan.unit
    folds = unit.clears and not plan.begins
    if not folds:
        s.split_init(s.buffer(stages.sums))
    nest = next(n for n in _all_nests(s.kernel.body) if n.buffer.name == stages.sums and n.update)
    handles = {x.var: Loop(x.var) for x in (*nest.axes, *nest.reduce)}
    inner: dict[Var, Loop] = {}
    for axis, loop in plan.mapping.axes:
        size = unit.size(axis)
        if s.for_(handles[loop.var]).extent == size and loop.var in {x.var for x in nest.axes}:
            inner[axis] = handles.pop(loop.var)
        else:
            handles[loop.var], inner[axis] = s.split(handles[loop.var], size)
    once = [Loop(x.var) for x in nest.axes if x.extent == 1 and _is_summed(s, x)]
    rows = [handles[x.var] for x in nest.axes if x.var in handles and Loop(x.var) not in once]
    sums = [*once, *(handles[x.var] for x in nest.reduce)]
    used = set().union(*(variables(i) for i in unit.update.indices))
    spatial = [inner[axis] for axis, _ in plan.mapping.axes if axis in used]
    summed = [inner[axis] for axis, _ in plan.mapping.axes if axis not in used]
    if folds:
        s.reorder(*sums, *summed)
        for around in sums:
            s.fold_init(s.buffer(stages.sums), around)
        s.reorder(*sums, *rows, *spatial)
    else:
        s.reorder(*sums, *rows, *spatial, *summed)
    steps = sums[0] if plan.steady else functools.reduce(s.fuse, sums)
    return steps, spatial[0]


def _is_summed(s: Schedule, loop: For) -> bool:
    """Whether a loop of one iteration stands behind the initialisation of the sums."""
    return not any(isinstance(x, Store) for x in walk_statements(s.for_(Loop(loop.var)).body))


# ---------------------------------------------------------------- operands


def _bring_operands(
    s: Schedule, plan: BundlePlan, near: str, tiles: Sequence[Loop], moving: Loop, stacks: Stacks
) -> None:
    """Copies of the operands in local memory, tile by tile, and in registers; those of `stacks`
    part by part."""
    for load, operand in plan.reads:
        buffer = s.buffer(load.buffer.name)
        if buffer.memory != near:
            buffer = s.cache_read(buffer, tiles[-1], near)
            if load.buffer.name in stacks:
                bring_apart(s, buffer, stacks[load.buffer.name])
        s.cache_read(buffer, moving, operand.buffer.memory)
        if tiles and plan.ring and plan.sliding(load) is not None:
            _keep(s, buffer, tiles[-1])


def _bring_others(s: Schedule, stages: _Stages, near: str, tiles: Sequence[Loop]) -> None:
    """Copies in local memory of what sums begin with, and of what the result is made of beside
    them, tile by tile."""
    begun = [x for x in _nest_of(s, stages.sums).store.value.walk() if isinstance(x, Load)]
    for load in dict.fromkeys([*begun, *_loads(_nest_of(s, stages.near))]):
        if load.buffer.name != stages.sums and load.buffer.memory != near and tiles:
            s.cache_read(load.buffer, tiles[-1], near)


def _keep(s: Schedule, buffer: Buffer, loop: Loop) -> None:
    """Keeps what consecutive tiles have in common of an operand, with room for what the next one
    brings, if it can be kept."""
    (load,) = _loads(_nest_of(s, buffer.name))
    steps = [s.simplifier.linear(i).get(loop.var, 0) for i in load.indices]
    for extent, step in zip(buffer.shape, steps, strict=True):
        assert isinstance(extent, int)
        if 0 < step < extent:
            attempt(s.ring_buffer, buffer, loop, extent + step)
            return


def _map_rest(s: Schedule, target: Target, plan: BundlePlan, stages: _Stages) -> None:
    """Gives every nest that is left to instructions."""
    while True:
        nest = next(_all_nests(s.kernel.body), None)
        if nest is None:
            return
        assert isinstance(nest.stmt, For)
        loop = Loop(nest.stmt.var)
        if is_move(nest):
            map_move(s, target, loop)
        elif nest.buffer.name == stages.near:
            _make_apart(s, plan, loop, nest)
        else:
            map_values(s, target, loop, _rows(nest))


def _make_apart(s: Schedule, plan: BundlePlan, loop: Loop, nest: Nest) -> None:
    """Computes what is made of the sums in registers, lying there as the sums do; the nest then
    only stores it."""
    sums = next(x for x in _loads(nest) if x.buffer.memory == plan.result.buffer.memory)
    order = [v for i in sums.indices for v in variables(i)]
    made = s.split_value(loop, (), plan.result.buffer.memory)
    axes = [x.var for x in nest.axes if x.extent != 1]
    s.pack_layout(made, Layout(tuple(axes.index(v) for v in order)))


def _rows(nest: Nest) -> RowLayout:
    """How what comes between the sums and the result lies in registers: as what it is made of."""
    axes = [x.var for x in nest.axes if x.extent != 1]
    orders = ([v for i in x.indices for v in variables(i)] for x in _loads(nest))
    order = next((found for found in orders if set(found) == set(axes)), axes)
    return RowLayout(tuple(order), ())


def _hoist(s: Schedule, loop: Loop, memories: Sequence[str]) -> None:
    """Brings what is the same in every iteration of a loop before it."""
    for stmt in s.for_(loop).body:
        if isinstance(stmt, Alloc) and stmt.buffer.memory in memories:
            attempt(s.hoist, stmt.buffer, loop)


def _overlap(s: Schedule, stages: _Stages, loop: Loop) -> None:
    """Brings a tile's operands while the tile before is worked on. A result has two places, so that
    one is sent off while the other is filled."""
    s.multi_buffer(s.buffer(stages.near), [loop], 2)

    def moves_in(stmt: Stmt) -> bool:
        calls = [x for x in walk_statements((stmt,)) if isinstance(x, Call)]
        written = {b.memory for b in buffers_written((stmt,))}
        return DRAM in {r.buffer.memory for x in calls for r in x.regions} - written

    body = [x for x in s.for_(loop).body if not isinstance(x, Alloc)]
    s.pipeline(loop, [0 if moves_in(x) else 1 for x in body])
