"""Reductions along axes: sums, products, extrema, means, positions of extrema, running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, bool_, i64
from tilewright.ir.dims import tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    CompareOp,
    Dim,
    Expr,
    UnaryOp,
    as_expr,
    binary,
    cast,
    compare,
    const,
    product,
    select,
    unary,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder, neutral
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import (
    as_number,
    axis_names,
    converted,
    normalize_axes,
    normalize_axis,
    require,
    widened,
)


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    axes: tuple[int, ...] = attr(doc="the axes that are combined; negative ones count from the end")
    keepdims: bool = attr(True, doc="keep combined axes with extent 1")


@dataclass(frozen=True, slots=True)
class ArgAttrs(Attrs):
    axis: int = attr(doc="the axis searched; negative ones count from the end")
    keepdims: bool = attr(True, doc="keep that axis with extent 1")
    last: bool = attr(False, doc="of several equal elements take the last, not the first")


@dataclass(frozen=True, slots=True)
class CumulateAttrs(Attrs):
    axis: int = attr(doc="the axis along which elements are combined")
    exclusive: bool = attr(False, doc="leave out the element itself")
    reverse: bool = attr(False, doc="start from the axis' end")


Value = Callable[..., Expr]


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> tuple[Dim, ...]:
    """`shape` without `axes`, or with 1 in their places."""
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def reduce_axes(
    b: Builder,
    name: str,
    shape: Sequence[Dim],
    axes: Sequence[int],
    op: BinaryOp,
    value: Value,
    *,
    keepdims: bool = True,
) -> Buffer:
    """Combines value(*index) over `axes` of a tensor of `shape`; negative axes are not allowed."""
    out = reduced_shape(shape, axes, keepdims)

    def term(*index: Expr) -> Expr:
        kept, inner = list(index[: len(out)]), list(index[len(out) :])
        if keepdims:
            kept = [i for position, i in enumerate(kept) if position not in axes]
        return value(*((inner if i in axes else kept).pop(0) for i in range(len(shape))))

    over = [shape[i] for i in axes]
    return b.reduce(name, out, op, over, term, names=axis_names(len(out)), over_names="r")


def at_reduced(x: Buffer, index: Sequence[Expr], axes: Sequence[int]) -> Expr:
    """The element of a reduction that kept its axes, for an index of the tensor reduced."""
    return x[tuple(const(0) if i in axes else v for i, v in enumerate(index))]


# ---------------------------------------------------------------- sums, products, extrema


def _infer_reduce(name: str) -> Callable[..., list[TensorType]]:
    def infer(attrs: ReduceAttrs, types: Sequence[TensorType]) -> list[TensorType]:
        axes = normalize_axes(name, attrs.axes, types[0].rank)
        dtype = types[0].dtype
        require(
            dtype != bool_ or name in ("reduce_max", "reduce_min"),
            f"{name}: takes floats and integers, not bool",
        )
        return [tensor_type(dtype, reduced_shape(types[0].shape, axes, attrs.keepdims))]

    return infer


def _reduction(name: str, op: BinaryOp, doc: str, types: str = "floats and integers") -> Op:
    """Combines the elements with `op`; sums and products of short floats are kept in f32."""

    def compute(b: Builder, attrs: ReduceAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
        (x,) = inputs
        axes = normalize_axes(name, attrs.axes, len(x.shape))
        exact = op in (BinaryOp.MIN, BinaryOp.MAX)
        wide = x.dtype if exact else widened(x.dtype)
        out = reduce_axes(
            b, name, x.shape, axes, op, lambda *i: cast(wide, x[i]), keepdims=attrs.keepdims
        )
        return [converted(b, f"{name}_out", out, x.dtype)]

    return Op(
        name, ReduceAttrs, _infer_reduce(name), Category.REDUCTION, doc, (1, 1), types, compute
    )


def _compute_mean(b: Builder, attrs: ReduceAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    axes, wide = normalize_axes("reduce_mean", attrs.axes, len(x.shape)), widened(x.dtype)
    total = reduce_axes(
        b,
        "total",
        x.shape,
        axes,
        BinaryOp.ADD,
        lambda *i: cast(wide, x[i]),
        keepdims=attrs.keepdims,
    )
    count = as_number(product(tuple(x.shape[a] for a in axes)), wide)
    names = axis_names(len(total.shape))
    return [b.compute("mean", total.shape, lambda *i: cast(x.dtype, total[i] / count), names=names)]


def _compute_logsumexp(b: Builder, attrs: ReduceAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """max + log(sum(exp(x - max))), where an infinite max is taken as 0 in the difference."""
    (x,) = inputs
    axes, wide = normalize_axes("reduce_logsumexp", attrs.axes, len(x.shape)), widened(x.dtype)
    most = reduce_axes(b, "most", x.shape, axes, BinaryOp.MAX, lambda *i: cast(wide, x[i]))
    zero = const(0, wide)

    def finite(e: Expr) -> Expr:
        return select(unary(UnaryOp.ISINF, e), zero, e)

    shift = b.compute("shift", most.shape, lambda *i: finite(most[i]))
    total = reduce_axes(
        b,
        "total",
        x.shape,
        axes,
        BinaryOp.ADD,
        lambda *i: unary(UnaryOp.EXP, cast(wide, x[i]) - at_reduced(shift, i, axes)),
    )
    out_shape = reduced_shape(x.shape, axes, attrs.keepdims)

    def value(*index: Expr) -> Expr:
        rest = iter(index)
        full = (
            index
            if attrs.keepdims
            else tuple(const(0) if i in axes else next(rest) for i in range(len(x.shape)))
        )
        return cast(x.dtype, unary(UnaryOp.LOG, total[full]) + shift[full])

    return [b.compute("logsumexp", out_shape, value, names=axis_names(len(out_shape)))]


# ---------------------------------------------------------------- positions


def _arg(name: str, op: BinaryOp, doc: str) -> Op:
    """The position of the extreme element: the extreme first, then the least (or greatest)
    position where it stands. A NaN is extreme, as in numpy."""

    def infer(attrs: ArgAttrs, types: Sequence[TensorType]) -> list[TensorType]:
        (x,) = types
        axis = normalize_axis(name, attrs.axis, x.rank)
        require(x.rank > 0 and x.shape[axis] != 0, f"{name}: axis {attrs.axis} has no elements")
        return [tensor_type(i64, reduced_shape(x.shape, [axis], attrs.keepdims))]

    def compute(b: Builder, attrs: ArgAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
        (x,) = inputs
        axis = normalize_axis(name, attrs.axis, len(x.shape))
        extreme = reduce_axes(b, "extreme", x.shape, [axis], op, lambda *i: x[i])

        def position(*index: Expr) -> Expr:
            value, wanted = x[index], at_reduced(extreme, index, [axis])
            found = compare(CompareOp.EQ, value, wanted)
            if x.dtype.is_float:
                found = found | unary(UnaryOp.ISNAN, value)
            nowhere = const(-1) if attrs.last else as_expr(x.shape[axis])
            return select(found, index[axis], nowhere)

        pick = BinaryOp.MAX if attrs.last else BinaryOp.MIN
        return [reduce_axes(b, name, x.shape, [axis], pick, position, keepdims=attrs.keepdims)]

    return Op(
        name, ArgAttrs, infer, Category.REDUCTION, doc, (1, 1), "floats and integers", compute
    )


# ---------------------------------------------------------------- running sums and products


def _cumulate(name: str, op: BinaryOp, doc: str) -> Op:
    """out[…, t, …] = x[…, 0, …] op … op x[…, t, …], as a scan along the axis."""

    def infer(attrs: CumulateAttrs, types: Sequence[TensorType]) -> list[TensorType]:
        normalize_axis(name, attrs.axis, types[0].rank)
        require(types[0].rank > 0, f"{name}: a scalar has no axis")
        return [tensor_type(types[0].dtype, types[0].shape)]

    def compute(b: Builder, attrs: CumulateAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
        (x,) = inputs
        axis, wide = normalize_axis(name, attrs.axis, len(x.shape)), widened(x.dtype)
        extent, rest = x.shape[axis], [d for i, d in enumerate(x.shape) if i != axis]
        total, out = b.state("running", rest, wide), b.state(name, x.shape, x.dtype)
        names = axis_names(len(rest))

        def body(t: Expr) -> None:
            place = as_expr(extent) - 1 - t if attrs.reverse else t

            def at(index: Sequence[Expr]) -> tuple[Expr, ...]:
                return (*index[:axis], place, *index[axis:])

            def before(*i: Expr) -> Expr:
                return select(t.equals(0), neutral(op, wide), total[i])

            def add() -> None:
                b.compute(
                    "add",
                    rest,
                    lambda *i: binary(op, before(*i), cast(wide, x[at(i)])),
                    names=names,
                    into=(total, lambda *i: i),
                )

            if not attrs.exclusive:
                add()
            source = before if attrs.exclusive else lambda *i: total[i]
            b.compute(
                "store",
                rest,
                lambda *i: cast(x.dtype, source(*i)),
                names=names,
                into=(out, lambda *i: at(i)),
            )
            if attrs.exclusive:
                add()

        b.scan(extent, body)
        return [out]

    return Op(name, CumulateAttrs, infer, Category.COMPLEX, doc, (1, 1), "numbers", compute)


def _floats_only(name: str) -> Callable[..., list[TensorType]]:
    plain = _infer_reduce(name)

    def infer(attrs: ReduceAttrs, types: Sequence[TensorType]) -> list[TensorType]:
        dtype: DType = types[0].dtype
        require(dtype.is_float, f"{name}: takes floats, not {dtype}")
        return plain(attrs, types)

    return infer


OPS: tuple[Op, ...] = (
    _reduction("reduce_sum", BinaryOp.ADD, "the sum along axes"),
    _reduction("reduce_prod", BinaryOp.MUL, "the product along axes"),
    _reduction("reduce_max", BinaryOp.MAX, "the greatest along axes; NaN if there is one", "any"),
    _reduction("reduce_min", BinaryOp.MIN, "the least along axes; NaN if there is one", "any"),
    Op(
        "reduce_mean",
        ReduceAttrs,
        _infer_reduce("reduce_mean"),
        Category.REDUCTION,
        "the mean along axes; integers truncate",
        (1, 1),
        "floats and integers",
        _compute_mean,
    ),
    Op(
        "reduce_logsumexp",
        ReduceAttrs,
        _floats_only("reduce_logsumexp"),
        Category.REDUCTION,
        "log of the sum of exp(x) along axes, without overflow",
        (1, 1),
        "floats",
        _compute_logsumexp,
    ),
    _arg("argmax", BinaryOp.MAX, "the position of the greatest element along an axis"),
    _arg("argmin", BinaryOp.MIN, "the position of the least element along an axis"),
    _cumulate("cumsum", BinaryOp.ADD, "running sums along an axis"),
    _cumulate("cumprod", BinaryOp.MUL, "running products along an axis"),
)
