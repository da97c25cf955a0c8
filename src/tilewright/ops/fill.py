"""Tensors that follow from positions alone: triangles, running numbers, constants, dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, i64, index
from tilewright.ir.dims import canonical, limits, tensor_type
from tilewright.ir.expr import (
    Buffer,
    Dim,
    Expr,
    as_expr,
    cast,
    const,
    select,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import (
    as_number,
    axis_names,
    require,
)


@dataclass(frozen=True, slots=True)
class TriluAttrs(Attrs):
    upper: bool = attr(True, doc="keep what is on and above the diagonal, else on and below")
    diagonal: int = attr(0, doc="which diagonal: 0 the main one, more is above; without operand")


@dataclass(frozen=True, slots=True)
class IotaAttrs(Attrs):
    length: Dim = attr(doc="how many numbers")
    dtype: DType = attr(i64, doc="their type")


@dataclass(frozen=True, slots=True)
class FullAttrs(Attrs):
    shape: tuple[Dim, ...] = attr(doc="the shape")
    dtype: DType = attr(doc="the element type")
    value: float | int | bool = attr(0, doc="every element")


@dataclass(frozen=True, slots=True)
class DimsAttrs(Attrs):
    values: tuple[Dim, ...] = attr(doc="the numbers, which may be symbolic")


def _infer_trilu(attrs: TriluAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x = types[0]
    require(x.rank >= 2, f"trilu: a tensor with {x.rank} dimensions has no diagonal")
    for k in types[1:]:
        require(k == tensor_type(i64, []), f"trilu: the diagonal must be an i64 scalar, not {k}")
    return [tensor_type(x.dtype, x.shape)]


def _compute_trilu(b: Builder, attrs: TriluAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x = inputs[0]
    k = inputs[1][()] if len(inputs) > 1 else const(attrs.diagonal)

    def value(*i: Expr) -> Expr:
        distance = i[-1] - i[-2]
        kept = distance >= k if attrs.upper else distance <= k
        return select(kept, x[i], const(0, x.dtype))

    return [b.compute("trilu", x.shape, value, names=axis_names(len(x.shape)))]


def _infer_iota(attrs: IotaAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    return [tensor_type(attrs.dtype, [attrs.length])]


def _compute_iota(b: Builder, attrs: IotaAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    return [b.compute("iota", [canonical(attrs.length)], lambda i: cast(attrs.dtype, i))]


def _infer_full(attrs: FullAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    for dim in attrs.shape:
        high = limits(dim)[1]
        require(high is None or high >= 0, f"full: a dimension of {dim}")
    return [tensor_type(attrs.dtype, attrs.shape)]


def _compute_full(b: Builder, attrs: FullAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    value, names = const(attrs.value, attrs.dtype), axis_names(len(attrs.shape))
    return [b.compute("full", [canonical(d) for d in attrs.shape], lambda *i: value, names=names)]


def _infer_dims(attrs: DimsAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    return [tensor_type(i64, [len(attrs.values)])]


def _compute_dims(b: Builder, attrs: DimsAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    def value(i: Expr) -> Expr:
        result = as_number(attrs.values[-1], index)
        for position in range(len(attrs.values) - 2, -1, -1):
            result = select(i.equals(position), attrs.values[position], result)
        return as_expr(result)

    if not attrs.values:
        return [b.compute("dims", [0], lambda i: const(0))]
    return [b.compute("dims", [len(attrs.values)], value)]


OPS: tuple[Op, ...] = (
    Op(
        "trilu",
        TriluAttrs,
        _infer_trilu,
        Category.INJECTIVE,
        "the triangle of matrices above or below a diagonal, zero elsewhere",
        (1, 2),
        "any; i64 diagonal",
        _compute_trilu,
    ),
    Op(
        "iota",
        IotaAttrs,
        _infer_iota,
        Category.INJECTIVE,
        "0, 1, 2, …",
        (0, 0),
        "numbers",
        _compute_iota,
    ),
    Op(
        "full",
        FullAttrs,
        _infer_full,
        Category.INJECTIVE,
        "one number everywhere",
        (0, 0),
        "any",
        _compute_full,
    ),
    Op(
        "dims",
        DimsAttrs,
        _infer_dims,
        Category.INJECTIVE,
        "dimensions as data",
        (0, 0),
        "i64",
        _compute_dims,
    ),
)
