"""What replaying and deciding a schedule cost, in calls of Python functions: times say little on a
machine that others use too, and this count is the same each time.

On the machine where the budgets were set, a replay of the 15 steps took 19 ms, a candidate
0.03 ms, and matching a nest of seven loops with an instruction 20 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from convolution import CONV, convolution
from schedule_cases import schedule

import tilewright
from tilewright import grid, i8, i32, reduce
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.instruction import Instruction
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.schedule.match.match import Matcher
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, read_instruction, view

REPLAY = 72_000
CANDIDATE = 420
MATCH = 26_000


def calls(function: Callable[[], object]) -> int:
    """Calls of Python functions and of built-in ones."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def within(function: Callable[[], object], budget: int) -> None:
    function()  # caches of modules are full
    count = calls(function)
    assert count <= budget, f"{count:,} calls; the budget is {budget:,}"


def test_replay():
    s = convolution(schedule(CONV))
    assert len(s.trace) == 15
    within(lambda: s.trace.replay(s.original), REPLAY)


def test_candidate():
    s = convolution(schedule(CONV))
    space = s.trace.space(s.original)
    space.prove()

    def decide() -> None:
        c = space.candidate({"1.factor": 4, "2.factor": 7, "3.factor": 2, "8.factor": 4})
        assert all((c.extents, c.footprints, c.trips, c.memory))

    within(decide, CANDIDATE)


SIZES = dims("G CO CI KH KW OH OW", max=64)
STEP = Range(0, 1 << 20)


@tilewright.kernel
def grouped(X: i8[2, 4, 16, 16], W: i8[2, 6, 4, 3, 3], A: i32[2, 6, 16, 16], Y: i32[2, 6, 16, 16]):
    for g, f, h, v in grid(2, 6, 16, 16):
        Y[g, f, h, v] = A[g, f, h, v]
    for s, r, c, v, h, f, g in reduce(3, 3, 4, 16, 16, 6, 2):
        i = h + r - 1
        j = v + s - 1
        inside = 0 <= i < 16 and 0 <= j < 16
        Y[g, f, h, v] += i32(X[g, c, i, j] if inside else 0) * i32(W[g, f, c, r, s])


def grouped_convolution() -> Instruction:
    """Seven loops, and the program has them in another order."""
    G, CO, CI, KH, KW, OH, OW = SIZES

    @read_instruction
    def conv(
        x: view(i8[G, CI, 64, 64], "xg", "xc", "xh"),
        w: i8[G, CO, CI, KH, KW],
        y: out(i32[G, CO, OH, OW]),
        xg: STEP, xc: STEP, xh: STEP, stride: Range(1, 4), top: Range(0, 9), left: Range(0, 9),
        rows: Range(1, 64), columns: Range(1, 64),
    ):  # fmt: skip
        for g, f, h, v in grid(G, CO, OH, OW):
            for c, r, s in reduce(CI, KH, KW):
                i = h * stride + r - top
                j = v * stride + s - left
                inside = 0 <= i < rows and 0 <= j < columns
                y[g, f, h, v] += i32(x[g, c, i, j] if inside else 0) * i32(w[g, f, c, r, s])

    return conv


def test_match():
    instruction, s = grouped_convolution(), Schedule(grouped.kernel)
    nest = (s.for_(s.loop("s")),)

    def match() -> None:
        (call,) = Matcher(instruction, Simplifier(s.simplifier.extents)).calls(nest)
        assert "stride=1, top=1, left=1, rows=16, columns=16" in str(call)

    within(match, MATCH)
