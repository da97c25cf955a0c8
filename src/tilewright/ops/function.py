"""Operators that passes introduce: a group of nodes as one call, and changes of layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.expr import Buffer, Expr, const
from tilewright.ir.graph import Graph, Value
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ops.common import require


@dataclass(frozen=True, slots=True)
class CallAttrs(Attrs):
    body: Graph = attr(doc="the nodes that run as one kernel; its inputs are the call's operands")
    origins: tuple[str, ...] = attr((), doc="the names of the model's nodes that it computes")


@dataclass(frozen=True, slots=True)
class RelayoutAttrs(Attrs):
    layout: Layout | None = attr(None, doc="arrangement of the result in memory; none: row-major")


def _infer_call(attrs: CallAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    wanted = [v.type for v in attrs.body.inputs]
    require(list(types) == wanted, f"call: operands {list(types)} for a body that takes {wanted}")
    return [v.type for v in attrs.body.outputs]


def _compute_call(b: Builder, attrs: CallAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    known = dict(zip(attrs.body.inputs, inputs, strict=True))
    for value, array in attrs.body.constants.items():
        known[value] = _constant(b, value, array)
    for n in attrs.body.nodes:
        assert n.op.compute is not None, f"{n.op.name} cannot stand in a kernel"
        outputs = n.op.compute(b, n.attrs, [known[v] for v in n.inputs])
        known |= dict(zip(n.outputs, outputs, strict=True))
    return _own_outputs(b, inputs, [known[v] for v in attrs.body.outputs])


def _constant(b: Builder, value: Value, array: np.ndarray) -> Buffer:
    """A constant of one element, written into the kernel."""
    assert array.size == 1, f"{value} cannot be written into a kernel: make it an operand"
    element = const(scalar_value(array, value.dtype), value.dtype)
    return b.compute("constant", value.shape, lambda *i: element)


def scalar_value(array: np.ndarray, dtype: DType) -> float | int | bool:
    """The first element of an array as a Python number, exactly."""
    first = array.reshape(-1)[0]
    if dtype.is_float:
        return float(first)
    return int(first) if dtype.is_integer else bool(first)


def _own_outputs(b: Builder, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> list[Buffer]:
    """The outputs; those that are inputs, or stand there before, as copies. A kernel's outputs
    are buffers of their own."""
    out: list[Buffer] = []
    for x in outputs:
        taken = x in inputs or x in out
        out.append(b.compute("copy", x.shape, _read(x)) if taken else x)
    return out


def _read(x: Buffer) -> Callable[..., Expr]:
    return lambda *i: x[i]


def _infer_relayout(attrs: RelayoutAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    return [types[0].with_(layout=attrs.layout)]


def _compute_relayout(b: Builder, attrs: RelayoutAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    return [b.compute("relayout", x.shape, lambda *i: x[i])]


CALL = Op(
    "call",
    CallAttrs,
    _infer_call,
    Category.REDUCTION,
    "a group of nodes compiled to one kernel",
    (0, 1 << 30),
    "any",
    _compute_call,
)
RELAYOUT = Op(
    "relayout",
    RelayoutAttrs,
    _infer_relayout,
    Category.INJECTIVE,
    "the same elements in another arrangement in memory",
    (1, 1),
    "any",
    _compute_relayout,
    elementwise=True,
)

OPS: tuple[Op, ...] = (CALL, RELAYOUT)
