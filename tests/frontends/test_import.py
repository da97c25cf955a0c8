"""Models that are fine: names, inputs, outputs, constants, symbols."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import FLOAT, INT64, compute, model, node, numbers, ops, refusal, tensor

from tilewright.frontends.onnx.load import import_model
from tilewright.ir.expr import Symbol
from tilewright.ir.text.graph import parse_graph
from tilewright.ops.table import OPS

RELU = node("Relu", ["x"], ["y"])


def test_a_path_bytes_or_a_model(tmp_path):
    source = model([RELU], {"x": (2, 3)})
    path = tmp_path / "m.onnx"
    onnx.save(source, path)
    graphs = [import_model(s) for s in (path, str(path), path.read_bytes(), source)]
    assert {str(g) for g in graphs} == {str(graphs[0])}


def test_what_a_graph_looks_like():
    gemm = node("Gemm", ["x", "w", "b"], ["h"], name="fc1", transB=1)
    constants = {"w": numbers(2, 3), "b": numbers(2)}
    graph = import_model(
        model([gemm, node("Relu", ["h"], ["y"])], {"x": ("N", 3)}, constants=constants)
    )
    assert str(graph) == GEMM


GEMM = """
def test(x: f32[N, 3]):
    N = symbol(0)
    constant: f32[3, 2] = constant([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    b: f32[2] = constant([0.0, 1.0])
    matmul: f32[N, 2] = matmul(x, constant, name="fc1")
    h: f32[N, 2] = add(matmul, b, name="fc1")
    y: f32[N, 2] = relu(h, name="Relu_1")
    return y
""".strip()


# ---------------------------------------------------------------- names


def test_names_are_the_models():
    nodes = [
        node("Relu", ["in.1"], ["in/1"]),
        node("Relu", ["in/1"], ["class"]),
        node("Relu", ["class"], ["0"]),
    ]
    graph = import_model(model(nodes, {"in.1": (2,)}, ["0"]))
    assert [v.name for v in graph.inputs] == ["in.1"]
    assert [n.outputs[0].name for n in graph.nodes] == ["in/1", "class", "0"]
    assert [v.name for v in graph.outputs] == ["0"]
    assert str(parse_graph(str(graph), OPS, {})) == str(graph)


def test_symbols_are_named_by_the_model():
    nodes = [node("Add", ["x", "x"], ["y"])]
    graph = import_model(model(nodes, {"x": ("batch size", "batch-size", None, 3)}))
    assert [str(d) for d in graph.inputs[0].shape] == ["batch_size", "batch_size_1", "x_2", "3"]
    assert graph.outputs[0].type == graph.inputs[0].type


def test_a_symbol_may_share_the_name_of_an_input():
    graph = import_model(model([RELU], {"x": ("x", "y")}))
    assert [str(d) for d in graph.inputs[0].shape] == ["x_1", "y_1"]


def test_nodes_are_named_as_in_the_model():
    nodes = [node("Relu", ["x"], ["a"], name="/layer.1/act"), node("HardSwish", ["a"], ["y"])]
    graph = import_model(model(nodes, {"x": (2,)}))
    assert list(dict.fromkeys(n.name for n in graph.nodes)) == ["/layer.1/act", "HardSwish_1"]


# ---------------------------------------------------------------- inputs and outputs


def test_initializers_that_are_inputs_too_are_constants():
    source = model(
        [node("Add", ["x", "w"], ["y"])], {"x": (2,), "w": (2,)}, constants={"w": numbers(2)}
    )
    assert [v.name for v in import_model(source).inputs] == ["x"]


def test_outputs_are_values_of_their_own():
    nodes = [node("Identity", ["x"], ["a"]), node("Identity", ["x"], ["b"])]
    source = model(nodes, {"x": (2,)}, ["a", "b", "w"], constants={"w": numbers(2)})
    graph = import_model(source)
    assert [v.name for v in graph.outputs] == ["a", "b", "w"]
    assert ops(graph) == ["identity"] * 3
    a, b, w = compute(source, numbers(2))
    np.testing.assert_array_equal([a, b, w], [[0, 1]] * 3)


def test_nodes_that_nobody_reads_are_left_out():
    nodes = [RELU, node("Exp", ["x"], ["unused"]), node("Shape", ["x"], ["unused too"])]
    assert ops(import_model(model(nodes, {"x": (2,)}))) == ["relu"]


def test_fixed_dimensions():
    source = model([RELU], {"x": ("N", "M", None)})
    graph = import_model(source, dims={"N": 4, "x_2": 7})
    assert graph.outputs[0].shape == (4, Symbol("M", 0), 7)
    assert refusal(source, dims={"K": 4}) == (
        "the model has no dimension called 'K'\n  hint: known: M, N, x_2"
    )
    source = model([RELU], {"x": ("a b", None)})
    for name in ("a b", "a_b"):
        assert import_model(source, dims={name: 4}).outputs[0].shape[0] == 4
    assert refusal(source, dims={"a b": -1}) == (
        "the dimension 'a b' was given as -1\n  hint: it must be 0 … 2147483647"
    )


def test_inputs_given_as_constants():
    nodes = [node("Reshape", ["x", "shape"], ["y"])]
    source = model(nodes, {"x": (2, 3), "shape": (INT64, (1,))})
    (y,) = compute(source, numbers(2, 3), constants={"shape": np.array([-1])})
    np.testing.assert_array_equal(y, np.arange(6))
    assert refusal(source, constants={"shape": np.array([1.0])}) == (
        "input 'shape' is i64[1], but was given as float64[1]"
    )
    assert refusal(source, constants={"shap": np.array([1])}) == (
        "the model has no input called 'shap'\n  hint: did you mean 'shape'?"
    )


# ---------------------------------------------------------------- constants

KINDS = {
    "value_int": 3,
    "value_ints": [1, 2],
    "value_float": 0.5,
    "value_floats": [0.5, 1.5],
    "value": tensor("t", numbers(2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_constant_nodes(kind):
    given = KINDS[kind]
    (y,) = compute(model([node("Constant", [], ["y"], **{kind: given})], {}))
    wanted = numbers(2) if kind == "value" else np.array(given)
    np.testing.assert_array_equal(y, wanted)


def test_constants_of_every_type():
    for number, dtype in (
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.DOUBLE, np.float64),
        (TensorProto.INT8, np.int8),
        (TensorProto.UINT64, np.uint64),
        (TensorProto.BOOL, np.bool_),
    ):
        for raw in (False, True):
            values = np.array([0, 1, 1], dtype)
            content = values.tobytes() if raw else values.tolist()
            proto = helper.make_tensor("t", number, [3], content, raw=raw)
            (y,) = compute(model([node("Constant", [], ["y"], value=proto)], {}))
            assert y.dtype == dtype
            np.testing.assert_array_equal(y, values)


def test_packed_constants():
    proto = helper.make_tensor("t", TensorProto.INT4, [3], [-8, 7, -1])
    (y,) = compute(model([node("Constant", [], ["y"], value=proto)], {}, opset=21))
    np.testing.assert_array_equal(y.astype(int), [-8, 7, -1])


def test_sparse_constants():
    for places in ([1, 5], [[0, 1], [1, 2]]):
        sparse = helper.make_sparse_tensor(
            helper.make_tensor("values", FLOAT, [2], [7.0, 8.0]),
            helper.make_tensor("places", INT64, np.shape(places), np.ravel(places)),
            [2, 3],
        )
        (y,) = compute(model([node("Constant", [], ["y"], sparse_value=sparse)], {}))
        np.testing.assert_array_equal(y, [[0, 7, 0], [0, 0, 8]])


def test_small_constants_are_kept_once():
    nodes = [node("HardSwish", ["x"], ["a"]), node("HardSwish", ["a"], ["y"])]
    graph = import_model(model(nodes, {"x": (2,)}))
    assert len(graph.constants) == 2
