"""Windows that the host puts side by side (im2col), for units that add up along one loop: all loops
of a sum as one.

    for y, x:                                     for y, x:
      for c, r, s:                          ->      for k:
        Y[y, x] += X[c, 2 * y + r, …] * W[c, r, s]    Y[y, x] += P[y, x, k] * V[k]

A picture of three channels would leave most of a unit idle that adds up sixteen; what it costs is
that elements are brought once for each window that has them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from tilewright.analyze.nests import Nest, nests
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Select, Var, cast
from tilewright.ir.loop import Block, For, Kernel, Stmt, loads, map_block, map_inner_blocks
from tilewright.ir.substitute import substitute, variables
from tilewright.plan.borders import choose_borders
from tilewright.plan.rates import most_a_cycle
from tilewright.plan.unit_form import (
    MadeArray,
    UnitForm,
    converted,
    fresh,
    made,
    places_along,
    reads_alone,
)
from tilewright.plan.units import mappings, units
from tilewright.target.target import Target

FULL = 0.97  # of what a unit does in a cycle: no other form does more


def packed_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with windows side by side, where a contraction of two inputs adds up along loops
    of which some share a subscript with the result's, and leaves some of the units idle."""
    yield from (pack(kernel, nest) for nest in sliding(kernel, target))


def sliding(kernel: Kernel, target: Target) -> Iterator[Nest]:
    """The contractions of two inputs, one of which they read in windows, that leave some of the
    units idle."""
    wider, _ = choose_borders(kernel, target)
    full = {n.buffer.name for n in nests(wider.body) if _fills_unit(n, target)}
    for nest in nests(kernel.body):
        update = nest.update
        if nest.buffer.name in full:
            continue
        if update is None or update.op is not BinaryOp.ADD or not summed_loops(nest):
            continue
        if isinstance(update.value, Binary) and update.value.op is BinaryOp.MUL:
            pair = [_read(kernel, e) for e in (update.value.a, update.value.b)]
            windows = any(_is_window(x, nest) for x in pair if x is not None)
            alone = all(b is not None and reads_alone(kernel, update, b) for b in pair)
            if alone and windows and pair[0] != pair[1]:
                yield nest


def _fills_unit(nest: Nest, target: Target) -> bool:
    """Whether loops can be the axes of a unit that does most as they are, without any idle. Units
    that do whole operators may still want more than that."""
    extents = {x.var: x.extent for x in (*nest.axes, *nest.reduce) if isinstance(x.extent, int)}
    parts = (u for u in units(target) if not u.whole)
    found = [m for unit in parts for m in mappings(nest, unit) if m.waste < math.inf]
    rates = (m.most_a_cycle(extents) / most_a_cycle(m.unit.instruction) for m in found)
    return max(rates, default=0.0) >= FULL


def pack(kernel: Kernel, nest: Nest, loops: Collection[Var] | None = None) -> UnitForm:
    """The kernel with one loop for all that a contraction of two inputs adds up, or for those of
    its `loops`, which stand within the others."""
    return Packed(kernel, nest, loops).form()


def summed_loops(nest: Nest) -> list[For]:
    """The loops of a sum that run more than once."""
    return [x for x in nest.reduce if x.extent != 1]


def _read(kernel: Kernel, e: Expr) -> Buffer | None:
    """The input of which a factor is one element, or a number in its place."""
    inner = converted(e)
    inner = inner.a if isinstance(inner, Select) else inner
    found = list(loads(e))
    is_one = isinstance(inner, Load) and len(found) == 1 and inner.buffer in kernel.inputs
    return found[0].buffer if is_one else None


def _is_window(buffer: Buffer, nest: Nest) -> bool:
    """Whether loops of the sum and of the result share a subscript."""
    assert nest.update is not None
    axes, summed = ({x.var for x in loops} for loops in (nest.axes, summed_loops(nest)))
    reads = (x for x in loads(nest.update.value) if x.buffer == buffer)
    return any(variables(i) & axes and variables(i) & summed for x in reads for i in x.indices)


class Packed:
    """A kernel with one loop for those of a contraction that add up, `loops` or all: in the order
    in which the factor `like` has them, or else the first."""

    def __init__(
        self, kernel: Kernel, nest: Nest, loops: Collection[Var] | None, like: Expr | None = None
    ) -> None:
        assert nest.update is not None
        assert isinstance(nest.update.value, Binary)
        self.kernel, self.nest, self.update = kernel, nest, nest.update
        self.factors = (nest.update.value.a, nest.update.value.b)
        self.names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        (read,) = loads(self.factors[0] if like is None else like)
        places = {v: d for d, i in enumerate(read.indices) for v in variables(i)}
        self.around = [x for x in nest.reduce if loops is not None and x.var not in loops]
        # As a factor has them, which then may be packed by not touching it.
        packed = [x for x in nest.reduce if x not in self.around]
        self.use(sorted(packed, key=lambda x: places.get(x.var, -1)))
        names = (x.var.name for x in self.reduce if x.extent != 1)
        self.one = Var(fresh("_".join(names), self.names))

    def use(self, reduce: Sequence[For]) -> None:
        """Packs these loops, in this order."""
        self.reduce = list(reduce)
        self.extents = [int(x.extent) for x in self.reduce if isinstance(x.extent, int)]

    def form(self) -> UnitForm:
        """The kernel with one loop for the sum, and how its factors are made."""
        packed = [self._factor(e) for e in self.factors]
        product = packed[0][0] * packed[1][0]
        body: Block = (self.update.with_(value=product),)
        for x in (For(self.one, math.prod(self.extents), ()), *reversed(self.around)):
            body = (x.with_(body=body),)
        (loop,) = body
        summed = {x.var for x in self.nest.reduce}

        def replaced(stmt: Stmt) -> Stmt:
            if isinstance(stmt, For) and stmt.var in summed:
                return loop
            return map_inner_blocks(stmt, lambda block: map_block(block, replaced))

        new_body = tuple(replaced(x) if x is self.nest.stmt else x for x in self.kernel.body)
        new = {name: buffer for _, name, buffer, _ in packed}
        kernel = self.kernel.with_(
            inputs=tuple(new.get(b.name, b) for b in self.kernel.inputs), body=new_body
        )
        return UnitForm(kernel, {name: array for _, name, _, array in packed})

    def _factor(self, factor: Expr) -> tuple[Expr, str, Buffer, MadeArray]:
        """What a factor is in the kernel; the name of its input, that input as it is packed, and
        how it is made."""
        (read,) = loads(factor)
        element = converted(factor)
        own = (*self.nest.axes, *self.around)
        axes = [x for x in own if x.var in variables(element)]
        shape = tuple(int(x.extent) for x in axes if isinstance(x.extent, int))
        shape = (*shape, math.prod(self.extents))
        packed = read.buffer.with_(dtype=element.dtype, shape=shape)

        def value(*at: Expr) -> Expr:
            loops = [*(x.var for x in axes), *(x.var for x in self.reduce)]
            places = [*at[:-1], *places_along(at[-1], self.extents)]
            return substitute(element, dict(zip(loops, places, strict=True)))

        place = Load(packed, (*(x.var for x in axes), self.one))
        array = made(f"{read.buffer.name}_windows", shape, [read.buffer], value)
        return cast(factor.dtype, place), read.buffer.name, packed, array
