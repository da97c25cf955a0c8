"""Calls that differ in numbers alone become calls of one kernel, with the numbers as operands.

    y = call(x, body: x * 0.03); v = call(u, body: u * 0.05)
->  y = call(x, 0.03, body: x * c); v = call(u, 0.05, body: u * c)

A quantised network has a scale and a zero point for each of its layers, which would otherwise be
kernels of their own. Numbers that are whole everywhere are handed over as i16, so that what is
computed with them is known to be whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.dtype import DType, f32, i16
from tilewright.ir.dims import tensor_type
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.elementwise import CastAttrs
from tilewright.ops.function import CALL, CallAttrs
from tilewright.ops.table import op as op_named
from tilewright.optimize.edit import fresh_names, rebuild

ARITHMETIC = ("add", "sub", "mul", "div", "min", "max")


@dataclass(frozen=True)
class LiftedNumber:
    """A constant of a body that is to be an operand of a type."""

    name: str
    dtype: DType


def share_kernels(graph: Graph, devices: Collection[str]) -> Graph:
    """The graph with one body for all calls, on these devices, that differ in scalars of f32."""
    families: dict[object, list[tuple[GraphNode, Graph]]] = {}
    for n in graph.nodes:
        if n.op is CALL and n.device in devices and n.attrs_of(CallAttrs).body.constants:
            body = _used_once(n.attrs_of(CallAttrs).body)
            families.setdefault((n.device, _structure(body)), []).append((n, body))
    constants, fresh = dict(graph.constants), fresh_names(graph)
    new: dict[GraphNode, GraphNode] = {}
    for calls in families.values():
        lifted = _differing([body for _, body in calls])
        for n, body in calls if lifted else ():
            operands = []
            for number in lifted:
                array = _constants(body)[number.name]
                made = Value(fresh("number"), tensor_type(number.dtype, array.shape))
                constants[made] = array.astype(number.dtype.numpy)
                operands.append(made)
            attrs = CallAttrs(_with_operands(body, lifted), n.attrs_of(CallAttrs).origins)
            new[n] = replace(n, attrs=attrs, inputs=(*n.inputs, *operands))
    return rebuild(graph, [new.get(n, n) for n in graph.nodes], constants=constants)


def _used_once(body: Graph) -> Graph:
    """The body with a constant for each place where one stands: which of them are equal is not the
    same in all."""
    constants: dict[Value, np.ndarray] = {}
    nodes = []
    for n in body.nodes:
        inputs = []
        for v in n.inputs:
            array = body.constants.get(v)
            if array is not None:
                v = Value(f"c{len(constants)}", v.type)
                constants[v] = array
            inputs.append(v)
        nodes.append(replace(n, inputs=tuple(inputs)))
    return body.with_(nodes=tuple(nodes), constants=constants)


def _structure(body: Graph) -> object:
    """What bodies have in common that differ in numbers alone."""
    nodes = tuple((x.op.name, x.attrs, *map(_texts, (x.inputs, x.outputs))) for x in body.nodes)
    return nodes, *map(_texts, (body.inputs, body.outputs, tuple(body.constants)))


def _texts(values: tuple[Value, ...]) -> tuple[str, ...]:
    return tuple(f"{v.name}: {v.type}" for v in values)


def _constants(body: Graph) -> dict[str, np.ndarray]:
    return {v.name: array for v, array in body.constants.items()}


def _differing(bodies: list[Graph]) -> list[LiftedNumber]:
    """The constants of equal bodies that are not the same number in all."""
    first, lifted = bodies[0], []
    for v in first.constants:
        arrays = [_constants(b)[v.name] for b in bodies]
        if v.dtype != f32 or len({a.tobytes() for a in arrays}) == 1:
            continue
        if all(n.op.name in ARITHMETIC for n in first.nodes if v in n.inputs):
            lifted.append(LiftedNumber(v.name, i16 if all(map(_is_short, arrays)) else f32))
    return lifted


def _is_short(array: np.ndarray) -> bool:
    """Whether a number is a whole one that i16 holds; -0.0 is none."""
    number = float(array.reshape(()))
    return i16.min <= number <= i16.max and number.is_integer() and str(number) != "-0.0"


def _with_operands(body: Graph, lifted: list[LiftedNumber]) -> Graph:
    """The body with numbers handed to it, behind the other operands."""
    names = {x.name: x.dtype for x in lifted}
    count = len(body.inputs)
    inputs, conversions, replaced = list(body.inputs), {}, {}
    for v in body.constants:
        if v.name not in names:
            continue
        operand = Value(f"x{count}", tensor_type(names[v.name], v.shape))
        count += 1
        inputs.append(operand)
        if operand.dtype == v.dtype:
            replaced[v] = operand
        else:
            conversions[v] = GraphNode(op_named("cast"), CastAttrs(v.dtype), (operand,), (v,))
    nodes: list[GraphNode] = []
    for n in body.nodes:
        nodes += (conversions[v] for v in n.inputs if v in conversions)
        nodes.append(replace(n, inputs=tuple(replaced.get(v, v) for v in n.inputs)))
    kept = {v: a for v, a in body.constants.items() if v.name not in names}
    return body.with_(inputs=tuple(inputs), nodes=tuple(nodes), constants=kept)
