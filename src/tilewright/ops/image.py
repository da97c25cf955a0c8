"""Sampling between elements: grid sampling and region pooling.

Coordinates are floats in the units of elements: 0 is the centre of the first one. What lies outside
counts as zero, as the nearest element, or as the tensor mirrored at its borders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, i64, index
from tilewright.ir.dims import canonical, tensor_type
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
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import as_number, axis_names, require, require_same_dtype, widened

CUBIC = -0.75  # the parameter of the cubic kernel (Keys 1981), as PyTorch has it


@dataclass(frozen=True, slots=True)
class GridSampleAttrs(Attrs):
    mode: str = attr(
        "linear",
        doc="the nearest element, or a mean of 2 or of 4 along each axis",
        choices=("nearest", "linear", "cubic"),
    )
    padding: str = attr(
        "zeros",
        doc="what lies outside: zero, the nearest element, the tensor mirrored",
        choices=("zeros", "border", "reflection"),
    )
    align_corners: bool = attr(
        False, doc="-1 and 1 mean the centres of the outermost elements, not their outer edges"
    )


@dataclass(frozen=True, slots=True)
class RoiAlignAttrs(Attrs):
    height: int = attr(doc="rows of bins", low=1)
    width: int = attr(doc="columns of bins", low=1)
    samples: int = attr(doc="samples along each axis of a bin", low=1)
    scale: float = attr(1.0, doc="factor from the regions' coordinates to elements")
    half_pixel: bool = attr(True, doc="shift coordinates by half an element")
    mode: str = attr("avg", doc="how a bin's samples are combined", choices=("avg", "max"))


# ---------------------------------------------------------------- grid sample


def _infer_grid_sample(attrs: GridSampleAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x, grid = types
    require_same = x.dtype.is_float and grid.dtype.is_float
    require(require_same, f"grid_sample: takes floats, not {x.dtype} and {grid.dtype}")
    rank = x.rank - 2
    fits = rank >= 1 and grid.rank == x.rank and grid.shape[-1] == rank
    require(fits, f"grid_sample: a grid {grid} for the input {x}")
    require(
        canonical(x.shape[0]) == canonical(grid.shape[0]),
        f"grid_sample: batches of {x.shape[0]} and {grid.shape[0]}",
    )
    return [tensor_type(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]


def _compute_grid_sample(
    b: Builder, attrs: GridSampleAttrs, inputs: Sequence[Buffer]
) -> list[Buffer]:
    """First where each sample lies, then the weighted sum of the elements around it."""
    x, grid = inputs
    sizes, wide = x.shape[2:], widened(x.dtype)
    rank, names = len(sizes), axis_names(len(x.shape))

    def place(axis: int) -> Callable[..., Expr]:
        return lambda n, *o: _place(attrs, cast(wide, grid.at(n, *o, rank - 1 - axis)), sizes[axis])

    points = (x.shape[0], *grid.shape[1:-1])
    places = [b.compute("place", points, place(a), names=axis_names(rank + 1)) for a in range(rank)]
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[attrs.mode]

    def term(n: Expr, c: Expr, *rest: Expr) -> Expr:
        o, window = rest[:rank], rest[rank:]
        subscripts, inside = [], []
        weight: Expr = const(1, wide)
        for axis, r in enumerate(window):
            at = places[axis].at(n, *o)
            base = unary(UnaryOp.FLOOR, at)
            weight = weight * _weight(attrs.mode, at - base, r)
            i = cast(index, base) + r - (1 if attrs.mode == "cubic" else 0)
            i, exists = _outside(attrs, i, sizes[axis], wide)
            subscripts.append(i)
            inside += exists
        return select(all_of(*inside), weight * cast(wide, x.at(n, c, *subscripts)), const(0, wide))

    shape = (*x.shape[:2], *grid.shape[1:-1])
    total = b.reduce("samples", shape, BinaryOp.ADD, [taps] * rank, term, names=names)
    value = lambda *i: cast(x.dtype, total[i])  # noqa: E731
    return [b.compute("grid_sample", shape, value, names=names)]


def _place(attrs: GridSampleAttrs, normal: Expr, size: Dim) -> Expr:
    """Where a normalised coordinate (-1 … 1) lies, brought inside if the padding asks for it."""
    dtype = normal.dtype
    n, one, half = as_number(size, dtype), const(1, dtype), const(0.5, dtype)
    low, high = -half, n - half
    at = ((normal + one) * n - one) * half
    if attrs.align_corners:
        low, high = const(0, dtype), n - one
        at = (normal + one) * half * high
    at = unary(UnaryOp.ROUND, at) if attrs.mode == "nearest" else at
    outside = (at < low) | (at > high)
    if attrs.padding == "border":
        at = select(outside, minimum(maximum(at, const(0, dtype)), n - one), at)
    if attrs.padding == "reflection":
        at = select(outside, _mirror(at, low, high), at)
    # What is far away, or NaN, is only made to fit an index: it is outside all the same.
    far = const(float(1 << 24), dtype)
    at = select(at > -far, minimum(at, far), -far)
    return at


def _mirror(x: Expr, low: Expr, high: Expr) -> Expr:
    """`x` folded back into low … high as often as needed."""
    extent = high - low
    distance = select(x < low, low - x, x - high)
    turns = unary(UnaryOp.TRUNC, distance / extent)
    rest = distance - turns * extent
    two = const(2, x.dtype)
    even = (turns - unary(UnaryOp.TRUNC, turns / two) * two).equals(0.0)
    stays = (x < low) & even | ~(x < low) & ~even
    folded = select(stays, low + rest, high - rest)
    return select(extent > 0.0, folded, low)


def _outside(attrs: GridSampleAttrs, i: Expr, size: Dim, dtype: DType) -> tuple[Expr, list[Expr]]:
    """The subscript that is read for element `i`, and conditions under which it exists."""
    if attrs.padding == "zeros":
        return i, [i >= 0, i < as_expr(size)]
    if attrs.padding == "reflection":
        n, half = as_number(size, dtype), const(0.5, dtype)
        low, high = -half, n - half
        if attrs.align_corners:
            low, high = const(0, dtype), n - const(1, dtype)
        at = cast(dtype, i)
        folded = cast(index, _mirror(at, low, high))
        i = select((at < low) | (at > high), folded, i)
    return minimum(maximum(i, 0), as_expr(size) - 1), []


def _weight(mode: str, f: Expr, r: Expr) -> Expr:
    """The weight of tap `r` at distance `f` past an element."""
    one = const(1, f.dtype)
    if mode == "nearest":
        return one
    if mode == "linear":
        return select(r.equals(0), one - f, f)
    near = (f, one - f)
    inner = [_cubic_inner(d) for d in near]
    outer = [_cubic_outer(d + one) for d in near]
    side = select(r.equals(2), inner[1], outer[1])
    return select(r.equals(0), outer[0], select(r.equals(1), inner[0], side))


def _cubic_inner(d: Expr) -> Expr:
    a, b = const(CUBIC + 2, d.dtype), const(CUBIC + 3, d.dtype)
    return (a * d - b) * d * d + const(1, d.dtype)


def _cubic_outer(d: Expr) -> Expr:
    a, five = const(CUBIC, d.dtype), const(5 * CUBIC, d.dtype)
    return ((a * d - five) * d + const(8 * CUBIC, d.dtype)) * d - const(4 * CUBIC, d.dtype)


# ---------------------------------------------------------------- regions


def _infer_roi_align(attrs: RoiAlignAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x, rois, batches = types
    require(x.dtype.is_float, f"roi_align: takes floats, not {x.dtype}")
    require_same_dtype("roi_align", [x, rois])
    require(x.rank == 4, f"roi_align: the input {x} is not [n, c, h, w]")
    require(rois.rank == 2 and rois.shape[1] == 4, f"roi_align: regions {rois}, not [regions, 4]")
    require(
        batches == tensor_type(i64, (rois.shape[0],)),
        f"roi_align: batch indices {batches} for regions {rois}",
    )
    return [tensor_type(x.dtype, (rois.shape[0], x.shape[1], attrs.height, attrs.width))]


def _compute_roi_align(b: Builder, attrs: RoiAlignAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, rois, batches = inputs
    wide, extents = widened(x.dtype), (attrs.height, attrs.width)

    def coordinate(roi: Expr, axis: int, bin_: Expr, sample: Expr) -> Expr:
        """Axis 0 is rows; a region is x1, y1, x2, y2."""
        shift = const(0.5 if attrs.half_pixel else 0.0, wide)
        scale = const(attrs.scale, wide)
        start, end = (cast(wide, rois[roi, const(1 - axis + k)]) * scale - shift for k in (0, 2))
        extent = end - start
        if not attrs.half_pixel:
            extent = maximum(extent, const(1, wide))
        bin_size = extent / const(extents[axis], wide)
        inner = (cast(wide, sample) + const(0.5, wide)) * bin_size / const(attrs.samples, wide)
        return start + cast(wide, bin_) * bin_size + inner

    def parts(at: Expr, size: Dim) -> tuple[Expr, list[tuple[Expr, Expr]]]:
        """Whether a coordinate counts, and the two elements beside it with their weights."""
        n = as_number(size, wide)
        counts = (at >= const(-1, wide)) & (at <= n)
        at = minimum(maximum(at, const(0, wide)), n - const(1, wide))
        low = cast(index, at)
        f = at - cast(wide, low)
        high = minimum(low + 1, as_expr(size) - 1)
        return counts, [(low, const(1, wide) - f), (high, f)]

    def sample(roi: Expr, c: Expr, i: Expr, j: Expr, si: Expr, sj: Expr) -> Expr:
        rows_count, rows = parts(coordinate(roi, 0, i, si), x.shape[2])
        columns_count, columns = parts(coordinate(roi, 1, j, sj), x.shape[3])
        batch = minimum(maximum(batches[roi], 0), as_expr(x.shape[0]) - 1)
        terms = [
            wr * wc * cast(wide, x[batch, c, row, column])
            for row, wr in rows
            for column, wc in columns
        ]
        value = terms[0]
        for term in terms[1:]:
            value = value + term if attrs.mode == "avg" else maximum(value, term)
        return select(rows_count & columns_count, value, const(0, wide))

    shape = (rois.shape[0], x.shape[1], *extents)
    op = BinaryOp.ADD if attrs.mode == "avg" else BinaryOp.MAX
    total = b.reduce("samples", shape, op, [attrs.samples] * 2, sample, names="rcij")
    count = const(attrs.samples**2 if attrs.mode == "avg" else 1, wide)
    value = lambda *i: cast(x.dtype, total[i] / count)  # noqa: E731
    return [b.compute("roi_align", shape, value, names="rcij")]


OPS: tuple[Op, ...] = (
    Op(
        "grid_sample",
        GridSampleAttrs,
        _infer_grid_sample,
        Category.COMPLEX,
        "x[n, c, …] sampled at the coordinates grid[n, …, axis], last axis first",
        (2, 2),
        "floats",
        _compute_grid_sample,
    ),
    Op(
        "roi_align",
        RoiAlignAttrs,
        _infer_roi_align,
        Category.COMPLEX,
        "regions of x[n, c, h, w] pooled to bins of sampled points",
        (3, 3),
        "floats",
        _compute_roi_align,
    ),
)
