"""Places in turn, for loops that do not stand in each other."""

import pytest
from schedule_cases import schedule

from tilewright.base.errors import ScheduleError

KERNEL = """
def f(x: f32[4, 3, 8], y: out(f32[4, 3, 8])):
    for i in range(4):
        for u in range(1):
            for j in range(3):
                t = alloc(f32[8])
                for k in range(8):
                    t[k] = x[i, j, k]
                for l in range(8):
                    y[i, j, l] = t[7 - l]
"""


def test_loops_around_each_other():
    s = schedule(KERNEL)
    ring = s.multi_buffer(s.buffer("t"), [s.loop("i"), s.loop("u"), s.loop("j")], 4)
    assert ring.shape == (4, 8)
    assert "t[(i * 3 + j) % 4, k] = x[i, j, k]" in str(s.kernel)


@pytest.mark.parametrize(
    "loops, depth, what",
    [
        (["i", "j"], 2, "j does not stand in the body of i"),
        (["i", "u"], 2, "u does not allocate t in its body"),
        (["j"], 0, "a ring of 0 places over 1 loops"),
        ([], 2, "a ring of 2 places over 0 loops"),
    ],
)
def test_refused(loops: list[str], depth: int, what: str):
    s = schedule(KERNEL)
    with pytest.raises(ScheduleError) as error:
        s.multi_buffer(s.buffer("t"), [s.loop(x) for x in loops], depth)
    assert error.value.what == what
