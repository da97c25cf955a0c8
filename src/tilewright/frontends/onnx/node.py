"""One ONNX node as importers see it: inputs as values, attributes by type with defaults."""

from __future__ import annotations

import builtins  # Node has methods called int and float
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import AttributeProto

from tilewright.base.errors import ModelError
from tilewright.frontends.names import shown
from tilewright.ir.graph import Value

DEEPEST = 64  # functions in functions, graphs in graphs


@dataclass(frozen=True)
class Scope:
    """The names that a graph or a function body can see. `attributes` are the arguments of the
    function that is being inlined; `outer` is the enclosing graph."""

    values: dict[str, Value | None]  # None: an input that the function's caller left out
    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    outer: Scope | None = None
    depth: int = 0

    def knows(self, name: str) -> bool:
        return name in self.values or (self.outer is not None and self.outer.knows(name))

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None


@dataclass(frozen=True)
class OnnxNode:
    """A node with its inputs found. An input that is left out is None."""

    proto: onnx.NodeProto
    op_type: str
    domain: str
    label: str  # the model's name for the node
    opset: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, AttributeProto]
    scope: Scope

    @property
    def shown(self) -> str:
        """How errors name the node."""
        kind = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"operator {shown(kind)} (node {shown(self.label)!r}, opset {self.opset})"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs; empty for one that nobody wants."""
        return tuple(self.proto.output)

    def wants(self, position: int) -> bool:
        """Whether somebody may read this output."""
        return position < len(self.proto.output) and bool(self.proto.output[position])

    def input(self, position: int) -> Value:
        """A required input."""
        value = self.optional(position)
        if value is None:
            raise ModelError(f"input {position} is missing")
        return value

    def optional(self, position: int) -> Value | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def has(self, name: str) -> bool:
        return name in self.attributes

    def int(self, name: str, default: builtins.int | None = None) -> builtins.int:
        found: builtins.int = self._get(name, AttributeProto.INT, "i", default)
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._get(name, AttributeProto.INT, "i", int(default)))

    def float(self, name: str, default: builtins.float | None = None) -> builtins.float:
        found: builtins.float = self._get(name, AttributeProto.FLOAT, "f", default)
        return found

    def string(self, name: str, default: str | None = None) -> str:
        value = self._get(name, AttributeProto.STRING, "s", default)
        return _text(value, name) if isinstance(value, bytes) else value

    def strings(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        values = self._get(name, AttributeProto.STRINGS, "strings", default)
        return tuple(_text(v, name) if isinstance(v, bytes) else v for v in values)

    def ints(
        self, name: str, default: tuple[builtins.int, ...] | None = None
    ) -> tuple[builtins.int, ...]:
        return tuple(self._get(name, AttributeProto.INTS, "ints", default))

    def floats(
        self, name: str, default: tuple[builtins.float, ...] | None = None
    ) -> tuple[builtins.float, ...]:
        return tuple(self._get(name, AttributeProto.FLOATS, "floats", default))

    def graph(self, name: str) -> onnx.GraphProto:
        found: onnx.GraphProto = self._get(name, AttributeProto.GRAPH, "g", None)
        return found

    def tensor(self, name: str) -> onnx.TensorProto:
        found: onnx.TensorProto = self._get(name, AttributeProto.TENSOR, "t", None)
        return found

    def _get(self, name: str, kind: object, member: str, default: object) -> Any:
        found = self.attributes.get(name)
        if found is None:
            if default is None:
                raise ModelError(f"the attribute {name} is missing")
            return default
        if found.type != kind:
            known = AttributeProto.AttributeType
            has = known.Name(found.type) if found.type in known.values() else found.type
            raise ModelError(f"the attribute {name} is of type {has}, not {known.Name(kind)}")
        return getattr(found, member)


def _text(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ModelError(f"the attribute {name} is not UTF-8 text") from None
