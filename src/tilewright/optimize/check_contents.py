"""Checks of what a call's arrays hold: indices in range, no integer divided by zero.

    y = gather(x, i)   ->   f = find_fault(i); g = guard(i, f); y = gather(x, g)

The guard hands the indices on, or ends the call with an error that names node, element and value.
Indices that are constants, and right, need none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.evaluate import evaluate_node
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.check import Lookup, lookups
from tilewright.ops.table import op
from tilewright.optimize.edit import fresh_names, rebuild, with_inputs


def check_contents(graph: Graph) -> Graph:
    """Guards before every node that uses elements of an operand as indices or divisors."""
    fresh = fresh_names(graph)
    nodes: list[GraphNode] = []
    for n in graph.nodes:
        guarded: dict[int, Value] = {}
        for operand, found in _by_operand(n).items():
            added = _guard(graph, n, operand, found, fresh)
            if added:
                nodes += added
                guarded[operand] = added[-1].outputs[0]
        nodes.append(with_inputs(n, [guarded.get(i, v) for i, v in enumerate(n.inputs)]))
    return rebuild(graph, nodes)


def _by_operand(n: GraphNode) -> dict[int, list[tuple[int, Lookup]]]:
    """The node's lookups with their numbers, by the operand that they look at."""
    names = [f"x{i}" for i in range(len(n.inputs))]
    found: dict[int, list[tuple[int, Lookup]]] = {}
    for number, lookup in enumerate(lookups(n)):
        if lookup.operand.name in names:
            found.setdefault(names.index(lookup.operand.name), []).append((number, lookup))
    return found


def _guard(
    graph: Graph,
    n: GraphNode,
    operand: int,
    found: Sequence[tuple[int, Lookup]],
    fresh: Callable[[str], str],
) -> list[GraphNode]:
    """The nodes that look for faults in an operand, and the guard; none if it can have no fault."""
    value = n.inputs[operand]
    finders = [_finder(n, value, number, fresh) for number, _ in found]
    if value in graph.constants:
        array = graph.constants[value]
        if all(evaluate_node(f, [array], {})[0][0] < 0 for f in finders):
            return []
    kinds = tuple(lookup.kind for _, lookup in found)
    guard = op("guard")
    attrs = guard.make_attrs(node=n.name, operator=n.op.name, operand=value.name, kinds=kinds)
    faults = [f.outputs[0] for f in finders]
    (of,) = guard.infer(attrs, [value.type, *(f.type for f in faults)])
    result = Value(fresh(f"{value.name}_checked"), of)
    return [*finders, GraphNode(guard, attrs, (value, *faults), (result,), n.name)]


def _finder(n: GraphNode, value: Value, number: int, fresh: Callable[[str], str]) -> GraphNode:
    """The body is the node alone, its values numbered: equal ones are compiled once."""
    inputs = [Value(f"x{i}", v.type) for i, v in enumerate(n.inputs)]
    outputs = tuple(Value(f"y{i}", v.type) for i, v in enumerate(n.outputs))
    node = GraphNode(n.op, n.attrs, tuple(inputs), outputs)
    body = Graph("body", tuple(inputs), outputs, (node,), {})
    find = op("find_fault")
    attrs = find.make_attrs(body=body, lookup=number)
    (of,) = find.infer(attrs, [value.type])
    return GraphNode(find, attrs, (value,), (Value(fresh(f"{value.name}_fault"), of),), n.name)
