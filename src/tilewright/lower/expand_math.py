"""Transcendental functions of f32 as arithmetic that vectors can do.

Machine vectors have no exp or erf. Each function here is an expression of additions, products,
shifts and bit casts with the accuracy stated, for all inputs (NaN, infinities, subnormals);
functions without an expansion stay, and become calls of the C library, lane by lane. Types
narrower than f32 are computed in f32 (docs/semantics.md), so they come here as well.

Sources of the approximations: log, and the reduction of exp's argument, after Cephes (Moshier,
1992); exp's polynomial fitted to the least greatest error; tanh and erf rational approximations as
in Eigen and XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.base.dtype import f32, i32
from tilewright.ir.expr import (
    Bitcast,
    Cast,
    Expr,
    Unary,
    UnaryOp,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.ir.loop import Kernel, map_block, map_exprs


def expand_math(kernel: Kernel) -> Kernel:
    """Replaces functions that the target's vectors lack."""
    memo: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        if not isinstance(e, Expr):
            return e
        if e not in memo:
            memo[e] = _expand(e.map(visit))
        return memo[e]

    body = map_block(kernel.body, lambda s: map_exprs(s, visit))
    return kernel if body is kernel.body else kernel.with_(body=body)


def _expand(e: Expr) -> Expr:
    if isinstance(e, Unary) and e.op in EXPANSIONS and e.dtype.is_float:
        if e.dtype == f32:
            return EXPANSIONS[e.op](e.a)
        if e.dtype.bits <= 16:
            return Cast(e.dtype, EXPANSIONS[e.op](Cast(f32, e.a)))
    return e


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, highest power first."""
    total: Expr = const(coefficients[0], f32)
    for c in coefficients[1:]:
        total = total * x + const(c, f32)
    return total


_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the sum is ln 2; n * high is exact
_ROUND = 12582912.0 + 254  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
_EXP = (1.3814539360e-3, 8.3687451838e-3, 4.1668390801e-2, 1.6666520398e-1, 4.9999993432e-1)


def exp(x: Expr) -> Expr:
    """e**x = 2**n * e**r with n = round(x / ln 2), |r| <= ln 2 / 2. Within 2 units in the last
    place; overflows to inf, underflows gradually."""
    x = minimum(const(89.0, f32), maximum(const(-104.0, f32), x))
    shifted = x * const(_LOG2_E, f32) + const(_ROUND, f32)
    n = shifted - const(_ROUND, f32)
    r = x - n * const(_LN2_HIGH, f32) - n * const(_LN2_LOW, f32)
    p = _polynomial(r, _EXP) * (r * r) + r  # e**r - 1
    # 2**n in two steps: n may be beyond the exponent's range. The low bits are n + 254, twice the
    # exponent's bias; of those above, none is left by the shifts.
    bits = Bitcast(i32, shifted)
    half = bits >> const(1, i32)
    first, second = _exponent(half), _exponent(bits - half)
    return (p * first + first) * second


def _exponent(bits: Expr) -> Expr:
    """The power of two with these bits for an exponent."""
    return Bitcast(f32, bits << const(23, i32))


_SQRT_HALF = 0.70710678118654752
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


def log(x: Expr) -> Expr:
    """ln x = e * ln 2 + ln m with x = m * 2**e, sqrt(1/2) <= m < sqrt(2). Within 2 units in the
    last place; log(0) = -inf, NaN below 0."""
    tiny = x < const(1.17549435e-38, f32)
    scaled = select(tiny, x * const(8388608.0, f32), x)  # subnormals: times 2**23
    bits = Bitcast(i32, scaled)
    exponent = (bits >> const(23, i32)) - const(126, i32)
    m = Bitcast(f32, (bits & const(0x7FFFFF, i32)) | const(0x3F000000, i32))  # in [1/2, 1)
    low = m < const(_SQRT_HALF, f32)
    m = select(low, m + m, m) - const(1.0, f32)
    exponent = select(low, exponent - const(1, i32), exponent)
    e = Cast(f32, select(tiny, exponent - const(23, i32), exponent))
    square = m * m
    y = _polynomial(m, _LOG) * m * square + e * const(_LN2_LOW, f32)
    result = m + (y - const(0.5, f32) * square) + e * const(_LN2_HIGH, f32)
    infinity = const(float("inf"), f32)
    result = select(x < infinity, result, x)  # inf and NaN as they are
    result = select(x > const(0.0, f32), result, const(float("-inf"), f32))
    return select(x >= const(0.0, f32), result, const(float("nan"), f32))


_TANH_ODD = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_EVEN = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)


def tanh(x: Expr) -> Expr:
    """A ratio of polynomials on [-7.9, 7.9], beyond which f32 has +-1. Within 6 units in the last
    place."""
    y = _clamped(x, 7.90531110763549805)
    square = y * y
    ratio = _polynomial(square, _TANH_ODD) * y / _polynomial(square, _TANH_EVEN)
    small = Unary(UnaryOp.ABS, x) < const(4e-4, f32)
    return select(small, x, ratio)


_ERF_ODD = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_EVEN = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def erf(x: Expr) -> Expr:
    """A ratio of polynomials on [-4, 4], beyond which f32 has +-1. Within 4e-7 absolute."""
    y = _clamped(x, 4.0)
    square = y * y
    return _polynomial(square, _ERF_ODD) * y / _polynomial(square, _ERF_EVEN)


def _clamped(x: Expr, limit: float) -> Expr:
    return minimum(const(limit, f32), maximum(const(-limit, f32), x))


EXPANSIONS: dict[UnaryOp, Callable[[Expr], Expr]] = {
    UnaryOp.EXP: exp,
    UnaryOp.LOG: log,
    UnaryOp.TANH: tanh,
    UnaryOp.ERF: erf,
}
