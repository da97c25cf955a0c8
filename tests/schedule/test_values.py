"""split_value and reuse: programs before and after, and what is refused."""

import pytest
from schedule_cases import refused, rewritten, schedule

from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule

LAYER = """
def k(x: f32[4, 6], b: f32[6], y: out(f32[4, 6])):
    for i in range(4):
        for j in range(6):
            y[i, j] = max((x[i, j] + b[j]) * f32(2.0), f32(0.0))
"""
GUARDED = """
def k(x: f32[5], y: out(f32[5])):
    for i in range(2):
        for j in range(3):
            if i * 3 + j < 5:
                y[i * 3 + j] = -(x[i * 3 + j] + f32(1.0))
"""
CHAIN = """
def k(x: f32[6], y: out(f32[6])):
    t = alloc(f32[6])
    for i in range(6):
        t[i] = x[i] + f32(1.0)
    u = alloc(f32[6])
    for j in range(6):
        u[j] = x[j] * t[j]
    for l in range(6):
        y[l] = u[l] - f32(1.0)
"""
TURNED = CHAIN.replace("x[j] * t[j]", "x[j] * t[5 - j]")
NEEDED = CHAIN.replace("u[l] - f32(1.0)", "u[l] - t[l]")
TWICE = CHAIN.replace("    for j in range(6):\n", "    for j in range(6):\n").replace(
    "        u[j] = x[j] * t[j]", "        for r in range(2):\n            u[j] = x[j] * t[j]"
)
SUM = """
def k(x: f32[6], y: out(f32[1])):
    y[0] = f32(0.0)
    for i in range(6):
        y[0] += x[i]
"""


def test_a_part_of_its_own():
    def steps(s: Schedule) -> None:
        s.split_value(s.loop("i"), (0, 0))

    rewritten(
        LAYER,
        steps,
        """
        def k(x: f32[4, 6], b: f32[6], y: out(f32[4, 6])):
            y_part = alloc(f32[4, 6])
            for i_1 in range(4):
                for j_1 in range(6):
                    y_part[i_1, j_1] = x[i_1, j_1] + b[j_1]
            for i in range(4):
                for j in range(6):
                    y[i, j] = max(y_part[i, j] * f32(2.0), f32(0.0))
        """,
    )


def test_a_part_of_some_loops():
    """It has the axes that it depends on, and may be all that is stored."""

    def steps(s: Schedule) -> None:
        s.split_value(s.loop("i"), (0, 0, 1), "near")
        s.split_value(s.loop("i"), ())

    rewritten(
        LAYER,
        steps,
        """
        def k(x: f32[4, 6], b: f32[6], y: out(f32[4, 6])):
            y_part = alloc(f32[6] @ "near")
            for j_1 in range(6):
                y_part[j_1] = b[j_1]
            y_part_1 = alloc(f32[4, 6])
            for i_1 in range(4):
                for j_2 in range(6):
                    y_part_1[i_1, j_2] = max((x[i_1, j_2] + y_part[j_2]) * f32(2.0), f32(0.0))
            for i in range(4):
                for j in range(6):
                    y[i, j] = y_part_1[i, j]
        """,
    )


def test_a_part_under_a_condition():
    def steps(s: Schedule) -> None:
        s.split_value(s.loop("i"), (0,))

    rewritten(
        GUARDED,
        steps,
        """
        def k(x: f32[5], y: out(f32[5])):
            y_part = alloc(f32[2, 3])
            for i_1 in range(2):
                for j_1 in range(3):
                    if i_1 * 3 + j_1 < 5:
                        y_part[i_1, j_1] = x[i_1 * 3 + j_1] + f32(1.0)
            for i in range(2):
                for j in range(3):
                    if i * 3 + j < 5:
                        y[i * 3 + j] = -y_part[i, j]
        """,
    )


def test_no_such_part():
    refused(
        LAYER,
        lambda s: s.split_value(s.loop("i"), (0, 2)),
        """
        (x[i, j] + b[j]) * f32(2.0) has 2 operands, and no number 2
          while applying split_value(loop=i, path=(0, 2), memory=dram, whole=False)
          in: …
        """,
    )


def test_no_single_store():
    refused(
        SUM,
        lambda s: s.split_value(s.loop("i"), ()),
        """
        i does more than store into one buffer
          while applying split_value(loop=i, path=(), memory=dram, whole=False)
          in: …
        """,
    )


def reuse(s: Schedule) -> None:
    s.reuse(s.buffer("u"), s.buffer("t"))


def test_reuse():
    rewritten(
        CHAIN,
        reuse,
        """
        def k(x: f32[6], y: out(f32[6])):
            t = alloc(f32[6])
            for i in range(6):
                t[i] = x[i] + f32(1.0)
            for j in range(6):
                accumulate(mul, t[j], x[j])
            for l in range(6):
                y[l] = t[l] - f32(1.0)
        """,
    )


def test_reuse_of_other_places():
    rewritten(
        TURNED,
        reuse,
        """
        def k(x: f32[6], y: out(f32[6])):
            t = alloc(f32[6])
            for i in range(6):
                t[i] = x[i] + f32(1.0)
            for j in range(6):
                accumulate(mul, t[5 - j], x[j])
            for l in range(6):
                y[l] = t[5 - l] - f32(1.0)
        """,
    )


PARTS = """
def k(x: f32[6], y: out(f32[6])):
    t = alloc(f32[6])
    for i in range(6):
        t[i] = x[i] + f32(1.0)
    for p in range(2):
        u = alloc(f32[3])
        for j in range(3):
            u[j] = x[p * 3 + j] * t[p * 3 + j]
        for l in range(3):
            y[p * 3 + l] = u[l] - f32(1.0)
"""


ELSEWHERE = """
def k(x: f32[6], y: out(f32[6])):
    t = alloc(f32[6])
    for i in range(6):
        t[i] = x[i] + f32(1.0)
    for p in range(2):
        for q in range(3):
            u = alloc(f32[1])
            for j in range(1):
                u[j] = x[p * 3 + q] * t[p * 3 + q + j]
            y[p * 3 + q] = u[0]
        y[p] = t[p]
"""


def test_reuse_in_parts():
    rewritten(
        PARTS,
        reuse,
        """
        def k(x: f32[6], y: out(f32[6])):
            t = alloc(f32[6])
            for i in range(6):
                t[i] = x[i] + f32(1.0)
            for p in range(2):
                for j in range(3):
                    accumulate(mul, t[p * 3 + j], x[p * 3 + j])
                for l in range(3):
                    y[p * 3 + l] = t[p * 3 + l] - f32(1.0)
        """,
    )


EVERY_SECOND = """
def k(x: f32[9], y: out(f32[4])):
    t = alloc(f32[9])
    for i in range(9):
        t[i] = x[i]
    u = alloc(f32[4])
    for j in range(4):
        u[j] = t[2 * j + 1]
    for l in range(4):
        for s in range(2):
            accumulate(max, u[l], t[2 * l + 2 * s])
    for m in range(4):
        y[m] = u[m]
"""


def test_reuse_of_elements_between_others_that_are_still_read():
    rewritten(
        EVERY_SECOND,
        reuse,
        """
        def k(x: f32[9], y: out(f32[4])):
            t = alloc(f32[9])
            for i in range(9):
                t[i] = x[i]
            for l in range(4):
                for s in range(2):
                    accumulate(max, t[l * 2 + 1], t[l * 2 + s * 2])
            for m in range(4):
                y[m] = t[m * 2 + 1]
        """,
    )


def why(text: str) -> str:
    """The first line of a refusal of `reuse`."""
    s = schedule(text)
    before = s.kernel
    with pytest.raises(ScheduleError) as error:
        reuse(s)
    assert s.kernel is before
    return str(error.value).split("\n")[0]


def test_reuse_refused():
    both = TURNED.replace("x[j] * t", "t[j] * t")
    assert why(both) == "u[j] = t[j] * t[5 - j] does not read one element of t"
    assert why(NEEDED) == "t is needed after it is written anew"
    neighbours = EVERY_SECOND.replace("2 * l + 2 * s", "2 * l + s")
    assert why(neighbours) == "t is needed after it is written anew"
    again = PARTS.replace("u[l] - f32(1.0)", "u[l] - x[l]") + "    y[0] = t[0]\n"
    assert why(again) == "t is needed after u is computed"
    beyond = (
        CHAIN.replace("x[j] * t[j]", "select(j < 3, t[j], x[j])")
        .replace("t = alloc(f32[6])", "t = alloc(f32[3])")
        .replace("for i in range(6)", "for i in range(3)")
    )
    assert why(beyond) == ("u[j] = select(j < 3, t[j], x[j]) may write outside of t: f32[3]")
    shared = PARTS.replace("t[p * 3 + j]", "t[p + j]")
    assert why(shared) == "iterations of p share elements of t"
    assert why(ELSEWHERE) == "t is touched elsewhere in p"
    assert why(TWICE) == "u[j] = x[j] * t[j] may write an element twice"
    assert why(CHAIN.replace("u = alloc(f32[6])", 'u = alloc(f32[6] @ "near")')) == (
        "u: f32[6] in near and t: f32[6] in dram are not of one type and memory"
    )
