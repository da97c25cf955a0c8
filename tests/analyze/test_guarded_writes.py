"""What is written under conditions, and read under others."""

import pytest

from tilewright.analyze.bounds import faults
from tilewright.ir.text.loop import parse_kernel

GUARDED = """
def f(x: f32[4], y: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        if i < {first}:
            t[i] = x[i]
        if i < {then}:
            y[i] = t[i]
        else:
            y[i] = x[i]
"""


@pytest.mark.parametrize(
    "first, then, found",
    [
        (2, 4, ["t[i] is read before it has a value, for i = 2"]),
        (4, 2, []),
        (2, 2, []),
        (1, 2, ["t[i] is read before it has a value, for i = 1"]),
    ],
)
def test_a_write_under_a_condition(first: int, then: int, found: list[str]):
    kernel = parse_kernel(GUARDED.format(first=first, then=then).strip())
    assert [str(x) for x in faults(kernel)] == found


def test_a_write_under_a_condition_on_memory_says_nothing_of_others():
    kernel = parse_kernel(
        """
def f(x: f32[4], y: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        if x[i] > f32(0.0):
            t[i] = x[i]
        y[i] = t[i]
""".strip()
    )
    assert [str(x) for x in faults(kernel)] == []  # it may well have one
