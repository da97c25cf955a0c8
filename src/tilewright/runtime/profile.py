"""Where the time of a call goes, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.runtime.plan import Plan, StepKind
from tilewright.runtime.shapes import Signature
from tilewright.runtime.size import evaluate_size


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of a model. `operations` and `bytes` are None where the compiler did not say."""

    kind: StepKind
    name: str
    device: str
    nodes: tuple[str, ...]  # of the model
    nanoseconds: int  # median of all calls
    fastest: int
    operations: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Profile:
    """`nanoseconds` is the median of whole calls, from the first step to the end of the last."""

    steps: tuple[StepTime, ...]
    nanoseconds: int
    fastest: int
    calls: int


def make_profile(plan: Plan, signature: Signature, stamps: np.ndarray) -> Profile:
    """`stamps` has a row for each call: the times before each step and after the last."""
    spent = np.diff(stamps, axis=1)
    middle, least = np.median(spent, axis=0), np.min(spent, axis=0)
    steps = tuple(
        StepTime(
            step.kind,
            step.name,
            step.device,
            step.nodes,
            int(middle[i]),
            int(least[i]),
            None if step.operations is None else evaluate_size(step.operations, signature.symbols),
            None if step.bytes is None else evaluate_size(step.bytes, signature.symbols),
        )
        for i, step in enumerate(plan.steps)
    )
    whole = stamps[:, -1] - stamps[:, 0]
    return Profile(steps, int(np.median(whole)), int(np.min(whole)), len(stamps))
