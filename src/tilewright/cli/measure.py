"""Timing models: `bench` as a whole, `explain` step by step against what the machine could do."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.report.bounds import StepBound, find_bound
from tilewright.report.limits import Limits
from tilewright.runtime.module import Module
from tilewright.runtime.profile import Profile
from tilewright.runtime.program import Program, StepFacts

Arrays = Mapping[str, np.ndarray]
Watch = Callable[[int, int], None]  # how many are done, of how many

WARM_UP = 0.2  # seconds
BETWEEN = 0.1  # seconds between two words about how far it is
FEWEST, MOST = 5, 1 << 24  # calls


@dataclass(frozen=True)
class Timing:
    """Nanoseconds for a call, over `calls` of them."""

    calls: int
    fastest: int
    median: int
    slowest_tenth: int

    @property
    def per_second(self) -> float:
        return 1e9 / self.median


def measure(module: Module, inputs: Arrays, seconds: float, watch: Watch | None = None) -> Timing:
    """Calls the model for about so long, after a warm-up. `watch` is told between calls, now and
    then, how many of about how many are done."""
    arrays = [inputs[t.name] for t in module.inputs]
    end = time.perf_counter() + min(WARM_UP, seconds)
    while True:
        module(*arrays)
        if time.perf_counter() > end:
            break
    spent = array("q")
    begun = told = time.perf_counter()
    end = begun + seconds
    while len(spent) < FEWEST or (time.perf_counter() < end and len(spent) < MOST):
        start = time.perf_counter_ns()
        module(*arrays)
        spent.append(time.perf_counter_ns() - start)
        now = time.perf_counter()
        if watch is not None and now > told + BETWEEN:
            told = now
            watch(len(spent), max(FEWEST, round(len(spent) * seconds / (now - begun))))
    median, tenth = np.percentile(spent, [50, 90])
    return Timing(len(spent), min(spent), int(median), int(tenth))


# ---------------------------------------------------------------- explain


@dataclass(frozen=True)
class PieceRow:
    """One of several kernels that a device does in one step (StepPiece)."""

    name: str
    nodes: tuple[str, ...]
    operations: int | None
    cycles: int
    device_nanoseconds: float
    cycle_bound: int | None

    @property
    def of_bound(self) -> float | None:
        """What it takes at least by itself, of what it takes here: more than 1 where its transfers
        go along with other pieces."""
        return None if self.cycle_bound is None else self.cycle_bound / max(self.cycles, 1)


@dataclass(frozen=True)
class StepRow:
    """One step, timed. Steps that run on the host in Python have no bound."""

    number: int
    kind: str
    name: str
    device: str
    nodes: tuple[str, ...]
    nanoseconds: int
    share: float  # of the model's time
    operations: int | None
    bytes: int | None
    bound: StepBound | None
    cycles: int | None = None  # of the device that it is submitted to
    device_nanoseconds: float | None = None
    obstacles: tuple[str, ...] = ()  # why no device but the host runs it
    fallback: str = ""  # why its schedule is a plain one
    cycle_bound: int | None = None  # of the device: what no schedule can beat
    pieces: tuple[PieceRow, ...] = ()  # the kernels of which it is made, where they are several

    @property
    def of_bound(self) -> float | None:
        """How near the step is to the bound, on a device the bound of its cycles: 1 is there."""
        if self.cycles and self.cycle_bound is not None:
            return self.cycle_bound / self.cycles
        if self.bound is None or not self.nanoseconds:
            return None
        return self.bound.nanoseconds / self.nanoseconds


def step_rows(profile: Profile, program: Program, limits: Limits) -> list[StepRow]:
    """Every step, as it was timed, beside what the machine allows."""
    total = max(1, sum(s.nanoseconds for s in profile.steps))
    return [
        StepRow(
            number,
            s.kind,
            s.name,
            s.device,
            s.nodes,
            s.nanoseconds,
            s.nanoseconds / total,
            s.operations,
            s.bytes,
            find_bound(s, limits),
            facts.cycles,
            None if facts.picoseconds is None else facts.picoseconds / 1e3,
            facts.obstacles,
            facts.fallback,
            facts.bound,
            tuple(_piece_rows(facts)),
        )
        for number, (s, facts) in enumerate(zip(profile.steps, program.steps, strict=True))
    ]


def _piece_rows(facts: StepFacts) -> Iterator[PieceRow]:
    """Yields the kernels of a step, with their shares of its time on the device."""
    cycle = (facts.picoseconds or 0) / 1e3 / max(facts.cycles or 0, 1)
    for p in facts.pieces:
        operations = p.operations if isinstance(p.operations, int) else None
        yield PieceRow(p.kernel, p.nodes, operations, p.cycles, p.cycles * cycle, p.bound)


def costliest(rows: Sequence[StepRow], count: int | None) -> list[StepRow]:
    """The `count` steps that take longest, the first of them first; all in order for None."""
    if count is None:
        return list(rows)
    return sorted(rows, key=lambda r: (-r.nanoseconds, r.number))[:count]


def totals(rows: Sequence[StepRow]) -> dict[str, float]:
    """Sums over the steps."""
    return {
        "nanoseconds": sum(r.nanoseconds for r in rows),
        "operations": sum(r.operations or 0 for r in rows),
        "bytes": sum(r.bytes or 0 for r in rows),
        "bound": sum(r.bound.nanoseconds for r in rows if r.bound is not None),
    }
