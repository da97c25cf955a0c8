"""ONNX's operators whose subscripts are data: Gather, Scatter, OneHot and kin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base.dtype import i64
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import (
    FIX_DIMS,
    Importer,
    NodeContext,
    axis_of,
    number_of,
    one_of,
)
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, as_expr, product
from tilewright.ir.graph import Value

REDUCTIONS = ("none", "add", "mul", "min", "max")


def gather(ctx: NodeContext, node: OnnxNode) -> Value:
    """Gather (1, 11: negative indices). One known place is a slice."""
    x, places = node.input(0), node.input(1)
    axis = axis_of(node.int("axis", 0), x.type.rank)
    known = ctx.known_constant(places)
    extent = x.shape[axis] if x.type.rank else 0
    if known is not None and known.size == 1 and isinstance(extent, int):
        place = int(known.reshape(())) + (extent if known.reshape(()) < 0 else 0)
        if not 0 <= place < extent:
            raise ModelError(f"index {place} is outside axis {axis} of {x.type}")
        return _take(ctx, x, axis, place, places)
    if known is not None and known.size == 1 and known.reshape(()) in (0, -1):
        last = canonical(as_expr(extent) - 1) if known.reshape(()) < 0 else 0
        return _take(ctx, x, axis, last, places)
    return ctx.emit("gather", [x, places], axis=axis)


def _take(ctx: NodeContext, x: Value, axis: int, place: Dim, places: Value) -> Value:
    one = ctx.slice(x, axis, place, 1)
    return ctx.reshape(one, [*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


def gather_elements(ctx: NodeContext, node: OnnxNode) -> Value:
    return ctx.emit("gather_elements", [node.input(0), node.input(1)], axis=node.int("axis", 0))


def gather_nd(ctx: NodeContext, node: OnnxNode) -> Value:
    inputs = [node.input(0), node.input(1)]
    return ctx.emit("gather_nd", inputs, batch_dims=node.int("batch_dims", 0))


def scatter_elements(ctx: NodeContext, node: OnnxNode) -> Value:
    """Scatter (9), ScatterElements (11, 16: add and mul, 18: min and max)."""
    return ctx.emit(
        "scatter_elements",
        [node.input(i) for i in range(3)],
        axis=node.int("axis", 0),
        reduction=one_of(node, "reduction", "none", REDUCTIONS),
    )


def scatter_nd(ctx: NodeContext, node: OnnxNode) -> Value:
    reduction = one_of(node, "reduction", "none", REDUCTIONS)
    return ctx.emit("scatter_nd", [node.input(i) for i in range(3)], reduction=reduction)


def one_hot(ctx: NodeContext, node: OnnxNode) -> Value:
    """OneHot (9): where a running number equals the index; negative indices count from the end."""
    places, depth, values = (node.input(i) for i in range(3))
    length = ctx.need_dim(ctx.cast(depth, i64), "depth")
    rank = places.type.rank + 1
    axis = axis_of(node.int("axis", -1), rank)
    places = ctx.cast(places, i64)
    negative = ctx.emit("less", [places, ctx.scalar(0, places)])
    places = ctx.emit(
        "where", [negative, ctx.emit("add", [places, ctx.reshape(ctx.dims([length]), [])]), places]
    )
    places = ctx.reshape(places, [*places.shape[:axis], 1, *places.shape[axis:]])
    running = ctx.emit("iota", [], length=length, dtype=i64)
    running = ctx.reshape(running, [length if a == axis else 1 for a in range(axis, rank)])
    on = ctx.reshape(ctx.slice(values, 0, 1, 1), [])
    off = ctx.reshape(ctx.slice(values, 0, 0, 1), [])
    return ctx.emit("where", [ctx.emit("equal", [places, running]), on, off])


def max_unpool(ctx: NodeContext, node: OnnxNode) -> Value:
    """MaxUnpool (9): elements back at their positions in the flat output, zero elsewhere."""
    x, places = node.input(0), node.input(1)
    rank = x.type.rank - 2
    kernel = node.ints("kernel_shape")
    strides = node.ints("strides", (1,) * rank)
    pads = node.ints("pads", (0,) * (2 * rank))
    if not len(kernel) == len(strides) == rank or len(pads) != 2 * rank:
        raise ModelError(f"kernel_shape, strides or pads do not fit {rank} spatial axes")
    pooled = [*x.shape[:2]]
    for a in range(rank):
        spread = (as_expr(x.shape[2 + a]) - 1) * strides[a] + kernel[a]
        pooled.append(canonical(spread - (pads[a] + pads[a + rank])))
    given = node.optional(2)
    shape = pooled if given is None else ctx.need_dims(given, "output_shape")
    flat = ctx.full([number_of(shape)], 0, x.dtype)
    count = number_of(x.shape)
    if given is not None and list(shape) != pooled:
        places = _moved(ctx, places, pooled, shape)
    flat = ctx.emit(
        "scatter_elements", [flat, ctx.reshape(places, [count]), ctx.reshape(x, [count])], axis=0
    )
    return ctx.reshape(flat, shape)


def _moved(ctx: NodeContext, places: Value, old: Sequence[Dim], new: Sequence[Dim]) -> Value:
    """Positions in a flat tensor of shape `old` as positions in one of shape `new`."""
    if not all(isinstance(d, int) for d in (*old, *new)):
        raise ModelError("output_shape with symbolic dimensions", hint=FIX_DIMS)
    result = ctx.constant(np.array(0, np.int64))
    for a in range(len(old)):
        inner_old, inner_new = (int(product(tuple(shape[a + 1 :]))) for shape in (old, new))
        digit = ctx.emit("div", [places, ctx.constant(np.array(inner_old, np.int64))])
        digit = ctx.emit("mod", [digit, ctx.constant(np.array(old[a], np.int64))])
        digit = ctx.emit("mul", [digit, ctx.constant(np.array(inner_new, np.int64))])
        result = ctx.emit("add", [result, digit])
    return result


IMPORTERS: dict[str, Importer] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "MaxUnpool": max_unpool,
    "OneHot": one_hot,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
