"""Trained networks, quantised: as good as floats, and as what onnxruntime's quantiser makes."""

from pathlib import Path

import numpy as np
import pytest

import tilewright

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
POINTS = {"int8": 0.01, "pow2": 0.02}  # of accuracy that may be lost


@pytest.fixture(scope="module")
def held_out():
    with np.load(DIGITS / "held_out.npz") as file:
        return file["images"], file["labels"]


@pytest.mark.parametrize("scheme", ["pow2", pytest.param("int8", marks=pytest.mark.long)])
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["digits", "digits_residual"])
def test_digits_are_read_as_floats_read_them(name, scheme, held_out):
    images, labels = held_out
    path = DIGITS / f"{name}.onnx"
    with np.load(DIGITS / "calibration.npz") as samples:
        quantized = tilewright.quantize(path, dict(samples), scheme=scheme)
    assert quantized.report.floats == ()
    floats = tilewright.compile(path)(images).argmax(axis=1)
    found = tilewright.compile(quantized.model)(images).argmax(axis=1)
    assert (found == labels).mean() >= (floats == labels).mean() - POINTS[scheme]


@pytest.mark.parametrize("name", ["digits", "digits_residual"])
def test_not_worse_than_another_quantiser(name):
    pytest.importorskip("onnxruntime")
    import quantization  # the benchmark

    rows = {r.by: r for r in quantization.measure(quantization.trained(name))}
    theirs, ours = rows["onnxruntime"], rows["int8"]
    assert ours.right >= theirs.right - 1
    assert ours.mean_error <= theirs.mean_error
    for scheme in ("int8", "pow2"):
        assert rows[scheme].same_in_both == 1
        assert rows[scheme].steps_apart <= 1.01
