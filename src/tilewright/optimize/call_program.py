"""The tensor expression of a call in a graph: what is compiled, once for all equal calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer, Select
from tilewright.ir.graph import GraphNode, Value
from tilewright.ir.tensor import TensorProgram, stages
from tilewright.ir.tensor_type import Layout
from tilewright.ops.function import CALL, CallAttrs
from tilewright.optimize.round_trips import without_round_trips


def call_program(
    n: GraphNode, constants: Mapping[Value, np.ndarray]
) -> tuple[TensorProgram, dict[str, Layout]]:
    """The tensor expression of a call, in the names that make equal calls equal, and the layouts
    of its parameters. `constants` are the graph's: which of them are finite is part of it where
    something is padded, whose products with them are left out."""
    distinct = dict.fromkeys(n.inputs)
    names = {v: f"x{i}" for i, v in enumerate(distinct)}
    buffers = [Buffer(names[v], v.dtype, v.shape) for v in n.inputs]
    attrs = n.attrs_of(CallAttrs)
    program = op_program(n.op, replace(attrs, body=without_round_trips(attrs.body)), buffers)
    layouts = {names[v]: v.type.layout for v in distinct if v.type.layout is not None}
    for buffer, v in zip(program.outputs, n.outputs, strict=True):
        if v.type.layout is not None:
            layouts[buffer.name] = v.type.layout
    body = [inner.op.name for inner in attrs.body.nodes]
    short = "_".join(body[:3] + body[-1:] if len(body) > 4 else body)
    if any(inner.op is CALL for inner in attrs.body.nodes):
        short = "subgraph"
    known = [v for v in distinct if v in constants and v.dtype.is_float] if _pads(program) else []
    finite = tuple(names[v] for v in known if np.isfinite(constants[v]).all())
    return program.with_(name=short, finite=finite), layouts


def _pads(program: TensorProgram) -> bool:
    """Whether some stage stores other values around an array."""
    return any(isinstance(s.value, Select) for s in stages(program.items) if s.op is None)
