"""Whether given waits suffice: no race and no deadlock, whatever the instructions' times are."""

from __future__ import annotations

import numpy as np

from tilewright.backends.stream.boxes import Boxes, boxes, dependences, members, queue_numbers
from tilewright.backends.stream.faults import Fault, FaultKind, lines, name_of, race
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits, native_sync
from tilewright.runtime import stream_functions as native

RACE, EVENT_SET_AGAIN, EVENT_TAKEN = 1, 2, 3  # what tw_clocks gives


def check_waits(
    stream: Stream, need: np.ndarray | None, waits: Waits, found: Boxes | None = None
) -> Fault | None:
    """The first fault of a stream's waits: a deadlock, with the instructions that wait for each
    other; two instructions that touch the same bytes, one writing, which nothing orders; an event
    that is set before it was waited for; a token left over. None if the waits imply every need
    (None: what the stream touches) and the stream always runs to its end.

    What is proven holds for all times of instructions: they begin in the order of their queue, once
    what they wait for is there, and are done in the order of their queue."""
    if stream.target.interlock:
        return None
    if need is None:
        need = dependences(stream, found)
    run = interleave(stream, waits, -np.arange(len(stream)))
    if len(run.order) < len(stream):
        return run.deadlock()
    sync, n = native_sync(stream, waits), len(stream)
    clock = np.empty((n, len(stream.target.queues)), np.int32)
    channels = len(run.given) + 1
    scratch = (np.empty(int(run.given.sum()), np.int32), np.empty(channels, np.int64))
    where = np.zeros(3, np.int64)
    code = native.clocks(
        sync, run.order, np.ascontiguousarray(need, np.int32), clock, *scratch,
        np.empty(channels, np.int64), where,
    )  # fmt: skip
    row, number, other = (int(x) for x in where)
    if code == RACE:
        return race(found or boxes(stream), row, other)
    if code:
        return _event_fault(stream, code, row, number, other)
    return run.left_over()


def _event_fault(stream: Stream, code: int, row: int, number: int, other: int) -> Fault:
    me = name_of(stream, row)
    if other < 0:
        return Fault(FaultKind.TOKENS, (row,), f"{me}, sets event {number}, which is set already")
    does = "sets" if code == EVENT_SET_AGAIN else "waits for"
    text = (
        f"{me}, {does} event {number}, and {name_of(stream, other)}, which waits for it too, may "
        "not have begun"
    )
    return Fault(FaultKind.TOKENS, (row, other), text)


class UntimedRun:
    """A run of a stream without time. `order` are the instructions that ran; of each channel
    (tokens by pair of queues, then events), how much was `given` and `taken`. `owing` is the last
    of each queue where there is no room for the tokens that it gives, or -1."""

    def __init__(
        self, stream: Stream, waits: Waits, priority: np.ndarray, need: np.ndarray | None
    ) -> None:
        self.stream, self.waits = stream, waits
        n, queues = len(stream), len(stream.target.queues)
        self.queue = queue_numbers(stream)
        self.members, self.first = members(stream, self.queue)
        channels = queues * queues + stream.target.events
        order, self.heads = np.empty(n, np.int64), np.zeros(queues, np.int64)
        self.given, self.taken = np.zeros(channels, np.int64), np.zeros(channels, np.int64)
        self.owing = np.zeros(queues, np.int64)
        fetched = np.zeros(1, np.int64)
        done = native.interleave(
            native_sync(stream, waits), self.members, self.first, need,
            np.ascontiguousarray(priority, np.int64), order, self.heads, self.given, self.taken,
            self.owing, fetched,
        )  # fmt: skip
        self.order, self.fetched = order[:done], int(fetched[0])

    def deadlock(self) -> Fault:
        """Why a run that stopped did so: the instructions that wait for each other."""
        row = int(np.setdiff1d(np.arange(len(self.stream)), self.order)[0])
        chain: dict[int, str] = {}
        while row not in chain:
            chain[row], following = self._blocked(row)
            if following is None:
                rows, told = tuple(chain), list(chain.values())
                return Fault(FaultKind.DEADLOCK, rows, lines("the stream stops for good", told))
            row = following
        rows = tuple(chain)[list(chain).index(row) :]
        told = [chain[r] for r in rows]
        return Fault(FaultKind.DEADLOCK, rows, lines("the stream stops for good, in a cycle", told))

    def _blocked(self, row: int) -> tuple[str, int | None]:
        """What an instruction that did not run stands still for, and which instruction that is."""
        stream, names = self.stream, [q.name for q in self.stream.target.queues]
        me, queue = name_of(stream, row), int(self.queue[row])
        head = int(self.members[self.first[queue] + self.heads[queue]])
        if head != row:
            return f"{me}, comes behind instruction {head} in its queue", head
        if row >= self.fetched:
            return self._not_issued(row)
        if self.owing[queue] >= 0:
            return self._owes(row, queue)
        for p, name in enumerate(names):
            pair = p * len(names) + queue
            if self.waits.pops[row] >> p & 1 and self.taken[pair] >= self.given[pair]:
                giver = self._later(p, self.waits.pushes >> queue & 1)
                return _waits(me, f"a token of {name}", giver)
        for e in range(stream.target.events):
            channel = len(names) ** 2 + e
            bit = self.waits.awaits >> np.uint64(e) & np.uint64(1)
            if bit[row] and self.taken[channel] >= self.given[channel]:
                giver = self._later(None, self.waits.sets >> np.uint64(e) & np.uint64(1))
                return _waits(me, f"event {e}", giver)
        raise AssertionError(f"{me} could run")

    def _owes(self, row: int, queue: int) -> tuple[str, int | None]:
        """An instruction comes behind one that has no room for its tokens."""
        before, queues = int(self.owing[queue]), self.stream.target.queues
        for q, other in enumerate(queues):
            pair = queue * len(queues) + q
            full = self.given[pair] - self.taken[pair] >= (self.stream.target.token_depth or 0)
            if self.waits.pushes[before] >> q & 1 and full:
                taker = self._later(q, self.waits.pops >> queue & 1)
                me, name = name_of(self.stream, row), other.name
                by = f", until instruction {taker} takes one" if taker is not None else ""
                what = f"{me}, comes behind instruction {before}, which has no room for a token"
                return f"{what} for {name}{by}", taker
        raise AssertionError(f"instruction {before} has room for its tokens")

    def _not_issued(self, row: int) -> tuple[str, int]:
        me, n = name_of(self.stream, row), len(self.stream)
        first = self.fetched
        if first != row:
            return f"{me}, is issued behind instruction {first}", first
        waiting = np.setdiff1d(np.arange(min(row, n)), self.order)
        return f"{me}, stands behind a barrier for instruction {waiting[0]}", int(waiting[0])

    def _later(self, p: int | None, gives: np.ndarray) -> int | None:
        """The first instruction (of queue p) that gives it and has not run."""
        rows = np.setdiff1d(np.flatnonzero(gives), self.order)
        mine = rows if p is None else rows[self.queue[rows] == p]
        return int(mine[0]) if len(mine) else None

    def left_over(self) -> Fault | None:
        """What is given and never taken."""
        channels = np.flatnonzero(self.given > self.taken)
        if not len(channels):
            return None
        c, names = int(channels[0]), [q.name for q in self.stream.target.queues]
        if c < len(names) ** 2:
            p, q = divmod(c, len(names))
            gives = (self.waits.pushes >> q & 1).astype(bool) & (self.queue == p)
            what = f"a token to {names[q]}"
        else:
            e = c - len(names) ** 2
            gives, what = self.waits.sets >> np.uint64(e) & np.uint64(1), f"event {e}"
        row = int(np.flatnonzero(gives)[-1])
        text = f"{name_of(self.stream, row)}, gives {what} that nothing takes"
        return Fault(FaultKind.TOKENS, (row,), text)


def _waits(me: str, what: str, giver: int | None) -> tuple[str, int | None]:
    if giver is None:
        return f"{me}, waits for {what} that nothing gives", None
    return f"{me}, waits for {what} that instruction {giver} gives", giver


def interleave(
    stream: Stream, waits: Waits, priority: np.ndarray, need: np.ndarray | None = None
) -> UntimedRun:
    """One legal order of a stream's instructions: of several that could be next, the one with the
    greatest priority [n]. A chip with an interlock keeps to `need`."""
    return UntimedRun(stream, waits, priority, need if stream.target.interlock else None)
