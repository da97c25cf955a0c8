"""ONNX's reshapes: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, DepthToSpace and back."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import (
    Importer,
    NodeContext,
    axis_of,
    cut_of,
    number_of,
    one_of,
)
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical, divide_exactly
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value

# ---------------------------------------------------------------- reshapes


def reshape(ctx: NodeContext, node: OnnxNode) -> Value:
    """Reshape (5, 14: allowzero): 0 copies a dimension, -1 is what is left."""
    x = node.input(0)
    wanted = ctx.need_dims(node.input(1), "the shape")
    if node.input(1).type.rank != 1:
        raise ModelError(f"the shape has {node.input(1).type.rank} dimensions, not one")
    copies = not node.flag("allowzero")
    dims: list[Dim] = []
    for axis, dim in enumerate(wanted):
        if dim == 0 and copies:
            if axis >= x.type.rank:
                raise ModelError(f"the shape {wanted} copies dimension {axis}, which is not there")
            dim = x.shape[axis]
        dims.append(dim)
    unknown = [axis for axis, dim in enumerate(dims) if dim == -1]
    if len(unknown) > 1:
        raise ModelError(f"the shape {wanted} has two dimensions of -1")
    if unknown:
        rest = number_of([d for d in dims if d != -1])
        dims[unknown[0]] = _quotient(number_of(x.shape), rest, wanted)
    return ctx.reshape(x, dims)


def _quotient(total: Dim, rest: Dim, wanted: Sequence[Dim]) -> Dim:
    if rest == 0:
        raise ModelError(f"the dimension of -1 in {wanted} could be anything")
    exact = divide_exactly(total, rest)
    if exact is not None:
        return exact
    if isinstance(total, int) and isinstance(rest, int):
        raise ModelError(f"{total} elements do not divide into the shape {wanted}")
    return canonical(as_expr(total) // rest)


def flatten(ctx: NodeContext, node: OnnxNode) -> Value:
    """Flatten (1, 11: negative axes)."""
    x = node.input(0)
    axis = cut_of(node.int("axis", 1), x.type.rank)
    return ctx.reshape(x, [number_of(x.shape[:axis]), number_of(x.shape[axis:])])


def squeeze(ctx: NodeContext, node: OnnxNode) -> Value:
    """Squeeze (1: attribute, 13: input)."""
    x = node.input(0)
    axes = ctx.ints(node, "axes", 1, 13)
    if axes is None:
        axes = tuple(a for a, d in enumerate(x.shape) if d == 1)
    axes = tuple(axis_of(a, x.type.rank) for a in axes)
    for axis in axes:
        if x.shape[axis] != 1:
            raise ModelError(f"axis {axis} has extent {x.shape[axis]}, not 1")
    return ctx.reshape(x, [d for a, d in enumerate(x.shape) if a not in axes])


def unsqueeze(ctx: NodeContext, node: OnnxNode) -> Value:
    """Unsqueeze (1: attribute, 13: input)."""
    x = node.input(0)
    axes = ctx.ints(node, "axes", 1, 13)
    if axes is None:
        raise ModelError("axes are missing")
    rank = x.type.rank + len(axes)
    places = {axis_of(a, rank) for a in axes}
    if len(places) != len(axes):
        raise ModelError(f"axes {list(axes)} name one axis twice")
    rest = iter(x.shape)
    return ctx.reshape(x, [1 if a in places else next(rest) for a in range(rank)])


def transpose(ctx: NodeContext, node: OnnxNode) -> Value:
    x = node.input(0)
    perm = node.ints("perm", tuple(reversed(range(x.type.rank))))
    return ctx.emit("transpose", [x], perm=perm)


def depth_to_space(ctx: NodeContext, node: OnnxNode) -> Value:
    """DepthToSpace (1, 11: mode)."""
    x, block = node.input(0), node.int("blocksize")
    if x.type.rank != 4 or block < 1:
        raise ModelError(f"the input is {x.type} and the block size {block}")
    n, c, h, w = x.shape
    depth = canonical(as_expr(c) // (block * block))
    mode = one_of(node, "mode", "DCR", ("DCR", "CRD"))
    if mode == "DCR":
        x, perm = ctx.reshape(x, [n, block, block, depth, h, w]), (0, 3, 4, 1, 5, 2)
    else:
        x, perm = ctx.reshape(x, [n, depth, block, block, h, w]), (0, 1, 4, 2, 5, 3)
    x = ctx.transpose(x, perm)
    return ctx.reshape(x, [n, depth, as_expr(h) * block, as_expr(w) * block])


def space_to_depth(ctx: NodeContext, node: OnnxNode) -> Value:
    """SpaceToDepth (1, 28: mode)."""
    x, block = node.input(0), node.int("blocksize")
    if x.type.rank != 4 or block < 1:
        raise ModelError(f"the input is {x.type} and the block size {block}")
    n, c, h, w = x.shape
    rows, columns = canonical(as_expr(h) // block), canonical(as_expr(w) // block)
    x = ctx.reshape(x, [n, c, rows, block, columns, block])
    crd = one_of(node, "mode", "DCR", ("DCR", "CRD")) == "CRD"
    x = ctx.transpose(x, (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4))
    return ctx.reshape(x, [n, as_expr(c) * (block * block), rows, columns])


# ---------------------------------------------------------------- slices


# ---------------------------------------------------------------- concatenation, padding


IMPORTERS: dict[str, Importer] = {
    "DepthToSpace": depth_to_space,
    "Flatten": flatten,
    "Reshape": reshape,
    "SpaceToDepth": space_to_depth,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
