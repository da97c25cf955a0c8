"""ONNX's operators that choose elements: TopK, NonZero, Unique and the like, which run on the host,
and those that only rearrange by computed places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base.dtype import i64
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import (
    Importer,
    NodeContext,
    axis_of,
    number_of,
    one_of,
)
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value
from tilewright.ops import best

# ---------------------------------------------------------------- on the host


def top_k(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
    """TopK (1: attribute, 10: input, 11: largest and sorted)."""
    x = node.input(0)
    k = node.int("k") if node.opset < 10 else ctx.need_int(node.input(1), "k")
    axis, largest = axis_of(node.int("axis", -1), x.type.rank), node.flag("largest", True)
    few = 0 < k <= best.FEW and isinstance(x.shape[axis], int) and best.takes(x.dtype)
    return ctx.emit_all("top_few" if few else "top_k", [x], k=k, axis=axis, largest=largest)


def nonzero(ctx: NodeContext, node: OnnxNode) -> Value:
    """NonZero (9). Of known elements (PyTorch writes strided views so) the places are constants,
    and their number is no size that depends on data."""
    x = node.input(0)
    known = ctx.known(x)
    if known is not None and known.ndim:
        return ctx.constant(np.array(np.nonzero(known), np.int64))
    return ctx.emit_counted("nonzero", [x])[0]


def compress(ctx: NodeContext, node: OnnxNode) -> Value:
    """Compress (9, 11). A known condition says which places are gathered."""
    x, condition = node.input(0), node.input(1)
    axis = axis_of(node.int("axis"), x.type.rank) if node.has("axis") else None
    known = ctx.known(condition)
    extent = number_of(x.shape) if axis is None else x.shape[axis]
    if known is not None and known.ndim == 1 and isinstance(extent, int):
        flat = ctx.reshape(x, [extent]) if axis is None else x
        places = ctx.constant(np.flatnonzero(known[:extent]).astype(np.int64))
        return ctx.emit("gather", [flat, places], axis=axis or 0)
    return ctx.emit_counted("compress", [x, condition], axis=axis)[0]


def unique(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
    """Unique (11)."""
    x = node.input(0)
    axis = axis_of(node.int("axis"), x.type.rank) if node.has("axis") else None
    ordered = node.flag("sorted", True)
    return ctx.emit_counted("unique", [x], axis=axis, sorted=ordered)


def non_max_suppression(ctx: NodeContext, node: OnnxNode) -> Value:
    """NonMaxSuppression (10, 11)."""
    most, overlap, score = (node.optional(i) for i in (2, 3, 4))
    (chosen,) = ctx.emit_counted(
        "suppress",
        [node.input(0), node.input(1)],
        most=0 if most is None else int(ctx.need_number(most, "max_output_boxes_per_class")),
        overlap=0.0 if overlap is None else float(ctx.need_number(overlap, "iou_threshold")),
        score=None if score is None else float(ctx.need_number(score, "score_threshold")),
        center=bool(node.int("center_point_box", 0)),
    )
    return chosen


def det(ctx: NodeContext, node: OnnxNode) -> Value:
    return ctx.emit("det", [node.input(0)])


# ---------------------------------------------------------------- by computed places


def reverse_sequence(ctx: NodeContext, node: OnnxNode) -> Value:
    """ReverseSequence (10): the first sequence_lens[b] steps of each batch, backwards."""
    x, lengths = node.input(0), node.input(1)
    batch, time = node.int("batch_axis", 1), node.int("time_axis", 0)
    if x.type.rank < 2 or {batch, time} != {0, 1}:
        raise ModelError(f"batch_axis {batch} and time_axis {time} of {x.type}")
    moved = x if batch == 0 else ctx.transpose(x, (1, 0, *range(2, x.type.rank)))
    batches, steps = moved.shape[:2]
    running = ctx.emit("iota", [], length=steps, dtype=i64)
    ends = ctx.reshape(ctx.cast(lengths, i64), [batches, 1])
    last = ctx.emit("sub", [ends, ctx.scalar(1, ends)])
    backwards = ctx.emit("sub", [last, running])
    places = ctx.emit("where", [ctx.emit("less", [running, ends]), backwards, running])
    places = ctx.reshape(places, [batches, steps, 1])
    out = ctx.emit("gather_nd", [moved, places], batch_dims=1)
    return out if batch == 0 else ctx.transpose(out, (1, 0, *range(2, x.type.rank)))


def tensor_scatter(ctx: NodeContext, node: OnnxNode) -> Value:
    """TensorScatter (24): a cache with an update written at a place for each batch."""
    past, update, starts = node.input(0), node.input(1), node.optional(2)
    rank = past.type.rank
    axis = axis_of(node.int("axis", -2), rank)
    circular = one_of(node, "mode", "linear", ("linear", "circular")) == "circular"
    if axis == 0 or update.type.rank != rank:
        raise ModelError(f"axis {axis} of {past.type} with the update {update.type}")
    extent, count = past.shape[axis], update.shape[axis]
    running = ctx.emit("iota", [], length=extent, dtype=i64)
    running = ctx.reshape(running, [extent, *[1] * (rank - axis - 1)])
    if starts is None:
        distance = ctx.reshape(running, [1] * axis + list(running.shape))
    else:
        starts = ctx.reshape(ctx.cast(starts, i64), [*starts.shape, 1])
        if not circular:
            starts = _looked_up(ctx, starts, count, extent)
        own = ctx.reshape(starts, [starts.shape[0], *[1] * (rank - 1)])
        distance = ctx.emit("sub", [running, own])
    if circular:
        distance = ctx.emit("mod", [distance, _number(ctx, extent)])
    zero = ctx.constant(np.array(0, np.int64))
    inside = ctx.emit("less", [distance, _number(ctx, count)])
    inside = ctx.emit("and", [inside, ctx.emit("greater_equal", [distance, zero])])
    last = _number(ctx, canonical(as_expr(count) - 1))
    near = ctx.emit("min", [ctx.emit("max", [distance, zero]), last])
    places = ctx.expand(near, past.shape)
    written = ctx.emit("gather_elements", [update, places], axis=axis)
    return ctx.emit("where", [inside, written, past])


def _looked_up(ctx: NodeContext, starts: Value, count: Dim, extent: Dim) -> Value:
    """The places where `count` elements begin, [batch, 1]. All of them are looked up along an axis
    of `extent`: negative ones count from its end, and checks find those that are beyond it."""
    all_of = ctx.emit("add", [starts, ctx.emit("iota", [], length=count, dtype=i64)])
    places = ctx.emit("gather", [ctx.emit("iota", [], length=extent, dtype=i64), all_of], axis=0)
    return ctx.slice(places, 1, 0, 1)


def _number(ctx: NodeContext, value: Dim) -> Value:
    return ctx.reshape(ctx.dims([value]), [])


def array_feature_extractor(ctx: NodeContext, node: OnnxNode) -> Value:
    """ai.onnx.ml ArrayFeatureExtractor (1): columns of the last axis."""
    x, places = node.input(0), node.input(1)
    flat = ctx.reshape(places, [number_of(places.shape)])
    out = ctx.emit("gather", [x, flat], axis=x.type.rank - 1)
    return ctx.reshape(out, [1, *out.shape]) if out.type.rank == 1 else out


def binarizer(ctx: NodeContext, node: OnnxNode) -> Value:
    """ai.onnx.ml Binarizer (1)."""
    x = node.input(0)
    above = ctx.emit("greater", [x, ctx.scalar(node.float("threshold", 0.0), x)])
    return ctx.cast(above, x.dtype)


IMPORTERS: dict[str, Importer] = {
    "Compress": compress,
    "Det": det,
    "NonMaxSuppression": non_max_suppression,
    "NonZero": nonzero,
    "ReverseSequence": reverse_sequence,
    "TensorScatter": tensor_scatter,
    "TopK": top_k,
    "Unique": unique,
}

ML_IMPORTERS: dict[str, Importer] = {
    "ArrayFeatureExtractor": array_feature_extractor,
    "Binarizer": binarizer,
}
