"""Pooling: the maximum, mean or p-norm of windows over the spatial axes of x[n, c, …]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, i64
from tilewright.ir.dims import canonical, least, limits, tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    CompareOp,
    Dim,
    Expr,
    UnaryOp,
    all_of,
    as_expr,
    binary,
    cast,
    compare,
    const,
    maximum,
    minimum,
    product,
    select,
    unary,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import require, widened
from tilewright.ops.contract import pad_spatial, window_extent
from tilewright.ops.movement import flatten_index


@dataclass(frozen=True, slots=True)
class PoolAttrs(Attrs):
    kernel: tuple[int, ...] = attr(doc="extent of the window along each spatial axis", low=1)
    strides: tuple[int, ...] = attr(doc="step of the window along each spatial axis", low=1)
    pads_begin: tuple[int, ...] = attr(doc="padding before each spatial axis", low=0)
    pads_end: tuple[int, ...] = attr(doc="padding after each spatial axis", low=0)
    dilations: tuple[int, ...] = attr(doc="distance of the window's elements", low=1)
    ceil: bool = attr(False, doc="a last window may reach beyond the padding")


@dataclass(frozen=True, slots=True)
class MaxPoolAttrs(PoolAttrs):
    indices: bool = attr(False, doc="also give the positions of the maxima in the flat input")
    column_major: bool = attr(False, doc="count these positions with the last axis outermost")


@dataclass(frozen=True, slots=True)
class AveragePoolAttrs(PoolAttrs):
    include_pad: bool = attr(False, doc="padding counts as elements that are zero")


@dataclass(frozen=True, slots=True)
class LpPoolAttrs(PoolAttrs):
    p: int = attr(2, doc="the norm's exponent", low=1)


# ---------------------------------------------------------------- windows


def pool_shape(name: str, attrs: PoolAttrs, x: Sequence[Dim]) -> tuple[Dim, ...]:
    """[n, c, …] after pooling."""
    rank = len(x) - 2
    require(rank >= 1, f"{name}: an input of {len(x)} dimensions has no spatial axis")
    for field in ("kernel", "strides", "pads_begin", "pads_end", "dilations"):
        require(len(getattr(attrs, field)) == rank, f"{name}: {field} must have {rank} elements")
    spatial = [_extent(attrs, axis, size) for axis, size in enumerate(x[2:])]
    for dim in spatial:
        most = limits(dim)[1]
        require(
            most is None or most >= 1,
            f"{name}: the window {list(attrs.kernel)} is larger than the padded input",
        )
    return (*x[:2], *spatial)


def _extent(attrs: PoolAttrs, axis: int, size: Dim) -> Dim:
    """How many windows there are; in ceil mode the last one must start before the end padding."""
    kernel, stride = attrs.kernel[axis], attrs.strides[axis]
    before, after = attrs.pads_begin[axis], attrs.pads_end[axis]
    spare = stride - 1 if attrs.ceil else 0
    extent = window_extent(size, kernel, stride, before, after + spare, attrs.dilations[axis])
    if not attrs.ceil:
        return extent
    starts = (as_expr(size) + (before - 1)) // stride + 1
    return least(extent, canonical(starts))


def _overhang(attrs: PoolAttrs, axis: int, size: Dim, extent: Dim) -> int:
    """How far the last window may reach beyond the padding."""
    if not attrs.ceil:
        return 0
    reach = (as_expr(extent) - 1) * attrs.strides[axis] + (
        attrs.kernel[axis] - 1
    ) * attrs.dilations[axis]
    padded = as_expr(size) + (attrs.pads_begin[axis] + attrs.pads_end[axis])
    beyond = limits(canonical(reach + 1 - padded))[1]
    return attrs.strides[axis] - 1 if beyond is None else max(0, beyond)


def windows_have_elements(attrs: PoolAttrs) -> bool:
    """Whether every window has an element of the input beside padding. In ceil mode the last one
    starts before the end padding."""
    pads = zip(attrs.pads_begin, attrs.pads_end, attrs.kernel, strict=True)
    inside = all(max(before, after) < size for before, after, size in pads)
    return inside and all(d == 1 for d in attrs.dilations)


def _padded(b: Builder, attrs: PoolAttrs, x: Buffer, shape: Sequence[Dim], fill: float) -> Buffer:
    after = [
        p + _overhang(attrs, axis, x.shape[2 + axis], shape[2 + axis])
        for axis, p in enumerate(attrs.pads_end)
    ]
    return pad_spatial(b, x, attrs.pads_begin, after, fill)


def _places(attrs: PoolAttrs, index: Sequence[Expr], window: Sequence[Expr]) -> list[Expr]:
    """Where in the padded input the window's element stands."""
    return [
        i * s + k * d
        for i, s, k, d in zip(index, attrs.strides, window, attrs.dilations, strict=True)
    ]


def _names(rank: int) -> tuple[str, str]:
    return ("nc" + "hwd"[:rank], "kqr"[:rank]) if rank <= 3 else ("s", "k")


# ---------------------------------------------------------------- max


def _infer_max(attrs: MaxPoolAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    shape = pool_shape("max_pool", attrs, types[0].shape)
    positions = [tensor_type(i64, shape)] if attrs.indices else []
    return [tensor_type(types[0].dtype, shape), *positions]


def _compute_max(b: Builder, attrs: MaxPoolAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    shape = pool_shape("max_pool", attrs, x.shape)
    rank = len(shape) - 2
    names, over = _names(rank)
    padded = _padded(b, attrs, x, shape, x.dtype.min)

    def term(n: Expr, c: Expr, *rest: Expr) -> Expr:
        return padded.at(n, c, *_places(attrs, rest[:rank], rest[rank:]))

    out = b.reduce(
        "max_pool", shape, BinaryOp.MAX, attrs.kernel, term, names=names, over_names=over
    )
    if not attrs.indices:
        return [out]
    nowhere = const(i64.max)

    def position(n: Expr, c: Expr, *rest: Expr) -> Expr:
        places = _places(attrs, rest[:rank], rest[rank:])
        value, most = padded.at(n, c, *places), out.at(n, c, *rest[:rank])
        own = [p - before for p, before in zip(places, attrs.pads_begin, strict=True)]
        inside = [all_of(i >= 0, i < d) for i, d in zip(own, x.shape[2:], strict=True)]
        found = compare(CompareOp.EQ, value, most)
        if x.dtype.is_float:
            found = found | unary(UnaryOp.ISNAN, value)
        flat = _flat_position(attrs, (n, c, *own), x.shape)
        return select(all_of(*inside, found), flat, nowhere)

    indices = b.reduce(
        "indices", shape, BinaryOp.MIN, attrs.kernel, position, names=names, over_names=over
    )
    return [out, indices]


def _flat_position(attrs: MaxPoolAttrs, index: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    if not attrs.column_major:
        return flatten_index(index, shape)
    spatial = flatten_index(list(reversed(index[2:])), list(reversed(shape[2:])))
    return flatten_index(index[:2], shape[:2]) * product(tuple(shape[2:])) + spatial


# ---------------------------------------------------------------- mean and p-norm


def _infer_float(name: str, attrs: PoolAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    require(x.dtype.is_float, f"{name}: takes floats, not {x.dtype}")
    return [tensor_type(x.dtype, pool_shape(name, attrs, x.shape))]


def _infer_average(attrs: AveragePoolAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    return _infer_float("average_pool", attrs, types)


def _compute_average(b: Builder, attrs: AveragePoolAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    shape, wide = pool_shape("average_pool", attrs, x.shape), widened(x.dtype)
    rank = len(shape) - 2
    names, over = _names(rank)
    padded = _padded(b, attrs, x, shape, 0)

    def term(n: Expr, c: Expr, *rest: Expr) -> Expr:
        return cast(wide, padded.at(n, c, *_places(attrs, rest[:rank], rest[rank:])))

    total = b.reduce("total", shape, BinaryOp.ADD, attrs.kernel, term, names=names, over_names=over)

    def mean(*i: Expr) -> Expr:
        return cast(x.dtype, total[i] / _count(attrs, i[2:], x.shape[2:], shape[2:], wide))

    return [b.compute("average_pool", shape, mean, names=names)]


def _count(
    attrs: AveragePoolAttrs,
    index: Sequence[Expr],
    sizes: Sequence[Dim],
    extents: Sequence[Dim],
    dtype: DType,
) -> Expr:
    """How many elements of the window at `index` count."""
    known, counted = 1, as_expr(1)
    for axis, size in enumerate(sizes):
        kernel, before, after = attrs.kernel[axis], attrs.pads_begin[axis], attrs.pads_end[axis]
        if _overhang(attrs, axis, size, extents[axis]) == 0 and (
            attrs.include_pad or before == after == 0
        ):
            known *= kernel
            continue
        dilation = attrs.dilations[axis]
        start = index[axis] * attrs.strides[axis] - before
        low = -before if attrs.include_pad else 0
        high = as_expr(size) + (after if attrs.include_pad else 0)
        first = maximum((low - start + (dilation - 1)) // dilation, 0)
        end = minimum((high - start + (dilation - 1)) // dilation, kernel)
        counted = counted * (end - first)
    if counted == const(1):
        return const(known, dtype)
    return cast(dtype, maximum(counted * known, 1))


def _infer_lp(attrs: LpPoolAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    return _infer_float("lp_pool", attrs, types)


def _compute_lp(b: Builder, attrs: LpPoolAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    shape, wide = pool_shape("lp_pool", attrs, x.shape), widened(x.dtype)
    rank = len(shape) - 2
    names, over = _names(rank)
    padded = _padded(b, attrs, x, shape, 0)

    def term(n: Expr, c: Expr, *rest: Expr) -> Expr:
        element = cast(wide, padded.at(n, c, *_places(attrs, rest[:rank], rest[rank:])))
        magnitude = unary(UnaryOp.ABS, element)
        if attrs.p == 1:
            return magnitude
        return element * element if attrs.p == 2 else _power(magnitude, attrs.p)

    total = b.reduce("total", shape, BinaryOp.ADD, attrs.kernel, term, names=names, over_names=over)

    def norm(*i: Expr) -> Expr:
        if attrs.p == 1:
            return cast(x.dtype, total[i])
        squared = attrs.p == 2
        root = unary(UnaryOp.SQRT, total[i]) if squared else _power(total[i], 1 / attrs.p)
        return cast(x.dtype, root)

    return [b.compute("lp_pool", shape, norm, names=names)]


def _power(x: Expr, exponent: float) -> Expr:
    return binary(BinaryOp.POW, x, const(exponent, x.dtype))


OPS: tuple[Op, ...] = (
    Op(
        "max_pool",
        MaxPoolAttrs,
        _infer_max,
        Category.REDUCTION,
        "the greatest element of each window",
        (1, 1),
        "floats and integers",
        _compute_max,
    ),
    Op(
        "average_pool",
        AveragePoolAttrs,
        _infer_average,
        Category.REDUCTION,
        "the mean of each window",
        (1, 1),
        "floats",
        _compute_average,
    ),
    Op(
        "lp_pool",
        LpPoolAttrs,
        _infer_lp,
        Category.REDUCTION,
        "the p-norm of each window",
        (1, 1),
        "floats",
        _compute_lp,
    ),
)
