"""Primitives of one's own with arguments of every kind, replayed; how steps and references show."""

from schedule_cases import schedule

from tilewright.schedule.core.state import State, primitive
from tilewright.schedule.primitives.loops import split, unroll
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop

KERNEL = """
def f(x: f32[24], y: out(f32[24])):
    for i in range(24):
        y[i] = x[i]
"""


@primitive
def cut(state: State, loop: Loop, *factors: int, inner: bool, times: int = 1) -> Loop:
    """Splits a loop by factors, one after the other, and unrolls the last part."""
    for factor in factors * times:
        outer, rest = split(state, loop, factor)
        loop = rest if inner else outer
    unroll(state, loop)
    return loop


def rewritten(*factors: int, inner: bool, times: int = 1) -> Schedule:
    s = schedule(KERNEL)
    s.apply(cut, s.loop("i"), *factors, inner=inner, times=times)
    return s


def test_arguments_by_position_and_by_name():
    for factors, inner, more in (
        ((12, 3), True, {}),
        ((2, 3), False, {}),
        ((2,), False, {"times": 2}),
    ):
        s = rewritten(*factors, inner=inner, **more)
        assert str(s.trace.replay(s.original).kernel) == str(s.kernel)
    assert [str(x.extent) for x in map(s.for_, s.loops())] == ["6", "2", "2"]


def test_what_steps_show():
    (step,) = rewritten(12, 3, inner=True).trace
    assert str(step) == "cut(loop=i, factors=(12, 3), inner=True, times=1)"
    assert "function=" not in repr(step)
    assert "handles=" not in repr(step)
    ((place, given),) = step.gives
    assert (place, str(given), repr(given)) == ((), "i_i_i", "i_i_i")
