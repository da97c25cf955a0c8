"""Windows as columns: those of a deformable convolution, and columns laid over one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, index
from tilewright.ir.dims import canonical, limits, tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    UnaryOp,
    all_of,
    as_expr,
    cast,
    const,
    minimum,
    product,
    select,
    unary,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import as_number, axis_names, require, require_same_dtype, widened
from tilewright.ops.contract import window_extent
from tilewright.ops.movement import flatten_index


@dataclass(frozen=True, slots=True)
class DeformAttrs(Attrs):
    kernel: tuple[int, ...] = attr(doc="extent of the window along each spatial axis", low=1)
    strides: tuple[int, ...] = attr(doc="step of the window along each spatial axis", low=1)
    pads_begin: tuple[int, ...] = attr(doc="zeros before each spatial axis", low=0)
    dilations: tuple[int, ...] = attr(doc="distance of the window's elements", low=1)
    offset_groups: int = attr(1, doc="groups of channels with offsets of their own", low=1)


@dataclass(frozen=True, slots=True)
class FoldAttrs(Attrs):
    shape: tuple[int, ...] = attr(doc="the spatial shape of the result", low=1)
    kernel: tuple[int, ...] = attr(doc="extent of the window along each spatial axis", low=1)
    strides: tuple[int, ...] = attr(doc="step of the window along each spatial axis", low=1)
    pads_begin: tuple[int, ...] = attr(doc="padding before each spatial axis", low=0)
    pads_end: tuple[int, ...] = attr(doc="padding after each spatial axis", low=0)
    dilations: tuple[int, ...] = attr(doc="distance of the window's elements", low=1)


# ---------------------------------------------------------------- deformable columns


def _infer_deform(attrs: DeformAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    dtype, x, offsets = require_same_dtype("deform_columns", types), types[0], types[1]
    require(dtype.is_float, f"deform_columns: takes floats, not {dtype}")
    require(x.rank == offsets.rank == 4, f"deform_columns: {x} with offsets {offsets}")
    taps = attrs.offset_groups * int(product(attrs.kernel))
    wanted = (x.shape[0], 2 * taps, *offsets.shape[2:])
    require(
        tensor_type(dtype, offsets.shape) == tensor_type(dtype, wanted),
        f"deform_columns: offsets {offsets} for {taps} taps of {x}",
    )
    for mask in types[2:]:
        wanted = (x.shape[0], taps, *offsets.shape[2:])
        require(
            mask == tensor_type(dtype, wanted), f"deform_columns: a mask {mask} for {taps} taps"
        )
    return [tensor_type(dtype, (*x.shape[:2], *attrs.kernel, *offsets.shape[2:]))]


def _compute_deform(b: Builder, attrs: DeformAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """columns[n, c, ki, kj, i, j]: the input between four elements, times the mask."""
    x, offsets = inputs[:2]
    wide, kernel = widened(x.dtype), attrs.kernel
    per_group = canonical(as_expr(x.shape[1]) // attrs.offset_groups)
    taps = kernel[0] * kernel[1]

    def value(n: Expr, c: Expr, ki: Expr, kj: Expr, i: Expr, j: Expr) -> Expr:
        tap = c // per_group * taps + ki * kernel[1] + kj
        at = []
        for axis, (o, k) in enumerate(((i, ki), (j, kj))):
            start = o * attrs.strides[axis] - attrs.pads_begin[axis] + k * attrs.dilations[axis]
            at.append(cast(wide, start) + cast(wide, offsets[n, tap * 2 + axis, i, j]))
        total = _bilinear(x, n, c, at, wide)
        if len(inputs) > 2:
            total = total * cast(wide, inputs[2][n, tap, i, j])
        return cast(x.dtype, total)

    shape = (*x.shape[:2], *kernel, *offsets.shape[2:])
    return [b.compute("columns", shape, value, names="nckqij")]


def _bilinear(x: Buffer, n: Expr, c: Expr, at: Sequence[Expr], wide: DType) -> Expr:
    """The input at a coordinate; zero outside."""
    sides = []
    for axis, a in enumerate(at):
        size = as_number(x.shape[2 + axis], wide)
        a = select(a > const(-2, wide), minimum(a, size + const(1, wide)), const(-2, wide))
        base = unary(UnaryOp.FLOOR, a)
        low, f = cast(index, base), a - base
        sides.append(((low, const(1, wide) - f), (low + 1, f)))
    total: Expr = const(0, wide)
    for row, wr in sides[0]:
        for column, wc in sides[1]:
            inside = all_of(row >= 0, row < x.shape[2], column >= 0, column < x.shape[3])
            element = cast(wide, x[n, c, row, column])
            total = total + select(inside, wr * wc * element, const(0, wide))
    return total


# ---------------------------------------------------------------- overlapping sums


def _blocks(attrs: FoldAttrs) -> list[Dim]:
    return [
        window_extent(*sizes)
        for sizes in zip(
            attrs.shape,
            attrs.kernel,
            attrs.strides,
            attrs.pads_begin,
            attrs.pads_end,
            attrs.dilations,
            strict=True,
        )
    ]


def _infer_fold(attrs: FoldAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    taps, blocks = int(product(attrs.kernel)), product(tuple(_blocks(attrs)))
    require(
        x.rank == 3 and x.shape[2] == blocks,
        f"fold: {x} for {blocks} places of the window, which stand on the last of three axes",
    )
    require(
        not isinstance(x.shape[1], int) or x.shape[1] % taps == 0,
        f"fold: {x.shape[1]} columns do not divide into windows of {taps}",
    )
    channels = canonical(as_expr(x.shape[1]) // taps)
    low = limits(channels)[1]
    require(low is None or low > 0, f"fold: {x} has no channel")
    return [tensor_type(x.dtype, (x.shape[0], channels, *attrs.shape))]


def _compute_fold(b: Builder, attrs: FoldAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """out[n, c, p] sums what windows hold for place p: those whose distance fits the stride."""
    (x,) = inputs
    rank, taps, blocks = len(attrs.shape), int(product(attrs.kernel)), _blocks(attrs)
    wide = widened(x.dtype)

    def term(n: Expr, c: Expr, *rest: Expr) -> Expr:
        place, window = rest[:rank], rest[rank:]
        inside, block = [], []
        for axis in range(rank):
            from_start = place[axis] + attrs.pads_begin[axis] - window[axis] * attrs.dilations[axis]
            stride = attrs.strides[axis]
            at = from_start // stride
            inside += [from_start >= 0, at < as_expr(blocks[axis])]
            inside += [(from_start % stride).equals(0)] if stride > 1 else []
            block.append(at)
        row = c * taps + flatten_index(window, attrs.kernel)
        element = cast(wide, x[n, row, flatten_index(block, blocks)])
        return select(all_of(*inside), element, const(0, wide))

    shape = (x.shape[0], canonical(as_expr(x.shape[1]) // taps), *attrs.shape)
    names = axis_names(len(shape))
    total = b.reduce("total", shape, BinaryOp.ADD, attrs.kernel, term, names=names, over_names="k")
    value = lambda *i: cast(x.dtype, total[i])  # noqa: E731
    return [total if wide == x.dtype else b.compute("fold", shape, value, names=names)]


OPS: tuple[Op, ...] = (
    Op(
        "deform_columns",
        DeformAttrs,
        _infer_deform,
        Category.REDUCTION,
        "the windows of a deformable convolution: elements at offset places, times a mask",
        (2, 3),
        "floats",
        _compute_deform,
    ),
    Op(
        "fold",
        FoldAttrs,
        _infer_fold,
        Category.REDUCTION,
        "windows laid over one another and added up (col2im)",
        (1, 1),
        "numbers",
        _compute_fold,
    ),
)
