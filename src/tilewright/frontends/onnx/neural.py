"""ONNX's products, convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import (
    FIX_DIMS,
    Importer,
    NodeContext,
    one_of,
    rounds_once,
)
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.types import LARGEST_DIM
from tilewright.ir.expr import Dim
from tilewright.ir.graph import Value
from tilewright.ops.common import widened

# ---------------------------------------------------------------- products


def matmul(ctx: NodeContext, node: OnnxNode) -> Value:
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


def gemm(ctx: NodeContext, node: OnnxNode) -> Value:
    """Gemm (7, 11: C is optional): alpha * A' * B' + beta * C."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    if a.type.rank != 2 or b.type.rank != 2:
        raise ModelError(f"the factors are {a.type} and {b.type}, not matrices")
    a = ctx.transpose(a, (1, 0)) if node.flag("transA") else a
    b = ctx.transpose(b, (1, 0)) if node.flag("transB") else b
    alpha, beta = node.float("alpha", 1.0), node.float("beta", 1.0)
    adds = c is not None and beta != 0
    wide = is_short(a) and (adds or alpha != 1.0)
    out = scaled(ctx, ctx.emit("matmul", [a, b], wide=wide), alpha)
    if c is not None and adds:
        out = ctx.emit("add", [out, scaled(ctx, ctx.cast(c, out.dtype), beta)])
    return ctx.cast(out, a.dtype)


def is_short(x: Value) -> bool:
    """Whether sums of products of x are rounded to x's type, unless they are to stay wide."""
    return widened(x.dtype) != x.dtype


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


def window(node: OnnxNode, x: Value, kernel: Sequence[int]) -> Window:
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
    begin: Sequence[int] = pads[:rank]
    end: Sequence[int] = pads[rank:]
    if mode == "VALID":
        begin = end = (0,) * rank
    elif mode != "NOTSET":
        begin, end = _same_pads(x.shape[2:], kernel, strides, dilations, mode == "SAME_LOWER")
    if min((*begin, *end)) < 0:
        raise ModelError(f"negative pads: {list(pads)}", hint="put a Slice before the node instead")
    if max((*kernel, *strides, *dilations, *begin, *end)) > LARGEST_DIM:
        raise ModelError(f"a number of the window's is larger than {LARGEST_DIM}")
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
                hint=FIX_DIMS,
            )
        else:
            total = max(0, (-(-size // s) - 1) * s + reach - size)
        small, large = total // 2, total - total // 2
        begin.append(large if lower else small)
        end.append(small if lower else large)
    return begin, end


def conv(ctx: NodeContext, node: OnnxNode) -> Value:
    """Conv (1, 11, 22); a bias is an addition per channel."""
    x, w = node.input(0), node.input(1)
    out = convolve(ctx, node, x, w, wide=node.optional(2) is not None and is_short(x))
    return ctx.cast(add_per_channel(ctx, out, node.optional(2)), x.dtype)


def convolve(ctx: NodeContext, node: OnnxNode, x: Value, w: Value, *, wide: bool = False) -> Value:
    """The convolution that the node's attributes describe; `wide` keeps its sums as they are."""
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
        wide=wide,
    )


def add_per_channel(ctx: NodeContext, x: Value, bias: Value | None) -> Value:
    """x[n, c, …] + bias[c], in x's type."""
    if bias is None:
        return x
    return ctx.emit("add", [x, per_channel(ctx, ctx.cast(bias, x.dtype), x)])


def per_channel(ctx: NodeContext, v: Value, x: Value) -> Value:
    """v[c] in a shape that broadcasts along the channels of x[n, c, …]."""
    if v.type.rank != 1:
        raise ModelError(f"a vector of one number per channel is needed, not {v.type}")
    return ctx.reshape(v, [*v.shape, *[1] * (x.type.rank - 2)])


def max_pool(ctx: NodeContext, node: OnnxNode) -> Sequence[Value]:
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


def average_pool(ctx: NodeContext, node: OnnxNode) -> Value:
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


def lp_pool(ctx: NodeContext, node: OnnxNode) -> Value:
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


def spatial_axes(x: Value) -> tuple[int, ...]:
    """The axes behind batch and channels."""
    if x.type.rank < 3:
        raise ModelError(f"the input {x.type} has no spatial axes")
    return tuple(range(2, x.type.rank))


def _global(op: str) -> Importer:
    def importer(ctx: NodeContext, node: OnnxNode) -> Value:
        x = node.input(0)
        return ctx.emit(op, [x], axes=spatial_axes(x), keepdims=True)

    return importer


@rounds_once
def global_lp_pool(ctx: NodeContext, node: OnnxNode, x: Value) -> Value:
    return p_norm(ctx, x, spatial_axes(x), node.int("p", 2))


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


IMPORTERS: dict[str, Importer] = {
    "AveragePool": average_pool,
    "Conv": conv,
    "Gemm": gemm,
    "GlobalAveragePool": _global("reduce_mean"),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": _global("reduce_max"),
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MaxPool": max_pool,
}
