"""ONNX's operators that cut and join: Slice, Split, Concat, Pad, Expand, Tile."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import ModelError
from tilewright.frontends.contents import Unknown, decide
from tilewright.frontends.onnx.context import (
    FIX_DIMS,
    Importer,
    NodeContext,
    axis_of,
    one_of,
)
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.types import LARGEST_DIM
from tilewright.ir.dims import canonical, divide_exactly, greatest, least, limits
from tilewright.ir.expr import CompareOp, Dim, Symbol, as_expr
from tilewright.ir.graph import Value


def slice_(ctx: NodeContext, node: OnnxNode) -> Value:
    """Slice (1: attributes, 10: inputs, with steps)."""
    x = node.input(0)
    starts: Sequence[Dim]
    ends: Sequence[Dim]
    axes: Sequence[int]
    if node.opset < 10:
        starts, ends = node.ints("starts"), node.ints("ends")
        axes, steps = node.ints("axes", tuple(range(len(starts)))), [1] * len(starts)
    else:
        starts = ctx.need_dims(node.input(1), "starts")
        ends = ctx.need_dims(node.input(2), "ends")
        given, stride = node.optional(3), node.optional(4)
        axes = range(len(starts)) if given is None else ctx.need_ints(given, "axes")
        steps = [1] * len(starts) if stride is None else ctx.need_ints(stride, "steps")
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(
            f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps"
        )
    rank = x.type.rank
    places = [axis_of(a, rank) for a in axes]
    if len(set(places)) != len(places):
        raise ModelError(f"axes {list(axes)} name one axis twice")
    begin: list[Dim] = [0] * rank
    sizes, strides = list(x.shape), [1] * rank
    for axis, start, end, step in zip(places, starts, ends, steps, strict=True):
        if step == 0:
            raise ModelError("a step of 0")
        begin[axis], sizes[axis] = _slice_range(ctx, x.shape[axis], start, end, step)
        strides[axis] = step
    return ctx.emit("slice", [x], starts=tuple(begin), sizes=tuple(sizes), steps=tuple(strides))


def _slice_range(ctx: NodeContext, extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """The first element and how many there are, by numpy's rules for start:end:step."""
    if step > 0:
        first = _clamp(ctx, _from_end(start, extent), 0, extent)
        last = _clamp(ctx, _from_end(end, extent), 0, extent)
        count = canonical((as_expr(last) - first + (step - 1)) // step)
    else:
        before_last = canonical(as_expr(extent) - 1)
        first = _clamp(ctx, _from_end(start, extent), 0, before_last)
        last = _clamp(ctx, _from_end(end, extent), -1, before_last)
        count = canonical((as_expr(first) - last + (-step - 1)) // -step)
    low = limits(count)[0]
    return first, count if low is not None and low >= 0 else greatest(count, 0)


def _from_end(place: Dim, extent: Dim) -> Dim:
    """A negative place counts from the end; far before the start is before the start."""
    if isinstance(place, int) and place <= -LARGEST_DIM:
        return -1
    try:
        negative = decide(CompareOp.LT, place, 0)
    except Unknown:
        raise ModelError(
            f"whether the end {place} is negative depends on a symbolic dimension",
            hint=FIX_DIMS,
        ) from None
    return canonical(as_expr(extent) + place) if negative else place


def _clamp(ctx: NodeContext, place: Dim, low: Dim, high: Dim) -> Dim:
    """`place` between low and high. A symbolic place in a tensor of fixed size, as in
    table[:N], is taken to be inside: the symbol gets an upper bound."""
    if isinstance(place, Symbol) and isinstance(high, int) and low == 0:
        if place.lower > high:
            return high
        ctx.builder.assume_at_most(place, high)
        return place
    if isinstance(place, int) and place >= LARGEST_DIM:
        return high
    return least(greatest(place, low), high)


def split(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
    """Split (2: attribute, 13: input, 18: num_outputs)."""
    x = node.input(0)
    axis = axis_of(node.int("axis", 0), x.type.rank)
    sizes = _split_sizes(ctx, node, x.shape[axis])
    if len(sizes) != len(node.outputs):
        raise ModelError(f"it splits into {len(sizes)} parts, but has {len(node.outputs)} outputs")
    total = canonical(sum((as_expr(s) for s in sizes), as_expr(0)))
    if total != canonical(x.shape[axis]):
        raise ModelError(f"parts of {sizes} make {total}, but axis {axis} has {x.shape[axis]}")
    parts, start = [], as_expr(0)
    for part in sizes:
        parts.append(ctx.slice(x, axis, canonical(start), part))
        start = start + part
    return parts


def _split_sizes(ctx: NodeContext, node: OnnxNode, extent: Dim) -> list[Dim]:
    given = node.optional(1) if node.opset >= 13 else None
    if given is not None:
        return ctx.need_dims(given, "split")
    if node.has("split"):
        return list(node.ints("split"))
    count = node.int("num_outputs", len(node.outputs))
    if count != len(node.outputs):
        raise ModelError(f"it splits into {count} parts, but has {len(node.outputs)} outputs")
    if not isinstance(extent, int):
        exact = divide_exactly(extent, count)
        if exact is None:
            raise ModelError(
                f"whether {count} divides {extent} depends on a symbolic dimension",
                hint=FIX_DIMS,
            )
        return [exact] * count
    if extent % count and node.opset < 18:
        raise ModelError(f"an axis of {extent} does not split into {count} equal parts")
    each = -(-extent // count)
    return [max(0, min(each, extent - i * each)) for i in range(count)]


def concat(ctx: NodeContext, node: OnnxNode) -> Value:
    values = [node.input(i) for i in range(len(node.inputs))]
    return ctx.emit("concat", values, axis=node.int("axis", 1))


def pad(ctx: NodeContext, node: OnnxNode) -> Value:
    """Pad (2: attributes, 11: inputs, 18: axes, 19: wrap). Negative pads cut off."""
    x = node.input(0)
    mode = one_of(node, "mode", "constant", ("constant", "reflect", "edge", "wrap"))
    pads: Sequence[Dim]
    if node.opset < 11:
        pads, fill, axes = node.ints("pads"), None, None
        value: float | int | bool | None = node.float("value", 0.0)
    else:
        pads, value = ctx.need_dims(node.input(1), "pads"), 0
        fill, axes = node.optional(2), node.optional(3)
    rank = x.type.rank
    places = (
        range(rank) if axes is None else [axis_of(a, rank) for a in ctx.need_ints(axes, "axes")]
    )
    if len(pads) != 2 * len(places):
        raise ModelError(f"{len(pads)} pads for {len(places)} axes, where two each are needed")
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for position, axis in enumerate(places):
        before[axis], after[axis] = pads[position], pads[position + len(places)]
    x = _crop(ctx, x, before, after)
    before, after = ([greatest(p, 0) for p in side] for side in (before, after))
    operands = [x]
    if fill is not None and mode == "constant":
        if ctx.known(fill) is None or fill.dtype != x.dtype:
            operands.append(ctx.reshape(fill, []))
        else:
            value = ctx.need_number(fill, "the constant")
    return ctx.emit(
        "pad", operands, before=tuple(before), after=tuple(after), mode=mode, value=value
    )


def _crop(ctx: NodeContext, x: Value, before: Sequence[Dim], after: Sequence[Dim]) -> Value:
    for axis, (p, q) in enumerate(zip(before, after, strict=True)):
        front, back = (-d if isinstance(d, int) and d < 0 else 0 for d in (p, q))
        if front or back:
            x = ctx.slice(x, axis, front, canonical(as_expr(x.shape[axis]) - (front + back)))
    return x


def expand(ctx: NodeContext, node: OnnxNode) -> Value:
    """Expand (8): broadcasting goes both ways."""
    x = node.input(0)
    wanted = ctx.need_dims(node.input(1), "the shape")
    rank = max(x.type.rank, len(wanted))
    own = [1] * (rank - x.type.rank) + list(x.shape)
    target = [1] * (rank - len(wanted)) + wanted
    dims = [b if a == 1 else a for a, b in zip(own, target, strict=True)]
    for a, b in zip(own, target, strict=True):
        if a != 1 and b != 1 and canonical(as_expr(a) - b) != 0:
            raise ModelError(f"{x.type} does not broadcast to {wanted}")
    return ctx.expand(x, dims)


def tile(ctx: NodeContext, node: OnnxNode) -> Value:
    """Tile (6)."""
    x = node.input(0)
    return ctx.emit("tile", [x], repeats=tuple(ctx.need_dims(node.input(1), "repeats")))


IMPORTERS: dict[str, Importer] = {
    "Concat": concat,
    "Expand": expand,
    "Pad": pad,
    "Slice": slice_,
    "Split": split,
    "Tile": tile,
}
