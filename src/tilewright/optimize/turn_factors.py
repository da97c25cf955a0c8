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
    lie apart. That factor is the second one, as in a product of matrices."""
    fixed, fresh = fixed_values(graph), fresh_names(graph)
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        n = _with_columns_second(node, fixed) if node.op.name == "einsum" else node
        if n.op.name == "einsum" and _should_turn(n, fixed):
            attrs, (other, value) = n.attrs_of(EinsumAttrs), n.inputs
            term, last = attrs.terms[1], attrs.result[-1]
            wanted = term.replace(last, "") + last
            perm = TransposeAttrs(tuple(term.index(letter) for letter in wanted))
            nodes.append(new_node(replace(n, outputs=(value,)), "transpose", perm, (value,), fresh))
            made = replace(attrs, terms=(attrs.terms[0], wanted))
            n = replace(n, attrs=made, inputs=(other, nodes[-1].outputs[0]))
        nodes.append(n)
    return rebuild(graph, nodes)


def _with_columns_second(n: GraphNode, fixed: set[Value]) -> GraphNode:
    """A sum of products of two tensors that are both computed, of which the second has the
    result's last axis if one alone has it."""
    attrs = n.attrs_of(EinsumAttrs)
    if len(n.inputs) != 2 or not attrs.result or fixed & {*n.inputs}:
        return n
    first, second = (attrs.result[-1] in term for term in attrs.terms)
    if not first or second:
        return n
    return replace(n, attrs=replace(attrs, terms=attrs.terms[::-1]), inputs=n.inputs[::-1])


def _should_turn(n: GraphNode, fixed: set[Value]) -> bool:
    """Whether the second factor of a sum of products is better transposed."""
    attrs = n.attrs_of(EinsumAttrs)
    known = all(isinstance(d, int) for v in n.inputs for d in v.shape)
    if len(n.inputs) != 2 or not attrs.result or not known or n.inputs[1] in fixed:
        return False
    last, (other, term) = attrs.result[-1], attrs.terms
    if last not in term or last in other or term.endswith(last) or len(set(term)) < len(term):
        return False
    summed = set(term) & set(other) - set(attrs.result)
    columns = n.inputs[1].shape[term.index(last)]
    rows, depth = (
        math.prod(int(n.inputs[0].shape[other.index(c)]) for c in letters)
        for letters in (set(other) & set(attrs.result) - set(term), summed)
    )
    by_rows = term[-1] in summed and are_few(rows, depth)
    return bool(summed) and int(columns) >= COLUMNS and not by_rows
