"""ONNX's backend interface."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright import onnx_backend
from tilewright.base.errors import InputError, ModelError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def model_of(*nodes, inputs=(("x", TensorProto.FLOAT, ("n", 3)),), outputs=("y",), opset=18):
    infos = [helper.make_tensor_value_info(*i) for i in inputs]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(list(nodes), "model", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


RELU = helper.make_node("Relu", ["x"], ["y"])


def test_a_model_is_prepared_once_and_run_often():
    prepared = onnx_backend.prepare(model_of(RELU), threads=1)
    for x in (X, -X, X[:1]):
        for inputs in ([x], (x,), x, {"x": x}):
            outputs = prepared.run(inputs)
            np.testing.assert_array_equal(outputs[0], np.maximum(x, 0))
            np.testing.assert_array_equal(outputs["y"], outputs[0])


def test_a_model_is_run_at_once():
    nodes = [RELU, helper.make_node("Neg", ["x"], ["z"])]
    y, z = onnx_backend.run_model(model_of(*nodes, outputs=("y", "z")), [X], device="CPU:0")
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(z, -X)


def test_one_node():
    node = helper.make_node("Add", ["a", "b"], ["c"])
    (c,) = onnx_backend.run_node(node, [X, X[0]], opset_version=14)
    np.testing.assert_array_equal(c, X + X[0])
    node = helper.make_node("Mul", ["a", "a"], ["c"])
    np.testing.assert_array_equal(onnx_backend.run_node(node, X)["c"], X * X)


def test_inputs_that_set_shapes():
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = [("x", TensorProto.FLOAT, (2, 3)), ("shape", TensorProto.INT64, (1,))]
    prepared = onnx_backend.prepare(model_of(node, inputs=inputs), threads=1)
    for _ in range(2):
        assert prepared.run([X, np.array([6])])[0].shape == (6,)
        assert prepared.run([X, np.array([-1])])[0].shape == (6,)
    assert prepared.module.compiled == 2
    assert onnx_backend.is_compatible(model_of(node, inputs=inputs))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_numbers_that_set_shapes(dtype):
    """Range's operands, of any float type."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [(name, kind, ()) for name in ("start", "limit", "delta")]
    node = helper.make_node("Range", [name for name, *_ in inputs], ["y"])
    prepared = onnx_backend.prepare(model_of(node, inputs=inputs, opset=27), threads=1)
    (y,) = prepared.run([np.asarray(v, dtype) for v in (1, 6, 2)])
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(np.float32), [1, 3, 5])


def test_devices():
    assert onnx_backend.supports_device("CPU")
    assert onnx_backend.supports_device("CPU:0")
    for device in ("CUDA", "TPU", "CPU:x", ""):
        assert not onnx_backend.supports_device(device)
    assert not onnx_backend.is_compatible(model_of(RELU), device="CUDA")
    with pytest.raises(InputError) as caught:
        onnx_backend.prepare(model_of(RELU), device="CUDA")
    assert str(caught.value) == (
        "there is no device 'CUDA' here\n"
        '  hint: models run on "CPU"; compile for other targets with tilewright.compile'
    )


def test_models_that_cannot_be():
    broken = model_of(helper.make_node("NoSuchOp", ["x"], ["y"]))
    assert not onnx_backend.is_compatible(broken)
    with pytest.raises(ModelError):
        onnx_backend.prepare(broken)


def test_inputs_that_do_not_fit():
    prepared = onnx_backend.prepare(model_of(RELU), threads=1)
    with pytest.raises(InputError) as caught:
        prepared.run([X, X])
    assert str(caught.value) == (
        "the model takes 1 inputs and was given 2\n  hint: its inputs are x"
    )
    with pytest.raises(InputError) as caught:
        prepared.run({})
    assert str(caught.value) == "missing input: 'x'"
    with pytest.raises(InputError) as caught:
        onnx_backend.run_node(RELU, [X, X])
    assert str(caught.value) == "Relu has 1 inputs and was given 2"
    assert onnx.__version__
