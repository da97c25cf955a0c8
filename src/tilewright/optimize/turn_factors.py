"""Factors of sums of products with their columns last, as vectors read them.

    s = einsum(q, k, "bid,bjd->bij")    ->    t = transpose(k); s = einsum(q, t, "bid,bdj->bij")

Transposing a factor takes a pass over it, the product many. Constant factors are packed while
compiling, whatever their order, and a few rows are multiplied by rows as they lie.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.contract import EinsumAttrs
from tilewright.ops.movement import TransposeAttrs
from tilewright.optimize.edit import fixed_values, fresh_names, new_node, rebuild
from tilewright.plan.rows_by_rows import are_few

COLUMNS = 8  # from which they are worth a pass over the factor


def turn_factors(graph: Graph) -> Graph:
    """The graph with a transpose before each factor whose columns are the result's last axis, and
    lie apart."""
    fixed, fresh = fixed_values(graph), fresh_names(graph)
    nodes: list[GraphNode] = []
    for n in graph.nodes:
        turned = _factor_to_turn(n, fixed) if n.op.name == "einsum" else None
        if turned is None:
            nodes.append(n)
            continue
        attrs, value = n.attrs_of(EinsumAttrs), n.inputs[turned]
        term, last = attrs.terms[turned], attrs.result[-1]
        wanted = term.replace(last, "") + last
        perm = TransposeAttrs(tuple(term.index(letter) for letter in wanted))
        nodes.append(new_node(replace(n, outputs=(value,)), "transpose", perm, (value,), fresh))
        inputs, terms = [*n.inputs], [*attrs.terms]
        inputs[turned], terms[turned] = nodes[-1].outputs[0], wanted
        made = replace(attrs, terms=tuple(terms))
        nodes.append(replace(n, attrs=made, inputs=tuple(inputs)))
    return rebuild(graph, nodes)


def _factor_to_turn(n: GraphNode, fixed: set[Value]) -> int | None:
    """Which factor of a sum of products of two tensors is better transposed; None for none."""
    attrs = n.attrs_of(EinsumAttrs)
    known = all(isinstance(d, int) for v in n.inputs for d in v.shape)
    having = [i for i, term in enumerate(attrs.terms) if attrs.result[-1:] in term]
    if len(n.inputs) != 2 or not attrs.result or len(having) != 1 or not known:
        return None
    (own,) = having
    term, other = attrs.terms[own], attrs.terms[1 - own]
    columns = n.inputs[own].shape[term.index(attrs.result[-1])]
    summed = set(term) & set(other) - set(attrs.result)
    is_plain = len(set(term)) == len(term) and n.inputs[own] not in fixed
    if term.endswith(attrs.result[-1]) or not summed or not is_plain or columns < COLUMNS:
        return None
    rows, depth = (
        math.prod(int(n.inputs[1 - own].shape[other.index(c)]) for c in letters)
        for letters in (set(other) & set(attrs.result) - set(term), summed)
    )
    return None if term[-1] in summed and are_few(rows, depth) else own
