"""When the steps of a call happen: the host's as they were timed, and a simulated chip's kernels in
the time that they take there, not in the time that it takes to simulate them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.program.host_program import HostProgram, Submit, Wait
from tilewright.runtime.device_run import DeviceRun, find_run
from tilewright.runtime.program import Program, StepFacts


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when a step takes place, in nanoseconds from the beginning of the call."""

    begin: float
    end: float

    @property
    def nanoseconds(self) -> float:
        return self.end - self.begin


def spans(host: HostProgram, facts: Sequence[StepFacts], timed: Sequence[int]) -> list[Span]:
    """The span of each step: `timed` are the nanoseconds that each took here. A device begins with
    a kernel when it has done those before, and the host goes on until it waits."""
    now, found = 0.0, []
    free: dict[str, float] = {}  # when each device has done all that it was given
    for step, known, nanoseconds in zip(host.steps, facts, timed, strict=True):
        if isinstance(step, Submit):
            begin = max(now, free.get(step.device, 0.0))
            taken = nanoseconds if known.picoseconds is None else known.picoseconds / 1e3
            free[step.device] = begin + taken
            found.append(Span(begin, begin + taken))
            continue
        end = now + nanoseconds
        if isinstance(step, Wait):
            end = max(now, free.get(step.device, 0.0))
        found.append(Span(now, end))
        now = end
    return found


def runs_of(program: Program) -> dict[tuple[str, str], DeviceRun]:
    """How devices ran the kernels that they are given, by device and kernel, where it is known."""
    parts = {part.device: part for part in program.parts}
    found = {}
    for step in program.host.steps:
        if isinstance(step, Submit) and step.device in parts:
            run = find_run(parts[step.device], step.kernel)
            if run is not None:
                found[step.device, step.kernel] = run
    return found
