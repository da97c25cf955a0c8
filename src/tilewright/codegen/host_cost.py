"""What a kernel does in one call, counted on its tensor expression: for `explain`, and for bounds.

An operation is one arithmetic operator on elements (a multiply-add is two); arithmetic on
subscripts is not counted, nor are conversions and choices. Every buffer is taken to be read or
written once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.host_plan import KernelCost
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Binary, Compare, Dim, Expr, Load, Select, Unary, as_expr, product
from tilewright.ir.tensor import Item, Stage, TensorProgram


def kernel_cost(program: TensorProgram) -> KernelCost:
    """The cost of a kernel with this meaning, over the model's symbols."""
    buffers = dict.fromkeys((*program.inputs, *program.outputs))
    moved: Dim = 0
    for buffer in buffers:
        moved = moved + product((*buffer.shape, buffer.dtype.bytes))
    return KernelCost(canonical(_operations(program.items)), canonical(moved))


def _operations(items: Sequence[Item]) -> Dim:
    total: Dim = 0
    for item in items:
        if isinstance(item, Stage):
            each = _count(item.value) + (item.op is not None)
            places = product(tuple(a.extent for a in (*item.axes, *item.reduce)))
            total = total + as_expr(places) * each
        else:
            total = total + as_expr(item.step.extent) * _operations(item.items)
    return total


def _count(e: Expr) -> int:
    """Operators between the elements that `e` reads."""
    if isinstance(e, Load):
        return 0
    if isinstance(e, Select):
        return max(_count(e.a), _count(e.b))
    inner = sum(_count(child) for child in e.children() if isinstance(child, Expr))
    return inner + isinstance(e, (Unary, Binary, Compare))
