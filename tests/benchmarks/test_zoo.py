"""The zoo's models are valid and repeatable and their outputs vary; the digits model works.

Models that run do so in onnxruntime where it is installed and by shape inference where it is not.
The three light networks with 60 to 144 M weights are built by the same code as the others, left out
for time.
"""

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import zoo
from arithmetic import count_macs, count_weights, fix_dimensions, value_shapes
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

DIGITS = Path(__file__).parents[2] / "examples" / "digits"

SMALL = {
    "resnet18": zoo.resnet18,
    "resnet50": zoo.resnet50,
    "mobilenetv2": zoo.mobilenetv2,
    "bert": partial(zoo.bert, layers=1, vocabulary=100, sequence=16),
    "gpt2": partial(zoo.gpt2, layers=2, vocabulary=100, sequence=16),
    "lstm": partial(zoo.lstm, sequence=9),
}
LARGE = {"light_bvlc_alexnet", "light_vgg19", "light_zfnet512"}
LIGHT = [name for name in zoo.ZOO if name.startswith("light_") and name not in LARGE]
TEXT = ["bert", "gpt2", "lstm"]


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    providers = ["CPUExecutionProvider"]
    session = runtime.InferenceSession(model.SerializeToString(), providers=providers)
    return session.run(None, inputs)


def output_shapes(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    shapes = value_shapes(model)
    return [shapes[value.name] for value in model.graph.output]


# ---- every model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_built_models_are_valid(name):
    model = SMALL[name]()
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]


@pytest.mark.parametrize("name", LIGHT)
def test_light_models_are_valid_and_have_random_weights(name):
    model = zoo.ZOO[name]()
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.input) == 1
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}
    floats = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    assert all(np.ptp(numpy_helper.to_array(tensor)) > 0 for tensor in floats)


@pytest.mark.parametrize("name", ["mobilenetv2", "light_resnet50", "light_shufflenet"])
def test_running_variances_are_positive(name):
    graph = zoo.ZOO[name]().graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    norms = [node for node in graph.node if node.op_type == "BatchNormalization"]
    assert norms
    assert all(weights[norm.input[4]].min() > 0.5 for norm in norms)


@pytest.mark.parametrize("name", ["mobilenetv2", *TEXT, "light_squeezenet", "light_shufflenet"])
def test_weights_depend_on_the_seed_alone(name):
    build = SMALL.get(name) or zoo.ZOO[name]
    first, again, other = build(seed=3), build(seed=3), build(seed=4)
    assert first.SerializeToString() == again.SerializeToString()
    assert first.graph.node == other.graph.node
    assert first.SerializeToString() != other.SerializeToString()


@pytest.mark.parametrize(
    "name, gmacs, million_weights",
    [("resnet18", 1.81, 11.7), ("resnet50", 4.09, 25.6), ("mobilenetv2", 0.30, 3.5)],
)
def test_the_arithmetic_is_that_of_the_papers(name, gmacs, million_weights):
    model = zoo.ZOO[name]()
    assert count_macs(model) / 1e9 == pytest.approx(gmacs, rel=0.02)
    assert count_weights(model) / 1e6 == pytest.approx(million_weights, rel=0.02)


def test_bert_layer_arithmetic():
    one, two = (zoo.bert(layers=layers, vocabulary=100) for layers in (1, 2))
    projections, attention = 128 * 768 * 768 * (4 + 8), 2 * 12 * 128 * 128 * 64
    assert count_macs(two) - count_macs(one) == projections + attention


def test_lstm_arithmetic():
    steps = 9 * (2 * 512 * (128 + 128) + 512 * (256 + 128))
    assert count_macs(SMALL["lstm"]()) == steps + 9 * 40 * 128 + 128 * 35


# ---- symbolic dimensions -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_a_symbolic_batch_has_the_shapes_of_a_fixed_one(name):
    symbolic, fixed = SMALL[name](batch="batch"), SMALL[name](batch=3)
    onnx.checker.check_model(symbolic, full_check=True)
    assert symbolic.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert output_shapes(fix_dimensions(symbolic, batch=3)) == output_shapes(fixed)


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
@pytest.mark.parametrize("name", SMALL)
def test_a_symbolic_batch_computes_each_row_alone(name):
    symbolic, single = SMALL[name](batch="batch"), SMALL[name]()
    inputs = zoo.sample_inputs(symbolic, batch=2)
    second = {key: value[1:] for key, value in inputs.items()}
    for both, one in zip(run(symbolic, inputs), run(single, second), strict=True):
        assert one.std() > 0.1
        np.testing.assert_allclose(both[1:], one, rtol=1e-3, atol=1e-4 * np.abs(one).max())


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
@pytest.mark.parametrize("name", TEXT)
def test_a_symbolic_sequence_computes_what_a_fixed_one_does(name):
    fixed, symbolic = SMALL[name](sequence=7), SMALL[name](batch="batch", sequence="sequence")
    inputs = zoo.sample_inputs(fixed)
    for one, other in zip(run(fixed, inputs), run(symbolic, inputs), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4 * np.abs(one).max())


def test_gpt2_sees_no_later_token():
    model = SMALL["gpt2"]()
    evaluator = ReferenceEvaluator(model)
    ids = zoo.sample_inputs(model)["input_ids"]
    changed = ids.copy()
    changed[:, 10:] = (changed[:, 10:] + 1) % 100
    before, after = (evaluator.run(None, {"input_ids": each})[0] for each in (ids, changed))
    np.testing.assert_allclose(before[:, :10], after[:, :10], rtol=1e-4, atol=1e-4)
    assert np.abs(before[:, 10:] - after[:, 10:]).max() > 0.1


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="needs onnxruntime")
@pytest.mark.parametrize("name", LIGHT)
def test_light_outputs_vary(name):
    model = zoo.ZOO[name]()
    (output,) = run(model, zoo.sample_inputs(model))
    assert output.size == 1000
    assert output.std() > 0.1 * np.abs(output).max() / np.sqrt(output.size)
    assert np.abs(output).max() > 2 * np.abs(output).mean()
    assert np.count_nonzero(output > 1e-8) > 300  # not one-hot


# ---- inputs and errors ---------------------------------------------------------------------------


def test_sample_inputs_are_in_range():
    inputs = zoo.sample_inputs(SMALL["bert"](batch="batch"), seed=1, batch=50)
    assert {
        name: (array.shape, array.dtype.name) for name, array in inputs.items()
    } == dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ((50, 16), "int64"))
    assert (inputs["input_ids"].min(), inputs["input_ids"].max()) == (0, 99)
    assert set(inputs["token_type_ids"].flat) == {0, 1}
    assert set(inputs["attention_mask"].flat) == {1}


def test_sample_inputs_asks_for_the_size_of_a_symbolic_dimension():
    with pytest.raises(ValueError) as caught:
        zoo.sample_inputs(SMALL["lstm"](batch="batch"))
    assert str(caught.value) == (
        "input 'features' has the symbolic dimension 'batch': "
        "say its size, as in sample_inputs(model, batch=1)"
    )


def test_light_models_have_one_batch_size():
    with pytest.raises(ValueError) as caught:
        zoo.ZOO["light_squeezenet"](batch=2)
    assert str(caught.value) == (
        "light_squeezenet is shipped with batch 1 written into its reshapes, got 2"
    )


def test_command_line_writes_a_model(tmp_path, capsys):
    path = tmp_path / "lstm.onnx"
    assert zoo.main(["lstm", "-o", str(path), "--batch", "N"]) == 0
    assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert capsys.readouterr().out.startswith(f"{path}: 32 nodes, 0.5 M weights, 0.02 GMAC, ")


# ---- digits --------------------------------------------------------------------------------------


def test_digits_model_recognizes_the_held_out_digits():
    model = onnx.load(DIGITS / "digits.onnx")
    onnx.checker.check_model(model, full_check=True)
    with np.load(DIGITS / "held_out.npz") as held_out:
        images, labels = held_out["images"], held_out["labels"]
    assert images.shape == (360, 1, 8, 8)
    (scores,) = ReferenceEvaluator(model).run(["scores"], {"image": images})
    assert (scores.argmax(1) == labels).mean() >= 0.97


def test_digits_model_is_small_and_takes_any_batch():
    model = onnx.load(DIGITS / "digits.onnx")
    (image,), (scores,) = model.graph.input, model.graph.output
    batches = [value.type.tensor_type.shape.dim[0].dim_param for value in (image, scores)]
    assert batches == ["batch", "batch"]
    assert (DIGITS / "digits.onnx").stat().st_size < 200_000
