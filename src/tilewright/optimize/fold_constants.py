"""Computing while compiling what does not depend on the inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.ir.dims import limits
from tilewright.ir.evaluate import evaluate_program, op_program
from tilewright.ir.expr import Buffer, Dim
from tilewright.ir.graph import Graph, GraphNode, Value, symbols_in
from tilewright.ir.op import Category
from tilewright.ir.tensor import Item, Scan, TensorProgram
from tilewright.optimize.edit import rebuild

SMALL = 1 << 16  # bytes: a result of this size is always worth keeping
GROWTH = 4  # times as many bytes as the model's own constants behind it
WORK = 1 << 28  # index points evaluated for one node; numpy does some 10⁸ a second


def fold_constants(
    graph: Graph, *, small: int = SMALL, growth: int = GROWTH, work: int = WORK
) -> Graph:
    """Nodes that read only constants become constants.

    A node stays when its result would take more than `small` bytes and more than `growth` times
    the constants of the model that it comes from (a scalar expanded to a large tensor: cheap to
    compute, dear to keep), when evaluating it would take too long, when it depends on a symbol,
    and when it is opaque (it may be random, and the host calls it).
    """
    constants = dict(graph.constants)
    sources = {v: frozenset([v]) for v in constants}
    kept: list[GraphNode] = []
    for n in graph.nodes:
        program = _foldable(n, sources, graph.constants, small, growth, work)
        if program is None:
            kept.append(n)
            continue
        with np.errstate(all="ignore"):  # inf and NaN are results like others
            results = evaluate_program(program, [constants[v] for v in dict.fromkeys(n.inputs)])
        behind = frozenset[Value]().union(*(sources[v] for v in n.inputs))
        for value, array in zip(n.outputs, results, strict=True):
            constants[value] = np.ascontiguousarray(array).reshape(array.shape)
            sources[value] = behind
    return rebuild(graph, kept, constants=constants)


def _foldable(
    n: GraphNode,
    sources: Mapping[Value, frozenset[Value]],
    model: Mapping[Value, np.ndarray],
    small: int,
    growth: int,
    work: int,
) -> TensorProgram | None:
    """What to evaluate, if the node can and should be folded."""
    if n.op.category is Category.OPAQUE or any(v not in sources for v in n.inputs):
        return None
    if symbols_in(n.attrs, *(v.type for v in (*n.inputs, *n.outputs))):
        return None
    size = sum(math.prod(v.shape) * v.dtype.bytes for v in n.outputs)
    behind = frozenset[Value]().union(*(sources[v] for v in n.inputs))
    if size > small and size > growth * sum(model[v].nbytes for v in behind):
        return None
    names = {v: Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(dict.fromkeys(n.inputs))}
    program = op_program(n.op, n.attrs, [names[v] for v in n.inputs])
    return program if _points(program.items) <= work else None


def _points(items: Sequence[Item]) -> int:
    """How often the expressions of a program are evaluated; a bound where that is not known."""
    total = 0
    for item in items:
        if isinstance(item, Scan):
            total += _extent(item.step.extent) * _points(item.items)
        else:
            total += math.prod(_extent(a.extent) for a in (*item.axes, *item.reduce))
    return total


def _extent(dim: Dim) -> int:
    high = limits(dim)[1]
    return WORK if high is None else high
