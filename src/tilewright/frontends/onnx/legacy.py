"""Operators as they were before opset 7, where they differ: broadcasting by attributes, and modes
of training."""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import Importer, NodeContext, Result, axis_of
from tilewright.frontends.onnx.neural import average_pool, gemm, per_channel
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.normalize import batch_normalization
from tilewright.ir.graph import Value


def _broadcasting(op: str) -> Importer:
    """With broadcast=1 the second operand's axes stand at `axis` of the first, or at its end."""

    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        x, y = node.input(0), node.input(1)
        if not node.flag("broadcast"):
            if x.shape != y.shape:
                raise ModelError(f"{x.type} and {y.type} differ in shape, without broadcast=1")
            return ctx.emit(op, [x, y])
        if node.has("axis"):
            axis = axis_of(node.int("axis"), x.type.rank)
            behind = x.type.rank - axis - y.type.rank
            if behind < 0:
                raise ModelError(f"{y.type} does not fit {x.type} at axis {axis}")
            y = ctx.reshape(y, [*y.shape, *[1] * behind])
        return ctx.emit(op, [x, y])

    return importer


def _require_test(node: OnnxNode) -> None:
    if not node.flag("is_test"):
        raise ModelError(
            "it is in training mode (is_test=0)", hint="export the model for inference"
        )


def batch_normalization_6(ctx: NodeContext, node: OnnxNode) -> Result:
    _require_test(node)
    return batch_normalization(ctx, node)


def dropout_6(ctx: NodeContext, node: OnnxNode) -> Value:
    _require_test(node)
    return node.input(0)


def prelu_6(ctx: NodeContext, node: OnnxNode) -> Value:
    """The slope is one number, or one for each channel."""
    x, slope = node.input(0), node.input(1)
    if slope.shape != (1,) and x.type.rank > 1:
        slope = per_channel(ctx, slope, x)
    negative = ctx.emit("less", [x, ctx.scalar(0, x)])
    return ctx.emit("where", [negative, ctx.emit("mul", [x, slope]), x])


# By operator and the opset that this form of it is from.
IMPORTERS: dict[tuple[str, int], Importer] = {
    **{(name, 6): _broadcasting(name.lower()) for name in ("Add", "Sub", "Mul", "Div")},
    **{(name, 1): _broadcasting(name.lower()) for name in ("And", "Or", "Xor", "Pow")},
    **{(name, 1): _broadcasting(name.lower()) for name in ("Equal", "Greater", "Less")},
    ("AveragePool", 1): average_pool,
    ("BatchNormalization", 6): batch_normalization_6,
    ("Dropout", 6): dropout_6,
    ("Gemm", 6): gemm,
    ("PRelu", 6): prelu_6,
}
