"""Modulo scheduling: iterations of a loop begin every `interval` cycles, so that their operations
never meet in a slot (Rau, "Iterative modulo scheduling", 1996).

The interval is at least what the slots need for one iteration, and what a chain of dependences
that leads from one iteration to the next needs for each that it spans.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.bundles.operation_graph import Edge
from tilewright.backends.bundles.operations import Operation

BUDGET = 8  # times an operation is placed, on average, before a longer interval is tried
NEVER = -(1 << 40)


@dataclass(frozen=True)
class Modulo:
    """When each operation of an iteration is issued, and how far apart iterations begin; cycles."""

    interval: int
    times: tuple[int, ...]

    @property
    def stages(self) -> int:
        """Iterations that are under way at the same time."""
        return max(self.times) // self.interval + 1


def resource_bound(operations: Sequence[Operation], slots: Mapping[str, int]) -> int:
    """Cycles that the slots need for these operations."""
    used = dict.fromkeys(slots, 0)
    for operation in operations:
        used[operation.slot] += operation.busy
    return max((-(-n // slots[slot]) for slot, n in used.items()), default=0)


def recurrence_bound(count: int, edges: Sequence[Edge]) -> int:
    """The longest that a chain from an operation to itself, some iterations later, takes for each
    of these."""
    if not any(e.distance for e in edges):
        return 0
    low, high = 0, sum(max(e.delay, 0) for e in edges)
    while low < high:
        middle = (low + high) // 2
        if heights(count, edges, middle) is None:
            low = middle + 1
        else:
            high = middle
    return low


def heights(count: int, edges: Sequence[Edge], interval: int) -> np.ndarray | None:
    """The longest way from each operation to the end of its iteration, in cycles; None if an
    operation would have to wait for itself."""
    of, to, delay, distance = (np.array([getattr(e, name) for e in edges], np.int64)
                               for name in ("of", "to", "delay", "distance"))  # fmt: skip
    weight = delay - interval * distance
    height = np.zeros(count, np.int64)
    for _ in range(count + 1):
        better = height.copy()
        np.maximum.at(better, of, height[to] + weight)
        if np.array_equal(better, height):
            return height
        height = better
    return None


def modulo_schedule(
    operations: Sequence[Operation],
    edges: Sequence[Edge],
    slots: Mapping[str, int],
    *,
    interval: int,
) -> Modulo | None:
    """A schedule with this interval; None if none was found. It is made from the end: operations
    are placed as late as what needs them allows, so that their results are not held for long."""
    busy = [o.busy for o in operations]
    backward = [Edge(e.to, e.of, e.delay + busy[e.to] - busy[e.of], e.distance) for e in edges]
    height = heights(len(operations), backward, interval)
    if height is None:
        return None
    table = _Table(operations, backward, slots, interval)
    turn = itertools.count()
    waiting = [(-int(height[i]), next(turn), i) for i in reversed(range(len(operations)))]
    heapq.heapify(waiting)
    budget = BUDGET * len(operations)
    while waiting:
        _, _, i = heapq.heappop(waiting)
        if table.time[i] is not None:
            continue
        if budget == 0:
            return None
        budget -= 1
        for j in table.place(i):
            heapq.heappush(waiting, (-int(height[j]), next(turn), j))
    last = max((t + b for t, b in zip(table.time, busy, strict=True) if t is not None), default=0)
    return Modulo(
        interval, tuple(last - (t or 0) - b for t, b in zip(table.time, busy, strict=True))
    )


class _Table:
    """Which operations take which slots, by the cycle modulo the interval."""

    def __init__(
        self,
        operations: Sequence[Operation],
        edges: Sequence[Edge],
        slots: Mapping[str, int],
        interval: int,
    ) -> None:
        self.operations, self.slots, self.interval = operations, slots, interval
        self.time: list[int | None] = [None] * len(operations)
        self.last = [NEVER] * len(operations)  # where each was placed before
        self.taken: dict[tuple[str, int], list[int]] = {}
        self.before: list[list[Edge]] = [[] for _ in operations]
        self.after: list[list[Edge]] = [[] for _ in operations]
        for e in edges:
            self.before[e.to].append(e)
            self.after[e.of].append(e)

    def place(self, i: int) -> list[int]:
        """Places an operation, and takes out those that are then in its way."""
        earliest = max(0, self._earliest(i))
        free = (t for t in range(earliest, earliest + self.interval) if self._free(i, t))
        at = next(free, None)
        removed: list[int] = []
        if at is None:
            at = max(earliest, self.last[i] + 1)
            cells = self._cells(i, at)
            for key in cells:
                taken = self.taken.get(key, [])
                while taken and len(taken) + cells.count(key) > self.slots[key[0]]:
                    removed.append(taken[0])
                    self._remove(taken[0])
        self._put(i, at)
        for e in self.after[i]:
            then = self.time[e.to]
            if e.to != i and then is not None and then < at + e.delay - self.interval * e.distance:
                removed.append(e.to)
                self._remove(e.to)
        return removed

    def _earliest(self, i: int) -> int:
        found = 0
        for e in self.before[i]:
            at = self.time[e.of]
            if at is not None and e.of != i:
                found = max(found, at + e.delay - self.interval * e.distance)
        return found

    def _cells(self, i: int, at: int) -> list[tuple[str, int]]:
        operation = self.operations[i]
        return [(operation.slot, (at + k) % self.interval) for k in range(operation.busy)]

    def _free(self, i: int, at: int) -> bool:
        cells = self._cells(i, at)
        return all(
            len(self.taken.get(key, ())) + cells.count(key) <= self.slots[key[0]] for key in cells
        )

    def _put(self, i: int, at: int) -> None:
        self.time[i] = self.last[i] = at
        for key in self._cells(i, at):
            self.taken.setdefault(key, []).append(i)

    def _remove(self, i: int) -> None:
        at = self.time[i]
        assert at is not None
        for key in self._cells(i, at):
            self.taken[key].remove(i)
        self.time[i] = None
