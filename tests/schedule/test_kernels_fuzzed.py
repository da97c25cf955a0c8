"""A short `make fuzz-schedules`: series of primitives on every kernel, judged and run; and what the
long one found."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from schedule_cases import refused, rewritten, schedule
from schedule_kernels import CASES
from schedule_trials import DATA, Chooser, Kind, Outcome, Trial
from strategies_instructions import INSTRUCTIONS

from tilewright.ir.samples import sample_arrays
from tilewright.kernels import build
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.targets import cpu

STEPS, SERIES = 6, 3
(COPY,) = (x for x in INSTRUCTIONS if x.name == "copy_f32")  # c[i] = a[i]


def series(name: str, kind: Kind, seed: int) -> Counter[Outcome]:
    """What became of a few proposals."""
    chooser = Chooser(random.Random(f"{name} {seed}"), quota=1)
    trial = Trial(name, kind, seed)
    found: Counter[Outcome] = Counter()
    for _ in range(STEPS):
        step = chooser.step(trial.schedule)
        if step is not None and not trial.is_large:
            result = trial.propose(step)
            chooser.note(name, result)
            found[result.outcome] += 1
            if result.outcome is Outcome.ACCEPTED:
                trial.check(slowly=True)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_what_is_accepted_is_right(name: str):
    for seed in range(SERIES):
        series(name, Kind.TINY, seed)
    series(name, Kind.LARGER, SERIES)
    series(name, Kind.SYMBOLIC, SERIES)


def test_what_is_legal_is_accepted():
    found: Counter[Outcome] = Counter()
    for name in CASES:
        found += series(name, Kind.TINY, 100)
    assert found[Outcome.ILLEGAL] > 0
    legal = found[Outcome.ACCEPTED] + found[Outcome.LOST]
    assert found[Outcome.ACCEPTED] >= 0.95 * legal, found


def test_kernels():
    assert len(CASES) >= 30
    assert len(DATA) > 1
    for case in CASES.values():
        assert list(case.tiny) == list(case.larger)
        assert all(2 <= n <= 6 for n in case.tiny.values())


# ---------------------------------------------------------------- what was found

BEST = """
def k(x: f32[4], y: out(f32[1])):
    y[0] = x[0]
    for i in range(4):
        if x[i] > y[0]:
            y[0] = x[i]
"""
TRIANGLE = """
def k(x: f32[4, 4], y: out(f32[4])):
    for i in range(4):
        y[i] = f32(0.0)
        for j in range(i):
            y[i] += x[i, j]
"""
BELOW = """
def k(x: f32[4, 4], y: out(f32[4, 4])):
    for i in range(4):
        for j in range(i + 1):
            y[i, j] = x[i, j]
"""
COPIED = """
def k(x: f32[3], y: out(f32[3])):
    for i in range(3):
        t = alloc(f32[1])
        for a in range(1):
            t[a] = x[a + i]
        y[i] = t[0]
"""
IN_PLACE = """
def k(x: f32[4], y: out(f32[4])):
    t = alloc(f32[4])
    for a in range(4):
        y[a] = x[a]
    for b in range(4):
        t[b] = y[b] + f32(1.0)
    for c in range(4):
        y[c] = t[c] * f32(2.0)
"""


def test_lanes_ask_before_any_of_them_writes():
    """A condition that reads what the lanes before would have written."""
    refused(
        BEST,
        lambda s: s.vectorize(s.loop("i")),
        """
        the lanes of i are not independent: read after write: write of y[0], then read of y[0],
          for example at i=0 and at i=3
          while applying vectorize(loop=i)
          in: …
        """,
    )


def test_lanes_run_as_often_as_each_other():
    refused(
        TRIANGLE,
        lambda s: s.vectorize(s.loop("i")),
        """
        how often j runs differs from lane to lane of i
          while applying vectorize(loop=i)
          in: …
        """,
    )


def test_workers_do_nothing_twice():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("b"))
        s.split(s.loop("b"), 3, Tail.SHIFT)

    refused(
        IN_PLACE,
        steps,
        """
        workers would do iterations of b at the same time
          while applying split(loop=b, factor=3, tail=shift)
          in: …
        """,
    )


BOUND = """
def k(x: f32[4, 4], y: out(f32[4, 4])):
    for i in range(4):
        for j in bind(4, "thread"):
            for k in range(4):
                y[j, k] = x[i, k]
"""


def test_lanes_are_no_workers():
    refused(
        BOUND,
        lambda s: s.vectorize(s.loop("i")),
        """
        i contains a vector or parallel loop
          while applying vectorize(loop=i)
          in: …
        """,
    )


def test_workers_have_no_workers():
    refused(
        BOUND,
        lambda s: s.parallel(s.loop("k")),
        """
        k stands in a bound loop
          while applying parallel(loop=k)
          in: …
          hint: bind it to an axis
        """,
    )


def test_workers_of_a_loop_that_hangs_on_another():
    """As many as it has iterations at most; some go past it."""
    rewritten(
        BELOW,
        lambda s: s.bind(s.loop("j"), "thread"),
        """
        def k(x: f32[4, 4], y: out(f32[4, 4])):
            for i in range(4):
                for j in bind(i + 1, "thread"):
                    y[i, j] = x[i, j]
        """,
    )


def test_inline_what_one_iteration_defines():
    def steps(s: Schedule) -> None:
        s.cache_write(s.buffer("t"))
        s.inline(s.buffer("t"))

    rewritten(
        COPIED,
        steps,
        """
        def k(x: f32[3], y: out(f32[3])):
            for i in range(3):
                t_local = alloc(f32[1])
                for a in range(1):
                    t_local[0] = x[i]
                y[i] = t_local[0]
        """,
    )


def test_inline_what_is_overwritten_later():
    rewritten(
        IN_PLACE,
        lambda s: s.inline(s.buffer("t")),
        """
        def k(x: f32[4], y: out(f32[4])):
            for a in range(4):
                y[a] = x[a]
            for c in range(4):
                y[c] = (y[c] + f32(1.0)) * f32(2.0)
        """,
    )


def test_compute_what_is_overwritten_later():
    rewritten(
        IN_PLACE,
        lambda s: s.compute_at(s.buffer("t"), s.loop("c")),
        """
        def k(x: f32[4], y: out(f32[4])):
            for a in range(4):
                y[a] = x[a]
            for c in range(4):
                t = alloc(f32[1])
                for b in range(1):
                    t[0] = y[c] + f32(1.0)
                y[c] = t[0] * f32(2.0)
        """,
    )


def test_inline_what_other_workers_overwrite():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("c"))
        s.inline(s.buffer("t"))

    refused(
        IN_PLACE.replace("t[c]", "t[min(c + 1, 3)]"),
        steps,
        """
        y is written after it is read
          while applying inline(buffer=t: f32[4])
          in: …
        """,
    )


def test_a_box_that_begins_where_memory_says_under_a_condition():
    """The place may not be read elsewhere: all of x is copied."""

    def steps(s: Schedule) -> None:
        _, inner = s.split(s.loop("i"), 2)
        s.cache_read(s.buffer("x"), inner)

    rewritten(
        """
        def k(x: f32[4], n: i64[3], y: out(f32[3])):
            for i in range(3):
                y[i] = x[n[i] % 4]
        """,
        steps,
        """
        def k(x: f32[4], n: i64[3], y: out(f32[3])):
            for i_o in range(2):
                for i_i in range(2):
                    x_local = alloc(f32[4])
                    for x_local_0 in range(4):
                        x_local[x_local_0] = x[x_local_0]
                    if i_o * 2 + i_i < 3:
                        y[i_o * 2 + i_i] = x_local[n[i_o * 2 + i_i] % 4]
        """,
    )


def test_unroll_around_a_loop_that_hangs_on_it():
    s = schedule(TRIANGLE)
    s.unroll(s.loop("i"))
    (x,) = sample_arrays(s.kernel, {}, 0)
    y = np.empty(4, np.float32)
    build(s, cpu.host(threads=1))(x, y)
    assert list(y) == [row[:i].sum() for i, row in enumerate(x)]


def test_inline_where_an_instruction_reads():
    """Subscripts of a call's operands are reads like any."""

    def steps(s: Schedule) -> None:
        s.tensorize(s.loop("j"), COPY)
        s.inline(s.buffer("t"))

    rewritten(
        """
        def k(x: f32[4, 2], n: i64[3], y: out(f32[3, 2])):
            t = alloc(i64[3])
            for a in range(3):
                t[a] = n[a] % 4
            for i in range(3):
                for j in range(2):
                    y[i, j] = x[t[i], j]
        """,
        steps,
        """
        def k(x: f32[4, 2], n: i64[3], y: out(f32[3, 2])):
            for i in range(3):
                copy_f32(x[n[i] % 4, _0], y[i, _0], n=2, sa=1, sc=1)
        """,
    )
