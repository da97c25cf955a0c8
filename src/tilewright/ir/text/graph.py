"""Reading graphs back from their text form."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np

from tilewright.base.dtype import DTYPES, DType
from tilewright.base.errors import TilewrightError, did_you_mean
from tilewright.base.identifiers import name_of
from tilewright.ir.expr import Expr, as_dim
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs, Op
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ir.text.expr import ExprReader
from tilewright.ir.text.source import number, reads_text


@reads_text
def parse_graph(text: str, ops: Mapping[str, Op], constants: Mapping[str, np.ndarray]) -> Graph:
    """The graph that prints as `text`. `constants` has the arrays that the text only names
    (graph.large_constants)."""
    return _GraphReader(text, ops, constants).graph()


@dataclass
class _Scope:
    """One function of the text: what has been read of it so far."""

    prefix: str  # of its constants' names
    values: dict[str, Value] = field(default_factory=dict)  # by identifier
    constants: dict[Value, np.ndarray] = field(default_factory=dict)
    nodes: list[GraphNode] = field(default_factory=list)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)


class TypeReader(ExprReader):
    """Reads the types of graph values."""

    def tensor_type(self, node: ast.AST) -> TensorType:
        """f32[4, n], or f32[4, n] @ layout[0, 1, 1:16]"""
        layout = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            layout, node = self.layout(node.right), node.left
        return TensorType(*self.shaped(node), layout)

    def layout(self, node: ast.AST) -> Layout:
        """layout[0, 1, 1:16]: the axes in order, then each block"""
        form = "layout[axes in order, axis:factor, …]"
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise self.error(node, "this is not a layout", form)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        order = [p for p in parts if not isinstance(p, ast.Slice)]
        blocks = [p for p in parts if isinstance(p, ast.Slice)]
        if node.value.id != "layout" or parts != order + blocks:
            raise self.error(node, "this is not a layout", form)
        return Layout(
            tuple(self.integer(p, "an axis") for p in order),
            tuple(self.block(p, form) for p in blocks),
        )

    def block(self, node: ast.Slice, form: str) -> tuple[int, int]:
        if node.lower is None or node.upper is None or node.step is not None:
            raise self.error(node, "this is not a layout", form)
        return self.integer(node.lower, "an axis"), self.integer(node.upper, "a factor")


class _GraphReader(TypeReader):
    def __init__(
        self, text: str, ops: Mapping[str, Op], constants: Mapping[str, np.ndarray]
    ) -> None:
        super().__init__(text)
        self.ops, self.constants = ops, constants

    def graph(self) -> Graph:
        body = self.symbols(self.function.body)
        return self.function_graph(self.function, body, "")

    def function_graph(self, function: ast.FunctionDef, body: list[ast.stmt], prefix: str) -> Graph:
        scope = _Scope(prefix)
        inputs = []
        for param in self.parameters(function):
            if param.annotation is None:
                raise self.error(param, "a parameter has no type", "name: type")
            kind = self.tensor_type(param.annotation)
            inputs.append(self.value(scope, param, param.arg, kind))
        *statements, last = body or [function]
        if not isinstance(last, ast.Return):
            raise self.error(last, "the function does not end here", "return y, …")
        for node in statements:
            read = _STATEMENTS.get(type(node))
            if read is None:
                raise self.error(node, "this is not a statement of the text form", _KNOWN)
            read(self, scope, node)
        outputs = tuple(self.known(scope, v) for v in _several(last.value))
        name, nodes = name_of(function.name), tuple(scope.nodes)
        return Graph(name, tuple(inputs), outputs, nodes, scope.constants)

    # ---------------------------------------------------------- values

    def value(self, scope: _Scope, at: ast.AST, text: str, kind: TensorType) -> Value:
        """A new value called by this identifier."""
        if text in scope.values:
            raise self.error(at, f"{name_of(text)!r} is defined already", "another name")
        return scope.values.setdefault(text, Value(name_of(text), kind))

    def known(self, scope: _Scope, node: ast.AST) -> Value:
        text = self.identifier(node, "a value")
        if text not in scope.values:
            known = [v.name for v in scope.values.values()]
            raise self.unknown(node, "value", name_of(text), known)
        return scope.values[text]

    # ---------------------------------------------------------- nodes

    def node(
        self, scope: _Scope, targets: list[ast.expr], call: ast.Call, types: list[TensorType]
    ) -> None:
        """Adds the node that a call stands for."""
        given = self.keywords(call, _KNOWN)
        if len(targets) != 1:
            given.pop("types")
        extra = {k: self.string(given.pop(k), f"a {k}") for k in ("name", "device") if k in given}
        texts = [self.identifier(t, "a value") for t in targets]
        op = self.op(call)
        inputs = tuple(self.known(scope, v) for v in call.args)
        # The constants of the graph in attribute a of the node that makes y are called y.a.name.
        prefix = f"{scope.prefix}{name_of(texts[0])}." if texts else scope.prefix
        values = {k: self.attr(v, scope, f"{prefix}{k}.") for k, v in given.items()}
        outputs = tuple(
            self.value(scope, at, text, kind)
            for at, text, kind in zip(targets, texts, types, strict=True)
        )
        attrs = self.attrs(call, op, values)
        scope.nodes.append(GraphNode(op, attrs, inputs, outputs, **extra))
        scope.functions.clear()  # a graph stands right before the node that has it

    def attrs(self, call: ast.Call, op: Op, values: dict[str, Any]) -> Attrs:
        known = op.attrs.keys()
        expected = f"{op.name} with {', '.join(known) or 'no attributes'}"
        for key in values:
            if key not in known:
                raise self.error(call, f"{op.name} has no attribute {key!r}", expected)
        for f in fields(op.attrs):
            if f.default is MISSING and f.name not in values:
                raise self.error(call, f"{op.name} lacks attribute {f.name!r}", expected)
        try:
            return op.make_attrs(**values)
        except TilewrightError as problem:
            error = self.error(call, problem.what)
            error.hint = problem.hint
            raise error from None

    def op(self, call: ast.Call) -> Op:
        name = self.name(call.func, "an operator")
        if name not in self.ops:
            raise self.unknown(call, "operator", name, sorted(self.ops))
        return self.ops[name]

    def constant(self, scope: _Scope, target: ast.expr, call: ast.Call, kind: TensorType) -> None:
        """w: f32[4] = constant([0.0, 1.0, 2.0, 3.0]), or without elements where there are many"""
        self.no_keywords(call, _CONSTANT)
        elements = self.arguments(call, _CONSTANT, 0, 1)
        value = self.value(scope, target, self.identifier(target, "a value"), kind)
        key = scope.prefix + value.name
        if elements:
            array = self.array(elements[0], kind.dtype)
        elif key in self.constants:
            array = self.constants[key]
        else:
            error = self.error(call, f"the constant {key!r} was not given with the text")
            error.hint = did_you_mean(key, list(self.constants))
            raise error
        scope.constants[value] = array if array.size else array.reshape(kind.shape)

    # ---------------------------------------------------------- attributes

    def attr(self, node: ast.AST, scope: _Scope, prefix: str) -> Any:
        """An attribute's value: a number, string, type, layout, dimension, graph, array, tuple."""
        if isinstance(node, ast.Tuple):
            return tuple(self.attr(item, scope, prefix) for item in node.elts)
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
            return node.value
        if number(node) is not None:
            return number(node)
        if isinstance(node, ast.Name) and node.id in scope.functions:
            function = scope.functions[node.id]
            return self.function_graph(function, function.body, prefix)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return self.layout(node) if node.value.id == "layout" else self.tensor_type(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self.tensor_type(node)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "array":
            return self.array_attr(node)
        return self.name_or_dim(node)

    def name_or_dim(self, node: ast.AST) -> DType | Expr | int:
        if isinstance(node, ast.Name) and node.id in DTYPES:
            return DTYPES[node.id]
        return as_dim(self.expr(node))

    def array_attr(self, call: ast.Call) -> np.ndarray:
        form = "array(elements, type) or array([], type, shape)"
        elements, dtype, *shape = self.arguments(call, form, 2, 3)
        array = self.array(elements, self.dtype(dtype))
        if not shape:
            return array
        return array.reshape([self.integer(d, "a size") for d in self.items(shape[0], "a shape")])

    def array(self, node: ast.AST, dtype: DType) -> np.ndarray:
        """Nested lists of numbers."""
        try:
            return np.array(self.elements(node), dtype.numpy)
        except (ValueError, OverflowError, TypeError) as error:
            raise self.error(node, f"these are no elements of type {dtype}: {error}") from None

    def elements(self, node: ast.AST) -> Any:
        if isinstance(node, ast.List):
            return [self.elements(item) for item in node.elts]
        value = number(node)
        if value is None:
            raise self.error(node, "this is not a number", "a number, inf or nan")
        return value


_KNOWN = "y: type = operator(x, …, attribute=value)"
_SEVERAL = "y, z = operator(x, …, attribute=value, types=(type, type))"
_CONSTANT = "w: type = constant(), or with nested lists of its elements"


def _several(node: ast.expr | None) -> list[ast.expr]:
    """The parts of a tuple without parentheses, of one expression, or of none."""
    if node is None:
        return []
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _read_one(r: _GraphReader, scope: _Scope, node: ast.AnnAssign) -> None:
    if node.value is None:
        raise r.error(node, "a value has no node", _KNOWN)
    text, call = r.call(node.value, _KNOWN)
    kind = r.tensor_type(node.annotation)
    if text == "constant":
        r.constant(scope, node.target, call, kind)
    else:
        r.node(scope, [node.target], call, [kind])


def _read_several(r: _GraphReader, scope: _Scope, node: ast.Assign) -> None:
    targets = _several(node.targets[0])
    _, call = r.call(node.value, _SEVERAL)
    given = r.keywords(call, _SEVERAL).get("types")
    if len(node.targets) > 1 or given is None:
        raise r.error(node, "the values' types are missing", _SEVERAL)
    types = [r.tensor_type(t) for t in r.items(given, "a tuple of types")]
    if len(types) != len(targets):
        raise r.error(given, f"{len(types)} types for {len(targets)} values", _SEVERAL)
    r.node(scope, targets, call, types)


def _read_function(r: _GraphReader, scope: _Scope, node: ast.FunctionDef) -> None:
    scope.functions[node.name] = node


_STATEMENTS: dict[type, Callable[[_GraphReader, _Scope, Any], None]] = {
    ast.AnnAssign: _read_one,
    ast.Assign: _read_several,
    ast.FunctionDef: _read_function,
}
