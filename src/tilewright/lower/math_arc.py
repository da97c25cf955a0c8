"""Inverse trigonometric functions: asin, acos, atan, atan2.

Odd polynomials on a part of the range (tools/fit_functions.py); the rest is brought there by
identities. pi is in two parts, the lower of which is taken from the smaller summand.
"""

from __future__ import annotations

from tilewright.ir.expr import Expr, maximum, minimum, select
from tilewright.lower.math_common import absolute, number, polynomial, root, sign_bit, with_sign

_HALF_PI, _HALF_PI_LOW = 1.57079637050628662109375, -4.37113900018624283e-8
_ATAN = (
    -0.0017876677447929978,
    0.01088806614279747,
    -0.031128503382205963,
    0.0579080730676651,
    -0.08400553464889526,
    0.10951193422079086,
    -0.14264053106307983,
    0.1999853104352951,
    -0.33333298563957214,
)
_ASIN = (
    0.042158305644989014,
    0.024184778332710266,
    0.04546914994716644,
    0.074953094124794,
    0.16666752099990845,
)


def _quarter_turn_minus(angle: Expr) -> Expr:
    return number(_HALF_PI) - (angle - number(_HALF_PI_LOW))


def _half_turn_minus(angle: Expr) -> Expr:
    return number(2 * _HALF_PI) - (angle - number(2 * _HALF_PI_LOW))


def _atan(t: Expr) -> Expr:
    """atan on [0, 1]."""
    square = t * t
    return t + t * (square * polynomial(square, _ATAN))


def atan(x: Expr) -> Expr:
    """Above 1, pi / 2 - atan(1 / |x|)."""
    size = absolute(x)
    steep = size > number(1.0)
    angle = _atan(select(steep, number(1.0) / size, size))
    return with_sign(select(steep, _quarter_turn_minus(angle), angle), sign_bit(x))


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the lesser coordinate over the greater, turned to where the point is. Equal
    coordinates, zeros and infinities included, are a ratio of 1, but for a size of 0."""
    across, up = absolute(x), absolute(y)
    less, more = minimum(across, up), maximum(across, up)
    equal = select(more.equals(0.0), number(0.0), number(1.0))
    angle = _atan(select(less.equals(more), equal, less / more))
    side = sign_bit(x)
    steep = _quarter_turn_minus(with_sign(angle, side))
    level = select(side.differs(0), _half_turn_minus(angle), angle)
    return with_sign(select(up > across, steep, level), sign_bit(y))


def _asin(size: Expr) -> tuple[Expr, Expr]:
    """(asin(z), far) for a size in [0, 1]: z is the size up to 1/2, else sqrt((1 - size) / 2), of
    whose arc twice is missing to a quarter of a turn."""
    far = size > number(0.5)
    square = select(far, (number(1.0) - size) * number(0.5), size * size)
    z = select(far, root(square), size)
    return z + z * (square * polynomial(square, _ASIN)), far


def asin(x: Expr) -> Expr:
    """NaN beyond 1."""
    angle, far = _asin(absolute(x))
    return with_sign(select(far, _quarter_turn_minus(angle + angle), angle), sign_bit(x))


def acos(x: Expr) -> Expr:
    """NaN beyond 1."""
    angle, far = _asin(absolute(x))
    negative = x < number(0.0)
    near = _quarter_turn_minus(select(negative, -angle, angle))
    twice = angle + angle
    return select(far, select(negative, _half_turn_minus(twice), twice), near)
