"""Files that are damaged, inconsistent or hostile: one clear error each, and never another kind."""

import contextlib
import random

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import FLOAT, INT64, model, node, numbers, refusal

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.load import import_model

CHECK = "\n  hint: check the model with onnx.checker.check_model(full_check=True)"


# ---------------------------------------------------------------- not a model


def test_files_that_are_no_models(tmp_path):
    assert refusal(tmp_path / "none.onnx") == (
        f"cannot read '{tmp_path / 'none.onnx'}': No such file or directory"
    )
    assert refusal(tmp_path) == f"cannot read '{tmp_path}': Is a directory"
    (tmp_path / "text.onnx").write_text("not a model at all")
    assert refusal(tmp_path / "text.onnx") == (
        "'text.onnx' is not an ONNX model, or is damaged\n"
        "  hint: it does not parse as a ModelProto message: was the file cut short?"
    )
    assert refusal(b"") == "the file holds no graph\n  hint: is it an ONNX model?"


def small_model():
    nodes = [
        node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1]),
        node("Relu", ["h"], ["r"]),
        node("Reshape", ["r", "shape"], ["f"]),
        node("Gemm", ["f", "g"], ["y"], transB=1),
    ]
    constants = {
        "w": numbers(2, 1, 3, 3),
        "b": numbers(2),
        "shape": np.array([0, -1]),
        "g": numbers(3, 32),
    }
    return model(nodes, {"x": ("N", 1, 4, 4)}, constants=constants)


def test_a_file_cut_short_anywhere():
    data = small_model().SerializeToString()
    for end in range(len(data)):
        try_import(data[:end])


def test_bits_flipped_anywhere():
    data, rng = small_model().SerializeToString(), random.Random(0)
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        try_import(bytes(damaged))


def try_import(data):
    """Any outcome but an exception of another kind."""
    with contextlib.suppress(ModelError):
        import_model(data)


def test_names_that_are_no_text():
    data = small_model().SerializeToString().replace(b"Relu", b"Re\xff\xfe")
    assert refusal(data) == (
        "a name in the model is not UTF-8 text\n  hint: the file is damaged: get it again"
    )


# ---------------------------------------------------------------- the graph's structure

RELU = node("Relu", ["x"], ["y"])

STRUCTURE = [
    (
        model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])], {"x": (2,)}, ["b"]),
        (
            "operator Add (node 'Add_0', opset 18): "
            "it reads 'b', which only a later node computes\n"
            "  hint: nodes must stand in the order in which they can run, and form no cycle"
        ),
    ),
    (
        model([node("Relu", ["z"], ["y"])], {"x": (2,)}),
        (
            "operator Relu (node 'Relu_0', opset 18): it reads 'z', which nothing computes\n"
            "  hint: known: x"
        ),
    ),
    (
        model([RELU, node("Neg", ["x"], ["y"])], {"x": (2,)}),
        (
            "operator Neg (node 'Neg_1', opset 18): it computes 'y', which is defined already\n"
            "  hint: every value of a graph has one definition"
        ),
    ),
    (
        model([node("Relu", ["x"], ["x"])], {"x": (2,)}, ["x"]),
        (
            "operator Relu (node 'Relu_0', opset 18): it computes 'x', which is defined already\n"
            "  hint: every value of a graph has one definition"
        ),
    ),
    (
        model([RELU], {"x": (2,)}, ["z"]),
        "the output 'z' of the graph is never computed\n  hint: known: x, y",
    ),
    (
        model([node("Relu", [""], ["y"])], {"x": (2,)}),
        "operator Relu (node 'Relu_0', opset 18): input 0 (X) is missing" + CHECK,
    ),
    (
        model([node("Relu", ["x", "x"], ["y"])], {"x": (2,)}),
        "operator Relu (node 'Relu_0', opset 18): it has 2 inputs, where the operator takes 1"
        + CHECK,
    ),
    (
        model([node("Split", ["x"], ["y", "z"], axis=0)], {"x": (3,)}, ["y"], opset=13),
        "operator Split (node 'Split_0', opset 13): "
        "an axis of 3 does not split into 2 equal parts" + CHECK,
    ),
    (
        model([node("Relu", ["x"], ["y"], alpha=1.0)], {"x": (2,)}),
        (
            "operator Relu (node 'Relu_0', opset 18): "
            "it has an attribute 'alpha', which the operator does not know\n"
            "  hint: there are none"
        ),
    ),
    (
        model([node("Gemm", ["x", "x"], ["y"], transA=1.5)], {"x": (2, 2)}),
        "operator Gemm (node 'Gemm_0', opset 18): "
        "the attribute transA is of type FLOAT, not INT" + CHECK,
    ),
    (
        model([node("Cast", ["x"], ["y"])], {"x": (2,)}),
        "operator Cast (node 'Cast_0', opset 18): the attribute to is missing" + CHECK,
    ),
    (
        model([node("Cast", ["x"], ["y"], to=TensorProto.COMPLEX64)], {"x": (2,)}),
        (
            "operator Cast (node 'Cast_0', opset 18): tensors of COMPLEX64 are not supported\n"
            "  hint: supported: FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, BOOL, FLOAT16, "
            "DOUBLE, UINT32, UINT64, BFLOAT16, FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, "
            "FLOAT8E5M2FNUZ, UINT4, INT4"
        ),
    ),
    (
        model([node("Relluu", ["x"], ["y"])], {"x": (2,)}),
        (
            "operator Relluu (node 'Relluu_0', opset 18): there is no such operator\n"
            "  hint: did you mean 'Relu' or 'PRelu' or 'Selu'?"
        ),
    ),
    (
        model([node("Sqrt", ["x"], ["y"])], {"x": (INT64, (2,))}),
        (
            "operator Sqrt (node 'Sqrt_0', opset 18): input 0 (X) is of type int64\n"
            "  hint: it must be one of bfloat16, double, float, float16"
        ),
    ),
    (
        model([node("Where", ["c", "x", "x"], ["y"])], {"x": (2,), "c": (2,)}),
        (
            "operator Where (node 'Where_0', opset 18): input 0 (condition) is of type float\n"
            "  hint: it must be one of bool"
        ),
    ),
]


@pytest.mark.parametrize("source, text", STRUCTURE, ids=lambda v: str(v)[:30])
def test_structure(source, text):
    assert refusal(source) == text


def test_two_definitions_outside_of_nodes():
    source = model([RELU], {"x": (2,)})
    source.graph.input.append(source.graph.input[0])
    assert refusal(source) == "the graph has two inputs called 'x'"
    source = model([node("Add", ["x", "w"], ["y"])], {"x": (2,)}, constants={"w": numbers(2)})
    source.graph.initializer.append(source.graph.initializer[0])
    assert refusal(source) == "the initializer 'w' is defined twice"


def test_a_node_with_an_attribute_twice():
    gemm = node("Gemm", ["x", "x"], ["y"], transA=1)
    gemm.attribute.append(gemm.attribute[0])
    assert refusal(model([gemm], {"x": (2, 2)})) == (
        "operator Gemm (node 'Gemm_0', opset 18): it has the attribute 'transA' twice" + CHECK
    )


def test_two_opsets():
    source = model([RELU], {"x": (2,)})
    source.opset_import.append(helper.make_opsetid("ai.onnx", 17))
    assert refusal(source) == "the model imports two opsets of the domain ''"
    del source.opset_import[:]
    assert refusal(source) == (
        "operator Relu (node 'Relu_0', opset 0): the model imports no opset of the domain ''\n"
        "  hint: opset_import must name every domain that is used"
    )


def test_outputs_of_another_type_than_declared():
    source = model([RELU], {"x": (2,)})
    source.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert refusal(source) == (
        "the output 'y' is declared as i64, but computed as f32\n"
        "  hint: the model is inconsistent: export it again"
    )


# ---------------------------------------------------------------- inputs


def test_inputs_that_are_no_tensors():
    source = model([RELU], {"x": (2,)})
    element = helper.make_tensor_type_proto(FLOAT, [2])
    source.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(element))
    assert refusal(source) == (
        "input 'x' is of type sequence\n  hint: inputs must be tensors: change the model"
    )
    source = model([RELU], {"x": (TensorProto.STRING, (2,))})
    assert refusal(source).splitlines()[0] == "input 'x': tensors of STRING are not supported"
    source = model([RELU], {"x": (2,)})
    source.graph.input[0].type.tensor_type.ClearField("shape")
    assert refusal(source) == (
        "input 'x' has no shape, not even its number of dimensions\n"
        "  hint: declare the input's shape; unknown dimensions may stay symbolic"
    )


@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_inputs_of_impossible_sizes(size):
    assert refusal(model([RELU], {"x": (2, size)})) == (
        f"input 'x' has the dimension {size} on axis 1\n  hint: dimensions are 0 … 2147483647"
    )


def test_tensors_that_nobody_can_mean():
    big = (1 << 30, 1 << 30)
    assert refusal(model([RELU], {"x": big})) == (
        "x: a tensor f32[1073741824, 1073741824] takes more than 1024 GiB"
    )
    source = model([node("Expand", ["x", "s"], ["y"])], {"x": (1,)}, constants={"s": np.array(big)})
    assert refusal(source) == (
        "operator Expand (node 'Expand_0', opset 18): "
        "expand: a tensor f32[1073741824, 1073741824] takes more than 1024 GiB" + CHECK
    )
    source = model([node("ConstantOfShape", ["s"], ["y"])], {}, constants={"s": np.array([-1])})
    assert refusal(source) == (
        "operator ConstantOfShape (node 'ConstantOfShape_0', opset 18): "
        "full: a dimension of -1" + CHECK
    )


# ---------------------------------------------------------------- initializers


def with_weight(**fields):
    source = model([node("Add", ["x", "w"], ["y"])], {"x": (4,)})
    w = source.graph.initializer.add()
    w.name, w.data_type = "w", FLOAT
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(w, name).extend(value)
        else:
            setattr(w, name, value)
    return source


INITIALIZERS = [
    (
        {"dims": [4], "raw_data": b"\0" * 12},
        (
            "the initializer 'w' is f32[4], which takes 16 bytes, but has 12\n"
            "  hint: the file is damaged or was cut short"
        ),
    ),
    (
        {"dims": [4], "float_data": [1.0, 2.0]},
        (
            "the initializer 'w' is f32[4], which is 4 elements, but the file has 2\n"
            "  hint: the file is damaged or was cut short"
        ),
    ),
    (
        {"dims": [4], "int64_data": [1, 2, 3, 4]},
        (
            "the initializer 'w' is f32[4], which is 4 elements, but the file has 0\n"
            "  hint: the file is damaged or was cut short"
        ),
    ),
    (
        {"dims": [-4], "raw_data": b""},
        "the initializer 'w' has a negative dimension: [-4]",
    ),
    (
        {"dims": [1 << 62, 1 << 62], "raw_data": b""},
        (
            "the initializer 'w' is declared as "
            "f32[4611686018427387904, 4611686018427387904]: more than 1 TiB"
        ),
    ),
    (
        {"dims": [0, 1 << 62], "raw_data": b""},
        "the initializer 'w' is declared as f32[0, 4611686018427387904]: more than 1 TiB",
    ),
    (
        {"dims": [4], "data_type": 77, "raw_data": b""},
        "the initializer 'w': there is no element type number 77\n  hint: is the file damaged?",
    ),
    (
        {"dims": [1], "data_type": TensorProto.STRING},
        "the initializer 'w': tensors of STRING are not supported",
    ),
    ({"dims": [4], "name": ""}, "an initializer has no name"),
    ({"dims": [1] * 65}, "the initializer 'w' has 65 dimensions: at most 32"),
]


@pytest.mark.parametrize("fields, text", INITIALIZERS, ids=lambda v: str(v)[:40])
def test_initializers(fields, text):
    assert refusal(with_weight(**fields)).startswith(text)


def test_sparse_initializers():
    source = model([node("Add", ["x", "w"], ["y"])], {"x": (4,)})
    sparse = source.graph.sparse_initializer.add()
    sparse.values.CopyFrom(helper.make_tensor("w", FLOAT, [2], [1.0, 2.0]))
    sparse.indices.CopyFrom(helper.make_tensor("", INT64, [2], [0, 4]))
    sparse.dims.append(4)
    assert refusal(source) == "the initializer 'w': an index is outside its shape [4]"
    sparse.indices.CopyFrom(helper.make_tensor("", INT64, [1], [0]))
    assert refusal(source) == "the initializer 'w': values [2] and indices [1] do not fit"


# ---------------------------------------------------------------- attributes that make no sense

SENSELESS = [
    (
        node("Conv", ["x", "w"], ["y"], strides=[0, 1]),
        "kernel_shape, strides and dilations must be positive",
    ),
    (node("Conv", ["x", "w"], ["y"], pads=[1, 1]), "strides, dilations or pads do not fit 2 "),
    (node("Conv", ["x", "w"], ["y"], group=3), "conv: 1 input channels, but the weight has 1 in "),
    (node("Conv", ["x", "w"], ["y"], kernel_shape=[5, 5]), "kernel_shape is [5, 5], the weight "),
    (node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9]), "max_pool: the window [9, 9] is larger "),
    (node("Transpose", ["x"], ["y"], perm=[0, 0, 1, 2]), "transpose: (0, 0, 1, 2) is no perm"),
    (node("Concat", ["x", "w"], ["y"], axis=9), "concat: axis 9 of a tensor with 4 dimensions"),
    (node("Softmax", ["x"], ["y"], axis=-5), "axis -5 of a tensor with 4 dimensions"),
    (node("LRN", ["x"], ["y"], size=0), "lrn: attribute size is 0"),
    (node("Flatten", ["x"], ["y"], axis=7), "axis 7 of a tensor with 4 dimensions"),
    (node("DepthToSpace", ["x"], ["y"], blocksize=0), "the input is f32[1, 1, 4, 4] and the block"),
    (node("Cast", ["x"], ["y"], to=99), "there is no element type number 99"),
]


@pytest.mark.parametrize("one, text", SENSELESS, ids=lambda v: str(v)[:30])
def test_senseless_attributes(one, text):
    source = model([one], {"x": (1, 1, 4, 4)}, constants={"w": numbers(1, 1, 3, 3)})
    label = f"operator {one.op_type} (node '{one.op_type}_0', opset 18): "
    assert refusal(source).startswith(label + text)
