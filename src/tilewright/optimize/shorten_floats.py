"""Products of 16-bit floats in the place of f32's, where that is asked for.

    y = matmul(x, w)    ->    y = matmul(cast(x), cast(w), wide)        sums in f32

Weights are constants and are rounded while compiling; the data is rounded where it is made. What
stands between products (normalisation, activations, softmax) stays f32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.base.dtype import DType, f32
from tilewright.base.errors import CompileError
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.contract import ConvAttrs
from tilewright.ops.elementwise import CastAttrs
from tilewright.optimize.edit import fixed_values, fresh_names, new_node, rebuild
from tilewright.plan.units import units
from tilewright.target.target import Target

SUMMED = {"conv": 1, "matmul": -2}  # of the weights' axes


def shorten_floats(graph: Graph, target: Target, dtype: DType) -> Graph:
    """The graph with products of `dtype`; CompileError if the target has no instruction for
    them."""
    depths = {
        u.depth
        for u in units(target)
        if u.left.buffer.dtype == u.right.buffer.dtype == dtype and u.result.buffer.dtype == f32
    }
    if not depths:
        raise CompileError(
            f"{target.name} has no instruction that multiplies {dtype} and sums up in f32",
            hint='leave it to f32: Options(precision="f32")',
        )
    fixed, fresh = fixed_values(graph), fresh_names(graph)
    nodes: list[GraphNode] = []
    replaced: dict[Value, Value] = {}
    short: dict[Value, Value] = {}
    for n in graph.nodes:
        if not _is_shortened(n, fixed, min(depths)):
            nodes.append(n)
            continue
        for v in n.inputs:
            if v not in short:
                nodes.append(new_node(n, "cast", CastAttrs(dtype), (v,), fresh))
                short[v] = nodes[-1].outputs[0]
        attrs: Any = replace(n.attrs, wide=True)  # type: ignore[call-arg]
        nodes.append(new_node(n, n.op.name, attrs, tuple(short[v] for v in n.inputs), fresh))
        replaced[n.outputs[0]] = nodes[-1].outputs[0]
    return rebuild(graph, nodes, replaced=replaced)


def _is_shortened(n: GraphNode, fixed: set[Value], depth: int) -> bool:
    """Whether a node multiplies data by weights that a lane can add up `depth` at a time."""
    if n.op.name not in SUMMED or n.outputs[0].dtype != f32 or n.inputs[0].dtype != f32:
        return False
    if n.op.name == "conv" and n.attrs_of(ConvAttrs).groups > 1:
        return False
    data, weight = n.inputs
    summed = weight.shape[SUMMED[n.op.name]]
    is_whole = isinstance(summed, int) and summed % depth == 0
    return is_whole and weight in fixed and data not in fixed
