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
    -2.2106922187958844e-05,
    -0.00017821023357100785,
    0.0007727912161499262,
    0.0015320881502702832,
    -0.012249074876308441,
    0.0069015491753816605,
    0.09913935512304306,
    -0.2888616621494293,
    0.2615223228931427,
)
_END = 4.0  # from 3.92 on, f32 has 1


def erf(x: Expr) -> Expr:
    """x + x * P(x**2), or 1 - Q(|x| - 2)**4."""
    size = minimum(number(_END), absolute(x))
    square = size * size
    near = size + size * polynomial(square, _ERF)
    fourth_root = polynomial(size - number(2.0), _ERFC_ROOT)
    half_power = fourth_root * fourth_root
    far = number(1.0) - half_power * half_power
    return with_sign(select(size < number(1.0), near, far), sign_bit(x))
