"""Shape arithmetic in the graph, which is done while importing: with numbers and with symbols."""

import numpy as np
import pytest
from onnx_models import FLOAT, INT64, compute, model, node, numbers, ops, refusal, tensor

from tilewright.frontends.onnx.load import import_model
from tilewright.ir.expr import Symbol


def constant(name, value):
    return node("Constant", [], [name], value_ints=value if isinstance(value, list) else [value])


def scalar(name, value):
    return node("Constant", [], [name], value_int=value)


def heads(*, opset=18):
    """x[N, S, 12] to [N, S, 3, 4], as exporters write it."""
    return [
        node("Shape", ["x"], ["shape"]),
        scalar("zero", 0),
        scalar("one", 1),
        node("Gather", ["shape", "zero"], ["n"]),
        node("Gather", ["shape", "one"], ["s"]),
        constant("axis", 0),
        constant("three", 3),
        constant("rest", -1),
        node("Unsqueeze", ["n", "axis"], ["n1"]),
        node("Unsqueeze", ["s", "axis"], ["s1"]),
        node("Concat", ["n1", "s1", "three", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]


@pytest.mark.parametrize("shape", [(2, 5, 12), ("N", 5, 12), ("N", "S", 12)])
def test_a_reshape_by_a_computed_shape(shape):
    source = model(heads(), {"x": shape})
    graph = import_model(source)
    assert ops(graph) == ["reshape"]
    n, s = graph.inputs[0].shape[:2]
    assert graph.outputs[0].shape == (n, s, 3, 4)
    x = numbers(2, 5, 12)
    np.testing.assert_array_equal(compute(source, x)[0], x.reshape(2, 5, 3, 4))


def test_arithmetic_on_symbols():
    nodes = [
        node("Shape", ["x"], ["n"]),
        constant("two", 2),
        constant("three", 3),
        node("Mul", ["n", "two"], ["a"]),
        node("Add", ["a", "three"], ["b"]),
        node("Sub", ["b", "n"], ["c"]),
        node("Cast", ["c"], ["d"], to=FLOAT),
        node("Floor", ["d"], ["e"]),
        node("Cast", ["e"], ["f"], to=INT64),
        node("ConstantOfShape", ["f"], ["y"]),
    ]
    graph = import_model(model(nodes, {"x": ("N",)}))
    assert [str(d) for d in graph.outputs[0].shape] == ["N + 3"]


def test_expand_with_minus_one_replaced():
    """The chain that PyTorch writes for expand: Where(shape == -1, ones, shape)."""
    nodes = [
        node("Shape", ["x"], ["n"]),
        constant("one", 1),
        constant("minus", -1),
        node("Concat", ["n", "one"], ["wanted"], axis=0),
        node("Equal", ["wanted", "minus"], ["keeps"]),
        node("Where", ["keeps", "one", "wanted"], ["target"]),
        constant("axis", 1),
        node("Unsqueeze", ["x", "axis"], ["column"]),
        node("Expand", ["column", "target"], ["y"]),
    ]
    graph = import_model(model(nodes, {"x": ("N",)}))
    assert [str(d) for d in graph.outputs[0].shape] == ["N", "1"]


def test_a_table_cut_at_a_symbol_bounds_the_symbol():
    nodes = [
        node("Shape", ["x"], ["n"]),
        constant("zero", 0),
        node("Slice", ["table", "zero", "n"], ["rows"]),
        node("Add", ["rows", "x"], ["y"]),
    ]
    graph = import_model(model(nodes, {"x": ("N",)}, constants={"table": numbers(512)}))
    assert graph.symbols() == (Symbol("N", 0, 512),)
    assert graph.outputs[0].shape == (Symbol("N", 0, 512),)


def test_a_window_bounds_a_symbol_from_below():
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[4, 4])
    graph = import_model(model([pool], {"x": (1, 1, "H", 8)}))
    assert graph.symbols() == (Symbol("H", 3),)  # no place at all is still a tensor
    assert [str(d) for d in graph.outputs[0].shape] == ["1", "1", "H + -3", "5"]


def test_truncating_a_symbol():
    nodes = [constant("zero", 0), constant("four", 4), node("Slice", ["x", "zero", "four"], ["y"])]
    source = model(nodes, {"x": ("N",)})
    assert [str(d) for d in import_model(source).outputs[0].shape] == ["min(4, N)"]
    for n in (3, 9):
        np.testing.assert_array_equal(compute(source, numbers(n))[0], numbers(n)[:4])


@pytest.mark.parametrize("cut", [(1, 2**62), (-1, 2**62), (0, -1), (-(2**62), 2**62)])
def test_slices_of_a_symbol(cut):
    nodes = [constant("a", cut[0]), constant("b", cut[1]), node("Slice", ["x", "a", "b"], ["y"])]
    x = numbers(6)
    np.testing.assert_array_equal(compute(model(nodes, {"x": ("N",)}), x)[0], x[slice(*cut)])


def test_backwards_slices_of_a_symbol():
    nodes = [
        constant("a", -1),
        constant("b", -(2**62)),
        constant("axes", 0),
        constant("steps", -2),
        node("Slice", ["x", "a", "b", "axes", "steps"], ["y"]),
    ]
    for n in (5, 6):
        x = numbers(n)
        np.testing.assert_array_equal(compute(model(nodes, {"x": ("N",)}), x)[0], x[::-2])


def test_range_to_a_symbol():
    nodes = [
        node("Shape", ["x"], ["n"]),
        constant("axis", 0),
        node("Squeeze", ["n", "axis"], ["limit"]),
        scalar("zero", 0),
        scalar("one", 1),
        node("Range", ["zero", "limit", "one"], ["y"]),
    ]
    source = model(nodes, {"x": ("N",)})
    assert ops(import_model(source)) == ["iota"]
    np.testing.assert_array_equal(compute(source, numbers(4))[0], np.arange(4))


def test_a_shape_that_is_data():
    nodes = [
        node("Shape", ["x"], ["n"]),
        node("Cast", ["n"], ["f"], to=FLOAT),
        node("Div", ["x", "f"], ["y"]),
    ]
    source = model(nodes, {"x": ("N",)})
    assert ops(import_model(source)) == ["dims", "cast", "div"]
    np.testing.assert_allclose(compute(source, numbers(4))[0], np.arange(4) / 4)


def test_shape_with_a_start_and_an_end():
    source = model([node("Shape", ["x"], ["y"], start=-2, end=-1)], {"x": (2, 3, 4)})
    np.testing.assert_array_equal(compute(source, numbers(2, 3, 4))[0], [3])


def test_a_split_of_a_symbol():
    split = node("Split", ["x"], ["y", "z"], axis=0, num_outputs=2)
    assert refusal(model([split], {"x": ("N", 4)}, ["y", "z"])) == (
        "operator Split (node 'Split_0', opset 18): "
        "whether 2 divides N depends on a symbolic dimension\n"
        "  hint: fix symbolic dimensions with dims= (--dim NAME=NUMBER)"
    )


def test_a_shape_computed_from_data():
    nodes = [
        node("Cast", ["x"], ["shape"], to=INT64),
        node("Reshape", ["x", "shape"], ["y"], name="r"),
    ]
    assert refusal(model(nodes, {"x": (2,)})) == (
        "operator Reshape (node 'r', opset 18): the shape is computed from the model's inputs, "
        "but must be known while importing\n"
        "  hint: fix what 'x' holds with values= (--value x=FILE.npy), or fold constants"
        " when exporting the model"
    )


def test_repeats_that_depend_on_a_symbol():
    nodes = [node("Shape", ["x"], ["n"]), node("TopK", ["x", "n"], ["y", "i"], name="t")]
    assert refusal(model(nodes, {"x": ("N",)})) == (
        "operator TopK (node 't', opset 18): k depends on a symbolic dimension, "
        "but must be known while importing\n"
        "  hint: fix symbolic dimensions with dims= (--dim NAME=NUMBER), or fold constants"
        " when exporting the model"
    )


def test_dimensions_that_depend_on_data():
    nodes = [node("NonZero", ["x"], ["p"], name="nz"), node("Transpose", ["p"], ["y"])]
    source = model(nodes, {"x": (4,)})
    assert [str(d) for d in import_model(source).outputs[0].shape] == ["nz_count", "1"]
    np.testing.assert_array_equal(compute(source, numbers(4))[0], [[1], [2], [3]])


def test_places_of_known_elements_are_known():
    """PyTorch writes strided views with NonZero of ones; Compress by a known condition gathers."""
    nodes = [
        constant("shape", 3),
        node("ConstantOfShape", ["shape"], ["ones"], value=tensor("one", [1])),
        node("NonZero", ["ones"], ["places"]),
        node("Gather", ["x", "places"], ["y"], axis=0),
        node("Compress", ["x", "condition"], ["z"], axis=0),
    ]
    condition = np.array([False, True, False, True])
    source = model(nodes, {"x": (5, 2)}, ["y", "z"], constants={"condition": condition})
    assert [v.shape for v in import_model(source).outputs] == [(1, 3, 2), (2, 2)]
    x = numbers(5, 2)
    y, z = compute(source, x)
    np.testing.assert_array_equal(y, x[None, :3])
    np.testing.assert_array_equal(z, x[[1, 3]])


def test_one_condition_has_one_number_of_places():
    nodes = [
        node("NonZero", ["x"], ["p"]),
        node("NonZero", ["x"], ["q"]),
        node("Add", ["p", "q"], ["y"]),
    ]
    source = model(nodes, {"x": (4,)})
    assert ops(import_model(source)) == ["nonzero", "add"]
    np.testing.assert_array_equal(compute(source, numbers(4))[0], [[2, 4, 6]])


def test_two_symbols_are_not_the_same():
    add = node("Add", ["a", "b"], ["y"], name="sum")
    source = model([add], {"a": (None,), "b": (None,)})
    assert refusal(source) == (
        "operator Add (node 'sum', opset 18): shapes [a_0] and [b_0] do not broadcast: "
        "a_0 against b_0\n"
        "  hint: they fit for certain sizes only: fix a_0, b_0 with dims="
        " (--dim a_0=NUMBER --dim b_0=NUMBER)"
    )
    graph = import_model(source, dims={"a_0": 3, "b_0": 3})
    assert graph.outputs[0].shape == (3,)
