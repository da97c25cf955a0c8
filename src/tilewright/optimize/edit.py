"""Rebuilding graphs, leaving out what nobody needs, values that are others under another shape:
what the passes of this package share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs, Category
from tilewright.ops.table import op as op_named

Replaced = Mapping[Value, Value]


def resolve(value: Value, replaced: Replaced) -> Value:
    """What stands for `value` after all replacements."""
    while value in replaced:
        value = replaced[value]
    return value


def with_inputs(n: GraphNode, inputs: Sequence[Value]) -> GraphNode:
    """The node with other operands; itself when they are the same."""
    same = len(inputs) == len(n.inputs) and all(
        a is b for a, b in zip(inputs, n.inputs, strict=True)
    )
    return n if same else replace(n, inputs=tuple(inputs))


def rebuild(
    graph: Graph,
    nodes: Sequence[GraphNode],
    *,
    replaced: Replaced | None = None,
    constants: Mapping[Value, np.ndarray] | None = None,
) -> Graph:
    """The graph with these nodes and constants. Uses of replaced values become uses of what
    replaces them; constants that nobody reads are dropped. The same graph when nothing changed.

    An output may be replaced too: `Graph.outputs` keeps its order, and its values need not keep
    their names.
    """
    replaced = replaced or {}
    known = graph.constants if constants is None else constants
    new = tuple(with_inputs(n, [resolve(v, replaced) for v in n.inputs]) for n in nodes)
    outputs = tuple(resolve(v, replaced) for v in graph.outputs)
    read = {v for n in new for v in n.inputs} | set(outputs)
    kept = {v: array for v, array in known.items() if v in read}
    same = (
        len(new) == len(graph.nodes)
        and all(a is b for a, b in zip(new, graph.nodes, strict=True))
        and all(a is b for a, b in zip(outputs, graph.outputs, strict=True))
        and kept.keys() == graph.constants.keys()
    )
    return graph if same else graph.with_(nodes=new, outputs=outputs, constants=kept)


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


def fixed_values(graph: Graph) -> set[Value]:
    """What depends on constants alone, and on no call to the host."""
    found = set(graph.constants)
    for n in graph.nodes:
        if n.op.category is not Category.OPAQUE and found.issuperset(n.inputs):
            found.update(n.outputs)
    return found


def fresh_names(graph: Graph) -> Callable[[str], str]:
    """A function that turns a wish into a name that no value of the graph has."""
    taken = {v.name for v in (*graph.inputs, *graph.constants)}
    taken |= {v.name for n in graph.nodes for v in n.outputs}

    def fresh(name: str) -> str:
        unique, count = name, 1
        while unique in taken:
            unique, count = f"{name}_{count}", count + 1
        taken.add(unique)
        return unique

    return fresh


def new_node(
    like: GraphNode, name: str, attrs: Attrs, inputs: tuple[Value, ...], fresh: Callable[[str], str]
) -> GraphNode:
    """An operator on these operands, whose result's type follows from theirs; the model's name and
    the device are those of `like`, after whose result it is called."""
    operator = op_named(name)
    (type_,) = operator.infer(attrs, [v.type for v in inputs])
    out = Value(fresh(like.outputs[0].name), type_)
    return replace(like, op=operator, attrs=attrs, inputs=inputs, outputs=(out,))


# ---------------------------------------------------------------- views


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
