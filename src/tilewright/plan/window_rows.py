"""Windows in rows that overlap, for units that take their rows from where arrays are passed: all
that a window has along one axis lies side by side, and the next window begins a step later.

    for y, x:                                     for y, x:
      for c, r, s:                          ->      for k:
        Y[y, x] += X[c, y + r, x + s] * …             Y[y, x] += T[y, x * 3 * C + k] * …

T[y, (x, r, c)] is X[c, y + r, x]: three times X where a window has three rows, and not nine times.
The host makes T of an input; of an array that another product made, a kernel of its own does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.linear import linear
from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import replace_in
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import (
    DRAM,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Compare,
    Expr,
    Load,
    Var,
    cast,
    const,
)
from tilewright.ir.loop import For, Kernel, Stmt, Store, loads
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.plan.packed_windows import Packed, sliding, summed_loops
from tilewright.plan.unit_form import (
    MadeArray,
    UnitForm,
    converted,
    fresh,
    made,
    places_along,
    reads_alone,
)
from tilewright.plan.units import units
from tilewright.target.target import Target


@dataclass(frozen=True)
class Rows:
    """How a factor's windows lie in rows: they move by `step` elements along the loop `axis`, and
    have an element for each iteration of `within`."""

    factor: Expr
    axis: For
    within: For
    step: int

    @property
    def length(self) -> int:
        """Elements along the row, of each of the window's other places."""
        return self.step * (int(self.axis.extent) - 1) + int(self.within.extent)

    def at(self, element: Expr, place: Expr) -> Expr:
        """The element at a place of the row."""
        names = {self.axis.var: const(0), self.within.var: place}
        return Simplifier()(substitute(element, names))


def find_rows(nest: Nest, factor: Expr) -> Rows | None:
    """The innermost subscript of a factor along which windows slide, whatever else depends on its
    two loops; None where there is none."""
    reads = list(loads(factor))
    axes = {x.var: x for x in nest.axes}
    summed = {x.var: x for x in summed_loops(nest)}
    for i in reversed(reads[0].indices if len(reads) == 1 else ()):
        along = [v for v in variables(i) if v in axes]
        within = [v for v in variables(i) if v in summed]
        if len(along) != 1 or len(within) != 1:
            continue
        form = linear(i)
        step = form.get(along[0], 0)
        if form.get(within[0]) != 1 or step < 1:
            continue
        if _together(factor, along[0], within[0], step):
            return Rows(factor, axes[along[0]], summed[within[0]], step)
    return None


def _together(e: Expr, axis: Var, within: Var, step: int) -> bool:
    """Whether all that depends on two loops depends on step * axis + within, in subscripts and what
    is compared."""
    parts = [i for x in loads(e) for i in x.indices]
    parts += [side for x in e.walk() if isinstance(x, Compare) for side in (x.a, x.b)]
    forms = [linear(p) for p in parts if variables(p) & {axis, within}]
    inside = sum(x in (axis, within) for p in parts for x in p.walk())
    return (
        inside == sum(x in (axis, within) for x in e.walk())
        and all(form.get(axis, 0) == step * form.get(within, 0) for form in forms)
        and not any(
            variables(atom) & {axis, within}
            for form in forms for atom in form if atom is not None and not isinstance(atom, Var)
        )
    )  # fmt: skip


# ---------------------------------------------------------------- of inputs


def row_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with one loop for all that a contraction of two inputs adds up, and one factor's
    windows in rows, where a unit takes rows from a memory outside of the chip."""
    operands = (x.buffer for u in units(target) for x in (u.left, u.right))
    if any(target.memory(b.memory).size is None for b in operands):
        for nest in sliding(kernel, target):
            rows = next((r for e in _factors(nest) if (r := find_rows(nest, e)) is not None), None)
            if rows is not None:
                yield _PackedRows(kernel, nest, rows).form()


def _factors(nest: Nest) -> tuple[Expr, ...]:
    """The factors of a contraction, as it has them."""
    value = nest.update.value if nest.update is not None else None
    if not isinstance(value, Binary) or value.op is not BinaryOp.MUL:
        return ()
    return value.a, value.b


class _PackedRows(Packed):
    def __init__(self, kernel: Kernel, nest: Nest, rows: Rows) -> None:
        self.rows = rows
        super().__init__(kernel, nest, None, like=rows.factor)
        others = [x for x in self.reduce if x is not rows.within]
        self.use([rows.within, *others])

    def _factor(self, factor: Expr) -> tuple[Expr, str, Buffer, MadeArray]:
        if factor is not self.rows.factor:
            return super()._factor(factor)
        (read,) = loads(factor)
        element = converted(factor)
        around = [x for x in self.nest.axes if x.var in variables(element)]
        around.remove(self.rows.axis)
        others, sizes = self.reduce[1:], self.extents[1:]
        inner = math.prod(sizes)
        shape = [*(int(x.extent) for x in around), self.rows.length * inner]

        def value(*at: Expr) -> Expr:
            names = [*(x.var for x in around), *(x.var for x in others)]
            place, *inside = places_along(at[-1], [self.rows.length, *sizes])
            found = dict(zip(names, [*at[:-1], *inside], strict=True))
            return substitute(self.rows.at(element, place), found)

        packed = read.buffer.with_(dtype=element.dtype, shape=tuple(shape))
        begin = self.rows.axis.var * (self.rows.step * inner)
        place = Load(packed, (*(x.var for x in around), begin + self.one))
        array = made(f"{read.buffer.name}_rows", shape, [read.buffer], value)
        return cast(factor.dtype, place), read.buffer.name, packed, array


# ---------------------------------------------------------------- of what passes between kernels


def rows_apart(kernel: Kernel, name: str) -> tuple[Kernel, Kernel] | None:
    """A kernel that makes rows of windows of an input, and the given one, which reads those in its
    place; None where no contraction alone has windows of it."""
    for nest in nests(kernel.body):
        mine = [e for e in _factors(nest) if any(x.buffer.name == name for x in loads(e))]
        if len(mine) != 1 or not reads_alone(kernel, nest.writes[-1], next(loads(mine[0])).buffer):
            continue
        rows = find_rows(nest, mine[0])
        if rows is not None:
            return _apart(kernel, nest, rows)
    return None


def _apart(kernel: Kernel, nest: Nest, rows: Rows) -> tuple[Kernel, Kernel]:
    assert nest.update is not None
    (read,) = loads(rows.factor)
    once = {x.var: const(0) for x in nest.reduce if x.extent == 1}
    element = Simplifier()(substitute(converted(rows.factor), once))
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    used = variables(element)
    around = [x for x in nest.axes if x.var in used and x is not rows.axis]
    places = {v: d for d, i in enumerate(read.indices) for v in variables(i)}
    inner = [x for x in summed_loops(nest) if x.var in used and x is not rows.within]
    inner.sort(key=lambda x: -places.get(x.var, -1))
    place = Var(fresh(rows.axis.var.name, names))
    loops = [*around, For(place, rows.length, ()), *inner]
    array = Buffer(
        fresh(f"{read.buffer.name}_rows", names),
        element.dtype,
        tuple(x.extent for x in loops),
        DRAM,
    )
    store = Store(array, tuple(x.var for x in loops), rows.at(element, place))
    if around:
        both = Var(fresh(f"{around[-1].var.name}_{place.name}", names))
        along = loops[len(around)]
        one = _in_one(store, around[-1], along, both)
        if one is not None:
            store = one
            length = int(around[-1].extent) * rows.length
            loops = [*around[:-1], For(both, length, ()), *inner]
    stmt: Stmt = store
    for x in reversed(loops):
        stmt = x.with_(body=(stmt,))
    copy = kernel.with_(
        name=f"{kernel.name}_rows",
        inputs=tuple(x.buffer for x in loads(store.value)),
        outputs=(store.buffer,),
        scratch=(),
        body=(stmt,),
    )
    at = rows.axis.var * rows.step + rows.within.var
    new = Load(array, (*(x.var for x in around), at, *(x.var for x in inner)))
    value = rewrite(nest.update.value, lambda e: _replaced(e, rows.factor, new))
    body = replace_in(kernel.body, nest.update, nest.update.with_(value=value))
    inputs = tuple(array if b == read.buffer else b for b in kernel.inputs)
    return copy, kernel.with_(inputs=inputs, body=body)


def _replaced(e: Expr, factor: Expr, new: Load) -> Expr:
    if e != factor:
        return e
    return cast(factor.dtype, new) if isinstance(factor, Cast) else new


def _in_one(stmt: Store, down: For, along: For, both: Var) -> Store | None:
    """A copy of elements with whole rows and those below as one loop, where they follow each other
    in both arrays: fewer instructions do it then. None elsewhere."""
    read, n = stmt.value, along.extent
    if not isinstance(read, Load) or along.var not in read.indices or not isinstance(n, int):
        return None
    p = read.indices.index(along.var)
    above = read.indices[p - 1] if p else None
    elsewhere = {v for i in read.indices if i is not above for v in variables(i)}
    if above is None or read.buffer.shape[p] != n or down.var in elsewhere:
        return None
    if linear(above).get(down.var) != 1:
        return None

    def joined(x: Load, p: int, place: Expr) -> Load:
        """An access of an array of which two neighbouring axes are one."""
        shape = (*x.buffer.shape[: p - 1], x.buffer.shape[p - 1] * n, *x.buffer.shape[p + 1 :])
        at = (*x.indices[: p - 1], place, *x.indices[p + 1 :])
        return Load(x.buffer.with_(shape=shape), at)

    first = Simplifier()(substitute(above, {down.var: const(0)}))
    source = joined(read, p, first * n + both)
    result = joined(Load(stmt.buffer, stmt.indices), stmt.indices.index(along.var), both)
    return Store(result.buffer, result.indices, source)
