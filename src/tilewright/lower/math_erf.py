"""The error function: an odd polynomial below 1, from there 1 - erfc, whose fourth root is a
polynomial. Both were fitted to the least greatest error by tools/fit_functions.py."""

from __future__ import annotations

from tilewright.ir.expr import Expr, minimum, select
from tilewright.lower.math_common import absolute, number, polynomial, sign_bit, with_sign

_ERF = (
    -0.0005628342623822391,
    0.004916755482554436,
    -0.026710577309131622,
    0.11280151456594467,
    -0.37612321972846985,
    0.12837912142276764,
)
_ERFC_ROOT = (
    -0.00016182138642761856,
    0.0015692462911829352,
    -0.0036707648541778326,
    -0.009316951036453247,
    0.044080983847379684,
    0.04025059565901756,
    -0.4041293263435364,
    0.5269427299499512,
)
_END = 4.05  # from 3.92 on, f32 has 1


def erf(x: Expr) -> Expr:
    """x + x * P(x**2), or 1 - Q(|x| - 5/4)**4."""
    size = minimum(number(_END), absolute(x))
    square = size * size
    near = size + size * polynomial(square, _ERF)
    fourth_root = polynomial(size - number(1.25), _ERFC_ROOT)
    half_power = fourth_root * fourth_root
    far = number(1.0) - half_power * half_power
    return with_sign(select(size < number(1.0), near, far), sign_bit(x))
