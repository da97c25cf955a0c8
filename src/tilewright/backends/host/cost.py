"""What a kernel does in one call, counted on its tensor expression: for `explain`, and for bounds.

An operation is one arithmetic operator on elements (a multiply-add is two); arithmetic on
subscripts is not counted, nor are conversions and choices, and what an expression says twice is
computed once. An output is written once, and of an input is read once what subscripts can reach: a
row for each index of a gather is not counted, as it may be the same row each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.dims import canonical, least
from tilewright.ir.expr import (
    Binary,
    Buffer,
    Compare,
    Dim,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    as_expr,
    product,
)
from tilewright.ir.tensor import Axis, Item, Stage, TensorProgram


@dataclass(frozen=True)
class KernelCost:
    """Arithmetic operations, and bytes to and from memory."""

    operations: Dim
    bytes: Dim


def kernel_cost(program: TensorProgram) -> KernelCost:
    """The cost of a kernel with this meaning, over the model's symbols."""
    moved: Dim = 0
    for buffer in dict.fromkeys(program.outputs):
        moved = moved + product((*buffer.shape, buffer.dtype.bytes))
    reached: dict[Buffer, Dim] = {}
    for load, extents in _loads(program.items, {}):
        places = product(tuple(extents[v] for v in _subscript_variables(load)))
        reached[load.buffer] = reached.get(load.buffer, 0) + as_expr(places)
    for buffer in dict.fromkeys(program.inputs):
        if buffer not in program.outputs:
            elements = least(canonical(product(buffer.shape)), canonical(reached.get(buffer, 0)))
            moved = moved + product((elements, buffer.dtype.bytes))
    return KernelCost(canonical(_operations(program.items)), canonical(moved))


# ---------------------------------------------------------------- bytes


def _loads(items: Sequence[Item], outer: dict[Var, Dim]) -> Iterator[tuple[Load, dict[Var, Dim]]]:
    """Every distinct load of every stage, with the extents of the variables around it."""
    for item in items:
        if isinstance(item, Stage):
            extents = outer | _extents((*item.axes, *item.reduce))
            parts = [item.value, *item.indices, *([] if item.init is None else [item.init])]
            found = dict.fromkeys(e for part in parts for e in part.walk() if isinstance(e, Load))
            yield from ((load, extents) for load in found)
        else:
            yield from _loads(item.items, outer | _extents([item.step]))


def _extents(axes: Sequence[Axis]) -> dict[Var, Dim]:
    return {a.var: a.extent for a in axes}


def _subscript_variables(load: Load) -> tuple[Var, ...]:
    """The variables in a load's subscripts, but for those that only choose an index to load."""
    found: dict[Var, None] = {}
    pending: list[Expr] = list(load.indices)
    while pending:
        e = pending.pop()
        if isinstance(e, Var):
            found[e] = None
        elif not isinstance(e, Load):
            pending.extend(child for child in e.children() if isinstance(child, Expr))
    return tuple(found)


# ---------------------------------------------------------------- operations


def _operations(items: Sequence[Item]) -> Dim:
    total: Dim = 0
    for item in items:
        if isinstance(item, Stage):
            each = _count(item.value, set()) + (item.op is not None)
            places = product(tuple(a.extent for a in (*item.axes, *item.reduce)))
            total = total + as_expr(places) * each
        else:
            total = total + as_expr(item.step.extent) * _operations(item.items)
    return total


def _count(e: Expr, seen: set[Expr]) -> int:
    """Operators between the elements that `e` reads, each once."""
    if isinstance(e, Load) or e in seen:
        return 0
    seen.add(e)
    if isinstance(e, Select):
        return max(_count(e.a, seen), _count(e.b, seen))
    inner = sum(_count(child, seen) for child in e.children() if isinstance(child, Expr))
    return inner + isinstance(e, (Unary, Binary, Compare))
