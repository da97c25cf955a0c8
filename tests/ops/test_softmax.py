"""Softmax: what is far below the largest element is 0, and never a subnormal number."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph

LEAST = {np.float32: 87.33, np.float64: 708.39, np.float16: 87.33, ml_dtypes.bfloat16: 87.33}


def softmax(x: np.ndarray) -> list[np.ndarray]:
    """By machine code and by the interpreter."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = helper.make_tensor_value_info("x", kind, x.shape)
    made = helper.make_tensor_value_info("y", kind, x.shape)
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (meant,) = evaluate_graph(import_model(model), [x])
    return [tilewright.compile(model)(x), meant]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_terms_are_normal_or_0(dtype):
    """Of 37 elements, so that the last vector is another one."""
    least = LEAST[dtype]
    below = np.linspace(least + 0.01, least + 40, 12)
    above = np.linspace(least - 0.01, 0, 24)
    x = np.array([[*above, *below, np.inf]]).astype(dtype) * -1
    for found in softmax(x):
        found = found[0]
        assert not found[24:].any()
        assert (found[:24] * 3 >= np.finfo(dtype).tiny).all()
        exact = np.exp(x[0, :24].astype(np.longdouble))
        np.testing.assert_allclose(found[:24], exact / exact.sum(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_short_floats_are_rounded_once(dtype):
    x = np.array([[0, -5, -10, -87, -88, -200, -np.inf]]).astype(dtype)
    exact = np.exp(x.astype(np.float64))
    wanted = (exact / exact.sum()).astype(np.float32).astype(dtype)
    for found in softmax(x):
        assert not found[0, 4:].any()
        np.testing.assert_array_equal(found[0, :4], wanted[0, :4])


def test_rows_without_a_largest_element():
    x = np.zeros((4, 20), np.float32)
    x[0, 3], x[1], x[2, 5] = np.nan, -np.inf, np.inf
    for found in softmax(x):
        assert np.isnan(found[:2]).all()
        assert np.isnan(found[2, 5])
        np.testing.assert_array_equal(found[3], np.float32(1) / np.float32(20))
