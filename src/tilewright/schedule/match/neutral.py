"""Operands that change nothing: what lets a program leave out what an instruction can do. And other
ways to write the same."""

from __future__ import annotations

from tilewright.ir.expr import Binary, BinaryOp, Cast, Const, Expr, const

_ON_THE_RIGHT = {
    BinaryOp.ADD: 0,
    BinaryOp.SUB: 0,
    BinaryOp.MUL: 1,
    BinaryOp.DIV: 1,
    BinaryOp.FLOORDIV: 1,
    BinaryOp.SHL: 0,
    BinaryOp.SHR: 0,
    BinaryOp.OR: 0,
    BinaryOp.XOR: 0,
}


def neutral_value(op: BinaryOp, e: Expr, between: tuple[int, int]) -> int | None:
    """A number n from `between` with (e op n) = e, whatever the integer e is; None without one.
    (Of floats, -0.0 + 0.0 is not -0.0.)"""
    low, high = between
    if not e.dtype.is_integer:
        return None
    if op in (BinaryOp.MIN, BinaryOp.MAX):
        least, most = value_range(e)
        if op is BinaryOp.MIN:
            return high if high >= most else None
        return low if low <= least else None
    value = _ON_THE_RIGHT.get(op)
    return value if value is not None and low <= value <= high else None


def value_range(e: Expr) -> tuple[int, int]:
    """The least and the greatest number that an integer value can be, as far as its operators
    say."""
    low, high = int(e.dtype.min), int(e.dtype.max)
    if isinstance(e, Const):
        return int(e.value), int(e.value)
    if isinstance(e, Cast) and e.a.dtype.is_integer:
        least, most = value_range(e.a)
        return (least, most) if low <= least and most <= high else (low, high)
    if isinstance(e, Binary) and e.op in (BinaryOp.MIN, BinaryOp.MAX):
        choose = min if e.op is BinaryOp.MIN else max
        (al, ah), (bl, bh) = value_range(e.a), value_range(e.b)
        return choose(al, bl), choose(ah, bh)
    return low, high


def as_number(e: Expr) -> Expr:
    """cast(f32, 0) as f32(0.0), and likewise where both types have a number; `e` otherwise."""
    if isinstance(e, Cast) and isinstance(e.a, Const) and e.dtype.holds(e.a.value):
        return const(e.a.value, e.dtype)
    return e


def clamped(pattern: Expr, e: Expr) -> Expr:
    """`e` with its two ends in the pattern's order: min(max(x, 0), 9) is max(min(x, 9), 0)."""
    ends = (BinaryOp.MIN, BinaryOp.MAX)
    if not isinstance(pattern, Binary) or not isinstance(e, Binary) or e.dtype.is_float:
        return e
    if pattern.op is e.op or pattern.op not in ends or e.op not in ends:
        return e
    last, inner = _split(e)
    if last is None or not isinstance(inner, Binary) or inner.op is not pattern.op:
        return e
    first, x = _split(inner)
    if first is None:
        return e
    low, high = (first, last) if e.op is BinaryOp.MIN else (last, first)
    if low.value > high.value:
        return e
    return Binary(pattern.op, Binary(e.op, x, last), first)


def _split(e: Binary) -> tuple[Const | None, Expr]:
    """(the constant operand, the other)"""
    if isinstance(e.b, Const):
        return e.b, e.a
    return (e.a, e.b) if isinstance(e.a, Const) else (None, e)
