"""Activations where they are steep, flat, or nearly 0; normalisation of numbers far from 0. The
references are f64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from function_cases import units_off

import tilewright
from tilewright.base.dtype import from_numpy
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.table import OPS
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu_tanh(x):
    return x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {  # attributes, the function, and how far off in units: at most 4 where 0 is
    "softplus": ({}, _softplus, 2.5),
    "mish": ({}, lambda x: x * np.tanh(_softplus(x)), 4),
    "elu": ({"alpha": 1.0}, lambda x: np.where(x < 0, np.expm1(x), x), 2),
    "celu": ({"alpha": 1.0}, lambda x: np.where(x < 0, np.expm1(x), x), 2),
    "sigmoid": ({}, lambda x: 1 / (1 + np.exp(-x)), 2),
}


def run(name, attrs, *arrays):
    """The operator's result, by machine code."""
    op = OPS[name]
    values = op.make_attrs(**attrs)
    inputs = tuple(
        Value(f"x{k}", TensorType(from_numpy(a.dtype), a.shape)) for k, a in enumerate(arrays)
    )
    (kind,) = op.infer(values, [v.type for v in inputs])
    output = Value("y", kind)
    node = GraphNode(op, values, inputs, (output,), "node")
    graph = Graph("test", inputs, (output,), (node,), {})
    return tilewright.compile(graph, target=HOST)(*arrays)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=str)
def test_activations(name, dtype):
    attrs, exact, units = ACTIVATIONS[name]
    x = np.linspace(-80, 80, 20011).astype(np.float32)
    x = np.concatenate([x, x / 16, x / 1000, x * 1e-6]).astype(dtype)
    found = run(name, attrs, x)
    off = units_off(found, exact(x.astype(np.float64)))
    k = int(off.argmax())
    assert off[k] <= (units if dtype == np.float32 else 0.501), f"{x[k]}: {found[k]}"


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu(tanh):
    """Within 2**-22 of x, and nowhere of the wrong sign, however far out."""
    x = np.concatenate([np.linspace(-30, 30, 60000), [-1e5, 1e5, -3e38, 3e38]]).astype(np.float32)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = _gelu_tanh(wide) if tanh else wide * _erfc(-wide / np.sqrt(2)) / 2
        found = run("gelu", {"tanh": tanh}, x)
    assert (np.abs(found - exact) / np.abs(wide)).max() <= 2.0**-22
    assert (found[x < 0] <= 0).all()
    assert found[-2] == 0
    assert found[-1] == x[-1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16], ids=str)
@pytest.mark.parametrize("tanh", [False, True])
def test_gelu_of_infinities(tanh, dtype):
    """Its limits: 0 times infinity would be NaN."""
    found = run("gelu", {"tanh": tanh}, np.array([-np.inf, np.inf, np.nan], dtype))
    np.testing.assert_array_equal(found, np.array([0, np.inf, np.nan], dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=str)
def test_gelu_far_below_0(dtype):
    """By its size, not x's: nothing cancels where erf is nearly -1."""
    x = np.linspace(-15, 6, 40011).astype(dtype)
    wide = x.astype(np.float64)
    off = units_off(run("gelu", {}, x), wide * _erfc(-wide / np.sqrt(2)) / 2)
    bound = 8 + 1.5 * wide**2 if dtype == np.float32 else np.full(x.shape, 0.51)
    k = int((off / bound).argmax())
    assert off[k] <= bound[k], f"{x[k]}: off by {off[k]}"


@pytest.mark.parametrize("name, attrs", [("layer_norm", {}), ("standardize", {"axes": (1,)})])
def test_a_mean_far_from_zero_costs_nothing(name, attrs):
    """A mean of 1000 beside a deviation of 0.1: the mean's rounding would show as 3e-4."""
    x = (1000 + 0.1 * np.random.default_rng(0).standard_normal((8, 768))).astype(np.float32)
    more = [np.ones(768, np.float32)] if name == "layer_norm" else []
    found = run(name, attrs, x, *more)
    wide = x.astype(np.float64)
    mean, variance = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
    np.testing.assert_allclose(found, (wide - mean) / np.sqrt(variance + 1e-5), atol=2e-6)


def test_equal_numbers_have_no_deviation():
    x = np.full((2, 100), 1000.1, np.float32)
    np.testing.assert_allclose(run("standardize", {"axes": (1,), "epsilon": 1e-5}, x), 0, atol=1e-3)
