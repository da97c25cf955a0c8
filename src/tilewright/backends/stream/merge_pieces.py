"""Kernels of one stream as far as they go along with each other.

Each queue would do one kernel after the other, so that a unit stands still while another one does
what it has no part in: a matrix unit during a softmax between two products. What a kernel needs
first is often there long before all of it is. Here the next instruction of a queue is the one of
the kernels under way that can begin first.
"""

from __future__ import annotations

import numpy as np

from tilewright.backends.stream.boxes import boxes, queue_numbers
from tilewright.backends.stream.durations import Durations, durations
from tilewright.backends.stream.stream import Stream

TOGETHER = 3  # kernels that are under way at a time
MOST = 20_000  # instructions of a stream that is looked at
IDLE = 0.05  # of the cycles, that the busiest queue or memory stands still: others gain nothing


def stands_still(stream: Stream, cycles: int) -> bool:
    """Whether a stream, which takes so many cycles, leaves every queue and memory idle for a time
    that is worth a try."""
    found, queue = durations(stream), queue_numbers(stream)
    by_queue = np.bincount(queue, found.work, len(stream.target.queues))
    busy = max(by_queue.max(initial=0), found.transfer.sum(0).max(initial=0))
    return bool(busy < (1 - IDLE) * cycles)


def merged_order(stream: Stream, piece: np.ndarray) -> np.ndarray | None:
    """The rows of a stream, each of the kernel that is numbered in `piece` [n], in the order in
    which they can begin; None where that is no other. Those of a queue and a kernel keep theirs."""
    if len(stream) > MOST or int(piece.max(initial=0)) == int(piece.min(initial=0)):
        return None
    count = len(stream.target.queues)
    group = queue_numbers(stream) + count * (piece % TOGETHER)
    need = boxes(stream).dependences_of(group, count * TOGETHER)
    order = _Begun(stream, group, need, durations(stream)).order()
    return None if np.array_equal(order, np.arange(len(stream))) else order


class _Begun:
    """Instructions as they begin, one after the other: each group is in order, a queue does one at
    a time, and a memory moves the bytes of one at a time."""

    def __init__(self, stream: Stream, group: np.ndarray, need: np.ndarray, cost: Durations):
        self.count, queues = need.shape[1], len(stream.target.queues)
        self.waiting = [np.flatnonzero(group == g).tolist()[::-1] for g in range(self.count)]
        self.queue = [g % queues for g in range(self.count)]
        self.needs = [[int(r) for r in row[row >= 0]] for row in need]
        self.setup, self.busy = cost.setup.tolist(), cost.busy.tolist()
        self.transfer, self.latency = cost.transfer.tolist(), cost.latency.tolist()
        self.queue_free = [0] * queues
        self.memory_free = [0] * cost.transfer.shape[1]
        self.done: dict[int, int] = {}  # when the results of a row are there

    def order(self) -> np.ndarray:
        found: list[int] = []
        while True:
            ready = [(begin, rows[-1], g) for g, rows in enumerate(self.waiting)
                     if rows and (begin := self._begin(rows[-1], g)) is not None]  # fmt: skip
            if not ready:
                return np.array(found, np.int64)
            begin, row, g = min(ready)
            self.waiting[g].pop()
            self._do(row, g, begin)
            found.append(row)

    def _begin(self, row: int, group: int) -> int | None:
        """When a row can begin; None before all that it needs has."""
        begin = self.queue_free[self.queue[group]]
        for before in self.needs[row]:
            if before not in self.done:
                return None
            begin = max(begin, self.done[before])
        return begin

    def _do(self, row: int, group: int, begin: int) -> None:
        start = begin + self.setup[row]
        end = start + self.busy[row]
        for k, cycles in enumerate(self.transfer[row]):
            if cycles:
                self.memory_free[k] = max(start, self.memory_free[k]) + cycles
                end = max(end, self.memory_free[k])
        self.queue_free[self.queue[group]] = end
        self.done[row] = end + self.latency[row]
