"""How a unit does a contraction: which loops are its axes, what a tile holds; and how operands lie
in memory so that the chip's copies take whole rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tilewright.analyze.nests import Nest, factors, guarded_factors, nests, stride
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Block,
    For,
    loads,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.units import (
    AxisMapping,
    Unit,
    copies,
    square_axes,
)
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """How far ahead of a step things are done, as numbers of a plan, for each tile [tiles]; or [1],
    for all of them."""

    prefetch_distance: np.ndarray
    result_buffers: np.ndarray
    clear_distance: np.ndarray

    def only(self, kept: np.ndarray) -> Pace:
        ahead = (self.prefetch_distance, self.result_buffers, self.clear_distance)
        return Pace(*(n[kept] for n in ahead))


@dataclass(frozen=True)
class Plan:
    """How a chip's unit does a contraction, in tiles."""

    nest: Nest  # the contraction
    mapping: AxisMapping  # the unit, and which loop each of its axes is
    tile: Mapping[Var, int]  # iterations of each loop in one tile
    order: tuple[Var, ...] = ()  # of the loops over tiles, outermost first
    prefetch_distance: int = 1  # steps between the load of an operand tile and its use
    result_buffers: int = 2  # tiles of the result that exist at once: 2 is a double buffer
    store_chunks: int = 1  # parts in which a tile is finished and stored, with one result buffer
    chunked_axis: Var | None = None  # the axis of the result that those are parts of
    preloaded: bool = False  # the epilogue's operands are loaded once, before all tiles
    late: bool = False  # or when a tile's sums are there: one place for them is enough
    # Of a factor that not every step brings anew; with one, the next comes when no step needs the
    # last any longer.
    outer_places: int = 2
    clear_distance: int = 0  # steps between the clearing of a tile's sums and its first step
    starts_with_addend: bool = False  # a sum starts with what is added to it (a bias), not with 0
    rings: bool = False  # the halo that consecutive tiles share is kept
    interleave: int = 1  # parts of a tile that take turns, so that no instruction waits
    sums_outermost: bool = False  # one block of the factors is all that the first sums need

    @property
    def pace(self) -> Pace:
        ahead = (self.prefetch_distance, self.result_buffers, self.clear_distance)
        return Pace(*(np.array([n]) for n in ahead))

    @property
    def unit(self) -> Unit:
        return self.mapping.unit

    @property
    def extents(self) -> dict[Var, int]:
        """Iterations of the contraction's loops, added ones included."""
        loops = (*self.nest.axes, *self.nest.reduce)
        return {x.var: x.extent for x in loops if isinstance(x.extent, int)}

    @property
    def reads(self) -> tuple[tuple[Load, Load], ...]:
        """The program's factors, each with the unit's operand for it."""
        assert self.nest.update is not None
        pair = guarded_factors(self.nest.update.value)
        assert pair is not None
        operands = (self.unit.left, self.unit.right)
        return tuple(zip(pair, operands[::-1] if self.mapping.swapped else operands, strict=True))

    @property
    def brought(self) -> tuple[tuple[Load, Load], ...]:
        """Those of them that are copied: the unit takes the others where they are."""
        return tuple(pair for pair in self.reads if not in_place(*pair))

    @property
    def axes(self) -> list[For]:
        """The loops on which the result's subscripts depend."""
        access, _ = self.result
        used = set().union(*map(variables, access.indices))
        return [x for x in self.nest.axes if x.var in used]

    @property
    def result(self) -> tuple[Load, Load]:
        """What the program computes, with the unit's operand for it."""
        update = self.nest.update
        assert update is not None
        return Load(update.buffer, update.indices), self.unit.operands[2]

    def loop_of(self, axis: Var) -> For | None:
        """The loop that is a fixed axis of the unit."""
        return dict(self.mapping.axes).get(axis)

    def step(self, axis: Var) -> int:
        """Iterations of a fixed axis in one call."""
        loop = self.loop_of(axis)
        assert loop is not None
        extent = self.tile.get(loop.var, loop.extent)
        assert isinstance(extent, int)
        return self.unit.step(axis, extent)


def in_place(access: Load, operand: Load) -> bool:
    """Whether what a program reads is in the memory where a unit takes it."""
    return access.buffer.memory == operand.buffer.memory


Epilogue = tuple[str, Unit, tuple[str, ...]]


def epilogue_for(nest: Nest, mapping: AxisMapping) -> Epilogue:
    """On what it depends whether a unit's instructions do what follows sums: the array, the unit,
    and which axes run once, as what does not vary along an axis is one number there."""
    extents = {x.var: mapping.extents.get(x.var, x.extent) for x in nest.axes}
    return nest.buffer.name, mapping.unit, tuple(v.name for v, n in extents.items() if n == 1)


def var_of(plan: Plan, axis: Var) -> Var:
    loop = plan.loop_of(axis)
    assert loop is not None
    return loop.var


def operand_axes(plan: Plan, operand: Load) -> list[tuple[Var, int]]:
    """The fixed axes along which a unit's operand lies, outermost first, and their sizes."""
    found = []
    for i in operand.indices:
        axes = [v for v in variables(i) if plan.loop_of(v) is not None]
        found += [(v, plan.step(v)) for v in axes]
    return found


def contiguous_axes(
    plan: Plan, target: Target, access: Load, operand: Load
) -> list[tuple[Var, int]]:
    """Returns the innermost fixed axes of an operand, with their sizes, that together form one
    contiguous row of the instruction that copies it; at least one, if the operand has any."""
    axes = [x for x in operand_axes(plan, operand) if _depends_on(access, var_of(plan, x[0]))]
    if not axes:
        return []
    source, place = access.buffer.memory, operand.buffer.memory
    either = itertools.chain(copies(target, source, place), copies(target, place, source))
    move = next(either, None)
    wanted = axes[-1][1] if move is None else _row_elements(move, source)
    rows: list[tuple[Var, int]] = []
    while axes and (not rows or math.prod(size for _, size in rows) < wanted):
        rows.insert(0, axes.pop())
    return rows


def _row_elements(copy: Instruction, memory: str) -> int:
    """Returns how many elements one copy takes that are contiguous in a memory, but for axes of any
    length: the product of its constant extents, innermost first, up to one with a step."""
    operand, count = next(b for b in copy.operands if b.memory == memory), 1
    for d in reversed(range(len(operand.shape))):
        if copy.carrier(operand, d) is not None:
            return count
        size = operand.shape[d]
        count *= size if isinstance(size, int) else 1
    return count


def window_loops(plan: Plan, target: Target) -> frozenset[Var]:
    """Loops of a window along which an operand's rows lie, or the blocks that a copy takes: those
    of several of their iterations overlap, and an operand tile has one."""
    found: set[Var] = set()
    for access, operand in plan.brought if not plan.unit.whole else ():
        every = [x for x in operand_axes(plan, operand) if _depends_on(access, var_of(plan, x[0]))]
        move = next(copies(target, access.buffer.memory, operand.buffer.memory), None)
        blocks = move is not None and all(
            isinstance(x.extent, int) for x in walk_statements(move.body) if isinstance(x, For)
        )
        for axis, _ in every if blocks else contiguous_axes(plan, target, access, operand):
            found |= _beside(access, var_of(plan, axis))
    return frozenset(found) - {x.var for _, x in plan.mapping.axes}


def _beside(access: Load, var: Var) -> frozenset[Var]:
    """The other loops in a loop's subscript."""
    return variables(access.indices[position_of(access.indices, var)]) - {var}


def parameter_layout(
    rows: Sequence[tuple[Var, int]],
    plan: Plan,
    access: Load,
    operand: Load,
    s: Schedule,
    target: Target,
) -> Layout | None:
    """Returns the layout that a parameter needs in the outer memory, so that an operand's rows are
    contiguous and short rows follow each other; None if row-major serves. One that the unit takes
    where it is has the layout that it would have in the unit's memory."""
    if not rows:
        return None
    if in_place(access, operand):
        if _lies_as_operand(plan, access, operand, s):
            return None
        for axis, size in rows:
            _check_block(plan, access, axis, size)
        return operand_layout(plan, rows, access, operand)
    line = target.memory(access.buffer.memory).line
    short = math.prod(size for _, size in rows) * access.buffer.dtype.bytes < line
    order = dict(plan.mapping.orders).get(access.buffer.name)
    plain = tuple(range(len(access.indices)))
    short &= order is None
    if len(rows) == 1 and order in (None, plain):
        last = var_of(plan, rows[0][0])
        beside = _beside(access, last)
        window = bool(beside) and not beside & {x.var for _, x in plan.mapping.axes}
        alone = stride(access.buffer, access.indices, last, s.simplifier) == 1
        if alone and (window or not short):  # a window's rows lie in no blocks
            return None
    for axis, size in rows:
        _check_block(plan, access, axis, size)
    if short:
        return operand_layout(plan, rows, access, operand)
    blocks = tuple((position_of(access.indices, var_of(plan, axis)), size) for axis, size in rows)
    if order not in (None, plain):
        _check_no_blocks(plan, access, order, blocks)
    return Layout(order or plain, blocks)


def _lies_as_operand(plan: Plan, access: Load, operand: Load, s: Schedule) -> bool:
    """Whether each step along a unit's axis is in a row-major parameter as long as the unit's
    instruction has it."""
    instruction, wanted = plan.unit.instruction, 1
    for axis, size in reversed(operand_axes(plan, operand)):
        along = next(d for d, i in enumerate(operand.indices) if axis in variables(i))
        step = stride(access.buffer, access.indices, var_of(plan, axis), s.simplifier)
        if step != wanted and (step is None or instruction.carrier(operand.buffer, along) is None):
            return False
        wanted *= size
    return True


def _check_no_blocks(
    plan: Plan, access: Load, order: tuple[int, ...], blocks: tuple[tuple[int, int], ...]
) -> None:
    """Refuses blocks of a parameter that lies in an order of its axes: but of whole ones, inside of
    all others, which are none."""
    several = [(d, n) for d in order if (n := access.buffer.shape[d]) != 1]
    if [*blocks] != several[len(several) - len(blocks) :]:
        raise ScheduleError(
            f"{access.buffer.name} lies with its axes in the order {order}, and"
            f" {plan.unit.instruction.name} would take it in blocks",
            hint="another way for loops to be the unit's axes may take it as it is",
        )


def _check_block(plan: Plan, access: Load, axis: Var, size: int) -> None:
    """Refuses to block an axis whose subscript is not one loop variable: a window could begin
    inside a block."""
    var = var_of(plan, axis)
    subscript = access.indices[position_of(access.indices, var)]
    if subscript != var:
        raise ScheduleError(
            f"{access.buffer.name} cannot lie in blocks of {size} along {subscript}, as"
            f" {plan.unit.instruction.name} would take it",
            hint="of the loops that play an axis's part one has to be a subscript itself",
        )


def position_of(indices: Sequence[Expr], var: Var) -> int:
    return next(p for p, i in enumerate(indices) if var in variables(i))


def epilogue_accesses(
    s: Schedule, plan: Plan, acc: Buffer, *, residuals: bool = True
) -> Iterator[tuple[Load, Load]]:
    """Yields the epilogue's accesses, their subscripts written over the contraction's loops, each
    with the unit's operand for the result: first its store, then each load that varies along the
    axes of that operand (along its last axis, if the unit is not whole). With `residuals` those
    that the unit multiplies as well, with its first factor, along its columns."""
    result, operand = plan.result
    along = {var_of(plan, axis) for axis, _ in operand_axes(plan, operand)}
    if not plan.unit.whole:
        along = {var_of(plan, operand_axes(plan, operand)[-1][0])}
    every = exits(s, acc)
    made = {nest.buffer for _, nest in every[:-1]} | {acc}
    for read, nest in reversed(every):
        names = dict(zip(read.indices, result.indices, strict=True))

        def over(access: Load, names: Mapping[Expr, Expr] = names) -> Load:
            return Load(access.buffer, tuple(substitute(i, names) for i in access.indices))

        added = added_product(nest) if nest is not every[-1][1] else None
        if added is None:
            yield over(Load(nest.store.buffer, nest.store.indices)), operand
        for access in map(over, loads(nest.store.value)):
            if access.buffer not in made and any(along & variables(i) for i in access.indices):
                yield access, operand
        if added is not None and residuals:
            yield over(added.own), _along_columns(plan.unit)


@dataclass(frozen=True)
class AddedProduct:
    """What a nest adds to each element of what it makes of an array (residual_products.py): a block
    of `residual`, along the loop `term`, by a square `matrix`; the loop `column` is cut into such
    blocks."""

    residual: Load
    matrix: Load
    term: For
    column: For

    @property
    def own(self) -> Load:
        """The read at the element's own place, instead of those of its block."""
        places = (self._own(i) for i in self.residual.indices)
        return Load(self.residual.buffer, tuple(places))

    def _own(self, index: Expr) -> Expr:
        return self.column.var if self.term.var in variables(index) else index

    def has_blocks(self, size: int) -> bool:
        """Whether the residual and the matrix are read in blocks of so many elements."""
        term, column = self.term.var, self.column.var
        s = Simplifier({x.var: x.extent for x in (self.term, self.column)}, keep_units=True)
        along = [i for i in self.residual.indices if {term, column} & variables(i)]
        same = [s(i) for i in along] == [s(column // size * size + term)]
        entry = {s(column % size), term}
        return same and self.term.extent == size and {*map(s, self.matrix.indices)} == entry


def added_product(nest: Nest) -> AddedProduct | None:
    """The product that a nest adds to each element of what it makes of an array; None if it does
    anything else."""
    update = nest.update
    pair = factors(update.value) if update is not None and update.op is BinaryOp.ADD else None
    if update is None or pair is None or len(nest.reduce) != 1 or len(nest.writes) != 2:
        return None
    residual, matrix = pair
    (term,) = nest.reduce
    inside = {v for i in matrix.indices for v in variables(i)} - {term.var}
    columns = [x for x in nest.axes if x.var in inside]
    square = matrix.buffer.shape == (term.extent, term.extent) and term.var in matrix.indices
    made = any(True for _ in loads(nest.store.value)) and update.indices == nest.store.indices
    each = {*nest.store.indices} == {x.var for x in nest.axes}
    if not (square and made and each and len(columns) == len(inside) == 1):
        return None
    return AddedProduct(residual, matrix, term, columns[0])


def _along_columns(unit: Unit) -> Load:
    """A unit's first factor as it lies where its columns are what it adds up."""
    square = square_axes(unit)
    assert square is not None
    names = {square[1]: square[0]}
    return Load(unit.left.buffer, tuple(substitute(i, names) for i in unit.left.indices))


def check_residual(plan: Plan, made: Nest, read: Load) -> None:
    """Refuses a residual that a plan's unit does not multiply in any tiles: `made` adds it to what
    it makes of the sums, which are `read` in its loops."""
    square = square_axes(plan.unit)
    column = plan.loop_of(square[0]) if square is not None else None
    added = added_product(made)
    result, _ = plan.result
    over = dict(zip(result.indices, read.indices, strict=True))
    if (
        plan.unit.whole
        or square is None
        or column is None
        or added is None
        or over[column.var] != added.column.var
        or not added.has_blocks(plan.unit.size(square[0]))
    ):
        raise ScheduleError(
            f"{plan.unit.instruction.name} does not multiply what is added to {made.buffer.name}",
            program=made.stmt,
            hint="blocks of as many channels as it has columns are multiplied, along the loop that"
            " its columns are",
        )


def residual_plan(plan: Plan, nest: Nest, read: Load) -> Plan:
    """The plan of the product with which `nest` adds a residual to what it makes of the sums, which
    are `read` in its loops: by the same unit, in a tile of the same size."""
    square = square_axes(plan.unit)
    assert square is not None
    result, _ = plan.result
    over = dict(zip(result.indices, read.indices, strict=True))
    loops = {x.var: x for x in (*nest.axes, *nest.reduce)}
    (term,) = nest.reduce
    axes = [(square[1], term)]
    tile = {term.var: plan.unit.size(square[1])}
    for x in plan.axes:
        place = over[x.var]
        assert isinstance(place, Var)
        tile[place] = plan.tile.get(x.var, 1)
        axes += [(axis, loops[place]) for axis, loop in plan.mapping.axes if loop.var == x.var]
    return replace(
        plan,
        nest=nest,
        mapping=replace(plan.mapping, axes=tuple(axes), swapped=False),
        tile=tile,
        starts_with_addend=True,
    )


def operand_layout(
    plan: Plan, rows: Sequence[tuple[Var, int]], access: Load, operand: Load
) -> Layout:
    """Returns the layout of an operand in the unit's memory, over the program's subscripts."""
    axes = [
        axis for axis, _ in operand_axes(plan, operand) if _depends_on(access, var_of(plan, axis))
    ]
    places = {axis: position_of(access.indices, var_of(plan, axis)) for axis in axes}
    return layout_with_rows_last(rows, places, len(access.indices))


def _depends_on(load: Load, var: Var) -> bool:
    return any(var in variables(i) for i in load.indices)


def layout_with_rows_last(
    rows: Sequence[tuple[Var, int]], places: Mapping[Var, int], rank: int
) -> Layout:
    blocks = tuple((places[axis], size) for axis, size in rows)
    others = [p for axis, p in places.items() if axis not in dict(rows)]
    return Layout(rows_last(range(rank), others, [p for p, _ in blocks]), blocks)


def rows_last(places: Sequence[T], others: Sequence[T], rows: Sequence[T]) -> tuple[T, ...]:
    """Moves the row's subscript, then `others`, the unit's axes outside of the row, to the end of
    the order, so that consecutive rows are adjacent."""
    order = [p for p in places if p not in others]
    if others:
        last = rows[-1]
        order = [*(p for p in order if p != last), last]
    return (*order, *others)


def order_of(plan: Plan, access: Load, operand: Load) -> tuple[int, ...]:
    """Returns the parameter's subscripts in the order of the operand's axes; subscripts that match
    no axis come first."""
    places = {}
    for d, i in enumerate(operand.indices):
        loops = {var_of(plan, v) for v in variables(i) if plan.loop_of(v) is not None}
        for p, e in enumerate(access.indices):
            if loops & variables(e):
                places[p] = d
    return tuple(sorted(range(len(access.indices)), key=lambda p: places.get(p, -1)))


def widely_strided_axes(buffer: Buffer, target: Target) -> tuple[int, ...]:
    """Returns the axes whose stride is at least a line of the memory: copies leave out unused
    elements along these only."""
    line = target.memory(buffer.memory).line
    shape = [n if isinstance(n, int) else 1 for n in buffer.shape]
    far = (math.prod(shape[d + 1 :]) * buffer.dtype.bytes for d in range(len(shape)))
    return tuple(d for d, n in enumerate(far) if n >= line)


def epilogue_of(s: Schedule, acc: Buffer) -> tuple[Load, Nest]:
    """Returns the one element-wise read of the accumulator, and the nest that does it (the
    epilogue); ScheduleError if there is not exactly one."""
    found = [
        (x, n)
        for n in nests(s.kernel.body)
        if n.buffer != acc
        for x in dict.fromkeys(loads(n.store.value))
        if x.buffer == acc
    ]
    single = [n == 1 for n in acc.shape]
    if len(found) != 1 or not all(
        isinstance(i, Var) or one for i, one in zip(found[0][0].indices, single, strict=True)
    ):
        raise ScheduleError(
            f"{acc.name} is read in {len(found)} ways, and a chip's tiles need one, element by"
            " element",
            program=s.kernel,
            hint="inline what comes between",
        )
    return found[0]


def exits(s: Schedule, acc: Buffer) -> list[tuple[Load, Nest]]:
    """What is made of accumulators, nest by nest: what adds products to them, then the epilogue.
    Each with the read of the accumulators, over its own loops; ScheduleError where one does not
    have exactly one read of what the one before made."""
    read, nest = epilogue_of(s, acc)
    found = [(read, nest)]
    while added_product(nest) and {*read.indices} == {*nest.store.indices}:
        behind, last = epilogue_of(s, nest.buffer)
        names = dict(zip(nest.store.indices, behind.indices, strict=True))
        read = Load(acc, tuple(names[i] for i in read.indices))
        found.append((read, nest := last))
    return found


def nest_with(s: Schedule, buffer: Buffer) -> Nest:
    """The nest that computes a buffer, wherever it stands: the first."""
    return next(nests_with(s.kernel.body, buffer))


def outer_loop(nest: Nest) -> Loop:
    """The outermost loop of a nest; ScheduleError for one element, which no instruction moves."""
    if not nest.axes:
        raise ScheduleError(
            f"{nest.buffer.name} is one element, and chips move rows",
            program=nest.stmt,
            hint="give it an axis of more",
        )
    return Loop(nest.axes[0].var)


def nests_with(block: Block, buffer: Buffer) -> Iterator[Nest]:
    yield from (n for n in nests(block) if n.buffer == buffer)
    for stmt in block:
        for inner in sub_blocks(stmt):
            yield from nests_with(inner, buffer)
