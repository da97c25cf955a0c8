"""Operators whose subscripts are data: gather and scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.dtype import i64
from tilewright.base.errors import ModelError
from tilewright.ir.dims import canonical, limits, tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    as_expr,
    binary,
    const,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import (
    axis_names,
    normalize_axis,
    require,
    require_same_dtype,
    wrap_index,
)
from tilewright.ops.movement import AxisAttrs


@dataclass(frozen=True, slots=True)
class GatherNdAttrs(Attrs):
    batch_dims: int = attr(0, doc="leading axes that data and indices share", low=0)


@dataclass(frozen=True, slots=True)
class ScatterAttrs(Attrs):
    axis: int = attr(0, doc="the axis that indices point along")
    reduction: str = attr(
        "none",
        doc="how an update meets what is there: replaces it, or is combined with it",
        choices=("none", "add", "mul", "min", "max"),
    )


@dataclass(frozen=True, slots=True)
class ScatterNdAttrs(Attrs):
    reduction: str = attr(
        "none",
        doc="how an update meets what is there: replaces it, or is combined with it",
        choices=("none", "add", "mul", "min", "max"),
    )


# ---------------------------------------------------------------- gather


def _require_integer(op: str, t: TensorType) -> None:
    require(t.dtype.is_integer, f"{op}: indices must be integers, not {t.dtype}")


def _infer_gather(attrs: AxisAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x, places = types
    _require_integer("gather", places)
    require(x.rank > 0, "gather: a scalar has no axis")
    axis = normalize_axis("gather", attrs.axis, x.rank)
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
    require(x.shape[axis] != 0 or 0 in shape, f"gather: axis {axis} has no elements")
    return [tensor_type(x.dtype, shape)]


def _compute_gather(b: Builder, attrs: AxisAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, places = inputs
    axis, inner = normalize_axis("gather", attrs.axis, len(x.shape)), len(places.shape)
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])

    def value(*i: Expr) -> Expr:
        place = wrap_index(places[i[axis : axis + inner]], x.shape[axis])
        return x.at(*i[:axis], place, *i[axis + inner :])

    return [b.compute("gather", shape, value, names=axis_names(len(shape)))]


def _check_elements(name: str, axis: int, x: TensorType, places: TensorType) -> int:
    _require_integer(name, places)
    require(
        x.rank == places.rank > 0,
        f"{name}: data of {x.rank} and indices of {places.rank} dimensions",
    )
    axis = normalize_axis(name, axis, x.rank)
    for a, (d, n) in enumerate(zip(x.shape, places.shape, strict=True)):
        spare = limits(canonical(as_expr(d) - n))[0]
        require(
            a == axis or (spare is not None and spare >= 0),
            f"{name}: {n} indices along axis {a}, where data has {d} elements",
        )
    _require_elements(name, x.shape[axis : axis + 1], places.shape)
    return axis


def _require_elements(name: str, pointed: Sequence[Dim], shape: Sequence[Dim]) -> None:
    """Axes that indices point along must have elements, unless there are no indices."""
    require(0 not in pointed or 0 in shape, f"{name}: indices into an axis without elements")


def _infer_gather_elements(attrs: AxisAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    _check_elements("gather_elements", attrs.axis, types[0], types[1])
    return [tensor_type(types[0].dtype, types[1].shape)]


def _compute_gather_elements(
    b: Builder, attrs: AxisAttrs, inputs: Sequence[Buffer]
) -> list[Buffer]:
    x, places = inputs
    axis = normalize_axis("gather_elements", attrs.axis, len(x.shape))

    def value(*i: Expr) -> Expr:
        return x.at(*i[:axis], wrap_index(places[i], x.shape[axis]), *i[axis + 1 :])

    names = axis_names(len(places.shape))
    return [b.compute("gather_elements", places.shape, value, names=names)]


def _gather_nd_shape(
    attrs: GatherNdAttrs, x: Sequence[Dim], places: Sequence[Dim]
) -> tuple[Dim, ...]:
    batch, depth = attrs.batch_dims, places[-1] if places else 0
    if not isinstance(depth, int):
        raise ModelError("gather_nd: the last dimension of indices must be a number")
    require(
        len(places) > batch and batch + depth <= len(x) and depth >= 1,
        f"gather_nd: indices of {depth} subscripts after {batch} batch axes into {len(x)} axes",
    )
    require(
        all(canonical(p) == canonical(q) for p, q in zip(x[:batch], places[:batch], strict=True)),
        "gather_nd: data and indices differ in their batch axes",
    )
    _require_elements("gather_nd", x[batch : batch + depth], places)
    return (*places[:-1], *x[batch + depth :])


def _infer_gather_nd(attrs: GatherNdAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    _require_integer("gather_nd", types[1])
    return [tensor_type(types[0].dtype, _gather_nd_shape(attrs, types[0].shape, types[1].shape))]


def _compute_gather_nd(b: Builder, attrs: GatherNdAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, places = inputs
    shape = _gather_nd_shape(attrs, x.shape, places.shape)
    batch, lead, depth = attrs.batch_dims, len(places.shape) - 1, int(places.shape[-1])

    def value(*i: Expr) -> Expr:
        found = [
            wrap_index(places.at(*i[:lead], const(k)), x.shape[batch + k]) for k in range(depth)
        ]
        return x.at(*i[:batch], *found, *i[lead:])

    return [b.compute("gather_nd", shape, value, names=axis_names(len(shape)))]


# ---------------------------------------------------------------- scatter


_COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: binary(BinaryOp.ADD, old, new),
    "mul": lambda old, new: binary(BinaryOp.MUL, old, new),
    "min": lambda old, new: binary(BinaryOp.MIN, old, new),
    "max": lambda old, new: binary(BinaryOp.MAX, old, new),
}


def _scatter(
    b: Builder, name: str, x: Buffer, steps: Dim, update: Callable[[Buffer, Expr], None]
) -> Buffer:
    """A copy of `x` that update(out, step) changes in order. The copy is the first item of a scan
    of one step, since only in a scan may several stages define one buffer."""
    out = b.state(name, x.shape, x.dtype)

    def body(_: Expr) -> None:
        b.compute(
            "copy",
            x.shape,
            lambda *i: x[i],
            names=axis_names(len(x.shape)),
            into=(out, lambda *i: i),
        )
        b.scan(steps, lambda t: update(out, t))

    b.scan(1, body, name="once")
    return out


def _infer_scatter(attrs: ScatterAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x, places, updates = types
    require_same_dtype("scatter_elements", [x, updates])
    _check_elements("scatter_elements", attrs.axis, x, places)
    require(
        tensor_type(i64, places.shape) == tensor_type(i64, updates.shape),
        f"scatter_elements: indices {places} and updates {updates} differ in shape",
    )
    return [tensor_type(x.dtype, x.shape)]


def _compute_scatter(b: Builder, attrs: ScatterAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, places, updates = inputs
    axis = normalize_axis("scatter_elements", attrs.axis, len(x.shape))
    rest = [d for a, d in enumerate(updates.shape) if a != axis]

    def update(out: Buffer, t: Expr) -> None:
        def place(*i: Expr) -> tuple[Expr, ...]:
            found = wrap_index(places.at(*i[:axis], t, *i[axis:]), x.shape[axis])
            return (*i[:axis], found, *i[axis:])

        def value(*i: Expr) -> Expr:
            return _COMBINE[attrs.reduction](out[place(*i)], updates.at(*i[:axis], t, *i[axis:]))

        b.compute("update", rest, value, names=axis_names(len(rest)), into=(out, place))

    return [_scatter(b, "scatter", x, updates.shape[axis], update)]


def _infer_scatter_nd(attrs: ScatterNdAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x, places, updates = types
    require_same_dtype("scatter_nd", [x, updates])
    _require_integer("scatter_nd", places)
    depth = places.shape[-1] if places.shape else 0
    if not isinstance(depth, int) or not 1 <= depth <= x.rank:
        raise ModelError(f"scatter_nd: indices of {depth} subscripts into {x.rank} axes")
    wanted = tensor_type(x.dtype, (*places.shape[:-1], *x.shape[depth:]))
    require(
        tensor_type(updates.dtype, updates.shape) == wanted,
        f"scatter_nd: updates are {updates}, which must be {wanted}",
    )
    _require_elements("scatter_nd", x.shape[:depth], updates.shape)
    return [tensor_type(x.dtype, x.shape)]


def _compute_scatter_nd(
    b: Builder, attrs: ScatterNdAttrs, inputs: Sequence[Buffer]
) -> list[Buffer]:
    x, places, updates = inputs
    depth, lead = int(places.shape[-1]), places.shape[:-1]

    def update(out: Buffer, t: Expr, outer: tuple[Expr, ...] = ()) -> None:
        at = (*outer, t) if lead else ()  # without leading axes there is one update
        if len(at) < len(lead):
            b.scan(lead[len(at)], lambda inner: update(out, inner, at))
            return

        def place(*i: Expr) -> tuple[Expr, ...]:
            found = [wrap_index(places.at(*at, const(k)), x.shape[k]) for k in range(depth)]
            return (*found, *i)

        def value(*i: Expr) -> Expr:
            return _COMBINE[attrs.reduction](out[place(*i)], updates.at(*at, *i))

        rest = x.shape[depth:]
        b.compute("update", rest, value, names=axis_names(len(rest)), into=(out, place))

    return [_scatter(b, "scatter_nd", x, lead[0] if lead else 1, update)]


OPS: tuple[Op, ...] = (
    Op(
        "gather",
        AxisAttrs,
        _infer_gather,
        Category.INJECTIVE,
        "slices of data at the given places along an axis",
        (2, 2),
        "any; integer indices",
        _compute_gather,
    ),
    Op(
        "gather_elements",
        AxisAttrs,
        _infer_gather_elements,
        Category.INJECTIVE,
        "for each index the element at that place along an axis",
        (2, 2),
        "any; integer indices",
        _compute_gather_elements,
    ),
    Op(
        "gather_nd",
        GatherNdAttrs,
        _infer_gather_nd,
        Category.REDUCTION,
        "slices of data at places given by several subscripts each",
        (2, 2),
        "any; integer indices",
        _compute_gather_nd,
    ),
    Op(
        "scatter_elements",
        ScatterAttrs,
        _infer_scatter,
        Category.COMPLEX,
        "data with elements replaced at the given places along an axis",
        (3, 3),
        "any; integer indices",
        _compute_scatter,
    ),
    Op(
        "scatter_nd",
        ScatterNdAttrs,
        _infer_scatter_nd,
        Category.COMPLEX,
        "data with slices replaced at places given by several subscripts each",
        (3, 3),
        "any; integer indices",
        _compute_scatter_nd,
    ),
)
