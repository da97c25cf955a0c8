"""What a chip's instructions are good for: contracting two operands into a third, or moving data;
and which loops of a program can be an instruction's axes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.analyze.nests import Nest, factors, guarded_factors, nests
from tilewright.base.dtype import DType
from tilewright.base.node import cached_property
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Load, Symbol, Var
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import Accumulate, For, If, Kernel, Store, loads, walk_statements
from tilewright.ir.substitute import variables
from tilewright.plan.rates import least, most_a_cycle
from tilewright.target.pairs import selectable
from tilewright.target.target import Target


@dataclass(frozen=True)
class Unit:
    """An instruction that contracts: its accumulation, the operands it multiplies, and its result.
    A whole one keeps the sums to itself, and does with them what follows.

    Its axes are loops of its meaning. One of a fixed number of iterations, or of a range, is a loop
    of the program; a free one takes any loop, since fields or a list say how each operand moves
    along it: a hardware loop.
    """

    instruction: Instruction
    update: Accumulate
    left: Load
    right: Load
    result: Load

    @property
    def whole(self) -> bool:
        return self.result.buffer != self.update.buffer

    @cached_property
    def loops(self) -> dict[Var, For]:
        """The axes, by variable, outermost first."""
        found = (s for s in walk_statements(self.instruction.body) if isinstance(s, For))
        return {s.var: s for s in found}

    @property
    def operands(self) -> tuple[Load, Load, Load]:
        """The factors and the result, as accesses."""
        return self.left, self.right, self.result

    @cached_property
    def free(self) -> tuple[Var, ...]:
        """Axes that may be any loop, outermost first; none of a whole operator's."""
        if self.whole:
            return ()
        return tuple(v for v in self.loops if all(self._free_in(v, x) for x in self.operands))

    def _free_in(self, axis: Var, operand: Load) -> bool:
        along = [d for d, i in enumerate(operand.indices) if axis in variables(i)]
        return all(operand.indices[d] == axis and self._has_steps(operand.buffer, d) for d in along)

    def _has_steps(self, operand: Buffer, d: int) -> bool:
        carrier = self.instruction.carrier(operand, d)
        listed = self.instruction.listed(operand) == d
        return listed or (carrier is not None and carrier.admits(0))

    @cached_property
    def listed(self) -> Var | None:
        """The free axis whose steps come from a list."""
        for operand in self.operands:
            d = self.instruction.listed(operand.buffer)
            if d is not None:
                (axis,) = variables(operand.indices[d])
                return axis
        return None

    @cached_property
    def fixed(self) -> tuple[Var, ...]:
        """Axes that stand for one certain loop of the program, outermost first."""
        return tuple(v for v in self.loops if v not in self.free and self.loops[v].extent != 1)

    @cached_property
    def clears(self) -> bool:
        """Whether the instruction can begin a sum, too."""
        return any(isinstance(s, If) for s in walk_statements(self.instruction.body))

    @property
    def depth(self) -> int:
        """Products that are added up in one element of the result."""
        kept = set().union(*map(variables, self.result.indices))
        return math.prod(self.size(axis) for axis in self.loops if axis not in kept)

    @property
    def lanes(self) -> int:
        """Elements of the result."""
        return math.prod(self.size(axis) for i in self.result.indices for axis in variables(i))

    def size(self, axis: Var) -> int:
        """Iterations along an axis; the most, for a range."""
        extent = self.loops[axis].extent
        return extent if isinstance(extent, int) else self.range(axis).high

    def range(self, axis: Var) -> Field:
        """The field that says how many iterations an axis has."""
        extent = self.loops[axis].extent
        assert isinstance(extent, Symbol)
        return self.instruction.field(extent.name)

    def step(self, axis: Var, extent: int) -> int:
        """Iterations of a loop that a call takes along an axis: as many as divide it."""
        size = self.loops[axis].extent
        if isinstance(size, int):
            return size
        return next((n for n in self._sizes(axis, extent) if extent % n == 0), 0)

    def _sizes(self, axis: Var, most: int) -> Iterator[int]:
        """What a range admits up to `most`, the greatest first."""
        limits = self.range(axis)
        return (n for n in range(min(limits.high, most), 0, -1) if limits.admits(n))

    def filled(self, axis: Var, extent: int) -> int | None:
        """Iterations that a loop of so many has in whole steps along an axis: the fewest of those
        that take no more than twice as many calls as it has to. Two at least, for one would be no
        loop; None if there are no such steps."""
        if (axis, extent) not in self._filled:
            self._filled[axis, extent] = self._find_filled(axis, max(extent, 2))
        return self._filled[axis, extent]

    @cached_property
    def _filled(self) -> dict[tuple[Var, int], int | None]:
        """What was asked: many ways to lay loops on axes have the same loop on an axis."""
        return {}

    def _find_filled(self, axis: Var, extent: int) -> int | None:
        size = self.loops[axis].extent
        sizes = [size] if isinstance(size, int) else self._sizes(axis, extent)
        calls = {n: -(-extent // n) for n in sizes}
        most = 2 * min(calls.values(), default=0)
        return min((n * count for n, count in calls.items() if count <= most), default=None)


@dataclass(frozen=True)
class AxisMapping:
    """Which loop of the program each fixed axis of a unit is; `swapped` when the program's first
    factor is the unit's second operand. Parameters named in `orders` lie in memory with their axes
    in that order, from outside inwards; with `between`, other axes may lie between those that a
    whole unit takes."""

    unit: Unit
    axes: tuple[tuple[Var, For], ...]
    swapped: bool
    orders: tuple[tuple[str, tuple[int, ...]], ...] = ()
    between: bool = False

    @cached_property
    def extents(self) -> dict[Var, int]:
        """How often its loops run in whole steps of the unit; without those that cannot."""
        found = {}
        for axis, loop in self.axes:
            extent = self.unit.filled(axis, loop.extent) if isinstance(loop.extent, int) else None
            if extent is not None:
                found[loop.var] = extent
        return found

    def around(self, extents: Mapping[Var, int]) -> int:
        """Iterations of the loops that no axis takes."""
        mapped = {x.var for _, x in self.axes}
        return math.prod(n for v, n in extents.items() if v not in mapped)

    def least_cycles(self, extents: Mapping[Var, int]) -> float:
        """Cycles that the program's loops, which run so often, take on the unit at least. A call of
        a whole unit is a tile with transfers of its own, so that there is its latency for each."""
        calls = self.around(extents) if self.unit.whole else 0
        waits = calls * least(self.unit.instruction.cost.latency)
        return math.prod(extents.values()) / self.most_a_cycle(extents) + waits

    @property
    def waste(self) -> float:
        """Work the unit does for each piece wanted: 1 where all axes divide."""
        pairs = [(self.extents.get(x.var), x.extent) for _, x in self.axes]
        known = [(n, m) for n, m in pairs if n is not None and isinstance(m, int)]
        return math.prod(n / m for n, m in known) if len(known) == len(pairs) else math.inf

    def most_a_cycle(self, extents: Mapping[Var, int]) -> float:
        """Iterations of the program's loops, which run so often, that the unit does in a cycle at
        most: axes of a fixed number are filled, and those of a range take equal parts of loops."""
        sizes: list[tuple[str, tuple[int, ...]]] = []
        filled = 1.0
        mapped = {axis: loop.var for axis, loop in self.axes if loop.var in extents}
        for axis in self.unit.fixed:
            var, size = mapped.get(axis), self.unit.loops[axis].extent
            if var is not None:
                filled *= self.extents.get(var, extents[var]) / extents[var]
            if not isinstance(size, int):
                field = self.unit.range(axis)
                whole = self.extents.get(var, extents[var]) if var is not None else 1
                parts = (n for n in range(1, whole + 1) if whole % n == 0 and field.admits(n))
                sizes.append((field.name, tuple(parts) or (field.low,)))
        return most_a_cycle(self.unit.instruction, tuple(sizes)) / filled


def has_contraction(kernel: Kernel) -> bool:
    """Whether some nest adds products of two arrays, which a unit may do."""
    updates = [n.update for n in nests(kernel.body) if n.update is not None]
    return any(
        u.op is BinaryOp.ADD and pair is not None and pair[0].buffer != pair[1].buffer
        for u in updates
        for pair in [guarded_factors(u.value)]
    )


def is_contraction_alone(kernel: Kernel) -> bool:
    """Whether a kernel is a contraction with what is made of its sums, for a unit that contracts;
    others are for instructions that work on rows."""
    return has_contraction(kernel) and not products_among_rows(kernel)


def products_among_rows(kernel: Kernel) -> bool:
    """Whether several nests add up products of two arrays, each for itself: those are for
    instructions that work on rows, some of which a unit makes. Forms of one kernel alone have them
    (window_products.py), since an author's kernel of several contractions is split before; a
    residual is added to sums that are there."""
    return sum(map(_is_product, nests(kernel.body))) > 1


def _is_product(nest: Nest) -> bool:
    update = nest.update
    value = update.value if update is not None and update.op is BinaryOp.ADD else None
    if not isinstance(value, Binary) or value.op is not BinaryOp.MUL:
        return False
    if not isinstance(nest.store.value, Const):
        return False
    first, second = ({x.buffer for x in loads(e)} for e in (value.a, value.b))
    return bool(first) and bool(second) and first != second


@lru_cache(maxsize=64)
def units(target: Target) -> tuple[Unit, ...]:
    """The target's instructions that contract two operands into a third; those that do most
    first."""
    found = [u for i in selectable(target) if (u := _unit(i)) is not None]
    return tuple(sorted(found, key=lambda u: not u.whole))


def _unit(instruction: Instruction) -> Unit | None:
    inner = list(walk_statements(instruction.body))
    sums = [s for s in inner if isinstance(s, Accumulate) and s.op is BinaryOp.ADD]
    pair = guarded_factors(sums[0].value) if len(sums) == 1 else None
    if pair is None or not {x.buffer for x in pair} <= set(instruction.operands):
        return None
    written = [Load(s.buffer, s.indices) for s in inner if isinstance(s, (Store, Accumulate))]
    results = [x for x in written if x.buffer in instruction.operands]
    return Unit(instruction, sums[0], *pair, results[-1]) if results else None


def is_row(unit: Unit, axis: Var) -> bool:
    """Whether the first factor and the result go along a unit's axis, and the second does not."""
    return _parts(axis, unit.left, unit.right, unit.result.indices) == (True, False, True)


def square_axes(unit: Unit) -> tuple[Var, Var] | None:
    """The axes of a unit's columns and of what it adds up, if its second factor is a square matrix
    of these, and rows go along the first factor alone; None otherwise."""
    axes: dict[tuple[bool, bool, bool], list[Var]] = {}
    for v in unit.fixed:
        axes.setdefault(_parts(v, unit.left, unit.right, unit.result.indices), []).append(v)
    columns, summed = axes.pop((False, True, True), []), axes.pop((True, True, False), [])
    if len(columns) != 1 or len(summed) != 1 or axes.keys() - {(True, False, True)}:
        return None
    size, depth = (unit.loops[v].extent for v in (*columns, *summed))
    return (columns[0], summed[0]) if isinstance(size, int) and size == depth else None


def copies(
    target: Target, source: str, destination: str, dtype: DType | None = None
) -> Iterator[Instruction]:
    """The target's instructions that move data from one memory to another; with a `dtype`, those
    that find elements of it."""
    for instruction in target.instructions:
        stores = [s for s in walk_statements(instruction.body) if isinstance(s, Store)]
        read = [[x for x in s.value.walk() if isinstance(x, Load)] for s in stores]
        moved = [(x.buffer, s.buffer) for s, xs in zip(stores, read, strict=True) for x in xs]
        if [(a.memory, b.memory) for a, b in moved] != [(source, destination)]:
            continue
        if dtype is None or moved[0][0].dtype == dtype:
            yield instruction


def mappings(nest: Nest, unit: Unit) -> Iterator[AxisMapping]:
    """All ways to give every fixed axis of a unit a loop of the program that plays the same part:
    in the same operands, and summed over or not."""
    if nest.update is None:
        return
    pair = (guarded_factors if unit.whole else factors)(nest.update.value)
    if pair is None or pair[0].buffer == pair[1].buffer:
        return
    for swapped in (False, True):
        data, weight = pair[::-1] if swapped else pair
        candidates = []
        for axis in unit.fixed:
            wanted = _parts(axis, unit.left, unit.right, unit.result.indices)
            fits: list[For | None] = [
                loop
                for loop in (*nest.axes, *nest.reduce)
                if _parts(loop.var, data, weight, nest.update.indices) == wanted
            ]
            if unit.whole and unit.step(axis, 1) == 1:
                fits.append(None)
            candidates.append([(axis, loop) for loop in fits])
        result = Load(nest.update.buffer, nest.update.indices)
        pairs = ((unit.left, data), (unit.right, weight), (unit.result, result))
        wanted_loops = _WantedLoops(nest, pairs) if unit.whole else None
        for axes in _choices(candidates):
            if wanted_loops is None or (axes and wanted_loops.are(axes)):
                yield AxisMapping(unit, axes, swapped)


Axes = tuple[tuple[Var, For], ...]  # of a unit, each with the loop that it is


def _choices(
    candidates: Sequence[Sequence[tuple[Var, For | None]]], taken: frozenset[Var] = frozenset()
) -> Iterator[Axes]:
    """All ways to choose a loop for each axis, or none where that is offered, and no loop twice."""
    if not candidates:
        yield ()
        return
    for axis, loop in candidates[0]:
        if loop is None:
            yield from _choices(candidates[1:], taken)
        elif loop.var not in taken:
            for others in _choices(candidates[1:], taken | {loop.var}):
                yield ((axis, loop), *others)


class _WantedLoops:
    """Which loops of a nest a whole unit has to do: all that share a subscript which it guards, and
    as it has them, and all of the sums; others are around its calls. `pairs` are what the unit
    reads and writes, each with what the nest does."""

    def __init__(self, nest: Nest, pairs: Sequence[tuple[Load, Load]]) -> None:
        assert nest.update is not None
        loops = (*nest.axes, *nest.reduce)
        once = {x.var for x in loops if x.extent == 1}
        self.several = {x.var for x in loops} - once
        self.summed = {x.var for x in nest.reduce} - once
        weights, result = ({v for i in x.indices for v in variables(i)} for _, x in pairs[1:])
        self.apart = weights & result  # they do not go along with a window
        subscripts = (variables(i) - once for _, x in pairs for i in x.indices)
        self.shared = [used for used in subscripts if len(used) > 1]
        self.guarded = factors(nest.update.value) is None  # by the unit, wherever it begins
        self.subscripts = [tuple([*map(variables, x.indices)] for x in pair) for pair in pairs]

    def are(self, axes: Axes) -> bool:
        """Whether a mapping has these loops."""
        mapped = {axis: loop.var for axis, loop in axes}
        loops = set(mapped.values())
        if self.summed - loops:
            return False
        left = self.several - loops - self.apart
        if self.guarded and any(used & left for used in self.shared):
            return False
        for operand, access in self.subscripts:
            groups = [g for i in operand if (g := {mapped[v] for v in i if v in mapped})]
            wanted = [w for i in access if (w := i & loops)]
            # Rows of a program may overlap, where the operand's are apart.
            rows = not self.guarded and all(any(g <= w for w in wanted) for g in groups)
            if not rows and sorted(map(sorted_names, groups)) != sorted(map(sorted_names, wanted)):
                return False
        return True


def sorted_names(group: Collection[Var]) -> list[str]:
    return sorted(v.name for v in group)


def _parts(var: Var, left: Load, right: Load, result: Sequence[Expr]) -> tuple[bool, bool, bool]:
    """Returns whether the first factor, the second, and the result depend on a loop."""
    a, b, c = (any(var in variables(i) for i in x) for x in (left.indices, right.indices, result))
    return a, b, c
