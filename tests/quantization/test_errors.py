"""What cannot be quantised is refused in words, on the command line as in Python."""

import json
import os

import numpy as np
import onnx
import pytest
import schemas
from command_line import failure, run_commands  # noqa: F401  (a fixture: `tilewright`)
from onnx_models import model, node
from quantization_cases import CASES, image, random

from tilewright import InputError, ModelError, quantize
from tilewright.quantization.measure_errors import Noise


def product(**changes):
    """y = x w, of any number of rows."""
    settings = {"constants": {"w": random(3, 4)}} | changes
    return model([node("MatMul", ["x", "w"], ["y"], name="product")], {"x": ("n", 3)}, **settings)


X = random(5, 3)

REFUSED = {
    "no scheme": (
        {"scheme": "int4"},
        "there is no scheme called 'int4'\n  hint: did you mean 'int8'?",
    ),
    "no method": (
        {"method": "kl"},
        "there is no method called 'kl'\n  hint: known: minmax, percentile, entropy, mse",
    ),
    "no activations": (
        {"activations": "affine"},
        "there is no kind of activations called 'affine'\n  hint: known: i8, u8, symmetric",
    ),
    "percentile": (
        {"percentile": 5.0},
        "percentile is 5.0, and must be above 50 and at most 100",
    ),
    "most": ({"most": 0}, "most is 0, and must be 1 or more samples"),
    "no node": (
        {"keep_float": ["products"]},
        "the model has no node 'products'\n  hint: did you mean 'product'?",
    ),
    "name": (
        {"samples": {"a": X, "b": X}},
        (
            "the calibration data has no array for the input 'x': float32[n, 3], and more than one"
            " of its arrays fits: a: float32[5, 3], b: float32[5, 3]\n  hint: call the array 'x'"
        ),
    ),
    "shape": (
        {"samples": {"x": random(5, 4)}},
        (
            "the calibration data for 'x' has shape [5, 4], and the model takes [n, 3]\n"
            "  hint: the first axis may have several samples, one after another"
        ),
    ),
    "type": (
        {"samples": {"x": np.ones((5, 3), np.int64)}},
        "the calibration data for 'x' is int64, and the model takes float32",
    ),
    "wide sums": (
        {"wide_sums": True},
        (
            "wide_sums (--wide-sums) is an option of scheme 'pow2', and this is 'int8'\n"
            "  hint: scales of other schemes have to be multiplied by before an addition"
        ),
    ),
    "no samples": (
        {"samples": {"x": X[:0]}},
        "the calibration data has no samples\n  hint: give one or more",
    ),
    "not finite": (
        {"samples": {"x": X * np.inf}},
        (
            "nothing in this model can be quantised: no convolution or product of matrices is left"
            "\n  product: 'x' holds numbers that are not finite"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_and_samples_that_do_not_fit(name):
    options, wanted = REFUSED[name]
    options = {"samples": X} | options
    with pytest.raises((InputError, ModelError)) as caught:
        quantize(product(), **options)
    assert str(caught.value) == wanted


def test_several_inputs_have_as_many_samples():
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["z", "w"], ["u"])]
    shapes = {"x": ("n", 3), "z": ("m", 3)}
    two = model(nodes, shapes, ["y", "u"], constants={"w": random(3, 4)})
    with pytest.raises(InputError) as caught:
        quantize(two, {"x": random(4, 3), "z": random(5, 3)})
    assert str(caught.value) == (
        "the calibration data has different numbers of samples: x: 4, z: 5\n"
        "  hint: give as many of each input"
    )
    with pytest.raises(InputError) as caught:
        quantize(two, random(4, 3))
    assert str(caught.value) == (
        "the model has 2 inputs, and the calibration data is one array\n"
        "  hint: give a mapping with an array for each: x, z"
    )
    with pytest.raises(InputError) as caught:
        quantize(two, {"x": random(4, 3), "zz": random(4, 3)})
    assert str(caught.value) == (
        "the calibration data has no array for the input 'z'\n  hint: did you mean 'zz'?"
    )


def test_a_model_that_is_quantised_already():
    once = quantize(product(), X).model
    with pytest.raises(ModelError) as caught:
        quantize(once, X)
    assert str(caught.value) == (
        "the model is quantised already: node 'x.int8' is a QuantizeLinear\n"
        "  hint: give the float model that it was made from"
    )


def test_weights_that_are_computed():
    nodes = [node("Neg", ["x"], ["w"], name="negate"), node("Conv", ["x", "w"], ["y"], name="c")]
    computed = model(nodes, {"x": (1, 1, 3, 3)})
    with pytest.raises(ModelError) as caught:
        quantize(computed, image(1, 3, 3))
    assert str(caught.value) == (
        "nothing in this model can be quantised: no convolution or product of matrices is left\n"
        "  negate: Neg is computed in floats\n"
        "  c: its weights are computed"
    )


def test_other_floats():
    kind = onnx.TensorProto.FLOAT16
    half = model(
        [node("MatMul", ["x", "w"], ["y"], name="product")],
        {"x": (kind, ("n", 3))},
        constants={"w": random(3, 4).astype(np.float16)},
    )
    with pytest.raises(ModelError) as caught:
        quantize(half, X)
    assert str(caught.value) == (
        "nothing in this model can be quantised: no convolution or product of matrices is left"
        "\n  product: its operands are not known to be float32"
    )


def test_a_model_that_cannot_be_imported_is_refused_as_it_is_elsewhere():
    broken = model([node("Conv", ["x", "w"], ["y"], name="c")], {"x": ("n", 3)})
    with pytest.raises(ModelError, match="'w'"):
        quantize(broken, X)


def test_noise_without_a_signal_is_not_exact():
    noise = Noise()
    noise.add(np.zeros(4, np.float32), np.ones(4, np.float32))
    assert (noise.decibels, noise.relative) == (-np.inf, np.inf)
    exact = Noise()
    exact.add(np.zeros(4, np.float32), np.zeros(4, np.float32))
    assert (exact.decibels, exact.relative) == (None, 0.0)


def test_a_large_bias_fits_in_either_scheme():
    """Weights get a coarser step where the bias would not fit i32 in theirs."""
    nodes = [node("MatMul", ["x", "w"], ["p"], name="product"), node("Add", ["p", "b"], ["y"])]
    constants = {"w": random(3, 4) * 1e-6, "b": np.full(4, 1e6, np.float32)}
    floats = model(nodes, {"x": ("n", 3)}, constants=constants)
    for scheme in ("int8", "pow2"):
        (output,) = quantize(floats, X, scheme=scheme).report.outputs
        assert output.decibels is None or output.decibels > 35


def test_samples_without_a_name():
    """The only array is the input's, also with an axis more."""
    floats = model(
        [node("MatMul", ["x", "w"], ["y"], name="product")],
        {"x": (2, 3)},
        constants={"w": random(3, 4)},
    )
    stacked = random(5, 2, 3)
    for given in (stacked, {"anything": stacked}, {"x": stacked}):
        assert quantize(floats, given).report.samples == 5


# ---------------------------------------------------------------- the command line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, samples = CASES["residual"]()
    onnx.save(made, "model.onnx")
    np.savez("samples.npz", **samples)
    (tmp_path / "text.npz").write_text("no numbers")
    return tmp_path


ARGUMENTS = ("quantize", "model.onnx", "--calibrate", "samples.npz")


def test_the_command_writes_a_model_and_says_what_it_loses(tilewright, folder):
    code, out, err = tilewright(*ARGUMENTS, "-o", "q.onnx", "--keep-float", "s")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["layer", "operator", "alone", "so", "far"]
    assert [line.split()[:2] for line in lines[1:4]] == [["c", "Conv"], ["d", "Conv"], ["y", "Sub"]]
    assert lines[4:6] == [
        "in floats: s: as was asked for",
        "in floats: r: its operand 's' is not quantised",
    ]
    assert lines[6].startswith("output y: ")
    assert lines[7] == "3 layers in int8, 2 nodes in floats; calibrated on 6 samples"
    assert lines[8].startswith("wrote q.onnx: ")
    onnx.checker.check_model(onnx.load("q.onnx"), full_check=True)
    assert sorted(os.listdir()) == ["model.onnx", "q.onnx", "samples.npz", "text.npz"]


def test_one_array_of_a_file(tilewright, folder):
    with np.load("samples.npz") as samples:
        np.save("samples.npy", samples["x"])
    code, _, err = tilewright(*ARGUMENTS[:3], "samples.npy", "-o", "q.onnx")
    assert (code, err) == (0, "")


def test_damaged_samples_have_a_word(tilewright, folder):
    with np.load("samples.npz") as samples:
        arrays = dict(samples)
    np.savez_compressed("samples.npz", **arrays)
    whole = (folder / "samples.npz").read_bytes()
    for at in range(30, len(whole), max(1, len(whole) // 40)):
        cut = bytearray(whole)
        cut[at : at + 4] = b"\xff\xff\xff\xff"
        (folder / "samples.npz").write_bytes(cut)
        code, _, err = tilewright(*ARGUMENTS, "-o", "q.onnx", "--quiet")
        assert code == 0 or err.startswith("error: ")
        assert "Traceback" not in err


def test_the_file_is_named_after_the_model_and_its_scheme(tilewright, folder):
    assert tilewright(*ARGUMENTS, "--scheme", "pow2", "--quiet") == (0, "", "")
    assert (folder / "model.pow2.onnx").exists()


def test_json_has_its_schema_and_no_words(tilewright, folder):
    code, out, err = tilewright(*ARGUMENTS, "--samples", "3", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    schemas.validate("quantize", found)
    assert (found["samples"], found["scheme"], found["floats"]) == (3, "int8", [])
    assert found["bytes"] == (folder / "model.int8.onnx").stat().st_size


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            ("quantize", ".", "--calibrate", "samples.npz"),
            "error: '.' is no file of a model\n",
        ),
        (
            (*ARGUMENTS, "-o", "model.onnx"),
            (
                "error: a quantized model would take the place of model.onnx\n"
                "  hint: another file: -o model.int8.onnx\n"
            ),
        ),
        (
            ("quantize", "model.onnx", "--calibrate", "none.npz"),
            "error: cannot read none.npz: No such file or directory\n",
        ),
        (
            ("quantize", "model.onnx", "--calibrate", "text.npz"),
            (
                "error: text.npz is not a .npz file of numbers\n"
                "  hint: np.savez(FILE, NAME=array) writes one, with an array for each input\n"
            ),
        ),
        (
            ("quantize", "model.tw", "--calibrate", "samples.npz"),
            "error: model.tw is compiled already\n  hint: give the .onnx model it was made of\n",
        ),
        (
            (*ARGUMENTS, "-o", "no/q.onnx"),
            "error: cannot write no/q.onnx: No such file or directory\n",
        ),
    ],
)
def test_errors_of_the_command(tilewright, folder, arguments, words):
    assert failure(tilewright(*arguments)) == words
    assert sorted(os.listdir()) == ["model.onnx", "samples.npz", "text.npz"]
