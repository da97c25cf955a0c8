"""Operators that work element by element, with numpy's broadcasting between operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import DType, Kind, bool_, u8
from tilewright.ir.dims import tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Bitcast,
    Buffer,
    CompareOp,
    Expr,
    UnaryOp,
    binary,
    cast,
    compare,
    const,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import (
    NoAttrs,
    broadcast,
    read_broadcast,
    require,
    require_same_dtype,
)

Scalar = Callable[..., Expr]  # (attrs, *elements) -> element
Check = Callable[[DType], bool]

FLOATS: tuple[str, Check] = ("floats", lambda t: t.is_float)
INTEGERS: tuple[str, Check] = ("integers", lambda t: t.is_integer)
NUMBERS: tuple[str, Check] = ("floats and integers", lambda t: t.kind is not Kind.BOOL)
BOOLS: tuple[str, Check] = ("bool", lambda t: t.kind is Kind.BOOL)
ANY: tuple[str, Check] = ("any", lambda t: True)


def elementwise(
    name: str,
    scalar: Scalar,
    doc: str,
    *,
    arity: tuple[int, int] = (1, 1),
    takes: tuple[str, Check] = ANY,
    attrs: type[Attrs] = NoAttrs,
    result: Callable[[Any, DType], DType] = lambda attrs, t: t,
    chooses: bool = False,
) -> Op:
    """An operator whose output element is scalar(attrs, *input elements).

    `takes` names and tests the element type of the last operand. All operands share it, but for
    a first one that is a condition where `chooses` says so. `result` gives the output's type.
    """

    def infer(values: Attrs, types: Sequence[TensorType]) -> list[TensorType]:
        kind = require_same_dtype(name, types[1:] if chooses else types)
        if chooses:
            require(types[0].dtype == bool_, f"{name}: the condition is {types[0].dtype}, not bool")
        require(takes[1](kind), f"{name}: takes {takes[0]}, not {kind}")
        return [tensor_type(result(values, kind), broadcast([t.shape for t in types]))]

    def compute(b: Builder, values: Attrs, inputs: Sequence[Buffer]) -> list[Buffer]:
        shape = broadcast([x.shape for x in inputs])

        def value(*index: Expr) -> Expr:
            return scalar(values, *(read_broadcast(x, index) for x in inputs))

        return [b.compute(name, shape, value)]

    return Op(
        name, attrs, infer, Category.INJECTIVE, doc, arity, takes[0], compute, elementwise=True
    )


def _unary(op: UnaryOp, doc: str, takes: tuple[str, Check] = FLOATS) -> Op:
    if op in (UnaryOp.ISNAN, UnaryOp.ISINF):
        return elementwise(op.value, lambda _, x: unary(op, x), doc, takes=takes, result=_to_bool)
    return elementwise(op.value, lambda _, x: unary(op, x), doc, takes=takes)


def _binary(op: BinaryOp, doc: str, takes: tuple[str, Check] = NUMBERS) -> Op:
    return elementwise(op.value, lambda _, x, y: binary(op, x, y), doc, arity=(2, 2), takes=takes)


def _compare(name: str, op: CompareOp, doc: str) -> Op:
    return elementwise(name, lambda _, x, y: compare(op, x, y), doc, arity=(2, 2), result=_to_bool)


def _to_bool(attrs: Attrs, dtype: DType) -> DType:
    return bool_


# ---------------------------------------------------------------- with attributes


@dataclass(frozen=True, slots=True)
class CastAttrs(Attrs):
    to: DType = attr(doc="the element type of the result")


@dataclass(frozen=True, slots=True)
class ClipAttrs(Attrs):
    low: float | None = attr(None, doc="least value of the result; none: unbounded")
    high: float | None = attr(None, doc="greatest value of the result; none: unbounded")


@dataclass(frozen=True, slots=True)
class LeakyReluAttrs(Attrs):
    alpha: float = attr(0.01, doc="slope for negative elements")


def _bitcast(attrs: CastAttrs, x: Expr) -> Expr:
    """bool counts as u8 of 0 and 1."""
    x = cast(u8, x) if x.dtype == bool_ else x
    middle = u8 if attrs.to == bool_ else attrs.to
    x = x if x.dtype == middle else Bitcast(middle, x)
    return cast(attrs.to, x)


def _same_width(attrs: CastAttrs, dtype: DType) -> DType:
    require(
        attrs.to.bits == dtype.bits, f"bitcast: {dtype} and {attrs.to} are not of the same width"
    )
    return attrs.to


def _clip(attrs: ClipAttrs, x: Expr) -> Expr:
    if attrs.low is not None:
        x = maximum(x, const(attrs.low, x.dtype))
    return x if attrs.high is None else minimum(x, const(attrs.high, x.dtype))


def _leaky_relu(attrs: LeakyReluAttrs, x: Expr) -> Expr:
    return select(x < 0, x * const(attrs.alpha, x.dtype), x)


OPS: tuple[Op, ...] = (
    _unary(UnaryOp.NEG, "-x", NUMBERS),
    _unary(
        UnaryOp.NOT,
        "logical not of bool, bitwise not of integers",
        ("bool, integers", lambda t: not t.is_float),
    ),
    _unary(UnaryOp.ABS, "|x|", NUMBERS),
    _unary(UnaryOp.SIGN, "-1, 0 or 1", NUMBERS),
    _unary(UnaryOp.SQRT, "square root"),
    _unary(UnaryOp.EXP, "e to the x"),
    _unary(UnaryOp.EXPM1, "e to the x, minus 1"),
    _unary(UnaryOp.LOG, "natural logarithm"),
    _unary(UnaryOp.LOG1P, "natural logarithm of 1 + x"),
    _unary(UnaryOp.SIN, "sine of radians"),
    _unary(UnaryOp.COS, "cosine of radians"),
    _unary(UnaryOp.TAN, "tangent of radians"),
    _unary(UnaryOp.ASIN, "inverse sine"),
    _unary(UnaryOp.ACOS, "inverse cosine"),
    _unary(UnaryOp.ATAN, "inverse tangent"),
    _unary(UnaryOp.SINH, "hyperbolic sine"),
    _unary(UnaryOp.COSH, "hyperbolic cosine"),
    _unary(UnaryOp.TANH, "hyperbolic tangent"),
    _unary(UnaryOp.ASINH, "inverse hyperbolic sine"),
    _unary(UnaryOp.ACOSH, "inverse hyperbolic cosine"),
    _unary(UnaryOp.ATANH, "inverse hyperbolic tangent"),
    _unary(UnaryOp.ERF, "the error function"),
    _unary(UnaryOp.FLOOR, "greatest integer not above x"),
    _unary(UnaryOp.CEIL, "least integer not below x"),
    _unary(UnaryOp.ROUND, "nearest integer, halves to even"),
    _unary(UnaryOp.TRUNC, "x without its fraction"),
    _unary(UnaryOp.ISNAN, "whether x is NaN"),
    _unary(UnaryOp.ISINF, "whether x is +inf or -inf"),
    _binary(BinaryOp.ADD, "x + y"),
    _binary(BinaryOp.SUB, "x - y"),
    _binary(BinaryOp.MUL, "x * y"),
    _binary(BinaryOp.DIV, "x / y; integers truncate"),
    _binary(BinaryOp.MOD, "remainder with the sign of y"),
    _binary(BinaryOp.REM, "remainder with the sign of x"),
    _binary(BinaryOp.POW, "x to the y"),
    _binary(BinaryOp.MIN, "the smaller; NaN if either is NaN"),
    _binary(BinaryOp.MAX, "the greater; NaN if either is NaN"),
    _binary(BinaryOp.AND, "and, bit by bit", ("bool, integers", lambda t: not t.is_float)),
    _binary(BinaryOp.OR, "or, bit by bit", ("bool, integers", lambda t: not t.is_float)),
    _binary(BinaryOp.XOR, "exclusive or, bit by bit", ("bool, integers", lambda t: not t.is_float)),
    _binary(BinaryOp.SHL, "shift left", INTEGERS),
    _binary(BinaryOp.SHR, "shift right", INTEGERS),
    _compare("equal", CompareOp.EQ, "x == y"),
    _compare("less", CompareOp.LT, "x < y"),
    _compare("less_equal", CompareOp.LE, "x <= y"),
    _compare("greater", CompareOp.GT, "x > y"),
    _compare("greater_equal", CompareOp.GE, "x >= y"),
    elementwise(
        "where", lambda _, c, x, y: select(c, x, y), "x where c, else y", arity=(3, 3), chooses=True
    ),
    elementwise(
        "cast",
        lambda a, x: cast(a.to, x),
        "conversion by value",
        attrs=CastAttrs,
        result=lambda a, t: a.to,
    ),
    elementwise(
        "bitcast",
        _bitcast,
        "the same bits read as another type of the same width",
        attrs=CastAttrs,
        result=_same_width,
    ),
    elementwise("identity", lambda _, x: x, "x"),
    elementwise("relu", lambda _, x: maximum(x, const(0, x.dtype)), "max(x, 0)", takes=NUMBERS),
    elementwise("clip", _clip, "x limited to low … high", takes=NUMBERS, attrs=ClipAttrs),
    elementwise(
        "leaky_relu", _leaky_relu, "x, or alpha * x below 0", takes=FLOATS, attrs=LeakyReluAttrs
    ),
)
