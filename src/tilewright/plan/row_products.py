"""Products among element-wise work: sums that a matrix unit makes in the middle of a kernel, of a
tile's rows and of a factor that all tiles have in common.

    scores[i, j] += Q[i, k] * K[j, k]        Q: rows of the tile; K: all of it, in the unit's blocks
    weights[i, j] = softmax(scores)[i, j]    rows in a chip's memory
    Y[i, k] += weights[i, j] * V[j, k]       rows that were made in the tile; V: all of it
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, factors, nests
from tilewright.ir.expr import BinaryOp, Expr, Load, Var
from tilewright.ir.loop import Kernel
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.split_kernel import is_contraction
from tilewright.plan.unit_plan import position_of
from tilewright.plan.units import AxisMapping, Unit, mappings, units
from tilewright.target.target import Target


@dataclass(frozen=True)
class RowProduct:
    """How a unit does a nest: each factor with the unit's operand for it. Rows lie along `column`
    in the result, and along `term`, a loop of the sums, in the first factor."""

    mapping: AxisMapping
    rows: Load
    common: Load
    column: Var
    term: Var

    @property
    def unit(self) -> Unit:
        return self.mapping.unit

    @property
    def operands(self) -> tuple[tuple[Load, Load], tuple[Load, Load]]:
        """The factors of rows, and the common one, each with the unit's operand."""
        return (self.rows, self.unit.left), (self.common, self.unit.right)


def find_product(nest: Nest, target: Target, common: Collection[str]) -> RowProduct | None:
    """The way for one of a target's units to do a nest that adds up products of two arrays, if
    its loops fill the unit, and the factor that rows have in common is an array named in `common`;
    None otherwise."""
    return next((p for p in _products(nest, target, common) if p.mapping.waste == 1), None)


def fill_products(kernel: Kernel, target: Target) -> Kernel | None:
    """The kernel with loops of its products that fill a unit; None where none does one of them.
    ScheduleError where what is added would change what others compute."""
    extents: dict[Var, int] = {}
    inputs = [b.name for b in kernel.inputs]
    for nest in (n for n in nests(kernel.body) if is_contraction(n)):
        product = min(_products(nest, target, inputs), key=lambda p: p.mapping.waste, default=None)
        if product is None or product.mapping.waste == math.inf:
            return None
        extents |= product.mapping.extents
    return fill_kernel(kernel, extents)


def _products(nest: Nest, target: Target, of: Collection[str]) -> Iterator[RowProduct]:
    """The ways for units to do a nest, with an array named in `of` as the common factor."""
    update = nest.update
    pair = factors(update.value) if update is not None and update.op is BinaryOp.ADD else None
    if update is None or pair is None:
        return
    for unit in units(target):
        for mapping in mappings(nest, unit) if not unit.whole else ():
            rows, common = pair[::-1] if mapping.swapped else pair
            lanes = _lanes(mapping, unit)
            if lanes is None or common.buffer.name not in of:
                continue
            if not _has_types(nest, rows, common, unit):
                continue
            column, term = lanes
            if _alone(column, update.indices) and _alone(term, rows.indices):
                yield RowProduct(mapping, rows, common, column, term)


def _has_types(nest: Nest, rows: Load, common: Load, unit: Unit) -> bool:
    """Whether factors and sums are of the types that a unit takes and makes."""
    found = (rows.buffer, common.buffer, nest.buffer)
    return all(b.dtype == x.buffer.dtype for b, x in zip(found, unit.operands, strict=True))


def _lanes(mapping: AxisMapping, unit: Unit) -> tuple[Var, Var] | None:
    """The loops along which a unit's result and its first factor lie innermost."""
    loops = {axis: loop.var for axis, loop in mapping.axes}
    found = [loops.get(v) for x in (unit.result, unit.left) for v in variables(x.indices[-1])]
    if len(found) != 2 or found[0] is None or found[1] is None:
        return None
    return found[0], found[1]


def _alone(var: Var, indices: Sequence[Expr]) -> bool:
    """Whether no other loop is in a subscript that a loop is in."""
    return all(variables(i) == {var} for i in indices if var in variables(i))


def common_layout(product: RowProduct) -> Layout:
    """How the common factor lies: in the blocks that a call takes, those that are next to each
    other in the loops of the result outermost."""
    access, operand = product.operands[1]
    loops = {axis: loop.var for axis, loop in product.mapping.axes}
    axes = [v for i in operand.indices for v in variables(i) if v in loops]
    blocks = [(position_of(access.indices, loops[v]), product.unit.size(v)) for v in axes]
    column = position_of(access.indices, product.column)
    rest = [p for p in range(len(access.indices)) if p != column]
    return Layout((column, *rest), tuple(blocks))
