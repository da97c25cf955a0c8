"""Checks of what a call's arrays hold: indices in range, no integer divided by zero.

    y = gather(x, i)   ->   f = find_fault(i); g = guard(i, f); y = gather(x, g)

The guard hands the indices on, or ends the call with an error that names node, element and value.
Indices that are constants, and right, need none. Of an operand that the model has no name for (the
compiler computes it within a node) the error names what the model has it computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.check import Lookup, is_right, lookups
from tilewright.ops.table import op
from tilewright.optimize.edit import fresh_names, rebuild, with_inputs


def check_contents(graph: Graph) -> Graph:
    """Guards before every node that uses elements of an operand as indices or divisors."""
    fresh, makers = fresh_names(graph), graph.producers()
    nodes: list[GraphNode] = []
    for n in graph.nodes:
        guarded: dict[int, Value] = {}
        for operand, found in _by_operand(n).items():
            value = n.inputs[operand]
            array = graph.constants.get(value)
            if array is not None and all(is_right(lookup, array) for _, lookup in found):
                continue
            added = _guard(n, value, found, _names(graph, makers, value), fresh)
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


def _names(
    graph: Graph, makers: Mapping[Value, GraphNode], value: Value
) -> tuple[str, tuple[str, ...]]:
    """What the model calls a value; or "", and the nearest that it is computed from that have names
    in the model. Constants are named only if there is nothing else."""
    found: dict[Value, None] = {}
    seen, pending = {value}, [value]
    while pending:
        one = pending.pop()
        if graph.named is None or one.name in graph.named:
            found[one] = None
        elif one in makers:
            new = [v for v in dict.fromkeys(makers[one].inputs) if v not in seen]
            seen.update(new)
            pending += new[::-1]
    if value in found:
        return value.name, ()
    varying = [v for v in found if v not in graph.constants]
    return "", tuple(v.name for v in varying or found)


def _guard(
    n: GraphNode,
    value: Value,
    found: Sequence[tuple[int, Lookup]],
    names: tuple[str, tuple[str, ...]],
    fresh: Callable[[str], str],
) -> list[GraphNode]:
    """The nodes that look for faults in an operand, and the guard."""
    finders = [_finder(n, value, number, fresh) for number, _ in found]
    kinds = tuple(lookup.kind for _, lookup in found)
    guard = op("guard")
    attrs = guard.make_attrs(
        node=n.name, operator=n.op.name, operand=names[0], kinds=kinds, sources=names[1]
    )
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
