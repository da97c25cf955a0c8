"""Operators that make a tensor larger: with a constant, or with its own elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.errors import ModelError
from tilewright.ir.dims import canonical, limits, tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    all_of,
    as_expr,
    binary,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.ir.op import Attrs, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import (
    axis_names,
    broadcast,
    read_broadcast,
    require,
    require_same_dtype,
)
from tilewright.ops.movement import movement, show_shape


@dataclass(frozen=True, slots=True)
class PadAttrs(Attrs):
    before: tuple[Dim, ...] = attr(doc="for each axis the elements added in front")
    after: tuple[Dim, ...] = attr(doc="for each axis the elements added behind")
    mode: str = attr(
        "constant",
        doc="what is added: `value`, the tensor mirrored, its outermost element, or its other end",
        choices=("constant", "reflect", "edge", "wrap"),
    )
    value: float | int | bool = attr(0, doc="the element added in mode constant, without operand")


@dataclass(frozen=True, slots=True)
class ExpandAttrs(Attrs):
    shape: tuple[Dim, ...] = attr(doc="the shape broadcast to")


@dataclass(frozen=True, slots=True)
class TileAttrs(Attrs):
    repeats: tuple[Dim, ...] = attr(doc="for each axis how often the tensor is repeated")


@dataclass(frozen=True, slots=True)
class DilateAttrs(Attrs):
    strides: tuple[int, ...] = attr(doc="for each axis the new distance of neighbours", low=1)


def _padded_shape(attrs: PadAttrs, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(
        canonical(as_expr(d) + p + q)
        for d, p, q in zip(shape, attrs.before, attrs.after, strict=True)
    )


def _infer_pad(attrs: PadAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x = types[0]
    for name in ("before", "after"):
        require(len(getattr(attrs, name)) == x.rank, f"pad: {name} must have {x.rank} elements")
    require(
        all((limits(p)[0] or 0) >= 0 for p in (*attrs.before, *attrs.after)),
        "pad: a negative number of elements",
    )
    if len(types) > 1:
        require_same_dtype("pad", types)
        require(types[1].rank == 0, "pad: the element added must be a scalar")
    if attrs.mode != "constant":
        for axis, (d, p, q) in enumerate(zip(x.shape, attrs.before, attrs.after, strict=True)):
            require(d != 0 or (p == 0 and q == 0), f"pad: axis {axis} has nothing to repeat")
            require(
                attrs.mode != "reflect" or d != 1 or (p == 0 and q == 0),
                f"pad: axis {axis} has one element and cannot be mirrored",
            )
    return [tensor_type(x.dtype, _padded_shape(attrs, x.shape))]


def _compute_pad(b: Builder, attrs: PadAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, shape = inputs[0], _padded_shape(attrs, inputs[0].shape)
    edges = list(zip(x.shape, attrs.before, attrs.after, strict=True))

    def guarded(*index: Expr) -> Expr:
        fill = inputs[1][()] if len(inputs) > 1 else const(attrs.value, x.dtype)
        inside = []
        for i, (d, p, q) in zip(index, edges, strict=True):
            inside += [i >= p] if p != 0 else []
            inside += [i < as_expr(d) + p] if q != 0 else []
        place = tuple(i - p for i, (_, p, _) in zip(index, edges, strict=True))
        return select(all_of(*inside), x[place], fill)

    def repeated(*index: Expr) -> Expr:
        place = []
        for i, (d, p, q) in zip(index, edges, strict=True):
            place.append(i if p == 0 and q == 0 else _REPEAT[attrs.mode](i - p, d))
        return x[tuple(place)]

    value = guarded if attrs.mode == "constant" else repeated
    return [b.compute("pad", shape, value, names=axis_names(len(shape)))]


def _reflect(i: Expr, d: Dim) -> Expr:
    """0 1 2 … d-1 d-2 … 0 1 …, as often as needed."""
    period = (as_expr(d) - 1) * 2
    folded = i % period
    return minimum(folded, period - folded)


_REPEAT: dict[str, Callable[[Expr, Dim], Expr]] = {
    "reflect": _reflect,
    "edge": lambda i, d: minimum(maximum(i, 0), as_expr(d) - 1),
    "wrap": lambda i, d: i % d,
}


def _infer_expand(attrs: ExpandAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    shape = broadcast([x.shape, attrs.shape])
    if shape != tuple(canonical(d) for d in attrs.shape):
        raise ModelError(
            f"expand: [{show_shape(x.shape)}] does not broadcast to [{show_shape(attrs.shape)}]"
        )
    return [tensor_type(x.dtype, shape)]


def _compute_expand(b: Builder, attrs: ExpandAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    names, shape = axis_names(len(attrs.shape)), [canonical(d) for d in attrs.shape]
    return [b.compute("expand", shape, lambda *i: read_broadcast(x, i), names=names)]


def _tiled_shape(attrs: TileAttrs, shape: Sequence[Dim]) -> list[Dim]:
    return [canonical(as_expr(d) * r) for d, r in zip(shape, attrs.repeats, strict=True)]


def _infer_tile(attrs: TileAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    require(len(attrs.repeats) == x.rank, f"tile: repeats must have {x.rank} elements")
    require(
        all((limits(r)[0] or 0) >= 0 for r in attrs.repeats),
        f"tile: repeats of {attrs.repeats}",
    )
    return [tensor_type(x.dtype, _tiled_shape(attrs, x.shape))]


def _compute_tile(b: Builder, attrs: TileAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs

    def value(*index: Expr) -> Expr:
        return x[
            tuple(
                i if r == 1 else binary(BinaryOp.MOD, i, as_expr(d))
                for i, d, r in zip(index, x.shape, attrs.repeats, strict=True)
            )
        ]

    shape = _tiled_shape(attrs, x.shape)
    return [b.compute("tile", shape, value, names=axis_names(len(shape)))]


def _dilated_shape(attrs: DilateAttrs, shape: Sequence[Dim]) -> list[Dim]:
    return [
        d if s == 1 else canonical((as_expr(d) - 1) * s + 1)
        for d, s in zip(shape, attrs.strides, strict=True)
    ]


def _infer_dilate(attrs: DilateAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    require(len(attrs.strides) == x.rank, f"dilate: strides must have {x.rank} elements")
    return [tensor_type(x.dtype, _dilated_shape(attrs, x.shape))]


def _compute_dilate(b: Builder, attrs: DilateAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs

    def value(*index: Expr) -> Expr:
        spread = list(zip(index, attrs.strides, strict=True))
        holds = all_of(*((i % s).equals(0) for i, s in spread if s > 1))
        return select(holds, x[tuple(i // s for i, s in spread)], const(0, x.dtype))

    shape = _dilated_shape(attrs, x.shape)
    return [b.compute("dilate", shape, value, names=axis_names(len(shape)))]


OPS: tuple[Op, ...] = (
    movement(
        "pad",
        PadAttrs,
        _infer_pad,
        _compute_pad,
        "elements added around a tensor: an operand's, or the attribute's",
        arity=(1, 2),
    ),
    movement(
        "expand",
        ExpandAttrs,
        _infer_expand,
        _compute_expand,
        "broadcast to a shape (numpy's rule)",
        elementwise=True,
    ),
    movement("tile", TileAttrs, _infer_tile, _compute_tile, "copies along each axis"),
    movement(
        "dilate",
        DilateAttrs,
        _infer_dilate,
        _compute_dilate,
        "zeros between the elements along each axis",
    ),
)
