"""Leaving out what no output needs."""

from __future__ import annotations

from tilewright.ir.graph import Graph, GraphNode
from tilewright.optimize.edit import rebuild


def remove_dead(graph: Graph) -> Graph:
    """Without the nodes and constants that no output depends on. Inputs stay: they are the
    model's signature."""
    needed = set(graph.outputs)
    kept: list[GraphNode] = []
    for n in reversed(graph.nodes):
        if any(v in needed for v in n.outputs):
            needed.update(n.inputs)
            kept.append(n)
    return rebuild(graph, kept[::-1])
