"""Models whose shapes depend on what inputs hold: compiled for that when they are called."""

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.errors import ContentsError, InputError, ModelError
from tilewright.frontends.onnx.load import import_inputs, import_model
from tilewright.options import Options
from tilewright.runtime.specialized import KEPT, SpecializedModule
from tilewright.targets import cpu

TARGET = cpu.host(threads=1)
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def model(nodes, inputs, outputs=("y",), weights=None):
    infos = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    given = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", infos, results, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, name=kind.lower(), **attributes)


F, I = TensorProto.FLOAT, TensorProto.INT64
RESHAPE = model([node("Reshape", ["x", "shape"], ["y"])], {"x": (F, ("n", 3)), "shape": (I, (2,))})


def compile(what, **options):
    return tilewright.compile(what, target=TARGET, options=Options(**options))


def refusal(kind, what, *args, **named):
    with pytest.raises(kind) as caught:
        what(*args, **named)
    return str(caught.value)


def test_the_error_names_the_inputs():
    with pytest.raises(ContentsError) as caught:
        import_model(RESHAPE)
    assert (caught.value.inputs, caught.value.symbols) == (("shape",), ())
    assert str(caught.value) == (
        "operator Reshape (node 'reshape', opset 18): the shape is computed from the model's "
        "inputs, but must be known while importing\n"
        "  hint: fix what 'shape' holds with values= (--value shape=FILE.npy), or fold constants"
        " when exporting the model"
    )
    repeat = model(
        [node("Shape", ["x"], ["s"]), node("TopK", ["x", "s"], ["y", "i"])], {"x": (F, ("n",))}
    )
    with pytest.raises(ContentsError) as caught:
        import_model(repeat)
    assert (caught.value.inputs, caught.value.symbols) == ((), ("n",))


def test_inputs_through_arithmetic():
    nodes = [
        node("Add", ["a", "b"], ["c"]),
        node("Mul", ["c", "two"], ["shape"]),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    given = {"x": (F, (4, 3)), "a": (I, (1,)), "b": (I, (1,)), "unused": (I, (1,))}
    m = model(nodes, given, weights={"two": np.array([2])})
    with pytest.raises(ContentsError) as caught:
        import_model(m)
    assert caught.value.inputs == ("a", "b")
    assert [v.name for v in import_inputs(m)] == ["x", "a", "b", "unused"]
    np.testing.assert_array_equal(compile(m)(X, [2], [4], [0]), X.reshape(12))


def test_a_call_compiles_for_what_it_brings():
    module = compile(RESHAPE)
    assert isinstance(module, SpecializedModule)
    assert repr(module) == (
        "SpecializedModule(small: x: f32[n, 3], shape: i64[2] -> y;"
        " for each of the contents of 'shape': 0 compiled, 0 of at most 16 kept,"
        " 0 calls found one ready)"
    )
    for shape in ([6, 2], [2, -1], [6, 2]):
        np.testing.assert_array_equal(module(X, shape), X.reshape(shape))
    assert [t.type for t in module.outputs] == ["f32[6, 2]"]
    assert repr(module) == (
        "SpecializedModule(small: x: f32[n, 3], shape: i64[2] -> y;"
        " for each of the contents of 'shape' and the size of n: 2 compiled, 2 of at most 16 kept,"
        " 1 call found one ready)"
    )
    out = np.zeros((3, 4), np.float32)
    assert module(shape=[3, 4], x=X, out=out) is out
    np.testing.assert_array_equal(out, X.reshape(3, 4))
    named = module.run({"x": X[:2], "shape": np.array([3, 2])})
    np.testing.assert_array_equal(named["y"], X[:2].reshape(3, 2))
    assert module.profile(X, [6, 2], repeat=1).steps is not None
    assert "reshape" in module.source("graph")
    assert module.threads == 1


def test_the_modules_used_last_are_kept():
    m = model([node("Tile", ["x", "times"], ["y"])], {"x": (F, (2,)), "times": (I, (1,))})
    module = compile(m)
    x = np.ones(2, np.float32)
    for times in range(1, KEPT + 2):
        assert module(x, [times]).shape == (2 * times,)
        module(x, [1])  # which is never the oldest
    assert (module.compiled, module.reused) == (KEPT + 1, KEPT + 1)
    module(x, [KEPT + 1])
    assert module.compiled == KEPT + 1
    module(x, [2])
    assert module.compiled == KEPT + 2


def test_other_contents_need_other_inputs():
    """One branch of an If needs the contents of an input that the other does not."""
    outs = [helper.make_tensor_value_info("o", F, None)]
    then = helper.make_graph([node("Identity", ["x"], ["o"])], "then", [], outs)
    other = helper.make_graph([node("Reshape", ["x", "shape"], ["o"])], "else", [], outs)
    choice = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = {"x": (F, (4, 3)), "c": (TensorProto.BOOL, ()), "shape": (I, (2,))}
    module = compile(model([choice], inputs))
    assert module.specialized_on == ("c",)
    assert module(X, True, [9, 9]).shape == (4, 3)
    assert module(X, True, [8, 8]).shape == (4, 3)
    assert module.compiled == 1
    assert module(X, False, [6, 2]).shape == (6, 2)
    assert module.specialized_on == ("c", "shape")
    assert module(X, False, [2, 6]).shape == (2, 6)


def test_only_sizes_of_inputs():
    half = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Div", ["s", "two"], ["k"]),
            node("TopK", ["x", "k"], ["y", "i"]),
        ],
        {"x": (F, ("n",))},
        weights={"two": np.array([2])},
    )
    module = compile(half)
    for n in (4, 6, 4):
        x = np.random.default_rng(n).random(n, np.float32)
        np.testing.assert_array_equal(module(x), np.sort(x)[::-1][: n // 2])
    assert (module.compiled, module.reused) == (2, 1)


def test_values_are_fixed_beforehand(tmp_path):
    module = compile(RESHAPE, values={"shape": np.array([2, 6])}, dims={"n": 4})
    assert str(module.inputs[0]) == "x: f32[4, 3]"
    assert len(module.inputs) == 1
    module.save(tmp_path / "m.tw")
    np.testing.assert_array_equal(tilewright.load(tmp_path / "m.tw")(X), X.reshape(2, 6))
    assert refusal(ModelError, compile, RESHAPE, values={"shap": np.array([2, 6])}) == (
        "the model has no input called 'shap'\n  hint: did you mean 'shape'?"
    )
    assert refusal(ModelError, compile, RESHAPE, values={"shape": np.zeros(2)}) == (
        "input 'shape' is i64[2], but was given as float64[2]"
    )


def test_saving(tmp_path):
    module = compile(RESHAPE)
    path = tmp_path / "m.tw"
    assert refusal(InputError, module.save, path) == (
        f"'small' cannot be saved to {path} as it is: its shapes depend on the contents of 'shape',"
        " and a file has one program\n"
        "  hint: save the one for certain inputs: module.specialize(…).save(path), or fix what it"
        " depends on: options=Options(values={'shape': …}); add dims={'n': …} if it fits certain"
        " sizes only"
    )
    module.specialize(X, [2, 6]).save(path)
    np.testing.assert_array_equal(tilewright.load(path)(X), X.reshape(2, 6))


def test_fixed_contents_that_fit_certain_sizes_only():
    """What the error says to do is what helps."""
    flat = model([node("Reshape", ["x", "s"], ["y"])], {"x": (F, ("n",)), "s": (I, (2,))})
    assert refusal(ModelError, compile, flat, values={"s": np.array([2, 6])}) == (
        "operator Reshape (node 'reshape', opset 18): reshape: [n] has n elements, [2, 6] has 12\n"
        "  hint: they fit for certain sizes only: fix n with dims= (--dim n=NUMBER)"
    )
    module = compile(flat, values={"s": np.array([2, 6])}, dims={"n": 12})
    assert module(X.reshape(12)).shape == (2, 6)


class Foreign:
    """An array that only DLPack can be asked about."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **settings):
        return self._array.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_arrays_without_a_shape_of_their_own():
    module = compile(RESHAPE)
    for rows in (4, 2, 4):
        shape = np.array([rows * 3 // 2, 2])
        np.testing.assert_array_equal(
            module(Foreign(X[:rows]), Foreign(shape)), X[:rows].reshape(shape)
        )
    assert (module.specialized_on, module.compiled) == (("shape", "n"), 2)


def test_what_is_refused():
    module = compile(RESHAPE)
    assert refusal(InputError, lambda: module.outputs) == (
        "this is known of 'small' once it was called: it depends on the contents of 'shape'"
    )
    assert refusal(InputError, module, X) == (
        "missing input: 'shape'\n  hint: the model takes x: f32[n, 3], shape: i64[2]"
    )
    assert refusal(InputError, module, X, np.ones(2)) == (
        "input 'shape' has elements of type f64; the model takes i64[2]\n"
        "  hint: convert it first: .astype('int64')"
    )
    assert refusal(ModelError, module, X, [5, 5]) == (
        "operator Reshape (node 'reshape', opset 18): reshape: [4, 3] has 12 elements,"
        " [5, 5] has 25\n"
        "  hint: check the model with onnx.checker.check_model(full_check=True)"
    )
    np.testing.assert_array_equal(module(X, [6, 2]), X.reshape(6, 2))  # it goes on
    module.close()
    assert refusal(InputError, module, X, [6, 2]) == "'small' is closed"
    for name in ("outputs", "threads"):
        assert refusal(InputError, getattr, module, name) == "'small' is closed"


def test_large_inputs_do_not_set_shapes():
    nodes = [node("Cast", ["x"], ["s"], to=I), node("Expand", ["one", "s"], ["y"])]
    weights = {"one": np.ones(1, np.float32)}
    large = model(nodes, {"x": (F, (65,))}, weights=weights)
    assert refusal(ModelError, compile, large) == (
        "operator Expand (node 'expand', opset 18): the shape is computed from the model's inputs,"
        " but must be known while importing\n"
        "  hint: fix what 'x' holds with values= (--value x=FILE.npy), or fold constants"
        " when exporting the model"
    )
    module = compile(model(nodes, {"x": (F, ("n",))}, weights=weights))
    assert refusal(InputError, module, np.ones(65, np.float32)) == (
        "the model's shapes depend on what input 'x' holds, and it has 65 elements: 64 are allowed"
    )
    assert module(np.ones(2, np.float32)).shape == (1, 1)


def test_a_stage_cannot_be_looked_at_without_contents():
    with pytest.raises(ContentsError):
        tilewright.compile(RESHAPE, target=TARGET, until="graph")


def test_calls_at_the_same_time():
    module = compile(RESHAPE)
    wrong = []

    def work(shape):
        for _ in range(5):
            if not np.array_equal(module(X, shape), X.reshape(shape)):
                wrong.append(shape)

    threads = [threading.Thread(target=work, args=([s, 12 // s],)) for s in (1, 2, 3, 4, 6, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert module.compiled == 6


def test_weights_beside_the_model(tmp_path):
    """A model that is a file is read once."""
    m = model(
        [node("Add", ["x", "w"], ["z"]), node("Reshape", ["z", "shape"], ["y"])],
        {"x": (F, (4, 3)), "shape": (I, (2,))},
        weights={"w": np.full((4, 3), 2, np.float32)},
    )
    path = tmp_path / "m.onnx"
    onnx.save(m, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    module = compile(path)
    path.unlink()
    np.testing.assert_array_equal(module(X, [6, 2]), (X + 2).reshape(6, 2))
