"""The best few elements along an axis: rounds of a maximum that leaves out what was taken."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtype import DType, f32, f64, i32, i64
from tilewright.ir.expr import (
    BinaryOp,
    Bitcast,
    Buffer,
    Expr,
    UnaryOp,
    cast,
    const,
    select,
    unary,
)
from tilewright.ir.op import Category, Op
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import axis_names, normalize_axis, require
from tilewright.ops.opaque import TopKAttrs, infer_top_k

FEW = 256  # rounds, up to which they take less time than sorting on the host


def takes(dtype: DType) -> bool:
    """Whether elements have keys with room for one that is less than all."""
    return dtype.is_float or (dtype.is_integer and dtype.bits < 64)


def _infer(attrs: TopKAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    found = infer_top_k(attrs, types)
    extent = x.shape[normalize_axis("top_few", attrs.axis, x.rank)]
    require(takes(x.dtype), f"top_few: takes floats and integers below 64 bits, not {x.dtype}")
    require(isinstance(extent, int), f"top_few: an axis of {extent} elements, which is no number")
    return found


def _key(x: Expr, largest: bool) -> Expr:
    """An integer for each element, greater for a better one, and never the least of its type. NaN
    counts as the greatest number."""
    if not x.dtype.is_float:
        key = cast(i32 if x.dtype.bits < 32 else i64, x)
        return key if largest else unary(UnaryOp.NEG, key)
    wide, kind = (f64, i64) if x.dtype.bits == 64 else (f32, i32)
    number = cast(wide, x) + const(0, wide)  # without -0.0
    bits = Bitcast(kind, number)
    low = const(int(kind.max), kind)
    ordered = select(bits < const(0, kind), bits ^ low, bits)
    key = select(unary(UnaryOp.ISNAN, number), const(int(kind.max) - 1, kind), ordered)
    return key if largest else unary(UnaryOp.NOT, key)


def _compute(b: Builder, attrs: TopKAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """`left` has the keys of what is not taken, the axis last. Of equal elements the first is taken
    first."""
    (x,) = inputs
    axis, largest = normalize_axis("top_few", attrs.axis, len(x.shape)), attrs.largest
    extent = int(x.shape[axis])
    rest = tuple(d for i, d in enumerate(x.shape) if i != axis)
    kept = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
    names = axis_names(len(rest))
    kind = _key(x[(const(0),) * len(x.shape)], largest).dtype
    taken, nowhere = const(int(kind.min), kind), const(extent, i32)
    left = b.state("left", (*rest, extent), kind)
    values, places = b.state("values", kept, x.dtype), b.state("places", kept, i64)

    def at(index: Sequence[Expr], place: Expr) -> tuple[Expr, ...]:
        return (*index[:axis], place, *index[axis:])

    def keys(_: Expr) -> None:
        b.compute(
            "keys",
            (*rest, extent),
            lambda *i: _key(x[at(i[:-1], i[-1])], largest),
            names=axis_names(len(rest) + 1),
            into=(left, lambda *i: i),
        )
        b.scan(attrs.k, take)

    def take(t: Expr) -> None:
        best = b.reduce("best", rest, BinaryOp.MAX, [extent], lambda *i: left[i], names=names)
        first = b.reduce(
            "first",
            rest,
            BinaryOp.MIN,
            [extent],
            lambda *i: select(left[i].equals(best[i[:-1]]), cast(i32, i[-1]), nowhere),
            names=names,
        )

        def place(*i: Expr) -> Expr:
            return cast(i64, first[i])

        def here(*i: Expr) -> tuple[Expr, ...]:
            return at(i, t)

        b.compute("value", rest, lambda *i: x[at(i, place(*i))], names=names, into=(values, here))
        b.compute("place", rest, place, names=names, into=(places, here))
        gone = (left, lambda *i: (*i, place(*i)))
        b.compute("take", rest, lambda *i: taken, names=names, into=gone)

    b.scan(1, keys, name="once")
    return [values, places]


OPS: tuple[Op, ...] = (
    Op(
        "top_few",
        TopKAttrs,
        _infer,
        Category.COMPLEX,
        "a few of the greatest (least) elements along an axis in order, and their places",
        (1, 1),
        "floats and integers below 64 bits",
        _compute,
    ),
)
