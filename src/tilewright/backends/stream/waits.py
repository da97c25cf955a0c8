"""How the instructions of a stream wait for each other, in the target's kind: the fewest waits,
each placed at the instruction that needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from tilewright.backends.stream.boxes import Boxes, boxes, dependences, queue_numbers
from tilewright.backends.stream.distances import keep_distances
from tilewright.backends.stream.faults import name_of
from tilewright.backends.stream.idle import ended, insert_idle
from tilewright.backends.stream.parts import in_parts, part_lengths, part_starts
from tilewright.backends.stream.stream import Stream
from tilewright.base.errors import CompileError
from tilewright.runtime import stream_functions as native
from tilewright.target.target import Target

PART = 2  # a barrier where a part begins: the host waits for the one before
LEAST = 2  # instructions of a part
_NOTHING = np.zeros(0, np.uint64)  # omitted


@dataclass(frozen=True, eq=False)
class Waits:
    """The waits of n instructions, as bit masks [n]; an omitted array is all zeros.

    Tokens: bit p of pops[i] says that instruction i takes one from queue p before it begins, bit q
    of pushes[j] that instruction j gives one to queue q when it is done. Events: bit e of awaits[i]
    says that i waits for event e (which is then free again), bit e of sets[j] that j sets it.
    Before instruction i with barriers[i], all that stand before it are done."""

    pops: np.ndarray
    pushes: np.ndarray
    awaits: np.ndarray = field(default_factory=lambda: _NOTHING)
    sets: np.ndarray = field(default_factory=lambda: _NOTHING)
    barriers: np.ndarray = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        n = len(self.pops)
        kinds = (("pops", np.uint32), ("pushes", np.uint32), ("awaits", np.uint64))
        for name, kind in (*kinds, ("sets", np.uint64), ("barriers", np.uint8)):
            given = getattr(self, name)
            made = np.zeros(n, kind) if given is _NOTHING else np.ascontiguousarray(given, kind)
            object.__setattr__(self, name, made)

    @property
    def count(self) -> int:
        """How many tokens and events are waited for, and barriers there are."""
        waits = np.bitwise_count(self.pops).sum() + np.bitwise_count(self.awaits).sum()
        return int(waits + self.barriers.sum())


def no_waits(stream: Stream) -> Waits:
    return Waits(np.zeros(len(stream), np.uint32), np.zeros(len(stream), np.uint32))


def native_sync(stream: Stream, waits: Waits) -> native.Struct:
    """Queues and waits as the native functions take them."""
    depth = np.array([q.depth for q in stream.target.queues], np.int32)
    barriers = waits.barriers.copy()
    barriers[part_starts(stream)] = PART
    target = stream.target
    return native.Sync(
        len(stream), len(target.queues), target.events, target.token_depth or 0,
        queue_numbers(stream), depth, waits.pops, waits.pushes, waits.awaits, waits.sets, barriers,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Synchronised:
    """A stream and its waits. `need` are the dependences they must imply. The stream has relay NOPs
    where two queues can only wait for each other through a third."""

    stream: Stream
    boxes: Boxes
    need: np.ndarray
    waits: Waits


def synchronise(stream: Stream, *, serial: bool = False) -> Synchronised:
    """Places the fewest waits that keep all dependences, each at the instruction that needs it;
    with `serial` every instruction waits until all before it are done, but for those of queues that
    nothing links to its own. CompileError where the target's queues cannot wait so. The stream is
    in parts that can be handed over."""
    stream = ended(stream)
    stream, found = keep_distances(stream, boxes(stream))
    size = most = stream.target.most_submitted
    if size is None or most is None:
        return _placed(stream, found, serial)
    while size >= LEAST:
        if len(stream) <= size:
            done = _placed(stream, found, serial)
        else:
            parts = in_parts(stream, size)
            done = _placed(parts, boxes(parts), serial)
        longest = int(part_lengths(done.stream).max())
        if longest <= most:
            return done
        size -= longest - most  # instructions that hand on waits were put in
    raise CompileError(
        f"{stream.target.name} is handed {most} instructions at a time, and those that do nothing"
        " but hand on waits leave no room for others",
        hint="describe more: t.submits(…), or tokens of more pairs of queues",
    )


def _placed(stream: Stream, found: Boxes, serial: bool) -> Synchronised:
    need = dependences(stream, found)
    if serial:
        need = np.maximum(need, serial_order(stream))
    if stream.target.interlock:
        return Synchronised(stream, found, need, no_waits(stream))
    placed = _Placed(stream, need)
    if placed.idle:
        stream, need = _with_idle(stream, need, placed.idle)
        found, placed = boxes(stream), _Placed(stream, need)
    return Synchronised(stream, found, need, placed.waits())


def serial_order(stream: Stream) -> np.ndarray:
    """Returns dependences [n, queues] that run one instruction after another, as far as queues can
    wait for each other."""
    queue, n = queue_numbers(stream), len(stream)
    rows, linked = np.arange(n), linked_queues(stream.target)
    need = np.full((n, len(stream.target.queues)), -1, np.int32)
    if linked.all():
        need[rows[1:], queue[:-1]] = rows[:-1]
        return need
    for p in range(len(stream.target.queues)):
        last = np.maximum.accumulate(np.where(queue == p, rows, -1))
        before = np.concatenate([[-1], last[:-1]])
        need[:, p] = np.where(linked[queue, p] & (queue != p), before, -1)
    return need


def linked_queues(target: Target) -> np.ndarray:
    """Which queues can wait for which [queues, queues]: each for itself, too."""
    names = [q.name for q in target.queues]
    found = [[p in target.waits_for(q) for p in names] for q in names]
    return np.array(found, bool).reshape(len(names), len(names))


def place_waits(stream: Stream, need: np.ndarray) -> Waits:
    """Returns the fewest waits that imply all of `need`, each placed at the instruction that needs
    it, of a stream that needs no relay NOPs."""
    return _Placed(stream, need).waits()


class _Placed:
    """The waits that the C runtime places for `need`."""

    def __init__(self, stream: Stream, need: np.ndarray) -> None:
        self.stream = stream
        n, queues = need.shape
        target = stream.target
        self.queue = queue_numbers(stream)
        names = [q.name for q in target.queues]
        tokens = np.zeros(queues, np.uint32)
        for a, b in target.tokens:
            tokens[names.index(a)] |= np.uint32(1 << names.index(b))
            tokens[names.index(b)] |= np.uint32(1 << names.index(a))
        idle = np.array([target.idle(name) is not None for name in names], np.uint8)
        self.links = native.Links(
            n, queues, self.queue, tokens, idle, target.events, int(target.barriers)
        )
        self.need = np.array(need, np.int32)
        self.clock = np.empty((n, queues), np.int32)  # vector clock
        self.pops, self.pushes, self.pairs = (np.zeros(n, np.uint32) for _ in range(3))
        self.barriers = np.zeros(n, np.uint8)
        self.barriers[part_starts(stream)] = PART
        self.relay = np.full((n, queues), -1, np.int32)
        unlinked = np.zeros(1, np.int32)
        row = native.place_waits(
            self.links,
            native.Placed(
                self.need, self.clock, self.pops, self.pushes, self.pairs, self.barriers,
                self.relay,
            ),
            unlinked,
        )  # fmt: skip
        if row >= 0:
            self._refuse(row, int(unlinked[0]))

    def _refuse(self, row: int, p: int) -> NoReturn:
        stream, queues = self.stream, self.stream.target.queues
        q = queues[self.queue[row]].name
        raise CompileError(
            f"{name_of(stream, row)}, must wait for {name_of(stream, self.need[row, p])}, and "
            f"{stream.target.name} has nothing that links {queues[p].name} and {q}",
            hint="describe tokens for the two, events, barriers, or an instruction that does "
            "nothing of a queue that is linked to both",
        )

    @property
    def idle(self) -> list[tuple[int, int, int]]:
        """Lists relay NOPs as (row, queue, instruction): each stands in a queue before a row, and
        waits for an instruction."""
        rows, queues = np.nonzero(self.relay >= 0)
        return [
            (int(i), int(self.relay[i, p]), int(self.need[i, p]))
            for i, p in zip(rows, queues, strict=True)
        ]

    def waits(self) -> Waits:
        awaits, sets = self._events()
        pops, pushes = self.pops, self.pushes
        if self.stream.target.token_depth is not None:
            pops, pushes = bound_tokens(pops, pushes, self.queue, self.stream.target.token_depth)
        barriers = (self.barriers == 1).astype(np.uint8)
        return Waits(pops, pushes, awaits, sets, barriers)

    def _events(self) -> tuple[np.ndarray, np.ndarray]:
        """Assigns event numbers; returns the masks awaited and set [n]. Where there are too few
        events, one wait of a queue for another stands for several; CompileError where there are
        fewer than pairs of queues that wait at the same time."""
        n, queues = self.need.shape
        awaits, sets = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        waiter, p = np.nonzero(self.pairs[:, None] >> np.arange(queues, dtype=np.uint32) & 1)
        signaller = self.need[waiter, p].astype(np.int64)
        signaller, waiter = _in_order(signaller, waiter.astype(np.int64))
        number, k = self._numbered(signaller, waiter)
        first, depth = k, self.stream.target.events
        fewer = signaller, waiter
        while k >= 0 and depth > 1:
            depth //= 2
            fewer = self._with_fewer_waits(signaller, waiter, depth)
            number, k = self._numbered(*fewer)
        if k >= 0:
            target = self.stream.target
            raise CompileError(
                f"{name_of(self.stream, signaller[first])}, must let "
                f"{name_of(self.stream, waiter[first])}, wait for it, and all {target.events}"
                f" events of {target.name} are in use",
                hint="describe more events, or let less happen at the same time (smaller depths "
                "of buffers)",
            )
        bits = np.uint64(1) << number.astype(np.uint64)
        np.bitwise_or.at(awaits, fewer[1], bits)
        np.bitwise_or.at(sets, fewer[0], bits)
        return awaits, sets

    def _numbered(self, signaller: np.ndarray, waiter: np.ndarray) -> tuple[np.ndarray, int]:
        """The events of waits, and which of them finds none free: none if that is negative."""
        number = np.zeros(len(signaller), np.int32)
        k = native.number_events(
            self.links, self.clock, _previous(self.queue), len(signaller), signaller, waiter, number
        )
        return number, k

    def _with_fewer_waits(
        self, signaller: np.ndarray, waiter: np.ndarray, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Waits that imply the given ones, at most `depth` of one queue for another under way. What
        the clocks know of the given ones holds for these, too."""
        found: list[tuple[int, int]] = []
        pair = self.queue[signaller] * len(self.stream.target.queues) + self.queue[waiter]
        for k in np.unique(pair):
            found += fewer_waits(signaller[pair == k].tolist(), waiter[pair == k].tolist(), depth)
        left = np.array(found, np.int64)
        return _in_order(left[:, 0], left[:, 1])


def _in_order(signaller: np.ndarray, waiter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Waits in the order in which they are signalled."""
    order = np.lexsort((waiter, signaller))
    return signaller[order], waiter[order]


def fewer_waits(
    signallers: Sequence[int], waiters: Sequence[int], depth: int
) -> list[tuple[int, int]]:
    """Waits of one queue for another that imply the given ones, which are in order, with at most
    `depth` of them signalled and not waited for when instructions run as they stand. Where one more
    would be, who waits for the one before it waits for that one instead, and who waits for that
    one knows by its queue."""
    found: list[list[int]] = []
    first = 0  # of those that are under way
    for signaller, waiter in zip(signallers, waiters, strict=True):
        while first < len(found) and found[first][1] < signaller:
            first += 1
        if len(found) - first < depth:
            found.append([signaller, waiter])
        else:
            found[-1][0] = signaller
    return [(a, b) for a, b in found]


def bound_tokens(
    pops: np.ndarray, pushes: np.ndarray, queue: np.ndarray, depth: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns pops and pushes [n] of waits that imply the given ones, with at most `depth` tokens
    of one queue for another untaken when instructions run as they stand: then queues that have room
    for so many do not stop each other for good."""
    pops, pushes = pops.copy(), pushes.copy()
    queues = [int(q) for q in np.unique(queue)]
    for p, q in ((p, q) for p in queues for q in queues if p != q):
        given, taken = np.uint32(1 << q), np.uint32(1 << p)
        givers = np.flatnonzero((queue == p) & (pushes & given > 0))
        takers = np.flatnonzero((queue == q) & (pops & taken > 0))
        kept = fewer_waits(givers.tolist(), takers.tolist(), depth)
        pushes[givers] &= ~given
        pops[takers] &= ~taken
        pushes[[a for a, _ in kept]] |= given
        pops[[b for _, b in kept]] |= taken
    return pops, pushes


def _previous(queue: np.ndarray) -> np.ndarray:
    """The instruction before each in its queue; -1 for the first."""
    found = np.full(len(queue), -1, np.int32)
    for q in np.unique(queue):
        rows = np.flatnonzero(queue == q)
        found[rows[1:]] = rows[:-1]
    return found


# ---------------------------------------------------------------- relay NOPs


def _with_idle(
    stream: Stream, need: np.ndarray, idle: list[tuple[int, int, int]]
) -> tuple[Stream, np.ndarray]:
    """Inserts relay NOPs (as in _Placed.idle); returns the stream and its updated dependences
    [n, queues]."""
    n, queue = len(stream), queue_numbers(stream)
    before = np.array([row for row, _, _ in idle])
    new_row = np.arange(n) + np.searchsorted(before, np.arange(n), side="right")
    own = before + np.arange(len(idle))
    moved = np.where(need >= 0, new_row[need], -1).astype(np.int32)
    needed = np.insert(moved, before, -1, axis=0)
    for row, (late, between, early) in zip(own, idle, strict=True):
        needed[row, queue[early]] = new_row[early]
        needed[new_row[late], between] = max(needed[new_row[late], between], row)
    return insert_idle(stream, before, [between for _, between, _ in idle]), needed
