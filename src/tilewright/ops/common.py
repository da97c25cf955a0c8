"""What operator families share: broadcasting, type checks, attribute records without fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, f32, index
from tilewright.base.errors import ModelError
from tilewright.ir.dims import canonical
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Load,
    Select,
    Symbol,
    as_dim,
    as_expr,
    cast,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.ir.op import Attrs
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType


@dataclass(frozen=True, slots=True)
class NoAttrs(Attrs):
    """The record of an operator without attributes."""


def broadcast(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """The shape that all of `shapes` broadcast to (numpy's rule); ModelError if there is none."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for axis in range(-rank, 0):
        dims = [canonical(s[axis]) for s in shapes if len(s) >= -axis]
        wide = [d for d in dict.fromkeys(dims) if d != 1]
        if len(wide) > 1:
            shown = " and ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
            what = f"shapes {shown} do not broadcast: {wide[0]} against {wide[1]}"
            raise ModelError(what, hint=fit_hint(wide[0], wide[1]))
        out.append(wide[0] if wide else 1)
    return tuple(out)


def fit_hint(a: Dim, b: Dim) -> str | None:
    """What to do about dimensions that ought to be equal and, for some sizes, can be."""
    difference = canonical(as_expr(a) - b)
    if isinstance(difference, int):
        return None
    names = sorted({e.name for e in difference.walk() if isinstance(e, Symbol)})
    options = " ".join(f"--dim {name}=NUMBER" for name in names)
    return f"they fit for certain sizes only: fix {', '.join(names)} with dims= ({options})"


def read_broadcast(buffer: Buffer, index: Sequence[Expr]) -> Load:
    """The element of `buffer` that stands at `index` of the shape it is broadcast to."""
    rank = len(buffer.shape)
    own = list(index)[len(index) - rank :]
    zero = const(0)
    return Load(
        buffer, tuple(zero if d == 1 else i for d, i in zip(buffer.shape, own, strict=True))
    )


def require_same_dtype(op: str, types: Sequence[TensorType]) -> DType:
    """The one element type of all operands."""
    found = dict.fromkeys(t.dtype for t in types)
    if len(found) > 1:
        raise ModelError(f"{op}: operands differ in type: {', '.join(map(str, found))}")
    return types[0].dtype


def require(condition: bool, message: str) -> None:
    """ModelError with `message` unless the condition holds."""
    if not condition:
        raise ModelError(message)


def normalize_axis(op: str, axis: int, rank: int) -> int:
    """A non-negative axis; ModelError when it is outside -rank … rank - 1."""
    require(-rank <= axis < max(rank, 1), f"{op}: axis {axis} of a tensor with {rank} dimensions")
    return axis + rank if axis < 0 else axis


def normalize_axes(op: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Non-negative, sorted, distinct axes."""
    out = sorted(normalize_axis(op, a, rank) for a in axes)
    require(len(set(out)) == len(out), f"{op}: axes {tuple(axes)} name one axis twice")
    return tuple(out)


def axis_names(rank: int) -> str:
    """What a stage's loops over `rank` axes are called: i, j, k, l, or i0, i1, … beyond four."""
    return "ijkl"[:rank] if 0 < rank <= 4 else "i"


def as_number(dim: Dim, dtype: DType) -> Expr:
    """A dimension as an element of `dtype`."""
    return cast(dtype, as_expr(dim)) if isinstance(dim, Expr) else const(dim, dtype)


def wrap_index(i: Expr, extent: Dim) -> Expr:
    """A subscript read from a tensor: negative ones count from the end, and what is still out of
    range is moved to the nearest element, so that no program reads outside its buffers."""
    i = cast(index, i)
    wrapped = select(i < 0, i + extent, i)
    return maximum(minimum(wrapped, as_expr(extent) - 1), 0)


def wrapped_index(e: Expr) -> tuple[Expr, Dim] | None:
    """The i and extent of which `wrap_index` made `e`; None for other expressions."""
    wrapped = e
    for op in (BinaryOp.MAX, BinaryOp.MIN):
        if not (isinstance(wrapped, Binary) and wrapped.op is op):
            return None
        wrapped = wrapped.a
    if not (isinstance(wrapped, Select) and isinstance(wrapped.a, Binary)):
        return None
    i, extent = wrapped.b, as_dim(wrapped.a.b)
    return (i, extent) if wrap_index(i, extent) == e else None


def widened(dtype: DType) -> DType:
    """The type in which sums over floats of `dtype` are kept; other types are their own."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype


def converted(b: Builder, name: str, x: Buffer, dtype: DType) -> Buffer:
    """`x` converted to `dtype`, if it is not of that type already."""
    if x.dtype == dtype:
        return x
    return b.compute(name, x.shape, lambda *i: cast(dtype, x[i]), names=axis_names(len(x.shape)))
