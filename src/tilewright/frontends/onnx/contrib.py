"""Operators of ONNX Runtime's own domain, com.microsoft (contrib_schemas.py)."""

from __future__ import annotations

import numpy as np

from tilewright.base.dtype import f32, u4, u8
from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import Importer, NodeContext
from tilewright.frontends.onnx.neural import product
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.frontends.onnx.quantize import dequantize
from tilewright.ir.expr import ceil_div
from tilewright.ir.graph import Value


def matmul_n_bits(ctx: NodeContext, node: OnnxNode) -> Value:
    """MatMulNBits (1): A[…, K] times weights of few bits, of which blocks along K have a scale and
    a zero point; the first code of a byte lies in its lowest bits."""
    depth, columns, block = (node.int(name) for name in ("K", "N", "block_size"))
    bits = node.int("bits", 4)
    if bits not in (2, 4, 8) or depth < 1 or columns < 1 or block < 8 // bits:
        raise ModelError(f"{columns} columns of {depth} codes of {bits} bits, in blocks of {block}")
    if node.optional(4) is not None or node.int("weight_prepacked", 0):
        raise ModelError("reordered weights (g_idx, weight_prepacked) are not supported")
    blocks = int(ceil_div(depth, block))
    codes = _unpacked(ctx.need(node.input(1), "B"), columns, bits, blocks * block)
    codes = codes.reshape(columns, blocks, block)
    x, zero = node.input(0), node.optional(3)
    scale = ctx.need(node.input(2), "scales")
    if scale.size != columns * blocks:
        raise ModelError(f"{scale.size} scales for {columns} columns of {blocks} blocks")
    if zero is None:
        zeros = np.full((columns, blocks), 1 << bits - 1)
    else:
        zeros = ctx.need(zero, "zero_points")
        zeros = _unpacked(zeros, columns, bits, blocks) if zero.dtype == u8 else zeros
    parts = [a.astype(np.float32).reshape(columns, blocks, 1) for a in (zeros, scale)]
    if depth < blocks * block:
        codes, *parts = (_per_code(a, block, depth) for a in (codes, *parts))
    w = ctx.constant(codes.astype((u4 if bits == 4 else u8).numpy), u4 if bits == 4 else u8)
    w = dequantize(ctx, w, *map(ctx.constant, parts[::-1]))
    w = ctx.transpose(ctx.reshape(w, [columns, depth]), [1, 0])
    y = product(ctx, ctx.cast(x, f32), w)
    if node.optional(5) is not None:
        y = ctx.emit("add", [y, ctx.cast(node.input(5), f32)])
    return ctx.cast(y, x.dtype)


def _unpacked(packed: np.ndarray, rows: int, bits: int, count: int) -> np.ndarray:
    """Codes [rows, count] of bytes, in which each row begins a new one."""
    width = -(-count * bits // 8)
    if packed.size != rows * width:
        raise ModelError(f"{packed.size} bytes for {rows} rows of {count} codes of {bits} bits")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes: np.ndarray = packed.reshape(rows, width, 1) >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(rows, -1)[:, :count]


def _per_code(a: np.ndarray, block: int, depth: int) -> np.ndarray:
    """A last block that is not whole: each code with numbers of its own."""
    rows = a.shape[0]
    return np.broadcast_to(a, (*a.shape[:2], block)).reshape(rows, -1)[:, :depth]


IMPORTERS: dict[str, Importer] = {"MatMulNBits": matmul_n_bits}
