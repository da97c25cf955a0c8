"""Rounding to small integers, as quantisation has it."""

from __future__ import annotations

import math

from tilewright.base.dtype import f32, i32
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Expr,
    Unary,
    UnaryOp,
    cast,
    const,
    select,
)

# 1.5 * 2**23: adding it leaves the nearest integer, halves to even, in the low bits of what is
# smaller than 2**22.
_ROUND, _ROUND_BITS, _LARGEST = 12582912.0, 0x4B400000, 1 << 21


def rounded_cast(e: Cast) -> Expr | None:
    """cast(clip(round(y) + z, low, high)) with y clipped first, rounded by an addition, and z added
    as an integer; None for other expressions. Equal for all y: NaN becomes 0, as in any cast."""
    low, high, whole = _limits(e.a)
    z, whole = _sum(whole)
    number = int(z.value) if isinstance(z, Const) else 0
    if not isinstance(whole, Unary) or whole.op is not UnaryOp.ROUND or whole.dtype != f32:
        return None
    if not e.dtype.is_integer or low is None or high is None:
        return None
    if not (e.dtype.min <= low <= high <= e.dtype.max and max(-low, high, abs(number)) < _LARGEST):
        return None
    y = whole.a
    if isinstance(z, Const):
        y = _without_limits(y, low - number, high - number)
    bottom, top = (const(float(x), f32) - cast(f32, z) for x in (low, high))
    above = select(y > bottom, y, bottom)  # also where y is NaN
    within = select(above < top, above, top)
    bits = Bitcast(i32, within + const(_ROUND, f32)) - (const(_ROUND_BITS, i32) - z)
    if low != 0:
        bits = select(y.equals(y), bits, const(0, i32))
    return Cast(e.dtype, bits)


def _limits(e: Expr) -> tuple[int | None, int | None, Expr]:
    """(low, high, x) of min(max(x, low), high), in either order."""
    low = high = None
    while isinstance(e, Binary) and e.op in (BinaryOp.MIN, BinaryOp.MAX):
        limit, rest = (e.b, e.a) if isinstance(e.b, Const) else (e.a, e.b)
        number = _whole(limit)
        if number is None:
            break
        if e.op is BinaryOp.MIN and high is None and low is None:
            high = number
        elif e.op is BinaryOp.MAX and low is None:
            low = number
        else:
            break
        e = rest
    return low, high, e


def _without_limits(y: Expr, low: int, high: int) -> Expr:
    """y without limits that do nothing, since it is rounded and limited to low and high as well."""
    while isinstance(y, Binary) and y.op in (BinaryOp.MIN, BinaryOp.MAX):
        limit, rest = (y.b, y.a) if isinstance(y.b, Const) else (y.a, y.b)
        if not isinstance(limit, Const):
            break
        if not math.isfinite(limit.value):
            break
        number = round(limit.value)  # halves to even, as here
        if not (number <= low if y.op is BinaryOp.MAX else number >= high):
            break
        y = rest
    return y


def _sum(e: Expr) -> tuple[Expr, Expr]:
    """(z, x) of x + z, z a small whole number, as i32."""
    if isinstance(e, Binary) and e.op is BinaryOp.ADD:
        number = _whole(e.b)
        if number is not None:
            return const(number, i32), e.a
        if isinstance(e.b, Cast) and e.b.a.dtype.is_integer and e.b.a.dtype.bits <= 16:
            return cast(i32, e.b.a), e.a
    return const(0, i32), e


def _whole(e: Expr) -> int | None:
    """The integer that a constant is."""
    if isinstance(e, Const) and float(e.value).is_integer():
        return int(e.value)
    return None
