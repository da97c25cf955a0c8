"""ONNX's element-wise arithmetic, comparisons and conversions."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tilewright.base.dtype import DType, i32
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import Importer, NodeContext, one_of
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.types import element_type
from tilewright.ir.graph import Value


def _plain(op: str) -> Importer:
    """An operator that is one of ours, with the same operands in the same order."""

    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        return ctx.emit(op, [node.input(i) for i in range(len(node.inputs))])

    return importer


def _chain(op: str) -> Importer:
    """Min and Max: any number of operands."""

    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        return ctx.chain(op, [node.input(i) for i in range(len(node.inputs))])

    return importer


def _total(ctx: NodeContext, node: OnnxNode) -> Value:
    """The sum of all operands; of short floats in f32."""
    return ctx.chain("add", [ctx.widened(node.input(i)) for i in range(len(node.inputs))])


def sum_(ctx: NodeContext, node: OnnxNode) -> Value:
    if len(node.inputs) <= 2:  # one addition rounds once as it is
        return ctx.chain("add", [node.input(i) for i in range(len(node.inputs))])
    return ctx.cast(_total(ctx, node), node.input(0).dtype)


def mean(ctx: NodeContext, node: OnnxNode) -> Value:
    total = _total(ctx, node)
    mean = ctx.emit("div", [total, ctx.scalar(len(node.inputs), total)])
    return ctx.cast(mean, node.input(0).dtype)


def identity(ctx: NodeContext, node: OnnxNode) -> Value:
    return node.input(0)


# ---------------------------------------------------------------- arithmetic


def mod(ctx: NodeContext, node: OnnxNode) -> Value:
    """Mod (10): the divisor's sign, or with fmod the dividend's."""
    x, y = node.input(0), node.input(1)
    if x.dtype.is_float and not node.flag("fmod") and node.opset < 28:
        raise ModelError("floats need fmod=1 before opset 28")
    return ctx.emit("rem" if node.flag("fmod") else "mod", [x, y])


def pow_(ctx: NodeContext, node: OnnxNode) -> Value:
    """Pow (7, 12: operands may differ in type; the result has the base's)."""
    base, exponent = node.input(0), node.input(1)
    if base.dtype == exponent.dtype:
        return _power(ctx, base, exponent)
    if base.dtype.is_float:
        return _power(ctx, base, ctx.cast(exponent, base.dtype))
    if exponent.dtype.is_float:
        wide = exponent.dtype
        return ctx.cast(ctx.emit("pow", [ctx.cast(base, wide), exponent]), base.dtype)
    return ctx.emit("pow", [base, ctx.cast(exponent, base.dtype)])


def _power(ctx: NodeContext, base: Value, exponent: Value) -> Value:
    """Squares as what they are."""
    number = ctx.known_constant(exponent) if exponent.type.shape in ((), (1,)) else None
    is_square = number is not None and float(number.reshape(())) == 2.0
    if is_square and base.type.rank >= exponent.type.rank and base.dtype.is_float:
        return ctx.emit("mul", [base, base])
    return ctx.emit("pow", [base, exponent])


def bit_shift(ctx: NodeContext, node: OnnxNode) -> Value:
    direction = one_of(node, "direction", "", ("LEFT", "RIGHT"))
    op = "shl" if direction == "LEFT" else "shr"
    return ctx.emit(op, [node.input(0), node.input(1)])


def is_inf(ctx: NodeContext, node: OnnxNode) -> Value:
    """IsInf (10): either sign, or one of them."""
    x = node.input(0)
    found = ctx.emit("isinf", [x])
    positive, negative = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if positive and negative:
        return found
    if not positive and not negative:
        return ctx.emit("and", [found, ctx.constant(np.array(False))])
    side = ctx.emit("greater" if positive else "less", [x, ctx.scalar(0, x)])
    return ctx.emit("and", [found, side])


def reciprocal(ctx: NodeContext, node: OnnxNode) -> Value:
    x = node.input(0)
    return ctx.emit("div", [ctx.scalar(1, x), x])


# ---------------------------------------------------------------- types


def cast(ctx: NodeContext, node: OnnxNode) -> Value:
    """Cast (6, 9, 13, 19: saturate)."""
    return convert(ctx, node, node.input(0), element_type(node.int("to")))


def cast_like(ctx: NodeContext, node: OnnxNode) -> Value:
    return convert(ctx, node, node.input(0), node.input(1).dtype)


def convert(ctx: NodeContext, node: OnnxNode, x: Value, to: DType) -> Value:
    """Conversion by value; to an 8-bit float by saturating, unless saturate=0; NaN stays."""
    if x.dtype == to:
        return x
    narrow = to.is_float and to.bits <= 8
    if narrow and node.flag("saturate", True) and x.dtype.is_float:
        most = float(ml_dtypes.finfo(to.numpy).max)
        x = ctx.emit("clip", [x], low=-most, high=most)
    if x.dtype.is_float and to.is_integer and to.bits < 8:
        x = ctx.cast(x, i32)  # what does not fit wraps around, as in ONNX's reference
    return ctx.emit("cast", [x], to=to)


def bit_cast(ctx: NodeContext, node: OnnxNode) -> Value:
    """BitCast (26)."""
    return ctx.emit("bitcast", [node.input(0)], to=element_type(node.int("to")))


_PLAIN = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "And": "and", "Asin": "asin",
    "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh", "BitwiseAnd": "and", "BitwiseNot": "not",
    "BitwiseOr": "or", "BitwiseXor": "xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh",
    "Div": "div", "Equal": "equal", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "IsNaN": "isnan", "Less": "less",
    "LessOrEqual": "less_equal", "Log": "log", "Mish": "mish", "Mul": "mul", "Neg": "neg",
    "Not": "not", "Or": "or", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Sqrt": "sqrt",
    "Sub": "sub", "Tan": "tan", "Tanh": "tanh", "Where": "where", "Xor": "xor",
}  # fmt: skip


IMPORTERS: dict[str, Importer] = {
    **{name: _plain(op) for name, op in _PLAIN.items()},
    "BitCast": bit_cast,
    "BitShift": bit_shift,
    "Cast": cast,
    "CastLike": cast_like,
    "Identity": identity,
    "IsInf": is_inf,
    "Max": _chain("max"),
    "Mean": mean,
    "Min": _chain("min"),
    "Mod": mod,
    "Pow": pow_,
    "Reciprocal": reciprocal,
    "Sum": sum_,
}
