"""Reshapes out of the way of fusion.

    x = matmul(…); r = reshape(x); y = add(r, z)  ->  x = matmul(…); y' = add(x, reshape(z));
                                                      y = reshape(y')

A reshape of rows moves nothing, so it costs the same anywhere; but between a contraction and the
arithmetic behind it, it keeps the two from being one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, product
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Category
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.movement import ReshapeAttrs
from tilewright.ops.table import op as op_named
from tilewright.optimize.edit import fresh_names, is_view, rebuild

Shape = tuple[Dim, ...]
ANCHORS = (Category.COMPLEX, Category.REDUCTION)


def move_reshapes(graph: Graph) -> Graph:
    """Moves reshapes of what an anchor (a contraction or reduction) makes behind the elementwise
    nodes that read them, where all nodes that read the reshape are such."""
    mover = _Mover(graph)
    for n in graph.nodes:
        mover.visit(n)
    if not mover.moved:
        return graph
    needed = {v for n in mover.nodes for v in n.inputs} | set(graph.outputs)
    nodes = [n for n in mover.nodes if not is_view(n) or n.outputs[0] in needed]
    return rebuild(graph, nodes)


@dataclass
class _Mover:
    graph: Graph
    nodes: list[GraphNode] = field(default_factory=list)
    behind: set[Value] = field(default_factory=set)  # made by an anchor, and arithmetic behind it
    source: dict[Value, Value] = field(default_factory=dict)  # results of reshapes to operands
    moved: bool = False

    def __post_init__(self) -> None:
        self.consumers = self.graph.consumers()
        self.outputs = set(self.graph.outputs)
        self.fresh = fresh_names(self.graph)

    def visit(self, n: GraphNode) -> None:
        inner = self._inner(n)
        if inner is not None:
            self._move(n, inner)
            return
        self.nodes.append(n)
        if is_view(n):
            self.source[n.outputs[0]] = n.inputs[0]
        elif n.op.category in ANCHORS or self._is_arithmetic_behind(n):
            self.behind.update(n.outputs)

    def _is_arithmetic_behind(self, n: GraphNode) -> bool:
        return _is_plain_elementwise(n) and bool(self.behind.intersection(n.inputs))

    def _inner(self, n: GraphNode) -> Value | None:
        """The operand of a reshape that can be moved behind `n`."""
        if not _is_plain_elementwise(n) or self._is_arithmetic_behind(n):
            return None  # with an operand behind an anchor it can be one kernel as it is
        for v in n.inputs:
            x = self.source.get(v)
            if x is not None and x in self.behind and x.shape != v.shape and self._is_free(v):
                return x
        return None

    def _is_free(self, value: Value) -> bool:
        """Whether all readers of a reshape can read its operand instead."""
        x = self.source[value]
        readers = self.consumers.get(value, [])
        return value not in self.outputs and all(
            _is_plain_elementwise(c)
            and c.outputs[0].shape == value.shape
            and all(self._fits(v, value.shape, x.shape) for v in c.inputs)
            for c in readers
        )

    def _fits(self, value: Value, old: Shape, new: Shape) -> bool:
        """Whether an operand of shape-`old` arithmetic can be had for shape `new`."""
        if value.type.layout is not None:
            return False
        if value.shape == old or _same_either_way(value.shape, old, new):
            return True
        return _broadcast_shape(value.shape, old, new) is not None

    def _move(self, n: GraphNode, x: Value) -> None:
        """Emits `n` in the shape of x, and a reshape to the shape it had."""
        (result,) = n.outputs
        inputs = tuple(self._operand(v, result.shape, x.shape, n) for v in n.inputs)
        inner = Value(self.fresh(result.name), result.type.with_(shape=x.shape))
        self.nodes.append(replace(n, inputs=inputs, outputs=(inner,)))
        self._reshape(inner, result, n)
        self.behind.add(inner)
        self.moved = True

    def _operand(self, value: Value, old: Shape, new: Shape, n: GraphNode) -> Value:
        if value.shape == old and old != new:
            x = self.source.get(value)
            if x is not None and x.shape == new:
                return x
            made = Value(self.fresh(value.name), TensorType(value.dtype, new))
            self._reshape(value, made, n)
            return made
        shape: Shape | None = ()
        if any(d != 1 for d in value.shape) or len(value.shape) <= len(new):
            if old == new or _same_either_way(value.shape, old, new):
                return value
            shape = _broadcast_shape(value.shape, old, new)
        assert shape is not None
        made = Value(self.fresh(value.name), TensorType(value.dtype, shape))
        self._reshape(value, made, n)
        return made

    def _reshape(self, x: Value, result: Value, n: GraphNode) -> None:
        attrs = ReshapeAttrs(result.shape)
        self.nodes.append(GraphNode(op_named("reshape"), attrs, (x,), (result,), n.name, n.device))
        self.source[result] = x


def _is_plain_elementwise(n: GraphNode) -> bool:
    return (
        n.op.elementwise
        and n.op.category is Category.INJECTIVE
        and n.op.name not in ("expand", "relayout")
        and n.outputs[0].type.layout is None
    )


def _same_either_way(shape: Shape, old: Shape, new: Shape) -> bool:
    """Whether a smaller operand is read alike in both shapes: it is one element, or the axes along
    which it varies are axes of both, with as many elements behind them."""
    if all(d == 1 for d in shape):
        return True
    behind = [-i for i, d in enumerate(reversed(shape)) if d != 1]  # elements of the tails
    return len(shape) <= min(len(old), len(new)) and all(
        canonical(old[i - 1]) == canonical(new[i - 1])
        and canonical(product(old[len(old) + i :])) == canonical(product(new[len(new) + i :]))
        for i in behind
    )


def _broadcast_shape(shape: Shape, old: Shape, new: Shape) -> Shape | None:
    """The shape in which a smaller operand of shape-`old` arithmetic is read alike in shape-`new`
    arithmetic; None where an axis that is split or merged has a part of its elements."""
    groups = _axes_alike(old, new)
    if groups is None:
        return None
    padded = (1,) * (len(old) - len(shape)) + shape
    found: list[Dim] = []
    for of_old, of_new in groups:
        own = padded[of_old]
        if any(d != 1 for d in own) and own != old[of_old]:
            return None
        found += [1] * len(new[of_new]) if all(d == 1 for d in own) else new[of_new]
    return tuple(found)


def _elements(shape: Shape) -> Dim:
    return canonical(product(shape))


def _axes_alike(old: Shape, new: Shape) -> list[tuple[slice, slice]] | None:
    """The axes of two shapes, cut into as many groups as there are with the same elements each, the
    first ones first; None where that cannot be known."""
    found: list[tuple[slice, slice]] = []
    i, j = len(old), len(new)
    while i or j:
        of_old, of_new = slice(max(i - 1, 0), i), slice(max(j - 1, 0), j)
        i, j = of_old.start, of_new.start
        while (a := _elements(old[of_old])) != (b := _elements(new[of_new])):
            if not isinstance(a, int) or not isinstance(b, int) or not (i if a < b else j):
                return None
            i, j = (i - 1, j) if a < b else (i, j - 1)
            of_old, of_new = slice(i, of_old.stop), slice(j, of_new.stop)
        found.append((of_old, of_new))
    return found[::-1]
