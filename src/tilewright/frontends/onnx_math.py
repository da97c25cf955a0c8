"""ONNX's element-wise operators and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import ml_dtypes
import numpy as np

from tilewright.base.dtype import DType, bool_, f32, i32
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx_context import NodeContext, axis_of, one_of
from tilewright.frontends.onnx_node import Node
from tilewright.frontends.onnx_types import element_type
from tilewright.ir.graph import Value

Importer = Callable[[NodeContext, Node], Value]


def _plain(op: str) -> Importer:
    """An operator that is one of ours, with the same operands in the same order."""

    def importer(ctx: NodeContext, node: Node) -> Value:
        return ctx.emit(op, [node.input(i) for i in range(len(node.inputs))])

    return importer


def _chain(op: str) -> Importer:
    """Min, Max and Sum: any number of operands."""

    def importer(ctx: NodeContext, node: Node) -> Value:
        values = [node.input(i) for i in range(len(node.inputs))]
        return ctx.chain(op, values)

    return importer


def mean(ctx: NodeContext, node: Node) -> Value:
    values = [node.input(i) for i in range(len(node.inputs))]
    total = ctx.chain("add", values)
    return ctx.emit("div", [total, ctx.scalar(len(values), total)])


def identity(ctx: NodeContext, node: Node) -> Value:
    return node.input(0)


# ---------------------------------------------------------------- arithmetic


def mod(ctx: NodeContext, node: Node) -> Value:
    """Mod (10): the divisor's sign, or with fmod the dividend's."""
    x, y = node.input(0), node.input(1)
    if x.dtype.is_float and not node.flag("fmod") and node.opset < 28:
        raise ModelError("floats need fmod=1 before opset 28")
    return ctx.emit("rem" if node.flag("fmod") else "mod", [x, y])


def pow_(ctx: NodeContext, node: Node) -> Value:
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
    """Squares and roots as what they are."""
    number = ctx.known_constant(exponent) if exponent.type.shape in ((), (1,)) else None
    keeps_rank = base.type.rank >= exponent.type.rank
    if number is not None and keeps_rank and base.dtype.is_float:
        if float(number.reshape(())) == 2.0:
            return ctx.emit("mul", [base, base])
        if float(number.reshape(())) == 0.5:
            return ctx.emit("sqrt", [base])
    return ctx.emit("pow", [base, exponent])


def bit_shift(ctx: NodeContext, node: Node) -> Value:
    direction = one_of(node, "direction", "", ("LEFT", "RIGHT"))
    op = "shl" if direction == "LEFT" else "shr"
    return ctx.emit(op, [node.input(0), node.input(1)])


def is_inf(ctx: NodeContext, node: Node) -> Value:
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


def reciprocal(ctx: NodeContext, node: Node) -> Value:
    x = node.input(0)
    return ctx.emit("div", [ctx.scalar(1, x), x])


# ---------------------------------------------------------------- types


def cast(ctx: NodeContext, node: Node) -> Value:
    """Cast (6, 9, 13, 19: saturate)."""
    return convert(ctx, node, node.input(0), element_type(node.int("to")))


def cast_like(ctx: NodeContext, node: Node) -> Value:
    return convert(ctx, node, node.input(0), node.input(1).dtype)


def convert(ctx: NodeContext, node: Node, x: Value, to: DType) -> Value:
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


# ---------------------------------------------------------------- activations


def clip(ctx: NodeContext, node: Node) -> Value:
    """Clip (6: attributes, 11: inputs that may be left out)."""
    x = node.input(0)
    if node.opset < 11:
        low = node.float("min") if node.has("min") else None
        high = node.float("max") if node.has("max") else None
        return ctx.emit("clip", [x], low=low, high=high)
    bounds = [node.optional(1), node.optional(2)]
    known = [None if v is None else ctx.known(v) for v in bounds]
    if all(v is None or k is not None for v, k in zip(bounds, known, strict=True)):
        low, high = (None if k is None else _number(k) for k in known)
        return ctx.emit("clip", [x], low=low, high=high)
    for op, value in zip(("max", "min"), bounds, strict=True):
        x = x if value is None else ctx.emit(op, [x, value])
    return x


def _number(array: np.ndarray) -> int | float:
    if array.size != 1:
        raise ModelError(f"a limit has {array.size} elements")
    return float(array.reshape(())) if array.dtype.kind not in "iu" else int(array.reshape(()))


def leaky_relu(ctx: NodeContext, node: Node) -> Value:
    return ctx.emit("leaky_relu", [node.input(0)], alpha=node.float("alpha", 0.01))


def prelu(ctx: NodeContext, node: Node) -> Value:
    x, slope = node.input(0), node.input(1)
    negative = ctx.emit("less", [x, ctx.scalar(0, x)])
    return ctx.emit("where", [negative, ctx.emit("mul", [x, slope]), x])


def elu(ctx: NodeContext, node: Node) -> Value:
    return _elu(ctx, node.input(0), node.float("alpha", 1.0))


def _elu(ctx: NodeContext, x: Value, alpha: float, divisor: float = 1.0) -> Value:
    """x above 0, alpha * (exp(x / divisor) - 1) below."""
    inner = x if divisor == 1.0 else ctx.emit("div", [x, ctx.scalar(divisor, x)])
    below = ctx.emit("sub", [ctx.emit("exp", [inner]), ctx.scalar(1, x)])
    below = ctx.emit("mul", [below, ctx.scalar(alpha, x)])
    return ctx.emit("where", [ctx.emit("less", [x, ctx.scalar(0, x)]), below, x])


def celu(ctx: NodeContext, node: Node) -> Value:
    alpha = node.float("alpha", 1.0)
    return _elu(ctx, node.input(0), alpha, alpha)


def selu(ctx: NodeContext, node: Node) -> Value:
    x = _elu(ctx, node.input(0), node.float("alpha", 1.6732632423543772))
    return ctx.emit("mul", [x, ctx.scalar(node.float("gamma", 1.0507009873554805), x)])


def hard_sigmoid(ctx: NodeContext, node: Node) -> Value:
    return _hard_sigmoid(ctx, node.input(0), node.float("alpha", 0.2), node.float("beta", 0.5))


def _hard_sigmoid(ctx: NodeContext, x: Value, alpha: float, beta: float) -> Value:
    x = ctx.emit("mul", [x, ctx.scalar(alpha, x)])
    x = ctx.emit("add", [x, ctx.scalar(beta, x)])
    return ctx.emit("clip", [x], low=0.0, high=1.0)


def hard_swish(ctx: NodeContext, node: Node) -> Value:
    x = node.input(0)
    return ctx.emit("mul", [x, _hard_sigmoid(ctx, x, 1 / 6, 0.5)])


def softplus(ctx: NodeContext, node: Node) -> Value:
    return _softplus(ctx, node.input(0))


def _softplus(ctx: NodeContext, x: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    tail = ctx.emit("exp", [ctx.emit("neg", [ctx.emit("abs", [x])])])
    tail = ctx.emit("log", [ctx.emit("add", [tail, ctx.scalar(1, x)])])
    return ctx.emit("add", [ctx.emit("relu", [x]), tail])


def mish(ctx: NodeContext, node: Node) -> Value:
    x = node.input(0)
    return ctx.emit("mul", [x, ctx.emit("tanh", [_softplus(ctx, x)])])


def softsign(ctx: NodeContext, node: Node) -> Value:
    x = node.input(0)
    divisor = ctx.emit("add", [ctx.emit("abs", [x]), ctx.scalar(1, x)])
    return ctx.emit("div", [x, divisor])


def thresholded_relu(ctx: NodeContext, node: Node) -> Value:
    x = node.input(0)
    above = ctx.emit("greater", [x, ctx.scalar(node.float("alpha", 1.0), x)])
    return ctx.emit("where", [above, x, ctx.scalar(0, x)])


def shrink(ctx: NodeContext, node: Node) -> Value:
    """Shrink (9): x + bias below -lambd, x - bias above lambd, else 0."""
    x = node.input(0)
    bias = ctx.scalar(node.float("bias", 0.0), x)
    limit = node.float("lambd", 0.5)
    above = ctx.emit("greater", [x, ctx.scalar(limit, x)])
    below = ctx.emit("less", [x, ctx.scalar(-limit, x)])
    inner = ctx.emit("where", [above, ctx.emit("sub", [x, bias]), ctx.scalar(0, x)])
    return ctx.emit("where", [below, ctx.emit("add", [x, bias]), inner])


def gelu(ctx: NodeContext, node: Node) -> Value:
    """Gelu (20): with erf, or its approximation by tanh."""
    x = node.input(0)
    if one_of(node, "approximate", "none", ("none", "tanh")) == "none":
        inner = ctx.emit("erf", [ctx.emit("mul", [x, ctx.scalar(0.5**0.5, x)])])
    else:
        cube = ctx.emit("mul", [ctx.emit("mul", [x, x]), x])
        inner = ctx.emit("add", [x, ctx.emit("mul", [cube, ctx.scalar(0.044715, x)])])
        inner = ctx.emit("mul", [inner, ctx.scalar((2 / np.pi) ** 0.5, x)])
        inner = ctx.emit("tanh", [inner])
    half = ctx.emit("mul", [x, ctx.scalar(0.5, x)])
    return ctx.emit("mul", [half, ctx.emit("add", [inner, ctx.scalar(1, x)])])


def dropout(ctx: NodeContext, node: Node) -> Sequence[Value]:
    """Dropout (7, 10, 12, 22): at inference nothing is dropped."""
    x = node.input(0)
    training = node.optional(2) if node.opset >= 12 else None
    if training is not None and bool(ctx.need(training, "training_mode").all()):
        ratio = node.optional(1)
        if ratio is None or float(ctx.need(ratio, "ratio").reshape(())) != 0.0:
            raise ModelError(
                "in training mode it draws random numbers", hint="export the model for inference"
            )
    mask_type = bool_ if node.opset >= 10 else x.dtype
    mask = [ctx.full(x.shape, 1, mask_type)] if node.wants(1) else []
    return [x, *mask]


# ---------------------------------------------------------------- reductions


def reduction_axes(ctx: NodeContext, node: Node, since: int) -> tuple[tuple[int, ...], bool]:
    """The axes, and whether there is anything to do: attribute before opset `since`, then input."""
    rank = node.input(0).type.rank
    axes = ctx.ints(node, "axes", 1, since)
    if not axes:
        return tuple(range(rank)), not node.flag("noop_with_empty_axes")
    return tuple(axis_of(a, rank) for a in axes), True


def _reduce(
    since: int,
    op: str,
    before: Callable[[NodeContext, Value], Value] = lambda ctx, x: x,
    after: Callable[[NodeContext, Value], Value] = lambda ctx, x: x,
) -> Importer:
    """after(reduction of before(x)). Without axes and with noop_with_empty_axes nothing is
    combined, but `before` and `after` apply."""

    def importer(ctx: NodeContext, node: Node) -> Value:
        axes, combines = reduction_axes(ctx, node, since)
        x = before(ctx, node.input(0))
        if combines:
            x = ctx.emit(op, [x], axes=axes, keepdims=node.flag("keepdims", True))
        return after(ctx, x)

    return importer


def _square(ctx: NodeContext, x: Value) -> Value:
    return ctx.emit("mul", [x, x])


def _root(ctx: NodeContext, x: Value) -> Value:
    if x.dtype.is_float:
        return ctx.emit("sqrt", [x])
    return ctx.cast(ctx.emit("sqrt", [ctx.cast(x, f32)]), x.dtype)


def _log(ctx: NodeContext, x: Value) -> Value:
    return ctx.emit("log", [x])


def _unary(op: str) -> Callable[[NodeContext, Value], Value]:
    return lambda ctx, x: ctx.emit(op, [x])


def _logsumexp(ctx: NodeContext, node: Node) -> Value:
    axes, combines = reduction_axes(ctx, node, 18)
    if not combines:
        return node.input(0)
    keepdims = node.flag("keepdims", True)
    return ctx.emit("reduce_logsumexp", [node.input(0)], axes=axes, keepdims=keepdims)


def _arg(op: str) -> Importer:
    def importer(ctx: NodeContext, node: Node) -> Value:
        x = node.input(0)
        axis = axis_of(node.int("axis", 0), x.type.rank)
        last = node.flag("select_last_index")
        return ctx.emit(op, [x], axis=axis, keepdims=node.flag("keepdims", True), last=last)

    return importer


def _cumulate(op: str, ctx: NodeContext, node: Node) -> Value:
    """CumSum (11), CumProd (26): the axis is an input."""
    x = node.input(0)
    (axis,) = ctx.need_ints(node.input(1), "axis")
    return ctx.emit(
        op,
        [x],
        axis=axis_of(axis, x.type.rank),
        exclusive=node.flag("exclusive"),
        reverse=node.flag("reverse"),
    )


_PLAIN = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "And": "and", "Asin": "asin",
    "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh", "BitwiseAnd": "and", "BitwiseNot": "not",
    "BitwiseOr": "or", "BitwiseXor": "xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh",
    "Div": "div", "Equal": "equal", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Greater": "greater", "GreaterOrEqual": "greater_equal", "IsNaN": "isnan", "Less": "less",
    "LessOrEqual": "less_equal", "Log": "log", "Mul": "mul", "Neg": "neg", "Not": "not",
    "Or": "or", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Sub": "sub", "Tan": "tan", "Tanh": "tanh",
    "Where": "where", "Xor": "xor",
}  # fmt: skip

IMPORTERS: dict[str, Callable[..., Value | Sequence[Value]]] = {
    **{name: _plain(op) for name, op in _PLAIN.items()},
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "BitShift": bit_shift,
    "Cast": cast,
    "CastLike": cast_like,
    "Celu": celu,
    "Clip": clip,
    "CumProd": partial(_cumulate, "cumprod"),
    "CumSum": partial(_cumulate, "cumsum"),
    "Dropout": dropout,
    "Elu": elu,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "Identity": identity,
    "IsInf": is_inf,
    "LeakyRelu": leaky_relu,
    "Max": _chain("max"),
    "Mean": mean,
    "Min": _chain("min"),
    "Mish": mish,
    "Mod": mod,
    "PRelu": prelu,
    "Pow": pow_,
    "Reciprocal": reciprocal,
    "ReduceL1": _reduce(18, "reduce_sum", before=_unary("abs")),
    "ReduceL2": _reduce(18, "reduce_sum", before=_square, after=_root),
    "ReduceLogSum": _reduce(18, "reduce_sum", after=_log),
    "ReduceLogSumExp": _logsumexp,
    "ReduceMax": _reduce(18, "reduce_max"),
    "ReduceMean": _reduce(18, "reduce_mean"),
    "ReduceMin": _reduce(18, "reduce_min"),
    "ReduceProd": _reduce(18, "reduce_prod"),
    "ReduceSum": _reduce(13, "reduce_sum"),
    "ReduceSumSquare": _reduce(18, "reduce_sum", before=_square),
    "Selu": selu,
    "Shrink": shrink,
    "Softplus": softplus,
    "Softsign": softsign,
    "Sum": _chain("add"),
    "ThresholdedRelu": thresholded_relu,
}
