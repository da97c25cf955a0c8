"""Operators that importers put together of several: on short floats they round once, at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

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


def _hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x * np.float32(0.2) + 0.5, 0, 1)


def _shrunk(x: np.ndarray) -> np.ndarray:
    bias = np.float64(np.float32(0.3))
    return np.where(x > 0.1, x - bias, np.where(x < -0.1, x + bias, 0))


def _instances(x: np.ndarray) -> np.ndarray:
    distance = x - x.mean(axis=-1, keepdims=True)
    return distance / np.sqrt((distance**2).mean(axis=-1, keepdims=True) + np.float32(1e-5))


@dataclass(frozen=True)
class Case:
    """`op(x, *others)` with its attributes; `exact` computes it in f64."""

    op: str
    exact: Callable[..., np.ndarray]
    attributes: dict[str, object] = field(default_factory=dict)
    others: tuple[np.ndarray, ...] = ()


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape)


PER_ROW = (_numbers(5) + 2, _numbers(5) / 7)
ROWS = (..., None)
TERMS = (_numbers(1, 5, 50), _numbers(1, 5, 50) * 100)

CASES: dict[str, Case] = {
    "ReduceL1": Case("ReduceL1", _norm(1), {"axes": [-1]}),
    "ReduceL2": Case("ReduceL2", _norm(2), {"axes": [-1]}),
    "ReduceLogSum": Case("ReduceLogSum", _sum(lambda x: x, np.log), {"axes": [-1]}),
    "ReduceLogSumExp": Case("ReduceLogSumExp", _sum(np.exp, np.log), {"axes": [-1]}),
    "ReduceSumSquare": Case("ReduceSumSquare", _sum(np.square), {"axes": [-1]}),
    "ReduceMean": Case("ReduceMean", lambda x: x.mean(axis=-1, keepdims=True), {"axes": [-1]}),
    "LpNormalization 1": Case("LpNormalization", _unit(1), {"axis": -1, "p": 1}),
    "LpNormalization 2": Case("LpNormalization", _unit(2), {"axis": -1, "p": 2}),
    "GlobalLpPool 2": Case("GlobalLpPool", _norm(2), {"p": 2}),
    "GlobalLpPool 3": Case("GlobalLpPool", _norm(3), {"p": 3}),
    "MeanVarianceNormalization": Case("MeanVarianceNormalization", _standardized, {"axes": [2]}),
    "InstanceNormalization": Case(
        "InstanceNormalization",
        lambda x, s, b: _instances(x) * s[ROWS] + b[ROWS],
        others=PER_ROW,
    ),
    "BatchNormalization": Case(
        "BatchNormalization",
        lambda x, s, b, m, v: (x - m[ROWS]) * s[ROWS] / np.sqrt(v[ROWS] + 1e-5) + b[ROWS],
        others=(*PER_ROW, _numbers(5), np.square(_numbers(5)) + 0.1),
    ),
    "Pow 3": Case("Pow", lambda x, n: x**n, others=(np.array(3.0),)),
    "HardSigmoid": Case("HardSigmoid", _hard_sigmoid),
    "HardSwish": Case("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "Softsign": Case("Softsign", lambda x: x / (1 + np.abs(x))),
    "Shrink": Case("Shrink", _shrunk, {"lambd": 0.1, "bias": 0.3}),
    "ThresholdedRelu": Case(
        "ThresholdedRelu", lambda x: np.where(x > np.float32(0.1), x, 0), {"alpha": 0.1}
    ),
    "Sum": Case("Sum", lambda *terms: sum(terms), others=TERMS),
    "Mean": Case("Mean", lambda *terms: sum(terms) / 3, others=TERMS),
    "Gemm": Case(
        "Gemm",
        lambda x, w, c: 0.5 * x @ w + 0.7 * c,
        {"alpha": 0.5, "beta": 0.7},
        (_numbers(50, 8), _numbers(8) * 30),
    ),
    "Conv": Case(
        "Conv",
        lambda x, w, c: w[..., 0] @ x + c[ROWS],
        others=(_numbers(4, 5, 1) / 100, _numbers(4) * 10),
    ),
    "ConvTranspose": Case(
        "ConvTranspose",
        lambda x, w, c: np.swapaxes(w[..., 0], 0, 1) @ x + c[ROWS],
        others=(_numbers(5, 4, 1) / 100, _numbers(4) * 10),
    ),
}
SIGNED = {"HardSigmoid", "HardSwish", "Softsign", "Shrink", "ThresholdedRelu"}


NOT_DEFINED = {("Shrink", "bf16")}  # ONNX has no such form


@pytest.mark.parametrize(
    "name,dtype", [c for c in itertools.product(CASES, TYPES) if c not in NOT_DEFINED]
)
def test_one_rounding(name: str, dtype: str):
    """Of rows whose squares, or sums, are beyond f16, and of such whose squares are too small."""
    case = CASES[name]
    kind, numpy_type = TYPES[dtype]
    sizes = np.array([[1e-4, 1.0, 30.0, 300.0, 3000.0]]).T
    sizes = sizes[:3] if name == "ReduceLogSumExp" else sizes
    x = np.random.default_rng(0).random((1, sizes.size, 50)) + 0.5
    x = (x * sizes * (-1) ** np.arange(50) if name in SIGNED else x * sizes).astype(numpy_type)
    x = x[0] if name == "Gemm" else x
    others = {f"other{i}": v.astype(numpy_type) for i, v in enumerate(case.others)}
    graph = helper.make_graph(
        [helper.make_node(case.op, ["x", *others], ["y"], **case.attributes)],
        "model",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [onnx.numpy_helper.from_array(v, n) for n, v in others.items()],
    )
    opset = [helper.make_opsetid("", 13 if case.op.startswith("Reduce") else 22)]
    y = tilewright.compile(helper.make_model(graph, opset_imports=opset, ir_version=10))(x)
    with np.errstate(over="ignore"):
        wanted = case.exact(*(v.astype(np.float64) for v in (x, *others.values())))
    assert units_off(y, wanted).max() <= 0.52
