"""Arrays without elements, as fixed and as symbolic dimensions of 0: an empty cache of keys and
values, products over nothing, reductions of nothing."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.analyze.emptiness import never_empty
from tilewright.base.errors import InputError
from tilewright.options import Options
from tilewright.targets import cpu

TARGET = cpu.host(threads=2)
RANDOM = np.random.default_rng(0)
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def model(nodes, shapes, arrays, outputs, weights):
    infos = [
        helper.make_tensor_value_info(n, KINDS[str(arrays[n].dtype)], s) for n, s in shapes.items()
    ]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    given = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "small", infos, results, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def floats(*shape):
    return RANDOM.random(shape, np.float32)


def ints(*values):
    return np.array(values, np.int64).reshape(len(values))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2)) @ v


CACHE = [
    node("Concat", "pk k", "kk", axis=2),
    node("Concat", "pv v", "vv", axis=2),
    node("Transpose", "kk", "kt", perm=[0, 1, 3, 2]),
    node("MatMul", "q kt", "scores"),
    node("Softmax", "scores", "probabilities", axis=-1),
    node("MatMul", "probabilities vv", "y"),
]
HEADS = {n: ("b", 2, "past" if n[0] == "p" else "new", 4) for n in ("pk", "pv", "q", "k", "v")}


@pytest.mark.parametrize("past", [0, 5])
@pytest.mark.parametrize("fixed", [True, False])
def test_a_cache_of_keys_and_values(past, fixed):
    """One module for a cache of any length, empty at the first call."""
    arrays = {n: floats(1, 2, past if n[0] == "p" else 3, 4) for n in HEADS}
    shapes = {n: a.shape for n, a in arrays.items()} if fixed else HEADS
    module = tilewright.compile(model(CACHE, shapes, arrays, ("y", "kk", "vv"), {}), target=TARGET)
    for _ in range(2):
        found = module.run(arrays)
        k = np.concatenate([arrays["pk"], arrays["k"]], axis=2)
        v = np.concatenate([arrays["pv"], arrays["v"]], axis=2)
        np.testing.assert_array_equal(found["kk"], k)
        np.testing.assert_array_equal(found["vv"], v)
        wanted = attention(arrays["q"], k, v)
        np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-6)
        if not fixed:  # what came out goes in again
            arrays |= {"pk": found["kk"], "pv": found["vv"]}


def over_nothing(kind):
    return [node(kind, "x axes", "y", keepdims=0)]


AXIS1 = {"axes": ints(1)}
NOTHING = floats(3, 0)
INF = np.float32("inf")
CASES = {
    "product": (
        [node("MatMul", "a b", "y")],
        {"a": (3, "k"), "b": ("k", 5)},
        {"a": NOTHING, "b": floats(0, 5)},
        {},
        np.zeros((3, 5)),
    ),
    "product and bias": (
        [node("Gemm", "a b c", "d"), node("Relu", "d", "y")],
        {"a": (3, "k"), "b": ("k", 5), "c": (5,)},
        {"a": NOTHING, "b": floats(0, 5), "c": np.arange(5, dtype=np.float32)},
        {},
        np.tile(np.arange(5.0), (3, 1)),
    ),
    "no rows": (
        [node("MatMul", "a b", "y")],
        {"a": ("m", 4), "b": (4, 5)},
        {"a": floats(0, 4), "b": floats(4, 5)},
        {},
        np.zeros((0, 5)),
    ),
    "sum": (over_nothing("ReduceSum"), {"x": (3, "n")}, {"x": NOTHING}, AXIS1, np.zeros(3)),
    "product of": (over_nothing("ReduceProd"), {"x": (3, "n")}, {"x": NOTHING}, AXIS1, np.ones(3)),
    "greatest": (
        over_nothing("ReduceMax"),
        {"x": (3, "n")},
        {"x": NOTHING},
        AXIS1,
        np.full(3, -INF),
    ),
    "least": (over_nothing("ReduceMin"), {"x": (3, "n")}, {"x": NOTHING}, AXIS1, np.full(3, INF)),
    "greatest integer": (
        over_nothing("ReduceMax"),
        {"x": (3, "n")},
        {"x": NOTHING.astype(np.int64)},
        AXIS1,
        np.full(3, np.iinfo(np.int64).min),
    ),
    "mean": (over_nothing("ReduceMean"), {"x": (3, "n")}, {"x": NOTHING}, AXIS1, [np.nan] * 3),
    "softmax": ([node("Softmax", "x", "y")], {"x": (3, "n")}, {"x": NOTHING}, {}, NOTHING),
    "concat": (
        [node("Concat", "p x", "y", axis=0)],
        {"p": ("a", 2), "x": ("b", 2)},
        {"p": floats(0, 2), "x": np.ones((3, 2), np.float32)},
        {},
        np.ones((3, 2)),
    ),
    "concat of nothing": (
        [node("Concat", "p x", "y", axis=0)],
        {"p": ("a", 2), "x": ("b", 2)},
        {"p": floats(0, 2), "x": floats(0, 2)},
        {},
        np.zeros((0, 2)),
    ),
    "gather": (
        [node("Gather", "x j", "y")],
        {"x": (5, 3), "j": ("n",)},
        {"x": floats(5, 3), "j": ints()},
        {},
        np.zeros((0, 3)),
    ),
    "scatter": (
        [node("ScatterND", "x j u", "y")],
        {"x": (2, 3), "j": ("n", 1), "u": ("n", 3)},
        {"x": np.ones((2, 3), np.float32), "j": ints().reshape(0, 1), "u": floats(0, 3)},
        {},
        np.ones((2, 3)),
    ),
    "pad": (
        [node("Pad", "x p", "y")],
        {"x": ("n", 2)},
        {"x": floats(0, 2)},
        {"p": ints(1, 0, 2, 0)},
        np.zeros((3, 2)),
    ),
    "picture": (
        [node("Conv", "x w", "c"), node("GlobalAveragePool", "c", "y")],
        {"x": ("n", 3, 8, 8)},
        {"x": floats(0, 3, 8, 8)},
        {"w": floats(4, 3, 3, 3)},
        np.zeros((0, 4, 1, 1)),
    ),
    "beside something": (
        [node("Relu", "x", "z"), node("ReduceSum", "z axes", "y", keepdims=0)],
        {"x": ("n", 3)},
        {"x": floats(0, 3)},
        {"axes": ints(0)},
        np.zeros(3),
    ),
}


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_operators(name, fixed):
    nodes, shapes, arrays, weights, wanted = CASES[name]
    shapes = {n: a.shape for n, a in arrays.items()} if fixed else shapes
    options = Options(verify=True)
    m = model(nodes, shapes, arrays, ("y",), weights)
    found = tilewright.compile(m, target=TARGET, options=options).run(arrays)["y"]
    assert found.shape == np.shape(wanted)
    np.testing.assert_array_equal(found, np.asarray(wanted, found.dtype))


def test_a_dimension_fixed_at_0():
    nodes = [node("Concat", "p x", "y", axis=0)]
    arrays = {"p": floats(0, 2), "x": floats(3, 2)}
    m = model(nodes, {"p": ("past", 2), "x": (3, 2)}, arrays, ("y",), {})
    module = tilewright.compile(m, target=TARGET, options=Options(dims={"past": 0}))
    np.testing.assert_array_equal(module.run(arrays)["y"], arrays["x"])


LOOKUPS = {
    "Gather": ([node("Gather", "x j", "y")], {"x": ("n", 3), "j": ("m",)}),
    "GatherElements": ([node("GatherElements", "x j", "y")], {"x": ("n",), "j": ("m",)}),
    "edges": ([node("Pad", "x p", "y", mode="edge")], {"x": ("n", 3)}),
    "LSTM": ([node("LSTM", "x w r", "y h c", hidden_size=4)], {"x": ("n", 1, 3)}),
    "ArgMax": ([node("ArgMax", "x", "y", keepdims=0)], {"x": ("n", 3)}),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_what_needs_elements(name):
    nodes, shapes = LOOKUPS[name]
    size = {"n": 0, "m": 2}
    arrays = {n: floats(*(size.get(d, d) for d in s)) for n, s in shapes.items()}
    if "j" in arrays:
        arrays["j"] = ints(0, 0)
    weights = {"p": ints(1, 0, 1, 0), "w": floats(1, 16, 3), "r": floats(1, 16, 4)}
    last = "h" if name == "LSTM" else "y"
    m = model(nodes, shapes, arrays, (last,), weights)
    module = tilewright.compile(m, target=TARGET)
    with pytest.raises(InputError) as caught:
        module.run(arrays)
    kind = module.inputs[0].type
    assert str(caught.value) == (
        f"n is 0 in input 'x' (dimension 0 of {kind}); the model takes 1 or more"
    )
    assert module.run(arrays | {"x": np.ones((4, *arrays["x"].shape[1:]), np.float32)})


def test_which_kernels_touch_what_is_not_there():
    def found(nodes, shapes):
        arrays = {n: ints() if n == "j" else floats() for n in shapes}
        m = model(nodes, shapes, arrays, ("y",), {})
        (kernel,) = tilewright.compile(m, target=TARGET, until="loops").values()
        return never_empty(kernel)

    assert found([node("Gather", "x j", "y")], {"x": ("n", 3), "j": ("m",)}) == {"n"}
    assert found([node("Concat", "p x", "y", axis=0)], {"p": ("a", 2), "x": ("b", 2)}) == set()
    both = [node("Concat", "p x", "t", axis=0), node("Gather", "t j", "y")]
    assert found(both, {"p": ("a", 2), "x": ("b", 2), "j": (3,)}) == {"a", "b"}
