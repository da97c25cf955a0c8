"""ONNX's normalisations: batch, layer, group, softmax and kin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import (
    Importer,
    NodeContext,
    axis_of,
    cut_of,
    number_of,
    rounds_once,
)
from tilewright.frontends.onnx.neural import p_norm, per_channel, spatial_axes
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import as_expr
from tilewright.ir.graph import Value
from tilewright.ops.common import widened


def batch_normalization(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
    """BatchNormalization (7, 9, 14: training_mode, 15: types). At inference it is one product and
    one sum per channel."""
    x = node.input(0)
    scale, bias, mean, variance = (node.input(i) for i in range(1, 5))
    if node.opset < 9 and not node.flag("spatial", True):
        raise ModelError("spatial=0 is not supported", hint="export with opset 9 or later")
    for value in (scale, bias, mean, variance):
        if x.type.rank < 2 or value.shape != x.shape[1:2]:
            raise ModelError(f"{value.type} does not hold a number for each channel of {x.type}")
    epsilon = node.float("epsilon", 1e-5)
    if node.flag("training_mode"):
        return _train(ctx, node, x, epsilon)
    if any(node.wants(i) for i in range(1, 5)):
        raise ModelError("it has outputs of training", hint="export the model for inference")
    wide = ctx.widened(x)
    known = [ctx.known_constant(v) for v in (scale, bias, mean, variance)]
    if all(k is not None for k in known):
        s, b, m, v = (np.asarray(k, np.float64) for k in known)
        factor = s / np.sqrt(v + epsilon)
        offset = b - m * factor
        gain = ctx.constant(factor.astype(wide.dtype.numpy))
        shift = ctx.constant(offset.astype(wide.dtype.numpy))
    else:
        scale, bias, mean, variance = (
            ctx.cast(v, wide.dtype) for v in (scale, bias, mean, variance)
        )
        deviation = ctx.emit("sqrt", [ctx.emit("add", [variance, ctx.scalar(epsilon, wide)])])
        gain = ctx.emit("div", [scale, deviation])
        shift = ctx.emit("sub", [bias, ctx.emit("mul", [mean, gain])])
    return [ctx.cast(_affine(ctx, wide, gain, shift), x.dtype)]


def _affine(ctx: NodeContext, x: Value, gain: Value, shift: Value) -> Value:
    """x * gain + shift, which hold a number for each channel, in x's type."""
    gain, shift = (per_channel(ctx, ctx.cast(v, x.dtype), x) for v in (gain, shift))
    return ctx.emit("add", [ctx.emit("mul", [x, gain]), shift])


def _centered(ctx: NodeContext, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """The mean along axes, and x minus the mean, in two steps: what the mean's rounding left is
    the mean of the distances."""
    mean = ctx.emit("reduce_mean", [x], axes=axes, keepdims=True)
    distance = ctx.emit("sub", [x, mean])
    rest = ctx.emit("reduce_mean", [distance], axes=axes, keepdims=True)
    return mean, ctx.emit("sub", [distance, rest])


def _train(ctx: NodeContext, node: OnnxNode, x: Value, epsilon: float) -> Sequence[Value]:
    """The batch's own statistics, and the running ones moved towards them."""
    scale, bias, mean, variance = (node.input(i) for i in range(1, 5))
    axes = (0, *range(2, x.type.rank))
    momentum = node.float("momentum", 0.9)
    wide = ctx.widened(x)
    batch_mean, distance = _centered(ctx, wide, axes)
    squares = ctx.emit("mul", [distance, distance])
    batch_variance = ctx.emit("reduce_mean", [squares], axes=axes, keepdims=True)
    deviation = ctx.emit("sqrt", [ctx.emit("add", [batch_variance, ctx.scalar(epsilon, wide)])])
    out = _affine(ctx, ctx.emit("div", [distance, deviation]), scale, bias)

    def moved(old: Value, new: Value) -> Value:
        before = ctx.widened(old)
        new = ctx.cast(ctx.reshape(new, old.shape), before.dtype)
        kept = ctx.emit("mul", [before, ctx.scalar(momentum, before)])
        change = ctx.emit("mul", [new, ctx.scalar(1 - momentum, before)])
        return ctx.cast(ctx.emit("add", [kept, change]), old.dtype)

    return [ctx.cast(out, x.dtype), moved(mean, batch_mean), moved(variance, batch_variance)]


def _softmax(op: str) -> Importer:
    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        """Softmax and LogSoftmax (1: over all axes from `axis` on, 13: along one)."""
        x = node.input(0)
        if node.opset >= 13:
            return ctx.emit(op, [x], axis=axis_of(node.int("axis", -1), x.type.rank))
        axis = cut_of(node.int("axis", 1), x.type.rank)
        if axis == x.type.rank - 1:
            return ctx.emit(op, [x], axis=axis)
        flat = ctx.reshape(x, [number_of(x.shape[:axis]), number_of(x.shape[axis:])])
        return ctx.reshape(ctx.emit(op, [flat], axis=1), x.shape)

    return importer


def hardmax(ctx: NodeContext, node: OnnxNode) -> Value:
    """Hardmax (1: over all axes from `axis` on, 13: along one): 1 at the first maximum."""
    x = node.input(0)
    shape = x.shape
    if node.opset < 13:
        axis = cut_of(node.int("axis", 1), x.type.rank)
        x, axis = ctx.reshape(x, [number_of(shape[:axis]), number_of(shape[axis:])]), 1
    else:
        axis = axis_of(node.int("axis", -1), x.type.rank)
    place = ctx.emit("argmax", [x], axis=axis, keepdims=True)
    running = ctx.emit("iota", [], length=x.shape[axis])
    running = ctx.reshape(running, [x.shape[axis], *[1] * (x.type.rank - axis - 1)])
    return ctx.reshape(ctx.cast(ctx.emit("equal", [running, place]), x.dtype), shape)


def layer_normalization(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
    """LayerNormalization (17)."""
    x = node.input(0)
    if node.int("stash_type", 1) != 1:
        raise ModelError("a stash_type other than float is not supported")
    inputs = [x, node.input(1)]
    bias = node.optional(2)
    inputs += [] if bias is None else [bias]
    statistics = node.wants(1) or node.wants(2)
    return ctx.emit_all(
        "layer_norm",
        inputs,
        axis=axis_of(node.int("axis", -1), x.type.rank),
        epsilon=node.float("epsilon", 1e-5),
        statistics=statistics,
    )


def rms_normalization(ctx: NodeContext, node: OnnxNode) -> Value:
    """RMSNormalization (23); scale may be of another type, which is the result's."""
    x, scale = node.input(0), node.input(1)
    axis = axis_of(node.int("axis", -1), x.type.rank)
    epsilon = node.float("epsilon", 1e-5)
    if scale.dtype == x.dtype:
        return ctx.emit("rms_norm", [x, scale], axis=axis, epsilon=epsilon)
    ones = ctx.constant(np.ones(1, widened(x.dtype).numpy))
    out = ctx.emit("rms_norm", [ctx.cast(x, ones.dtype), ones], axis=axis, epsilon=epsilon)
    factor = ctx.widened(scale)
    return ctx.cast(ctx.emit("mul", [ctx.cast(out, factor.dtype), factor]), scale.dtype)


@rounds_once
def instance_normalization(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    """InstanceNormalization (6, 22)."""
    epsilon = node.float("epsilon", 1e-5)
    out = ctx.emit("standardize", [x], axes=spatial_axes(x), epsilon=epsilon)
    return _affine(ctx, out, node.input(1), node.input(2))


def group_normalization(ctx: NodeContext, node: OnnxNode) -> Value:
    """GroupNormalization (18: scale and bias per group, 21: per channel)."""
    x, scale, bias = (node.input(i) for i in range(3))
    groups = node.int("num_groups")
    if x.type.rank < 3 or groups < 1:
        raise ModelError(f"{groups} groups of the channels of {x.type}")
    n, c = x.shape[:2]
    if isinstance(c, int) and c % groups:
        raise ModelError(f"{c} channels do not divide into {groups} groups")
    wide = widened(x.dtype)
    per_group = canonical(as_expr(c) // groups)
    grouped = ctx.reshape(ctx.cast(x, wide), [n, groups, per_group, *x.shape[2:]])
    axes = tuple(range(2, x.type.rank + 1))
    out = ctx.emit("standardize", [grouped], axes=axes, epsilon=node.float("epsilon", 1e-5))
    if node.opset < 21:
        scale, bias = (ctx.reshape(v, [groups, *[1] * (x.type.rank - 1)]) for v in (scale, bias))
    else:
        out = ctx.reshape(out, x.shape)
        scale, bias = per_channel(ctx, scale, x), per_channel(ctx, bias, x)
    out = ctx.emit("mul", [out, ctx.cast(scale, wide)])
    out = ctx.emit("add", [out, ctx.cast(bias, wide)])
    return ctx.cast(ctx.reshape(out, x.shape), x.dtype)


@rounds_once
def mean_variance_normalization(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    """MeanVarianceNormalization (9, 13)."""
    axes = tuple(axis_of(a, x.type.rank) for a in node.ints("axes", (0, 2, 3)))
    _, distance = _centered(ctx, x, axes)
    squares = ctx.emit("mul", [distance, distance])
    variance = ctx.emit("reduce_mean", [squares], axes=axes, keepdims=True)
    deviation = ctx.emit("add", [ctx.emit("sqrt", [variance]), ctx.scalar(1e-9, x)])
    return ctx.emit("div", [distance, deviation])


@rounds_once
def lp_normalization(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    """LpNormalization (1, 22): along an axis; what has norm 0 stays 0."""
    axis = axis_of(node.int("axis", -1), x.type.rank)
    norm = p_norm(ctx, x, [axis], node.int("p", 2))
    zero = ctx.emit("equal", [norm, ctx.scalar(0, x)])
    quotient = ctx.emit("div", [x, norm])
    return ctx.emit("where", [zero, ctx.scalar(0, x), quotient])


def lrn(ctx: NodeContext, node: OnnxNode) -> Value:
    """LRN (1, 13)."""
    return ctx.emit(
        "lrn",
        [node.input(0)],
        size=node.int("size"),
        alpha=node.float("alpha", 1e-4),
        beta=node.float("beta", 0.75),
        bias=node.float("bias", 1.0),
    )


IMPORTERS: dict[str, Importer] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "Hardmax": hardmax,
    "InstanceNormalization": instance_normalization,
    "LRN": lrn,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": _softmax("log_softmax"),
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "RMSNormalization": rms_normalization,
    "Softmax": _softmax("softmax"),
}
