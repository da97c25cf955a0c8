"""Activation functions, in forms in which nothing overflows and nothing cancels.

The formulas take f32 or f64; operators on shorter floats compute them in f32 and round once.
Recurrent operators (recurrent.py) use those of sigmoid, elu and softplus, and have simpler
ones of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.expr import Expr, UnaryOp, cast, const, maximum, select, unary
from tilewright.ir.op import Attrs, Op, attr
from tilewright.ops.common import NoAttrs, widened
from tilewright.ops.elementwise import FLOATS, elementwise

_GELU_SLOPE, _GELU_CUBE = 0.79788456080286536, 0.044715  # sqrt(2 / pi)


@dataclass(frozen=True, slots=True)
class EluAttrs(Attrs):
    alpha: float = attr(1.0, doc="what the function falls to, with a minus sign")
    gamma: float = attr(1.0, doc="factor of the result")


@dataclass(frozen=True, slots=True)
class CeluAttrs(Attrs):
    alpha: float = attr(1.0, doc="what the function falls to, with a minus sign; also its width")


@dataclass(frozen=True, slots=True)
class GeluAttrs(Attrs):
    tanh: bool = attr(False, doc="approximate the normal distribution by a tanh")


def _number(value: float, x: Expr) -> Expr:
    return const(value, x.dtype)


def _decay(x: Expr) -> Expr:
    """e**-|x|, which is at most 1."""
    return unary(UnaryOp.EXP, -unary(UnaryOp.ABS, x))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x)"""
    return unary(UnaryOp.SIGMOID, x)


def softplus(x: Expr) -> Expr:
    """log(1 + e**x) = max(x, 0) + log1p(e**-|x|)"""
    return maximum(x, _number(0, x)) + unary(UnaryOp.LOG1P, _decay(x))


def mish(x: Expr) -> Expr:
    """x tanh(log(1 + e**x)) = x a / (a + b), where with d = e**-|x| the pair (a, b) is
    (1 + 2 d, 2 d**2), and below 0 (d**2 + 2 d, 2)."""
    decay = _decay(x)
    twice, square = decay + decay, decay * decay
    above = select(x < 0, square, _number(1, x)) + twice
    rest = select(x < 0, _number(2, x), square + square)
    return x * (above / (above + rest))


def gelu(x: Expr) -> Expr:
    """x (1 + erf(x / sqrt(2))) / 2, in a form in which nothing cancels."""
    return unary(UnaryOp.GELU, x)


def gelu_tanh(x: Expr) -> Expr:
    """x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x**3); 0 at -inf."""
    cubic = _number(2 * _GELU_SLOPE * _GELU_CUBE, x) * (x * x) + _number(2 * _GELU_SLOPE, x)
    return maximum(x, _number(-64, x)) * sigmoid(x * cubic)


def elu(x: Expr, alpha: float) -> Expr:
    """x above 0, alpha (e**x - 1) below"""
    return select(x < 0, unary(UnaryOp.EXPM1, x) * _number(alpha, x), x)


def celu(x: Expr, alpha: float) -> Expr:
    """x above 0, alpha (e**(x / alpha) - 1) below"""
    below = unary(UnaryOp.EXPM1, x / _number(alpha, x)) * _number(alpha, x)
    return select(x < 0, below, x)


def selu(x: Expr, alpha: float, gamma: float) -> Expr:
    """gamma times elu"""
    return elu(x, alpha) * _number(gamma, x)


def _activation(
    name: str, formula: Callable[..., Expr], doc: str, attrs: type[Attrs] = NoAttrs
) -> Op:
    """An element-wise operator of a formula of (attributes, x), or of x."""

    def scalar(values: Attrs, x: Expr) -> Expr:
        wide = cast(widened(x.dtype), x)
        return cast(x.dtype, formula(wide) if attrs is NoAttrs else formula(values, wide))

    return elementwise(name, scalar, doc, takes=FLOATS, attrs=attrs)


OPS: tuple[Op, ...] = (
    _activation("sigmoid", sigmoid, "1 / (1 + exp(-x))"),
    _activation("softplus", softplus, "log(1 + exp(x))"),
    _activation("mish", mish, "x tanh(log(1 + exp(x)))"),
    _activation(
        "gelu",
        lambda a, x: gelu_tanh(x) if a.tanh else gelu(x),
        "x times the normal distribution's share below x",
        GeluAttrs,
    ),
    _activation(
        "elu",
        lambda a, x: selu(x, a.alpha, a.gamma) if a.gamma != 1 else elu(x, a.alpha),
        "x above 0, alpha (exp(x) - 1) below; times gamma",
        EluAttrs,
    ),
    _activation(
        "celu",
        lambda a, x: celu(x, a.alpha),
        "x above 0, alpha (exp(x / alpha) - 1) below",
        CeluAttrs,
    ),
)
