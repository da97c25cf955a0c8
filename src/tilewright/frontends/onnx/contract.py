"""ONNX's less usual contractions: deformable convolution, Col2Im, Einsum."""

from __future__ import annotations

import string
from collections.abc import Sequence

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import Importer, NodeContext, number_of
from tilewright.frontends.onnx.conv_transpose import conv_transpose
from tilewright.frontends.onnx.neural import add_per_channel, window
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import as_expr
from tilewright.ir.graph import Value

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
