"""Default schedules: for any kernel, layout and target there is one, and it computes the same."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from executor import run_concurrently
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import arrays, same, symbol_values, tensor_programs
from strategies_programs import Program, programs
from strategies_schedule import layouts, packed_inputs, unpacked_outputs

from tilewright.ir.graph import Layout
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.verify import verify_kernel
from tilewright.schedule.create_loops import create_loops
from tilewright.schedule.default import default_schedule
from tilewright.target.target import Target
from tilewright.targets import cpu

TARGETS = {
    "host-1": lambda: cpu.host(threads=1),
    "host-2": lambda: cpu.host(threads=2),
    "avx2": lambda: cpu.cpu("avx2"),
    "sse2": lambda: cpu.cpu("sse2"),
}


@functools.cache
def target(name: str) -> Target:
    return TARGETS[name]()


def draw_layouts(data: st.DataObject, kernel: Kernel) -> dict[str, Layout]:
    """Arrangements for some of a kernel's parameters."""
    chosen = {}
    for buffer in kernel.params:
        rank = len(buffer.shape)
        if 0 < rank <= 5 and data.draw(st.integers(0, 2)) == 2:
            chosen[buffer.name] = data.draw(layouts(rank))
    return chosen


def scheduled(kernel: Kernel, target: Target, chosen: dict[str, Layout]) -> Kernel:
    found = default_schedule(kernel, target, chosen).kernel
    verify_kernel(found)
    return found


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60)
@given(program=tensor_programs(), data=st.data())
def test_any_tensor_program(name: str, program: TensorProgram, data: st.DataObject):
    """In order and at the same time, to the bit."""
    kernel = create_loops(program)
    chosen = draw_layouts(data, kernel)
    found = scheduled(kernel, target(name), chosen)
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = data.draw(arrays(kernel.inputs, values))
    wanted = interpret(kernel, inputs, values)
    listed = {buffer: [layout] for buffer, layout in chosen.items()}
    there = packed_inputs(kernel.inputs, inputs, listed)
    for run in (interpret, run_concurrently):
        outputs = run(found, there, values)
        logical = unpacked_outputs(kernel.outputs, outputs, listed, [a.shape for a in wanted])
        for a, b in zip(wanted, logical, strict=True):
            assert same(a, b), f"{b}, not {a}\n{kernel}\n{found}"


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=20)
@given(program=programs(most=500), data=st.data())
def test_kernels_of_models(name: str, program: Program, data: st.DataObject):
    """Small ones, interpreted: nothing is read that was not written."""
    kernel = create_loops(program.program)
    chosen = draw_layouts(data, kernel)
    found = scheduled(kernel, target(name), chosen)
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = program.inputs(data.draw(st.integers(0, 9)), values)
    if sum(a.size for a in inputs) > 600:
        return  # too slow to interpret: tests/codegen/test_programs.py runs them
    wanted = program.wanted(inputs, values)
    listed = {buffer: [layout] for buffer, layout in chosen.items()}
    outputs = interpret(found, packed_inputs(kernel.inputs, inputs, listed), values)
    shapes = [np.shape(a) for a in wanted]
    program.compare(unpacked_outputs(kernel.outputs, outputs, listed, shapes), wanted)
