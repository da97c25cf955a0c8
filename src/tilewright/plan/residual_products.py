"""Residuals as products with the identity: what is added behind a convolution goes through the unit
that multiplies, instead of the instructions for what follows its sums.

    for o, y, x:                        for o, y, x:
      Z[o, y, x] = max(             ->    T[o, y, x] = S[o, y, x] + b[o] >> 7
        (S[o, y, x] + b[o] >> 7)          for k:
        + R[o, y, x], 0)                    T[o, y, x] += R[o // 16 * 16 + k, y, x] * I[o % 16, k]
                                        for o, y, x:
                                          Z[o, y, x] = max(T[o, y, x], 0)

S are sums of products; I is the identity, or another number on its diagonal where R has a factor. T
takes the place of S in the accumulators, so it has the same axes in the same order. Where a vector
unit loads R in a wider type and adds it, a unit of 16 columns takes R as it is, a row in a cycle.
One addition, the outermost, becomes a product; units of floats have no such form, since 0 times
infinity is no 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import replace_in
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var, cast, const, select
from tilewright.ir.loop import Accumulate, Alloc, For, Kernel, Stmt, Store, loads
from tilewright.ir.substitute import substitute, variables
from tilewright.plan.as_products import constant_terms
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh, made
from tilewright.plan.units import Unit, mappings, square_axes, units
from tilewright.target.target import Target


def residual_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel in that form, for each loop that can be the columns of a unit that multiplies by
    square matrices; none where nothing is added behind the sums."""
    every = nests(kernel.body)
    if len(every) != 2 or every[0].update is None or every[1].update is not None:
        return
    sums, result = every
    if len(result.writes) > 1 or result.buffer not in kernel.outputs:
        return
    for unit in units(target):
        square = square_axes(unit)
        if unit.whole or square is None:
            continue
        columns = {
            loop: None for m in mappings(sums, unit) for axis, loop in m.axes if axis == square[0]
        }
        for loop in columns:
            form = _form(kernel, sums, result, unit, square, loop)
            if form is not None:
                yield form


def _form(
    kernel: Kernel, sums: Nest, result: Nest, unit: Unit, square: tuple[Var, Var], loop: For
) -> UnitForm | None:
    found = _addition(result.store.value, kernel, sums.buffer, unit)
    if found is None:
        return None
    addition, residual, factor, before = found
    (read, *others) = dict.fromkeys(x for x in loads(before) if x.buffer == sums.buffer)
    column = _followed(sums, read, loop)
    size = unit.size(square[0])
    extents = {x.var: x.extent for x in result.axes}
    along = [d for d, i in enumerate(residual.indices) if column in variables(i)]
    if others or {*read.indices} != {*extents} or not isinstance(column, Var):
        return None  # each sum becomes one result
    if len(along) != 1 or residual.indices[along[0]] != column or int(extents[column]) % size:
        return None
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    renamed: dict[Expr, Expr] = {x.var: Var(fresh(x.var.name, names)) for x in result.axes}
    total = Load(Buffer(fresh("total", names), addition.dtype, sums.buffer.shape), read.indices)
    term, lane = Var(fresh("term", names)), renamed[column]
    at = tuple(substitute(i, renamed) for i in total.indices)
    place = [substitute(i, renamed) for i in residual.indices]
    place[along[0]] = lane // size * size + term
    identity = Buffer(fresh("identity", names), unit.right.buffer.dtype, (size, size))
    entry = (lane % size, term) if columns_first(unit, square) else (term, lane % size)
    product = cast(addition.dtype, Load(residual.buffer, tuple(place))) * cast(
        addition.dtype, Load(identity, entry)
    )
    body: tuple[Stmt, ...] = (
        Store(total.buffer, at, substitute(before, renamed)),
        For(term, size, (Accumulate(total.buffer, at, BinaryOp.ADD, product),)),
    )
    for x in reversed(result.axes):
        var = renamed[x.var]
        assert isinstance(var, Var)
        body = (x.with_(var=var, body=body),)
    value = substitute(result.store.value, {addition: total})
    last = replace_in((result.stmt,), result.store, result.store.with_(value=value))
    at_end = kernel.body.index(result.stmt)
    new = (*kernel.body[:at_end], Alloc(total.buffer), *body, *last, *kernel.body[at_end + 1 :])
    form = kernel.with_(inputs=(*kernel.inputs, identity), body=new)
    return UnitForm(form, {identity.name: diagonal_matrix(identity, factor)})


def _addition(
    value: Expr, kernel: Kernel, sums: Buffer, unit: Unit
) -> tuple[Expr, Load, int, Expr] | None:
    """The outermost addition of an input of the unit's first factor to what is made of sums: all of
    it, the input's read, by what that is multiplied, and the rest."""
    kind, low, high = unit.left.buffer.dtype, *_range(unit)
    for e in value.walk():
        if not isinstance(e, Binary) or e.op is not BinaryOp.ADD:
            continue
        if e.dtype != unit.update.buffer.dtype:
            continue
        for term, rest in ((e.a, e.b), (e.b, e.a)):
            terms = constant_terms(term, kind, e.dtype) or {}
            ((read, factor),) = terms.items() if len(terms) == 1 else ((None, 0),)
            if not isinstance(read, Load) or read.dtype != kind or read.buffer not in kernel.inputs:
                continue
            behind = any(x.buffer == sums for x in loads(rest)) and not isinstance(rest, Load)
            if behind and low <= factor <= high and factor:
                return e, read, factor, rest
    return None


def _range(unit: Unit) -> tuple[int, int]:
    """Between which numbers the unit's second factor can be; 0 alone where it is a float."""
    kind = unit.right.buffer.dtype
    return (int(kind.min), int(kind.max)) if kind.is_integer else (0, 0)


def _followed(sums: Nest, read: Load, loop: For) -> Expr | None:
    """The subscript of the sums' read that goes along a loop of theirs; None if none does alone."""
    places = [p for p, i in enumerate(sums.store.indices) if i == loop.var]
    return read.indices[places[0]] if len(places) == 1 else None


def columns_first(unit: Unit, square: tuple[Var, Var]) -> bool:
    """Whether the columns of a unit's square factor are its first axis."""
    order = [v for i in unit.right.indices for v in (*variables(i),) if v in square]
    return order[0] == square[0]


def diagonal_matrix(matrix: Buffer, number: int) -> MadeArray:
    """The values of a matrix with a number on its diagonal, and 0 elsewhere."""
    kind = matrix.dtype

    def value(row: Expr, column: Expr) -> Expr:
        return select(row.equals(column), const(number, kind), const(0, kind))

    return made(f"{matrix.name}_values", [int(n) for n in matrix.shape], [], value)
