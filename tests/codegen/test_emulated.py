"""Code for AArch64, run under an emulator: instructions mean what they say, kernels of models give
what numpy does, quantised ones to the bit, and functions are as exact as they promise."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnx
import pytest
from emulator import run_aarch64
from function_cases import CASES, exact_results, function_kernel, padded, samples
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_calls import calls
from onnx import TensorProto
from onnx_models import model, node
from strategies import array, symbol_values
from strategies_programs import Program, programs

import tilewright
from tilewright.base.dtype import f32
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import symbols
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.targets import cpu

LATER = ("usdot", "usdot_rows", "bfdot")  # than the emulator's processor
TARGETS = {"neon": cpu.cpu("neon"), "neon-dot": cpu.cpu("neon-dot")}
TARGETS["neon-dot"] = replace(
    TARGETS["neon-dot"],
    instructions=tuple(i for i in TARGETS["neon-dot"].instructions if i.name not in LATER),
)
INSTRUCTIONS = {i.name: t for t in TARGETS.values() for i in t.instructions}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions(name: str):
    target = INSTRUCTIONS[name]
    kernel = calls(next(i for i in target.instructions if i.name == name))
    inputs = [array(k + 1, b.dtype, b.shape) for k, b in enumerate(kernel.inputs)]
    (found,) = run_aarch64(kernel, target, inputs)
    np.testing.assert_array_equal(found, interpret(kernel, inputs)[0])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=30, deadline=None)
@given(program=programs(), data=st.data())
def test_kernels_of_models(name: str, program: Program, data: st.DataObject):
    kernel = create_loops(program.program)
    found = default_schedule(kernel, TARGETS[name], {}).kernel
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = program.inputs(data.draw(st.integers(0, 9)), values)
    outputs = list(run_aarch64(found, TARGETS[name], inputs, **values))
    program.compare(outputs, program.wanted(inputs, values))


@pytest.mark.parametrize("name", [name for name, c in CASES.items() if c.operands == 1])
def test_functions(name: str):
    case = CASES[name]
    operands = padded(samples(case, f32, mantissas=20))
    kernel = function_kernel(case, f32, operands[0].size, 4)
    (found,) = run_aarch64(kernel, TARGETS["neon"], operands)
    off = case.off(operands, found, exact_results(case, operands))
    assert off.max() <= case.bound


QUANTISED = {"Conv": (1, 6, 5, 5), "MatMul": (3, 6)}


def quantised(op: str, kind: type[np.integer], zero: int) -> onnx.ModelProto:
    """A contraction of bytes with a rounding to bytes behind it."""
    rng = np.random.default_rng(0)
    weights = {"Conv": (12, 6, 3, 3), "MatMul": (6, 12)}[op]
    constants = {
        "step": np.float32(0.05),
        "zero": np.array(zero, kind),
        "w": rng.integers(-127, 128, weights, np.int8),
        "scales": np.full(12, 0.01, np.float32),
    }
    channel = 0 if op == "Conv" else 1
    nodes = [
        node("DequantizeLinear", ["x", "step", "zero"], ["a"]),
        node("DequantizeLinear", ["w", "scales"], ["b"], axis=channel),
        node(op, ["a", "b"], ["c"], **({"pads": [1, 1, 1, 1]} if op == "Conv" else {})),
        node("QuantizeLinear", ["c", "step", "zero"], ["y"]),
    ]
    element = TensorProto.UINT8 if kind is np.uint8 else TensorProto.INT8
    inputs = {"x": (element, QUANTISED[op])}
    return model(nodes, inputs, constants=constants, opset=21)


@pytest.mark.parametrize("groups, filters, name", [(12, 12, "sdot_rows"), (6, 12, "sdot")])
def test_groups_of_bytes(groups: int, filters: int, name: str):
    """Channels of their own, and narrow groups that are taken together."""
    rng = np.random.default_rng(4)
    shape = (filters, 12 // groups, 3, 3)
    w = rng.integers(-90, 90, shape).astype(np.int8)
    nodes = [node("ConvInteger", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=groups)]
    inputs = {"x": (TensorProto.INT8, (1, 12, 7, 9))}
    source = model(nodes, inputs, constants={"w": w}, opset=21)
    found = tilewright.compile(source, target=TARGETS["neon-dot"], until="scheduled")
    assert any(f" {name}(" in s.show() for s in found.values())
    for schedule in found.values():
        kernel = schedule.kernel
        given = [array(k, b.dtype, b.shape) for k, b in enumerate(kernel.inputs)]
        outputs = run_aarch64(kernel, TARGETS["neon-dot"], given)
        for a, b in zip(outputs, interpret(kernel, given), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", QUANTISED)
@pytest.mark.parametrize("kind, zero", [(np.uint8, 100), (np.int8, -3)], ids=["u8", "i8"])
@pytest.mark.parametrize("level, name", [("neon", "smlal"), ("neon-dot", "sdot")])
def test_quantised(level: str, name: str, op: str, kind: type[np.integer], zero: int):
    """Every kernel of the model, to the bit, with the instruction in its code."""
    source, target = quantised(op, kind, zero), TARGETS[level]
    text = "".join(tilewright.compile(source, target=target, until="asm").values())
    assert re.search(rf"\s{name}2?\s", text)
    for schedule in tilewright.compile(source, target=target, until="scheduled").values():
        kernel = schedule.kernel
        inputs = [array(k, b.dtype, b.shape) for k, b in enumerate(kernel.inputs)]
        outputs = run_aarch64(kernel, target, inputs)
        for a, b in zip(outputs, interpret(kernel, inputs), strict=True):
            np.testing.assert_array_equal(a, b)
