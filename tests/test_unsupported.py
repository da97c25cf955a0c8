"""docs/unsupported.md: the operators that it names are those that are refused, and what it quotes
is what is said."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

import tilewright
from tilewright.frontends.onnx.table import IMPORTERS

PAGE = (Path(__file__).parents[1] / "docs" / "unsupported.md").read_text(encoding="utf-8")


def test_the_operators_that_it_names():
    """Those without an importer, and without a definition by other operators."""
    latest = {s.name: s for s in defs.get_all_schemas() if s.domain == ""}
    refused = [
        name
        for name, s in latest.items()
        if name not in IMPORTERS[""] and not s.has_function and not s.deprecated
        if not s.has_context_dependent_function
    ]
    listed = PAGE.split("compares -->")[1].split("<!-- end of operators")[0]
    assert re.findall(r"`(\w+)`", listed) == sorted(refused)


def one_node(operator, inputs=("x",), domain="", **attributes):
    node = helper.make_node(operator, list(inputs), ["y"], domain=domain, **attributes)
    types = {"x": TensorProto.FLOAT, "t": TensorProto.BOOL, "sizes": TensorProto.INT64}
    types |= {"words": TensorProto.STRING}
    given = [
        helper.make_tensor_value_info(n, types[n], (100 if n == "sizes" else 2,))
        for n in dict.fromkeys(inputs)
        if n in types
    ]
    graph = helper.make_graph(
        [node],
        "one",
        given,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array(True), "on"),
            numpy_helper.from_array(np.array(0.5), "r"),
        ],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


REFUSED = {
    "random numbers are not supported": one_node("RandomNormalLike"),
    "sequences and optional values are not supported": one_node("SequenceConstruct"),
    "tensors of STRING are not supported": one_node("StringNormalizer", ("words",)),
    "the domain 'com.example' is unknown, and the model has no function of that name": one_node(
        "FusedMatMul", ("x", "x"), "com.example"
    ),
    "in training mode it draws random numbers": one_node("Dropout", ("x", "r", "on")),
    "must be known while importing": one_node("Reshape", ("x", "sizes")),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_it_quotes_is_said(text):
    assert text in PAGE
    with pytest.raises(tilewright.ModelError) as caught:
        tilewright.compile(onnx.ModelProto.FromString(REFUSED[text].SerializeToString()))
    assert text in str(caught.value)
    assert caught.value.hint


def test_every_quotation_is_tried():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    quoted = {text for row in rows for text in re.findall(r"`([^`]*)`", row.split("|")[1])}
    assert quoted == {*(t if t in quoted else f"… {t}" for t in REFUSED)} | {SIZES}


SIZES = "auto_pad with a stride needs to know the input's size"


def test_some_operators_need_sizes():
    graph = helper.make_graph(
        [
            helper.make_node(
                "AveragePool", ["x"], ["y"], kernel_shape=[3], auto_pad="SAME_UPPER", strides=[2]
            )
        ],
        "pool",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, "n"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(tilewright.ModelError) as caught:
        tilewright.compile(model)
    assert SIZES in str(caught.value)
    fixed = tilewright.compile(model, options=tilewright.Options(dims={"n": 8}))
    assert fixed(np.ones((1, 1, 8), np.float32)).shape == (1, 1, 4)
