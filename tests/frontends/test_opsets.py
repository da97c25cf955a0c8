"""Operators whose meaning or form changed with the opset."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import compute, model, node, numbers, ops, refusal

from tilewright.frontends.onnx.load import import_model


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("opset", [9, 13])
def test_softmax_over_one_axis_or_all_that_follow(opset):
    x = numbers(2, 3, 4) / 10
    (y,) = compute(model([node("Softmax", ["x"], ["y"], axis=1)], {"x": (2, 3, 4)}, opset=opset), x)
    wanted = softmax(x, 1) if opset == 13 else softmax(x.reshape(2, 12), 1).reshape(x.shape)
    np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_softmax_of_the_last_axis_by_default():
    x = numbers(2, 3, 4) / 10
    (y,) = compute(model([node("Softmax", ["x"], ["y"])], {"x": (2, 3, 4)}), x)
    np.testing.assert_allclose(y, softmax(x, -1), rtol=1e-6)


@pytest.mark.parametrize("opset", [12, 13])
def test_attributes_that_became_inputs(opset):
    x = numbers(2, 1, 3)
    cases = {
        "Squeeze": ([1], x[:, 0]),
        "Unsqueeze": ([0], x[None]),
        "ReduceSum": ([2], x.sum(2, keepdims=True)),
    }
    for name, (axes, wanted) in cases.items():
        if opset < 13:
            source = model([node(name, ["x"], ["y"], axes=axes)], {"x": x.shape}, opset=opset)
        else:
            one, constants = node(name, ["x", "axes"], ["y"]), {"axes": np.array(axes)}
            source = model([one], {"x": x.shape}, constants=constants, opset=opset)
        np.testing.assert_array_equal(compute(source, x)[0], wanted)


@pytest.mark.parametrize("opset", [7, 11])
def test_clip(opset):
    if opset < 11:
        source = model([node("Clip", ["x"], ["y"], min=1.0)], {"x": (4,)}, opset=opset)
    else:
        clip, constants = node("Clip", ["x", "low"], ["y"]), {"low": np.float32(1)}
        source = model([clip], {"x": (4,)}, constants=constants, opset=opset)
    np.testing.assert_array_equal(compute(source, numbers(4))[0], [1, 1, 2, 3])


def test_clip_by_values_that_are_computed():
    nodes = [node("Exp", ["m"], ["low"]), node("Clip", ["x", "low"], ["y"])]
    (y,) = compute(model(nodes, {"x": (4,), "m": ()}), numbers(4), np.float32(0))
    np.testing.assert_array_equal(y, [1, 1, 2, 3])


@pytest.mark.parametrize("opset", [9, 10])
def test_slice(opset):
    x = numbers(4, 5)
    if opset < 10:
        cut = node("Slice", ["x"], ["y"], axes=[1], starts=[-3], ends=[100])
        source = model([cut], {"x": x.shape}, opset=opset)
    else:
        names = {"s": [-3], "e": [100], "a": [1], "t": [2]}
        cut = node("Slice", ["x", *names], ["y"])
        constants = {k: np.array(v) for k, v in names.items()}
        source = model([cut], {"x": x.shape}, constants=constants, opset=opset)
    np.testing.assert_array_equal(compute(source, x)[0], x[:, -3 :: 1 if opset < 10 else 2])


@pytest.mark.parametrize("opset", [10, 11])
def test_pad(opset):
    x = numbers(2, 2)
    if opset < 11:
        pad = node("Pad", ["x"], ["y"], pads=[0, 1, 0, -1], value=9.0)
        source = model([pad], {"x": x.shape}, opset=opset)
    else:
        constants = {"p": np.array([0, 1, 0, -1]), "v": np.float32(9)}
        source = model(
            [node("Pad", ["x", "p", "v"], ["y"])], {"x": x.shape}, constants=constants, opset=opset
        )
    np.testing.assert_array_equal(compute(source, x)[0], [[9, 0], [9, 2]])


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_split(opset):
    x = numbers(4)
    attributes = {"split": [3, 1]} if opset < 13 else {}
    inputs = ["x"] if opset < 13 else ["x", "sizes"]
    constants = {} if opset < 13 else {"sizes": np.array([3, 1])}
    split = node("Split", inputs, ["y", "z"], **attributes)
    source = model([split], {"x": (4,)}, ["y", "z"], constants=constants, opset=opset)
    assert [a.tolist() for a in compute(source, x)] == [[0, 1, 2], [3]]


def test_uneven_splits():
    split = node("Split", ["x"], ["a", "b"], num_outputs=2)
    a, b = compute(model([split], {"x": (5,)}, ["a", "b"]), numbers(5))
    assert (a.size, b.size) == (3, 2)


def test_batch_normalization_is_a_product_and_a_sum():
    constants = {
        k: np.array([v, v + 1], np.float32) for k, v in zip("sbmv", (1, 2, 3, 4), strict=True)
    }
    batch = node("BatchNormalization", ["x", *"sbmv"], ["y"])
    for opset in (7, 9, 14, 15):
        source = model([batch], {"x": (1, 2, 3)}, constants=constants, opset=opset)
        assert ops(import_model(source)) == ["mul", "add"]
        x = numbers(1, 2, 3)
        s, b, m, v = (constants[k][:, None] for k in "sbmv")
        wanted = (x - m) / np.sqrt(v + 1e-5) * s + b
        np.testing.assert_allclose(compute(source, x)[0], wanted, rtol=1e-5)


def test_resize_of_the_first_form():
    resize, constants = node("Resize", ["x", "s"], ["y"]), {"s": np.array([1, 2], np.float32)}
    source = model([resize], {"x": (1, 3)}, constants=constants, opset=10)
    np.testing.assert_array_equal(compute(source, numbers(1, 3))[0], [[0, 0, 1, 1, 2, 2]])


def test_resize_of_a_symbolic_size():
    resize = node("Resize", ["x", "", "s"], ["y"], nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")  # fmt: skip
    constants = {"s": np.array([1, 2], np.float32)}
    source = model([resize], {"x": (1, "W")}, constants=constants)
    np.testing.assert_array_equal(compute(source, numbers(1, 3))[0], [[0, 0, 1, 1, 2, 2]])


# ---------------------------------------------------------------- before opset 7


def test_broadcasting_by_attributes():
    add = node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)
    source = model([add], {"x": (2, 3, 4)}, constants={"b": numbers(3)}, opset=6)
    x = numbers(2, 3, 4)
    np.testing.assert_array_equal(compute(source, x)[0], x + numbers(3)[:, None])


def test_shapes_that_differ_without_broadcast():
    add = node("Add", ["x", "b"], ["y"])
    assert refusal(model([add], {"x": (2, 3), "b": (3,)}, opset=6)) == (
        "operator Add (node 'Add_0', opset 6): f32[2, 3] and f32[3] differ in shape, "
        "without broadcast=1\n"
        "  hint: check the model with onnx.checker.check_model(full_check=True)"
    )


def test_training_forms():
    drop = node("Dropout", ["x"], ["y"])
    assert refusal(model([drop], {"x": (2,)}, opset=6)) == (
        "operator Dropout (node 'Dropout_0', opset 6): it is in training mode (is_test=0)\n"
        "  hint: export the model for inference"
    )
    assert ops(import_model(model([drop], {"x": (2,)}, opset=7))) == ["identity"]


def test_forms_that_are_too_old():
    reshape = node("Reshape", ["x"], ["y"], shape=[4])
    assert refusal(model([reshape], {"x": (2, 2)}, opset=1)) == (
        "operator Reshape (node 'Reshape_0', opset 1): its form of opset 1 is not supported\n"
        "  hint: convert the model to opset 7 or later"
    )


def test_operators_of_another_opset():
    assert refusal(model([node("Gelu", ["x"], ["y"])], {"x": (2,)}, opset=13)) == (
        "operator Gelu (node 'Gelu_0', opset 13): this opset does not have the operator\n"
        "  hint: the model was written for another opset: "
        "convert it with onnx.version_converter"
    )


def test_an_opset_of_the_future():
    assert refusal(model([node("Relu", ["x"], ["y"])], {"x": (2,)}, opset=999)).startswith(
        "the model is written for opset 999, which is newer than the installed onnx\n"
        "  hint: convert it to opset 1 … "
    )


# ---------------------------------------------------------------- types


def test_casts_to_small_types():
    x = np.array([1000, -1000, 0.3, np.nan], np.float32)
    cast = node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)
    (y,) = compute(model([cast], {"x": (4,)}, opset=19), x)
    np.testing.assert_array_equal(y.astype(np.float32), [448, -448, 0.3125, np.nan])
    cast = node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN, saturate=0)
    (y,) = compute(model([cast], {"x": (4,)}, opset=19), x)
    np.testing.assert_array_equal(y.astype(np.float32), [np.nan, np.nan, 0.3125, np.nan])


def test_pow_of_two_types():
    power = node("Pow", ["x", "e"], ["y"])
    source = model([power], {"x": (TensorProto.INT32, (3,))}, constants={"e": np.float32(0.5)})
    (y,) = compute(source, np.array([4, 9, 10], np.int32))
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, [2, 3, 3])


def test_squares_are_products():
    for exponent, wanted in ((2.0, "mul"), (0.5, "pow"), (3.0, "pow")):
        power = node("Pow", ["x", "e"], ["y"])
        source = model([power], {"x": (3,)}, constants={"e": np.float32(exponent)})
        assert ops(import_model(source)) == [wanted]


def test_a_weight_is_transposed_while_importing():
    constants = {k: np.zeros(s, np.float32) for k, s in {"W": (1, 8, 3), "R": (1, 8, 2)}.items()}
    layer = node("LSTM", ["x", "W", "R"], ["y"], hidden_size=2)
    graph = import_model(model([layer], {"x": (5, 1, 3)}, constants=constants))
    assert "transpose" not in ops(graph)
    assert [v.shape for v in graph.constants] == [(3, 8), (2, 8)]
    assert ops(graph).count("matmul") == 1


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64, TensorProto.UINT64])
def test_logarithms_of_sums_of_integers(kind):
    """Valid until opset 24; the value without its fraction."""
    x = np.array([[1, 2, 3], [100, 200, 300]], helper.tensor_dtype_to_np_dtype(kind))
    wanted = {"ReduceLogSum": [1, 6], "ReduceLogSumExp": [3, 300], "ReduceL2": [3, 374]}
    for op, values in wanted.items():
        one = node(op, ["x", "axes"], ["y"], keepdims=0)
        source = model([one], {"x": (kind, x.shape)}, constants={"axes": np.array([1])})
        (y,) = compute(source, x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, values)
