"""ONNX's less usual contractions: transposed and deformable convolution, Col2Im, Einsum."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import FIX_DIMS, Importer, NodeContext, number_of, one_of
from tilewright.frontends.onnx.neural import add_per_channel, is_short, window
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value

# ---------------------------------------------------------------- transposed convolution


def conv_transpose(ctx: NodeContext, node: OnnxNode) -> Value:
    """ConvTranspose (1, 11, 22): a convolution, with the kernel reversed, of the input with zeros
    between its elements."""
    x, w = node.input(0), node.input(1)
    rank = x.type.rank - 2
    if rank < 1 or w.type.rank != x.type.rank or not all(isinstance(d, int) for d in w.shape):
        raise ModelError(f"the input is {x.type} and the weight {w.type}")
    kernel = tuple(int(d) for d in w.shape[2:])
    groups = node.int("group", 1)
    strides = node.ints("strides", (1,) * rank)
    dilations = node.ints("dilations", (1,) * rank)
    extra = node.ints("output_padding", (0,) * rank)
    if not len(strides) == len(dilations) == len(extra) == rank:
        raise ModelError(f"strides, dilations or output_padding do not fit {rank} axes")
    if min((*strides, *dilations)) < 1 or min(extra) < 0 or groups < 1:
        raise ModelError("strides, dilations and group must be positive")
    begin, end = _transpose_pads(node, x.shape[2:], kernel, strides, dilations, extra)
    spread = x
    if any(s > 1 for s in strides):
        spread = ctx.emit("dilate", [x], strides=(1, 1, *strides))
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    before = [r - p for r, p in zip(reach, begin, strict=True)]
    after = [r - p + e for r, p, e in zip(reach, end, extra, strict=True)]
    for axis in range(rank):  # padding of less than nothing cuts off
        cut = max(0, -before[axis]), max(0, -after[axis])
        if any(cut):
            rest = canonical(as_expr(spread.shape[2 + axis]) - sum(cut))
            spread = ctx.slice(spread, 2 + axis, cut[0], rest)
    out = ctx.emit(
        "conv",
        [spread, _reversed_kernel(ctx, w, groups)],
        strides=(1,) * rank,
        dilations=dilations,
        pads_begin=tuple(max(0, p) for p in before),
        pads_end=tuple(max(0, p) for p in after),
        groups=groups,
        wide=node.optional(2) is not None and is_short(x),
    )
    return ctx.cast(add_per_channel(ctx, out, node.optional(2)), x.dtype)


def _transpose_pads(
    node: OnnxNode,
    sizes: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
) -> tuple[Sequence[int], Sequence[int]]:
    """What is cut off each end: given, or what auto_pad or output_shape ask for."""
    rank = len(kernel)
    mode = one_of(node, "auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    wanted = node.ints("output_shape")[-rank:] if node.has("output_shape") else None
    if wanted is None and not mode.startswith("SAME"):
        pads = node.ints("pads", (0,) * (2 * rank)) if mode == "NOTSET" else (0,) * (2 * rank)
        if len(pads) != 2 * rank or min(pads, default=0) < 0:
            raise ModelError(f"pads {list(pads)} do not fit {rank} axes")
        return pads[:rank], pads[rank:]
    if wanted is not None and len(wanted) != rank:
        raise ModelError(f"output_shape {list(wanted)} does not fit {rank} axes")
    begin, end = [], []
    for axis, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True)):
        full = (as_expr(sizes[axis]) - 1) * s + (extra[axis] + (k - 1) * d + 1)
        target = as_expr(sizes[axis]) * s if wanted is None else as_expr(wanted[axis])
        total = canonical(full - target)
        if not isinstance(total, int):
            raise ModelError("the pads depend on a symbolic dimension", hint=FIX_DIMS)
        half, more = total // 2, total - total // 2
        begin.append(half if mode == "SAME_UPPER" else more)
        end.append(more if mode == "SAME_UPPER" else half)
    return begin, end


def _reversed_kernel(ctx: NodeContext, w: Value, groups: int) -> Value:
    """w[c, o / groups, …] as the weight [o, c / groups, …] of a convolution, reversed in space."""
    c, o, *kernel = (int(d) for d in w.shape)
    if c % groups:
        raise ModelError(f"{c} input channels do not divide into {groups} groups")
    grouped = (groups, c // groups, o, *kernel)
    perm = (0, 2, 1, *range(3, 3 + len(kernel)))
    shape = (groups * o, c // groups, *kernel)
    array = ctx.known_constant(w)
    if array is not None:
        turned = array.reshape(grouped).transpose(perm).reshape(shape)
        spatial = tuple(range(2, 2 + len(kernel)))
        return ctx.constant(np.ascontiguousarray(np.flip(turned, spatial)))
    turned = ctx.reshape(ctx.transpose(ctx.reshape(w, grouped), perm), shape)
    starts = (0, 0, *(k - 1 for k in kernel))
    steps = (1, 1, *[-1] * len(kernel))
    return ctx.emit("slice", [turned], starts=starts, sizes=shape, steps=steps)


# ---------------------------------------------------------------- deformable convolution, Col2Im


def deform_conv(ctx: NodeContext, node: OnnxNode) -> Value:
    """DeformConv (19, 22): windows of elements at offset places, then a matrix product."""
    x, w, offset = (node.input(i) for i in range(3))
    if x.type.rank != 4 or w.type.rank != 4 or not all(isinstance(d, int) for d in w.shape):
        raise ModelError(f"the input is {x.type} and the weight {w.type}: only two axes in space")
    found = window(node, x, [int(d) for d in w.shape[2:]])
    groups, mask = node.int("group", 1), node.optional(4)
    columns = ctx.emit(
        "deform_columns",
        [ctx.widened(v) for v in (x, offset, mask) if v is not None],
        kernel=found.kernel,
        strides=found.strides,
        pads_begin=found.pads_begin,
        dilations=found.dilations,
        offset_groups=node.int("offset_group", 1),
    )
    n, c, *_, oh, ow = columns.shape
    o, per_group = int(w.shape[0]), canonical(as_expr(c) // groups)
    if o % groups or canonical(as_expr(per_group) - w.shape[1]) != 0:
        raise ModelError(f"{groups} groups of the input {x.type} with the weight {w.type}")
    inner = number_of([per_group, *found.kernel])
    right = ctx.reshape(columns, [n, groups, inner, number_of([oh, ow])])
    left = ctx.reshape(ctx.widened(w), [groups, o // groups, inner])
    out = ctx.reshape(ctx.emit("matmul", [left, right]), [n, o, oh, ow])
    return ctx.cast(add_per_channel(ctx, out, node.optional(3)), x.dtype)


def col2im(ctx: NodeContext, node: OnnxNode) -> Value:
    """Col2Im (18)."""
    x = node.input(0)
    shape = ctx.need_ints(node.input(1), "image_shape")
    kernel = ctx.need_ints(node.input(2), "block_shape")
    rank = len(shape)
    strides = node.ints("strides", (1,) * rank)
    dilations = node.ints("dilations", (1,) * rank)
    pads = node.ints("pads", (0,) * (2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ModelError(f"block_shape, strides, dilations or pads do not fit {rank} axes")
    return ctx.emit(
        "fold",
        [x],
        shape=tuple(shape),
        kernel=tuple(kernel),
        strides=strides,
        pads_begin=pads[:rank],
        pads_end=pads[rank:],
        dilations=dilations,
    )


# ---------------------------------------------------------------- Einsum


def einsum(ctx: NodeContext, node: OnnxNode) -> Value:
    """Einsum (12)."""
    values = [node.input(i) for i in range(len(node.inputs))]
    equation = node.string("equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    given = left.split(",")
    if len(given) != len(values):
        raise ModelError(f"the equation {equation!r} is for {len(given)} operands")
    free = [c for c in string.ascii_letters if c not in equation]
    terms = [_spell_out(t, v, free) for t, v in zip(given, values, strict=True)]
    broadcast = _longest([t[1] for t in terms])
    if not arrow:
        letters = "".join(t[0] for t in terms)
        once = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in broadcast)
        result = "..." + "".join(once)
    result = result.replace("...", broadcast)
    if not set(result) <= set(string.ascii_letters):
        raise ModelError(f"the equation {equation!r} is not well formed")
    return ctx.emit("einsum", values, terms=tuple(t[0] for t in terms), result=result)


def _spell_out(term: str, value: Value, free: Sequence[str]) -> tuple[str, str]:
    """A term with letters for its ellipsis, and these letters; they count from the last axis."""
    named = term.replace("...", "")
    hidden = value.type.rank - len(named)
    if not set(named) <= set(string.ascii_letters) or hidden < 0 or ("..." not in term and hidden):
        raise ModelError(f"the term {term!r} does not fit an operand {value.type}")
    letters = "".join(reversed(free[:hidden]))
    return term.replace("...", letters, 1), letters


def _longest(texts: Sequence[str]) -> str:
    return max(texts, key=len)


IMPORTERS: dict[str, Importer] = {
    "Col2Im": col2im,
    "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv,
    "Einsum": einsum,
}
