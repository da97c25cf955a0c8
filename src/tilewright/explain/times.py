"""Where the cycles of a stream go: of each queue, of each memory, and along the longest chain of
instructions each of which waits for the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.backends.stream.boxes import queue_numbers
from tilewright.backends.stream.durations import Durations, durations
from tilewright.sim.timeline import Timeline


@dataclass(frozen=True)
class QueueTime:
    """Cycles of one queue, which add up to the whole run: it sets instructions up, works, stands
    still before its first one (`fill`), between them for others (`waits`: by the queue that it
    waits for; "issue", "result", "bank" and "bandwidth" as of sim/timeline.py) and behind its last
    (`drain`)."""

    name: str
    setup: int
    work: int
    fill: int
    waits: Mapping[str, int]
    drain: int

    @property
    def busy(self) -> int:
        return self.setup + self.work


def queue_times(timeline: Timeline) -> tuple[QueueTime, ...]:
    """Of all queues of a run."""
    stream, cost = timeline.stream, durations(timeline.stream)
    queue, names = queue_numbers(stream), [q.name for q in stream.target.queues]
    still = timeline.wait + timeline.result + timeline.bank + timeline.issue
    found = []
    for q, name in enumerate(names):
        rows = np.flatnonzero(queue == q)
        if not len(rows):
            found.append(QueueTime(name, 0, 0, timeline.cycles, {}, 0))
            continue
        first, rest = rows[0], rows[1:]
        setup = int(cost.setup[rows].sum())
        work = int(timeline.work[rows].sum()) - setup
        drain = timeline.cycles - int(timeline.leave[rows].max())
        waits = {n: int(timeline.wait[rest][_for(timeline, rest, queue, p)].sum())
                 for p, n in enumerate(names)}  # fmt: skip
        waits["result"] = int(timeline.result[rest].sum())
        waits["bank"] = int(timeline.bank[rest].sum())
        waits["bandwidth"] = int(timeline.bandwidth[rows].sum())
        fill = int(still[first])
        waits["issue"] = timeline.cycles - setup - work - fill - drain - sum(waits.values())
        found.append(
            QueueTime(name, setup, work, fill, {k: n for k, n in waits.items() if n}, drain)
        )
    return tuple(found)


def _for(timeline: Timeline, rows: np.ndarray, queue: np.ndarray, p: int) -> np.ndarray:
    """Which of the rows waited last for an instruction of queue p."""
    cause = timeline.cause[rows]
    waited: np.ndarray = (cause >= 0) & (queue[cause] == p)
    return waited


def memory_times(timeline: Timeline) -> dict[str, int]:
    """Cycles that the bandwidth of each memory is in use, by all cores of one that they share."""
    stream = timeline.stream
    used = durations(stream).transfer.sum(0)
    limited = [m for m in stream.target.memories if m.bandwidth is not None]
    times = {m.name: stream.cores if m.shared_by > 1 else 1 for m in limited}
    return {name: int(n) * k for (name, k), n in zip(times.items(), used, strict=True)}


# ---------------------------------------------------------------- the longest chain


def longest_chain(timeline: Timeline) -> dict[tuple[str, str], int]:
    """From the last instruction back to cycle 0, each time to what held it up: the cycles of that
    chain, by queue and by what it did ("work", "set-up", "transfer", "latency", "issue", "result",
    "bank", "bandwidth"). They add up to the whole run; nothing else can make it shorter."""
    return _Chain(timeline, durations(timeline.stream)).spent


class _Chain:
    def __init__(self, timeline: Timeline, cost: Durations) -> None:
        self.t, self.cost = timeline, cost
        stream = timeline.stream
        self.queue = queue_numbers(stream)
        self.names = [q.name for q in stream.target.queues]
        self.before = previous(self.queue)
        self.spent: dict[tuple[str, str], int] = {}
        i = int(np.argmax(timeline.end)) if len(stream) else -1
        done = True  # whether its results are waited for, not its unit
        while i >= 0:
            i, done = self._step(i, done)

    def _step(self, i: int, done: bool) -> tuple[int, bool]:
        """Spends the cycles of an instruction and those just before it; what held it up, and
        whether by its results."""
        t, cost = self.t, self.cost
        if done:
            self._spend(i, "latency", t.end[i] - t.leave[i])
        moved = int(cost.transfer[i].max(initial=0))
        self._spend(i, "bandwidth", t.bandwidth[i])
        self._spend(i, "transfer" if moved > cost.busy[i] else "work", max(moved, cost.busy[i]))
        self._spend(i, "set-up", cost.setup[i])
        self._spend(i, "bank", t.bank[i])
        self._spend(i, "result", t.result[i])
        if t.wait[i] and t.cause[i] >= 0:
            return int(t.cause[i]), True
        self._spend(i, "issue", t.wait[i] + t.issue[i])
        return int(self.before[i]), False

    def _spend(self, i: int, what: str, cycles: int) -> None:
        if cycles:
            key = (self.names[self.queue[i]], what)
            self.spent[key] = self.spent.get(key, 0) + int(cycles)


def previous(queue: np.ndarray) -> np.ndarray:
    """The instruction before each in its queue; -1 for the first."""
    found = np.full(len(queue), -1, np.int64)
    for q in np.unique(queue):
        rows = np.flatnonzero(queue == q)
        found[rows[1:]] = rows[:-1]
    return found
