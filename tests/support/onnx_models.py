"""Small ONNX models for these tests, and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.graph import Graph

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str] = ("y",),
    *,
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
    name: str = "test",
) -> onnx.ModelProto:
    """A model. An input is a shape of floats, or (element type, shape)."""
    graph = helper.make_graph(
        list(nodes),
        name,
        [typed(n, shape) for n, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [tensor(n, array) for n, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(d, v) for d, v in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def typed(name: str, shape: Sequence[Any]) -> onnx.ValueInfoProto:
    kind, dims = shape if len(shape) == 2 and isinstance(shape[1], tuple) else (FLOAT, shape)
    return helper.make_tensor_value_info(name, kind, list(dims))


def tensor(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def compute(source: onnx.ModelProto, *inputs: np.ndarray, **options: Any) -> list[np.ndarray]:
    """Imports and evaluates; symbols take their values from the inputs."""
    graph = import_model(source, **options)
    return evaluate_graph(graph, inputs, {})


def ops(graph: Graph) -> list[str]:
    """The operators' names, in order."""
    return [n.op.name for n in graph.nodes]


def refusal(source: Any, **options: Any) -> str:
    """The whole text of the ModelError."""
    with pytest.raises(ModelError) as caught:
        import_model(source, **options)
    return str(caught.value)
