"""The oracle knows what is legal: rewrites by hand, and edits that primitives make unasked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from oracle import Oracle, edit, unchecked
from schedule_cases import schedule
from schedule_programs import CARRIED, MATMUL, OVERWRITTEN, STENCIL
from strategies_instructions import INSTRUCTIONS

from tilewright.base.errors import ScheduleError
from tilewright.ir.text.loop import parse_kernel
from tilewright.schedule.primitives import loops
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule

SEEDS = (1, 2, 3)
(AXPY,) = (x for x in INSTRUCTIONS if x.name == "axpy_f32")  # c[i] += a[()] * b[i]

GEMV = """
def k(a: f32[4, 5], x: f32[5], y: out(f32[4])):
    for z in range(4):
        y[z] = f32(0.0)
    for j in range(5):
        for i in range(4):
            y[i] += a[i, j] * x[j]
"""

SCAN = """
def k(x: i32[6], y: out(i32[6])):
    y[0] = x[0]
    for t in range(5):
        y[t + 1] = y[t] + x[t + 1]
"""
WAVES = """
def k(x: f32[5, 5], y: out(f32[5, 5])):
    for a in range(5):
        for b in range(5):
            y[a, b] = x[a, b]
    for i in range(4):
        for j in range(4):
            y[i + 1, j + 1] = y[i, j + 1] + y[i + 1, j]
"""
SKEWED = """
def k(x: f32[5, 5], y: out(f32[5, 5])):
    for a in range(5):
        for b in range(5):
            y[a, b] = x[a, b]
    for i in range(4):
        for j in range(4):
            y[i + 1, j] = y[i, j + 1] + f32(1.0)
"""
TOTAL = """
def k(x: f32[6], y: out(f32[1])):
    y[0] = f32(0.0)
    for i in range(6):
        y[0] += x[i]
"""
SHIFTED = """
def k(x: f32[6], y: out(f32[6])):
    for a in range(6):
        y[a] = x[a]
    for i in range(5):
        y[i] = y[i + 1]
"""
BOTH = """
def k(x: f32[3, 2], y: out(f32[1])):
    y[0] = f32(0.0)
    for i in range(3):
        for j in range(2):
            y[0] += x[i, j]
            accumulate(max, y[0], x[i, j])
"""
THREE = """
def k(x: f32[4], y: out(f32[3])):
    for i in range(3):
        y[i] = x[i] + (x[0] + x[i + 1])
"""
WHOLE = """
def k(x: i64[4], y: out(i64[3])):
    for i in range(3):
        y[i] = x[i] + (1 + x[i + 1])
"""
SCATTER = """
def k(x: f32[5], n: i32[5], y: out(f32[3])):
    for a in range(3):
        y[a] = f32(0.0)
    for i in range(5):
        y[cast(i64, n[i] % i32(3))] = x[i]
"""


def why(before: str, after: str) -> str:
    """Why one program may not become another; nothing if it may."""
    verdict = Oracle(parse_kernel(before.strip()), {}, SEEDS).judge(parse_kernel(after.strip()))
    assert verdict.legal == (not verdict.why)
    return verdict.why


REWRITES = [
    (SCAN, "range(5):", "range(5):", ""),
    (SCAN, "y[t + 1] = y[t] + x[t + 1]", "y[5 - t] = y[4 - t] + x[5 - t]", "y[2] is another value"),
    (SCAN, "y[t] + x[t + 1]", "x[t + 1] + y[t]", ""),
    (SCAN, "y[t] + x[t + 1]", "x[t + 1] - y[t]", "y[1] is another value"),
    (THREE, "x[i] + (x[0] + x[i + 1])", "x[i + 1] + x[0] + x[i]", ""),
    (THREE, "x[i] + (x[0] + x[i + 1])", "x[i] + x[0] + x[i + 1]", "y[0] is another value"),
    (WHOLE, "x[i] + (1 + x[i + 1])", "x[i] + 1 + x[i + 1]", ""),
    (WHOLE, "x[i] + (1 + x[i + 1])", "x[i] - (1 + x[i + 1])", "y[0] is another value"),
    (TOTAL, "x[i]", "x[5 - i]", ""),
    (TOTAL, "x[i]", "x[i % 5]", "y[0] is another value"),
    (TOTAL, "y[0] += x[i]", "accumulate(max, y[0], x[i])", "y[0] is another value"),
    (TOTAL, "y[0] += x[i]", "y[0] = y[0] + x[i]", "y[0] is another value"),
    (TOTAL, "y[0] = f32(0.0)", "y[0] += f32(0.0)", "y[0] is another value"),
    (TOTAL, "x[i]", "x[i + 1]", "outside of a buffer: a read at 6"),
    (SHIFTED, "y[i] = y[i + 1]", "y[4 - i] = y[5 - i]", "y[0] is another value"),
    (SHIFTED, "y[a] = x[a]", "y[a + 1] = x[a]", "outside of a buffer: a write to y"),
    (SHIFTED, "for i in range(5)", "for i in vectorize(5)", ""),
    (SHIFTED, "for i in range(5)", "for i in parallel(5)", "a race: y[1] is written where"),
    (SCAN, "for t in range(5)", "for t in vectorize(5)", "y[2] is another value"),
    (SCAN, "for t in range(5)", "for t in parallel(5)", "a race: y[1] is read where"),
    (TOTAL, "for i in range(6)", "for i in vectorize(6)", ""),
    (TOTAL, "for i in range(6)", "for i in parallel(6)", "a race: y[0] is written by two"),
    (SCATTER, "for i in range(5)", "for i in vectorize(5)", ""),
    (SCATTER, "for i in range(5)", "for i in parallel(5)", "a race: y["),
    (SCATTER, "x[i]", "x[4 - i]", "is another value"),
]


@pytest.mark.parametrize("program,old,new,reason", REWRITES)
def test_rewrites(program: str, old: str, new: str, reason: str):
    assert old in program
    found = why(program, program.replace(old, new))
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_sum_in_parts():
    after = """
def k(x: f32[6], y: out(f32[1])):
    part = alloc(f32[2])
    for p in range(2):
        part[p] = f32(0.0)
        for i in range(3):
            part[p] += x[i * 2 + p]
    y[0] = f32(0.0)
    for q in range(2):
        y[0] += part[1 - q]
"""
    assert why(TOTAL, after) == ""
    assert why(TOTAL, after.replace("range(3)", "range(2)")) == "y[0] is another value"


EDITS = [
    (MATMUL, lambda s: s.reorder(s.loop("p"), s.loop("i")), None),  # not nested: there is no edit
    (WAVES, lambda s: s.reorder(s.loop("j"), s.loop("i")), True),
    (SKEWED, lambda s: s.reorder(s.loop("j"), s.loop("i")), False),
    (SKEWED, lambda s: s.parallel(s.loop("j")), True),
    (SKEWED, lambda s: s.vectorize(s.loop("i")), False),
    (STENCIL, lambda s: s.reorder(s.loop("i"), s.loop("t")), False),
    (CARRIED, lambda s: s.parallel(s.loop("i")), False),
    (CARRIED, lambda s: s.split(s.loop("i"), 3, Tail.SHIFT), True),
    (TOTAL, lambda s: s.split(s.loop("i"), 4, Tail.SHIFT), False),
    (BOTH, lambda s: s.reorder(s.loop("j"), s.loop("i")), False),
    (OVERWRITTEN, lambda s: s.inline(s.buffer("t")), False),
    (OVERWRITTEN, lambda s: s.compute_at(s.buffer("t"), s.loop("c")), False),
    (SHIFTED, lambda s: s.cache_read(s.buffer("y"), s.loop("i")), False),
    (MATMUL, lambda s: s.split_init(s.buffer("c")), True),
    (MATMUL, lambda s: s.rfactor(s.buffer("c"), s.loop("p")), True),
    (GEMV, lambda s: s.tensorize(s.loop("i"), AXPY), True),
]


@pytest.mark.parametrize("program,step,legal", EDITS)
def test_edits(program: str, step: Callable[[Schedule], object], legal: bool | None):
    s = schedule(program)
    before = s.kernel
    made = edit(s, step)
    assert s.kernel is before
    assert len(s.trace) == 0
    if legal is None:
        assert made.kernel is None
        assert made.refused
    else:
        assert Oracle(before, {}, SEEDS).judge(made.kernel).legal is legal


def test_questions_are_asked_again():
    question = loops.violation
    with unchecked():
        assert loops.violation is not question
    assert loops.violation is question
    s = schedule(CARRIED)
    assert edit(s, lambda s: s.parallel(s.loop("i"))).kernel is not None
    with pytest.raises(ScheduleError):
        s.parallel(s.loop("i"))
