"""Edges of primitives, by hand: how much is little, what is written later, what is folded."""

from __future__ import annotations

import pytest
from schedule_cases import check_same, schedule

from tilewright import grid, i32
from tilewright.analyze.accesses import accesses
from tilewright.base.errors import ScheduleError
from tilewright.ir.python.words import local, out
from tilewright.target.describe import Range, read_instruction

ROWS = """
def f(x: {dtype}[4, {width}], y: out({dtype}[4, {read}])):
    for i in range(4):
        for j in range({read}):
            y[i, j] = x[i, j{offset}]
"""


@pytest.mark.parametrize(
    "dtype, width, slack, whole",
    [
        ("i8", 9, 1, False), ("i8", 9, 2, True), ("i8", 10, 2, False), ("i8", 10, 3, True),
        ("f32", 9, 4, False), ("f32", 9, 5, True), ("f32", 10, 8, False), ("f32", 10, 9, True),
        ("f64", 8, 99, False), ("i8", 8, 99, False),
    ],
)  # fmt: skip
def test_an_axis_that_is_nearly_read(dtype: str, width: int, slack: int, whole: bool):
    s = schedule(ROWS.format(dtype=dtype, width=width, read=8, offset=""))
    copy = s.cache_read(s.buffer("x"), s.loop("i"), slack=slack)
    assert copy.shape == (1, width if whole or width == 8 else 8)
    check_same(s.original, s.kernel)


def test_an_axis_that_is_read_elsewhere():
    """From 1 on: it is no axis from its beginning."""
    s = schedule(ROWS.format(dtype="f32", width=9, read=8, offset=" + 1"))
    assert s.cache_read(s.buffer("x"), s.loop("i"), slack=99).shape == (1, 8)


ROWS_OF_ROWS = """
def f(x: f32[4, 5, 3], y: out(f32[4, 4, 3])):
    for i in range(4):
        for j in range(4):
            for k in range(3):
                y[i, j, k] = x[i, j, k]
"""


@pytest.mark.parametrize("slack, rows", [(12, 4), (13, 5)])
def test_rows_that_are_left_out(slack: int, rows: int):
    """One row of three elements of four bytes."""
    s = schedule(ROWS_OF_ROWS)
    assert s.cache_read(s.buffer("x"), s.loop("i"), slack=slack).shape == (1, rows, 3)


LATER = """
def f(x: f32[8], a: f32[8], y: out(f32[8]), b: out(f32[8]), z: out(f32[8])):
    for h in range(8):
        b[h] = a[h]
    t = alloc(f32[8])
    for i in range(8):
        t[i] = b[i] * f32(2.0)
    for k in range(8):
        {first}
        {second}
        z[k] = b[k]
"""
READ, WRITE = "y[k] = t[{at}]", "b[k] = x[k]"


@pytest.mark.parametrize(
    "first, second, fits",
    [
        (READ.format(at="k"), WRITE, True),
        (WRITE, READ.format(at="k"), False),
        (READ.format(at="7 - k"), WRITE, False),
    ],
)
def test_what_is_written_after_it_is_read(first: str, second: str, fits: bool):
    """Reads of the new values do not matter."""
    s = schedule(LATER.format(first=first, second=second))
    if fits:
        s.inline(s.buffer("t"))
        check_same(s.original, s.kernel)
        return
    with pytest.raises(ScheduleError) as error:
        s.inline(s.buffer("t"))
    assert error.value.what == "b is written after it is read"


# ---------------------------------------------------------------- instructions


@read_instruction
def through(a: i32[16], c: out(i32[16]), n: Range(1, 16)):
    """It has a buffer of its own."""
    t = local(i32[16])
    for i in grid(n):
        t[i] = a[i] * 2
    for i in grid(n):
        c[i] = t[i] + 1


CALLS = """
def f(x: i32[4, 16], y: out(i32[4, 16])):
    for i in range(4):
        t = alloc(i32[16])
        for j in range(16):
            t[j] = x[i, j] * i32(2)
        for k in range(16):
            y[i, k] = t[k] + i32(1)
"""


def test_buffers_of_an_instruction():
    """Nobody else touches them."""
    s = schedule(CALLS)
    s.tensorize(s.loop("j"), through)
    check_same(s.original, s.kernel)
    assert {a.buffer.name for a in accesses(s.kernel.body)} == {"x", "y"}
    assert [a.writes for a in accesses(s.kernel.body)] == [False, True]
    s.parallel(s.loop("i"))  # iterations share nothing


# ---------------------------------------------------------------- padding

FACTORS = """
def f(x: i32[6], y: out(i32[1])):
    y[0] = i32(0)
    for i in range(6):
        y[0] += x[i] * {factor}
"""


@pytest.mark.parametrize("factor", ["i32(3)", "x[i]", "(x[i] + i32(1))"])
def test_products_that_are_padded(factor: str):
    """What is padded is 0, and a product with it is 0: no condition is needed."""
    s = schedule(FACTORS.format(factor=factor))
    s.pad(s.loop("i"), 8)
    check_same(s.original, s.kernel)
    (line,) = (x for x in str(s.kernel).splitlines() if "+=" in x)
    assert (
        line.strip()
        == {
            "i32(3)": "y[0] += select(i < 6, x[i], i32(0)) * i32(3)",
            "x[i]": "y[0] += select(i < 6, x[i], i32(0)) * select(i < 6, x[i], i32(0))",
            "(x[i] + i32(1))": (
                "y[0] += select(i < 6, x[i], i32(0)) * (select(i < 6, x[i], i32(0)) + i32(1))"
            ),
        }[factor]
    )


@pytest.mark.parametrize(
    "value, padded",
    [
        ("x[i] + i32(1)", "select(i < 6, select(i < 6, x[i], i32(0)) + i32(1), i32(0))"),
        ("x[i] - i32(0)", "select(i < 6, x[i], i32(0)) - i32(0)"),
        ("-x[i]", "-select(i < 6, x[i], i32(0))"),
        ("abs(x[i])", "abs(select(i < 6, x[i], i32(0)))"),
        (
            "x[i] * i32(5) * x[i]",
            "select(i < 6, x[i], i32(0)) * i32(5) * select(i < 6, x[i], i32(0))",
        ),
        (
            "(x[i] + i32(2)) * x[i]",
            "(select(i < 6, x[i], i32(0)) + i32(2)) * select(i < 6, x[i], i32(0))",
        ),
        (
            "cast(i32, cast(f32, x[i]) + f32(0.5))",
            "cast(i32, cast(f32, select(i < 6, x[i], i32(0))) + f32(0.5))",
        ),
        (
            "cast(i32, cast(f32, x[i]) + f32(1.5))",
            "select(i < 6, cast(i32, cast(f32, select(i < 6, x[i], i32(0))) + f32(1.5)), i32(0))",
        ),
    ],
)
def test_sums_of_what_is_padded(value: str, padded: str):
    """A condition stands around what is not 0 by its padding."""
    s = schedule(FACTORS.format(factor="i32(1)").replace("x[i] * i32(1)", value))
    s.pad(s.loop("i"), 8)
    check_same(s.original, s.kernel)
    (line,) = (x for x in str(s.kernel).splitlines() if "+=" in x)
    assert line.strip() == f"y[0] += {padded}"
