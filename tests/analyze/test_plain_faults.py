"""What can be said of accesses at places that memory decides."""

import pytest

from tilewright.analyze.accesses import accesses
from tilewright.analyze.bounds import faults, may_happen
from tilewright.ir.text.loop import parse_kernel

SCATTER = """
def f(p: i32[4], x: f32[4], y: out(f32[2])):
    t = alloc(f32[2, 8])
    for i in range(4):
        t[0, cast(i64, p[i])] = x[i]
    y[0] = t[0, 1]
    y[1] = t[{row}, 1]
"""


@pytest.mark.parametrize("row, found", [(0, []), (1, ["t[1, 1] is read before it has a value"])])
def test_a_row_that_no_write_reaches(row: int, found: list[str]):
    """Wherever in its row a write is, it is in that row."""
    kernel = parse_kernel(SCATTER.format(row=row).strip())
    assert [str(x) for x in faults(kernel)] == found


CONDITION = """
def f(p: i32[4], x: f32[4], y: out(f32[8])):
    for i in range({times}):
        if x[i] > f32(0.0):
            y[cast(i64, p[i])] = x[i]
"""


@pytest.mark.parametrize("times", [0, 1, 4])
def test_conditions_on_memory(times: int):
    """What stands under one may happen, unless a loop around it never runs."""
    kernel = parse_kernel(CONDITION.format(times=times).strip())
    found = [may_happen(a) for a in accesses(kernel.body)]
    assert found == [times > 0] * 4
