"""Grouped contractions as units take them: a channel is a group and a place within it, and groups
that are narrower than a unit are taken several at a time.

    for o, y:                                  for g, i, y:
      for c, r:                                  for k, r:
        Y[o, y] += X[o // m * n + c, y + r]  ->    Y[g, i, y] += X[g, k, y + r] * D[g, i, k, r]
                   * W[o, c, r]

Groups have n channels of X and m of Y. With q of them at a time, i goes over q * m channels and k
over q * n; D[g, i, k, r] is W[q * m * g + i, k % n, r] where i // m is k // n, and 0 elsewhere.
What a unit does for nothing then is less than what it does not do for a narrow group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.analyze.nests import Nest, guarded_factors, nests
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, const, select
from tilewright.ir.loop import Accumulate, Alloc, Block, For, Kernel, Stmt, Store, map_block
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.plan.diagonal import Along, follow, lane_numbers
from tilewright.plan.unit_form import (
    MadeArray,
    UnitForm,
    fresh,
    in_blocks,
    made,
    of_blocks,
    reads_alone,
    sizes_of,
)
from tilewright.target.target import Target


def group_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with the channels of a grouped contraction as groups and places: one group at a
    time, and as many as have no more channels than a unit has lanes."""
    for nest in nests(kernel.body):
        grouped = _grouped(kernel, nest)
        if grouped is None:
            continue
        widest = max(grouped.inner, grouped.outer)
        counts = {1, *(_divisor(grouped.count, n // widest) for n in lane_numbers(target))}
        for count in sorted(counts, reverse=True):
            if not (grouped.data.buffer.dtype.is_integer or count == 1):
                continue  # 0 times infinity is no 0
            yield _GroupForm(kernel, grouped, count).form()


def _divisor(number: int, most: int) -> int:
    """The greatest divisor of a number that is not more than another, which may be 0."""
    return max((n for n in range(1, most + 1) if number % n == 0), default=1)


@dataclass(frozen=True)
class _Grouped:
    """A contraction by so many groups (`count`), of `inner` channels of the data and `outer` of the
    result: the axis of the data that has them, the loop that is summed over them, if there is one,
    and what goes along with the result's."""

    update: Accumulate
    data: Load
    factor: Load
    axis: int
    summed: Var | None
    along: Along
    count: int
    inner: int
    outer: int


def _grouped(kernel: Kernel, nest: Nest) -> _Grouped | None:
    update = nest.update
    pair = guarded_factors(update.value) if update is not None else None
    if update is None or update.op is not BinaryOp.ADD or pair is None:
        return None
    axes = {x.var: x.extent for x in nest.axes}
    summed = {x.var: x.extent for x in nest.reduce}
    for data, factor in (pair, pair[::-1]):
        inputs = kernel.inputs
        if data.buffer not in inputs or factor.buffer not in inputs or data.buffer == factor.buffer:
            continue
        if not all(reads_alone(kernel, update, x.buffer) for x in (data, factor)):
            continue
        for axis, place in enumerate(data.indices):
            used = variables(place)
            loops, sums = used & set(axes), used & set(summed)
            if isinstance(place, Var) or len(loops) != 1 or len(sums) > 1 or used - loops - sums:
                continue
            (loop,), c = loops, next(iter(sums), None)
            inner, extent = 1 if c is None else summed[c], axes[loop]
            size = data.buffer.shape[axis]
            if not (isinstance(inner, int) and isinstance(extent, int) and isinstance(size, int)):
                continue
            if size % inner:
                continue
            count = size // inner
            if count < 2 or extent % count or not _is_group(place, loop, c, inner, extent, count):
                continue
            along = _follow(kernel, data, loop)
            alone = c is None or _is_subscript(c, update, data, axis, factor)
            if along is None or along.extent != extent or not alone:
                continue
            if factor.buffer not in along.places or data.buffer in along.places:
                continue
            outer = extent // count
            return _Grouped(update, data, factor, axis, c, along, count, inner, outer)
    return None


def _is_group(
    place: Expr, loop: Var, summed: Var | None, inner: int, extent: int, count: int
) -> bool:
    """Whether a subscript is loop // outer * inner + summed, for each channel of the result."""
    outer = extent // count
    if inner == outer == 1 or any(isinstance(x, Load) for x in place.walk()):
        return False  # a group of one channel, as diagonal.py has them; or a place that is read
    o, c = np.ogrid[:extent, :inner]
    env: dict[Expr, object] = {loop: o, **({} if summed is None else {summed: c})}
    return bool(np.all(evaluate_exactly(place, env) == o // outer * inner + c))


def _follow(kernel: Kernel, data: Load, loop: Var) -> Along | None:
    """What goes along with a loop but for the data, which it reads by groups."""
    hidden = Load(data.buffer, tuple(const(0) for _ in data.indices))

    def without(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Accumulate):
            value = rewrite(stmt.value, lambda e: hidden if e == data else e)
            return stmt.with_(value=value)
        return stmt.with_(body=map_block(stmt.body, without)) if isinstance(stmt, For) else stmt

    return follow(kernel.with_(body=map_block(kernel.body, without)), loop)


def _is_subscript(loop: Var, update: Accumulate, data: Load, axis: int, factor: Load) -> bool:
    """Whether a loop is one subscript of the factor, and beside it in the data's axis alone."""
    left = {
        data: Load(data.buffer, tuple(i for d, i in enumerate(data.indices) if d != axis)),
        factor: Load(factor.buffer, tuple(i for i in factor.indices if i != loop)),
    }
    rest = substitute(update.value, left)
    return factor.indices.count(loop) == 1 and loop not in {*variables(rest)}


class _GroupForm:
    """The form of a kernel with so many groups at a time."""

    def __init__(self, kernel: Kernel, grouped: _Grouped, several: int) -> None:
        self.kernel, self.grouped, self.several = kernel, grouped, several
        self.groups = grouped.count // several
        self.outer, self.inner = several * grouped.outer, several * grouped.inner
        names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        loops = sorted(grouped.along.loops, key=str)
        self.group, self.place = (
            {v: Var(fresh(f"{v.name}_{what}", names)) for v in loops} for what in ("group", "place")
        )
        name = "summed" if grouped.summed is None else grouped.summed.name
        self.summed = Var(fresh(name, names))
        data = grouped.data.buffer
        self.data = data.with_(shape=_split(sizes_of(data), grouped.axis, self.inner))
        self.new = {
            b: b.with_(shape=_split(sizes_of(b), d, self.outer))
            for b, d in grouped.along.places.items()
            if b != grouped.factor.buffer
        }
        self.matrix = self._matrix()

    def form(self) -> UnitForm:
        old = self.grouped.data.buffer, self.grouped.factor.buffer
        new = {**self.new, old[0]: self.data, old[1]: self.matrix}
        kernel = self.kernel.with_(
            inputs=tuple(new.get(b, b) for b in self.kernel.inputs),
            outputs=tuple(new.get(b, b) for b in self.kernel.outputs),
            body=map_block(self.kernel.body, self._stmt),
        )
        inputs = {
            b.name: in_blocks(b, new[b], self._axis(b))
            for b in self.kernel.inputs
            if b in new and b != old[1]
        }
        inputs[old[1].name] = self._blocks()
        outputs = (b for b in self.kernel.outputs if b in new)
        results = {b.name: of_blocks(b, new[b], self._axis(b)) for b in outputs}
        return UnitForm(kernel, inputs, results)

    def _axis(self, buffer: Buffer) -> int:
        grouped = self.grouped
        return grouped.axis if buffer == grouped.data.buffer else grouped.along.places[buffer]

    # ---------------------------------------------------------- loops

    def _stmt(self, stmt: Stmt) -> Stmt | Block:
        grouped = self.grouped
        if isinstance(stmt, Alloc):
            return Alloc(self.new.get(stmt.buffer, stmt.buffer))
        if isinstance(stmt, For):
            body = map_block(stmt.body, self._stmt)
            if stmt.var == grouped.summed:
                return For(self.summed, self.inner, body)
            if stmt.var not in grouped.along.loops:
                return stmt.with_(body=body)
            return For(
                self.group[stmt.var], self.groups, (For(self.place[stmt.var], self.outer, body),)
            )
        if isinstance(stmt, (Store, Accumulate)):
            place = self._placed(Load(stmt.buffer, stmt.indices))
            value = rewrite(stmt.value, self._read)
            new = stmt.with_(buffer=place.buffer, indices=place.indices, value=value)
            if stmt is grouped.update and grouped.summed is None:
                return For(self.summed, self.inner, (new,))
            return new
        return stmt

    def _read(self, e: Expr) -> Expr:
        grouped = self.grouped
        if e == grouped.data:
            assert isinstance(e, Load)
            at, d = e.indices, grouped.axis
            group = self.group[self._loop]
            return Load(self.data, (*at[:d], group, self.summed, *at[d + 1 :]))
        if e == grouped.factor:
            assert isinstance(e, Load)
            pair: dict[Expr, tuple[Expr, ...]] = {
                self._loop: (self.group[self._loop], self.place[self._loop])
            }
            at = tuple(x for i in e.indices for x in self._renamed(i, pair))
            return Load(self.matrix, at if grouped.summed is not None else (*at, self.summed))
        return self._placed(e) if isinstance(e, Load) else e

    def _renamed(self, i: Expr, pair: Mapping[Expr, tuple[Expr, ...]]) -> tuple[Expr, ...]:
        if i in pair:
            return pair[i]
        return (self.summed,) if i == self.grouped.summed else (i,)

    @property
    def _loop(self) -> Var:
        """The loop of the sums that goes over all channels of the result."""
        grouped = self.grouped
        at = grouped.update.indices[grouped.along.places[grouped.update.buffer]]
        assert isinstance(at, Var)
        return at

    def _placed(self, e: Load) -> Load:
        if e.buffer not in self.new:
            return e
        d = self.grouped.along.places[e.buffer]
        var = e.indices[d]
        assert isinstance(var, Var)
        pair = (self.group[var], self.place[var])
        return Load(self.new[e.buffer], (*e.indices[:d], *pair, *e.indices[d + 1 :]))

    # ---------------------------------------------------------- the blocks of the factor

    def _matrix(self) -> Buffer:
        """The factor with groups apart, and as wide along what is summed as they are together."""
        grouped = self.grouped
        buffer, d = grouped.factor.buffer, grouped.along.places[grouped.factor.buffer]
        sizes = [*sizes_of(buffer)]
        if grouped.summed is None:
            sizes.append(self.inner)
        else:
            sizes[grouped.factor.indices.index(grouped.summed)] = self.inner
        return buffer.with_(shape=_split(sizes, d, self.outer))

    def _blocks(self) -> MadeArray:
        """The factor as a matrix for each few groups, 0 but for blocks on its diagonal."""
        grouped = self.grouped
        source, d = grouped.factor.buffer, grouped.along.places[grouped.factor.buffer]
        c = None if grouped.summed is None else grouped.factor.indices.index(grouped.summed)

        def value(*at: Expr) -> Expr:
            index = [*at[:d], at[d] * self.outer + at[d + 1], *at[d + 2 :]]
            if c is None:
                summed = index.pop()
            else:
                summed = index[c]
                index[c] = summed % grouped.inner
            element = Load(source, tuple(index))
            if self.several == 1:
                return element
            same = (at[d + 1] // grouped.outer).equals(summed // grouped.inner)
            return select(same, element, const(0, source.dtype))

        return made(f"{source.name}_blocks", sizes_of(self.matrix), [source], value)


def _split(sizes: tuple[int, ...] | list[int], axis: int, size: int) -> tuple[int, ...]:
    """Sizes with an axis as blocks of a size."""
    return (*sizes[:axis], sizes[axis] // size, size, *sizes[axis + 1 :])
