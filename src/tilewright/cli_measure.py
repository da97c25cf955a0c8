"""Timing models: `bench` as a whole, `explain` step by step against what the machine could do."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tilewright.runtime.module import Module
from tilewright.runtime.plan import StepKind

Arrays = Mapping[str, np.ndarray]

WARM_UP = 0.2  # seconds
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


def measure(module: Module, inputs: Arrays, seconds: float) -> Timing:
    """Calls the model for about so long, after a warm-up."""
    arrays = [inputs[t.name] for t in module.inputs]
    end = time.perf_counter() + min(WARM_UP, seconds)
    while True:
        module(*arrays)
        if time.perf_counter() > end:
            break
    spent = array("q")
    end = time.perf_counter() + seconds
    while len(spent) < FEWEST or (time.perf_counter() < end and len(spent) < MOST):
        start = time.perf_counter_ns()
        module(*arrays)
        spent.append(time.perf_counter_ns() - start)
    median, tenth = np.percentile(spent, [50, 90])
    return Timing(len(spent), min(spent), int(median), int(tenth))


# ---------------------------------------------------------------- explain


@dataclass(frozen=True)
class StepRow:
    """One step; `bound` is the nanoseconds that the machine needs at least, `limit` what for."""

    number: int
    kind: str
    name: str
    device: str
    nodes: tuple[str, ...]
    nanoseconds: int
    share: float  # of the model's time
    operations: int | None
    bytes: int | None
    bound: float | None
    limit: str | None  # "arithmetic" or "memory"

    @property
    def of_bound(self) -> float | None:
        """How near the step is to the bound: 1 is there."""
        return None if self.bound is None or not self.nanoseconds else self.bound / self.nanoseconds


def explain_steps(
    module: Module, inputs: Arrays, repeat: int, operations_rate: float | None, bytes_rate: float
) -> list[StepRow]:
    """Every step, timed, beside what arithmetic (operations a second) and memory (bytes a second)
    allow."""
    profile = module.profile(*(inputs[t.name] for t in module.inputs), repeat=repeat)
    total = max(1, sum(s.nanoseconds for s in profile.steps))
    rows = []
    for number, s in enumerate(profile.steps):
        bounds = {}
        if s.operations and operations_rate:
            bounds["arithmetic"] = s.operations / operations_rate * 1e9
        if s.bytes:
            bounds["memory"] = s.bytes / bytes_rate * 1e9
        limit = max(bounds, key=lambda k: bounds[k]) if bounds else None
        if s.kind is StepKind.HOST_CALL:
            limit = None
        bound = None if limit is None else bounds[limit]
        rows.append(
            StepRow(
                number,
                s.kind.value,
                s.name,
                s.device,
                s.nodes,
                s.nanoseconds,
                s.nanoseconds / total,
                s.operations,
                s.bytes,
                bound,
                limit,
            )
        )
    return rows


def memory_rate(threads: int) -> float:
    """Bytes a second that this machine moves, measured: copies too large for the caches."""
    size = 64 << 20
    blocks = [np.ones(size // threads, np.uint8) for _ in range(threads)]
    targets = [np.empty_like(b) for b in blocks]
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(np.copyto, targets, blocks))
            best = min(best, time.perf_counter() - start)
    return 2 * sum(len(b) for b in blocks) / best


def totals(rows: Sequence[StepRow]) -> dict[str, float]:
    """Sums over the steps."""
    return {
        "nanoseconds": sum(r.nanoseconds for r in rows),
        "operations": sum(r.operations or 0 for r in rows),
        "bytes": sum(r.bytes or 0 for r in rows),
        "bound": sum(r.bound or 0 for r in rows),
    }
