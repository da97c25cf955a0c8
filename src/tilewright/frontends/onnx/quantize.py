"""ONNX's quantised operators, written out: what is stored as small integers is computed as integers
or floats, and rounded, shifted and limited at the end."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from tilewright.base.dtype import DType, f32, i32, u8
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import Importer, NodeContext, axis_of
from tilewright.frontends.onnx.neural import convolve, per_channel, product
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.types import element_type
from tilewright.ir.expr import ceil_div
from tilewright.ir.graph import Value
from tilewright.ops.common import widened

# ---------------------------------------------------------------- scales


def spread(ctx: NodeContext, node: OnnxNode, v: Value, x: Value) -> Value:
    """A scale or zero point in a shape that broadcasts to x: one number, one for each place along
    an axis, or one for each block along it."""
    if v.type.rank == 0 or v.shape == (1,):
        return ctx.reshape(v, [])
    axis = axis_of(node.int("axis", 1), x.type.rank)
    if v.type.rank == 1:
        return ctx.reshape(v, [*v.shape, *[1] * (x.type.rank - axis - 1)])
    block = node.int("block_size", 0)
    if v.type.rank != x.type.rank or block < 1:
        raise ModelError(f"a scale {v.type} for {x.type} with blocks of {block}")
    array = ctx.known_constant(v)
    extent = x.shape[axis]
    if isinstance(extent, int) and ceil_div(extent, block) != v.shape[axis]:
        raise ModelError(f"{v.shape[axis]} scales for blocks of {block} on an axis of {extent}")
    if array is not None and isinstance(extent, int):
        return ctx.constant(np.take(np.repeat(array, block, axis), range(extent), axis))
    shape = v.shape
    out = ctx.reshape(v, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    out = ctx.expand(out, [*shape[: axis + 1], block, *shape[axis + 1 :]])
    out = ctx.reshape(out, [*shape[:axis], shape[axis] * block, *shape[axis + 1 :]])
    return ctx.slice(out, axis, 0, extent)


def saturate(ctx: NodeContext, x: Value, to: DType) -> Value:
    """A whole float as `to`, limited to what it holds."""
    return ctx.cast(ctx.emit("clip", [x], low=float(to.min), high=float(to.max)), to)


def quantize(ctx: NodeContext, x: Value, scale: Value, zero: Value | None, to: DType) -> Value:
    """saturate(round(x / scale) + zero), in at least f32; the operands broadcast."""
    wide = widened(x.dtype if x.dtype.is_float else f32)
    out = ctx.emit("div", [ctx.cast(x, wide), ctx.cast(scale, wide)])
    if to.is_float:
        most = float(ml_dtypes.finfo(to.numpy).max)
        return ctx.cast(ctx.emit("clip", [out], low=-most, high=most), to)
    out = ctx.rounded(out)
    if zero is not None and not _is_zero(ctx, zero):
        out = ctx.emit("add", [out, ctx.cast(zero, wide)])
    return saturate(ctx, out, to)


def _is_zero(ctx: NodeContext, v: Value) -> bool:
    """Whether a constant is 0: what is cast to integers afterwards has no sign of zero."""
    array = ctx.known_constant(v)
    return array is not None and not array.any()


def quantize_linear(ctx: NodeContext, node: OnnxNode) -> Value:
    """QuantizeLinear (10, 13: axis, 19: floats, 21: blocks, output_dtype, 23: precision)."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    to = u8 if zero is None else zero.dtype
    if zero is None and node.int("output_dtype", 0):
        to = element_type(node.int("output_dtype"))
    if to.is_float and not node.flag("saturate", True):
        raise ModelError("saturate=0 is not supported")
    shift = None if zero is None or to.is_float else spread(ctx, node, zero, x)
    return quantize(ctx, x, spread(ctx, node, scale, x), shift, to)


def dequantize(ctx: NodeContext, x: Value, scale: Value, zero: Value | None) -> Value:
    """(x - zero) * scale, in at least f32; the operands broadcast."""
    wide = widened(scale.dtype)
    out = ctx.cast(x, wide)
    if zero is not None:
        out = ctx.emit("sub", [out, ctx.cast(zero, wide)])
    return ctx.emit("mul", [out, ctx.cast(scale, wide)])


def dequantize_linear(ctx: NodeContext, node: OnnxNode) -> Value:
    """DequantizeLinear (10, 13: axis, 19: floats, 21: blocks, 23: output_dtype)."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    to = scale.dtype
    if node.int("output_dtype", 0):
        to = element_type(node.int("output_dtype"))
    shift = None if zero is None else spread(ctx, node, zero, x)
    return ctx.cast(dequantize(ctx, x, spread(ctx, node, scale, x), shift), to)


# ---------------------------------------------------------------- products


def _centred(ctx: NodeContext, x: Value, zero: Value | None) -> Value:
    """x - zero as i32; the zero point broadcasts."""
    wide = ctx.cast(x, i32)
    return wide if zero is None else ctx.emit("sub", [wide, ctx.cast(zero, i32)])


def _rows(ctx: NodeContext, zero: Value) -> Value:
    """A number for each row, as a column."""
    if zero.type.rank != 1:
        return zero
    return ctx.reshape(zero, [] if zero.shape == (1,) else [*zero.shape, 1])


def _columns(ctx: NodeContext, zero: Value) -> Value:
    """A number for each column."""
    return ctx.reshape(zero, []) if zero.shape == (1,) else zero


def matmul_integer(ctx: NodeContext, node: OnnxNode) -> Value:
    """MatMulInteger (10)."""
    a_zero, b_zero = node.optional(2), node.optional(3)
    a = _centred(ctx, node.input(0), None if a_zero is None else _rows(ctx, a_zero))
    b = _centred(ctx, node.input(1), None if b_zero is None else _columns(ctx, b_zero))
    return product(ctx, a, b)


def qlinear_matmul(ctx: NodeContext, node: OnnxNode) -> Value:
    """QLinearMatMul (10, 21)."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (node.input(i) for i in range(8))
    left = _centred(ctx, a, _rows(ctx, a_zero))
    right = _centred(ctx, b, _columns(ctx, b_zero))
    factor = _ratio(ctx, _rows(ctx, a_scale), _columns(ctx, b_scale), _rows(ctx, scale))
    return _requantize(ctx, product(ctx, left, right), factor, _rows(ctx, zero))


def _ratio(ctx: NodeContext, a: Value, b: Value, c: Value) -> Value:
    """a * b / c in f32."""
    a, b, c = (ctx.cast(v, f32) for v in (a, b, c))
    return ctx.emit("div", [ctx.emit("mul", [a, b]), c])


def _requantize(ctx: NodeContext, x: Value, factor: Value, zero: Value) -> Value:
    """saturate(round(x * factor) + zero) as the zero point's type."""
    out = ctx.rounded(ctx.emit("mul", [ctx.cast(x, f32), factor]))
    out = ctx.emit("add", [out, ctx.cast(zero, f32)])
    return saturate(ctx, out, zero.dtype)


def _weight_zero(ctx: NodeContext, zero: Value, w: Value) -> Value:
    """One zero point, or one for each output channel of w[o, …]."""
    if zero.type.rank == 0 or zero.shape == (1,):
        return _columns(ctx, zero)
    return ctx.reshape(zero, [*zero.shape, *[1] * (w.type.rank - 1)])


def conv_integer(ctx: NodeContext, node: OnnxNode) -> Value:
    """ConvInteger (10)."""
    x, w = node.input(0), node.input(1)
    x_zero, w_zero = node.optional(2), node.optional(3)
    left = _centred(ctx, x, None if x_zero is None else _columns(ctx, x_zero))
    right = _centred(ctx, w, None if w_zero is None else _weight_zero(ctx, w_zero, w))
    return convolve(ctx, node, left, right)


def qlinear_conv(ctx: NodeContext, node: OnnxNode) -> Value:
    """QLinearConv (10); the bias is i32, in units of x_scale * w_scale."""
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (node.input(i) for i in range(8))
    left = _centred(ctx, x, _columns(ctx, x_zero))
    right = _centred(ctx, w, _weight_zero(ctx, w_zero, w))
    out = convolve(ctx, node, left, right)
    bias = node.optional(8)
    if bias is not None:
        out = ctx.emit("add", [out, per_channel(ctx, bias, out)])
    if w_scale.type.rank == 1 and w_scale.shape != (1,):
        w_scale = per_channel(ctx, w_scale, out)
    factor = _ratio(ctx, _columns(ctx, x_scale), _columns(ctx, w_scale), _columns(ctx, scale))
    return _requantize(ctx, out, factor, _columns(ctx, zero))


def dynamic_quantize_linear(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
    """DynamicQuantizeLinear (11): the range of x, with 0 in it, on 0 … 255."""
    x = node.input(0)
    axes = tuple(range(x.type.rank))
    low = ctx.emit("reduce_min", [x], axes=axes, keepdims=False)
    high = ctx.emit("reduce_max", [x], axes=axes, keepdims=False)
    low = ctx.emit("min", [low, ctx.scalar(0, x)])
    high = ctx.emit("max", [high, ctx.scalar(0, x)])
    scale = ctx.emit("div", [ctx.emit("sub", [high, low]), ctx.scalar(255, x)])
    zero = ctx.emit("round", [ctx.emit("div", [ctx.emit("neg", [low]), scale])])
    zero = saturate(ctx, zero, u8)
    return [quantize(ctx, x, scale, zero, u8), scale, zero]


IMPORTERS: dict[str, Importer] = {
    "ConvInteger": conv_integer,
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
}
