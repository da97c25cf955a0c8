"""What must be true of every graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError, TilewrightError
from tilewright.base.identifiers import identifier
from tilewright.ir.expr import Expr, Symbol
from tilewright.ir.graph import Graph, GraphNode, Value, format_node
from tilewright.ir.op import Infer, check_attr
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ir.verify.expr import ExprChecker

_TEXT_ONLY = frozenset({"name", "device", "types"})  # what the text form says with these keywords


def verify_graph(graph: Graph) -> None:
    """CompileError, with the node, where the graph breaks a rule."""
    _GraphChecker(graph, {}).graph_()


class _GraphChecker(ExprChecker):
    """Checks one graph; graphs within share the symbols."""

    def __init__(self, graph: Graph, symbols: dict[str, Symbol]) -> None:
        super().__init__()
        self.symbols = symbols
        self.graph = graph
        self.node: GraphNode | None = None
        self.values: set[Value] = set()
        self.names: set[str] = set()

    def fail(self, what: str, hint: str | None = None) -> CompileError:
        inputs = ", ".join(f"{identifier(v.name)}: {v.type}" for v in self.graph.inputs)
        place = "..." if self.node is None else format_node(self.node)
        head = f"def {identifier(self.graph.name)}({inputs}):"
        return CompileError(what, program=f"{head}\n    {place}", hint=hint)

    def take(self, name: str, kind: str) -> None:
        """Symbols and values are told apart by where they stand: only values are unique."""

    def graph_(self) -> None:
        for value in self.graph.inputs:
            self.define(value)
        for value, array in self.graph.constants.items():
            self.define(value)
            self.constant(value, array)
        for n in self.graph.nodes:
            self.node = n
            self.check_node(n)
        self.node = None
        for value in self.graph.outputs:
            self.require(value in self.values, f"output {value.name} is not defined")

    # ---------------------------------------------------------- values

    def define(self, value: Value) -> None:
        self.require(value not in self.values, f"{value.name} is defined twice")
        self.require(
            value.name not in self.names,
            f"two values are called {value.name!r}",
            "names are unique within a graph",
        )
        self.values.add(value)
        self.names.add(value.name)
        for d in value.shape:
            self.dim(d, f"a dimension of {value.name}", constant=True)
        if value.type.layout is not None:
            self.layout(value.type.layout, value.type.rank, value.name)

    def layout(self, layout: Layout, rank: int, name: str) -> None:
        self.require(
            sorted(layout.order) == list(range(rank)),
            f"{layout} of {name} does not order its {rank} axes",
        )
        for axis, factor in layout.blocks:
            self.require(
                0 <= axis < rank and factor >= 2,
                f"{layout} of {name} cuts {factor} off axis {axis}",
                "a block is an axis of the value, and at least 2",
            )

    def constant(self, value: Value, array: np.ndarray) -> None:
        fits = array.shape == value.shape and array.dtype == value.dtype.numpy
        self.require(
            fits,
            f"constant {value.name} is {array.dtype}{list(array.shape)}, its type {value.type}",
        )

    # ---------------------------------------------------------- nodes

    def check_node(self, n: GraphNode) -> None:
        for value in n.inputs:
            self.require(
                value in self.values,
                f"{value.name} is used before it is defined",
                "nodes stand in an order in which values are defined before they are used",
            )
        low, high = n.op.arity
        count = len(n.inputs)
        self.require(low <= count <= high, f"{n.op.name} has {count} operands, not {low} … {high}")
        self.attrs(n)
        found = [v.type for v in n.outputs]
        wanted = list(self.infer(n))
        self.require(
            len(found) == len(wanted) >= 1,
            f"{n.op.name} gives {len(wanted)} values, not {len(found)}",
        )
        for value, inferred in zip(n.outputs, wanted, strict=True):
            self.require(
                _agree(value.type, inferred),
                f"{value.name} is {value.type}, but {n.op.name} gives {inferred}",
            )
            self.define(value)

    def infer(self, n: GraphNode) -> Iterable[TensorType]:
        infer: Infer = n.op.infer
        try:
            return infer(n.attrs, [v.type for v in n.inputs])
        except TilewrightError as error:
            raise self.fail(error.what, error.hint) from None

    def attrs(self, n: GraphNode) -> None:
        self.require(
            type(n.attrs) is n.op.attrs,
            f"{n.op.name} has {type(n.attrs).__name__}, not {n.op.attrs.__name__}",
        )
        for f in fields(n.attrs):
            assert f.name not in _TEXT_ONLY, f"{n.op.name}: no attribute can be called {f.name}"
            value = getattr(n.attrs, f.name)
            try:
                check_attr(n.op.name, f.name, value, f.metadata)
            except TilewrightError as error:
                raise self.fail(error.what, error.hint) from None
            self.attr(n, f.name, value)

    def attr(self, n: GraphNode, name: str, value: Any) -> None:
        """Graphs and dimensions within an attribute."""
        if isinstance(value, tuple):
            for item in value:
                self.attr(n, name, item)
        elif isinstance(value, Graph):
            try:
                _GraphChecker(value, self.symbols).graph_()
            except CompileError as error:
                which = f"{n.op.name} {n.name!r}" if n.name else n.op.name
                error.add_context(f"checking {name} of {which}")
                raise
        elif isinstance(value, Expr):
            self.dim(value, f"attribute {name}", constant=True)


def _agree(found: TensorType, inferred: TensorType) -> bool:
    """Whether a value can have this type: layouts may be chosen where the operator says none."""
    free = inferred.layout is None
    plain = found.with_(layout=None) if free else found
    return plain == inferred
