"""Any series of primitives: what is accepted changes nothing but how the program runs, what is
refused changes nothing at all."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from random_trial import Trial
from strategies import kernels, tensor_programs
from strategies_schedule import applications

from tilewright.ir.loop import Kernel
from tilewright.plan.create_loops import create_loops

STEPS = 6


def run(kernel: Kernel, data: st.DataObject) -> None:
    trial = Trial(kernel, data)
    trial.check()
    for _ in range(data.draw(st.integers(1, STEPS))):
        step = data.draw(applications(trial.schedule))
        if step is not None:
            trial.apply(step)


@settings(max_examples=120)
@given(kernel=kernels(), data=st.data())
def test_kernels(kernel: Kernel, data: st.DataObject):
    run(kernel, data)


@settings(max_examples=120)
@given(program=tensor_programs(), data=st.data())
def test_tensor_programs(program, data: st.DataObject):
    run(create_loops(program), data)
