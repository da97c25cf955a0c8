"""Contractions of which several loops go along both factors and the result, as a unit takes them
that multiplies lane by lane: all lanes lie along those loops as one.

    for c, y, x:                              for y, m, l:
      for r:                             ->     for r:
        Y[c, y, x] += X[c, y, x + r]              Y[y, 64 * m + l] += X[y, 64 * m + l + 16 * r]
                      * W[c, r]                                       * W[r, l]

Here x and c (of 16) are one axis of all that lies in a row, x around c; W is repeated until it has
as many elements as the unit has lanes. A window that slides along x then begins 16 elements later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.analyze.linear import linear
from tilewright.analyze.nests import Nest, guarded_factors, nests
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, all_of, const, select
from tilewright.ir.loop import Alloc, Block, For, Kernel, Stmt, loads, map_block
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.plan.borders import Border, with_borders
from tilewright.plan.diagonal import without_single_terms
from tilewright.plan.unit_form import (
    MadeArray,
    UnitForm,
    composed,
    fresh,
    made,
    places_along,
    sizes_of,
)
from tilewright.plan.units import units
from tilewright.target.target import Target


def lane_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with its contraction's loops along lanes, for each number of lanes that the
    target's units have, and for each order in which arrays may lie."""
    sizes = lane_sizes(target)
    if not sizes:
        return
    kernel = kernel.with_(body=map_block(kernel.body, without_single_terms))
    wider, borders = with_borders(kernel)
    around = UnitForm(wider, {b.name: _with_border(b, wider, borders) for b in kernel.inputs
                              if b.name in borders})  # fmt: skip
    for nest in nests(wider.body):
        pair = guarded_factors(nest.update.value) if nest.update is not None else None
        if pair is None or nest.update is None or nest.update.op is not BinaryOp.ADD:
            continue
        if pair[0].buffer == pair[1].buffer:
            continue
        orders = _orders(nest)
        for lanes in sizes:
            for order in orders:
                form = _form(wider, nest, order, lanes)
                if form is not None:
                    yield composed(around, form)


def lane_sizes(target: Target) -> list[int]:
    """How many lanes the units have of which each multiplies its own elements."""
    found = []
    for unit in units(target):
        along = [{v for i in x.indices for v in variables(i)} for x in unit.operands]
        if len(unit.fixed) == 1 and all(unit.fixed[0] in used for used in along):
            extent = unit.loops[unit.fixed[0]].extent
            found += [extent] if isinstance(extent, int) else []
    return list(dict.fromkeys(found))


def _orders(nest: Nest) -> list[tuple[int, ...]]:
    """Orders of the subscripts of the sums, from outside inwards: as they are, and with the first
    that runs more than once, the channels of a picture, innermost."""
    plain = tuple(range(len(nest.store.indices)))
    extents = {x.var: x.extent for x in nest.axes}
    at = nest.store.indices
    first = next((d for d in plain if isinstance(v := at[d], Var) and extents.get(v) != 1), None)
    last = plain if first is None else (*(d for d in plain if d != first), first)
    return list(dict.fromkeys((plain, last)))


def _with_border(buffer: Buffer, wider: Kernel, borders: Mapping[str, Border]) -> MadeArray:
    """How an input is made that has a border."""
    new = next(b for b in wider.inputs if b.name == buffer.name)
    border = borders[buffer.name]

    def value(*at: Expr) -> Expr:
        place = tuple(i - n for i, n in zip(at, border.before, strict=True))
        inside = [c for i, n in zip(place, buffer.shape, strict=True) for c in (i >= 0, i < n)]
        return select(all_of(*inside), Load(buffer, place), const(border.fill, buffer.dtype))

    return made(f"{buffer.name}_border", sizes_of(new), [buffer], value)


# ---------------------------------------------------------------- the form


class _NoForm(Exception):
    """An array does not go along with the lanes."""


@dataclass(frozen=True)
class _Array:
    """An array as the form has it: the axes that stay, the axes that are one (outermost first), and
    how it is made, or what of it."""

    buffer: Buffer
    kept: tuple[int, ...]
    joined: tuple[int, ...]
    repeated: bool  # as often as fills the lanes


def _form(kernel: Kernel, nest: Nest, order: Sequence[int], lanes: int) -> UnitForm | None:
    try:
        return _Lanes(kernel, nest, order, lanes).form()
    except _NoForm:
        return None


class _Lanes:
    """A kernel of a contraction and of what is made of its sums, with the innermost loops in an
    order of the sums' subscripts as one, cut into lanes. Loops are told by the subscripts of the
    sums that they are: `group` are those that are one, as few as fill lanes (x and c in the
    module's example)."""

    def __init__(self, kernel: Kernel, nest: Nest, order: Sequence[int], lanes: int) -> None:
        self.kernel, self.nest, self.lanes = kernel, nest, lanes
        self.names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        every = nests(kernel.body)
        if sum(not isinstance(s, Alloc) for s in kernel.body) > len(every) or len(every) > 2:
            raise _NoForm
        self.nests = {n: self._loops(n) for n in every}
        extents = [int(x.extent) for x in self._in_order(nest) if isinstance(x.extent, int)]
        if len(extents) < len(order):
            raise _NoForm
        self.order, self.extents = tuple(order), tuple(extents)
        self.group = self._fewest()
        self.size = math.prod(self.extents[p] for p in self.group)
        self.local = nest.buffer if nest.buffer not in kernel.params else None
        self.arrays: dict[Buffer, _Array] = {}

    def _loops(self, nest: Nest) -> tuple[Var, ...]:
        """A nest's loops by the subscripts of the sums that they are."""
        at = nest.store.indices
        if nest.buffer != self.nest.buffer:
            reads = {x.indices for w in nest.writes for x in loads(w.value)
                     if x.buffer == self.nest.buffer}  # fmt: skip
            if len(reads) != 1 or nest.update is not None:
                raise _NoForm
            (at,) = reads
        loops = tuple(i for i in at if isinstance(i, Var))
        if len(set(loops)) < len(at) or {x.var for x in nest.axes} != set(loops):
            raise _NoForm
        return loops

    def _in_order(self, nest: Nest) -> list[For]:
        known = {x.var: x for x in nest.axes}
        return [known[v] for v in self.nests[nest]]

    def _fewest(self) -> tuple[int, ...]:
        """The innermost loops of which all iterations are whole lanes."""
        for count in range(1, len(self.order) + 1):
            group = self.order[-count:]
            if math.prod(self.extents[p] for p in group) % self.lanes == 0:
                return group
        raise _NoForm

    def form(self) -> UnitForm:
        """The kernel, and how its arrays are made."""
        body = tuple(self._stmt(s) for s in self.kernel.body)
        body = tuple(Alloc(self._array(s.buffer)) if isinstance(s, Alloc) else s for s in body)
        new = {b: array.buffer for b, array in self.arrays.items()}
        kernel = self.kernel.with_(
            inputs=tuple(new.get(b, b) for b in self.kernel.inputs),
            outputs=tuple(new.get(b, b) for b in self.kernel.outputs),
            body=body,
        )
        changed = {b: a for b, a in self.arrays.items() if a.joined or a.repeated}
        inputs = {b.name: self._made(b, changed[b]) for b in self.kernel.inputs if b in changed}
        results = {b.name: self._read(b, changed[b]) for b in self.kernel.outputs if b in changed}
        return UnitForm(kernel, inputs, results)

    # ---------------------------------------------------------- loops

    def _stmt(self, stmt: Stmt) -> Stmt:
        nest = next((n for n in self.nests if n.stmt is stmt), None)
        if nest is None:
            return stmt
        over, lane = Var(fresh("part", self.names)), Var(fresh("lane", self.names))

        def read(e: Expr) -> Expr:
            return self._access(e, nest, over, lane) if isinstance(e, Load) else e

        writes = []
        for w in nest.writes:
            place = self._access(Load(w.buffer, w.indices), nest, over, lane)
            value = rewrite(w.value, read)
            writes.append(w.with_(buffer=place.buffer, indices=place.indices, value=value))
        body: Block = (writes[-1],)
        sums = nest.reduce
        if nest.update is not None and not sums:  # a sum of one: a unit begins it with a loop
            sums = (For(Var(fresh("once", self.names)), 1, ()),)
        for x in reversed(sums):
            body = (x.with_(body=body),)
        body = (*writes[:-1], *body)
        known = {x.var: x for x in nest.axes}
        loops = [known[self.nests[nest][p]] for p in self.order if p not in self.group]
        loops += [For(over, self.size // self.lanes, ()), For(lane, self.lanes, ())]
        for x in reversed(loops):
            body = (x.with_(body=body),)
        return body[0]

    def _access(self, e: Load, nest: Nest, over: Var, lane: Var) -> Load:
        """An access of the array that the form has instead, in one part of the lanes and one of
        these."""
        array = self._describe(e, nest)
        kept = tuple(e.indices[d] for d in array.kept)
        if array.repeated:
            return Load(array.buffer, (*kept, lane))
        if not array.joined:
            return Load(array.buffer, kept)
        if e.buffer == self.local:
            return Load(array.buffer, (*kept, over, lane))
        outer = self.nests[nest][self.group[0]]
        step = math.prod(self.extents[p] for p in self.group[1:])
        rest = Simplifier()(substitute(e.indices[array.joined[0]], {outer: const(0)}))
        return Load(array.buffer, (*kept, over * self.lanes + lane + rest * step))

    # ---------------------------------------------------------- arrays

    def _array(self, buffer: Buffer) -> Buffer:
        return self.arrays[buffer].buffer if buffer in self.arrays else buffer

    def _describe(self, e: Load, nest: Nest) -> _Array:
        loops = self.nests[nest]
        forms = [linear(i) for i in e.indices]
        places: dict[int, int] = {}
        for p in self.group:
            along = [d for d, form in enumerate(forms) if loops[p] in form]
            others = (x for form in forms for x in form if x is not None and x != loops[p])
            if any(loops[p] in variables(x) for x in others):
                raise _NoForm  # as a part of o // 4, for example
            if len(along) > 1 or any(forms[d][loops[p]] != 1 for d in along):
                raise _NoForm
            if along:
                places[p] = along[0]
        joined = tuple(places[p] for p in self.group if p in places)
        if len(set(joined)) < len(joined):
            raise _NoForm
        if joined and len(joined) == len(self.group):
            self._check_joined(e, loops, joined)
            shape = self._joined_shape(sizes_of(e.buffer)[joined[0]], e.buffer == self.local)
            repeated = False
        else:
            repeated = self._is_repeated(e, nest, places)
            shape = (self.lanes,) if repeated else ()
        kept = self._kept(e, loops, joined)
        sizes = tuple(sizes_of(e.buffer)[d] for d in kept)
        array = _Array(e.buffer.with_(shape=(*sizes, *shape)), kept, joined, repeated)
        if self.arrays.setdefault(e.buffer, array) != array:
            raise _NoForm
        return array

    def _joined_shape(self, outermost: int, local: bool) -> tuple[int, ...]:
        """Of axes that are one, of which the outermost has so many places: as it lies in memory, or
        cut into lanes."""
        size = outermost * math.prod(self.extents[p] for p in self.group[1:])
        return (size // self.lanes, self.lanes) if local else (size,)

    def _check_joined(self, e: Load, loops: Sequence[Var], joined: Sequence[int]) -> None:
        """Raises unless the loops that are one run over all of an array's axes but the outermost,
        and nothing else does."""
        axes = set(loops)
        if len(variables(e.indices[joined[0]]) & axes) > 1:
            raise _NoForm
        for p, d in zip(self.group[1:], joined[1:], strict=True):
            if e.indices[d] != loops[p] or e.buffer.shape[d] != self.extents[p]:
                raise _NoForm

    def _is_repeated(self, e: Load, nest: Nest, places: Mapping[int, int]) -> bool:
        """Whether an access has another element for each lane, the same ones again and again: of a
        factor, of one number, or of what has some of the loops that are one, the innermost of
        them. Raises _NoForm where it has others, or as many as do not fill lanes evenly."""
        factors = guarded_factors(nest.update.value) if nest.update is not None else None
        inner = [p for p in self.group if p in places]
        period = math.prod(self.extents[p] for p in inner)
        one_number = e.buffer in self.kernel.inputs and math.prod(sizes_of(e.buffer)) == 1
        if not (inner or one_number or (factors is not None and e in factors)):
            return False
        suffix = tuple(inner) == self.group[len(self.group) - len(inner) :]
        exact = all(e.indices[d] == self.nests[nest][p] for p, d in places.items())
        whole = all(e.buffer.shape[d] == self.extents[p] for p, d in places.items())
        if e.buffer not in self.kernel.inputs or not (suffix and exact and whole):
            raise _NoForm
        if self.lanes % period:
            raise _NoForm
        return True

    def _kept(self, e: Load, loops: Sequence[Var], joined: Sequence[int]) -> tuple[int, ...]:
        """The axes that stay: those of no loop of the result first, then in the loops' order."""
        rank = {loops[p]: k for k, p in enumerate(self.order)}

        def key(d: int) -> int:
            return max((rank[v] for v in variables(e.indices[d]) if v in rank), default=-1)

        return tuple(sorted((d for d in range(len(e.indices)) if d not in joined), key=key))

    def _made(self, source: Buffer, array: _Array) -> MadeArray:
        """An input of the form, of the kernel's."""
        shape = sizes_of(source)
        sizes = [shape[d] for d in array.joined]

        def value(*at: Expr) -> Expr:
            place = at[-1]
            if array.repeated and math.prod(sizes) < self.lanes:
                place = place % math.prod(sizes)
            found: dict[int, Expr] = dict(zip(array.kept, at, strict=False))
            if sizes:
                found |= dict(zip(array.joined, places_along(place, sizes), strict=True))
            return Load(source, tuple(found[d] for d in range(len(shape))))

        return made(f"{source.name}_lanes", sizes_of(array.buffer), [source], value)

    def _read(self, source: Buffer, array: _Array) -> MadeArray:
        """A result of the kernel, of the form's."""
        shape = sizes_of(source)

        def value(*at: Expr) -> Expr:
            flat: Expr = const(0)
            for d in array.joined:
                flat = flat * shape[d] + at[d]
            return Load(array.buffer, (*(at[d] for d in array.kept), flat))

        return made(f"{source.name}_joined", shape, [array.buffer], value)
