"""pow: 2**(y * log2 |x|) in f64, so that nothing is lost before the last rounding; then C's special
cases. Polynomials: tools/fit_functions.py."""

from __future__ import annotations

from tilewright.base.dtype import f32, f64, i64
from tilewright.ir.expr import (
    Bitcast,
    Cast,
    Const,
    Expr,
    Unary,
    UnaryOp,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.lower.math_common import (
    INFINITY,
    ROUND_F64,
    absolute,
    double,
    number,
    polynomial,
    root,
    sign_bit,
    whole,
    with_sign,
)
from tilewright.lower.math_log import split_any

_BEYOND = 400.0  # 2**this is infinite in f32, and 2**-this is 0
_PRODUCTS = (-4, -3, -2, -1, 1, 2, 3, 4)  # exponents that are cheaper multiplied out
_ROOTS = (0.25, 0.5, 0.75)  # and these of square roots
_LOG2 = (
    0.34073703323221105,
    0.411672361608828,
    0.5770835906192685,
    0.9617966733138733,
    2.885390081790107,
)
_EXP2 = (
    1.5201899203881028e-05,
    0.00015469290918013033,
    0.0013333922658210471,
    0.009618027254505543,
    0.055504103533367995,
    0.2402265119814975,
    0.693147180728477,
    0.9999999999616831,
)


def _log2(size: Expr) -> Expr:
    """log2 of a positive f32, as f64: 2 atanh(m / (2 + m)) / ln 2 beside the exponent."""
    m, e = split_any(size)
    wide = Cast(f64, m)
    ratio = wide / (wide + double(2.0))
    return ratio * polynomial(ratio * ratio, _LOG2, f64) + Cast(f64, e)


def _exp2(x: Expr) -> Expr:
    """2**x, f64, for |x| <= _BEYOND."""
    shifted = x + double(ROUND_F64)
    power = polynomial(x - (shifted - double(ROUND_F64)), _EXP2, f64)
    exponent = Bitcast(i64, shifted) << const(52, i64)
    return Bitcast(f64, Bitcast(i64, power) + exponent)


def _positive_power(size: Expr, y: Expr) -> Expr:
    """size**y for a size that is not negative; 0 and infinity are their own logarithms' signs."""
    logarithm = _log2(size)
    logarithm = select(size < number(INFINITY), logarithm, Cast(f64, size))
    logarithm = select(size.equals(0.0), double(-INFINITY), logarithm)
    exponent = logarithm * Cast(f64, y)
    limited = minimum(double(_BEYOND), maximum(double(-_BEYOND), exponent))
    return Cast(f32, _exp2(limited))


def pow_(x: Expr, y: Expr) -> Expr:
    """x**y. Negative x: NaN unless y is whole, and negative if y is odd."""
    if isinstance(y, Const) and y.value in _PRODUCTS:
        return _multiplied(x, int(y.value))
    if isinstance(y, Const) and abs(float(y.value)) in _ROOTS:
        return _of_roots(x, float(y.value))
    size = absolute(x)
    half = y * number(0.5)
    is_whole = Unary(UnaryOp.FLOOR, y).equals(y)
    is_odd = is_whole & Unary(UnaryOp.FLOOR, half).differs(half)
    result = _positive_power(size, y)
    result = with_sign(result, select(is_odd, sign_bit(x), whole(0)))
    undefined = (x < number(0.0)) & (size < number(INFINITY)) & ~is_whole
    result = select(undefined, number(float("nan")), result)
    infinite = absolute(y).equals(INFINITY)
    one = y.equals(0.0) | x.equals(1.0) | (x.equals(-1.0) & infinite)
    return select(one, number(1.0), result)


def _multiplied(x: Expr, exponent: int) -> Expr:
    """x**exponent. Of negative ones a power of 1 / x, or of 1 / x**2: these overflow and lose bits
    only where the result is 0 or infinite anyway, while 1 / x**2 is 0 where x**-2 is not yet."""
    one = number(1.0)
    if exponent == -4:
        return _power(one / (x * x), 2)
    return _power(x if exponent > 0 else one / x, abs(exponent))


def _of_roots(x: Expr, exponent: float) -> Expr:
    """x**exponent, whose size is one of _ROOTS: NaN below 0, but for -inf, whose power is that of
    inf. That of -0.0 is that of 0."""
    size = absolute(x)
    half = root(size)
    quarter = root(half)
    power = {0.25: quarter, 0.5: half, 0.75: half * quarter}[abs(exponent)]
    power = power if exponent > 0 else number(1.0) / power
    undefined = (x < number(0.0)) & (size < number(INFINITY))
    return select(undefined, number(float("nan")), power)


def _power(x: Expr, exponent: int) -> Expr:
    square = x * x
    return {1: x, 2: square, 3: square * x, 4: square * square}[exponent]
