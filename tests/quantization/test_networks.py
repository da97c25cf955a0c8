"""Networks of many shapes: what is written is valid, means the same everywhere, and is near."""

from functools import cache

import numpy as np
import onnx
import pytest
from onnx_models import model, node
from quantization_cases import CASES, SAMPLES, concatenation, random
from quantization_peers import HAS_PEER, in_peer, steps_of

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.options import Options
from tilewright.targets.vta import vta

SETTINGS = {
    "int8": {},
    "u8": {"activations": "u8", "method": "entropy"},
    "symmetric": {"activations": "symmetric", "per_tensor": True, "method": "percentile"},
    "pow2": {"scheme": "pow2"},
}


def relative(found, wanted):
    scale = np.sqrt(np.square(wanted, dtype=np.float64).mean()) or 1.0
    return float(np.sqrt(np.square(found.astype(np.float64) - wanted).mean()) / scale)


ALL = [(name, settings) for name in CASES for settings in ("int8", "pow2")]
ALL += [(name, settings) for name in ("chain", "transposed") for settings in ("u8", "symmetric")]
QUICK = {("chain", "int8"), ("residual", "pow2"), ("transposed", "u8")}
ALL = [x if x in QUICK else pytest.param(*x, marks=pytest.mark.long) for x in ALL]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name, settings", ALL)
def test_a_network_of_that_kind(name, settings):
    floats, samples = CASES[name]()
    made = tilewright.quantize(floats, samples, **SETTINGS[settings]).model
    onnx.checker.check_model(made, full_check=True)
    assert [i.name for i in made.graph.input] == list(samples)
    assert [o.name for o in made.graph.output] == [o.name for o in floats.graph.output]
    wanted = tilewright.compile(floats).run(samples)
    ours = tilewright.compile(made).run(samples)
    interpreted = evaluate_graph(import_model(made), list(samples.values()))
    steps = steps_of(made)
    for (key, found), meant in zip(ours.items(), interpreted, strict=True):
        assert relative(found, wanted[key]) < (0.15 if settings == "pow2" else 0.08)
        assert np.abs(found - meant).max() <= 1.01 * (steps[key] or 1e-3 * np.abs(meant).max())
    if HAS_PEER:
        theirs = in_peer(made, samples)
        for (key, found), got in zip(ours.items(), theirs, strict=True):
            assert np.abs(found - got).max() <= 2.01 * (steps[key] or 1e-2 * np.abs(got).max())


def pairs(model):
    """The scale of every value that is quantised, by its name."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = [n for n in model.graph.node if n.op_type == "QuantizeLinear"]
    return {n.input[0].removesuffix(".float"): float(constants[n.input[1]]) for n in nodes}


@cache
def int8(name):
    """A case with all as it is by default."""
    return tilewright.quantize(*CASES[name]())


def test_limits_and_normalizations_belong_to_their_convolution():
    made = int8("chain").model
    assert "BatchNormalization" not in [n.op_type for n in made.graph.node]
    assert list(pairs(made)) == ["x", "r", "p", "e", "g", "f", "y"]


def test_what_moves_elements_keeps_the_scale():
    scales = pairs(int8("moves").model)
    assert len({scales[name] for name in ("c", "a", "b", "p", "s", "r")}) == 1
    assert scales["d"] != scales["c"]


def test_a_concatenation_shares_its_scale_with_operands_as_large():
    """A smaller one that something else reads keeps its own."""
    made, samples = concatenation()
    made.graph.node.append(node("GlobalAveragePool", ["c"], ["z"]))
    made.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    scales = pairs(tilewright.quantize(made, samples).model)
    assert scales["a"] == scales["b"] == scales["d"]
    assert scales["c"] < scales["d"] / 10


def test_what_a_concatenation_alone_reads_has_its_scale():
    """With one of its own it would be rounded twice."""
    scales = pairs(int8("concatenation").model)
    assert scales["a"] == scales["b"] == scales["c"] == scales["d"]


def test_weights_have_a_scale_for_each_channel_and_biases_are_in_steps_of_both():
    made = int8("chain").model
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    assert constants["v.scale"].shape == constants["b.scale"].shape == (16,)
    assert (constants["v.int"].dtype, constants["b.int"].dtype) == (np.int8, np.int32)
    steps = constants["v.scale"] * np.float32(pairs(made)["p"])
    assert np.array_equal(constants["b.scale"], steps)


def linear(**changes):
    """y = x w + b, for numbers whose mean is not 0."""
    w = random(16, 4, seed=3)
    nodes = [node("Gemm", ["x", "w", "b"], ["y"])]
    made = model(nodes, {"x": ("n", 16)}, constants={"w": w, "b": random(4)})
    samples = random(SAMPLES, 16, seed=5) + 3
    return tilewright.quantize(made, changes.pop("samples", samples), **changes), samples, made


def test_weights_have_one_scale_if_that_is_asked_for():
    quantized, _, _ = linear(per_tensor=True)
    assert [tuple(t.dims) for t in quantized.model.graph.initializer if t.name == "w.scale"] == [()]


@pytest.mark.long
def test_biases_take_away_what_is_added_on_average():
    off = []
    for corrected in (False, True):
        quantized, x, made = linear(per_tensor=True, bias_correction=corrected, method="minmax")
        found, wanted = (tilewright.compile(m)(x) for m in (quantized.model, made))
        off.append(np.abs((found - wanted).mean(axis=0)).mean())
    assert off[1] < off[0] / 2


@pytest.mark.long
def test_samples_come_in_any_arrangement():
    quantized, x, _ = linear()
    once = quantized.model.SerializeToString()
    for other in ({"x": x}, {"any": x, "labels": np.arange(SAMPLES)}, {"x": x[:, None]}):
        assert linear(samples=other)[0].model.SerializeToString() == once
    few, _, _ = linear(most=2)
    assert few.report.samples == 2
    assert few.model.SerializeToString() != once


def test_scales_of_pow2_are_powers_of_two_without_zero_points():
    made = linear(scheme="pow2")[0].model
    for t in made.graph.initializer:
        array = onnx.numpy_helper.to_array(t)
        if t.name.endswith(".scale"):
            assert np.frexp(array)[0] == 0.5
        if "zero" in t.name:
            assert not array.any()


def two_branches():
    """A sum of two convolutions, one with a limit behind it, then one that two nodes read."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("Conv", ["x", "v"], ["b"]),
        node("Add", ["a", "b"], ["s"]),
        node("Conv", ["s", "w"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["r"]),
        node("Add", ["r", "s"], ["t"]),
        node("Conv", ["t", "v"], ["d"]),
        node("Add", ["d", "t"], ["u"]),
        node("Add", ["u", "d"], ["y"]),
    ]
    weights = {"w": random(16, 16, 3, 3, scale=0.1), "v": random(16, 16, 1, 1, scale=0.2)}
    made = model(nodes, {"x": ("n", 16, 8, 8)}, constants=weights)
    return made, {"x": random(SAMPLES, 16, 8, 8, seed=4)}


@pytest.mark.long
def test_additions_take_sums_as_they_are_if_that_is_asked_for():
    """Those of one operand, which nothing else reads, without limits."""
    floats, samples = two_branches()
    narrow = tilewright.quantize(floats, samples, scheme="pow2")
    with_pairs = {*pairs(narrow.model)}
    quantized = tilewright.quantize(floats, samples, scheme="pow2", wide_sums=True)
    assert with_pairs - {*pairs(quantized.model)} == {"a"}
    assert quantized.report.values == len(with_pairs) - 1
    alone = [q.report.layers[0].alone for q in (narrow, quantized)]
    assert alone[1] > alone[0] + 1  # decibels: its result is not rounded
    wanted = tilewright.compile(floats).run(samples)["y"]
    (meant,) = evaluate_graph(import_model(quantized.model), list(samples.values()))
    found = tilewright.compile(quantized.model).run(samples)["y"]
    assert np.array_equal(found, meant)
    assert relative(found, wanted) < 0.1
    if HAS_PEER:
        step = steps_of(quantized.model)["y"]
        assert np.abs(found - in_peer(quantized.model, samples)[0]).max() <= 2.01 * step


def on_vta(made, x):
    """The cycles of the only submit; the result is that of the interpreter."""
    options = Options(rounding="half_up")
    module = tilewright.compile(made, target={"npu": vta(), "host": "host"}, options=options)
    graph = import_model(made.SerializeToString(), half_up=True)
    np.testing.assert_array_equal(module(x), evaluate_graph(graph, [x])[0])
    (facts,) = (f for f in module.program.steps if f.cycles is not None)
    return facts.cycles


@pytest.mark.long
def test_a_chip_adds_them_in_its_accumulators():
    """A sum is rounded once: two instructions less for a row than of operands of 8 bits."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["d"]),
        node("Conv", ["d", "w"], ["e"], pads=[1] * 4),
        node("Add", ["e", "b"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    weights = {"w": random(16, 16, 3, 3, scale=0.1)}
    floats = model(nodes, {"x": (1, 16, 8, 8)}, constants=weights)
    samples = {"x": random(SAMPLES, 16, 8, 8, seed=4)}
    cycles = [
        on_vta(tilewright.quantize(floats, samples, scheme="pow2", wide_sums=wide).model,
               samples["x"][:1])
        for wide in (False, True)
    ]  # fmt: skip
    rows, alu = 64, 2
    assert cycles[1] <= cycles[0] - 2 * alu * rows


@pytest.mark.long
def test_a_mean_between_pairs_stays_on_the_chip():
    """What is averaged, flattened and quantised once more with the same scale is one stream with
    what stands before and behind it."""
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("GlobalAveragePool", ["b"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "v"], ["y"]),
    ]
    weights = {"w": random(64, 16, 1, 1), "v": random(64, 16, scale=0.2)}
    floats = model(nodes, {"x": (1, 16, 7, 7)}, constants=weights)
    samples = {"x": random(SAMPLES, 16, 7, 7, seed=4)}
    on_vta(tilewright.quantize(floats, samples, scheme="pow2").model, samples["x"][:1])


def test_what_stays_a_float_says_why():
    report = int8("attention").report
    reasons = {f.node: f.reason for f in report.floats}
    assert reasons["n"] == "in 8 bits its operand 'm' would be nothing beside the other"
    assert reasons["p"] == "Softmax is computed in floats"
    assert reasons["l"] == "LayerNormalization is computed in floats"
    assert {x.node for x in report.layers} == {"a", "c", "s", "m", "o", "z", "y"}


def test_errors_of_layers_grow_and_are_those_of_the_outputs():
    chain, samples = CASES["chain"]()
    quantized = int8("chain")
    report = quantized.report
    assert [x.operator for x in report.layers] == ["Conv", "Conv", "GlobalAveragePool", "Gemm"]
    first, last = report.layers[0], report.layers[-1]
    assert first.alone == pytest.approx(first.so_far, abs=1)
    assert 25 < last.so_far < last.alone
    (output,) = report.outputs
    assert output.decibels == last.so_far
    floats = tilewright.compile(chain)(samples["x"])
    found = tilewright.compile(quantized.model)(samples["x"])
    assert output.relative == pytest.approx(relative(found, floats), rel=1e-4)
    assert output.largest == pytest.approx(float(np.abs(found - floats).max()), rel=1e-4)
    assert str(report).splitlines()[0] == (
        "4 layers in int8, 0 nodes in floats; calibrated on 6 samples by mse"
    )
