"""Many ways to decide one trace, each costed without building its program.

    space = s.trace.space(kernel)
    c = space.candidate({"1.factor": 8, "2.factor": 4})     # well under a millisecond
    c.extents, c.footprints, c.trips, c.memory              # what cost models ask for
    c.schedule()                                            # now it is built, with all checks

The first candidate of a class (derive.py says what that is) is proven by a replay in full: `prove`.
From then on `candidate` accepts others of the class by checking numbers: that factors divide, that
loops run once as they did, and with a target that what is allocated fits its memories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilewright.base.errors import ScheduleError, did_you_mean
from tilewright.base.node import cached_property
from tilewright.ir.loop import Alloc, Block, For, Kernel, sub_blocks
from tilewright.schedule.trace.derive import (
    Condition,
    Derivation,
    Divides,
    Event,
    Pinned,
    Same,
    begin,
    buffers_in,
    can_derive,
    has_numbers,
    loops_in,
)
from tilewright.schedule.trace.formulas import Formula, Formulas
from tilewright.schedule.trace.rules import follow
from tilewright.schedule.trace.steps import Step
from tilewright.target.target import Target

CLASSES = 64  # remembered at most


class Decided(Protocol):
    """What candidates ask of a trace (schedule/trace/trace.py)."""

    @property
    def steps(self) -> Sequence[Step]: ...
    def __len__(self) -> int: ...
    def decisions(self) -> list[Any]: ...
    def with_decisions(self, values: Mapping[str, int]) -> Decided: ...
    def applied(self, s: object) -> Iterator[tuple[Any, dict[str, Any], Any]]: ...
    def begun(self, program: object) -> Any: ...
    def replay(self, program: object) -> Any: ...


@dataclass(frozen=True, eq=False)
class Class:
    """Formulas for the program that a trace makes, and for which decisions they hold."""

    formulas: Formulas
    conditions: tuple[Condition, ...]
    extents: tuple[tuple[str, Formula], ...]  # of loops, in program order
    footprints: tuple[tuple[str, Formula], ...]  # bytes of buffers
    trips: tuple[tuple[str, Formula], ...]  # how often a loop's body runs in all
    memory: tuple[tuple[str, Formula], ...]  # most bytes that allocations take at a time

    def refusal(self, values: list[Any]) -> str | None:
        """Why values of the formulas are not of the class."""
        return next((text for c in self.conditions if (text := _broken(c, values))), None)

    def holds(self, values: list[Any]) -> Any:
        """Whether values (numbers or arrays) are of the class."""
        good: Any = True
        for c in self.conditions:
            if isinstance(c, Divides):
                factor = np.maximum(values[c.factor], 1)
                good = good & (values[c.extent] % factor == 0)
            elif isinstance(c, Same):
                good = good & ((values[c.extent] == 1) == c.is_one)
            else:
                good = good & (values[c.decision] == c.value)
        return good


def _broken(c: Condition, values: list[int]) -> str | None:
    if isinstance(c, Divides):
        factor, extent = values[c.factor], values[c.extent]
        if factor < 1 or extent % factor:
            return f"tiles of {factor} do not divide the {extent} iterations of {c.loop}"
    elif isinstance(c, Same):
        n = values[c.extent]
        if (n == 1) != c.is_one or n < 1:
            return f"{c.what} is {n}, and proven for {'1' if c.is_one else 'more than 1'}"
    elif values[c.decision] != c.value:
        return f"a decision is {values[c.decision]} instead of {c.value}, and {c.what}"
    return None


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to decide a trace, checked; its program is built on demand."""

    space: Space
    decisions: tuple[int, ...]
    known: Class
    values: list[int]

    @cached_property
    def extents(self) -> dict[str, int]:
        """How often each loop runs, by name, in program order."""
        return self._named(self.known.extents)

    @cached_property
    def footprints(self) -> dict[str, int]:
        """Bytes of each buffer."""
        return self._named(self.known.footprints)

    @cached_property
    def trips(self) -> dict[str, int]:
        """How often each loop's body runs in all."""
        return self._named(self.known.trips)

    @cached_property
    def memory(self) -> dict[str, int]:
        """The most bytes that allocations take at a time, by memory."""
        return self._named(self.known.memory)

    @property
    def trace(self) -> Decided:
        return self.space.decided(self.decisions)

    def schedule(self) -> Any:
        """The schedule itself: a replay, with all checks."""
        return self.trace.replay(self.space.program)

    @property
    def kernel(self) -> Kernel:
        found: Kernel = self.schedule().kernel
        return found

    def _named(self, formulas: tuple[tuple[str, Formula], ...]) -> dict[str, int]:
        return {name: self.values[f] for name, f in formulas}


class Space:
    """The candidates of a trace on a program."""

    def __init__(self, trace: Decided, program: object, target: Target | None = None) -> None:
        self.trace = trace
        self.program = program
        self.target = target
        self.names = {d.name: i for i, d in enumerate(trace.decisions())}
        self._base = tuple(d.value for d in trace.decisions())
        self._flags = tuple(isinstance(x, bool) for x in self._base)
        self._classes: list[Class] = []

    # ---------------------------------------------------------- candidates

    def candidate(self, decisions: Mapping[str, int]) -> Candidate:
        """A candidate, if it is of a class that is proven; ScheduleError says what is not."""
        decided = self._decided(decisions)
        reason = ""
        for position, known in enumerate(self._classes):
            values = known.formulas.evaluate(decided)
            refusal = known.refusal(values)
            if refusal is None:
                if position:
                    self._classes.insert(0, self._classes.pop(position))
                return self._checked(Candidate(self, decided, known, values))
            reason = reason or refusal
        hint = "space.prove(…) replays the trace in full, and knows its class from then on"
        raise ScheduleError(reason or "nothing is proven of this trace yet", hint=hint)

    def prove(self, decisions: Mapping[str, int] | None = None) -> Candidate:
        """The same with a replay in full if need be: slower, and refused where a step is."""
        decided = self._decided(decisions or {})
        for known in self._classes:
            values = known.formulas.evaluate(decided)
            if known.refusal(values) is None:
                return self._checked(Candidate(self, decided, known, values))
        known = self._derived(decided)
        self._classes = [known, *self._classes[: CLASSES - 1]]
        return self._checked(Candidate(self, decided, known, known.formulas.evaluate(decided)))

    def columns(self, decisions: Mapping[str, object]) -> tuple[Any, dict[str, Any]]:
        """Many candidates at once, of the class used last: numpy arrays of decisions in; which of
        them are of the class, and the extents, trips and footprints ("loop", "loop.trips",
        "buffer.bytes") as arrays. What is not of the class has no meaning there."""
        if not self._classes:
            self.prove()
        known = self._classes[0]
        decided: list[Any] = list(self._base)
        positive: Any = True
        for name, column in decisions.items():
            array = np.asarray(column, np.int64)
            positive = positive & (array >= 1)
            decided[self._position(name)] = np.maximum(array, 1)
        values = known.formulas.evaluate(decided)
        good = known.holds(values) & positive
        found = {name: values[f] for name, f in known.extents}
        found |= {f"{name}.trips": values[f] for name, f in known.trips}
        found |= {f"{name}.bytes": values[f] for name, f in known.footprints}
        return good, found

    def decided(self, decisions: tuple[int, ...]) -> Decided:
        """The trace with these decisions."""
        return self.trace.with_decisions(dict(zip(self.names, decisions, strict=True)))

    # ---------------------------------------------------------- checks

    def _position(self, name: str) -> int:
        if name not in self.names:
            hint = did_you_mean(name, list(self.names))
            raise ScheduleError(f"the trace has no decision {name!r}", hint=hint)
        return self.names[name]

    def _decided(self, decisions: Mapping[str, int]) -> tuple[int, ...]:
        found = list(self._base)
        for name, value in decisions.items():
            at = self._position(name)
            if not isinstance(value, int) or isinstance(value, bool) != self._flags[at]:
                raise ScheduleError(f"{name} is decided by {value!r}")
            found[at] = value
        return tuple(found)

    def _checked(self, candidate: Candidate) -> Candidate:
        for memory in self.target.memories if self.target is not None else ():
            used = candidate.memory.get(memory.name, 0)
            if memory.size is not None and used > memory.size:
                raise ScheduleError(
                    f"allocations take {used} bytes of {memory.name}, which has {memory.size}",
                    hint="smaller tiles, or fewer buffers at a time",
                )
        return candidate

    # ---------------------------------------------------------- derivation

    def _derived(self, decided: tuple[int, ...]) -> Class:
        """Replays the trace with these decisions, and follows each step with formulas."""
        trace = self.decided(decided)
        d = Derivation(
            Formulas([int(x) for x in decided]),
            {
                (x.step, ".".join([x.argument, *map(str, x.place)])): i
                for i, x in enumerate(trace.decisions())
            },
        )
        s = trace.begun(self.program)
        followed = can_derive(s.kernel)
        if followed:
            begin(d, s.kernel)
        for event in _events(trace, s):
            followed = followed and has_numbers(event.after)
            if followed:
                follow(d, event)
        if not followed:
            what = "sizes or places that are not known while compiling are proven one by one"
            d.pin(len(trace), what)
            if has_numbers(s.kernel):
                d.adopt(s.kernel)
        return _class(d, s.kernel)


def _events(trace: Decided, s: Any) -> Any:
    """The steps as they are applied, one after the other."""
    for number, (before, arguments, result) in enumerate(trace.applied(s)):
        yield Event(number, trace.steps[number], arguments, result, before, s.kernel)


def _class(d: Derivation, kernel: Kernel) -> Class:
    f = d.formulas
    known = has_numbers(kernel)
    loops = loops_in(kernel.body) if known else []
    buffers = buffers_in(kernel) if known else []
    sizes = {b.name: f.mul(f.product(d.shapes[b.name]), f.const(b.dtype.bytes)) for b in buffers}
    trips: dict[str, Formula] = {}
    if loops:
        _count(d, kernel.body, f.const(1), trips)
    memories = {b.memory for b in buffers if b not in kernel.params}
    return Class(
        f,
        tuple(dict.fromkeys(d.conditions)),
        tuple((x.var.name, d.extents[x.var.name]) for x in loops),
        tuple(sizes.items()),
        tuple(trips.items()),
        tuple((m, _peak(f, kernel.body, m, sizes)) for m in sorted(memories)),
    )


def _count(d: Derivation, block: Block, outer: Formula, trips: dict[str, Formula]) -> None:
    for stmt in block:
        inside = outer
        if isinstance(stmt, For):
            inside = trips[stmt.var.name] = d.formulas.mul(outer, d.extents[stmt.var.name])
        for inner in sub_blocks(stmt):
            _count(d, inner, inside, trips)


def _peak(f: Formulas, block: Block, memory: str, sizes: Mapping[str, Formula]) -> Formula:
    """The most bytes of a memory that a block has allocated at a time."""
    live = most = f.const(0)
    for stmt in block:
        if isinstance(stmt, Alloc) and stmt.buffer.memory == memory:
            live = f.add(live, sizes[stmt.buffer.name])
        inner = [_peak(f, b, memory, sizes) for b in sub_blocks(stmt)]
        most = f.largest([most, live, *(f.add(live, x) for x in inner)])
    return most


__all__ = ["Candidate", "Class", "Divides", "Pinned", "Same", "Space"]
