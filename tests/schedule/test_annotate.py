"""Annotations of loops, and loops that are kept whole."""

from collections.abc import Callable

import pytest
from schedule_cases import refused, rewritten, schedule
from schedule_programs import LOCAL, MATRIX, ROWS, STAGES, SUM

from tilewright.base.errors import ScheduleError
from tilewright.plan.elementwise import vectorize_innermost
from tilewright.schedule.core.state import Loop, State, primitive, refuse
from tilewright.schedule.primitives.annotate import annotate
from tilewright.schedule.schedule import Schedule


@pytest.mark.parametrize(
    "program, cut, applied",
    [
        (ROWS, lambda s, i: s.split(i, 2), "split(loop=i, factor=2, tail=guard)"),
        (ROWS, lambda s, i: s.peel(i, 2), "peel(loop=i, count=2)"),
        (ROWS, lambda s, i: s.vthread(i, 2), "vthread(loop=i, n=2, through=())"),
        (ROWS, lambda s, i: s.pad(i, 4), "pad(loop=i, multiple=4)"),
        (LOCAL, lambda s, i: s.pipeline(i, (0, 1)), "pipeline(loop=i, stages=(0, 1), order=())"),
    ],
)
def test_keep_from(program: str, cut: Callable[[Schedule, Loop], object], applied: str):
    def steps(s: Schedule) -> None:
        s.keep_whole(s.loop("i"))
        cut(s, s.loop("i"))

    refused(
        program,
        steps,
        f"""
        i is kept whole (step 1: keep_whole(loop=i))
          while applying {applied}
          in: …
        """,
    )


def test_keep_from_fuse():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("j"))
        s.keep_whole(s.loop("j"))
        s.fuse(s.loop("i"), s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        j is kept whole (step 2: keep_whole(loop=j))
          while applying fuse(outer=i, inner=j)
          in: …
        """,
    )


def test_keep_from_piecewise_computation():
    def steps(s: Schedule) -> None:
        s.keep_whole(s.loop("i"))
        s.compute_at(s.buffer("t"), s.loop("j"))

    refused(
        STAGES,
        steps,
        """
        i is kept whole (step 1: keep_whole(loop=i)): it would run 2 times, not 8
          while applying compute_at(buffer=t: f32[8], loop=j, clip=False)
          in: …
        """,
    )


def test_keep_what_is_gone():
    def steps(s: Schedule) -> None:
        i = s.loop("i")
        s.split(i, 2)
        s.keep_whole(i)

    refused(
        ROWS,
        steps,
        """
        there is no loop i any more
          while applying keep_whole(loop=i)
          in: …
        """,
    )


def test_annotate_as_kept():
    def steps(s: Schedule) -> None:
        s.annotate(s.loop("i"), "whole", False)

    refused(
        ROWS,
        steps,
        """
        'whole' is what keep_whole writes
          while applying annotate(loop=i, key=whole, value=False)
          in: …
        """,
    )


def test_annotate_with_an_object():
    def steps(s: Schedule) -> None:
        s.annotate(s.loop("i"), "unit", None)

    refused(
        ROWS,
        steps,
        """
        a text, a number or a truth value can be written beside a loop, not None
          while applying annotate(loop=i, key=unit, value=None)
          in: …
        """,
    )


def test_annotations_forbid_nothing():
    def steps(s: Schedule) -> None:
        s.annotate(s.loop("i"), "unit", "dma")
        s.split(s.loop("i"), 2)

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for i_o in range(5):
                for i_i in range(2):
                    y[i_o * 2 + i_i] = x[i_o * 2 + i_i] * f32(2.0)
        """,
    )


def test_shown_beside_the_loop():
    s = schedule(MATRIX)
    i, j = s.loop("i"), s.loop("j")
    s.annotate(j, "unit", "dma")
    s.keep_whole(i)
    s.annotate(i, "rows", 4)
    s.annotate(j, "unit", "core")
    assert (
        s.show()
        == """\
def k(x: f32[4, 6], y: out(f32[4, 6])):
    for i in range(4):  # whole=True, rows=4
        for j in range(6):  # unit='core'
            y[i, j] = x[i, j]"""
    )
    assert "#" not in str(s.kernel)
    assert s.notes.of(i.var) == {"whole": True, "rows": 4}
    assert [str(step) for step in s.trace] == [
        "annotate(loop=j, key=unit, value=dma)",
        "keep_whole(loop=i)",
        "annotate(loop=i, key=rows, value=4)",
        "annotate(loop=j, key=unit, value=core)",
    ]


def test_they_go_with_the_loop():
    s = schedule(MATRIX)
    i, j = s.loop("i"), s.loop("j")
    s.annotate(i, "unit", "dma")
    s.keep_whole(j)
    s.reorder(j, i)
    s.vectorize(i)
    assert (
        s.show()
        == """\
def k(x: f32[4, 6], y: out(f32[4, 6])):
    for j in range(6):  # whole=True
        for i in vectorize(4):  # unit='dma'
            y[i, j] = x[i, j]"""
    )
    s = schedule(MATRIX)
    s.annotate(s.loop("j"), "unit", "dma")
    s.split(s.loop("i"), 2)
    s.peel(s.loop("j"), 2)
    assert s.notes.of(s.loop("j").var) == {"unit": "dma"}
    assert s.notes.of(s.loop("j_p").var) == {}


def test_what_is_kept_may_vanish_whole():
    s = schedule(STAGES)
    s.keep_whole(s.loop("i"))
    s.inline(s.buffer("t"))
    assert [str(loop) for loop in s.loops()] == ["j"]


def test_forgotten_with_the_loop():
    s = schedule(ROWS)
    outer, inner = s.split(s.loop("i"), 5)
    s.annotate(outer, "unit", "dma")
    s.fuse(outer, inner)
    assert s.notes.entries == ()


def test_replayed():
    s = schedule(SUM)
    s.split(s.loop("i"), 2)
    s.annotate(s.loop("r"), "unit", 1.5)
    s.keep_whole(s.loop("i_o"))
    again = s.trace.replay(s.original)
    assert again.show() == s.show()
    assert again.notes == s.notes


def test_a_refusal_writes_nothing():
    def twice(state: State, loop: Loop) -> None:
        """Fails behind an annotation."""
        annotate(state, loop, "unit", "dma")
        refuse("no")

    s = schedule(ROWS)
    with pytest.raises(ScheduleError):
        primitive(twice)(s, s.loop("i"))
    assert s.notes.entries == ()
    assert not s.trace.steps


def test_what_is_undone_leaves_them():
    """A default schedule cuts a loop, cannot run it along vectors, and goes back."""
    s = schedule(
        """
        def k(x: f32[100], y: out(f32[100])):
            for i in range(99):
                y[i + 1] = y[i] * x[i]
        """
    )
    loop = s.loop("i")
    s.annotate(loop, "from", "me")
    assert vectorize_innermost(s, loop, 8) == [loop]
    assert s.notes.of(loop.var) == {"from": "me"}
    assert [step.primitive for step in s.trace] == ["annotate"]
