"""Pipelines of a chip over tiles: what is copied and computed in each step, and for how long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tilewright.ir.instruction import Hazard
from tilewright.target.target import Target

STEPS = 512  # that are run of a pipeline, about

Run = Callable[["StepTimes"], np.ndarray]  # when each of n pipelines is done, in cycles [n]


@dataclass(frozen=True)
class Moves:
    """Instructions that move something: on which queue (they are known by number), how long after
    they have left it the elements are there; how many they are, and cycles of them together."""

    queue: int
    latency: int
    calls: np.ndarray  # [..., n] for n pipelines
    setup: np.ndarray  # [..., n] before anything moves
    work: np.ndarray  # [..., n] of the queue, then
    transfer: np.ndarray  # [..., n] of the memory, at the same time
    hazard: Hazard  # what its own queue does where it reads the elements
    forward: int  # after how many cycles they are there for it, if they are forwarded

    @property
    def cycles(self) -> np.ndarray:
        """Of the queue, if the memory is free."""
        cycles: np.ndarray = self.setup + np.maximum(self.work, self.transfer)
        return cycles


@dataclass(frozen=True)
class Fetches:
    """How instructions are fetched: how many ahead, how many in a burst, cycles of the memory for
    one, and until it is there."""

    ahead: int
    burst: int
    cycles: int
    latency: int


def fetches_of(target: Target) -> Fetches | None:
    """What the fetch of a chip's instructions takes of a memory's bandwidth; None if they are
    there."""
    fetch = target.fetch
    if fetch is None:
        return None
    memory = target.memory(fetch.memory)
    size = fetch.bytes * fetch.burst / (memory.bandwidth or math.inf)
    return Fetches(fetch.ahead, fetch.burst, math.ceil(size), memory.latency)


@dataclass(frozen=True)
class Loads(Moves):
    """An operand: what is brought at a step of each level and, last, at the first step of all
    [levels + 1, n]."""

    buffers: np.ndarray  # [n] for what one turn brings
    late: np.ndarray  # [n] whether it comes when it is needed, and not a prefetch distance before
    in_epilogue: bool = False  # whether the epilogue reads it
    is_addend: bool = False  # whether it is what the sums start with, in the accumulator


@dataclass(frozen=True)
class StepTimes:
    """Cycles of the steps of n pipelines. A step of level k is one where loop k is the outermost
    that turns: it loads the operands that depend on that loop or on one inside of it."""

    turns: np.ndarray  # [levels, n]: iterations of each loop over tiles, outermost first
    spatial: int  # so many of the loops make a new tile of the result; the others add to it
    depths: tuple[int, ...]  # instructions that each of the chip's queues holds
    issue: int  # cycles for each instruction, whatever its queue
    fetches: Fetches | None  # None: instructions are there
    queue: int  # the unit's
    latency: np.ndarray  # [2, n] until others learn of what the unit has done, or else its queue
    before: np.ndarray  # [n] of the unit's queue before a tile is begun
    work: np.ndarray  # [n] for a step
    calls: np.ndarray  # [3, n] instructions of the unit's queue: before, for a step, after
    after: np.ndarray  # [n] once a tile's sums are complete
    parts: np.ndarray  # [n] of a tile that take turns
    sweeps: np.ndarray  # [n] over all sums of a tile in a step: the last one completes them
    loads: tuple[Loads, ...]
    store: Moves  # [n] for a tile of the result
    prefetch_distance: np.ndarray  # [n] steps between the load of an operand and its use
    clear_distance: np.ndarray  # [n] steps between a tile's `before` and its first step
    result_buffers: np.ndarray  # [n] for tiles of the result
    store_chunks: np.ndarray  # [n] in which a tile is finished and stored
    axis: np.ndarray  # [n] of which axis of the result, by number
    apart: bool  # whether a finished tile waits to be stored in another memory than the sums

    def only(self, kept: np.ndarray) -> StepTimes:
        """Of some of the pipelines."""
        return _of_arrays(lambda x: x[..., kept], [self])

    @staticmethod
    def joined(several: Sequence[StepTimes]) -> StepTimes:
        """Of all of them; they have as many levels."""
        return _of_arrays(lambda *x: np.concatenate(x, axis=-1), several)

    @property
    def steps(self) -> np.ndarray:
        return np.asarray(np.prod(self.turns, axis=0))

    @property
    def tiles(self) -> np.ndarray:
        return np.asarray(np.prod(self.turns[: self.spatial], axis=0))

    def estimate(self) -> np.ndarray:
        """Cycles if each step took as long as the slowest of what happens during it, or all of that
        together, if operands are not prefetched."""
        out, after = self.store.cycles + self.store.latency, self.before + self.after
        own, others = [self.queue], {*range(len(self.depths))} - {self.queue}
        total = self._loading(-1, own) + self._loading(-1, others) + self._latency
        total = total + self.work + after + out
        for level, count in self._counts():
            new = level < self.spatial
            moved, channel = self._loading(level, others), self._transfer(level)
            busy = self.work + self._loading(level, own) + (after if new else 0)
            moved = moved + np.where(moved > 0, self._latency, 0)
            channel = channel + (self.store.transfer if new else 0)
            busy = busy + np.where(self.result_buffers > 1, 0, out) if new else busy
            one = np.maximum(np.maximum(busy, moved), channel)
            one = np.where(
                self.prefetch_distance > 0, np.maximum(one, out) if new else one, busy + moved
            )
            total = total + count * one
        return np.asarray(total)

    def lower_bound(self) -> np.ndarray:
        """Cycles that none takes less than: those of the memory, or of any queue, with what must be
        before and behind them."""
        store, tiles = self.store, self.tiles
        work = self.steps * self.work + tiles * (self.before + self.after)
        # With nothing between work and a store, that begins with what is done first.
        out = store.cycles / self.store_chunks
        out = out if self.after.any() else out / np.maximum(store.calls, 1)
        found = [self._total(self._transfer) + tiles * store.transfer]
        for queue in range(len(self.depths)):
            loads = [x for x in self.loads if x.queue == queue]
            cycles = self._total(partial(self._loading, queues=[queue]))
            if queue == self.queue:
                cycles = cycles + work
            if queue == store.queue:
                cycles = cycles + tiles * store.cycles
            elif queue == self.queue:
                cycles = np.maximum(cycles, work - self.before + self._begin()) + out
            elif loads:
                last = 0 if any(x.in_epilogue for x in loads) else self.work
                cycles = cycles + self._soonest(queue) + last + self.after / self.store_chunks + out
            found.append(cycles)
        most: np.ndarray = np.max(found, axis=0)
        return most + store.latency

    def _begin(self) -> np.ndarray:
        """Before which the unit does not begin, for want of what others bring."""
        begin = self._zeros()
        for queue in {x.queue for x in self.loads} - {self.queue}:
            first = (x.cycles[-1] for x in self.loads if x.queue == queue and not x.in_epilogue)
            begin = np.maximum(begin, sum(first, self._zeros()) + self._soonest(queue))
        return begin

    def _soonest(self, queue: int) -> int:
        """The least cycles after which an operand that a queue has brought is there."""
        return min(x.latency for x in self.loads if x.queue == queue)

    def expected(self, run: Run) -> np.ndarray:
        """Cycles of the pipelines, which `run` runs step by step. Long ones are run with fewer
        turns, twice; the rest takes as many times the estimate as what the second has more than
        the first."""
        long = self.steps > STEPS
        if not long.any():
            return run(self)
        few, more = self._shortened(STEPS // 2), self._shortened(STEPS)
        some, cycles = run(few), run(more)
        ends = (some < np.inf) & (cycles < np.inf)
        some, cycles = np.where(ends, some, 0), np.where(ends, cycles, 0)
        least, most, all_ = few.estimate(), more.estimate(), self.estimate()
        pace = np.where(most > least, (cycles - some) / np.maximum(1, most - least), 1)
        return np.where(ends, cycles + np.where(long, (all_ - most) * pace, 0), np.inf)

    def _shortened(self, most: int) -> StepTimes:
        """The same with fewer turns of the outer loops, but two where there are that many: about so
        many steps, if it has more."""
        turns = self.turns.copy()
        for n in turns:
            n[:] = np.minimum(n, np.maximum(2, n * most // np.prod(turns, axis=0)))
        return replace(self, turns=turns)

    def _counts(self) -> Iterator[tuple[int, np.ndarray]]:
        """The levels, and how many steps there are of each."""
        for level in range(len(self.turns)):
            inner = np.prod(self.turns[:level], axis=0)
            yield level, inner * self.turns[level] - inner

    def _total(self, each: Callable[[int], np.ndarray]) -> np.ndarray:
        """Of all steps, what `each` says of a step of a level."""
        return sum((count * each(level) for level, count in self._counts()), each(-1))

    def _loading(self, level: int, queues: Iterable[int]) -> np.ndarray:
        """Cycles in which these queues bring what a step needs."""
        loads = (x for x in self.loads if x.queue in queues)
        return sum((x.cycles[level] for x in loads), self._zeros())

    def _transfer(self, level: int) -> np.ndarray:
        """Cycles of the memory to bring what a step needs."""
        return sum((x.transfer[level] for x in self.loads), self._zeros())

    def _zeros(self) -> np.ndarray:
        return np.zeros(self.turns.shape[1])

    @property
    def _latency(self) -> int:
        """Until operands are there."""
        return max((x.latency for x in self.loads), default=0)


T = TypeVar("T")


def _of_arrays(what: Callable[..., np.ndarray], several: Sequence[T]) -> T:
    """What records become if their arrays become what these make, those in records in them too."""

    def made(values: Sequence[object]) -> Any:
        if isinstance(values[0], np.ndarray):
            return what(*values)
        if isinstance(values[0], tuple):
            return tuple(map(made, zip(*values, strict=True)))
        return _of_arrays(what, values) if is_dataclass(values[0]) else values[0]

    one: Any = several[0]
    changed = {f.name: made([getattr(s, f.name) for s in several]) for f in fields(one)}
    found: T = replace(one, **changed)
    return found
