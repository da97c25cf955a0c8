"""Pipelines at their least."""

import numpy as np
import pytest

from tilewright.ir.instruction import Hazard
from tilewright.plan.step_times import Moves, StepTimes
from tilewright.sim.run_pipelines import run_pipelines


@pytest.mark.parametrize("work", [0, 1, 7])
@pytest.mark.parametrize("steps", [1, 3])
def test_work_and_nothing_else(work: int, steps: int):
    """As many cycles as there are, none if there are none: never is something else."""
    one, zero = np.ones(1, int), np.zeros(1, int)
    store = Moves(0, 0, one, zero, zero, zero, Hazard.STALL, 0)
    times = StepTimes(
        steps * one[None], 1, (8,), 0, None, 0, np.stack([zero] * 2), zero, work * one,
        np.stack([one] * 3), zero, one, one, (), store, zero, zero, one, one, zero, False,
    )  # fmt: skip
    assert run_pipelines(times).tolist() == [work * steps]
    assert times.lower_bound().tolist() == [work * steps]
    assert times.estimate().tolist() == [work * steps]
