"""The model: a dataflow graph of operators over typed values.

A graph is immutable and in single assignment: every value is an input, a constant, or an output
of exactly one node, and nodes stand in an order in which values are defined before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.node import Node, node
from tilewright.ir.expr import Dim, Symbol, as_expr, ceil_div, product

if TYPE_CHECKING:
    from tilewright.ir.op import Op


@node
class Layout(Node):
    """How a value's elements are arranged in memory.

    `order` permutes the axes; then each block (axis, factor) cuts `factor` off its axis and puts
    it innermost, in the order given. NCHW16c is Layout((0, 1, 2, 3), ((1, 16),)). An axis that
    its factors do not divide is padded; the padding is never read.
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    def physical_shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The shape in memory of a value whose logical shape is `shape`."""
        outer = [ceil_div(shape[axis], self.factor(axis)) for axis in self.order]
        return (*outer, *(factor for _, factor in self.blocks))

    def factor(self, axis: int) -> int:
        """The product of the blocks cut off `axis`."""
        return int(product(tuple(f for a, f in self.blocks if a == axis)))

    def __str__(self) -> str:
        outer = " ".join(map(str, self.order))
        blocks = "".join(f" {axis}:{factor}" for axis, factor in self.blocks)
        return f"<{outer} |{blocks}>" if blocks else f"<{outer}>"

    __repr__ = __str__


def plain_layout(rank: int) -> Layout:
    """Row-major."""
    return Layout(tuple(range(rank)))


@node
class TensorType(Node):
    """What a value is: element type, logical shape, and its layout (None is row-major)."""

    dtype: DType
    shape: tuple[Dim, ...]
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def physical_shape(self) -> tuple[Dim, ...]:
        return self.shape if self.layout is None else self.layout.physical_shape(self.shape)

    @property
    def bytes(self) -> Dim:
        """Bytes in memory, layout padding included."""
        return product((*self.physical_shape, self.dtype.bytes))

    def __str__(self) -> str:
        layout = f", {self.layout}" if self.layout is not None else ""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}{layout}]"

    __repr__ = __str__


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


@dataclass(frozen=True, slots=True)
class Attrs:
    """Base of every operator's attributes: a frozen record whose fields are typed and documented
    (`attr(default, doc=…)`)."""

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The attributes' names."""
        return tuple(f.name for f in fields(cls))

    def items(self) -> Iterator[tuple[str, Any]]:
        for key in self.keys():
            yield key, getattr(self, key)


def attr(
    default: Any = ...,
    *,
    doc: str,
    choices: tuple[Any, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Declares one attribute: default (none: required), meaning, and its legal values."""
    metadata = {"doc": doc, "choices": choices, "low": low, "high": high}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


@dataclass(frozen=True, eq=False, slots=True)
class GraphNode:
    """One operator applied. `name` is the model's name for it; `device` is set by placement."""

    op: Op
    attrs: Attrs
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str = ""
    device: str = ""

    def __repr__(self) -> str:
        return format_node(self)


@dataclass(frozen=True, eq=False)
class Graph:
    """`constants` gives the values known while compiling; all other values are inputs or outputs
    of nodes. `origin` says for a value which node of the model it came from."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[GraphNode, ...]
    constants: Mapping[Value, np.ndarray]

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
        found = {
            item
            for value in self.inputs
            for dim in value.shape
            for item in as_expr(dim).walk()
            if isinstance(item, Symbol)
        }
        return tuple(sorted(found, key=lambda s: s.name))


# ---------------------------------------------------------------- printing


def format_attr(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array({value.tolist()!r}, {value.dtype})"
    if isinstance(value, tuple):
        inner = ", ".join(format_attr(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value) if isinstance(value, (str, float, bool, int)) else str(value)


def format_node(n: GraphNode) -> str:
    """One line: outputs with types, operator, operands, attributes that are not defaults."""
    outputs = ", ".join(v.name for v in n.outputs)
    args = [v.name for v in n.inputs]
    args += [
        f"{f.name}={format_attr(getattr(n.attrs, f.name))}"
        for f in fields(n.attrs)
        if getattr(n.attrs, f.name) is not f.default
    ]
    types = ", ".join(str(v.type) for v in n.outputs)
    device = f" @{n.device}" if n.device else ""
    return f"{outputs} = {n.op.name}({', '.join(args)})  # {types}{device}"


def format_graph(graph: Graph) -> str:
    inputs = ", ".join(f"{v.name}: {v.type}" for v in graph.inputs)
    lines = [f"def {graph.name}({inputs}):"]
    for value, array in graph.constants.items():
        lines.append(f"    {value.name} = constant({value.type}{_preview(array)})")
    lines += [f"    {format_node(n)}" for n in graph.nodes]
    return "\n".join([*lines, f"    return {', '.join(v.name for v in graph.outputs)}"])


def _preview(array: np.ndarray) -> str:
    return f", {array.tolist()!r}" if array.size <= 8 else ""
