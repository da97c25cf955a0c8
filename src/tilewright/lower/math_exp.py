"""exp and what is made of it: expm1, sigmoid, tanh, sinh, cosh.

e**x = 2**n * (1 + p) with n = round(x / ln 2) and p = e**r - 1 for |r| <= ln 2 / 2. The reduction
of the argument in two steps is Cody and Waite's (1980); polynomials: tools/fit_functions.py.
"""

from __future__ import annotations

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
    maximum,
    minimum,
    select,
)
from tilewright.lower.math_common import (
    LN2_HIGH,
    LN2_LOW,
    absolute,
    number,
    polynomial,
    power_of_two,
    sign_bit,
    tiny_as_is,
    whole,
    with_sign,
)

_LOG2_E = 1.4426950408889634
ROUND = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
_BIAS = 127
_LEAST = -87.336  # e**x is a normal number from there
_EXP = (
    0.001393968123011291,
    0.00836899597197771,
    0.041666414588689804,
    0.166665181517601,
    0.5,
)
_SINH = (
    2.7822131869470468e-06,
    0.00019842895562760532,
    0.00833331048488617,
    0.1666666716337204,
)
_TANH = (
    0.016437863931059837,
    -0.05267200618982315,
    0.1332072913646698,
    -0.3333294689655304,
)
_EXP2 = (  # (2**f - 1) / f
    0.0001532646274426952,
    0.0013390806270763278,
    0.009618505835533142,
    0.05550359934568405,
    0.24022647738456726,
    0.6931471824645996,
)


def _reduced(x: Expr, offset: int, low: Expr | None = None) -> tuple[Expr, Expr]:
    """e**r - 1, and an i32 whose low bits are n + offset; of x + low, of which n counts x only."""
    shifted = x * number(_LOG2_E) + number(ROUND + offset)
    n = shifted - number(ROUND + offset)
    r = x - n * number(LN2_HIGH) - n * number(LN2_LOW)
    r = r if low is None else r + low
    a, b, c, d, e = map(number, _EXP)
    square = r * r  # Estrin's scheme, which waits less than Horner's
    power = (((a * r + b) * square + (c * r + d)) * r + e) * square + r
    return power, Bitcast(i32, shifted)


def _scaled(x: Expr, halvings: int = 0) -> Expr:
    """e**x / 2**halvings. 2**n is applied in two steps, since n may be beyond the exponent's range;
    of the bits above the exponent none is left by the shifts."""
    p, bits = _reduced(x, 2 * _BIAS - halvings)
    half = bits >> whole(1)
    first, second = power_of_two(half), power_of_two(bits - half)
    return (p * first + first) * second


def exp(x: Expr) -> Expr:
    """Overflows to inf, underflows gradually."""
    if _is_normal(x):
        p, bits = _reduced(x, _BIAS)
        scale = power_of_two(bits)
        return p * scale + scale
    clamped = maximum(number(-104.0), x)
    if not _is_at_most_zero(x):
        return _scaled(minimum(number(89.0), clamped))
    p, bits = _reduced(clamped, _BIAS + 64)
    scale = power_of_two(bits)  # 2**64 times as large, and always normal
    return (p * scale + scale) * number(2.0**-64)


def _is_normal(x: Expr) -> bool:
    """Whether an operand says itself that its power is one: that it is between `_LEAST` and 0."""
    if not isinstance(x, Binary) or x.op is not BinaryOp.MAX:
        return False
    return any(
        isinstance(low, Const) and low.value >= _LEAST and _is_at_most_zero(high)
        for low, high in ((x.a, x.b), (x.b, x.a))
    )


def _is_at_most_zero(x: Expr) -> bool:
    """Whether an operand says itself that it is, as min(0, x) and -|x| do."""
    if isinstance(x, Cast) and x.a.dtype.is_float:
        return _is_at_most_zero(x.a)
    if isinstance(x, Binary) and x.op is BinaryOp.MIN:
        return any(isinstance(side, Const) and side.value <= 0 for side in (x.a, x.b))
    size = x.a if isinstance(x, Unary) and x.op is UnaryOp.NEG else None
    return isinstance(size, Unary) and size.op is UnaryOp.ABS


def expm1(x: Expr) -> Expr:
    """e**x - 1 = 2**n * p + (2**n - 1), in which nothing cancels; everything is halved until the
    last step, for 2**128 is too large."""
    clamped = minimum(number(89.0), maximum(number(-18.0), x))
    p, bits = _reduced(clamped, _BIAS - 1)
    half = power_of_two(bits)
    result = half * p + (half - number(0.5))
    return tiny_as_is(x, result + result, 1e-8)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x). The sum is 2**n * p + (2**n + 1), where what the inner sum loses goes to the
    product; 2**-64 of it is taken, so that it is finite as long as the quotient is not 0."""
    small = number(2.0**-64)
    p, bits = _reduced(minimum(number(104.0), maximum(number(-30.0), -x)), _BIAS - 64)
    scale = power_of_two(bits)
    total = scale + small
    lost = small - (total - scale)
    return small / (scale * p + lost + total)


def tanh(x: Expr) -> Expr:
    """A polynomial below 0.55, from there 1 - 2 / (2**(2 |x| / ln 2) + 1), which ends at 1 exactly;
    errors of the power count there little, and less the greater it is."""
    size = minimum(number(10.0), absolute(x))
    square = size * size
    near = size + size * (square * polynomial(square, _TANH))
    exponent = size * number(2 * _LOG2_E)
    shifted = exponent + number(ROUND)
    f = exponent - (shifted - number(ROUND))
    power = polynomial(f, _EXP2) * f + number(1.0)
    scaled = Bitcast(f32, Bitcast(i32, power) + (Bitcast(i32, shifted) << whole(23)))
    far = number(1.0) - number(2.0) / (scaled + number(1.0))
    return with_sign(select(size >= number(0.55), far, near), sign_bit(x))  # NaN is near


def exp_times(x: Expr, low: Expr, factor: Expr) -> Expr:
    """e**(x + low) * 2**64 * factor for x from -104 to 0 and a small `low`, which holds what x as
    an f32 does not. All but the result is normal, so that only the last product may lose bits."""
    p, bits = _reduced(x, _BIAS + 64, low)
    scale = power_of_two(bits)
    return (p * scale + scale) * factor


def sinh(x: Expr) -> Expr:
    """A polynomial below 1, from there (e**|x| - e**-|x|) / 2."""
    size = absolute(x)
    square = size * size
    near = size + size * (square * polynomial(square, _SINH))
    half = _half_exp(size)
    far = half - number(0.25) / half
    return with_sign(select(size < number(1.0), near, far), sign_bit(x))


def cosh(x: Expr) -> Expr:
    """(e**|x| + e**-|x|) / 2"""
    half = _half_exp(absolute(x))
    return half + number(0.25) / half


def _half_exp(size: Expr) -> Expr:
    """e**size / 2, finite as far as sinh and cosh are."""
    return _scaled(minimum(number(90.0), size), halvings=1)
