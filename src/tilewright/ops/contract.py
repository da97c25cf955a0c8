"""Contractions: matrix multiplication and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, f32, i32
from tilewright.ir.dims import canonical, tensor_type
from tilewright.ir.expr import BinaryOp, Buffer, Dim, Expr, all_of, as_expr, cast, const, select
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import broadcast, read_broadcast, require, require_same_dtype


def accumulator(dtype: DType) -> DType:
    """The type a sum of products of `dtype` is kept in: at least f32 or i32."""
    if dtype.is_float:
        return f32 if dtype.bits < 32 else dtype
    return i32 if dtype.bits < 32 else dtype


def _result(op: str, types: Sequence[TensorType], wide: bool) -> DType:
    """The type of a sum of products: the operands', or that of its accumulator if it is to stay
    wide. Then factors of 8 bits may be of two types."""
    short = wide and all(t.dtype.is_integer and t.dtype.bits <= 8 for t in types)
    dtype = types[0].dtype if short else require_same_dtype(op, types)
    return accumulator(dtype) if wide else dtype


# ---------------------------------------------------------------- matmul


@dataclass(frozen=True, slots=True)
class MatmulAttrs(Attrs):
    wide: bool = attr(
        False, doc="sums keep the type they are made in: i32 for small integers, u8 by i8 too"
    )


def _matmul_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    require(len(a) >= 2 and len(b) >= 2, f"matmul: operands of {len(a)} and {len(b)} dimensions")
    require(
        canonical(a[-1]) == canonical(b[-2]),
        f"matmul: the inner dimensions differ: {a[-1]} against {b[-2]}",
    )
    return (*broadcast([a[:-2], b[:-2]]), a[-2], b[-1])


def _infer_matmul(attrs: MatmulAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    dtype = _result("matmul", types, attrs.wide)
    return [tensor_type(dtype, _matmul_shape(types[0].shape, types[1].shape))]


def _compute_matmul(b: Builder, attrs: MatmulAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, y = inputs
    shape = _matmul_shape(x.shape, y.shape)
    wide = accumulator(x.dtype)

    def term(*index: Expr) -> Expr:
        *batch, m, n, k = index
        left, right = read_broadcast(x, [*batch, m, k]), read_broadcast(y, [*batch, k, n])
        return cast(wide, left) * cast(wide, right)

    names = "bcdefgh"[: len(shape) - 2] + "mn"
    out = b.reduce("matmul", shape, BinaryOp.ADD, [x.shape[-1]], term, names=names, over_names="k")
    return [_narrow(b, "matmul_out", out, wide if attrs.wide else x.dtype)]


def _narrow(b: Builder, name: str, x: Buffer, dtype: DType) -> Buffer:
    """`x` converted to `dtype`, if it is not of that type already."""
    if x.dtype == dtype:
        return x
    return b.compute(name, x.shape, lambda *i: cast(dtype, x[i]))


# ---------------------------------------------------------------- convolution


@dataclass(frozen=True, slots=True)
class ConvAttrs(Attrs):
    strides: tuple[int, ...] = attr(doc="step of the window along each spatial axis", low=1)
    pads_begin: tuple[int, ...] = attr(doc="padding before each spatial axis", low=0)
    pads_end: tuple[int, ...] = attr(doc="padding after each spatial axis", low=0)
    dilations: tuple[int, ...] = attr(doc="distance of the window's elements", low=1)
    groups: int = attr(1, doc="independent groups of channels", low=1)
    wide: bool = attr(
        False, doc="sums keep the type they are made in: i32 for small integers, u8 by i8 too"
    )
    fill: int = attr(0, doc="what the padding holds: the zero point of whole numbers")


def window_extent(
    size: Dim, kernel: Dim, stride: int, before: int, after: int, dilation: int
) -> Dim:
    """How many places a window has along one axis."""
    return canonical(
        (as_expr(size) + (before + after) - (as_expr(kernel) - 1) * dilation - 1) // stride + 1
    )


def _conv_shape(attrs: ConvAttrs, x: tuple[Dim, ...], w: tuple[Dim, ...]) -> tuple[Dim, ...]:
    rank = len(x) - 2
    require(
        rank >= 1 and len(w) == rank + 2,
        f"conv: input of {len(x)} and weight of {len(w)} dimensions",
    )
    for name in ("strides", "pads_begin", "pads_end", "dilations"):
        require(len(getattr(attrs, name)) == rank, f"conv: {name} must have {rank} elements")
    channels = canonical(as_expr(w[1]) * attrs.groups)
    require(
        canonical(x[1]) == channels,
        f"conv: {x[1]} input channels, but the weight has {w[1]} in {attrs.groups} group(s)",
    )
    require(
        not isinstance(w[0], int) or w[0] % attrs.groups == 0,
        f"conv: {w[0]} output channels do not divide into {attrs.groups} groups",
    )
    spatial = [
        window_extent(
            x[2 + i],
            w[2 + i],
            attrs.strides[i],
            attrs.pads_begin[i],
            attrs.pads_end[i],
            attrs.dilations[i],
        )
        for i in range(rank)
    ]
    require(
        all(not isinstance(d, int) or d >= 0 for d in spatial),
        f"conv: the window {list(w[2:])} is larger than the padded input",
    )
    return (x[0], w[0], *spatial)


def _infer_conv(attrs: ConvAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    dtype = _result("conv", types, attrs.wide)
    return [tensor_type(dtype, _conv_shape(attrs, types[0].shape, types[1].shape))]


def pad_spatial(
    b: Builder, x: Buffer, before: Sequence[int], after: Sequence[int], fill: float
) -> Buffer:
    """`x` with its spatial axes (2 …) padded by `fill`; `x` itself when there is nothing to pad."""
    if not any(before) and not any(after):
        return x
    shape = [
        *x.shape[:2],
        *(
            canonical(as_expr(d) + (p + q))
            for d, p, q in zip(x.shape[2:], before, after, strict=True)
        ),
    ]

    def value(n: Expr, c: Expr, *place: Expr) -> Expr:
        inside, index = [], []
        for i, size, p, q in zip(place, x.shape[2:], before, after, strict=True):
            inside += [i >= p] if p else []
            inside += [i < as_expr(size) + p] if q else []
            index.append(i - p)
        return select(all_of(*inside), x.at(n, c, *index), const(fill, x.dtype))

    return b.compute(
        "pad", shape, value, names="nc" + "hwd"[: len(before)] if len(before) <= 3 else "p"
    )


def _compute_conv(b: Builder, attrs: ConvAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, w = inputs
    shape = _conv_shape(attrs, x.shape, w.shape)
    rank, wide = len(shape) - 2, accumulator(x.dtype)
    padded = pad_spatial(b, x, attrs.pads_begin, attrs.pads_end, attrs.fill)
    group_in, group_out = w.shape[1], canonical(as_expr(w.shape[0]) // attrs.groups)

    def term(n: Expr, o: Expr, *rest: Expr) -> Expr:
        place, c, window = rest[:rank], rest[rank], rest[rank + 1 :]
        channel = c if attrs.groups == 1 else o // group_out * group_in + c
        at = [
            p * s + k * d
            for p, s, k, d in zip(place, attrs.strides, window, attrs.dilations, strict=True)
        ]
        return cast(wide, padded.at(n, channel, *at)) * cast(wide, w.at(o, c, *window))

    names = "no" + "hwd"[:rank] if rank <= 3 else "s"
    over = "c" + "kqr"[:rank] if rank <= 3 else "k"
    out = b.reduce("conv", shape, BinaryOp.ADD, w.shape[1:], term, names=names, over_names=over)
    return [_narrow(b, "conv_out", out, wide if attrs.wide else x.dtype)]


# ---------------------------------------------------------------- general contraction


@dataclass(frozen=True, slots=True)
class EinsumAttrs(Attrs):
    terms: tuple[str, ...] = attr(doc="for each operand one letter for each of its axes")
    result: str = attr(doc="the letters of the result's axes; all others are summed over")


def _letters(attrs: EinsumAttrs, shapes: Sequence[tuple[Dim, ...]]) -> dict[str, Dim]:
    """The extent of each letter; ModelError when operands disagree."""
    require(len(attrs.terms) == len(shapes), f"einsum: {len(shapes)} operands for {attrs.terms}")
    extents: dict[str, Dim] = {}
    for term, shape in zip(attrs.terms, shapes, strict=True):
        require(len(term) == len(shape), f"einsum: {term!r} for an operand {list(shape)}")
        for letter, dim in zip(term, map(canonical, shape), strict=True):
            known = extents.get(letter, 1)
            require(
                dim in (1, known) or known == 1,
                f"einsum: the axis {letter!r} has {known} and {dim} elements",
            )
            extents[letter] = known if dim == 1 else dim
    require(
        len(set(attrs.result)) == len(attrs.result) and set(attrs.result) <= set(extents),
        f"einsum: a result {attrs.result!r} of {attrs.terms}",
    )
    return extents


def _infer_einsum(attrs: EinsumAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    dtype = require_same_dtype("einsum", types)
    extents = _letters(attrs, [t.shape for t in types])
    return [tensor_type(dtype, [extents[letter] for letter in attrs.result])]


def _compute_einsum(b: Builder, attrs: EinsumAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    extents = _letters(attrs, [x.shape for x in inputs])
    summed = [letter for letter in extents if letter not in attrs.result]
    dtype = inputs[0].dtype
    wide = accumulator(dtype) if summed else dtype

    def value(*index: Expr) -> Expr:
        at = dict(zip([*attrs.result, *summed], index, strict=True))
        factors = [
            cast(wide, read_broadcast(x, [at[letter] for letter in term]))
            for x, term in zip(inputs, attrs.terms, strict=True)
        ]
        result = factors[0]
        for factor in factors[1:]:
            result = result * factor
        return result

    shape, over = [extents[c] for c in attrs.result], [extents[c] for c in summed]
    names = attrs.result.lower() if attrs.result else "i"
    if not summed:
        return [b.compute("einsum", shape, value, names=names)]
    out = b.reduce(
        "einsum", shape, BinaryOp.ADD, over, value, names=names, over_names="".join(summed).lower()
    )
    return [_narrow(b, "einsum_out", out, dtype)]


OPS: tuple[Op, ...] = (
    Op(
        "matmul",
        MatmulAttrs,
        _infer_matmul,
        Category.COMPLEX,
        "x[…, m, k] times y[…, k, n], batches broadcast",
        (2, 2),
        "numbers",
        _compute_matmul,
    ),
    Op(
        "conv",
        ConvAttrs,
        _infer_conv,
        Category.COMPLEX,
        "convolution of x[n, c, …] with w[o, c / groups, …]; no bias",
        (2, 2),
        "numbers",
        _compute_conv,
    ),
    Op(
        "einsum",
        EinsumAttrs,
        _infer_einsum,
        Category.COMPLEX,
        "the product of operands summed over the axes that the result does not have",
        (1, 1 << 30),
        "numbers",
        _compute_einsum,
    ),
)
