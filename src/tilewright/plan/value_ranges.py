"""Between which numbers a value of integers lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.ir.expr import Binary, BinaryOp, Cast, Const, Expr

Interval = tuple[int, int]


def value_range(e: Expr, known: Mapping[Expr, Interval]) -> Interval:
    """The least and the largest number that a value of integers may be, of parts of which that is
    `known`, and others that may be all that their type holds: so may what overflows."""
    every = int(e.dtype.min), int(e.dtype.max)
    if e in known:
        return known[e]
    if isinstance(e, Const):
        return int(e.value), int(e.value)
    if isinstance(e, Cast) and e.a.dtype.is_integer:
        return _if_held(value_range(e.a, known), every)
    if not isinstance(e, Binary) or e.op not in _ENDS:
        return every
    a, b = value_range(e.a, known), value_range(e.b, known)
    if e.op is BinaryOp.SHR and not (0 <= b[0] == b[1] < e.dtype.bits):
        return every
    ends = [_ENDS[e.op](x, y) for x in a for y in b]
    return _if_held((min(ends), max(ends)), every)


def within(inner: Interval, outer: Interval) -> bool:
    """Whether all numbers of one interval are in another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _if_held(found: Interval, every: Interval) -> Interval:
    return found if within(found, every) else every


_ENDS: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda x, y: x + y,
    BinaryOp.SUB: lambda x, y: x - y,
    BinaryOp.MUL: lambda x, y: x * y,
    BinaryOp.SHR: lambda x, y: x >> y,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
}
