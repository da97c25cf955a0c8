"""Functions, and control flow that is known while importing."""

import numpy as np
import pytest
from onnx import helper
from onnx_models import (
    BOOL,
    INT64,
    compute,
    model,
    node,
    numbers,
    ops,
    refusal,
    typed,
)

from tilewright.frontends.onnx.load import import_model
from tilewright.ir.expr import Symbol

DOMAIN = "my.functions"


def function(name, inputs, outputs, nodes, attributes=(), defaults=()):
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(
        DOMAIN, name, inputs, outputs, nodes, opsets, list(attributes), list(defaults)
    )


def call(op, inputs, outputs, **attributes):
    return node(op, inputs, outputs, domain=DOMAIN, **attributes)


def with_reference(n, attribute, kind, argument):
    """The node with an attribute that refers to the function's."""
    proto = n.attribute.add()
    proto.name, proto.type, proto.ref_attr_name = attribute, kind, argument
    return n


def using(nodes, functions, inputs=None, **options):
    inputs = inputs or {"x": (3,)}
    return model(nodes, inputs, functions=functions, domains={DOMAIN: 1}, **options)


# ---------------------------------------------------------------- functions


def test_a_function_of_the_model():
    leaky = with_reference(
        node("LeakyRelu", ["a"], ["b"]), "alpha", helper.onnx.AttributeProto.FLOAT, "slope"
    )
    inner = function("Leak", ["a"], ["b"], [leaky], ["slope"])
    outer = function("Twice", ["v"], ["w"], [
        call("Leak", ["v"], ["u"], slope=0.5), call("Leak", ["u"], ["w"], slope=0.25),
    ])  # fmt: skip
    source = using([call("Twice", ["x"], ["y"])], [inner, outer])
    graph = import_model(source)
    assert ops(graph) == ["leaky_relu", "leaky_relu"]
    assert {n.name for n in graph.nodes} == {"Twice_0"}
    np.testing.assert_allclose(compute(source, np.array([-8, 0, 8], np.float32))[0], [-1, 0, 8])


def test_defaults_of_a_function():
    leaky = with_reference(
        node("LeakyRelu", ["a"], ["b"]), "alpha", helper.onnx.AttributeProto.FLOAT, "slope"
    )
    default = helper.make_attribute("slope", 0.5)
    leak = function("Leak", ["a"], ["b"], [leaky], defaults=[default])
    source = using([call("Leak", ["x"], ["y"])], [leak])
    np.testing.assert_array_equal(compute(source, -numbers(3))[0], [0, -0.5, -1])


def test_inputs_and_attributes_that_are_left_out():
    clip = function("Limit", ["a", "low"], ["b"], [node("Clip", ["a", "low"], ["b"])])
    source = using([call("Limit", ["x"], ["y"])], [clip])
    np.testing.assert_array_equal(compute(source, numbers(3))[0], numbers(3))


def test_operators_that_onnx_defines_by_others():
    source = model([node("SwiGLU", ["x", "g"], ["y"])], {"x": (3,), "g": (3,)}, opset=13)
    assert "this opset does not have the operator" in refusal(source)
    window = node("HannWindow", ["n"], ["y"], periodic=0)
    source = model([window], {}, constants={"n": np.array(5)})
    np.testing.assert_allclose(compute(source)[0], np.hanning(5), atol=1e-6)


def test_errors_say_where_in_the_function():
    inner = function("Inner", ["a"], ["b"], [node("MatMul", ["a", "a"], ["b"], name="product")])
    outer = function("Outer", ["a"], ["b"], [call("Inner", ["a"], ["b"])])
    source = using([call("Outer", ["x"], ["y"], name="top")], [inner, outer], {"x": (2, 3)})
    assert refusal(source) == (
        "operator MatMul (node 'product', opset 18): matmul: the inner dimensions differ: "
        "3 against 2\n"
        "  while importing operator my.functions.Inner (node 'Inner_0', opset 1)\n"
        "  while importing operator my.functions.Outer (node 'top', opset 1)\n"
        "  hint: check the model with onnx.checker.check_model(full_check=True)"
    )


def test_functions_that_call_themselves():
    endless = function("F", ["a"], ["b"], [call("F", ["a"], ["b"])])
    text = refusal(using([call("F", ["x"], ["y"])], [endless]))
    assert text.splitlines()[0] == (
        "operator my.functions.F (node 'F_0', opset 1): functions are nested more than 64 deep"
    )
    assert text.endswith("hint: a function that calls itself cannot be inlined")


def test_functions_that_explode(monkeypatch):
    monkeypatch.setattr("tilewright.frontends.onnx.model.MOST_NODES", 1000)
    functions = [function("F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])])]
    for level in range(1, 40):
        twice = [call(f"F{level - 1}", ["a"], ["c"]), call(f"F{level - 1}", ["c"], ["b"])]
        functions.append(function(f"F{level}", ["a"], ["b"], twice))
    text = refusal(using([call("F39", ["x"], ["y"])], functions))
    assert "the model has more than 1000 nodes once all is inlined" in text


def test_functions_that_are_not_there():
    assert refusal(using([call("F", ["x"], ["y"])], [])) == (
        "operator my.functions.F (node 'F_0', opset 1): the domain 'my.functions' is unknown, "
        "and the model has no function of that name\n"
        "  hint: export the model with standard ONNX operators only"
    )
    source = model([call("F", ["x"], ["y"])], {"x": (3,)})
    assert refusal(source) == (
        "operator my.functions.F (node 'F_0', opset 0): "
        "the model imports no opset of the domain 'my.functions'\n"
        "  hint: opset_import must name every domain that is used"
    )


# ---------------------------------------------------------------- control flow


def graph(nodes, inputs, outputs):
    return helper.make_graph(
        nodes,
        "body",
        [typed(n, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
    )


def branches():
    return {
        "then_branch": graph([node("Relu", ["x"], ["a"])], {}, ["a"]),
        "else_branch": graph([node("Neg", ["x"], ["a"])], {}, ["a"]),
    }


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_that_is_known(condition):
    choice = node("If", ["c"], ["y"], **branches())
    source = model([choice], {"x": (3,)}, constants={"c": np.array(condition)})
    assert ops(import_model(source)) == ["relu" if condition else "neg"]


def test_a_branch_that_depends_on_a_shape():
    nodes = [
        node("Size", ["x"], ["n"]),
        node("Constant", [], ["two"], value_int=2),
        node("Greater", ["n", "two"], ["c"]),
        node("If", ["c"], ["y"], **branches()),
    ]
    assert ops(import_model(model(nodes, {"x": (3,)}))) == ["relu"]
    graph = import_model(model(nodes, {"x": (3, "N")}))
    assert ops(graph) == ["relu"]
    assert graph.symbols() == (Symbol("N", 1),)  # which decides it


def test_a_branch_that_is_not_known():
    choice = node("If", ["c"], ["y"], **branches(), name="choice")
    assert refusal(model([choice], {"x": (3,), "c": (BOOL, ())})) == (
        "operator If (node 'choice', opset 18): the condition is computed from the model's "
        "inputs, but must be known while importing\n"
        "  hint: fix what 'c' holds with values= (--value c=FILE.npy), or fold constants"
        " when exporting the model"
    )


def loop_body():
    """sum += x; also gives each sum."""
    nodes = [
        node("Add", ["sum", "x"], ["next"]),
        node("Identity", ["next"], ["each"]),
        node("Identity", ["going"], ["goes on"]),
    ]
    inputs = {"step": (INT64, ()), "going": (BOOL, ()), "sum": (3,)}
    return graph(nodes, inputs, ["goes on", "next", "each"])


def test_a_loop_is_unrolled():
    loop = node("Loop", ["n", "", "x"], ["y", "all"], body=loop_body())
    constants = {"n": np.array(3)}
    source = model([loop], {"x": (3,)}, ["y", "all"], constants=constants)
    assert ops(import_model(source)).count("add") == 3
    x = numbers(3)
    y, every = compute(source, x)
    np.testing.assert_array_equal(y, x * 4)
    np.testing.assert_array_equal(every, [x * 2, x * 3, x * 4])


def test_a_loop_that_is_too_long():
    loop = node("Loop", ["n", "", "x"], ["y", "all"], body=loop_body())
    source = model([loop], {"x": (3,)}, ["y"], constants={"n": np.array(10**9)})
    assert refusal(source) == (
        "operator Loop (node 'Loop_0', opset 18): "
        "a loop of more than 256 steps is not unrolled\n"
        "  hint: loops that run at run time are not supported"
    )


def test_a_scan_is_unrolled():
    body = graph(
        [node("Add", ["s", "row"], ["t"]), node("Mul", ["t", "t"], ["out"])],
        {"s": (3,), "row": (3,)},
        ["t", "out"],
    )
    scan = node("Scan", ["s", "x"], ["end", "y"], body=body, num_scan_inputs=1,
                scan_input_directions=[1], scan_output_axes=[1])  # fmt: skip
    source = model([scan], {"s": (3,), "x": (2, 3)}, ["end", "y"])
    s, x = np.ones(3, np.float32), numbers(2, 3)
    end, y = compute(source, s, x)
    first, second = s + x[1], s + x[1] + x[0]
    np.testing.assert_array_equal(end, second)
    np.testing.assert_array_equal(y, np.stack([first**2, second**2], axis=1))


def test_graphs_that_hide_names():
    """A nested graph sees the names around it, and its own are not seen outside."""
    body = graph([node("Relu", ["x"], ["inner"])], {}, ["inner"])
    choice = node("If", ["c"], ["z"], then_branch=body, else_branch=body)
    source = model([choice, node("Neg", ["inner"], ["y"])], {"x": (3,)},
                   constants={"c": np.array(True)})  # fmt: skip
    assert refusal(source).splitlines()[0] == (
        "operator Neg (node 'Neg_1', opset 18): it reads 'inner', which nothing computes"
    )


@pytest.mark.parametrize(
    "op, text",
    [
        ("SequenceEmpty", "sequences and optional values are not supported"),
        ("RandomNormal", "random numbers are not supported"),
    ],
)
def test_operators_that_are_not_supported(op, text):
    attributes = {"shape": [2]} if op == "RandomNormal" else {}
    assert refusal(model([node(op, [], ["y"], **attributes)], {})) == (
        f"operator {op} (node '{op}_0', opset 18): {text}\n"
        "  hint: export the model without it, or define it in the model as a function of "
        "operators that are supported"
    )
