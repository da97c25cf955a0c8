"""Multiplications and additions after a convolution or matmul, moved into its weights.

    conv(x, w) * s + t    ->    conv(x, w * s) + t        s, t constant for each output channel

A batch normalisation is such a chain. This reassociates constants: results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import NoAttrs
from tilewright.ops.table import op as op_named
from tilewright.optimize.edit import fresh_names, rebuild, with_inputs

Array = np.ndarray
Finish = tuple[Array, Array]  # y = x * scale + shift, for each output channel, in f64


@dataclass(frozen=True)
class Anchor:
    """Where an operator keeps its output channels: the operand that holds its weights, the axis of
    the weights, and the axis of the result."""

    weight: int
    weight_axis: int
    output_axis: int


ANCHORS: dict[str, Anchor] = {"conv": Anchor(1, 0, 1), "matmul": Anchor(1, -1, -1)}

# What a node with a constant operand c does to y = x * scale + shift; None: it does not fit.
# `left` says that y is the first operand.
STEPS: dict[str, Callable[[Array, Array, Array, bool], Finish | None]] = {
    "add": lambda s, t, c, left: (s, t + c),
    "sub": lambda s, t, c, left: (s, t - c) if left else (-s, c - t),
    "mul": lambda s, t, c, left: (s * c, t * c),
    "div": lambda s, t, c, left: (s / c, t / c) if left else None,
}


def fold_scales(graph: Graph) -> Graph:
    """Chains of per-channel add, sub, mul and div by constants after conv and matmul become new
    weights and at most one addition. Weights that others read too are not scaled, only such
    chains' additions joined: copies of the weights would cost more than they save."""
    consumers, outputs = graph.consumers(), set(graph.outputs)
    constants, fresh = dict(graph.constants), fresh_names(graph)
    new: dict[GraphNode, tuple[GraphNode, ...]] = {}  # what stands in a node's place
    for n in graph.nodes:
        anchor = ANCHORS.get(n.op.name)
        if anchor is None or not n.outputs[0].dtype.is_float:
            continue
        weight = n.inputs[anchor.weight]
        may_scale = weight in constants and len(consumers[weight]) == 1
        chain, scale, shift = follow(n, anchor, graph, consumers, outputs)
        while chain and not (may_scale or _is_one(scale)):
            chain, scale, shift = follow(n, anchor, graph, consumers, outputs, len(chain) - 1)
        scaled = None if _is_one(scale) else _scale(constants.get(weight), anchor, scale)
        saves = len(chain) > 1 or (chain and not _is_one(scale))
        if not saves or (scaled is None and not _is_one(scale)):
            continue
        folded = _build(n, anchor, chain, scaled, shift, constants, fresh)
        if folded is not None:
            new |= dict.fromkeys(chain, ()) | {n: (), chain[-1]: folded}
    nodes = [m for n in graph.nodes for m in new.get(n, (n,))]
    return rebuild(graph, nodes, constants=constants)


def follow(
    n: GraphNode,
    anchor: Anchor,
    graph: Graph,
    consumers: dict[Value, list[GraphNode]],
    outputs: set[Value],
    most: int | None = None,
) -> tuple[list[GraphNode], Array, Array]:
    """The chain of nodes behind `n` (at most so many) and what they come to."""
    value = n.outputs[0]
    chain: list[GraphNode] = []
    channels = value.shape[anchor.output_axis]
    width = channels if isinstance(channels, int) else 1
    scale, shift = np.ones(width), np.zeros(width)
    while value not in outputs and len(consumers.get(value, ())) == 1 and len(chain) != most:
        (user,) = consumers[value]
        step = _step(user, value, anchor, graph, scale, shift)
        if step is None:
            break
        scale, shift = step
        chain.append(user)
        value = user.outputs[0]
    return chain, scale, shift


def _step(
    user: GraphNode, value: Value, anchor: Anchor, graph: Graph, scale: Array, shift: Array
) -> Finish | None:
    """Scale and shift with one more node, if it fits."""
    if user.op.name not in STEPS or user.outputs[0].type != value.type:
        return None
    left = user.inputs[0] is value
    other = user.inputs[1 if left else 0]
    array = graph.constants.get(other)
    if array is None or user.inputs[0] is user.inputs[1]:
        return None
    flat = _per_channel(array, value.type, anchor.output_axis, len(scale))
    if flat is None:
        return None
    with np.errstate(all="ignore"):
        step = STEPS[user.op.name](scale, shift, flat, left)
    if step is None or not all(np.isfinite(a).all() for a in step):
        return None
    return step


def _per_channel(array: Array, type_: TensorType, axis: int, width: int) -> Array | None:
    """The constant as one number for each channel, if it varies along nothing else."""
    if array.ndim > type_.rank:
        return None
    shape = (1,) * (type_.rank - array.ndim) + array.shape
    axis %= type_.rank
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, width):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (width,))


def _is_one(scale: Array) -> bool:
    return bool((scale == 1).all())


def _scale(weights: Array | None, anchor: Anchor, scale: Array) -> Array | None:
    """The scaled weights; None if they overflow."""
    assert weights is not None
    axis = anchor.weight_axis % weights.ndim
    factors = scale.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
    with np.errstate(all="ignore"):
        scaled = (weights.astype(np.float64) * factors).astype(weights.dtype)
    fits = np.isfinite(scaled.astype(np.float64)) | ~np.isfinite(weights.astype(np.float64))
    return scaled if bool(fits.all()) else None


def _build(
    n: GraphNode,
    anchor: Anchor,
    chain: list[GraphNode],
    scaled: Array | None,
    shift: Array,
    constants: dict[Value, Array],
    fresh: Callable[[str], str],
) -> tuple[GraphNode, ...] | None:
    """The anchor with its new weights, and the addition; None if the shift overflows."""
    last = chain[-1].outputs[0]
    with np.errstate(all="ignore"):
        bias = shift.astype(last.dtype.numpy)
    if not np.isfinite(bias.astype(np.float64)).all():
        return None
    inputs = list(n.inputs)
    if scaled is not None:
        weight = inputs[anchor.weight]
        inputs[anchor.weight] = Value(fresh(weight.name), weight.type)
        constants[inputs[anchor.weight]] = scaled
    if not shift.any():
        return (replace(n, inputs=tuple(inputs), outputs=(last,)),)
    behind = last.type.rank - 1 - anchor.output_axis % last.type.rank
    array = bias.reshape([-1] + [1] * behind)
    shape = TensorType(last.dtype, array.shape)
    value = Value(fresh(f"{last.name}_shift"), shape)
    constants[value] = array
    add = replace(chain[-1], op=op_named("add"), attrs=NoAttrs(), inputs=(n.outputs[0], value))
    return with_inputs(n, inputs), add
