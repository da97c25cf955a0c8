"""The least that a step of the host can take."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.report.limits import Limits
from tilewright.runtime.profile import StepTime

COMPUTE, MEMORY, OVERHEAD = "compute", "memory", "overhead"


@dataclass(frozen=True)
class StepBound:
    """The least that a step can take. `limit` says what for; `memory` which memory's rate counts,
    the nearest that holds all of the step's data."""

    nanoseconds: float
    limit: str
    memory: str | None = None


def find_bound(step: StepTime, limits: Limits) -> StepBound | None:
    """The longest of what the arithmetic takes at the peak of the instruction that it uses, what
    the bytes take from the nearest memory that holds them, and what an empty step takes."""
    if step.kind in ("host_call", "submit", "wait"):
        return None
    bounds = [StepBound(limits.step_nanoseconds, OVERHEAD)]
    if step.operations:
        bounds.append(StepBound(step.operations / limits.rate(step.instruction) * 1e9, COMPUTE))
    if step.bytes:
        level = limits.level(step.bytes)
        bounds.append(StepBound(step.bytes / level.bytes_per_second * 1e9, MEMORY, level.name))
    return max(bounds, key=lambda b: b.nanoseconds)
