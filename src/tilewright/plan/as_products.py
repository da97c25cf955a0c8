"""Sums with constant factors, as products with a matrix that has these on its diagonal: for units
that multiply matrices, on chips whose other instructions do not add.

    for c, y, x:                                  for c, y, x:
      Z[c, y, x] = i8(max(min(                ->    for t: S[c, y, x] += XY[t, c, y, x] * F[t]
          77 * X[c, y, x] + 51 * Y[c, y, x] >> 7, …   Z[c, y, x] = i8(max(min(S[c, y, x] >> 7, …

XY is both arrays, F is (77, 51). A factor beyond a byte is several terms. Which loop the diagonal
goes along, and how it is cut, is up to `diagonal.py`. Sums of integers wrap around, so that they
are the same in any order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.analyze.nests import Nest, guarded_factors, nests, without_casts
from tilewright.analyze.rewrite import replace_in
from tilewright.base.dtype import DType
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    cast,
    const,
)
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    Kernel,
    Stmt,
    Store,
    loads,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.plan.diagonal import Diagonal, follow, lane_choices, takes_lanes
from tilewright.plan.fit_operators import widened
from tilewright.plan.lane_products import lane_forms
from tilewright.plan.narrowing_limits import between
from tilewright.plan.packed_windows import pack
from tilewright.plan.single_columns import with_single_columns
from tilewright.plan.unit_form import MadeArray, UnitForm, composed, fresh, made, one_of
from tilewright.plan.units import Unit, has_contraction, units
from tilewright.plan.value_ranges import Interval, value_range, within
from tilewright.target.target import Target

TERMS = 16  # that a sum may have
ALL = For(Var("all"), 1, ())  # in the place of a loop along which an addend lies: it is one number


def product_forms(kernel: Kernel, target: Target, *, every_axis: bool = True) -> Iterator[UnitForm]:
    """The kernel as products with a diagonal matrix, for each way to say what follows the sums;
    diagonals along every loop of the result, or along those alone that fill blocks best."""
    if has_contraction(kernel) or any(b.dtype.is_float for b in kernel.params):
        return  # other sums of floats round otherwise
    unit = next((u for u in units(target) if u.update.buffer.dtype.is_integer), None)
    found = _find_sum(kernel, unit) if unit is not None else None
    if unit is None or found is None:
        return
    ways = itertools.product(
        (False, True) if found.factor != 1 else (False,),
        (False, True) if found.constant else (False,),
    )
    along = _axes(found.result, target, every_axis)
    for multiply, addend in ways:
        made_of = found.multiplied() if multiply else found
        for axis in (*along, ALL) if addend else (None,):
            yield from _and_limited(
                _ways(_Products(kernel, made_of, unit, addend=axis, clip=clip), target, every_axis)
                for clip in (False, True)
            )
    plain = found.unrolled() if found.constant else None
    if plain is None:
        return
    made_of = plain.multiplied().with_constant_term(unit.left.buffer.dtype)
    yield from _and_limited(
        _term_ways(_Products(kernel, made_of, unit, addend=None, clip=clip), target, every_axis)
        for clip in (False, True)
    )


def _and_limited(ways: Iterable[Iterator[UnitForm]]) -> Iterator[UnitForm]:
    """Forms, each with the one that limits its results as well behind it: that is wanted where
    instructions do not narrow without. The other forms where there are none of one kind."""
    plain, limited = ways
    for form, other in itertools.zip_longest(plain, limited):
        if form is not None:
            yield form
        if other is not None:
            yield replace(other, instead=(form,))


def _ways(products: _Products, target: Target, every_axis: bool) -> Iterator[UnitForm]:
    """The ways to lay products out for units of each kind."""
    summed = products.form()
    if summed is None:
        return
    if products.addend is not ALL:
        yield from _with_columns(summed)
    yield from (composed(summed, x) for x in lane_forms(summed.kernel, target))
    if products.addend is not ALL:
        yield from _on_diagonals(summed, target, products.addend, every_axis)


def _term_ways(products: _Products, target: Target, every_axis: bool) -> Iterator[UnitForm]:
    """The same of products with a constant among them, which is not the same along a column."""
    summed = products.form()
    if summed is not None:
        yield from (composed(summed, x) for x in lane_forms(summed.kernel, target))
        yield from _on_diagonals(summed, target, None, every_axis)


def _axes(result: Nest, target: Target, every: bool) -> list[For]:
    """The loops of a result along which a diagonal may lie: every one, or those that fill blocks
    best, in any unit."""
    sizes = [lanes[0] for lanes in lane_choices(target)]
    if every or not sizes:
        return list(result.axes)
    wastes = [{x.var: _waste(x.extent, n) for x in result.axes} for n in sizes]
    return [x for x in result.axes if any(w[x.var] == min(w.values()) for w in wastes)]


def _waste(extent: object, lanes: int) -> float:
    """Blocks of lanes for each iteration of a loop."""
    return -(-extent // lanes) / extent if isinstance(extent, int) and extent else math.inf


def _with_columns(summed: UnitForm) -> Iterator[UnitForm]:
    """A form with its factors as a matrix of one column."""
    columns = with_single_columns(summed.kernel)
    if columns is not None:
        yield from _and_packed(composed(summed, columns))


def _and_packed(form: UnitForm) -> Iterator[UnitForm]:
    """A form, and the same with all that its products add up along one loop; or with those loops
    alone that one factor goes along, which then is not there again for each of several others."""
    yield form
    nest = next(n for n in nests(form.kernel.body) if n.update is not None)
    assert nest.update is not None
    if len(nest.reduce) < 2:
        return
    yield composed(form, pack(form.kernel, nest))
    pair = guarded_factors(nest.update.value)
    assert pair is not None
    along = ({v for i in x.indices for v in variables(i)} for x in pair)
    own = ([x.var for x in nest.reduce if x.var in used] for used in along)
    few = min(own, key=lambda loops: (len(loops) < 2, len(loops)))
    if 1 < len(few) < len(nest.reduce):
        yield composed(form, pack(form.kernel, nest, few))


def _on_diagonals(
    summed: UnitForm, target: Target, axis: For | None, every_axis: bool
) -> Iterator[UnitForm]:
    """A form with its factors on a diagonal along each axis, those first that fill whole blocks
    best, or along the one that is given: arrays that others made lie in blocks along one of
    them."""
    kernel = summed.kernel
    nest = next(n for n in nests(kernel.body) if n.update is not None)
    assert nest.update is not None
    pair = guarded_factors(nest.update.value)
    assert pair is not None
    data, factor = pair
    every = [(x, follow(kernel, x.var)) for x in nest.axes]
    fits = [a for _, a in every if a is not None and data.buffer in a.places]
    for sizes in lane_choices(target) if fits else ():
        best = sizes[0]
        least_waste = sorted(fits, key=lambda a: _waste(a.extent, best))
        if not every_axis:
            least = _waste(least_waste[0].extent, best)
            least_waste = [a for a in least_waste if _waste(a.extent, best) == least]
        for along in (a for a in least_waste if axis is None or axis.var in a.loops):
            full = next((n for n in sizes if along.extent % n == 0), best)
            if every_axis and along.extent % full and takes_lanes(target, along.extent):
                full = along.extent  # so that what is made lies as others take it
            for lanes in dict.fromkeys((best, full)):
                diagonal = Diagonal(kernel, nest, data, factor, along, lanes).form()
                yield from _and_packed(composed(summed, diagonal))


# ---------------------------------------------------------------- sums


@dataclass(frozen=True)
class _Sum:
    """What a result is made of: `value` has in it a `part` that is the sum of terms, elements and
    their factors, and a constant. Elements are added up by `nest`, or there is one of each."""

    result: Nest
    value: Expr
    part: Expr
    terms: tuple[tuple[Expr, int], ...]
    constant: int
    nest: Nest | None
    factor: int = 1  # of the terms, which multiplies their sum

    def multiplied(self) -> _Sum:
        """The same with the factor in the terms."""
        return replace(self, terms=tuple((e, k * self.factor) for e, k in self.terms), factor=1)

    def unrolled(self) -> _Sum | None:
        """The same without a nest: each iteration of what that adds up is terms of its own; None
        where those are more than a sum may have, or no nest's subscripts."""
        nest = self.nest
        if nest is None:
            return self
        counts = [int(x.extent) for x in nest.reduce if isinstance(x.extent, int)]
        axes = [i for i in nest.store.indices if isinstance(i, Var)]
        many = math.prod(counts) * len(self.terms)
        if many > TERMS or len(counts) < len(nest.reduce) or len(axes) < len(nest.store.indices):
            return None
        (read,) = loads(self.part)
        place: dict[Expr, Expr] = dict(zip(axes, read.indices, strict=True))
        terms = []
        for at in itertools.product(*map(range, counts)):
            here = {x.var: const(n) for x, n in zip(nest.reduce, at, strict=True)}
            terms += [(substitute(e, {**place, **here}), k) for e, k in self.terms]
        return replace(self, terms=tuple(terms), nest=None)

    def with_constant_term(self, kind: DType) -> _Sum:
        """The same with the constant as a factor of 1."""
        one = const(1, kind)
        return replace(self, terms=(*self.terms, (one, self.constant)), constant=0)

    @property
    def interval(self) -> Interval:
        """Between which numbers the sum is."""
        times = [x.extent for x in self.nest.reduce] if self.nest is not None else []
        count = math.prod(n for n in times if isinstance(n, int))
        each = ((value_range(e, {}), k) for e, k in self.terms)
        ends = [sorted((k * least, k * most)) for (least, most), k in each]
        low, high = (sum(each) * count for each in zip(*ends, strict=True))
        low, high = sorted((low * self.factor, high * self.factor))
        return self.constant + low, self.constant + high


def _find_sum(kernel: Kernel, unit: Unit) -> _Sum | None:
    """The sum of a kernel's only result; None where that is made of anything else."""
    every = nests(kernel.body)
    results = [n for n in every if n.buffer in kernel.outputs]
    if len(results) != 1 or len(results[0].writes) > 1 or results[0].update is not None:
        return None
    (result,) = results
    kind, sums = unit.left.buffer.dtype, unit.update.buffer.dtype
    value = result.store.value
    wide = _wide(value, sums)
    found = _part(wide, kind, sums) if wide is not None else None
    if wide is None or found is None:
        return None
    part, terms = found
    value = wide if value.dtype == sums else Cast(value.dtype, wide)
    constant = terms.pop(None, 0)
    first = next(iter(terms))
    if len(terms) == 1 and isinstance(first, Load) and first.dtype == sums:
        nest = next((n for n in every if n.buffer == first.buffer), None)
        inner_terms = _added_up(nest, kind, sums) if nest is not None and len(every) == 2 else None
        if inner_terms is None or nest is None:
            return None
        if not all(e is not None and e.dtype == kind for e in inner_terms):
            return None
        pairs = [(e, k) for e, k in inner_terms.items() if e is not None]
        return _sum(result, value, part, pairs, constant, nest, terms[first])
    plain = all(e is not None and e.dtype == kind for e in terms) and len(every) == 1
    pairs = [(e, k) for e, k in terms.items() if e is not None]
    return _sum(result, value, part, pairs, constant, None) if plain else None


def _sum(
    result: Nest,
    value: Expr,
    part: Expr,
    terms: Sequence[tuple[Expr, int]],
    constant: int,
    nest: Nest | None,
    factor: int = 1,
) -> _Sum | None:
    """The sum, with what all factors have in common beside them. Numbers wrap around as sums do."""
    terms = [(e, _wrapped(k, part.dtype)) for e, k in terms]
    common = math.gcd(*(k for _, k in terms))
    if not common:
        return None
    each = tuple((e, k // common) for e, k in terms)
    factor, constant = (_wrapped(n, part.dtype) for n in (common * factor, constant))
    return _Sum(result, value, part, each, constant, nest, factor)


def _wrapped(number: int, dtype: DType) -> int:
    """A number as a type of integers with a sign holds it."""
    return (number - int(dtype.min)) % (1 << dtype.bits) + int(dtype.min)


def _wide(value: Expr, dtype: DType) -> Expr | None:
    """What a value is before it is cut off, in a type."""
    if isinstance(value, Cast) and value.a.dtype == dtype:
        return value.a
    found = widened(value, dtype)
    return None if found is None else found[0]


def _added_up(nest: Nest, kind: DType, sums: DType) -> dict[Expr | None, int] | None:
    """The terms of what a nest adds up, from 0."""
    first = nest.store.value
    update = nest.update
    if update is None or update.op is not BinaryOp.ADD or len(nest.writes) != 2:
        return None
    if not isinstance(first, Const) or first.value != 0:
        return None
    terms = constant_terms(update.value, kind, sums)
    return terms if terms and None not in terms else None


def _part(e: Expr, kind: DType, sums: DType) -> tuple[Expr, dict[Expr | None, int]] | None:
    """The largest part of a value that is a sum of terms, if all that it reads is in there."""
    terms = constant_terms(e, kind, sums)
    if terms is not None and any(x is not None for x in terms):
        return e, terms
    if isinstance(e, Load):
        return None
    reading = [x for x in e.children() if isinstance(x, Expr) and any(True for _ in loads(x))]
    varying = [x for x in reading if any(map(_varies, loads(x)))]  # others are one number
    reading = varying or reading
    return _part(reading[0], kind, sums) if len(reading) == 1 else None


def _varies(read: Load) -> bool:
    """Whether an array has more than one number."""
    return any(n != 1 for n in read.buffer.shape)


def constant_terms(e: Expr, kind: DType, sums: DType) -> dict[Expr | None, int] | None:
    """A value of the sums' type as elements of a type with their factors, and a constant (None).
    What is added up in a narrower type wraps around there, and is no sum of these."""
    if e.dtype != sums:
        return None
    if isinstance(e, Const):
        whole = e.dtype.is_integer or float(e.value).is_integer()
        return {None: int(e.value)} if whole else None
    if isinstance(e, Load):
        return {e: 1}
    if isinstance(e, Cast) and e.a.dtype == kind and _element(e.a) is not None:
        return {without_casts(e): 1}
    if isinstance(e, Unary) and e.op is UnaryOp.NEG:
        return _scaled(constant_terms(e.a, kind, sums), -1)
    if not isinstance(e, Binary):
        return None
    a, b = constant_terms(e.a, kind, sums), constant_terms(e.b, kind, sums)
    if a is None or b is None:
        return None
    if e.op in (BinaryOp.ADD, BinaryOp.SUB):
        sign = 1 if e.op is BinaryOp.ADD else -1
        return {x: a.get(x, 0) + sign * b.get(x, 0) for x in dict.fromkeys((*a, *b))}
    if e.op is BinaryOp.MUL and (set(a) == {None} or set(b) == {None}):
        return _scaled(b, a[None]) if set(a) == {None} else _scaled(a, b[None])
    if e.op is BinaryOp.SHL and set(b) == {None} and 0 <= b[None] < 31:
        return _scaled(a, 1 << b[None])
    return None


def _scaled(terms: dict[Expr | None, int] | None, by: int) -> dict[Expr | None, int] | None:
    return terms if terms is None else {x: k * by for x, k in terms.items()}


def _element(e: Expr) -> Load | None:
    """The read of an element, 0 where a condition does not hold."""
    e = without_casts(e)
    if isinstance(e, Select) and isinstance(e.b, Const) and e.b.value == 0:
        e = without_casts(e.a)
    return e if isinstance(e, Load) else None


# ---------------------------------------------------------------- the form


class _Products:
    """A kernel's sum as products with factors. With `addend` its constant is an array, along that
    axis or of one number for all lanes, that sums begin with; with `clip` what follows is limited
    to what it is anyway, as a unit may want it."""

    def __init__(
        self, kernel: Kernel, found: _Sum, unit: Unit, *, addend: For | None, clip: bool
    ) -> None:
        self.kernel, self.sum, self.addend, self.clip = kernel, found, addend, clip
        self.type, self.factor_type = unit.update.buffer.dtype, unit.right.buffer.dtype
        self.names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        self.terms = [(e, piece) for e, k in found.terms for piece in _pieces(k, self.factor_type)]

    def form(self) -> UnitForm | None:
        """The kernel in that form; None where it has none."""
        elements = list(dict.fromkeys(e for e, _ in self.terms))
        value = self._limited(self.sum.value) if self.clip else self.sum.value
        if value is None or not 0 < len(self.terms) <= TERMS:
            return None
        arrays: dict[str, MadeArray] = {}
        data = self._data(elements, arrays)
        if data is None:
            return None
        factors = self._constants("factors", [k for _, k in self.terms], self.factor_type, arrays)
        term = Var(fresh("term", self.names))
        many = len(self.terms) > 1
        place: Expr = term if many else const(0)
        element = substitute(data, {_TERM: place})
        product = cast(self.type, element) * cast(self.type, Load(factors, (place,)))
        body, sums = self._sums(product, term if many else None)
        beside = {x.buffer for x in loads(value)} - {x.buffer for x in loads(self.sum.part)}
        inputs = {x.buffer for x in loads(element)} | beside | {factors}
        result = self._result(value, sums, inputs, arrays)
        kept = [b for b in self.kernel.inputs if b in inputs]
        new = sorted(inputs - set(kept), key=lambda b: b.name)
        kernel = self.kernel.with_(inputs=(*kept, *new), body=(*body, result))
        return UnitForm(kernel, arrays)

    def _data(self, elements: Sequence[Expr], arrays: dict[str, MadeArray]) -> Expr | None:
        """An element of the term's array: of the only one that there is, or of one that has all
        arrays, one after the other."""
        if len(elements) == 1:
            return elements[0]
        reads = [x for e in elements for x in loads(e)]
        if not all(x.buffer in self.kernel.inputs for x in reads):
            return None
        shapes, places = {x.buffer.shape for x in reads}, {x.indices for x in reads}
        plain = all(isinstance(e, (Load, Const)) for e in elements)
        if not plain or len(shapes) > 1 or len(places) > 1:
            return self._side_by_side(arrays) if self.sum.nest is None else None
        ((at,), (shape,)) = places, shapes
        order = [e for e, _ in self.terms]
        sources = list(dict.fromkeys(x.buffer for x in reads))
        name = fresh("_".join(b.name for b in sources), self.names)
        held = Buffer(name, order[0].dtype, (len(order), *shape))

        def value(*index: Expr) -> Expr:
            here = (Load(e.buffer, index[1:]) if isinstance(e, Load) else e for e in order)
            return one_of(index[0], list(here))

        sizes = (len(order), *(int(n) for n in shape))
        arrays[name] = made(f"{name}_terms", sizes, sources, value)
        return Load(held, (_TERM, *at))

    def _side_by_side(self, arrays: dict[str, MadeArray]) -> Expr:
        """An element of the array that has all terms of each result."""
        axes = self.sum.result.axes
        order = [e for e, _ in self.terms]
        sources = list(dict.fromkeys(x.buffer for e in order for x in loads(e)))
        sizes = (len(order), *(int(x.extent) for x in axes if isinstance(x.extent, int)))
        name = fresh("_".join(b.name for b in sources), self.names)

        def value(*index: Expr) -> Expr:
            here: dict[Expr, Expr] = dict(zip((x.var for x in axes), index[1:], strict=True))
            return one_of(index[0], [substitute(e, here) for e in order])

        arrays[name] = made(f"{name}_terms", sizes, sources, value)
        return Load(Buffer(name, order[0].dtype, sizes), (_TERM, *(x.var for x in axes)))

    def _constants(
        self, name: str, values: Sequence[int], dtype: DType, arrays: dict[str, MadeArray]
    ) -> Buffer:
        """An array of numbers."""
        name = fresh(name, self.names)

        def value(at: Expr) -> Expr:
            return one_of(at, [const(v, dtype) for v in values])

        arrays[name] = made(f"{name}_values", (len(values),), [], value)
        return Buffer(name, dtype, (len(values),))

    def _sums(self, product: Expr, term: Var | None) -> tuple[Block, Load]:
        """The nest that adds up the products, and its sum where the result reads it."""
        nest, result = self.sum.nest, self.sum.result
        if nest is not None:
            update = nest.update
            assert update is not None
            (read,) = loads(self.sum.part)
            (stmt,) = replace_in((nest.stmt,), update, _around(update.with_(value=product), term,
                                                        len(self.terms)))  # fmt: skip
            return (Alloc(nest.buffer), stmt), read
        axes = list(result.axes)
        renamed: dict[Expr, Expr] = {x.var: Var(fresh(x.var.name, self.names)) for x in axes}
        shape = tuple(x.extent for x in axes)
        sums = Buffer(fresh("sums", self.names), self.type, shape)
        at = tuple(renamed[x.var] for x in axes)
        update = Accumulate(sums, at, BinaryOp.ADD, substitute(product, renamed))
        body: Block = (Store(sums, at, const(0, self.type)), _around(update, term, len(self.terms)))
        for x in reversed(axes):
            var = renamed[x.var]
            assert isinstance(var, Var)
            body = (x.with_(var=var, body=body),)
        return (Alloc(sums), *body), Load(sums, tuple(x.var for x in axes))

    def _result(
        self, value: Expr, sums: Load, inputs: set[Buffer], arrays: dict[str, MadeArray]
    ) -> Stmt:
        """The nest of the result, of the sum."""
        result = self.sum.result
        factor = self.sum.factor
        total: Expr = sums if factor == 1 else sums * const(factor, self.type)
        if self.addend is not None:
            extent = self.addend.extent
            assert isinstance(extent, int)
            numbers = self._same("addend", extent, self.sum.constant, arrays)
            inputs.add(numbers)
            place = const(0) if self.addend is ALL else self.addend.var
            total = total + Load(numbers, (place,))
        elif self.sum.constant:
            total = total + const(self.sum.constant, self.type)
        new = substitute(value, {self.sum.part: total})
        (stmt,) = replace_in((result.stmt,), result.store, result.store.with_(value=new))
        return stmt

    def _same(self, name: str, extent: int, number: int, arrays: dict[str, MadeArray]) -> Buffer:
        """An array of one number."""
        name = fresh(name, self.names)
        arrays[name] = made(f"{name}_values", (extent,), [], lambda _: const(number, self.type))
        return Buffer(name, self.type, (extent,))

    def _limited(self, value: Expr) -> Expr | None:
        """The value limited to the range of its type; None where that is not known to be the same,
        or is said already."""
        if not isinstance(value, Cast) or not value.dtype.is_integer:
            return None
        inner, low, high = value.a, int(value.dtype.min), int(value.dtype.max)
        said = isinstance(inner, Binary) and inner.op in (BinaryOp.MIN, BinaryOp.MAX)
        known = {self.sum.part: self.sum.interval}
        overflows = not within(self.sum.interval, (int(self.type.min), int(self.type.max)))
        if said or overflows or not within(value_range(inner, known), (low, high)):
            return None
        return between(inner, low, high, value.dtype)


_TERM = Var("term?")  # stands for the term's number until that is known


def _pieces(factor: int, kind: DType) -> list[int]:
    """A factor as the sum of numbers of a type."""
    found: list[int] = []
    while factor and len(found) <= TERMS:
        found.append(max(int(kind.min), min(int(kind.max), factor)))
        factor -= found[-1]
    return found


def _around(stmt: Stmt, term: Var | None, count: int) -> Stmt:
    return stmt if term is None else For(term, count, (stmt,))
