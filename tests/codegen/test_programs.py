"""Kernels of models with their default schedules, as machine code: at sizes at which vectors are
cut, shifted and masked, for several targets, against numpy."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native import build
from strategies import symbol_values
from strategies_programs import Program, programs
from strategies_schedule import layouts, packed_inputs, unpacked_outputs

from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.tensor_type import Layout
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.target.target import Target
from tilewright.targets import cpu

TARGETS = {
    "host-1": lambda: cpu.host(threads=1),
    "host-2": lambda: cpu.host(threads=2),
    "avx2": lambda: cpu.cpu("avx2"),
}


@functools.cache
def target(name: str) -> Target:
    return TARGETS[name]()


def draw_layouts(data: st.DataObject, kernel: Kernel) -> dict[str, Layout]:
    """Arrangements for some of a kernel's parameters."""
    chosen = {}
    for buffer in kernel.params:
        rank = len(buffer.shape)
        if 0 < rank <= 5 and data.draw(st.integers(0, 3)) == 3:
            chosen[buffer.name] = data.draw(layouts(rank))
    return chosen


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=40)
@given(program=programs(), data=st.data())
def test_kernels_of_models(name: str, program: Program, data: st.DataObject):
    check(program, target(name), data)


def check(program: Program, target: Target, data: st.DataObject) -> None:
    kernel = create_loops(program.program)
    chosen = draw_layouts(data, kernel)
    found = default_schedule(kernel, target, chosen).kernel
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = program.inputs(data.draw(st.integers(0, 9)), values)
    wanted = program.wanted(inputs, values)
    listed = {buffer: [layout] for buffer, layout in chosen.items()}
    outputs = build(found, target)(packed_inputs(kernel.inputs, inputs, listed), values)
    shapes = [np.shape(a) for a in wanted]
    try:
        program.compare(unpacked_outputs(kernel.outputs, outputs, listed, shapes), wanted)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{values}\n{kernel}\n{found}") from error
