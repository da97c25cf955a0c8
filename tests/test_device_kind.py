"""A kind of device that the project does not know: its record passes the node tests that it claims,
and it takes part in a model beside the host and a chip."""

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx.backend.test.loader import load_model_tests
from stack_machine.backend import KIND, stack_machine
from stack_machine.device import StackMachine

import tilewright
from tilewright.backends.table import Option
from tilewright.base.errors import ArtifactError, CompileError
from tilewright.options import Options
from tilewright.program.host_program import KernelCall, Submit
from tilewright.targets.vta import vta

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
CLAIMED = [
    "abs",
    "add",
    "add_bcast",
    "and2d",
    "averagepool_2d_default",
    "basic_conv_with_padding",
    "batchnorm_example",
    "ceil",
    "clip_example",
    "cos",
    "div_bcast",
    "equal",
    "exp",
    "floor",
    "gemm_default_no_bias",
    "globalaveragepool",
    "greater",
    "layer_normalization_2d_axis0",
    "leakyrelu",
    "less",
    "log",
    "matmul_2d",
    "matmul_3d",
    "max_example",
    "maxpool_2d_default",
    "mean_example",
    "min_example",
    "mul",
    "neg",
    "not_2d",
    "reciprocal",
    "relu",
    "round",
    "sign",
    "softmax_axis_1",
    "sqrt",
    "sub_bcast",
    "tanh",
    "where_example",
]


@cache
def node_tests():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {t.name: t for t in load_model_tests(kind="node")}


@pytest.mark.parametrize("name", CLAIMED)
def test_node_tests_that_it_claims(name):
    case = node_tests()[f"test_{name}"]
    devices = {"stack": stack_machine(), "host": "host"}
    module = tilewright.compile(case.model, target=devices)
    kinds = {type(s) for s in module.program.host.steps}
    assert Submit in kinds
    assert KernelCall not in kinds
    for inputs, wanted in case.data_sets:
        given = dict(zip((t.name for t in module.inputs), inputs, strict=True))
        for found, array in zip(module.run(given).values(), wanted, strict=True):
            np.testing.assert_allclose(found, array, rtol=case.rtol, atol=case.atol)


@pytest.fixture(scope="module")
def images():
    with np.load(DIGITS / "held_out.npz") as file:
        return file["images"][:64]


@pytest.fixture(scope="module")
def shared(images):
    """The digits network on a chip, a stack machine for what the chip cannot do, and the host."""
    model = tilewright.quantize(DIGITS / "digits.onnx", images, scheme="pow2").model
    devices = {"npu": vta(), "stack": stack_machine(), "host": "host"}
    options = Options(dims={"batch": 1}, rounding="half_up")
    host = tilewright.compile(model, options=options)
    return tilewright.compile(model, target=devices, options=options), host


def test_it_takes_part_in_a_model_beside_a_chip(shared, images):
    module, host = shared
    steps = zip(module.program.host.steps, module.program.steps, strict=True)
    submitted = [(s.device, facts.cycles) for s, facts in steps if isinstance(s, Submit)]
    assert {device for device, _ in submitted} == {"npu", "stack"}
    assert all(cycles is not None for _, cycles in submitted)
    assert np.array_equal(module(images[:1]), host(images[:1]))


@pytest.mark.parametrize(
    "found, what",
    [([], "has no option"), ([Option()], "says how 0 of 2 arrays are held")],
)
def test_options_that_say_too_little(found, what):
    backend = replace(stack_machine().backend, options=lambda program, target: found)
    devices = {"stack": replace(stack_machine(), backend=backend), "host": "host"}
    with pytest.raises(CompileError) as caught:
        tilewright.compile(node_tests()["test_relu"].model, target=devices)
    assert str(caught.value).splitlines()[0] == f"backend 'stack' {what} for relu"
    assert caught.value.hint == (
        "an Option has one Held for each operand and result, or an obstacle: see"
        " docs/new-device-kind.md"
    )


def test_it_is_loaded_with_what_makes_it(shared, images, tmp_path):
    module, _ = shared
    module.save(tmp_path / "digits.tw")
    loaded = tilewright.load(tmp_path / "digits.tw", devices={KIND: StackMachine})
    assert np.array_equal(loaded(images[:1]), module(images[:1]))
    with pytest.raises(ArtifactError) as caught:
        tilewright.load(tmp_path / "digits.tw")
    assert str(caught.value) == (
        "'stack' is a device of kind 'stack', which is not known here\n"
        f"  while loading {tmp_path / 'digits.tw'}\n"
        "  hint: known: simulator"
    )
