"""Contractions of which a loop goes along both factors and the result, as units take them: one
factor lies on the diagonal of a matrix.

    for c, y, x:                              for g, l, y, x:
      for r:                             ->     for k, r:
        Y[c, y, x] += X[c, y + r] * W[c, r]       Y[g, l, y, x] += X[g, k, y + r] * D[g, k, l, r]

The loop is cut into blocks of as many iterations as the unit has lanes; D[g, k, l, r] is
W[lanes * g + l, r] where k is l, and 0 elsewhere. So much of the unit is idle, but a product with
one factor for each channel, or with none, is done by a unit that multiplies matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.analyze.accesses import accesses
from tilewright.analyze.nests import Nest, guarded_factors, nests
from tilewright.analyze.rewrite import simplify_block, substitute_block
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, all_of, const, select
from tilewright.ir.instruction import Field
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    Kernel,
    Stmt,
    Store,
    expressions,
    map_block,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, variables
from tilewright.plan.rates import most_a_cycle
from tilewright.plan.unit_form import (
    MadeArray,
    UnitForm,
    fresh,
    made,
    of_blocks,
    reads_alone,
    sizes_of,
)
from tilewright.plan.units import Unit, units
from tilewright.target.target import Target

Index = tuple[Expr, ...]
LANES = (8, 16, 32, 64)  # that are tried where an axis of a unit may have any number


def diagonal_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with one factor of its contraction on a diagonal, for each loop along which both
    factors and the result go, and each number of lanes that units have. Sums of one term (a group
    of one channel) need no loop then."""
    kernel = kernel.with_(body=map_block(kernel.body, without_single_terms))
    for nest in nests(kernel.body):
        pair = guarded_factors(nest.update.value) if nest.update is not None else None
        if nest.update is None or nest.update.op is not BinaryOp.ADD or pair is None:
            continue
        if not nest.buffer.dtype.is_integer:
            continue  # 0 times infinity is no 0
        for loop, (data, factor) in ((x, p) for x in nest.axes for p in (pair, pair[::-1])):
            along = follow(kernel, loop.var)
            others = {x.var for x in nest.axes} - {loop.var}
            both = {data.buffer, factor.buffer}
            if along is None or len(both) < 2 or not both <= along.places.keys():
                continue
            if _variables(factor) & others:
                continue
            if factor.buffer in kernel.inputs and reads_alone(kernel, nest.update, factor.buffer):
                for lanes in lane_numbers(target):
                    yield Diagonal(kernel, nest, data, factor, along, lanes).form()


def without_single_terms(stmt: Stmt) -> Stmt | Block:
    """A statement without loops of one iteration."""
    if not isinstance(stmt, For):
        return stmt
    body = map_block(stmt.body, without_single_terms)
    if stmt.extent == 1:
        return simplify_block(substitute_block(body, {stmt.var: const(0)}), Simplifier())
    return stmt.with_(body=body)


def lane_numbers(target: Target) -> list[int]:
    """How many lanes the units have both along what they add up and along the second operand."""
    return list(dict.fromkeys(sizes[0] for sizes in lane_choices(target)))


def lane_choices(target: Target) -> list[list[int]]:
    """The same for each unit that differs in them: where it may have several numbers, those with
    which it does most of a diagonal in a cycle first."""
    found = [sizes for unit in units(target) if (sizes := _lanes(unit))]
    return [sizes for k, sizes in enumerate(found) if sizes not in found[:k]]


def takes_lanes(target: Target, lanes: int) -> bool:
    """Whether a unit may have so many."""
    ranges = (r for unit in units(target) if (r := _ranges(unit)) is not None)
    return any(all(f.admits(lanes) for f in fields) for fields in ranges)


def _pairs(unit: Unit) -> list[tuple[Var, Var]]:
    """Axes that are summed, and across a diagonal."""
    summed = _axis(unit, (True, True, False))
    across = _axis(unit, (False, True, True)) or _axis(unit, (True, False, True))
    return [(a, b) for a in summed for b in across]


def _ranges(unit: Unit) -> list[Field] | None:
    """The fields that say how many lanes there are; None where that is not up to fields."""
    pairs = _pairs(unit)
    ranged = [p for p in pairs if not any(isinstance(unit.loops[v].extent, int) for v in p)]
    fixed = [p for p in pairs if all(isinstance(unit.loops[v].extent, int) for v in p)]
    return None if fixed or not ranged else [unit.range(v) for v in ranged[0]]


def _lanes(unit: Unit) -> list[int]:
    for a, b in _pairs(unit):
        x, y = unit.loops[a].extent, unit.loops[b].extent
        if isinstance(x, int) and isinstance(y, int):
            return [math.lcm(x, y)]
    fields = _ranges(unit)
    if fields is None:
        return []
    sizes = [n for n in LANES if all(f.admits(n) for f in fields)]
    rates = {
        n: most_a_cycle(unit.instruction, tuple((f.name, (n,)) for f in fields)) / n for n in sizes
    }
    return sorted(sizes, key=lambda n: -rates[n])


def _axis(unit: Unit, part: tuple[bool, bool, bool]) -> list[Var]:
    """The axes that just these depend on: the factors, and the result."""
    every = ((v, tuple(v in _variables(x) for x in unit.operands)) for v in unit.fixed)
    return [v for v, parts in every if parts == part and not _in_window(unit, v)]


def _in_window(unit: Unit, axis: Var) -> bool:
    """Whether an axis shares a subscript with others."""
    return any(
        axis in variables(i) and len(variables(i)) > 1 for x in unit.operands for i in x.indices
    )


# ---------------------------------------------------------------- an axis of all arrays


@dataclass(frozen=True)
class Along:
    """Loops that go along the same axis, and that axis of each array that has it."""

    loops: frozenset[Var]
    places: dict[Buffer, int]
    extent: int


def follow(kernel: Kernel, var: Var, *, summed: bool = False) -> Along | None:
    """The loops and axes that go along with a loop; None unless each subscript on these axes is
    such a loop, which runs over all of the axis, and nothing else depends on the loops; nor if it
    is summed over, unless `summed`."""
    every = list(accesses(kernel.body))
    loops, places = {var}, dict[Buffer, int]()
    while True:
        before = len(loops), len(places)
        for access in every:
            for d, i in enumerate(access.indices):
                if isinstance(i, Var) and i in loops and places.setdefault(access.buffer, d) != d:
                    return None
            if access.buffer not in places:
                continue
            along = access.indices[places[access.buffer]]
            if not isinstance(along, Var):
                return None
            loops.add(along)
        if (len(loops), len(places)) == before:
            break
    found = [x for x in walk_statements(kernel.body) if isinstance(x, For) and x.var in loops]
    extents = {x.extent for x in found} | {b.shape[d] for b, d in places.items()}
    sums = {x.var for n in nests(kernel.body) for x in n.reduce}
    (extent,) = extents if len(extents) == 1 else (None,)
    if not isinstance(extent, int) or not _only_subscripts(kernel, loops):
        return None
    if sums & loops and not summed:
        return None
    return Along(frozenset(loops), places, extent)


def _only_subscripts(kernel: Kernel, loops: set[Var]) -> bool:
    """Whether loops occur as subscripts alone."""
    every = (e for stmt in walk_statements(kernel.body) for e in expressions(stmt))
    return not any(_depends(e, loops) for e in every if e not in loops)


def _depends(value: Expr, loops: set[Var]) -> bool:
    """Whether a value depends on loops in another way than by subscripts that they are."""
    seen, todo = set[Expr](), [value]
    while todo:
        e = todo.pop()
        if e in loops:
            return True
        parts = {x for x in e.children() if isinstance(x, Expr)}
        parts -= seen | loops if isinstance(e, Load) else seen
        todo += parts
        seen |= parts
    return False


# ---------------------------------------------------------------- the form


class Diagonal:
    """A contraction of two factors, the axis that the first and the result share, and how many
    lanes a block of it has. The second factor has that axis too, or is the same all along."""

    def __init__(
        self, kernel: Kernel, nest: Nest, data: Load, factor: Load, along: Along, lanes: int
    ) -> None:
        self.kernel, self.along, self.lanes = kernel, along, lanes
        assert nest.update is not None
        self.update, self.data, self.factor = nest.update, data, factor
        self.blocks = -(-along.extent // lanes)
        names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        self.outer, self.inner = (
            {v: Var(fresh(f"{v.name}_{what}", names)) for v in sorted(along.loops, key=str)}
            for what in ("block", "lane")
        )
        self.summed = Var(fresh("summed", names))
        self.new = {b: self._blocked(b, d) for b, d in along.places.items()}
        self.axis = along.places.get(factor.buffer, len(factor.buffer.shape))
        self.matrix = self._matrix()

    def form(self) -> UnitForm:
        """The kernel with the factor on a diagonal, and how its arrays are made."""
        matrix = {self.factor.buffer: self.matrix}
        kernel = self.kernel.with_(
            inputs=tuple(matrix.get(b, self.new.get(b, b)) for b in self.kernel.inputs),
            outputs=tuple(self.new.get(b, b) for b in self.kernel.outputs),
            body=map_block(self.kernel.body, self._stmt),
        )
        inputs = {b.name: self._split(b) for b in self.kernel.inputs if b in self.new}
        inputs[self.factor.buffer.name] = self._on_diagonal()
        places = self.along.places
        changed = [b for b in self.kernel.outputs if b in self.new]
        results = {b.name: of_blocks(b, self.new[b], places[b]) for b in changed}
        return UnitForm(kernel, inputs, results)

    # ---------------------------------------------------------- loops

    def _stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc):
            return Alloc(self.new.get(stmt.buffer, stmt.buffer))
        if stmt is self.update:
            assert isinstance(stmt, Accumulate)
            return For(self.summed, self.lanes, (self._update(stmt),))
        if isinstance(stmt, For):
            body = map_block(stmt.body, self._stmt)
            if stmt.var not in self.along.loops:
                return stmt.with_(body=body)
            lanes = For(self.inner[stmt.var], self.lanes, body)
            return For(self.outer[stmt.var], self.blocks, (lanes,))
        if isinstance(stmt, (Store, Accumulate)):
            value = rewrite(stmt.value, self._read)
            place = self._place(stmt.buffer, stmt.indices)
            return stmt.with_(buffer=place.buffer, indices=place.indices, value=value)
        return stmt

    def _update(self, update: Accumulate) -> Stmt:
        """The update, for one of the lanes that are added up."""

        def read(e: Expr) -> Expr:
            if e == self.factor:
                return self._on_matrix()
            if not isinstance(e, Load) or e.buffer != self.data.buffer:
                return e
            place, d = self._place(e.buffer, e.indices), self.along.places[e.buffer]
            at = (*place.indices[: d + 1], self.summed, *place.indices[d + 2 :])
            return Load(place.buffer, at)

        place = self._place(update.buffer, update.indices)
        value = rewrite(update.value, read)
        return update.with_(buffer=place.buffer, indices=place.indices, value=value)

    def _on_matrix(self) -> Load:
        at, d = self.factor.indices, self.axis
        result = self.update.indices[self.along.places[self.update.buffer]]
        assert isinstance(result, Var)
        pair = (self.summed, self.inner[result])
        first = (*at[:d], self.outer[result]) if d < len(at) else at
        return Load(self.matrix, (*first, *pair, *at[d + 1 :]))

    def _read(self, e: Expr) -> Expr:
        return self._place(e.buffer, e.indices) if isinstance(e, Load) else e

    def _place(self, buffer: Buffer, at: tuple[Expr, ...]) -> Load:
        d = self.along.places.get(buffer)
        if d is None:
            return Load(buffer, at)
        var = at[d]
        assert isinstance(var, Var)
        pair = (self.outer[var], self.inner[var])
        return Load(self.new[buffer], (*at[:d], *pair, *at[d + 1 :]))

    # ---------------------------------------------------------- arrays

    def _blocked(self, buffer: Buffer, d: int) -> Buffer:
        shape = buffer.shape
        return buffer.with_(shape=(*shape[:d], self.blocks, self.lanes, *shape[d + 1 :]))

    def _matrix(self) -> Buffer:
        """The factor with both axes of the diagonal, behind the blocks'."""
        shape, d = self.factor.buffer.shape, self.axis
        first = (*shape[:d], self.blocks) if d < len(shape) else shape
        rest = (self.lanes, self.lanes, *shape[d + 1 :])
        return self.factor.buffer.with_(shape=(*first, *rest))

    def _split(self, source: Buffer) -> MadeArray:
        """An input in blocks, with 0 behind its end; what lies there is multiplied by 0, or is in
        lanes of results that nobody reads."""
        d, new = self.along.places[source], self.new[source]

        def value(*at: Expr) -> Expr:
            return self._element(source, at[:d], at[d], at[d + 1], at[d + 2 :])

        blocks = made(f"{source.name}_blocks", sizes_of(new), [source], value)
        return replace(blocks, rest_is_unused=True)

    def _element(
        self, source: Buffer, before: Index, block: Expr, lane: Expr, behind: Index, *also: Expr
    ) -> Expr:
        place = block * self.lanes + lane
        inside = [*also, *([place < self.along.extent] if self._is_cut else [])]
        element = Load(source, (*before, place, *behind))
        return select(all_of(*inside), element, const(0, source.dtype)) if inside else element

    @property
    def _is_cut(self) -> bool:
        return self.along.extent % self.lanes != 0

    def _on_diagonal(self) -> MadeArray:
        """The factor as a matrix that is 0 but for its diagonal."""
        source, d = self.factor.buffer, self.axis
        rank = len(source.shape)

        def value(*at: Expr) -> Expr:
            if d == rank:
                element = Load(source, at[:-2])
                return select(at[-2].equals(at[-1]), element, const(0, source.dtype))
            summed, lane = at[d + 1], at[d + 2]
            return self._element(source, at[:d], at[d], lane, at[d + 3 :], summed.equals(lane))

        return made(f"{source.name}_diagonal", sizes_of(self.matrix), [source], value)


def _variables(access: Load) -> set[Var]:
    return set().union(*map(variables, access.indices))
