"""ONNX's reductions, positions of extrema, running sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.base.dtype import f64
from tilewright.frontends.onnx.context import Importer, NodeContext, axis_of
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.graph import Value


def reduction_axes(ctx: NodeContext, node: OnnxNode, since: int) -> tuple[tuple[int, ...], bool]:
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
    """after(reduction of before(x)), rounded to x's type once: `before` may give a wider one.
    Without axes and with noop_with_empty_axes nothing is combined, but both apply."""

    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        axes, combines = reduction_axes(ctx, node, since)
        x = before(ctx, node.input(0))
        if combines:
            x = ctx.emit(op, [x], axes=axes, keepdims=node.flag("keepdims", True))
        return ctx.cast(after(ctx, x), node.input(0).dtype)

    return importer


def _square(ctx: NodeContext, x: Value) -> Value:
    """Of short floats in f32, where it does not overflow."""
    wide = ctx.widened(x)
    return ctx.emit("mul", [wide, wide])


def _as_float(op: str) -> Callable[[NodeContext, Value], Value]:
    """A function of floats; of integers its value without the fraction, computed in f64."""

    def apply(ctx: NodeContext, x: Value) -> Value:
        if x.dtype.is_float:
            return ctx.emit(op, [x])
        return ctx.cast(ctx.emit(op, [ctx.cast(x, f64)]), x.dtype)

    return apply


def _unary(op: str) -> Callable[[NodeContext, Value], Value]:
    return lambda ctx, x: ctx.emit(op, [x])


def _logsumexp(ctx: NodeContext, node: OnnxNode) -> Value:
    """Of integers the value without its fraction, computed in f64."""
    axes, combines = reduction_axes(ctx, node, 18)
    x = node.input(0)
    if not combines:
        return x
    wide = x if x.dtype.is_float else ctx.cast(x, f64)
    keepdims = node.flag("keepdims", True)
    return ctx.cast(ctx.emit("reduce_logsumexp", [wide], axes=axes, keepdims=keepdims), x.dtype)


def _arg(op: str) -> Importer:
    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        x = node.input(0)
        axis = axis_of(node.int("axis", 0), x.type.rank)
        last = node.flag("select_last_index")
        ctx.builder.assume_at_least(x.shape[axis], 1)  # of nothing, no place is the greatest
        return ctx.emit(op, [x], axis=axis, keepdims=node.flag("keepdims", True), last=last)

    return importer


def _cumulate(op: str, ctx: NodeContext, node: OnnxNode) -> Value:
    """CumSum (11), CumProd (26): the axis is an input."""
    x = node.input(0)
    axis = ctx.need_int(node.input(1), "axis")
    return ctx.emit(
        op,
        [x],
        axis=axis_of(axis, x.type.rank),
        exclusive=node.flag("exclusive"),
        reverse=node.flag("reverse"),
    )


IMPORTERS: dict[str, Importer] = {
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "CumProd": partial(_cumulate, "cumprod"),
    "CumSum": partial(_cumulate, "cumsum"),
    "ReduceL1": _reduce(18, "reduce_sum", before=_unary("abs")),
    "ReduceL2": _reduce(18, "reduce_sum", before=_square, after=_as_float("sqrt")),
    "ReduceLogSum": _reduce(18, "reduce_sum", before=NodeContext.widened, after=_as_float("log")),
    "ReduceLogSumExp": _logsumexp,
    "ReduceMax": _reduce(18, "reduce_max"),
    "ReduceMean": _reduce(18, "reduce_mean"),
    "ReduceMin": _reduce(18, "reduce_min"),
    "ReduceProd": _reduce(18, "reduce_prod"),
    "ReduceSum": _reduce(13, "reduce_sum"),
    "ReduceSumSquare": _reduce(18, "reduce_sum", before=_square),
}
