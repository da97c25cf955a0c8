"""Scales that are no powers of two, in whole numbers: all of a range, against the graph."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.dtype import f32
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.optimize.fold_constants import fold_constants
from tilewright.optimize.use_integers import use_integers
from tilewright.options import Options
from tilewright.program.host_program import Submit
from tilewright.targets.vta import vta


def quantised(middle, shape, scales, half_up=True, **more):
    """x -> int8 -> float -> `middle` -> int8, as a graph of which the integers are the input, with
    `more` constants."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s0", "z"], ["f"]),
        *middle,
        helper.make_node("QuantizeLinear", ["m", "s1", "z"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.int8(0), "z")]
    for k, scale in enumerate(scales):
        constants.append(numpy_helper.from_array(np.float32(scale), f"s{k}"))
    for name, value in more.items():
        array = value if isinstance(value, np.ndarray) and value.dtype == np.int8 else None
        array = np.asarray(value, np.float32) if array is None else array
        constants.append(numpy_helper.from_array(array, name))
    graph = helper.make_graph(
        nodes, "model",
        [helper.make_tensor_value_info("x", TensorProto.INT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, None)],
        constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return fold_constants(import_model(model.SerializeToString(), half_up=half_up)), model


def names(graph):
    return [n.op.name for n in graph.nodes]


@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    up=st.integers(-3, 3),
    half_up=st.booleans(),
)
@example((7, 7), 0, True)
@example((3, 5), 2, False)
def test_means_are_sums_in_fixed_point(size, up, half_up):
    mean = [helper.make_node("GlobalAveragePool", ["f"], ["m"])]
    shape = (1, 256, *size)
    graph, _ = quantised(mean, shape, [0.5, 0.5 * 2.0**up], half_up)
    after = use_integers(graph)
    assume("reduce_mean" not in names(after))
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    x[0] = np.arange(-128, 128).reshape(256, 1, 1)  # the ends
    x[0, ::3, 0] += 1
    for array in (x, np.full_like(x, -128), np.full_like(x, 127)):
        np.testing.assert_array_equal(
            evaluate_graph(after, [array])[0], evaluate_graph(graph, [array])[0]
        )


SCALES = st.integers(1, 10**6).map(lambda n: n / 1000)


@given(scales=st.tuples(SCALES, SCALES))
@example((0.1, 0.3))
@example((0.0078125, 0.25))
def test_other_scales_of_bytes(scales):
    """One step of element-wise arithmetic: all 256 numbers."""
    step = [helper.make_node("Relu", ["f"], ["m"])]
    graph, _ = quantised(step, (256,), scales)
    x = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(
        evaluate_graph(use_integers(graph), [x])[0], evaluate_graph(graph, [x])[0]
    )


def squashed(name, **more):
    return [helper.make_node(name, ["f"], ["m"], **more)]


@given(down=st.integers(3, 7), up=st.integers(-2, 1), half_up=st.booleans())
@example(4, 0, True)
def test_hard_swish_is_a_product_with_a_gate(down, up, half_up):
    """x * clip(x / 6 + 1 / 2, 0, 1) of all 256 numbers, without floats where scales are powers of
    two and halves go up."""
    scales = [2.0**-down, 2.0 ** (up - down)]
    graph, _ = quantised(squashed("HardSwish"), (256,), scales, half_up)
    after = use_integers(graph)
    assert not half_up or all(v.dtype != f32 for n in after.nodes for v in n.outputs)
    x = np.arange(-128, 128).astype(np.int8)
    found, want = (evaluate_graph(g, [x])[0] for g in (after, graph))
    np.testing.assert_array_equal(found, want)


@given(
    scales=st.tuples(SCALES, SCALES),
    alpha=st.floats(-2, 2, width=32),
    beta=st.floats(-2, 2, width=32),
    first=st.booleans(),
)
@example((0.1, 0.03), 0.25, 0.5, True)
@example((0.1, 0.03), -0.25, 0.5, False)
@example((0.5, 1.0), 1.0, 0.0, True)
def test_products_with_gates_are_the_same_numbers(scales, alpha, beta, first):
    operands = ["f", "g"] if first else ["g", "f"]
    gate = helper.make_node("HardSigmoid", ["f"], ["g"], alpha=alpha, beta=beta)
    graph, _ = quantised([gate, helper.make_node("Mul", operands, ["m"])], (256,), scales)
    x = np.arange(-128, 128).astype(np.int8)
    found, want = (evaluate_graph(g, [x])[0] for g in (use_integers(graph), graph))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Relu", ["f"], ["r"]), helper.make_node("Mul", ["f", "r"], ["m"])],
        [helper.make_node("Mul", ["f", "f"], ["m"])],
    ],
    ids=["x * relu(x)", "x * x"],
)
def test_squares(nodes):
    graph, _ = quantised(nodes, (256,), (0.05, 0.7))
    after = use_integers(graph)
    assert all(v.dtype != f32 for n in after.nodes for v in n.outputs)
    x = np.arange(-128, 128).astype(np.int8)
    found, want = (evaluate_graph(g, [x])[0] for g in (after, graph))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    "attrs,kept",
    [
        ({"kernel_shape": [3, 3], "strides": [2, 2]}, False),
        ({"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 1}, False),
        ({"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, True),  # windows of several sizes
        ({"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, True),
    ],
)
def test_averages_of_windows(attrs, kept):
    pool = [helper.make_node("AveragePool", ["f"], ["m"], **attrs)]
    graph, _ = quantised(pool, (1, 16, 8, 8), [0.5, 0.25])
    after = use_integers(graph)
    assert ("average_pool" in names(after)) == kept
    x = np.random.default_rng(0).integers(-128, 128, (1, 16, 8, 8)).astype(np.int8)
    np.testing.assert_array_equal(evaluate_graph(after, [x])[0], evaluate_graph(graph, [x])[0])


@pytest.mark.parametrize("op", ["GlobalAveragePool", "AveragePool", "HardSwish"])
def test_a_chip_takes_averages_and_gates(op):
    """On VTA: the sum on the ALU, or windows on the matrix unit, then a product and a shift."""
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2]} if op == "AveragePool" else {}
    graph, model = quantised(
        [helper.make_node(op, ["f"], ["m"], **attrs)], (1, 32, 9, 9), [0.5, 0.25]
    )
    options = Options(rounding="half_up", cache=False)
    module = tilewright.compile(model, target={"npu": vta(), "host": "host"}, options=options)
    assert [s.nodes for s in module.program.host.steps if isinstance(s, Submit)]
    x = np.random.default_rng(0).integers(-128, 128, (1, 32, 9, 9)).astype(np.int8)
    np.testing.assert_array_equal(module(x), evaluate_graph(graph, [x])[0])


def test_zeros_around_a_picture_are_numbers_of_the_range():
    """Between the limits of what is inside no sum of the corners lies."""
    nodes = [
        helper.make_node("Clip", ["f", "least", "most"], ["c"]),
        helper.make_node(
            "AveragePool", ["c"], ["m"], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
        ),
    ]
    graph, _ = quantised(nodes, (1, 16, 5, 5), [0.5, 0.5], least=32.0, most=60.0)
    after = use_integers(graph)
    assert "average_pool" not in names(after)
    x = np.random.default_rng(0).integers(64, 128, (1, 16, 5, 5)).astype(np.int8)
    np.testing.assert_array_equal(evaluate_graph(after, [x])[0], evaluate_graph(graph, [x])[0])


@pytest.mark.parametrize("factor", [np.full((1, 1, 1), 0.1), 1.1e18, 1.1e30])
def test_numbers_that_are_no_plain_factor(factor):
    """One that adds axes, and those beyond i32."""
    step = [helper.make_node("Mul", ["f", "k"], ["m"])]
    graph, _ = quantised(step, (256,), [0.5, 1.0], k=factor)
    x = np.arange(-128, 128).astype(np.int8)
    found = evaluate_graph(use_integers(graph), [x])[0]
    np.testing.assert_array_equal(found, evaluate_graph(graph, [x])[0])
    assert found.shape == graph.outputs[0].shape


@pytest.mark.parametrize("half_up", [True, False])
@pytest.mark.parametrize("exponent", [-29, -31, -32, -33, -40])
def test_shifts_as_long_as_a_register(exponent, half_up):
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "fine", "z"], ["weights"]),
        helper.make_node("MatMul", ["f", "weights"], ["m"]),
    ]
    weights = np.random.default_rng(0).integers(-128, 128, (16, 16)).astype(np.int8)
    graph, _ = quantised(nodes, (8, 16), [1.0, 1.0], half_up, w=weights, fine=2.0**exponent)
    x = np.random.default_rng(1).integers(-128, 128, (8, 16)).astype(np.int8)
    np.testing.assert_array_equal(
        evaluate_graph(use_integers(graph), [x])[0], evaluate_graph(graph, [x])[0]
    )
