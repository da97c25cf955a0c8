"""Operators that move elements without changing them: transpose, reshape, slice, concat

All are injective: each output element is read from one place, which is an affine function of the
output's index wherever that is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tilewright.base.errors import ModelError
from tilewright.ir.dims import Monomial, canonical, limits, polynomial, tensor_type
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Dim,
    Expr,
    as_expr,
    const,
    product,
    select,
)
from tilewright.ir.op import Attrs, Category, Compute, Infer, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import (
    axis_names,
    fit_hint,
    normalize_axis,
    require,
    require_same_dtype,
)

IN_TURN = 16  # parts of a concatenation that are asked for one after another


@dataclass(frozen=True, slots=True)
class TransposeAttrs(Attrs):
    perm: tuple[int, ...] = attr(doc="for each output axis the input axis it comes from", low=0)


@dataclass(frozen=True, slots=True)
class ReshapeAttrs(Attrs):
    shape: tuple[Dim, ...] = attr(doc="the new shape, with as many elements")


@dataclass(frozen=True, slots=True)
class SliceAttrs(Attrs):
    starts: tuple[Dim, ...] = attr(doc="for each axis the first element taken")
    sizes: tuple[Dim, ...] = attr(doc="for each axis how many are taken")
    steps: tuple[int, ...] = attr(doc="for each axis the distance between them; may be negative")


@dataclass(frozen=True, slots=True)
class AxisAttrs(Attrs):
    axis: int = attr(doc="the axis meant; negative ones count from the end")


# ---------------------------------------------------------------- transpose and reshape


def _infer_transpose(attrs: TransposeAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    require(
        sorted(attrs.perm) == list(range(x.rank)),
        f"transpose: {attrs.perm} is no permutation of the {x.rank} axes",
    )
    return [tensor_type(x.dtype, [x.shape[a] for a in attrs.perm])]


def _compute_transpose(b: Builder, attrs: TransposeAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    place = [attrs.perm.index(a) for a in range(len(attrs.perm))]
    shape = [x.shape[a] for a in attrs.perm]
    value = lambda *i: x[tuple(i[p] for p in place)]  # noqa: E731
    return [b.compute("transpose", shape, value, names=axis_names(len(shape)))]


def _infer_reshape(attrs: ReshapeAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    shape = tuple(canonical(d) for d in attrs.shape)
    for dim in shape:
        low = limits(dim)[1]
        require(low is None or low >= 0, f"reshape: a dimension of {dim}")
    old, new = canonical(product(x.shape)), canonical(product(shape))
    if old != new and not (isinstance(new, Expr) and _never_above(new, old)):
        what = (
            f"reshape: [{show_shape(x.shape)}] has {old} elements, [{show_shape(shape)}] has {new}"
        )
        raise ModelError(what, hint=fit_hint(old, new))
    return [tensor_type(x.dtype, shape)]


def _never_above(new: Dim, old: Dim) -> bool:
    """Whether `new` is at most `old` whatever the symbols are, since a // k is at most a / k.
    Such a reshape, of [n] to [n // 4, 4], is meant for sizes where the two are equal."""
    bound: dict[Monomial, Fraction] = {}
    for monomial, coefficient in polynomial(new).items():
        terms: dict[Monomial, Fraction] = {(): Fraction(coefficient)}
        for factor in monomial:
            above, divisor = factor, 1
            if isinstance(factor, Binary) and factor.op is BinaryOp.FLOORDIV:
                if not isinstance(factor.b, Const) or factor.b.value <= 0:
                    return False
                above, divisor = factor.a, int(factor.b.value)
            inner = polynomial(above)
            terms = {
                tuple(sorted(m + n, key=str)): c * d / divisor
                for m, c in terms.items()
                for n, d in inner.items()
            }
        for m, c in terms.items():
            bound[m] = bound.get(m, Fraction(0)) + c
    own = polynomial(old)
    return all(c <= own.get(m, 0) for m, c in bound.items()) and all(
        c >= 0 for m, c in own.items() if m not in bound
    )


def show_shape(shape: Sequence[Dim]) -> str:
    """A shape for an error text, without brackets."""
    return ", ".join(map(str, shape))


def _compute_reshape(b: Builder, attrs: ReshapeAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    shape = tuple(canonical(d) for d in attrs.shape)
    groups = reshape_groups(x.shape, shape)

    def value(*index: Expr) -> Expr:
        place: list[Expr] = [const(0)] * len(x.shape)
        for old, new in groups:
            flat = flatten_index([index[a] for a in new], [shape[a] for a in new])
            for axis, i in zip(old, split_index(flat, [x.shape[a] for a in old]), strict=True):
                place[axis] = i
        return x[tuple(place)]

    return [b.compute("reshape", shape, value, names=axis_names(len(shape)))]


def reshape_groups(
    old: Sequence[Dim], new: Sequence[Dim]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The finest groups of old and new axes that hold the same elements, without unit axes."""
    a = [i for i, d in enumerate(old) if d != 1]
    c = [i for i, d in enumerate(new) if d != 1]
    ends: dict[Dim, int] = {}
    total: Dim = 1
    for position, axis in enumerate(a):
        total = canonical(as_expr(total) * old[axis])
        ends.setdefault(total, position + 1)
    groups, total, from_old, from_new = [], 1, 0, 0
    for position, axis in enumerate(c):
        total = canonical(as_expr(total) * new[axis])
        if total != 0 and ends.get(total, 0) > from_old:
            groups.append((tuple(a[from_old : ends[total]]), tuple(c[from_new : position + 1])))
            from_old, from_new = ends[total], position + 1
    if from_old < len(a) or from_new < len(c):
        groups.append((tuple(a[from_old:]), tuple(c[from_new:])))
    return groups


def flatten_index(index: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """The row-major position of `index` in `shape`."""
    flat: Expr = const(0)
    for i, d in zip(index, shape, strict=True):
        flat = flat * d + i
    return flat


def split_index(flat: Expr, shape: Sequence[Dim]) -> list[Expr]:
    """The index in `shape` that stands at a row-major position."""
    out: list[Expr] = []
    for axis in range(len(shape)):
        inner = canonical(product(tuple(shape[axis + 1 :])))
        place = flat // inner
        out.append(place if axis == 0 else place % shape[axis])
    return out


# ---------------------------------------------------------------- slice, concat


def _infer_slice(attrs: SliceAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    for name in ("starts", "sizes", "steps"):
        require(len(getattr(attrs, name)) == x.rank, f"slice: {name} must have {x.rank} elements")
    for axis, (extent, start, size, step) in enumerate(
        zip(x.shape, attrs.starts, attrs.sizes, attrs.steps, strict=True)
    ):
        if size == 0:
            continue
        last = as_expr(start) + (as_expr(size) - 1) * step
        for end in (as_expr(start), last):
            low, high = limits(canonical(end)), limits(canonical(as_expr(extent) - 1 - end))
            require(
                (low[1] is None or low[1] >= 0) and (high[1] is None or high[1] >= 0),
                f"slice: axis {axis} of extent {extent} has no element {canonical(end)}",
            )
    return [tensor_type(x.dtype, attrs.sizes)]


def _compute_slice(b: Builder, attrs: SliceAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs

    def value(*index: Expr) -> Expr:
        return x[
            tuple(
                const(0) if d == 1 else i * step + start
                for i, d, start, step in zip(index, x.shape, attrs.starts, attrs.steps, strict=True)
            )
        ]

    sizes = [canonical(d) for d in attrs.sizes]
    return [b.compute("slice", sizes, value, names=axis_names(len(x.shape)))]


def _infer_concat(attrs: AxisAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    dtype, rank = require_same_dtype("concat", types), types[0].rank
    axis = normalize_axis("concat", attrs.axis, rank)
    require(rank > 0, "concat: scalars have no axis")
    for t in types[1:]:
        same = t.rank == rank and all(
            canonical(p) == canonical(q)
            for a, (p, q) in enumerate(zip(t.shape, types[0].shape, strict=True))
            if a != axis
        )
        shown = " and ".join(f"[{show_shape(p.shape)}]" for p in (types[0], t))
        require(same, f"concat: {shown} differ beside axis {axis}")
    total: Expr = as_expr(0)
    for t in types:
        total = total + t.shape[axis]
    return [tensor_type(dtype, [*types[0].shape[:axis], total, *types[0].shape[axis + 1 :]])]


def _compute_concat(b: Builder, attrs: AxisAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    axis = normalize_axis("concat", attrs.axis, len(inputs[0].shape))
    parts = [x for x in inputs if x.shape[axis] != 0] or [inputs[0]]
    starts: list[Dim] = [0]
    for x in parts:
        starts.append(canonical(as_expr(starts[-1]) + x.shape[axis]))
    shape = [*inputs[0].shape[:axis], starts[-1], *inputs[0].shape[axis + 1 :]]

    def value(*index: Expr) -> Expr:
        def read(x: Buffer, start: Dim) -> Expr:
            own = const(0) if x.shape[axis] == 1 else index[axis] - start
            return x.at(*index[:axis], own, *index[axis + 1 :])

        def among(first: int, last: int) -> Expr:
            """The element of one of some parts: one after another is asked, of many by halves."""
            if last - first > IN_TURN:
                middle = (first + last) // 2
                return select(
                    index[axis] < starts[middle], among(first, middle), among(middle, last)
                )
            result = read(parts[last - 1], starts[last - 1])
            for p in range(last - 2, first - 1, -1):
                result = select(index[axis] < starts[p + 1], read(parts[p], starts[p]), result)
            return result

        return among(0, len(parts))

    return [b.compute("concat", shape, value, names=axis_names(len(shape)))]


def movement(
    name: str,
    attrs: type[Attrs],
    infer: Infer,
    compute: Compute,
    doc: str,
    *,
    arity: tuple[int, int] = (1, 1),
    elementwise: bool = False,
) -> Op:
    """An operator that moves elements."""
    return Op(
        name,
        attrs,
        infer,
        Category.INJECTIVE,
        doc,
        arity,
        "any",
        compute,
        elementwise=elementwise,
    )


OPS: tuple[Op, ...] = (
    movement(
        "reshape",
        ReshapeAttrs,
        _infer_reshape,
        _compute_reshape,
        "the same elements, in row-major order, under another shape",
    ),
    movement(
        "transpose", TransposeAttrs, _infer_transpose, _compute_transpose, "the axes in new order"
    ),
    movement(
        "slice",
        SliceAttrs,
        _infer_slice,
        _compute_slice,
        "evenly spaced elements along each axis",
    ),
    movement(
        "concat",
        AxisAttrs,
        _infer_concat,
        _compute_concat,
        "tensors one behind the other along an axis",
        arity=(1, 1 << 30),
    ),
)
