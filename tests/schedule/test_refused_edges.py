"""Refusals that few programs meet, and names that are taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from schedule_cases import schedule

from tilewright import f32, grid
from tilewright.base.errors import ScheduleError
from tilewright.ir.python.words import out
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, read_instruction

ROWS = """
def f(x: f32[4, 6], y: out(f32[4, 6])):
    for i in range(4):
        for j in range(6):
            y[i, j] = x[i, j]
"""
TRIANGLE = """
def f(x: f32[4, 4], y: out(f32[4, 4])):
    for i in range(4):
        for j in range(4):
            y[i, j] = f32(0.0)
    for i_1 in range(4):
        for j_1 in range(i_1 + 1):
            y[i_1, j_1] = x[i_1, j_1] * f32(2.0) + f32(1.0)
"""
BOTH = """
def f(x: f32[6], y: out(f32[4, 6])):
    u = alloc(f32[6])
    for i in range(4):
        t = alloc(f32[6])
        for j in range(6):
            t[j] = x[j]
            u[j] = x[j] + f32(1.0)
        for k in range(6):
            y[i, k] = t[k] + u[k]
"""
EARLY = """
def f(x: f32[6], y: out(f32[4, 6]), z: out(f32[4])):
    for i in range(4):
        t = alloc(f32[6])
        z[i] = {early}
        for j in range(6):
            t[j] = x[j]
        for k in range(6):
            y[i, k] = t[k]
"""
BIAS = """
def f(x: i32[4, 8], b: i32[{bias}], y: out(i32[4, 3])):
    c = alloc(i32[4])
    t = alloc(i32[4])
    for i in range(4):
        c[i] = i32(0)
        for k in range(8):
            c[i] += x[i, k]
    for l in range(4):
        t[l] = x[l, 0]
    for m in range(4):
        for n in range(3):
            y[m, n] = {value}
"""
IN_PLACE = """
def f(x: f32[8], p: i64[8], y: out(f32[8]), z: out(f32[8])):
    a = alloc(f32[{size}])
    for i in range({size}):
        a[i] = x[i % 8]
    t = alloc(f32[8])
    for j in range(8):
        t[j] = {value}
    {more}
    for l in range(8):
        y[l] = t[l]
    for m in range(8):
        z[m] = {last}
"""
WRITTEN_TWICE = "for k in range(4):\n        t[k] = f32(1.0)"


def in_place(value: str, more: str = "", last: str = "x[m]", size: int = 8) -> str:
    text = IN_PLACE.format(value=value, more=more, last=last, size=size)
    return "\n".join(line for line in text.splitlines() if line.strip())


def reuse(s: Schedule) -> None:
    s.reuse(s.buffer("t"), s.buffer("a"))


REFUSED: dict[str, tuple[str, Callable[[Schedule], object], str]] = {
    "axes that there are not": (
        ROWS,
        lambda s: s.cache_read(s.buffer("x"), s.loop("i"), strided=[2]),
        "x has 2 axes, counted from 0: not [2]",
    ),
    "an axis below 0": (
        ROWS,
        lambda s: s.cache_read(s.buffer("x"), s.loop("i"), strided=[0, -1]),
        "x has 2 axes, counted from 0: not [0, -1]",
    ),
    "a triangle as one loop": (
        TRIANGLE,
        lambda s: s.fuse(s.loop("i_1"), s.loop("j_1")),
        "the extent of j_1 depends on i_1",
    ),
    "a triangle turned around": (
        TRIANGLE,
        lambda s: s.reorder(s.loop("j_1"), s.loop("i_1")),
        "the extent of j_1 depends on another of the loops",
    ),
    "a part of a triangle": (
        TRIANGLE,
        lambda s: s.split_value(s.loop("j_1"), [0]),
        "j_1 runs i_1 + 1 times, which is not the same every time",
    ),
    "two buffers that one nest fills": (
        BOTH,
        lambda s: s.hoist(s.buffer("t"), s.loop("i")),
        "what computes t computes u as well",
    ),
    "a buffer that is used before": (
        EARLY.format(early="t[0]"),
        lambda s: s.hoist(s.buffer("t"), s.loop("i")),
        "t is used before it is filled",
    ),
    "a bias for each read": (
        BIAS.format(bias=3, value="c[m] + b[n]"),
        lambda s: s.init_with(s.buffer("c")),
        "b[n] is another in iterations that read one element of c",
    ),
    "a bias that comes later": (
        BIAS.format(bias=3, value="c[m] + t[m]"),
        lambda s: s.init_with(s.buffer("c")),
        "t[m] is written before it is added",
    ),
    "a buffer with two writes": (
        in_place("a[j] * f32(2.0)", more=WRITTEN_TWICE),
        reuse,
        "t is written by another statement as well",
    ),
    "a place that memory decides": (
        in_place("a[p[j]] * f32(2.0)"),
        reuse,
        "t[j] = a[p[j]] * f32(2.0) does not read one element of a",
    ),
    "two places": (
        in_place("a[j] * a[7 - j]"),
        reuse,
        "t[j] = a[j] * a[7 - j] does not read one element of a",
    ),
    "a value that is needed later": (
        in_place("a[j] * f32(2.0)", last="a[m]"),
        reuse,
        "a is needed after it is written anew",
    ),
    "an element for two": (
        in_place("a[j // 2] * f32(2.0)"),
        reuse,
        "t[j] = a[j // 2] * f32(2.0) may write an element twice",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    text, steps, what = REFUSED[name]
    s = schedule(text)
    before = str(s.kernel)
    with pytest.raises(ScheduleError) as error:
        steps(s)
    assert error.value.what == what
    assert str(s.kernel) == before


def test_what_is_filled_first_is_hoisted():
    s = schedule(EARLY.format(early="x[0]"))
    s.hoist(s.buffer("t"), s.loop("i"))
    assert str(s.kernel).splitlines()[1:5] == [
        "    t = alloc(f32[6])", "    for j in range(6):", "        t[j] = x[j]",
        "    for i in range(4):",
    ]  # fmt: skip


def test_a_place_turned_around():
    """The elements are where their names say, from the end."""
    s = schedule(in_place("a[7 - j] * f32(2.0)"))
    reuse(s)
    assert "accumulate(mul, a[7 - j], f32(2.0))" in str(s.kernel)
    assert "y[l] = a[7 - l]" in str(s.kernel)


@pytest.mark.parametrize("value", ["a[j] + x[j]", "x[j] + a[j]", "max(a[j], x[j])", "a[j] * x[j]"])
def test_a_sum_into_its_place(value: str):
    s = schedule(in_place(value))
    reuse(s)
    (line,) = (x.strip() for x in str(s.kernel).splitlines() if "[j]" in x)
    op = next((op for op, sign in (("max", "max"), ("mul", "*")) if sign in value), None)
    assert line == (f"accumulate({op}, a[j], x[j])" if op else "a[j] += x[j]")


def test_a_sum_with_itself_is_none():
    s = schedule(in_place("a[j] + a[j]"))
    reuse(s)
    assert "a[j] = a[j] + a[j]" in str(s.kernel)


# ---------------------------------------------------------------- names that are taken

NAMES = """
def f(x: f32[4, 6], y: out(f32[4, 6])):
    for x_local_1 in range(4):
        for {inner} in range(6):
            y[x_local_1, {inner}] = x[x_local_1, {inner}]
"""


@pytest.mark.parametrize("inner, found", [("j", "x_local_1_1"), ("x_local_1_1", "x_local_1_2")])
def test_loops_of_a_copy(inner: str, found: str):
    s = schedule(NAMES.format(inner=inner))
    s.cache_read(s.buffer("x"), s.loop("x_local_1"))
    assert [x.var.name for x in s.loops()] == ["x_local_1", "x_local_0", found, inner]


STARTS = """
def f(x: f32[6, 6], y: out(f32[6])):
    for {outer} in range(6):
        y[{outer}] = f32(0.0)
        for {inner} in range(6):
            y[{outer}] += x[{outer}, {inner}]
"""


@pytest.mark.parametrize(
    "outer, inner, found",
    [("i", "k", "i_init"), ("i", "i_init", "i_init_1"), ("i_init", "i_init_init", "i_init_init_1")],
)
def test_loops_of_an_initialisation(outer: str, inner: str, found: str):
    s = schedule(STARTS.format(outer=outer, inner=inner))
    (loop,) = s.split_init(s.buffer("y"))
    assert loop.var.name == found


# ---------------------------------------------------------------- instructions and traces


@read_instruction
def move(src: f32[16], dst: out(f32[16]), n: Range(1, 16)):
    for i in grid(n):
        dst[i] = src[i]


@pytest.mark.parametrize(
    "way, what",
    [
        (-1, "the ways are numbered from 0, and there is no number -1"),
        (9, "there is 1 way to make move of j, counted from 0"),
    ],
)
def test_ways_that_there_are_not(way: int, what: str):
    s = schedule(ROWS)
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("j"), move, way)
    assert error.value.what == what


def test_results_that_a_step_does_not_give():
    """A nest of one loop begins with a store in one loop, of two loops in two."""
    s = schedule(STARTS.format(outer="i", inner="k"))
    deep = schedule(
        """
def f(x: f32[6, 6], y: out(f32[6, 6])):
    for i in range(6):
        for j in range(6):
            y[i, j] = f32(0.0)
            for k in range(6):
                y[i, j] += x[i, k]
"""
    )
    deep.unroll(deep.split_init(deep.buffer("y"))[1])
    with pytest.raises(ScheduleError) as error:
        deep.trace.replay(s.original)
    assert error.value.what == "step 1 gives no loop j_init here"
