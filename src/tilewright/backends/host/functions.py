"""Operators that run on the host: their attributes as JSON, and what the runtime calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType, dtype
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Expr
from tilewright.ir.op import Attrs, Op

Json = Any
HostFactory = Callable[[Json], Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]]


def attrs_to_json(op: str, attrs: Attrs) -> dict[str, Json]:
    return {key: _value_to_json(f"{op}: attribute {key}", v) for key, v in attrs.items()}


def _value_to_json(what: str, value: Any) -> Json:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, tuple):
        return [_value_to_json(what, v) for v in value]
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Expr):
        raise CompileError(f"{what} is {value}: on the host it must be a number")
    raise CompileError(f"{what} is a {type(value).__name__}, which a host call cannot have")


def attrs_from_json(op: Op, value: Json) -> Attrs:
    """The operator's attribute record, checked."""
    try:
        return op.make_attrs(**{key: _value_from_json(v) for key, v in value.items()})
    except (TypeError, KeyError, AttributeError):
        known = ", ".join(op.attrs.keys())
        raise CompileError(
            f"{op.name} cannot have the attributes {value}; it has {known}"
        ) from None


def _value_from_json(value: Json) -> Any:
    if isinstance(value, list):
        return tuple(_value_from_json(v) for v in value)
    if isinstance(value, dict):
        return float(value["float"]) if "float" in value else dtype(value["dtype"])
    return value


def host_table(ops: Mapping[str, Op]) -> dict[str, HostFactory]:
    """What the runtime asks for to run host calls: the numpy meaning of every opaque operator."""
    return {name: _factory(op) for name, op in ops.items() if op.evaluate is not None}


def _factory(op: Op) -> HostFactory:
    def bind(value: Json) -> Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]:
        attrs, evaluate = attrs_from_json(op, value), op.evaluate
        assert evaluate is not None
        return lambda inputs: [np.asarray(a) for a in evaluate(attrs, inputs)]

    return bind
