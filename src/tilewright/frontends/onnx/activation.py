"""ONNX's activations, composed of element-wise operators."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtype import bool_
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import Importer, NodeContext, one_of, rounds_once
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.graph import Value


def clip(ctx: NodeContext, node: OnnxNode) -> Value:
    """Clip (6: attributes, 11: inputs that may be left out)."""
    x = node.input(0)
    if node.opset < 11:
        low = node.float("min") if node.has("min") else None
        high = node.float("max") if node.has("max") else None
        return ctx.emit("clip", [x], low=low, high=high)
    bounds = [node.optional(1), node.optional(2)]
    known = [None if v is None else ctx.known(v) for v in bounds]
    if all(v is None or k is not None for v, k in zip(bounds, known, strict=True)):
        low, high = (
            None if v is None else ctx.need_number(v, name)
            for v, name in zip(bounds, ("min", "max"), strict=True)
        )
        return ctx.emit("clip", [x], low=low, high=high)
    for op, value in zip(("max", "min"), bounds, strict=True):
        x = x if value is None else ctx.emit(op, [x, value])
    return x


def leaky_relu(ctx: NodeContext, node: OnnxNode) -> Value:
    return ctx.emit("leaky_relu", [node.input(0)], alpha=node.float("alpha", 0.01))


def prelu(ctx: NodeContext, node: OnnxNode) -> Value:
    x, slope = node.input(0), node.input(1)
    negative = ctx.emit("less", [x, ctx.scalar(0, x)])
    return ctx.emit("where", [negative, ctx.emit("mul", [x, slope]), x])


def elu(ctx: NodeContext, node: OnnxNode) -> Value:
    return ctx.emit("elu", [node.input(0)], alpha=node.float("alpha", 1.0))


def celu(ctx: NodeContext, node: OnnxNode) -> Value:
    return ctx.emit("celu", [node.input(0)], alpha=node.float("alpha", 1.0))


def selu(ctx: NodeContext, node: OnnxNode) -> Value:
    alpha = node.float("alpha", 1.6732631921768188)
    gamma = node.float("gamma", 1.0507010221481323)
    return ctx.emit("elu", [node.input(0)], alpha=alpha, gamma=gamma)


@rounds_once
def hard_sigmoid(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    return _hard_sigmoid(ctx, x, node.float("alpha", 0.2), node.float("beta", 0.5))


def _hard_sigmoid(ctx: NodeContext, x: Value, alpha: float, beta: float) -> Value:
    x = ctx.emit("mul", [x, ctx.scalar(alpha, x)])
    x = ctx.emit("add", [x, ctx.scalar(beta, x)])
    return ctx.emit("clip", [x], low=0.0, high=1.0)


@rounds_once
def hard_swish(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    return ctx.emit("mul", [x, _hard_sigmoid(ctx, x, 1 / 6, 0.5)])


@rounds_once
def softsign(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    divisor = ctx.emit("add", [ctx.emit("abs", [x]), ctx.scalar(1, x)])
    return ctx.emit("div", [x, divisor])


@rounds_once
def thresholded_relu(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    above = ctx.emit("greater", [x, ctx.scalar(node.float("alpha", 1.0), x)])
    return ctx.emit("where", [above, x, ctx.scalar(0, x)])


@rounds_once
def shrink(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    """Shrink (9): x + bias below -lambd, x - bias above lambd, else 0."""
    bias = ctx.scalar(node.float("bias", 0.0), x)
    limit = node.float("lambd", 0.5)
    above = ctx.emit("greater", [x, ctx.scalar(limit, x)])
    below = ctx.emit("less", [x, ctx.scalar(-limit, x)])
    inner = ctx.emit("where", [above, ctx.emit("sub", [x, bias]), ctx.scalar(0, x)])
    return ctx.emit("where", [below, ctx.emit("add", [x, bias]), inner])


def gelu(ctx: NodeContext, node: OnnxNode) -> Value:
    """Gelu (20): with erf, or its approximation by tanh."""
    tanh = one_of(node, "approximate", "none", ("none", "tanh")) == "tanh"
    return ctx.emit("gelu", [node.input(0)], tanh=tanh)


def dropout(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
    """Dropout (7, 10, 12, 22): at inference nothing is dropped."""
    x = node.input(0)
    training = node.optional(2) if node.opset >= 12 else None
    if training is not None and bool(ctx.need(training, "training_mode").all()):
        ratio = node.optional(1)
        if ratio is None or ctx.need_number(ratio, "ratio") != 0.0:
            raise ModelError(
                "in training mode it draws random numbers", hint="export the model for inference"
            )
    mask_type = bool_ if node.opset >= 10 else x.dtype
    mask = [ctx.full(x.shape, 1, mask_type)] if node.wants(1) else []
    return [x, *mask]


IMPORTERS: dict[str, Importer] = {
    "Celu": celu,
    "Clip": clip,
    "Dropout": dropout,
    "Elu": elu,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "LeakyRelu": leaky_relu,
    "PRelu": prelu,
    "Selu": selu,
    "Shrink": shrink,
    "Softsign": softsign,
    "ThresholdedRelu": thresholded_relu,
}
