"""Results with the limits that an instruction has which narrows them, around narrower ones:

    y: i8 = cast(i8, max(min(x, 127), 0))  ->  cast(i8, max(min(max(x, 0), 127), -128))

so that the instruction does the outer two, and another does what is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analyze.nests import nests
from tilewright.analyze.rewrite import replace_in
from tilewright.base.dtype import DType
from tilewright.ir.expr import Binary, BinaryOp, Cast, Const, Expr, Load, binary, const
from tilewright.ir.loop import Kernel
from tilewright.plan.element_writes import write_of
from tilewright.schedule.match.neutral import value_range
from tilewright.target.target import Target

Limits = tuple[DType, DType, int, int]  # of what is narrowed, of the result; the least, the most


def with_narrowing_limits(kernel: Kernel, target: Target) -> Iterator[Kernel]:
    """The kernel with the limits of an instruction around what it narrows within them, for each
    pair of limits that makes a difference."""
    for of in dict.fromkeys(_limits_of(target)):
        body = kernel.body
        for nest in nests(kernel.body):
            value = _limited(nest.store.value, of)
            if nest.update is None and value != nest.store.value:
                body = replace_in(body, nest.store, nest.store.with_(value=value))
        if body is not kernel.body:
            yield kernel.with_(body=body)


def _limits_of(target: Target) -> Iterator[Limits]:
    """The limits of instructions that narrow, where these are numbers."""
    for instruction in target.instructions:
        write = write_of(instruction)
        value = None if write is None else write.value
        if isinstance(value, Cast) and value.dtype.is_integer:
            x, low, high = limits(value.a)
            if isinstance(x, Load) and low is not None and high is not None:
                yield value.a.dtype, value.dtype, low, high


def limits(e: Expr) -> tuple[Expr, int | None, int | None]:
    """(x, low, high) of an integer x that is at least low and at most high; None for no limit, and
    both where the lower one is not above the other."""
    found: dict[object, int] = {}
    x = e
    while isinstance(x, Binary) and x.op in (BinaryOp.MIN, BinaryOp.MAX) and x.op not in found:
        if not isinstance(x.b, Const) or not x.dtype.is_integer:
            break
        found[x.op] = int(x.b.value)
        x = x.a
    low, high = found.get(BinaryOp.MAX), found.get(BinaryOp.MIN)
    if low is not None and high is not None and low > high:
        return e, None, None
    return x, low, high


def _limited(value: Expr, of: Limits) -> Expr:
    kind, narrow, least, most = of
    if not isinstance(value, Cast) or (value.a.dtype, value.dtype) != (kind, narrow):
        return value
    low, high = value_range(value.a)
    x, own_low, own_high = limits(value.a)
    if low < least or high > most or (own_low, own_high) == (least, most):
        return value
    if own_low is not None and own_low != least:
        x = binary(BinaryOp.MAX, x, const(own_low, kind))
    if own_high is not None and own_high != most:
        x = binary(BinaryOp.MIN, x, const(own_high, kind))
    return between(x, least, most, narrow)


def between(value: Expr, low: int, high: int, dtype: DType) -> Cast:
    """A value limited to what is between two numbers, as a type."""
    at_most = binary(BinaryOp.MIN, value, const(high, value.dtype))
    return Cast(dtype, binary(BinaryOp.MAX, at_most, const(low, value.dtype)))
