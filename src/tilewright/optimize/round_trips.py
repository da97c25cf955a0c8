"""Conversions within a kernel that change nothing: to smaller integers and back, of numbers that
are known to fit.

    s = max(min(x, 127), -128); y = cast(cast(s, i8), i32)    ->    y = s
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.function import scalar_value
from tilewright.optimize.edit import rebuild, remove_dead

LIMITS = {"min": min, "max": max}


def without_round_trips(body: Graph) -> Graph:
    """The body of a call without such conversions. Between kernels they stay: small elements are
    what a kernel should leave in memory."""
    makers = body.producers()
    replaced: dict[Value, Value] = {}
    for n in body.nodes:
        inner = makers.get(n.inputs[0]) if n.op.name == "cast" else None
        if inner is None or inner.op.name != "cast":
            continue
        x, small, wide = inner.inputs[0], n.inputs[0].dtype, n.outputs[0].dtype
        if wide == x.dtype and small.is_integer and wide.is_integer:
            low, high = _range(x, body, makers)
            if small.min <= low and high <= small.max:
                replaced[n.outputs[0]] = x
    return remove_dead(rebuild(body, body.nodes, replaced=replaced)) if replaced else body


def _range(x: Value, body: Graph, makers: Mapping[Value, GraphNode]) -> tuple[float, float]:
    """Between which numbers all elements are, as far as limits say."""
    n = makers.get(x)
    if n is not None and n.op.name in LIMITS:
        for limit, other in (n.inputs, n.inputs[::-1]):
            array = body.constants.get(limit)
            if array is not None and array.size == 1:
                number = scalar_value(array, x.dtype)
                low, high = _range(other, body, makers)
                return LIMITS[n.op.name](low, number), LIMITS[n.op.name](high, number)
    return x.dtype.min, x.dtype.max
