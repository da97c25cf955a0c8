"""ONNX's constants, and what follows from shapes and positions alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.base.dtype import f32, i64
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import (
    Importer,
    NodeContext,
    number_of,
)
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.tensor import sparse_to_array
from tilewright.frontends.onnx.types import element_type
from tilewright.ir.dims import canonical, greatest
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value
from tilewright.ops.common import widened


def constant(ctx: NodeContext, node: OnnxNode) -> Value:
    """Constant (1, 11: sparse_value, 12: value_int and kin)."""
    given = [name for name in node.attributes if name.startswith(("value", "sparse_value"))]
    if len(given) != 1:
        raise ModelError(f"it has {len(given)} values, where one is needed")
    name = given[0]
    if name == "value":
        return ctx.constant(ctx.array(node.tensor(name), "its value"))
    if name == "sparse_value":
        sparse = node.attributes[name].sparse_tensor
        return ctx.constant(sparse_to_array(sparse, ctx.files, "its value"))
    if name not in _CONSTANTS:
        raise ModelError("strings are not supported")
    return ctx.constant(_CONSTANTS[name](node, name))


_CONSTANTS: dict[str, Callable[[OnnxNode, str], np.ndarray]] = {
    "value_int": lambda node, name: np.array(node.int(name), np.int64),
    "value_ints": lambda node, name: np.array(node.ints(name), np.int64),
    "value_float": lambda node, name: np.array(node.float(name), np.float32),
    "value_floats": lambda node, name: np.array(node.floats(name), np.float32),
}


def constant_of_shape(ctx: NodeContext, node: OnnxNode) -> Value:
    """ConstantOfShape (9)."""
    shape = ctx.need_dims(node.input(0), "the shape")
    if not node.has("value"):
        return ctx.full(shape, 0.0, f32)
    array = ctx.array(node.tensor("value"), "its value")
    if array.size != 1:
        raise ModelError(f"its value has {array.size} elements, where one is needed")
    value = ctx.constant(array)
    number = array.reshape(())
    plain = bool(number) if array.dtype.kind == "b" else float(number)
    if value.dtype.is_integer:
        plain = int(number)
    return ctx.full(shape, plain, value.dtype)


def shape(ctx: NodeContext, node: OnnxNode) -> Value:
    """Shape (1, 15: start and end)."""
    dims = node.input(0).shape
    start = node.int("start", 0) if node.opset >= 15 else 0
    end = node.int("end", len(dims)) if node.opset >= 15 else len(dims)
    return ctx.dims(dims[slice(start, end)])


def size(ctx: NodeContext, node: OnnxNode) -> Value:
    return ctx.reshape(ctx.dims([number_of(node.input(0).shape)]), [])


def range_(ctx: NodeContext, node: OnnxNode) -> Value:
    """Range (11): start, start + delta, … before limit; the length must be known."""
    start, limit, delta = (node.input(i) for i in range(3))
    length, dtype = _range_length(ctx, start, limit, delta), widened(start.dtype)
    for value in (start, limit, delta):
        if number_of(value.shape) != 1:
            raise ModelError(f"start, limit and delta must be numbers, not {value.type}")
    known = [ctx.known(v) for v in (start, delta)]
    result = ctx.emit("iota", [], length=length, dtype=dtype)
    if known[1] is None or known[1].reshape(()) != 1:
        result = ctx.emit("mul", [result, ctx.cast(ctx.reshape(delta, []), dtype)])
    if known[0] is None or known[0].reshape(()) != 0:
        result = ctx.emit("add", [result, ctx.cast(ctx.reshape(start, []), dtype)])
    return ctx.cast(result, start.dtype)


def _range_length(ctx: NodeContext, start: Value, limit: Value, delta: Value) -> Dim:
    if not start.dtype.is_integer:
        low, high, step = (
            float(ctx.need_number(v, name))
            for v, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
        )
        if step == 0 or not np.isfinite([low, high, step]).all():
            raise ModelError(f"a range from {low} to {high} by {step}")
        return max(0, int(np.ceil((high - low) / step)))
    first, end = ctx.need_dim(start, "start"), ctx.need_dim(limit, "limit")
    step = ctx.need_int(delta, "delta")
    if step == 0:
        raise ModelError("a range with delta 0")
    difference = as_expr(end) - first if step > 0 else as_expr(first) - end
    return greatest(canonical((difference + (abs(step) - 1)) // abs(step)), 0)


def trilu(ctx: NodeContext, node: OnnxNode) -> Value:
    """Trilu (14)."""
    x, k = node.input(0), node.optional(1)
    upper = node.flag("upper", True)
    if k is None or ctx.known(k) is not None:
        diagonal = 0 if k is None else ctx.need_int(k, "k")
        return ctx.emit("trilu", [x], upper=upper, diagonal=diagonal)
    return ctx.emit("trilu", [x, ctx.reshape(k, [])], upper=upper)


def eye_like(ctx: NodeContext, node: OnnxNode) -> Value:
    """EyeLike (9): ones on a diagonal."""
    x = node.input(0)
    if x.type.rank != 2:
        raise ModelError(f"the input is {x.type}, not a matrix")
    dtype = element_type(node.int("dtype")) if node.has("dtype") else x.dtype
    rows = ctx.reshape(ctx.emit("iota", [], length=x.shape[0], dtype=i64), [x.shape[0], 1])
    columns = ctx.emit("iota", [], length=x.shape[1], dtype=i64)
    shifted = ctx.emit("add", [rows, ctx.constant(np.array(node.int("k", 0), np.int64))])
    return ctx.cast(ctx.emit("equal", [shifted, columns]), dtype)


IMPORTERS: dict[str, Importer] = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "Range": range_,
    "Shape": shape,
    "Size": size,
    "Trilu": trilu,
}
