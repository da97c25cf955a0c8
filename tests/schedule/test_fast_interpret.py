"""Programs as Python source do what the definition does, and lanes what the executor does."""

from __future__ import annotations

import numpy as np
import pytest
from executor import run_concurrently
from fast_interpret import OutsideError, fast_interpret
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_kernels import CASES
from strategies import array, arrays, kernels, same, symbol_values, tensor_programs

from tilewright.base.errors import ScheduleError
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.text.loop import parse_kernel
from tilewright.plan.create_loops import create_loops
from tilewright.schedule.schedule import Schedule


@settings(max_examples=150)
@given(kernel=kernels(), data=st.data())
def test_kernels(kernel: Kernel, data: st.DataObject):
    check(kernel, data)


@settings(max_examples=100)
@given(program=tensor_programs(), data=st.data())
def test_tensor_programs(program, data: st.DataObject):
    check(create_loops(program), data)


def check(kernel: Kernel, data: st.DataObject) -> None:
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = data.draw(arrays(kernel.inputs, values))
    equal(interpret(kernel, inputs, values), fast_interpret(kernel, inputs, values))


def equal(wanted: list[np.ndarray], found: list[np.ndarray]) -> None:
    for a, b in zip(wanted, found, strict=True):
        assert same(a, b), f"{b}, not {a}"


@pytest.mark.parametrize("name", CASES)
def test_vector_loops(name: str):
    """In step, reads before writes: each loop that can be is made one of lanes."""
    kernel = CASES[name].kernel.bind(**CASES[name].tiny).kernel
    inputs = [array(5 + i, b.dtype, b.shape) for i, b in enumerate(kernel.inputs)]
    for loop in Schedule(kernel).loops():
        s = Schedule(kernel)
        try:
            s.vectorize(loop)
        except ScheduleError:
            continue
        equal(run_concurrently(s.kernel, inputs), fast_interpret(s.kernel, inputs))


@pytest.mark.parametrize(
    "old,new,error",
    [
        ("x[i]", "x[i + 1]", "a read at 4"),
        ("x[i]", "x[i - 1]", "a read at -1"),
        ("y[i] =", "y[i + 1] =", "a write to y"),
    ],
)
def test_outside(old: str, new: str, error: str):
    text = "def k(x: f32[4], y: out(f32[4])):\n    for i in range(4):\n        y[i] = x[i]"
    with pytest.raises(OutsideError, match=error):
        fast_interpret(parse_kernel(text.replace(old, new)), [np.zeros(4, np.float32)])


def test_undefined():
    text = "def k(x: f32[2], y: out(f32[2])):\n    t = alloc(f32[2])\n    y[0] = t[0]"
    (found,) = fast_interpret(parse_kernel(text), [np.zeros(2, np.float32)])
    assert np.isnan(found).all()
