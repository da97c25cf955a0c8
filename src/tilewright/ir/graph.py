"""The model: a dataflow graph of operators over typed values.

A graph is immutable and in single assignment: every value is an input, a constant, or an output
of exactly one node, and nodes stand in an order in which values are defined before they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from tilewright.base.dtype import DType, from_numpy
from tilewright.base.identifiers import format_number, identifier, quote
from tilewright.base.node import Node
from tilewright.ir.expr import Dim, Symbol
from tilewright.ir.loop import INDENT, format_symbols
from tilewright.ir.op import Attrs, Op
from tilewright.ir.tensor_type import TensorType

A = TypeVar("A", bound=Attrs)


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """One tensor of the graph. Identity is the object; names are for people and text."""

    name: str
    type: TensorType

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


@dataclass(frozen=True, eq=False, slots=True)
class GraphNode:
    """One operator applied. `name` is the model's name for it; `device` is set by placement."""

    op: Op
    attrs: Attrs
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str = ""
    device: str = ""

    def attrs_of(self, kind: type[A]) -> A:
        """The attributes, where the operator is known: they are of this class."""
        assert isinstance(self.attrs, kind), self
        return self.attrs

    def __repr__(self) -> str:
        return format_node(self)


@dataclass(frozen=True, eq=False)
class Graph:
    """`constants` gives the values known while compiling; all other values are inputs or outputs
    of nodes. `source` says in messages where the nodes are from, such as "opset 17"; `named` has
    the values' names that are the model's own (None: all are). The text form leaves both out."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[GraphNode, ...]
    constants: Mapping[Value, np.ndarray]
    source: str = ""
    named: frozenset[str] | None = None

    def __str__(self) -> str:
        return format_graph(self)

    def with_(self, **changes: Any) -> Graph:
        return replace(self, **changes)

    def producers(self) -> dict[Value, GraphNode]:
        return {v: n for n in self.nodes for v in n.outputs}

    def consumers(self) -> dict[Value, list[GraphNode]]:
        """The nodes that read each value, in order; a node that reads it twice stands once."""
        out: dict[Value, list[GraphNode]] = {}
        for n in self.nodes:
            for v in dict.fromkeys(n.inputs):
                out.setdefault(v, []).append(n)
        return out

    def symbols(self) -> tuple[Symbol, ...]:
        """The symbolic dimensions of inputs, by name."""
        return tuple(symbols_in(*(v.type for v in self.inputs)))


# ---------------------------------------------------------------- printing


INLINE = 8  # elements of the largest constant that stands in the text


def format_graph(graph: Graph) -> str:
    """Prints Python syntax, which ir/text/graph.py parses back. Constants of more than INLINE
    elements are named only: `large_constants` has them."""
    head, *body = _format_body(graph)
    return "\n".join([head, *format_symbols(symbols_in(graph)), *body])


def _format_body(graph: Graph, name: str | None = None) -> list[str]:
    """The graph's lines without those that declare symbols; graphs within come before the node
    that has them."""
    inputs = ", ".join(f"{identifier(v.name)}: {v.type}" for v in graph.inputs)
    lines = [_format_constant(value, array) for value, array in graph.constants.items()]
    for n in graph.nodes:
        for text, inner in _inner_graphs(n).values():
            lines += _format_body(inner, text)
        lines.append(format_node(n))
    lines.append(f"return {', '.join(identifier(v.name) for v in graph.outputs)}".rstrip())
    head = f"def {name or identifier(graph.name)}({inputs}):"
    return [head, *(INDENT + line for line in lines)]


def _inner_graphs(n: GraphNode) -> dict[str, tuple[str, Graph]]:
    """For each attribute that is a graph, the graph and what the text calls it."""
    found: dict[str, tuple[str, Graph]] = {}
    for key, value in n.attrs.items():
        if isinstance(value, Graph):
            text = identifier(value.name)
            while any(text == other for other, _ in found.values()):
                text += "_x_"  # the empty escape: another text for the same name
            found[key] = (text, value)
    return found


def format_node(n: GraphNode) -> str:
    """One line: outputs with types, operator, operands, attributes that are not defaults."""
    inner = _inner_graphs(n)
    args = [identifier(v.name) for v in n.inputs]
    for f in fields(n.attrs):
        text = inner[f.name][0] if f.name in inner else format_attr(getattr(n.attrs, f.name))
        if f.default is MISSING or text != format_attr(f.default):
            args.append(f"{f.name}={text}")
    if len(n.outputs) == 1:
        target = f"{identifier(n.outputs[0].name)}: {n.outputs[0].type}"
    else:
        target = ", ".join(identifier(v.name) for v in n.outputs)
        args.append(f"types=({', '.join(str(v.type) for v in n.outputs)})")
    args += [f"{k}={quote(v)}" for k, v in (("name", n.name), ("device", n.device)) if v]
    return f"{target} = {identifier(n.op.name)}({', '.join(args)})"


def format_attr(value: object) -> str:
    """An attribute's value; ir/text/graph.py reads it back."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, tuple):
        inner = ", ".join(map(format_attr, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, np.ndarray):
        shape = f", {format_attr(value.shape)}" if value.size == 0 else ""
        dtype = from_numpy(value.dtype)
        return f"array({_format_elements(value.tolist(), dtype)}, {dtype}{shape})"
    return repr(value)


def _format_constant(value: Value, array: np.ndarray) -> str:
    small = array.size <= INLINE
    elements = _format_elements(array.tolist(), value.dtype) if small else ""
    return f"{identifier(value.name)}: {value.type} = constant({elements})"


def _format_elements(elements: object, dtype: DType) -> str:
    if isinstance(elements, list):
        return f"[{', '.join(_format_elements(e, dtype) for e in elements)}]"
    return format_number(elements, dtype)


def large_constants(graph: Graph, prefix: str = "") -> dict[str, np.ndarray]:
    """The constants that the graph's text only names, by name; those of a graph in attribute `a`
    of the node that makes `y` are called `y.a.name`."""
    found = {prefix + v.name: a for v, a in graph.constants.items() if a.size > INLINE}
    for n in graph.nodes:
        for key, (_, inner) in _inner_graphs(n).items():
            found |= large_constants(inner, f"{prefix}{n.outputs[0].name}.{key}.")
    return found


def symbols_in(*items: object) -> list[Symbol]:
    """The symbolic dimensions in graphs, attributes, types and dimensions, by name."""
    found: dict[Symbol, None] = {}
    todo: list[Any] = list(items)
    while todo:
        item = todo.pop()
        if isinstance(item, Graph):
            todo += [v.type for v in (*item.inputs, *item.constants)]
            todo += [part for n in item.nodes for part in (*(v.type for v in n.outputs), n.attrs)]
        elif isinstance(item, Attrs):
            todo += [value for _, value in item.items()]
        elif isinstance(item, tuple):
            todo += item
        elif isinstance(item, Node):
            found |= {s: None for s in item.walk() if isinstance(s, Symbol)}
    return sorted(found, key=lambda s: s.name)
