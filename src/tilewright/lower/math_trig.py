"""sin, cos and tan for every argument.

x = quadrant * pi / 2 + r with |r| <= pi / 4. Up to 2**23 the multiple of pi / 2 is taken from x in
f64, in two steps, the first of which is exact (Cody and Waite, 1980). Beyond, x * 2 / pi is
computed modulo 4 in integers, with the 96 bits of 2 / pi that matter for the size of x (Payne and
Hanek, 1983). Polynomials of r: tools/fit_functions.py.
"""

from __future__ import annotations

import itertools

from tilewright.base.dtype import DType, f32, f64, i32, i64, u32, u64
from tilewright.ir.expr import Bitcast, Cast, Const, Expr, const, select
from tilewright.lower.math_common import (
    ROUND_F64,
    absolute,
    double,
    number,
    polynomial,
    sign_bit,
    whole,
)

_LIMIT = float(1 << 23)
_TWO_OVER_PI = 0.63661977236758134308
_HALF_PI = 1.5707963267948966
_HALF_PI_HIGH = 1.570796325802803  # 30 bits: products with 23 more are exact
_HALF_PI_LOW = 9.920935796805404e-10
# 2 / pi in words of 32 bits; the first bit of the first one stands for 2, the second for 1.
_WORDS = (*(0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0x7F9458EA),)
_SIN = (
    -0.00019517909095156938,
    0.008332187309861183,
    -0.16666655242443085,
)
_COS = (
    2.4432329155388288e-05,
    -0.0013887309469282627,
    0.04166664555668831,
)


def _unsigned(value: int, dtype: DType = u32) -> Const:
    return const(value, dtype)


def _long(value: int) -> Const:
    return const(value, i64)


def _with_quadrant(r: Expr, quadrant: Expr) -> Expr:
    """r as f64 with the quadrant (i64) in its two lowest bits, which is an error of 2**-50: so both
    ways of reducing an argument give one value."""
    return Bitcast(f64, (Bitcast(i64, r) & _long(-4)) | (quadrant & _long(3)))


def _reduce_small(size: Expr) -> Expr:
    wide = Cast(f64, size)
    shifted = wide * double(_TWO_OVER_PI) + double(ROUND_F64)
    n = shifted - double(ROUND_F64)
    r = wide - n * double(_HALF_PI_HIGH) - n * double(_HALF_PI_LOW)
    return _with_quadrant(r, Bitcast(i64, shifted))


def _reduce_large(size: Expr) -> Expr:
    """For 2**23 and more; NaN of inf and NaN."""
    quarters = _quarter_turns(Bitcast(i32, size))
    fraction = Bitcast(i64, quarters << _unsigned(2, u64))  # -1/2 to 1/2, times 2**64
    quadrant = ((quarters >> _unsigned(61, u64)) + _unsigned(1, u64)) >> _unsigned(1, u64)
    r = Cast(f64, fraction) * double(_HALF_PI * 2.0**-64)
    return _with_quadrant(r + Cast(f64, size - size), Bitcast(i64, quadrant))


def _quarter_turns(bits: Expr) -> Expr:
    """|x| * 2 / pi modulo 4, times 2**62: the product of x's 24 bits and 96 of 2 / pi."""
    mantissa = Cast(u64, Bitcast(u32, (bits & whole(0x7FFFFF)) | whole(0x800000)))
    first, second, third = (Cast(u64, word) for word in _window(bits))
    word = _unsigned(32, u64)
    return ((mantissa * first) << word) + mantissa * second + ((mantissa * third) >> word)


def _window(bits: Expr) -> list[Expr]:
    """The 96 bits of 2 / pi whose product with x's mantissa, a whole number, has a value below 4:
    from the exponent of its last bit on."""
    start = Bitcast(u32, (bits >> whole(23)) - whole(150))
    words: list[Expr] = [_unsigned(w) for w in _WORDS]
    for step in (2, 1):
        beyond = (start & _unsigned(32 * step)).differs(0)
        words = [select(beyond, b, a) for a, b in zip(words, words[step:], strict=False)]
    shift = start & _unsigned(31)
    rest = _unsigned(32) - shift
    return [(a << shift) | (b >> rest) for a, b in itertools.pairwise(words)]


def _reduced(size: Expr) -> tuple[Expr, Expr]:
    """(r, quadrant), f32 and i32, of a size: the nearest multiple of pi / 2 is taken away."""
    both = select(size < number(_LIMIT), _reduce_small(size), _reduce_large(size))
    return Cast(f32, both), Cast(i32, Bitcast(i64, both))


def _sine_and_cosine(r: Expr) -> tuple[Expr, Expr]:
    """On [-pi / 4, pi / 4]."""
    square = r * r
    sine = r + r * (square * polynomial(square, _SIN))
    return sine, number(1.0) + square * (square * polynomial(square, _COS) - number(0.5))


def _is_odd(quadrant: Expr) -> Expr:
    return (quadrant & whole(1)).differs(0)


def _negated(value: Expr, bit: Expr) -> Expr:
    """-value where a sign bit is set."""
    return Bitcast(f32, Bitcast(i32, value) ^ bit)


def sin(x: Expr) -> Expr:
    """NaN of infinities."""
    r, quadrant = _reduced(absolute(x))
    sine, cosine = _sine_and_cosine(r)
    turned = (quadrant & whole(2)) << whole(30)
    return _negated(select(_is_odd(quadrant), cosine, sine), turned ^ sign_bit(x))


def cos(x: Expr) -> Expr:
    """NaN of infinities."""
    r, quadrant = _reduced(absolute(x))
    sine, cosine = _sine_and_cosine(r)
    turned = ((quadrant + whole(1)) & whole(2)) << whole(30)
    return _negated(select(_is_odd(quadrant), sine, cosine), turned)


def tan(x: Expr) -> Expr:
    """sin / cos, or in odd quadrants -cos / sin."""
    r, quadrant = _reduced(absolute(x))
    sine, cosine = _sine_and_cosine(r)
    odd = _is_odd(quadrant)
    ratio = select(odd, cosine, sine) / select(odd, sine, cosine)
    turned = quadrant << whole(31)
    return _negated(ratio, turned ^ sign_bit(x))
