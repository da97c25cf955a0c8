"""Operators that importers put together of several: on short floats they round once, at the end."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
import pytest
from function_cases import units_off
from onnx import helper

import tilewright

TYPES = {
    "f16": (onnx.TensorProto.FLOAT16, np.float16),
    "bf16": (onnx.TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}
Exact = Callable[[np.ndarray], np.ndarray]


def _sum(term: Exact, after: Exact = lambda v: v) -> Exact:
    return lambda x: after(term(x).sum(axis=-1, keepdims=True))


def _norm(p: int) -> Exact:
    return _sum(lambda x: np.abs(x) ** p, lambda total: total ** (1 / p))


def _unit(p: int) -> Exact:
    return lambda x: x / _norm(p)(x)


def _standardized(x: np.ndarray) -> np.ndarray:
    distance = x - x.mean(axis=-1, keepdims=True)
    return distance / (np.sqrt((distance**2).mean(axis=-1, keepdims=True)) + 1e-9)


CASES: dict[str, tuple[str, dict[str, object], Exact]] = {
    "ReduceL1": ("ReduceL1", {"axes": [-1]}, _norm(1)),
    "ReduceL2": ("ReduceL2", {"axes": [-1]}, _norm(2)),
    "ReduceLogSum": ("ReduceLogSum", {"axes": [-1]}, _sum(lambda x: x, np.log)),
    "ReduceLogSumExp": ("ReduceLogSumExp", {"axes": [-1]}, _sum(np.exp, np.log)),
    "ReduceSumSquare": ("ReduceSumSquare", {"axes": [-1]}, _sum(np.square)),
    "ReduceMean": ("ReduceMean", {"axes": [-1]}, lambda x: x.mean(axis=-1, keepdims=True)),
    "LpNormalization 1": ("LpNormalization", {"axis": -1, "p": 1}, _unit(1)),
    "LpNormalization 2": ("LpNormalization", {"axis": -1, "p": 2}, _unit(2)),
    "GlobalLpPool 2": ("GlobalLpPool", {"p": 2}, _norm(2)),
    "GlobalLpPool 3": ("GlobalLpPool", {"p": 3}, _norm(3)),
    "MeanVarianceNormalization": ("MeanVarianceNormalization", {"axes": [2]}, _standardized),
    "Pow 3": ("Pow", {}, lambda x: x**3),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_one_rounding(name: str, dtype: str):
    """Of rows whose squares, or sums, are beyond f16, and of such whose squares are too small."""
    op, attributes, exact = CASES[name]
    kind, numpy_type = TYPES[dtype]
    sizes = np.array([[1e-4, 1.0, 30.0, 300.0, 3000.0]]).T
    sizes = sizes[:3] if name == "ReduceLogSumExp" else sizes
    x = np.random.default_rng(0).random((1, sizes.size, 50)) + 0.5
    x = (x * sizes).astype(numpy_type)
    initializers = [onnx.numpy_helper.from_array(np.array(3, numpy_type), "exponent")]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "exponent"] if op == "Pow" else ["x"], ["y"], **attributes)],
        "model",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        initializers if op == "Pow" else [],
    )
    opset = [helper.make_opsetid("", 13 if op.startswith("Reduce") else 22)]
    y = tilewright.compile(helper.make_model(graph, opset_imports=opset, ir_version=10))(x)
    with np.errstate(over="ignore"):
        wanted = exact(x.astype(np.float64))
    assert units_off(y, wanted).max() <= 0.52
