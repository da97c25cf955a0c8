"""What `explain` holds a step against: the longest of three times, measured on this machine."""

from dataclasses import replace

import pytest

from tilewright.cli.measure import totals
from tilewright.cli.show import limits_line
from tilewright.report.bounds import StepBound, find_bound
from tilewright.report.limits import Limits, MemoryLevel, measure_limits
from tilewright.runtime.profile import StepTime
from tilewright.runtime.program import StepInstruction
from tilewright.targets import cpu

LEVELS = (
    MemoryLevel("l1", 1000, 100e9),
    MemoryLevel("l2", 10_000, 50e9),
    MemoryLevel("dram", None, 10e9),
)
LIMITS = Limits(2, 200e9, LEVELS, 20.0)
WITH_DOTS = replace(LIMITS, rates=(("fma_f32", 200e9), ("dots", 800e9)))
DOTS = StepInstruction("dots", "")


def step(operations, size, kind="call", instruction=None):
    return StepTime(kind, "k", "host", ("n",), 1000, 900, operations, size, instruction)


@pytest.mark.parametrize(
    "operations, size, bound",
    [
        (100_000, 1000, StepBound(500.0, "compute")),
        (100, 5000, StepBound(100.0, "memory", "l2")),
        (100, 1_000_000, StepBound(100_000.0, "memory", "dram")),
        (100, 1000, StepBound(20.0, "overhead")),
        (0, 10_000, StepBound(200.0, "memory", "l2")),
        (None, None, StepBound(20.0, "overhead")),
    ],
)
def test_the_longest_of_three_times(operations, size, bound):
    assert find_bound(step(operations, size), LIMITS) == bound


def test_the_instruction_decides_what_arithmetic_takes():
    assert find_bound(step(400_000, 100, instruction=DOTS), WITH_DOTS) == StepBound(
        500.0, "compute"
    )
    assert find_bound(step(400_000, 100), WITH_DOTS) == StepBound(2000.0, "compute")
    assert find_bound(step(400_000, 100, instruction=DOTS), LIMITS) == StepBound(2000.0, "compute")


def test_what_runs_in_python_has_no_bound():
    assert find_bound(step(100, 100, "host_call"), LIMITS) is None
    assert totals([])["bound"] == 0


def test_the_limits_in_words():
    assert limits_line(LIMITS) == (
        "at best, measured here with 2 threads: 200 Gop/s (float32), reading from l1 100 GB/s,"
        " l2 50 GB/s, dram 10 GB/s; an empty step takes 20 ns"
    )

    assert limits_line(WITH_DOTS).startswith(
        "at best, measured here with 2 threads: 200 Gop/s (fma_f32), 800 Gop/s (dots), reading from"
    )


def test_measured_limits_are_plausible():
    used = [StepInstruction(i.name, i.native) for i in cpu.host(threads=1).instructions]
    limits = measure_limits(1, used)
    assert [name for name, _ in limits.rates] == [i.name for i in used]
    assert all(1e9 < rate < 1e14 for _, rate in limits.rates)
    rates = dict(limits.rates)
    if {"fma_f32", "fma_f64"} <= set(rates):  # the f32 peak by two ways
        assert 1.5 < rates["fma_f32"] / rates["fma_f64"] < 2.5
        assert 0.5 < rates["fma_f32"] / limits.operations_per_second < 2
    assert 1e9 < limits.operations_per_second < 1e13
    assert 1 < limits.step_nanoseconds < 1e5
    rates = [level.bytes_per_second for level in limits.levels]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 1e8
    assert limits.levels[-1] == MemoryLevel("dram", None, rates[-1])
    assert limits.level(1).name == limits.levels[0].name
