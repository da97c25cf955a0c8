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
    require(canonical(x.shape[-1]) == depth, f"matmul_compact: {x.shape[-1]} against {depth}")
    wanted = tensor_type(f32, [ceil_div(depth, attrs.block), codes.shape[1]])
    require(
        all(t == wanted for t in others),
        f"matmul_compact: scales and zeros must be {wanted}, not {', '.join(map(str, others))}",
    )
    return [tensor_type(f32, [*x.shape[:-1], codes.shape[1]])]


def _compute(b: Builder, attrs: CompactAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, codes, scale, *zeros = inputs
    shape, depth = [*x.shape[:-1], codes.shape[1]], x.shape[-1]
    single = isinstance(depth, int) and depth <= attrs.block  # a scale for the whole sum

    def weight(k: Expr, n: Expr) -> Expr:
        code: Expr = codes[k, n]
        if attrs.bits < 8:
            each = 8 // attrs.bits
            shifted = codes[k // each, n] >> cast(u8, k % each * attrs.bits)
            code = shifted & const((1 << attrs.bits) - 1, u8)
        value, place = cast(f32, code), (k // attrs.block, n)
        zero: Expr = zeros[0][place] if zeros else const(float(attrs.zero), f32)
        if single:
            return value - zero if zeros or attrs.zero else value
        scaled = value * scale[place]  # a multiply-add, and what does not vary within a block
        return scaled - zero * scale[place] if zeros or attrs.zero else scaled

    def term(*index: Expr) -> Expr:
        *rows, n, k = index
        return x.at(*rows, k) * weight(k, n)

    names = "bcdefgh"[: len(shape) - 2] + "mn"
    out = b.reduce("product", shape, BinaryOp.ADD, [depth], term, names=names, over_names="k")
    if not single:
        return [out]
    return [b.compute("scaled", shape, lambda *i: out[i] * scale[0, i[-1]], names=names)]


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
