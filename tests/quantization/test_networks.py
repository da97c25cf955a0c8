"""Networks of many shapes: what is written is valid, means the same everywhere, and is near."""

import importlib.util

import numpy as np
import onnx
import pytest
from quantization_cases import CASES

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph

SETTINGS = {
    "int8": {},
    "u8": {"activations": "u8", "method": "entropy"},
    "symmetric": {"activations": "symmetric", "per_tensor": True, "method": "percentile"},
    "pow2": {"scheme": "pow2"},
}
HAS_PEER = importlib.util.find_spec("onnxruntime") is not None


def relative(found, wanted):
    scale = np.sqrt(np.square(wanted, dtype=np.float64).mean()) or 1.0
    return float(np.sqrt(np.square(found.astype(np.float64) - wanted).mean()) / scale)


def steps_of(model):
    """The scale of each output; None of those that are floats."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    makers = {o: n for n in model.graph.node for o in n.output}
    found = {}
    for o in model.graph.output:
        maker = makers.get(o.name)
        is_pair = maker is not None and maker.op_type == "DequantizeLinear"
        found[o.name] = float(constants[maker.input[1]]) if is_pair else None
    return found


ALL = [(name, settings) for name in CASES for settings in ("int8", "pow2")]
ALL += [(name, settings) for name in ("chain", "transposed") for settings in ("u8", "symmetric")]


@pytest.mark.parametrize(("name", "settings"), ALL)
def test_a_network_of_that_kind(name, settings):
    model, samples = CASES[name]()
    quantised = tilewright.quantize(model, samples, **SETTINGS[settings])
    made = quantised.model
    onnx.checker.check_model(made, full_check=True)
    assert [i.name for i in made.graph.input] == list(samples)
    assert [o.name for o in made.graph.output] == [o.name for o in model.graph.output]
    floats = tilewright.compile(model).run(samples)
    ours = tilewright.compile(made).run(samples)
    interpreted = evaluate_graph(import_model(made), list(samples.values()))
    steps = steps_of(made)
    for (key, found), meant in zip(ours.items(), interpreted, strict=True):
        assert relative(found, floats[key]) < (0.15 if settings == "pow2" else 0.08)
        assert np.abs(found - meant).max() <= 1.01 * (steps[key] or 1e-3 * np.abs(meant).max())
    if HAS_PEER:
        theirs = in_peer(made, samples)
        for (key, found), got in zip(ours.items(), theirs, strict=True):
            assert np.abs(found - got).max() <= 2.01 * (steps[key] or 1e-2 * np.abs(got).max())


def in_peer(model, samples):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    return runtime.InferenceSession(model.SerializeToString(), options).run(None, samples)


def pairs(model):
    """The scale of every value that is quantised, by its name."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = [n for n in model.graph.node if n.op_type == "QuantizeLinear"]
    return {n.input[0].removesuffix(".float"): float(constants[n.input[1]]) for n in nodes}


def test_limits_and_normalizations_belong_to_their_convolution():
    model, samples = CASES["chain"]()
    made = tilewright.quantize(model, samples).model
    assert "BatchNormalization" not in [n.op_type for n in made.graph.node]
    assert list(pairs(made)) == ["x", "r", "p", "e", "g", "f", "y"]


def test_what_moves_elements_keeps_the_scale():
    model, samples = CASES["moves"]()
    scales = pairs(tilewright.quantize(model, samples).model)
    assert len({scales[name] for name in ("c", "a", "b", "p", "s", "r")}) == 1
    assert scales["d"] != scales["c"]


def test_a_concatenation_shares_its_scale_with_operands_as_large():
    model, samples = CASES["concatenation"]()
    scales = pairs(tilewright.quantize(model, samples).model)
    assert scales["a"] == scales["b"] == scales["d"]
    assert scales["c"] < scales["d"] / 10


def test_weights_have_a_scale_for_each_channel_unless_they_are_to_have_one():
    model, samples = CASES["chain"]()
    for per_tensor, wanted in ((False, (16,)), (True, ())):
        made = tilewright.quantize(model, samples, per_tensor=per_tensor).model
        shapes = {t.name: tuple(t.dims) for t in made.graph.initializer}
        assert shapes["v.scale"] == wanted
        assert shapes["v.int"] == (16, 8, 3, 3)


def test_scales_of_pow2_are_powers_of_two_without_zero_points():
    model, samples = CASES["squeeze_excitation"]()
    made = tilewright.quantize(model, samples, scheme="pow2").model
    for t in made.graph.initializer:
        array = onnx.numpy_helper.to_array(t)
        if t.name.endswith(".scale"):
            assert np.frexp(array)[0] == 0.5
        if "zero" in t.name:
            assert not array.any()


def test_what_stays_a_float_says_why():
    model, samples = CASES["attention"]()
    report = tilewright.quantize(model, samples).report
    reasons = {f.node: f.reason for f in report.floats}
    assert reasons["n"] == "in 8 bits its operand 'm' would be nothing beside the other"
    assert reasons["p"] == "Softmax is computed in floats"
    assert reasons["l"] == "LayerNormalization is computed in floats"
    assert {x.node for x in report.layers} == {"a", "c", "s", "m", "o", "z", "y"}


def test_a_node_stays_a_float_if_it_is_to():
    model, samples = CASES["residual"]()
    report = tilewright.quantize(model, samples, keep_float=["s"]).report
    assert [(f.node, f.reason) for f in report.floats] == [
        ("s", "as was asked for"),
        ("r", "its operand 's' is not quantised"),
    ]


def test_errors_of_layers_grow_and_are_those_of_the_outputs():
    model, samples = CASES["chain"]()
    report = tilewright.quantize(model, samples).report
    assert [x.operator for x in report.layers] == ["Conv", "Conv", "GlobalAveragePool", "Gemm"]
    first, last = report.layers[0], report.layers[-1]
    assert first.alone == first.so_far
    assert 30 < last.so_far < last.alone
    (output,) = report.outputs
    assert output.decibels == last.so_far
    floats = tilewright.compile(model)(samples["x"])
    made = tilewright.quantize(model, samples).model
    found = tilewright.compile(made)(samples["x"])
    assert output.relative == pytest.approx(relative(found, floats), rel=1e-6)
    assert output.largest == pytest.approx(float(np.abs(found - floats).max()), rel=1e-5)


def test_biases_take_away_what_weights_add_on_average():
    model, samples = CASES["chain"]()
    samples = {"x": samples["x"] + 3}  # whose mean is not 0
    wanted = tilewright.compile(model)(samples["x"])
    off = []
    for corrected in (False, True):
        made = tilewright.quantize(model, samples, per_tensor=True, bias_correction=corrected).model
        off.append(np.abs((tilewright.compile(made)(samples["x"]) - wanted).mean(axis=0)).mean())
    assert off[1] < off[0] / 2


def test_samples_come_in_any_arrangement():
    model, samples = CASES["residual"]()
    once = tilewright.quantize(model, samples).model.SerializeToString()
    assert tilewright.quantize(model, samples["x"]).model.SerializeToString() == once
    assert tilewright.quantize(model, {"any": samples["x"]}).model.SerializeToString() == once
    stacked = {"x": samples["x"][:, None]}  # each a batch of one
    assert tilewright.quantize(model, stacked).model.SerializeToString() == once
    few = tilewright.quantize(model, samples, most=2)
    assert few.report.samples == 2
    assert few.model.SerializeToString() != once
