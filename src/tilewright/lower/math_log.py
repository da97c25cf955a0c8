"""log and what is made of it: log1p, asinh, acosh, atanh.

log(2**e * (1 + m)) = e * ln 2 + log(1 + m) with sqrt(1/2) <= 1 + m < sqrt(2), ln 2 in two parts
(Cody and Waite, 1980). 1 + x is never used where the bits that it loses would count.
"""

from __future__ import annotations

from tilewright.base.dtype import f32, i32
from tilewright.ir.expr import Bitcast, Cast, Expr, minimum, select
from tilewright.lower.math_common import (
    INFINITY,
    LN2_HIGH,
    LN2_LOW,
    absolute,
    number,
    polynomial,
    power_of_two,
    root,
    sign_bit,
    tiny_as_is,
    whole,
    with_sign,
)

_HALF_RANGE = 0x3F3504F3  # the bits of sqrt(1/2)
_ONE = 0x3F800000
_SMALLEST = 1.17549435e-38  # the least number that is not subnormal
_LARGE = float(1 << 28)  # x**2 + 1 is x**2 from here on, and x + 1 is x
_LOG = (
    0.0675075426697731,
    -0.11671624332666397,
    0.11883745342493057,
    -0.12406041473150253,
    0.14220315217971802,
    -0.16667994856834412,
    0.20002073049545288,
    -0.25000008940696716,
    0.3333331346511841,
)


def split(x: Expr) -> tuple[Expr, Expr]:
    """(m, e) with x = 2**e * (1 + m), for positive normal x; m is exact, e an i32."""
    above = Bitcast(i32, x) - whole(_HALF_RANGE)
    mantissa = (above & whole(0x7FFFFF)) + whole(_HALF_RANGE)
    return Bitcast(f32, mantissa) - number(1.0), above >> whole(23)


def split_any(x: Expr) -> tuple[Expr, Expr]:
    """The same for subnormal x as well."""
    tiny = x < number(_SMALLEST)
    m, e = split(select(tiny, x * number(8388608.0), x))  # times 2**23
    return m, select(tiny, e - whole(23), e)


def _joined(m: Expr, exponent: Expr) -> Expr:
    """log(1 + m) + exponent * ln 2"""
    e = Cast(f32, exponent)
    square = m * m
    y = polynomial(m, _LOG) * m * square + e * number(LN2_LOW)
    return m + (y - number(0.5) * square) + e * number(LN2_HIGH)


def log(x: Expr) -> Expr:
    """log(0) = -inf, NaN below 0."""
    result = _joined(*split_any(x))
    result = select(x < number(INFINITY), result, x)  # inf and NaN as they are
    result = select(x > number(0.0), result, number(-INFINITY))
    return select(x >= number(0.0), result, number(float("nan")))


def _log1p(x: Expr, doublings: Expr | None = None) -> Expr:
    """log(1 + x) + doublings * ln 2 for x > -1. What 1 + x loses is added to m."""
    u = x + number(1.0)
    m, e = split(u)
    lost = x - (u - number(1.0))
    scale = power_of_two(whole(127) - minimum(e, whole(126)))  # nothing is lost where e is greater
    m = m + lost * scale
    return _joined(m, e if doublings is None else e + doublings)


def log1p(x: Expr) -> Expr:
    """log(1 + x); -inf at -1, NaN below."""
    result = select(x < number(INFINITY), _log1p(x), x)
    result = select(x > number(-1.0), result, number(-INFINITY))
    result = select(x >= number(-1.0), result, number(float("nan")))
    return tiny_as_is(x, result, 1e-8)


def asinh(x: Expr) -> Expr:
    """log(a + sqrt(a**2 + 1)) = log1p(a + a**2 / (1 + sqrt(a**2 + 1))), a = |x|; log(2 a) if a is
    large."""
    size = absolute(x)
    square = size * size
    far = size >= number(_LARGE)
    inner = size + square / (root(square + number(1.0)) + number(1.0))
    result = _log1p(select(far, size, inner), select(far, whole(1), whole(0)))
    result = select(size < number(INFINITY), result, size)
    return with_sign(result, sign_bit(x))


def acosh(x: Expr) -> Expr:
    """log(x + sqrt(x**2 - 1)) = log1p(t + sqrt(t (t + 2))), t = x - 1; NaN below 1."""
    t = x - number(1.0)
    far = x >= number(_LARGE)
    inner = t + root(t * (t + number(2.0)))
    result = _log1p(select(far, t, inner), select(far, whole(1), whole(0)))
    result = select(x < number(INFINITY), result, x)
    return select(x >= number(1.0), result, number(float("nan")))


def atanh(x: Expr) -> Expr:
    """log1p(2 a / (1 - a)) / 2, a = |x|; inf at 1, NaN beyond."""
    size = absolute(x)
    ratio = (size + size) / (number(1.0) - size)
    result = number(0.5) * _log1p(ratio)
    result = select(size < number(1.0), result, number(INFINITY))
    result = select(size <= number(1.0), result, number(float("nan")))
    return tiny_as_is(x, with_sign(result, sign_bit(x)), 1e-4)
