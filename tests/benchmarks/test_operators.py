"""Benchmarks of single operators and of the breadth networks: models that are valid, options that
are refused in words, and what counts as a finding."""

import drawn_operators
import numpy as np
import onnx
import pytest
from breadth_networks import BREADTH
from operator_cases import CASES
from operators import OURS, Result, main, quantized_problem

pytest.importorskip("onnxruntime")
from quantized_models import models, quantized


@pytest.mark.parametrize("name", [n for k, n in enumerate(CASES) if k % 25 == 0])
def test_models_of_one_operator_are_valid(name: str):
    onnx.checker.check_model(CASES[name]())


@pytest.mark.parametrize("name", ["keyword_spotting", "wavenet", "super_resolution"])
def test_networks_are_valid_and_their_weights_seeded(name: str):
    model = BREADTH[name]()
    onnx.checker.check_model(model)
    assert model == BREADTH[name]()


def test_drawn_models_are_valid_and_the_same_for_a_seed():
    drawn = drawn_operators.models(120, 1)
    assert len(drawn) == 120
    assert list(drawn) == list(drawn_operators.models(120, 1))
    assert list(drawn) != list(drawn_operators.models(120, 2))
    for k, build in enumerate(drawn.values()):
        if k % 6 == 0:
            onnx.checker.check_model(build())


def test_there_are_as_many_as_are_promised():
    assert len(CASES) >= 200
    assert len(BREADTH) >= 25


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["nothing"], "no model has any of nothing in its name"),
        (["conv", "--threads", "0"], "--threads: must be positive numbers, as in 1,2: got '0'"),
        (["--drawn", "0"], "--drawn: must be at least 1, not 0"),
        (["--seed", "3"], "--seed: says which operators are drawn, and needs --drawn"),
        (["conv", "--peers", "none"], "--peers: no 'none'; there are onnxruntime, openvino"),
        (["conv", "--json", "/no/such"], "cannot write /no/such: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(arguments, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert said in capsys.readouterr().err


def test_how_far_quantised_results_may_differ():
    wanted = [np.linspace(-1, 1, 100, dtype=np.float32)]
    assert quantized_problem([wanted[0] + 0.01], wanted) is None
    said = "wrong result: differs from onnxruntime's by 1.7e-01 of its deviation"
    assert quantized_problem([wanted[0] + 0.1], wanted) == said
    assert quantized_problem([wanted[0] * np.nan], wanted) is not None


def test_quantised_networks_are_valid():
    model = quantized("keyword_spotting", "s8")
    onnx.checker.check_model(model)
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= {n.op_type for n in model.graph.node}
    assert "resnet18 u8" in models()


def result(ours: float | None, **peers: float | None) -> Result:
    return Result("x", 1, {OURS: ours, **peers}, 0.1, None)


def test_what_is_a_finding():
    assert result(100, a=70, b=200).ratio == 0.7
    assert result(100, a=70).peer == ("a", 70)
    assert not result(100, a=70).is_finding
    assert result(100, a=60).is_finding
    assert not result(40, a=10).is_finding
    assert result(None, a=60).is_finding
    assert not result(100, a=None).is_finding
