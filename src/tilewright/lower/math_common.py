"""What the expansions of functions share: constants, polynomials, the bits of f32."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtype import DType, f32, f64, i32
from tilewright.ir.expr import Bitcast, Const, Expr, Unary, UnaryOp, const, select

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # the sum is ln 2; n * high is exact
INFINITY = float("inf")
ROUND_F64 = 6755399441055744.0  # 1.5 * 2**52: adding it leaves the nearest integer in the low bits
_SIGN = -(1 << 31)


def number(value: float) -> Const:
    """A constant of f32."""
    return const(value, f32)


def double(value: float) -> Const:
    """A constant of f64."""
    return const(value, f64)


def whole(value: int) -> Const:
    """A constant of i32."""
    return const(value, i32)


def polynomial(x: Expr, coefficients: Sequence[float], dtype: DType = f32) -> Expr:
    """Horner's rule, highest power first."""
    total: Expr = const(coefficients[0], dtype)
    for c in coefficients[1:]:
        total = total * x + const(c, dtype)
    return total


def absolute(x: Expr) -> Expr:
    return Unary(UnaryOp.ABS, x)


def root(x: Expr) -> Expr:
    return Unary(UnaryOp.SQRT, x)


def sign_bit(x: Expr) -> Expr:
    """The sign of f32 as an i32 that has no other bit."""
    return Bitcast(i32, x) & whole(_SIGN)


def with_sign(size: Expr, bit: Expr) -> Expr:
    """A value that is not negative, with the sign that `sign_bit` gave."""
    return Bitcast(f32, Bitcast(i32, size) | bit)


def power_of_two(bits: Expr) -> Expr:
    """The f32 whose exponent has these bits, 1 to 254; what is above the lowest 9 is shifted out,
    the ninth is the sign."""
    return Bitcast(f32, bits << whole(23))


def tiny_as_is(x: Expr, value: Expr, below: float) -> Expr:
    """The value, or x itself near 0, where a function is x + O(x**2) or flatter: that keeps the
    sign of zero, and all bits of subnormal numbers."""
    return select(absolute(x) < number(below), x, value)
