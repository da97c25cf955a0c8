"""Products with weights of few bits, which are decoded where they are multiplied.

A weight is (code - zero) * scale. Codes of 4 or 2 bits lie in bytes, the first in the lowest bits,
along the axis that is summed over; neighbours there share scales in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtype import f32, i8, u8
from tilewright.ir.dims import canonical, tensor_type
from tilewright.ir.expr import BinaryOp, Buffer, Expr, as_expr, cast, ceil_div, const
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import require


@dataclass(frozen=True, slots=True)
class CompactAttrs(Attrs):
    bits: int = attr(doc="of a code; below 8 a byte has several", choices=(2, 4, 8))
    block: int = attr(doc="how many codes along the summed axis share a scale", low=1)
    zero: int = attr(0, doc="the code that stands for 0, where it is one number")


def _infer(attrs: CompactAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x, codes, *others = types
    require(x.rank >= 2 and codes.rank == 2, "matmul_compact: x[…, m, k] and codes[k, n]")
    require(
        x.dtype == f32 and codes.dtype in (u8, *((i8,) if attrs.bits == 8 else ())),
        f"matmul_compact: {x.dtype} times codes of {attrs.bits} bits in {codes.dtype}",
    )
    depth = canonical(as_expr(codes.shape[0]) * (8 // attrs.bits))
    each = 8 // attrs.bits
    require(
        attrs.block % each == 0 and isinstance(depth, int) and depth % attrs.block == 0,
        f"matmul_compact: {depth} codes in blocks of {attrs.block}",
    )
    require(canonical(x.shape[-1]) == depth, f"matmul_compact: {x.shape[-1]} against {depth}")
    wanted = tensor_type(f32, [ceil_div(depth, attrs.block), codes.shape[1]])
    require(
        all(t == wanted for t in others),
        f"matmul_compact: scales and zeros must be {wanted}, not {', '.join(map(str, others))}",
    )
    return [tensor_type(f32, [*x.shape[:-1], codes.shape[1]])]


def _compute(b: Builder, attrs: CompactAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """Sums within blocks of codes alone, which scales and zero points then apply to."""
    x, codes, scale, *zeros = inputs
    shape, block = [*x.shape[:-1], codes.shape[1]], attrs.block
    each, blocks = 8 // attrs.bits, scale.shape[0]

    def code(part: Expr, k: Expr, n: Expr) -> Expr:
        if attrs.bits == 8:
            return cast(f32, codes[part * block + k, n])
        byte = codes[part * (block // each) + k // each, n]
        shifted = byte >> cast(u8, k % each * attrs.bits)
        return cast(f32, shifted & const((1 << attrs.bits) - 1, u8))

    def term(*index: Expr) -> Expr:
        *rows, part, n, k = index
        return x.at(*rows, part * block + k) * code(part, k, n)

    def scaled(*index: Expr) -> Expr:
        *rows, n, part = index
        value: Expr = sums.at(*rows, part, n)
        if data is not None:
            zero = zeros[0][part, n] if zeros else const(float(attrs.zero), f32)
            value = value - zero * data.at(*rows, part)
        return value * scale[part, n]

    names, data = "acdefgh"[: len(shape) - 2] + "m", None
    if zeros or attrs.zero:
        add = lambda *i: x.at(*i[:-2], i[-2] * block + i[-1])  # noqa: E731
        data = b.reduce(
            "data", [*shape[:-1], blocks], BinaryOp.ADD, [block], add, names=names + "b"
        )
    parts = [*shape[:-1], blocks, shape[-1]]
    sums = b.reduce("sums", parts, BinaryOp.ADD, [block], term, names=names + "bn", over_names="k")
    if blocks == 1:
        last = lambda *i: scaled(*i, as_expr(0))  # noqa: E731
        return [b.compute("scaled", shape, last, names=names + "n")]
    args = ("product", shape, BinaryOp.ADD, [blocks], scaled)
    return [b.reduce(*args, names=names + "n", over_names="b")]


OPS: tuple[Op, ...] = (
    Op(
        "matmul_compact",
        CompactAttrs,
        _infer,
        Category.COMPLEX,
        "x[…, m, k] times (codes[k, n] - zero) * scale[k / block, n]; zeros may be given as scales",
        (3, 4),
        "any",
        _compute,
    ),
)
