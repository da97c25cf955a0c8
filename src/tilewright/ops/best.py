"""The best few elements along an axis: rounds of a maximum that leaves out what was taken.

The axis is cut into blocks, about as many as a block has elements, whose greatest elements are
known: a round takes as long as the square root of the axis (a tournament of two levels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.base.dtype import DType, f32, f64, i32, i64, index
from tilewright.ir.expr import (
    BinaryOp,
    Bitcast,
    Buffer,
    Dim,
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

LEAST_BLOCK = 16  # elements
FEW = 2048  # rounds, up to which they take less time than sorting on the host


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
    """`left` has the keys of what is not taken, the axis last and in blocks; `tops` has the
    greatest of each block. A round looks at all tops, and at one block. Of equal elements the first
    is taken first."""
    (x,) = inputs
    axis = normalize_axis("top_few", attrs.axis, len(x.shape))
    rest = tuple(d for i, d in enumerate(x.shape) if i != axis)
    state = _State(b, x, attrs, axis, int(x.shape[axis]), rest)
    b.scan(1, lambda _: state.begin(attrs.k), name="once")
    return [state.values, state.places]


class _State:
    """What rounds of top_few work on. `rest` are the axes that are not the one in question."""

    def __init__(
        self, b: Builder, x: Buffer, attrs: TopKAttrs, axis: int, extent: int, rest: tuple[Dim, ...]
    ) -> None:
        self.b, self.x, self.largest = b, x, attrs.largest
        self.axis, self.extent, self.rest = axis, extent, rest
        self.size = max(LEAST_BLOCK, 1 << (math.isqrt(max(extent, 1)) - 1).bit_length())
        self.blocks = -(-extent // self.size)
        self.names = axis_names(len(rest))
        kind = _key(x[(const(0),) * len(x.shape)], self.largest).dtype
        self.taken = const(int(kind.min), kind)
        kept = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
        self.left = b.state("left", (*rest, self.blocks, self.size), kind)
        self.tops = b.state("tops", (*rest, self.blocks), kind)
        self.values, self.places = b.state("values", kept, x.dtype), b.state("places", kept, i64)

    def _at(self, index: Sequence[Expr], place: Expr) -> tuple[Expr, ...]:
        return (*index[: self.axis], place, *index[self.axis :])

    def begin(self, rounds: int) -> None:
        """Keys of all elements, then the rounds; what fills the last block counts as taken."""
        whole = self.blocks * self.size == self.extent

        def key(*i: Expr) -> Expr:
            place = i[-2] * self.size + i[-1]
            found = _key(self.x[self._at(i[:-2], place)], self.largest)
            return found if whole else select(place < self.extent, found, self.taken)

        names, shape = axis_names(len(self.rest) + 2), self.left.shape
        self.b.compute("keys", shape, key, names=names, into=(self.left, lambda *i: i))
        self.b.reduce(
            "top",
            self.tops.shape,
            BinaryOp.MAX,
            [self.size],
            lambda *i: self.left[i],
            names=axis_names(len(self.rest) + 1),
            into=(self.tops, lambda *i: i),
        )
        self.b.scan(rounds, self.take)

    def take(self, t: Expr) -> None:
        """Takes the greatest key that is left."""
        b, rest, names = self.b, self.rest, self.names
        best = b.reduce(
            "best", rest, BinaryOp.MAX, [self.blocks], lambda *i: self.tops[i], names=names
        )
        block = self._first("block", self.blocks, lambda *i: self.tops[i].equals(best[i[:-1]]))

        def within(*i: Expr) -> tuple[Expr, ...]:
            return (*i[: len(rest)], cast(index, block[i[: len(rest)]]), *i[len(rest) :])

        first = self._first(
            "first", self.size, lambda *i: self.left[within(*i)].equals(best[i[:-1]])
        )

        def place(*i: Expr) -> Expr:
            return cast(i64, block[i]) * self.size + cast(i64, first[i])

        def here(*i: Expr) -> tuple[Expr, ...]:
            return self._at(i, t)

        def value(*i: Expr) -> Expr:
            return self.x[self._at(i, place(*i))]

        b.compute("value", rest, value, names=names, into=(self.values, here))
        b.compute("place", rest, place, names=names, into=(self.places, here))
        gone = (self.left, lambda *i: (*within(*i), cast(index, first[i])))
        b.compute("take", rest, lambda *i: self.taken, names=names, into=gone)
        b.reduce(
            "next",
            rest,
            BinaryOp.MAX,
            [self.size],
            lambda *i: self.left[within(*i)],
            names=names,
            into=(self.tops, within),
        )

    def _first(self, name: str, extent: int, condition: Callable[..., Expr]) -> Buffer:
        """Where a condition holds first along an axis."""

        def number(*i: Expr) -> Expr:
            return select(condition(*i), cast(i32, i[-1]), const(extent, i32))

        return self.b.reduce(name, self.rest, BinaryOp.MIN, [extent], number, names=self.names)


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
