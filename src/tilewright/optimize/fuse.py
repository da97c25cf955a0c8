"""Putting nodes that run as one kernel into one `call` node.

    v = conv(x, w); v1 = add(v, b); y = relu(v1)    ->    y = call(x, w, b, body=…)

Afterwards every node is a call, opaque, or a view (a reshape that moves nothing).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.function import CALL, CallAttrs
from tilewright.optimize.edit import rebuild
from tilewright.optimize.group_nodes import Group, becomes_kernel, choose_groups

SHOWN = 3  # names of nodes in a call's name


def fuse(graph: Graph, apart: Collection[str] = ()) -> Graph:
    """Every group of nodes as one call; operators on integers that are named in `apart` are calls
    of their own."""
    consumers, outputs = graph.consumers(), set(graph.outputs)
    calls: dict[GraphNode, GraphNode] = {}
    for group in choose_groups(graph, apart):
        inside = set(group.nodes)
        leaving = [
            v
            for v in group.exit.outputs
            if v in outputs or any(c not in inside for c in consumers.get(v, ()))
        ]
        calls[group.exit] = make_call(graph, group, tuple(leaving or group.exit.outputs[:1]))
    nodes = [calls.get(n, n) for n in graph.nodes if n in calls or not becomes_kernel(n)]
    return rebuild(graph, nodes)


def make_call(graph: Graph, group: Group, outputs: tuple[Value, ...]) -> GraphNode:
    """The call that computes `outputs`, which leave the group.

    The body depends on the group's structure alone: its nodes stand in the order in which the
    outputs need them, operand by operand, and its values are numbered. Groups of one structure
    have equal bodies, and are compiled once.
    """
    order = _needed_order(group)
    renamed: dict[Value, Value] = {}
    operands: list[Value] = []
    constants: dict[Value, np.ndarray] = {}
    nodes = []
    for n in order:
        for v in n.inputs:
            if v in renamed:
                continue
            array = graph.constants.get(v)
            if array is not None and array.size == 1:
                renamed[v] = Value(f"c{len(constants)}", v.type)
                constants[renamed[v]] = array
            else:
                renamed[v] = Value(f"x{len(operands)}", v.type)
                operands.append(v)
        for v in n.outputs:
            renamed[v] = Value(f"v{len(renamed) - len(operands) - len(constants)}", v.type)
        inputs, results = (tuple(renamed[v] for v in vs) for vs in (n.inputs, n.outputs))
        nodes.append(GraphNode(n.op, n.attrs, inputs, results))
    body = Graph(
        "body",
        tuple(renamed[v] for v in operands),
        tuple(renamed[v] for v in outputs),
        tuple(nodes),
        constants,
    )
    # A node may have become several, which keep its name.
    origins = tuple(dict.fromkeys(n.name or n.op.name for n in group.nodes))
    return GraphNode(
        CALL,
        CallAttrs(body, origins),
        tuple(operands),
        outputs,
        short_name(origins),
        group.exit.device,
    )


def _needed_order(group: Group) -> list[GraphNode]:
    """The group's nodes, each after those that make its operands, first operand first."""
    makers = {v: n for n in group.nodes for v in n.outputs}
    order: dict[GraphNode, None] = {}
    stack = [group.exit]
    while stack:
        n = stack[-1]
        missing = [m for v in n.inputs if (m := makers.get(v)) is not None and m not in order]
        if missing:
            stack.append(missing[0])
        else:
            order[stack.pop()] = None
    return list(order)


def short_name(origins: tuple[str, ...]) -> str:
    """What a call is called: its nodes' names, the folders they share with the first left out,
    and of many only the ends."""
    first, *rest = origins
    folder = first.rpartition("/")[0]
    inner = [name.removeprefix(f"{folder}/") if folder else name for name in rest]
    if len(inner) < SHOWN:
        return "+".join([first, *inner])
    return "+".join([first, *inner[: SHOWN - 2], "…", inner[-1]])
