"""The trace of a schedule: the primitives that were applied, in order, as a record of its own.

A trace does not belong to the program that it was made on. It prints as Python, is saved as JSON,
and is replayed on another program, where every primitive checks its preconditions again. Its whole
numbers are decisions, which can be taken differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, overload

from tilewright.base.errors import ScheduleError, TilewrightError, did_you_mean
from tilewright.schedule.trace.as_json import read_steps, write_steps
from tilewright.schedule.trace.as_python import PythonWriter
from tilewright.schedule.trace.space import Space
from tilewright.schedule.trace.steps import (
    Place,
    Reference,
    ReferenceKind,
    Schedules,
    Step,
    call,
    leaves,
    map_leaves,
)
from tilewright.target.pairs import selectable
from tilewright.target.target import Target


@dataclass(frozen=True)
class Decision:
    """A whole number (or a flag) that a step was given: `value` at `place` of an argument."""

    step: int  # from 0
    argument: str
    place: Place
    value: int

    @property
    def name(self) -> str:
        """`3.factor`, `5.stages.1`: the step's number, from 1; the argument; the place in it."""
        return ".".join([str(self.step + 1), self.argument, *map(str, self.place)])

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Trace:
    """The steps of a schedule. `schedule` is the class of the schedules that replays make."""

    steps: tuple[Step, ...] = ()
    schedule: Schedules | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> Trace: ...
    def __getitem__(self, at: int | slice) -> Step | Trace:
        if isinstance(at, int):
            return self.steps[at]
        if at.start not in (None, 0) or at.step not in (None, 1):
            raise ScheduleError("the steps before are part of what a step means", hint="trace[:n]")
        return replace(self, steps=self.steps[at])

    def __str__(self) -> str:
        return self.python()

    def with_step(self, step: Step) -> Trace:
        """The trace with one more step."""
        return Trace((*self.steps, step), self.schedule)

    # ---------------------------------------------------------- texts

    def python(self) -> str:
        """A program that does the same to a schedule `s` (with the `target` of instructions)."""
        return PythonWriter(self.steps).program()

    def line(self, number: int) -> str:
        """The line of Python for a step, counted from 0."""
        return PythonWriter(self.steps).line(number)

    def json(self) -> str:
        """The text to save; `from_json` reads it."""
        return write_steps(self.steps)

    @classmethod
    def from_json(
        cls,
        text: str,
        schedule: Schedules,
        primitives: Mapping[str, Callable[..., object]] | None = None,
        target: Target | None = None,
    ) -> Trace:
        """The trace that `json` wrote. `schedule` has the primitives that it may name as methods;
        those of others are passed by the name that they have in it, "module:function". A target is
        needed where the trace names its instructions."""
        instructions = None if target is None else {x.name: x for x in selectable(target)}
        functions = {**schedule.primitives(), **(primitives or {})}
        return cls(read_steps(text, functions, instructions), schedule)

    # ---------------------------------------------------------- replay

    def replay(self, program: object) -> Any:
        """The same steps on another program (or other shapes), with all checks: a schedule. An
        error says which step was refused."""
        s = self.begun(program)
        self.replay_on(s)
        return s

    def begun(self, program: object) -> Any:
        """A schedule of the program, without a step."""
        assert self.schedule is not None, "a trace that no schedule recorded"
        return self.schedule(program)

    def replay_on(self, s: object) -> None:
        """The same steps, on a schedule that has none yet."""
        for _ in self.applied(s):
            pass

    def applied(self, s: Any) -> Iterator[tuple[Any, dict[str, Any], Any]]:
        """The steps, each as it has just been applied: the program before it, its arguments as
        handles, its result."""
        given: list[dict[Place, Any]] = []
        for number, step in enumerate(self.steps):
            before = s.kernel
            try:
                arguments = self._values(step, s, given)
                result = call(step.function, s, arguments)
            except TilewrightError as error:
                error.add_context(f"replaying step {number + 1}: {self.line(number)}")
                raise
            given.append(dict(leaves(result)))
            yield before, arguments, result

    def space(self, program: object, target: Target | None = None) -> Space:
        """The ways to decide this trace on a program, to be costed without building each; with a
        target, those that fit its memories."""
        return Space(self, program, target)

    def _values(self, step: Step, s: Any, given: list[dict[Place, Any]]) -> dict[str, Any]:
        def found(x: Any) -> Any:
            if not isinstance(x, Reference):
                return x
            if x.step is None:
                return s.loop(x.name) if x.kind is ReferenceKind.LOOP else s.buffer(x.name)
            if x.place not in given[x.step]:
                what = f"step {x.step + 1} gives no {x.kind.value} {x.name} here"
                raise ScheduleError(what, program=s.kernel)
            return given[x.step][x.place]

        return {name: map_leaves(value, found) for name, value in step.arguments}

    # ---------------------------------------------------------- decisions

    def decisions(self) -> list[Decision]:
        """Every whole number that a step was given: factors, depths, stages, counts, flags."""
        return [
            Decision(number, name, place, x)
            for number, step in enumerate(self.steps)
            for name, value in step.arguments
            for place, x in leaves(value)
            if isinstance(x, int)
        ]

    def with_decisions(self, values: Mapping[str, int]) -> Trace:
        """The same trace with other numbers, by the names of decisions; the others stay."""
        known = {d.name: d for d in self.decisions()}
        for name, value in values.items():
            if name not in known:
                raise ScheduleError(
                    f"the trace has no decision {name!r}", hint=did_you_mean(name, list(known))
                )
            if type(value) is not type(known[name].value):
                wanted = type(known[name].value).__name__
                raise ScheduleError(f"{known[name]} is decided by {value!r}, which is no {wanted}")
        steps = list(self.steps)
        for name, value in values.items():
            d = known[name]
            arguments = tuple(
                (key, _replaced(old, d.place, value) if key == d.argument else old)
                for key, old in steps[d.step].arguments
            )
            steps[d.step] = replace(steps[d.step], arguments=arguments)
        return replace(self, steps=tuple(steps))


def _replaced(value: Any, place: Place, new: int) -> Any:
    if not place:
        return new
    items = list(value)
    items[place[0]] = _replaced(items[place[0]], place[1:], new)
    return tuple(items)
