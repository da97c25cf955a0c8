"""Arguments of primitives of one's own, read from a saved trace by their types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from schedule_cases import schedule

from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.core.state import State, primitive
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop

KERNEL = """
def f(x: f32[4, 6], y: out(f32[4, 6])):
    for i in range(4):
        for j in range(6):
            y[i, j] = x[i, j]
"""


@primitive
def numbers(state: State, value: tuple[int, ...]) -> None:
    """Does nothing."""


@primitive
def pair(state: State, value: tuple[int, str]) -> None:
    """Does nothing."""


@primitive
def names(state: State, value: Sequence[str]) -> None:
    """Does nothing."""


@primitive
def anything(state: State, value) -> None:
    """Does nothing."""


@primitive
def objects(state: State, value: object) -> None:
    """Does nothing."""


@primitive
def unknown(state: State, value: NoSuchType) -> None:  # noqa: F821  (only a type checker has it)
    """Does nothing."""


@primitive
def either(state: State, value: int | str | None) -> None:
    """Does nothing."""


@primitive
def loop_or_none(state: State, value: Loop | None) -> None:
    """Does nothing."""


@primitive
def bare(state: State, value: list) -> None:
    """Does nothing."""


@primitive
def loops(state: State, value: tuple[Loop, Buffer]) -> None:
    """Does nothing."""


@primitive
def a_way(state: State, value: Tail) -> None:
    """Does nothing."""


PRIMITIVES = (numbers, pair, names, anything, objects, unknown, either, loop_or_none, bare, loops)
PRIMITIVES = (*PRIMITIVES, a_way)


def saved(function: Callable[..., Any], *value: Any) -> tuple[Schedule, dict, dict]:
    """A schedule with that step, what is saved of it, and how it is read."""
    s = schedule(KERNEL)
    s.apply(function, *value)
    (step,) = s.trace
    return s, json.loads(s.trace.json()), {step.primitive: function}


RIGHT: list[tuple[Callable[..., Any], Any]] = [
    (numbers, ()), (numbers, (3,)), (numbers, (1, 2)), (numbers, (1, 2, 3)),
    (pair, (1, "a")), (names, ("a", "b")), (names, ()),
    (anything, 1), (anything, (1, ("a", 2.5))), (anything, None), (anything, ()),
    (objects, "text"), (objects, (True, False)), (unknown, (1, 2)), (unknown, "x"),
    (either, 1), (either, "a"), (either, None), (loop_or_none, None), (bare, (1, "a")),
    (a_way, Tail.GUARD), (a_way, Tail.CUT),
]  # fmt: skip


def shown(value: Any) -> str:
    """In the name of a test: no addresses."""
    return getattr(value, "__name__", None) or str(value)


@pytest.mark.parametrize("function, value", RIGHT, ids=shown)
def test_values_come_back(function: Callable[..., Any], value: Any):
    s, record, functions = saved(function, value)
    again = s.read_trace(json.dumps(record), functions)
    assert again == s.trace
    ((_, found),) = again[0].arguments
    assert (found, type(found)) == (value, type(value))
    assert again.replay(s.original).kernel == s.kernel


def test_handles_come_back():
    """As themselves, where a type says so and where none does."""
    layout = Layout((1, 0), ((0, 4),))
    for function, value in (
        (loop_or_none, lambda s: s.loop("i")),
        (anything, lambda s: s.loop("j")),
        (anything, lambda s: s.buffer("x")),
        (anything, lambda s: (s.loop("i"), s.buffer("y"))),
        (anything, lambda s: layout),
        (objects, lambda s: layout),
        (loops, lambda s: (s.loop("i"), s.buffer("x"))),
    ):
        s, record, functions = saved(function, value(schedule(KERNEL)))
        again = s.read_trace(json.dumps(record), functions)
        assert again == s.trace
        assert again.replay(s.original).trace == s.trace


WRONG: list[tuple[Callable[..., Any], Any, Any, str]] = [
    (numbers, (1,), [1, "a"], 'an item of value of {} is "a", not a whole number'),
    (numbers, (1,), 3, "value of {} is 3, not a list"),
    (pair, (1, "a"), [1], "value of {} has 1 items, not 2"),
    (pair, (1, "a"), [1, "a", 2], "value of {} has 3 items, not 2"),
    (pair, (1, "a"), ["a", 1], 'value of {} is "a", not a whole number'),
    (pair, (1, "a"), [1, 2], "value of {} is 2, not a text"),
    (either, 1, 1.5, "value of {} is 1.5, not a whole number"),
    (either, 1, True, "value of {} is true, not a whole number"),
    (loop_or_none, None, 7, "value of {} is 7, not a loop"),
    (loops, None, [{"loop": "i"}], "value of {} has 1 items, not 2"),
    (loops, None, [{"buffer": "x"}, {"loop": "i"}], 'value of {} is {{"buffer": "x"}}, not a loop'),
    (anything, 1, {"odd": 1}, "value of {} has a field 'odd'"),
    (anything, 1, {"loop": "i", "odd": 1}, "value of {} has a field 'odd'"),
    (anything, 1, {"instruction": "mac"}, "value of {} is the instruction 'mac' of a target"),
    (anything, 1, {"order": [0]}, "value of {} has no field 'blocks'"),
    (a_way, Tail.CUT, "no", 'value of {} is "no"'),
    (a_way, Tail.CUT, [1], "value of {} is [1]"),
]


@pytest.mark.parametrize("function, value, text, what", WRONG, ids=shown)
def test_other_values(function: Callable[..., Any], value: Any, text: Any, what: str):
    if function is loops:
        s = schedule(KERNEL)
        s.apply(loops, (s.loop("i"), s.buffer("x")))
        record, functions = json.loads(s.trace.json()), {s.trace[0].primitive: loops}
    else:
        s, record, functions = saved(function, value)
    record["steps"][0]["arguments"]["value"] = text
    with pytest.raises(ScheduleError) as error:
        s.read_trace(json.dumps(record), functions)
    assert error.value.what == what.format(s.trace[0].primitive)


@primitive
def many(state: State, *value: int, more: str = "a") -> None:
    """Does nothing."""


def test_what_is_left_out():
    s = schedule(KERNEL)
    s.apply(many, 1, 2, more="b")
    record, functions = json.loads(s.trace.json()), {s.trace[0].primitive: many}
    del record["steps"][0]["arguments"]["more"]
    assert dict(s.read_trace(json.dumps(record), functions)[0].arguments) == {
        "value": (1, 2),
        "more": "a",
    }
    del record["steps"][0]["arguments"]["value"]
    assert dict(s.read_trace(json.dumps(record), functions)[0].arguments) == {
        "value": (),
        "more": "a",
    }
