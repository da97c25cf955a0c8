"""Values that are other values under another shape: nothing is computed and nothing is moved."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir.graph import GraphNode, Value


def is_view(n: GraphNode) -> bool:
    """Whether the result can lie where the operand lies: a reshape of row-major elements."""
    return (
        n.op.name == "reshape"
        and n.inputs[0].type.layout is None
        and n.outputs[0].type.layout is None
    )


def roots(nodes: Iterable[GraphNode]) -> dict[Value, Value]:
    """For the result of each view, the value whose memory it shares."""
    found: dict[Value, Value] = {}
    for n in nodes:
        if is_view(n):
            found[n.outputs[0]] = found.get(n.inputs[0], n.inputs[0])
    return found
