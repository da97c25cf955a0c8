"""ONNX's neural network operators: products, convolutions, pooling, normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx_context import NodeContext, Result, axis_of, number_of, one_of
from tilewright.frontends.onnx_node import Node
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value
from tilewright.ops.common import widened

Importer = Callable[[NodeContext, Node], Result]


# ---------------------------------------------------------------- products


def matmul(ctx: NodeContext, node: Node) -> Value:
    return product(ctx, node.input(0), node.input(1))


def product(ctx: NodeContext, a: Value, b: Value) -> Value:
    """numpy.matmul: a vector is a row on the left, a column on the right."""
    if not a.shape or not b.shape:
        raise ModelError(f"a scalar has no rows and columns: {a.type} times {b.type}")
    row, column = a.type.rank == 1, b.type.rank == 1
    left = ctx.reshape(a, [1, *a.shape]) if row else a
    right = ctx.reshape(b, [*b.shape, 1]) if column else b
    out = ctx.emit("matmul", [left, right])
    shape = list(out.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return ctx.reshape(out, shape)


def gemm(ctx: NodeContext, node: Node) -> Value:
    """Gemm (7, 11: C is optional): alpha * A' * B' + beta * C."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    if a.type.rank != 2 or b.type.rank != 2:
        raise ModelError(f"the factors are {a.type} and {b.type}, not matrices")
    a = ctx.transpose(a, (1, 0)) if node.flag("transA") else a
    b = ctx.transpose(b, (1, 0)) if node.flag("transB") else b
    out = scaled(ctx, ctx.emit("matmul", [a, b]), node.float("alpha", 1.0))
    beta = node.float("beta", 1.0)
    return out if c is None or beta == 0 else ctx.emit("add", [out, scaled(ctx, c, beta)])


def scaled(ctx: NodeContext, x: Value, factor: float) -> Value:
    """`x` times a number; a factor of an integer tensor must be whole."""
    if factor == 1.0:
        return x
    if not x.dtype.is_float and factor != int(factor):
        raise ModelError(f"a tensor of {x.dtype} times {factor}")
    return ctx.emit("mul", [x, ctx.scalar(factor, x)])


# ---------------------------------------------------------------- windows


@dataclass(frozen=True)
class Window:
    """The attributes that convolutions and pooling share, complete."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]


def window(node: Node, x: Value, kernel: Sequence[int]) -> Window:
    """The window's attributes with ONNX's defaults; auto_pad made numbers."""
    rank = x.type.rank - 2
    if rank < 1 or len(kernel) != rank:
        raise ModelError(f"a window of {len(kernel)} axes on the input {x.type}")
    strides = node.ints("strides", (1,) * rank)
    dilations = node.ints("dilations", (1,) * rank)
    pads = node.ints("pads", (0,) * (2 * rank))
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ModelError(f"strides, dilations or pads do not fit {rank} spatial axes")
    if min((*kernel, *strides, *dilations)) < 1:
        raise ModelError("kernel_shape, strides and dilations must be positive")
    mode = one_of(node, "auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    begin, end = pads[:rank], pads[rank:]
    if mode == "VALID":
        begin = end = (0,) * rank
    elif mode != "NOTSET":
        begin, end = _same_pads(x.shape[2:], kernel, strides, dilations, mode == "SAME_LOWER")
    if min((*begin, *end)) < 0:
        raise ModelError(f"negative pads: {list(pads)}", hint="put a Slice before the node instead")
    return Window(tuple(kernel), strides, dilations, tuple(begin), tuple(end))


def _same_pads(
    sizes: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lower: bool,
) -> tuple[list[int], list[int]]:
    """Pads that give ceil(size / stride) windows; an odd one goes behind, or before."""
    begin, end = [], []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (k - 1) * d + 1
        if s == 1:
            total = reach - 1
        elif not isinstance(size, int):
            raise ModelError(
                "auto_pad with a stride needs to know the input's size",
                hint="fix symbolic dimensions with dims=",
            )
        else:
            total = max(0, (-(-size // s) - 1) * s + reach - size)
        small, large = total // 2, total - total // 2
        begin.append(large if lower else small)
        end.append(small if lower else large)
    return begin, end


def conv(ctx: NodeContext, node: Node) -> Value:
    """Conv (1, 11, 22); a bias is an addition per channel."""
    x, w = node.input(0), node.input(1)
    out = convolve(ctx, node, x, w)
    return add_per_channel(ctx, out, node.optional(2))


def convolve(ctx: NodeContext, node: Node, x: Value, w: Value) -> Value:
    """The convolution that the node's attributes describe."""
    kernel = tuple(int(d) if isinstance(d, int) else 0 for d in w.shape[2:])
    if 0 in kernel:
        raise ModelError(f"the weight is {w.type}: the window's size must be known")
    if node.has("kernel_shape") and node.ints("kernel_shape") != kernel:
        raise ModelError(f"kernel_shape is {list(node.ints('kernel_shape'))}, the weight {w.type}")
    found = window(node, x, kernel)
    groups = node.int("group", 1)
    return ctx.emit(
        "conv",
        [x, w],
        strides=found.strides,
        dilations=found.dilations,
        pads_begin=found.pads_begin,
        pads_end=found.pads_end,
        groups=groups,
    )


def add_per_channel(ctx: NodeContext, x: Value, bias: Value | None) -> Value:
    """x[n, c, …] + bias[c]."""
    if bias is None:
        return x
    return ctx.emit("add", [x, per_channel(ctx, bias, x)])


def per_channel(ctx: NodeContext, v: Value, x: Value) -> Value:
    """v[c] in a shape that broadcasts along the channels of x[n, c, …]."""
    if v.type.rank != 1:
        raise ModelError(f"a vector of one number per channel is needed, not {v.type}")
    return ctx.reshape(v, [*v.shape, *[1] * (x.type.rank - 2)])


def max_pool(ctx: NodeContext, node: Node) -> Sequence[Value]:
    """MaxPool (1, 8: indices, 10: dilations and ceil_mode)."""
    x = node.input(0)
    found = window(node, x, node.ints("kernel_shape"))
    return ctx.emit_all(
        "max_pool",
        [x],
        kernel=found.kernel,
        strides=found.strides,
        pads_begin=found.pads_begin,
        pads_end=found.pads_end,
        dilations=found.dilations,
        ceil=node.flag("ceil_mode"),
        indices=node.wants(1),
        column_major=node.flag("storage_order"),
    )


def average_pool(ctx: NodeContext, node: Node) -> Value:
    """AveragePool (7: count_include_pad, 10: ceil_mode, 19: dilations)."""
    x = node.input(0)
    found = window(node, x, node.ints("kernel_shape"))
    return ctx.emit(
        "average_pool",
        [x],
        kernel=found.kernel,
        strides=found.strides,
        pads_begin=found.pads_begin,
        pads_end=found.pads_end,
        dilations=found.dilations,
        ceil=node.flag("ceil_mode"),
        include_pad=node.flag("count_include_pad"),
    )


def lp_pool(ctx: NodeContext, node: Node) -> Value:
    """LpPool (2, 18: dilations and ceil_mode)."""
    x = node.input(0)
    found = window(node, x, node.ints("kernel_shape"))
    return ctx.emit(
        "lp_pool",
        [x],
        kernel=found.kernel,
        strides=found.strides,
        pads_begin=found.pads_begin,
        pads_end=found.pads_end,
        dilations=found.dilations,
        ceil=node.flag("ceil_mode"),
        p=node.int("p", 2),
    )


def _spatial(x: Value) -> tuple[int, ...]:
    if x.type.rank < 3:
        raise ModelError(f"the input {x.type} has no spatial axes")
    return tuple(range(2, x.type.rank))


def _global(op: str) -> Importer:
    def importer(ctx: NodeContext, node: Node) -> Value:
        x = node.input(0)
        return ctx.emit(op, [x], axes=_spatial(x), keepdims=True)

    return importer


def global_lp_pool(ctx: NodeContext, node: Node) -> Value:
    return p_norm(ctx, node.input(0), _spatial(node.input(0)), node.int("p", 2))


def p_norm(ctx: NodeContext, x: Value, axes: Sequence[int], p: int) -> Value:
    """The p-norm along axes, which are kept with extent 1."""
    if p < 1:
        raise ModelError(f"there is no norm with p={p}")
    powers = {1: "abs"}
    if p == 2:
        terms = ctx.emit("mul", [x, x])
    else:
        terms = ctx.emit("abs", [x])
        terms = terms if p in powers else ctx.emit("pow", [terms, ctx.scalar(p, x)])
    total = ctx.emit("reduce_sum", [terms], axes=tuple(axes), keepdims=True)
    if p == 1:
        return total
    if p == 2:
        return ctx.emit("sqrt", [total])
    return ctx.emit("pow", [total, ctx.scalar(1 / p, x)])


# ---------------------------------------------------------------- normalisation


def batch_normalization(ctx: NodeContext, node: Node) -> Sequence[Value]:
    """BatchNormalization (7, 9, 14: training_mode, 15: types). At inference it is one product and
    one sum per channel."""
    x = node.input(0)
    scale, bias, mean, variance = (node.input(i) for i in range(1, 5))
    if node.opset < 9 and not node.flag("spatial", True):
        raise ModelError("spatial=0 is not supported", hint="export with opset 9 or later")
    epsilon = node.float("epsilon", 1e-5)
    if node.flag("training_mode"):
        return _train(ctx, node, x, epsilon)
    if any(node.wants(i) for i in range(1, 5)):
        raise ModelError("it has outputs of training", hint="export the model for inference")
    known = [ctx.known_constant(v) for v in (scale, bias, mean, variance)]
    if all(k is not None for k in known):
        s, b, m, v = (np.asarray(k, np.float64) for k in known)
        factor = s / np.sqrt(v + epsilon)
        offset = b - m * factor
        gain = ctx.constant(factor.astype(x.dtype.numpy))
        shift = ctx.constant(offset.astype(x.dtype.numpy))
    else:
        scale, bias, mean, variance = (ctx.cast(v, x.dtype) for v in (scale, bias, mean, variance))
        deviation = ctx.emit("sqrt", [ctx.emit("add", [variance, ctx.scalar(epsilon, x)])])
        gain = ctx.emit("div", [scale, deviation])
        shift = ctx.emit("sub", [bias, ctx.emit("mul", [mean, gain])])
    out = ctx.emit("mul", [x, per_channel(ctx, gain, x)])
    return [ctx.emit("add", [out, per_channel(ctx, shift, x)])]


def _train(ctx: NodeContext, node: Node, x: Value, epsilon: float) -> Sequence[Value]:
    """The batch's own statistics, and the running ones moved towards them."""
    scale, bias, mean, variance = (node.input(i) for i in range(1, 5))
    axes = (0, *range(2, x.type.rank))
    momentum = node.float("momentum", 0.9)
    batch_mean = ctx.emit("reduce_mean", [x], axes=axes, keepdims=True)
    distance = ctx.emit("sub", [x, batch_mean])
    squares = ctx.emit("mul", [distance, distance])
    batch_variance = ctx.emit("reduce_mean", [squares], axes=axes, keepdims=True)
    deviation = ctx.emit("sqrt", [ctx.emit("add", [batch_variance, ctx.scalar(epsilon, x)])])
    out = ctx.emit("mul", [ctx.emit("div", [distance, deviation]), per_channel(ctx, scale, x)])
    out = ctx.emit("add", [out, per_channel(ctx, bias, x)])

    def moved(old: Value, new: Value) -> Value:
        new = ctx.cast(ctx.reshape(new, old.shape), old.dtype)
        kept = ctx.emit("mul", [old, ctx.scalar(momentum, old)])
        return ctx.emit("add", [kept, ctx.emit("mul", [new, ctx.scalar(1 - momentum, old)])])

    return [out, moved(mean, batch_mean), moved(variance, batch_variance)]


def _softmax(op: str) -> Importer:
    def importer(ctx: NodeContext, node: Node) -> Value:
        """Softmax and LogSoftmax (1: over all axes from `axis` on, 13: along one)."""
        x = node.input(0)
        if node.opset >= 13:
            return ctx.emit(op, [x], axis=axis_of(node.int("axis", -1), x.type.rank))
        axis = axis_of(node.int("axis", 1), x.type.rank + 1)
        if axis == x.type.rank - 1:
            return ctx.emit(op, [x], axis=axis)
        flat = ctx.reshape(x, [number_of(x.shape[:axis]), number_of(x.shape[axis:])])
        return ctx.reshape(ctx.emit(op, [flat], axis=1), x.shape)

    return importer


def hardmax(ctx: NodeContext, node: Node) -> Value:
    """Hardmax (1: over all axes from `axis` on, 13: along one): 1 at the first maximum."""
    x = node.input(0)
    shape = x.shape
    if node.opset < 13:
        axis = axis_of(node.int("axis", 1), x.type.rank + 1)
        x, axis = ctx.reshape(x, [number_of(shape[:axis]), number_of(shape[axis:])]), 1
    else:
        axis = axis_of(node.int("axis", -1), x.type.rank)
    place = ctx.emit("argmax", [x], axis=axis, keepdims=True)
    running = ctx.emit("iota", [], length=x.shape[axis])
    running = ctx.reshape(running, [x.shape[axis], *[1] * (x.type.rank - axis - 1)])
    return ctx.reshape(ctx.cast(ctx.emit("equal", [running, place]), x.dtype), shape)


def layer_normalization(ctx: NodeContext, node: Node) -> Sequence[Value]:
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


def rms_normalization(ctx: NodeContext, node: Node) -> Value:
    """RMSNormalization (23); scale may be of another type, which is the result's."""
    x, scale = node.input(0), node.input(1)
    axis = axis_of(node.int("axis", -1), x.type.rank)
    epsilon = node.float("epsilon", 1e-5)
    if scale.dtype == x.dtype:
        return ctx.emit("rms_norm", [x, scale], axis=axis, epsilon=epsilon)
    ones = ctx.constant(np.ones(1, widened(x.dtype).numpy))
    wide = ctx.emit("rms_norm", [ctx.cast(x, ones.dtype), ones], axis=axis, epsilon=epsilon)
    return ctx.emit("mul", [ctx.cast(wide, scale.dtype), scale])


def instance_normalization(ctx: NodeContext, node: Node) -> Value:
    """InstanceNormalization (6, 22)."""
    x, scale, bias = (node.input(i) for i in range(3))
    epsilon = node.float("epsilon", 1e-5)
    out = ctx.emit("standardize", [x], axes=_spatial(x), epsilon=epsilon)
    out = ctx.emit("mul", [out, per_channel(ctx, scale, x)])
    return ctx.emit("add", [out, per_channel(ctx, bias, x)])


def group_normalization(ctx: NodeContext, node: Node) -> Value:
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


def mean_variance_normalization(ctx: NodeContext, node: Node) -> Value:
    """MeanVarianceNormalization (9, 13)."""
    x = node.input(0)
    axes = tuple(axis_of(a, x.type.rank) for a in node.ints("axes", (0, 2, 3)))
    mean = ctx.emit("reduce_mean", [x], axes=axes, keepdims=True)
    distance = ctx.emit("sub", [x, mean])
    squares = ctx.emit("mul", [distance, distance])
    variance = ctx.emit("reduce_mean", [squares], axes=axes, keepdims=True)
    deviation = ctx.emit("add", [ctx.emit("sqrt", [variance]), ctx.scalar(1e-9, x)])
    return ctx.emit("div", [distance, deviation])


def lp_normalization(ctx: NodeContext, node: Node) -> Value:
    """LpNormalization (1, 22): along an axis; what has norm 0 stays 0."""
    x = node.input(0)
    axis = axis_of(node.int("axis", -1), x.type.rank)
    norm = p_norm(ctx, x, [axis], node.int("p", 2))
    zero = ctx.emit("equal", [norm, ctx.scalar(0, x)])
    quotient = ctx.emit("div", [x, norm])
    return ctx.emit("where", [zero, ctx.scalar(0, x), quotient])


def lrn(ctx: NodeContext, node: Node) -> Value:
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
    "AveragePool": average_pool,
    "BatchNormalization": batch_normalization,
    "Conv": conv,
    "Gemm": gemm,
    "GlobalAveragePool": _global("reduce_mean"),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": _global("reduce_max"),
    "GroupNormalization": group_normalization,
    "Hardmax": hardmax,
    "InstanceNormalization": instance_normalization,
    "LRN": lrn,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": _softmax("log_softmax"),
    "LpNormalization": lp_normalization,
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MaxPool": max_pool,
    "MeanVarianceNormalization": mean_variance_normalization,
    "RMSNormalization": rms_normalization,
    "Softmax": _softmax("softmax"),
}
