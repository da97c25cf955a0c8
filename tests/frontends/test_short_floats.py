"""Operators that importers put together of several: on short floats they round once, at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
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


def computed(
    op: str, x: np.ndarray, others: Sequence[np.ndarray], opset: int, **attributes: object
) -> np.ndarray:
    """The operator's first result, compiled, with all operands but the first constant."""
    kinds = {np.dtype(t): kind for kind, t in TYPES.values()}
    kind = kinds.get(x.dtype, onnx.TensorProto.FLOAT)
    names = [f"other{i}" for i in range(len(others))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)],
        "model",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.UNDEFINED, None)],
        [onnx.numpy_helper.from_array(v, n) for n, v in zip(names, others, strict=True)],
    )
    opsets = [helper.make_opsetid("", opset)]
    return tilewright.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10))(x)


NOT_DEFINED = {("Shrink", "bf16")}  # ONNX has no such form


@pytest.mark.parametrize(
    "name,dtype", [c for c in itertools.product(CASES, TYPES) if c not in NOT_DEFINED]
)
def test_one_rounding(name: str, dtype: str):
    """Of rows whose squares, or sums, are beyond f16, and of such whose squares are too small."""
    case = CASES[name]
    numpy_type = TYPES[dtype][1]
    sizes = np.array([[1e-4, 1.0, 30.0, 300.0, 3000.0]]).T
    sizes = sizes[:3] if name == "ReduceLogSumExp" else sizes
    x = np.random.default_rng(0).random((1, sizes.size, 50)) + 0.5
    x = (x * sizes * (-1) ** np.arange(50) if name in SIGNED else x * sizes).astype(numpy_type)
    x = x[0] if name == "Gemm" else x
    others = [v.astype(numpy_type) for v in case.others]
    opset = 13 if case.op.startswith("Reduce") else 22
    y = computed(case.op, x, others, opset, **case.attributes)
    with np.errstate(over="ignore"):
        wanted = case.exact(*(v.astype(np.float64) for v in (x, *others)))
    assert units_off(y, wanted).max() <= 0.52


def test_one_rounding_of_a_transform():
    x = _numbers(1, 60, 1).astype(np.float16)
    y = computed("DFT", x, [np.array(60), np.array(1)], 20)
    wanted = np.fft.fft(x[..., 0].astype(np.float64))
    assert units_off(y, np.stack([wanted.real, wanted.imag], -1)).max() <= 0.52


def test_one_rounding_of_windows_transformed():
    x, window = _numbers(1, 60).astype(np.float16), (_numbers(20) + 2).astype(np.float16)
    y = computed("STFT", x, [np.array(10), window], 17)
    frames = np.stack([x[0, i : i + 20] for i in range(0, 41, 10)]).astype(np.float64)
    wanted = np.fft.rfft(frames * window.astype(np.float64))
    assert units_off(y[0], np.stack([wanted.real, wanted.imag], -1)).max() <= 0.52


def test_one_rounding_with_a_scale_of_another_type():
    x, scale = _numbers(4, 50).astype(np.float32), (_numbers(50) + 2).astype(np.float16)
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale
    assert units_off(computed("RMSNormalization", x, [scale], 23), wanted).max() <= 0.52


def test_one_rounding_of_the_batch_s_statistics():
    x = _numbers(2, 3, 50).astype(np.float16)
    others = [(_numbers(3) + k).astype(np.float16) for k in (2, 0, 0, 3)]
    wide, axes = x.astype(np.float64), (0, 2)
    distance = wide - wide.mean(axes, keepdims=True)
    normal = distance / np.sqrt((distance**2).mean(axes, keepdims=True) + 1e-5)
    scale, bias = (v.astype(np.float64)[:, None] for v in others[:2])
    y = computed("BatchNormalization", x, others, 15, training_mode=1)
    assert units_off(y, normal * scale + bias).max() <= 0.52
