"""The error function, what it lacks of 1, and GELU. Polynomials: tools/fit_functions.py.

erf is an odd polynomial below 1, from there 1 - erfc, whose fourth root is a polynomial: good to
what shows in erf. erfc is e**(-x**2) * u * P(u) with u = 1 / (|x| + 2), after Shepherd and
Laframboise (1981), and the same taken from 2 below 0. P is 1 + t * Q(t) with t = u - 0.242, so
that u * P(u) is u and a small product: the sum is rounded once. x**2 is split, for its own
rounding would be multiplied by the exponential: the square of x's first 12 bits is exact.
"""

from __future__ import annotations

from tilewright.base.dtype import f32, i32
from tilewright.ir.expr import Bitcast, Expr, maximum, minimum, select
from tilewright.lower.math_common import (
    absolute,
    number,
    polynomial,
    sign_bit,
    whole,
    with_sign,
)
from tilewright.lower.math_exp import exp_times

_ERF = (
    -0.0005628342623822391,
    0.004916755482554436,
    -0.026710577309131622,
    0.11280151456594467,
    -0.37612321972846985,
    0.12837912142276764,
)
_ERF_FAR = (
    -0.00016182138642761856,
    0.0015692462911829352,
    -0.0036707648541778326,
    -0.009316951036453247,
    0.044080983847379684,
    0.04025059565901756,
    -0.4041293263435364,
    0.5269427299499512,
)
_ERFC = (
    11.663501739501953,
    -35.591575622558594,
    14.263679504394531,
    11.731322288513184,
    -7.173539638519287,
    -5.230620861053467,
    2.5028507709503174,
    4.413835048675537,
    2.677957773208618,
)
_END = 4.05  # from 3.92 on, f32 has 1
_ERFC_ONE = 0.2420453578233719  # where P(u) is 1
_ERFC_END = 10.1  # from 10.06 on, f32 has 0


def erf(x: Expr) -> Expr:
    """x + x * P(x**2), or 1 - Q(|x| - 5/4)**4."""
    size = minimum(number(_END), absolute(x))
    square = size * size
    near = size + size * polynomial(square, _ERF)
    fourth_root = polynomial(size - number(1.25), _ERF_FAR)
    half_power = fourth_root * fourth_root
    far = number(1.0) - half_power * half_power
    return with_sign(select(size < number(1.0), near, far), sign_bit(x))


def erfc(x: Expr) -> Expr:
    """1 - erf(x), which has all its bits where it is small."""
    size = minimum(number(_ERFC_END), absolute(x))
    head = twelve_bits(size)
    tail = head - size
    below = size + number(2.0)
    u = number(1.0) / below
    # 1 - u * (size + 2) is what u lacks, in parts of u: sum and quotient are rounded. In halves
    # of 12 bits the products are exact without fused multiply-add, too.
    first = twelve_bits(u)
    lost = number(1.0) - number(2.0) * first - first * head + first * tail - (u - first) * below
    t = u - number(_ERFC_ONE)
    scaled = (u + u * t * polynomial(t, _ERFC)) * number(2.0**-64)
    slope = number(1.0) + number(2.6) * u  # of log(u * P(u)) against log(u), to 0.05
    above = exp_times(-(head * head), tail * (head + size) + slope * lost, scaled)
    return select(x < number(0.0), number(2.0) - above, above)


def gelu(x: Expr) -> Expr:
    """x erfc(-x / sqrt(2)) / 2, in which nothing cancels, and which is 0 at -inf. The roundings of
    x / sqrt(2) grow with its square."""
    reach = maximum(number(-16.0), x)  # below, erfc is 0
    return reach * number(0.5) * erfc(x * number(-(0.5**0.5)))


def twelve_bits(x: Expr) -> Expr:
    """The first 12 of x's 24 bits."""
    return Bitcast(f32, Bitcast(i32, x) & whole(-(1 << 12)))
