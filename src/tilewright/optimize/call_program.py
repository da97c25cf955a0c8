"""The tensor expression of a call in a graph: what is compiled, once for all equal calls."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer
from tilewright.ir.graph import GraphNode
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import Layout
from tilewright.ops.function import CallAttrs
from tilewright.optimize.round_trips import without_round_trips


def call_program(n: GraphNode) -> tuple[TensorProgram, dict[str, Layout]]:
    """The tensor expression of a call, in the names that make equal calls equal, and the layouts
    of its parameters."""
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
    return program.with_(name=short), layouts
