"""Building a graph node by node, for every frontend: types, constants, known contents, names.

A value's contents are known when it is a constant, or computed from constants and dimensions
alone. They are worked out when someone asks (`contents`), through the operators' own meaning.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tilewright.base.dtype import from_numpy
from tilewright.base.errors import ModelError
from tilewright.frontends.contents import Unknown, evaluate_symbolic
from tilewright.frontends.names import Names, identifier
from tilewright.ir.dims import limits, tensor_type
from tilewright.ir.evaluate import evaluate_dim, evaluate_node, op_program
from tilewright.ir.expr import Buffer, Const, Dim, Expr, Symbol
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.table import op as find_op

LARGEST = 1 << 40  # bytes of a tensor that anyone can mean
HIGHEST_RANK = 32
FOLD_LIMIT = 1 << 24  # elements of a tensor that is computed while importing
LARGEST_BOUND = 1 << 31  # of a symbol, from below
SHARED = 8  # constants of at most so many elements are kept once

Contents = np.ndarray  # numbers; or objects: constants and symbolic dimensions


class GraphBuilder:
    """Collects nodes. Names are wishes until `finish`, where they become unique."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names = Names()
        self.inputs: list[Value] = []
        self._nodes: list[GraphNode] = []
        self._producers: dict[Value, int] = {}
        self._constants: dict[Value, np.ndarray] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._contents: dict[Value, Contents | None] = {}
        self._wishes: dict[Value, str] = {}
        self._bounds: dict[Symbol, tuple[int, int | None]] = {}

    # ------------------------------------------------------------ values

    def input(self, name: str, of: TensorType) -> Value:
        """A new input of the graph; `name` comes from `names`."""
        _check_size(name, of)
        value = Value(name, of)
        self.inputs.append(value)
        return value

    def constant(self, array: np.ndarray, name: str = "") -> Value:
        """A value known now. Small nameless ones are kept once."""
        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes() if array.size <= SHARED else b"")
        if not name and array.size <= SHARED and key in self._shared:
            return self._shared[key]
        value = Value(name or "constant", tensor_type(from_numpy(array.dtype), array.shape))
        self._constants[value] = array
        if name:
            self.wish(value, name)
        if not name and array.size <= SHARED:
            self._shared[key] = value
        return value

    def emit(
        self, op_name: str, inputs: Sequence[Value], attrs: Mapping[str, object], node: str
    ) -> tuple[Value, ...]:
        """A new node; `node` is the model's name for what it comes from."""
        op = find_op(op_name)
        record = op.make_attrs(**attrs)
        least, most = op.arity
        if not least <= len(inputs) <= most:
            raise ModelError(f"{op_name}: {len(inputs)} operands, where it takes {least} … {most}")
        types = op.infer(record, [v.type for v in inputs])
        for t in types:
            _check_size(op_name, t)
            for dim in t.shape:
                self.assume_at_least(dim, 0)
        outputs = tuple(Value(op_name, t) for t in types)
        for value in outputs:
            self._producers[value] = len(self._nodes)
        self._nodes.append(GraphNode(op, record, tuple(inputs), outputs, node))
        return outputs

    def wish(self, value: Value, name: str) -> None:
        """The model calls the value so; the first name stays."""
        self._wishes.setdefault(value, name)

    def is_constant(self, value: Value) -> bool:
        return value in self._constants

    # ------------------------------------------------------------ contents

    def contents(self, value: Value) -> Contents | None:
        """The value's elements if they are known while importing, else None."""
        if value in self._constants:
            return self._constants[value]
        for position in sorted(self._ancestors(value, self._contents)):
            node = self._nodes[position]
            for output, array in zip(node.outputs, self._evaluate(node), strict=True):
                self._contents[output] = array
        return self._contents.get(value)

    def sources(self, value: Value) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The inputs whose contents the value is computed from, in their order; if there are none,
        the symbols in what it is computed with."""
        nodes = [self._nodes[i] for i in self._ancestors(value, known={})]
        used = {v for n in nodes for v in n.inputs} | {value}
        inputs = tuple(v.name for v in self.inputs if v in used)
        dims = [d for v in used for d in v.shape] + [d for n in nodes for d in _dims_of(n.attrs)]
        found = {s for d in dims if isinstance(d, Expr) for s in d.walk() if isinstance(s, Symbol)}
        given = {d for v in self.inputs for d in v.shape}
        return inputs, () if inputs else tuple(sorted(s.name for s in found & given))

    def _ancestors(self, value: Value, known: Mapping[Value, Contents | None]) -> set[int]:
        """The nodes that must be evaluated for `value`, without those of `known` ones."""
        found: set[int] = set()
        pending = [value]
        while pending:
            one = pending.pop()
            position = self._producers.get(one)
            if one in known or position is None or position in found:
                continue
            found.add(position)
            pending.extend(self._nodes[position].inputs)
        return found

    def _evaluate(self, node: GraphNode) -> Sequence[Contents | None]:
        nothing: list[Contents | None] = [None] * len(node.outputs)
        known = [self._constants.get(v, self._contents.get(v)) for v in node.inputs]
        arrays = [a for a in known if a is not None]
        if len(arrays) < len(known) or not all(_is_small(v.type) for v in node.outputs):
            return nothing
        symbolic = any(a.dtype == object for a in arrays) or _has_symbols(node.attrs)
        if not symbolic:
            return evaluate_node(node, arrays, {})
        if node.op.compute is None:
            return nothing
        buffers = [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(node.inputs)]
        try:
            return evaluate_symbolic(op_program(node.op, node.attrs, buffers), arrays)
        except Unknown:
            return nothing

    def assume_at_most(self, symbol: Symbol, bound: int) -> None:
        """The model means this symbol to be at most `bound`: its type will say so."""
        low, high = self._bounds.get(symbol, (symbol.lower, symbol.upper))
        self._bounds[symbol] = low, bound if high is None else min(bound, high)

    def assume_at_least(self, dim: Dim, least: int) -> None:
        """A dimension such as the places of a window in an axis of n elements must not be negative:
        the symbol must be large enough for that."""
        low = limits(dim)[0]
        found = {s for s in dim.walk() if isinstance(s, Symbol)} if isinstance(dim, Expr) else ()
        if (low is not None and low >= least) or len(found) != 1:
            return
        (symbol,) = found
        start, high = self._bounds.get(symbol, (symbol.lower, symbol.upper))
        if evaluate_dim(dim, {symbol.name: start}) >= least:
            return
        known = range(start, LARGEST_BOUND + 1)
        enough = bisect.bisect_left(known, least, key=lambda n: evaluate_dim(dim, {symbol.name: n}))
        if start + enough <= LARGEST_BOUND:
            self._bounds[symbol] = start + enough, high

    # ------------------------------------------------------------ finishing

    def finish(self, outputs: Mapping[str, Value]) -> Graph:
        """The graph that computes `outputs`, each a value of its own, made by a node. Their names
        come from `names`."""
        ends: list[Value] = []
        for name, value in outputs.items():
            made = value in self._producers and value not in ends
            ends.append(value if made else self.emit("identity", [value], {}, name)[0])
        nodes = self._live(ends)
        used = dict.fromkeys(v for n in nodes for v in n.inputs)
        constants = [v for v in used if v in self._constants]
        final = _Final(self._bounds)
        for value, name in [*((v, v.name) for v in self.inputs), *zip(ends, outputs, strict=True)]:
            final.name(value, name)
        for value in [*constants, *(v for n in nodes for v in n.outputs)]:
            if value not in final:
                final.name(value, self.names.fresh(self._wishes.get(value, value.name)))
        known = [*self.inputs, *ends, *(v for v in self._wishes if v in final)]
        return Graph(
            identifier(self.name, "model"),
            tuple(final[v] for v in self.inputs),
            tuple(final[v] for v in ends),
            tuple(final.node(n) for n in nodes),
            {final[v]: self._constants[v] for v in constants},
            named=frozenset(final[v].name for v in known),
        )

    def _live(self, ends: Sequence[Value]) -> list[GraphNode]:
        """The nodes that `ends` depend on, in order."""
        needed, live = set(ends), []
        for node in reversed(self._nodes):
            if needed.isdisjoint(node.outputs):
                continue
            needed.update(node.inputs)
            live.append(node)
        return live[::-1]


class _Final:
    """Values under their final names, with the bounds found for symbols."""

    def __init__(self, bounds: Mapping[Symbol, tuple[int, int | None]]) -> None:
        self._values: dict[Value, Value] = {}
        self._symbols = {s: s.with_(lower=low, upper=high) for s, (low, high) in bounds.items()}

    def __getitem__(self, value: Value) -> Value:
        return self._values[value]

    def __contains__(self, value: Value) -> bool:
        return value in self._values

    def name(self, value: Value, name: str) -> None:
        shape = tuple(self._replace(d) for d in value.shape)
        self._values[value] = Value(name, TensorType(value.dtype, shape, value.type.layout))

    def node(self, n: GraphNode) -> GraphNode:
        inputs, outputs = (tuple(self[v] for v in values) for values in (n.inputs, n.outputs))
        return replace(n, inputs=inputs, outputs=outputs, attrs=self._attrs(n.attrs))

    def _attrs(self, attrs: Attrs) -> Attrs:
        if not self._symbols or not _has_symbols(attrs):
            return attrs
        return replace(attrs, **{name: self._replace(value) for name, value in attrs.items()})

    def _replace(self, item: object) -> Any:
        if isinstance(item, tuple):
            return tuple(self._replace(i) for i in item)
        if isinstance(item, Symbol):
            return self._symbols.get(item, item)
        return item.map(self._replace) if self._symbols and isinstance(item, Expr) else item


def _has_symbols(attrs: Attrs) -> bool:
    return any(True for _ in _dims_of(attrs))


def _dims_of(attrs: Attrs) -> Iterator[Expr]:
    """The symbolic dimensions among attributes."""
    for f in fields(attrs):
        value = getattr(attrs, f.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Expr):
                yield item


def _is_small(t: TensorType) -> bool:
    size = 1
    for dim in t.shape:
        if not isinstance(dim, int):
            return False
        size *= dim
    return size <= FOLD_LIMIT


def _check_size(what: str, t: TensorType) -> None:
    size = t.dtype.bytes
    if t.rank > HIGHEST_RANK:
        raise ModelError(f"{what}: a tensor with {t.rank} dimensions: at most {HIGHEST_RANK}")
    for dim in t.shape:
        if isinstance(dim, int):
            if dim < 0:
                raise ModelError(f"{what}: a tensor {t} has a negative dimension")
            size *= max(1, dim)
            continue
        size *= max(1, limits(dim)[0] or 1)
        if any(isinstance(e, Const) and abs(e.value) > LARGEST for e in dim.walk()):
            raise ModelError(f"{what}: a dimension of {dim}")
    if size > LARGEST:
        raise ModelError(f"{what}: a tensor {t} takes more than {LARGEST >> 30} GiB")
