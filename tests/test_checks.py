"""Modules compiled with checks: an index out of range and a division by zero are reported, with the
node, the element and the value."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.errors import CheckError
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.expr import Symbol, Var
from tilewright.ops.common import wrap_index, wrapped_index
from tilewright.options import Options
from tilewright.program.host_program import name_of_step
from tilewright.targets import cpu

TARGET = cpu.host(threads=2)
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}


def node(kind, inputs, **attributes):
    return helper.make_node(kind, inputs.split(), ["y"], name="it", **attributes)


def model(nodes, arrays, shapes=None, weights=None, opset=18):
    infos = [
        helper.make_tensor_value_info(n, KINDS[str(a.dtype)], (shapes or {}).get(n, a.shape))
        for n, a in arrays.items()
    ]
    results = [helper.make_empty_tensor_value_info("y")]
    given = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", infos, results, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def compiled(m, **options):
    return tilewright.compile(m, target=TARGET, options=Options(verify=True, **options))


def problem(m, arrays):
    with pytest.raises(CheckError) as caught:
        compiled(m, checks=True).run(arrays)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.context == ["running guard on the host for it"]
    return caught.value.what


def floats(*shape):
    return np.random.default_rng(0).random(shape, np.float32)


def ints(*values):
    return np.array(values, np.int64)


def beyond(at, value, extent):
    allowed = f"-{extent} … {extent - 1} are allowed"
    return f"{at} is {value}, and the axis that it points along has {extent} elements: {allowed}"


LOOKUPS = {
    "gather": (
        node("Gather", "x i"),
        {"x": floats(5, 3), "i": ints([0, 1], [-5, 4])},
        {(0, 0): 5, (1, 0): -6, (0, 1): 31999, (1, 1): -(1 << 62)},
        5,
    ),
    "gather_elements": (
        node("GatherElements", "x i", axis=1),
        {"x": floats(5, 3), "i": ints([0, 2], [-3, 1])},
        {(0, 1): 3, (1, 0): -4},
        3,
    ),
    "scatter_elements": (
        node("ScatterElements", "x i u"),
        {"x": floats(5, 3), "i": ints([0, 2], [-5, 4]), "u": floats(2, 2)},
        {(0, 1): 5, (1, 0): -6},
        5,
    ),
    "scatter_nd": (
        node("ScatterND", "x i u"),
        {"x": floats(5, 3), "i": ints([0], [-5]), "u": floats(2, 3)},
        {(0, 0): 5, (1, 0): -6},
        5,
    ),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_indices_out_of_range(name):
    n, arrays, wrong, extent = LOOKUPS[name]
    m = model([n], arrays)
    plain, checked = compiled(m), compiled(m, checks=True)
    np.testing.assert_array_equal(checked.run(arrays)["y"], plain.run(arrays)["y"])
    for place, value in wrong.items():
        bad = {k: a.copy() for k, a in arrays.items()}
        bad["i"][place] = value
        with pytest.raises(CheckError) as caught:
            checked.run(bad)
        found = beyond(f"i{list(place)}", value, extent)
        assert caught.value.what == f"node 'it' ({name}): {found}"
        assert plain.run(bad)["y"].shape == plain.run(arrays)["y"].shape
    np.testing.assert_array_equal(checked.run(arrays)["y"], plain.run(arrays)["y"])


def test_the_whole_text():
    arrays = {"x": floats(5, 3), "i": ints([0, 7])}
    with pytest.raises(CheckError) as caught:
        compiled(model([node("Gather", "x i")], arrays), checks=True).run(arrays)
    assert str(caught.value) == (
        "node 'it' (gather): i[0, 1] is 7, and the axis that it points along has 5 elements:"
        " -5 … 4 are allowed\n"
        "  while running guard on the host for it\n"
        "  hint: without checks=True the nearest element would have been taken"
    )


def test_several_subscripts_each_with_its_own_axis():
    arrays = {"x": floats(5, 3), "i": ints([0, 2], [4, 3])}
    m = model([node("GatherND", "x i")], arrays)
    assert problem(m, arrays) == f"node 'it' (gather_nd): {beyond('i[1, 1]', 3, 3)}"
    arrays["i"] = ints([5, 0], [0, 0])
    assert problem(m, arrays) == f"node 'it' (gather_nd): {beyond('i[0, 0]', 5, 5)}"


def test_one_update():
    arrays = {"x": floats(5, 3), "i": ints(9), "u": floats(3)}
    m = model([node("ScatterND", "x i u")], arrays)
    assert problem(m, arrays) == f"node 'it' (scatter_nd): {beyond('i[0]', 9, 5)}"
    good = arrays | {"i": ints(-2)}
    wanted = arrays["x"].copy()
    wanted[-2] = arrays["u"]
    for checks in (False, True):
        np.testing.assert_array_equal(compiled(m, checks=checks).run(good)["y"], wanted)


def test_the_first_of_many():
    i = np.zeros((3, 100), np.int64)
    i[1, 17], i[2, 5], i[1, 40] = 8, 9, 10
    arrays = {"x": floats(8, 2), "i": i}
    m = model([node("Gather", "x i")], arrays, {"i": ("m", "n"), "x": ("k", 2)})
    assert problem(m, arrays) == f"node 'it' (gather): {beyond('i[1, 17]', 8, 8)}"
    empty = arrays | {"i": i[:0]}
    assert compiled(m, checks=True).run(empty)["y"].shape == (0, 100, 2)


@pytest.mark.parametrize("kind, op", [("Div", "div"), ("Mod", "mod")])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_division_by_zero(kind, op, dtype):
    arrays = {"a": np.arange(6, dtype=dtype).reshape(2, 3), "b": np.array([2, 0, 0], dtype)}
    m = model([node(kind, "a b")], arrays)
    assert (
        problem(m, arrays) == f"node 'it' ({op}): b[1] is 0, and integers cannot be divided by it"
    )
    scalar = {"a": arrays["a"], "b": np.array(0, dtype)}
    m = model([node(kind, "a b")], scalar)
    assert problem(m, scalar) == f"node 'it' ({op}): b is 0, and integers cannot be divided by it"
    scalar["b"] += 2
    wanted = compiled(m).run(scalar)["y"]
    np.testing.assert_array_equal(compiled(m, checks=True).run(scalar)["y"], wanted)


@pytest.mark.parametrize("kind", ["Div", "Mod"])
def test_a_division_of_nothing(kind):
    arrays = {"a": np.zeros(0, np.int32), "b": np.zeros(1, np.int32)}
    module = compiled(model([node(kind, "a b")], arrays, {"a": ("n",)}), checks=True)
    assert module.run(arrays)["y"].shape == (0,)
    with pytest.raises(CheckError):
        module.run(arrays | {"a": np.zeros(1, np.int32)})


def test_a_lookup_for_nothing():
    """Of no rows, no element is looked up."""
    arrays = {"x": floats(0, 4), "i": ints(9)}
    module = compiled(model([node("Gather", "x i", axis=1)], arrays, {"x": ("n", 4)}), checks=True)
    assert module.run(arrays)["y"].shape == (0, 1)
    with pytest.raises(CheckError):
        module.run(arrays | {"x": floats(1, 4)})


def test_where_an_update_is_written():
    arrays = {"x": floats(2, 3), "u": floats(2, 2), "w": ints(1, 0)}
    m = model([node("TensorScatter", "x u w", axis=1)], arrays, opset=24)
    wanted = arrays["x"].copy()
    wanted[0, 1:], wanted[1, :2] = arrays["u"]
    for checks in (False, True):
        np.testing.assert_array_equal(compiled(m, checks=checks).run(arrays)["y"], wanted)
    for wrong, value in ((ints(0, 7), 7), (ints(2, 0), 3), (ints(-4, 0), -4)):
        found = beyond("an index computed from 'w'", value, 3)
        assert problem(m, arrays | {"w": wrong}) == f"node 'it' (gather): {found}"


def test_an_update_that_is_written_around_the_end():
    arrays = {"x": floats(1, 3), "u": floats(1, 2), "w": ints(5)}
    m = model([node("TensorScatter", "x u w", axis=1, mode="circular")], arrays, opset=24)
    wanted = arrays["x"].copy()
    wanted[0, [2, 0]] = arrays["u"][0]
    np.testing.assert_array_equal(compiled(m, checks=True).run(arrays)["y"], wanted)


def test_values_that_the_model_has_no_name_for():
    """The importer reshapes, the model itself adds."""
    arrays = {"x": floats(2, 3), "t": ints(1, 7)}
    m = model([node("NegativeLogLikelihoodLoss", "x t", reduction="sum")], arrays)
    found = beyond("an index computed from 't'", 7, 3)
    assert problem(m, arrays) == f"node 'it' (gather_elements): {found}"
    add = helper.make_node("Add", ["t", "one"], ["reshape_2"], name="more")
    m = model([add, node("Gather", "x reshape_2")], arrays, weights={"one": ints(1)})
    assert problem(m, arrays) == f"node 'it' (gather): {beyond('reshape_2[0]', 2, 2)}"
    x, loss = {"x": arrays["x"]}, node("NegativeLogLikelihoodLoss", "x t")
    m = model([loss], x, weights={"t": ints(1, 7)})  # the importer reshapes it: another constant
    assert problem(m, x) == f"node 'it' (gather_elements): {beyond('an index', 7, 3)}"


def steps(m, **options):
    return [name_of_step(s).split("_", 1)[-1] for s in compiled(m, **options).program.host.steps]


def test_what_needs_no_check():
    """Constants that are right, and floats; what ONNX defines for any index."""
    x = {"x": floats(5, 3)}
    m = model([node("Gather", "x i")], x, weights={"i": ints(0, -5)})
    assert steps(m, checks=True) == ["gather"]
    m = model([node("Gather", "x i")], x, weights={"i": ints(0, -6)})
    assert problem(m, x) == f"node 'it' (gather): {beyond('i[1]', -6, 5)}"
    m = model([node("Gather", "x i", axis=1)], x, {"x": ("m", "n")}, {"i": ints(0, -1)})
    assert steps(m, checks=True) == ["gather"]
    np.testing.assert_array_equal(compiled(m, checks=True).run(x)["y"], x["x"][:, [0, -1]])
    m = model([node("Gather", "x i", axis=1)], x, {"x": ("m", "n")}, {"i": ints(0, 3)})
    assert problem(m, x) == f"node 'it' (gather): {beyond('i[1]', 3, 3)}"
    m = model([node("GatherND", "x i")], x, weights={"i": ints([4, 2], [-5, -3])})
    assert steps(m, checks=True) == ["gather_nd"]
    n = {"x": np.arange(6, dtype=np.int32)}
    m = model([node("Div", "x i")], n, {"x": ("n",)}, {"i": np.array([2], np.int32)})
    assert steps(m, checks=True) == ["div"]
    m = model([node("Div", "x x")], x)
    assert steps(m, checks=True) == ["div"]
    one_hot = model(
        [node("OneHot", "i d v")], {"i": ints(9)}, weights={"d": ints(4), "v": ints(0, 1)}
    )
    np.testing.assert_array_equal(
        compiled(one_hot, checks=True).run({"i": ints(9)})["y"], [[0] * 4]
    )


def test_without_checks_nothing_changes():
    arrays = {"x": floats(5, 3), "i": ints(0)}
    m = model([node("Gather", "x i")], arrays)
    before, after = compiled(m).program, compiled(m, checks=False).program
    assert before.objects == after.objects
    assert steps(m) == ["gather"]
    assert steps(m, checks=True) == ["find_fault", "guard", "gather"]


def test_checks_are_saved(tmp_path):
    arrays = {"x": floats(5, 3), "i": ints(7)}
    compiled(model([node("Gather", "x i")], arrays), checks=True).save(tmp_path / "m.tw")
    with tilewright.load(tmp_path / "m.tw") as module, pytest.raises(CheckError) as caught:
        module.run(arrays)
    assert caught.value.what == f"node 'it' (gather): {beyond('i[0]', 7, 5)}"


def test_the_definition_checks_as_well():
    """The graph with its guards, by the evaluator."""
    arrays = {"x": floats(5, 3), "i": ints(7)}
    recorder = tilewright.Recorder()
    tilewright.compile(
        model([node("Gather", "x i")], arrays),
        target=TARGET,
        options=Options(checks=True),
        recorder=recorder,
        until="optimized",
    )
    graph = next(s.program for s in recorder.of("optimized") if s.name == "check_contents")
    with pytest.raises(CheckError):
        evaluate_graph(graph, list(arrays.values()), {})


def test_a_wrapped_index_is_recognized():
    i, n = Var("i"), Symbol("n")
    for extent in (1, 5, n, n * 2 + 1):
        assert wrapped_index(wrap_index(i, extent)) == (i, extent)
    assert wrapped_index(i) is None
    assert wrapped_index(i + 1) is None
