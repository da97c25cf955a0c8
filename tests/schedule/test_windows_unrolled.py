"""Which reductions of a contraction are unrolled whole."""

import pytest

from tilewright.ir.text.loop import parse_kernel
from tilewright.plan.default import default_schedule
from tilewright.schedule.trace.trace import Trace
from tilewright.targets import cpu

ONE = """
def f(x: f32[{far}, 16], w: f32[{n}, 16], y: out(f32[16, 16])):
    for i in range(16):
        for c in range(16):
            y[i, c] = f32(0.0)
            for k in range({n}):
                y[i, c] += x[i + k, c] * w[k, c]
"""
TWO = """
def f(x: f32[64, 64, 16], w: f32[{n}, {m}, 16], y: out(f32[16, 16, 16])):
    for i in range(16):
        for j in range(16):
            for c in range(16):
                y[i, j, c] = f32(0.0)
                for k in range({n}):
                    for l in range({m}):
                        y[i, j, c] += x[i + k, j + l, c] * w[k, l, c]
"""


def trace(text: str) -> Trace:
    return default_schedule(parse_kernel(text.strip()), cpu.cpu("avx2"), {}).trace


def unrolled(text: str, *names: str) -> list[bool]:
    steps = str(trace(text))
    return [f's.unroll(s.loop("{name}"))' in steps for name in names]


@pytest.mark.parametrize("n, whole", [(2, True), (31, True), (32, True), (33, False)])
def test_up_to_32_steps(n: int, whole: bool):
    assert unrolled(ONE.format(n=n, far=n + 15), "k") == [whole]


@pytest.mark.parametrize(
    "n, m, whole", [(3, 3, True), (4, 8, True), (16, 2, True), (3, 11, False), (5, 7, False)]
)
def test_up_to_32_steps_together(n: int, m: int, whole: bool):
    assert unrolled(TWO.format(n=n, m=m), "k", "l") == [whole, whole]
