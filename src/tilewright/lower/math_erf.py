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
    -0.00016241766570601612,
    0.0007196266087703407,
    0.0014808697160333395,
    -0.01223075669258833,
    0.006929640658199787,
    0.09914319962263107,
    -0.28886353969573975,
    0.2615220248699188,
)
_END = 4.05  # from 3.92 on, f32 has 1


def erf(x: Expr) -> Expr:
    """x + x * P(x**2), or 1 - Q(|x| - 2)**4."""
    size = minimum(number(_END), absolute(x))
    square = size * size
    near = size + size * polynomial(square, _ERF)
    fourth_root = polynomial(size - number(2.0), _ERFC_ROOT)
    half_power = fourth_root * fourth_root
    far = number(1.0) - half_power * half_power
    return with_sign(select(size < number(1.0), near, far), sign_bit(x))
