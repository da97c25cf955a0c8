"""Pipelines of a chip over tiles, run step by step without a simulator: how long each takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

STEPS = 512  # that are run of a pipeline, about


@dataclass(frozen=True)
class StepTimes:
    """Cycles of the steps of n pipelines. A step of level k is one where loop k is the outermost
    that turns: what it brings is what that loop or one inside of it moves."""

    turns: np.ndarray  # [levels, n]: iterations of each loop over tiles, outermost first
    spatial: int  # so many of the loops make a new tile of the result; the others add to it
    work: np.ndarray  # [n] of the unit for a step
    after: np.ndarray  # [n] on its queue, once a tile's sums are complete
    loads: np.ndarray  # [levels, n] on the queues that bring operands
    channel: np.ndarray  # [levels, n] of those, on the memory
    busy: np.ndarray  # [levels, n] for operands that the unit's own queue brings
    first: np.ndarray  # [n] for all operands of the first step
    store: np.ndarray  # [n] for a tile of the result
    stored: np.ndarray  # [n] of those, on the memory
    ahead: np.ndarray  # [n] steps that operands are brought before they are used
    places: np.ndarray  # [n] for tiles of the result
    portions: np.ndarray  # [n] in which a tile is finished and stored
    latency: int  # until operands are there
    behind: int  # until the unit is done with them, after its last call has left
    end: int  # until a result is there

    def only(self, kept: np.ndarray) -> StepTimes:
        """Of some of the pipelines."""
        return replace(self, **{name: x[..., kept] for name, x in self._arrays()})

    @staticmethod
    def joined(several: Sequence[StepTimes]) -> StepTimes:
        """Of all of them; they have as many levels."""
        names = [name for name, _ in several[0]._arrays()]
        found = {k: np.concatenate([getattr(p, k) for p in several], axis=-1) for k in names}
        return replace(several[0], **found)

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        for f in fields(self):
            if isinstance(x := getattr(self, f.name), np.ndarray):
                yield f.name, x

    @property
    def steps(self) -> np.ndarray:
        return np.prod(self.turns, axis=0)

    def estimate(self) -> np.ndarray:
        """Cycles if each step took as long as the slowest of what happens during it."""
        total = self.first + self.latency + self.work + self.after + self.store + self.end
        for level in range(len(self.turns)):
            inner = np.prod(self.turns[:level], axis=0)
            count = inner * self.turns[level] - inner
            new = level < self.spatial
            busy = self.work + self.busy[level] + (self.after if new else 0)
            moved = self.loads[level] + np.where(self.loads[level] > 0, self.latency, 0)
            channel = self.channel[level] + (self.stored if new else 0)
            out = self.store + self.end
            busy = busy + np.where(self.places > 1, 0, out) if new else busy
            one = np.maximum(np.maximum(busy, moved), channel)
            total = total + count * (np.maximum(one, out) if new else one)
        return total

    def serial(self) -> np.ndarray:
        """Cycles if nothing overlaps."""
        tiles = np.prod(self.turns[: self.spatial], axis=0)
        total = self.first + self.latency + tiles * (self.after + self.store + self.end)
        for level in range(len(self.turns)):
            inner = np.prod(self.turns[:level], axis=0)
            count = inner * self.turns[level] - inner
            total = total + count * (self.loads[level] + self.busy[level] + self.latency)
        return total + self.steps * self.work

    def run(self) -> np.ndarray:
        """Cycles of the pipelines, run step by step. Long ones are run with fewer turns, twice; the
        rest takes as many times the estimate as what the second has more than the first."""
        long = self.steps > STEPS
        if not long.any():
            return self._run()
        few, more = self._shortened(STEPS // 2), self._shortened(STEPS)
        some, cycles = few._run(), more._run()
        least, most, all_ = few.estimate(), more.estimate(), self.estimate()
        pace = np.where(most > least, (cycles - some) / np.maximum(1, most - least), 1)
        return cycles + np.where(long, (all_ - most) * pace, 0)

    def _run(self) -> np.ndarray:
        p = Pipelines(self)
        for i in range(int(self.ahead.max())):
            p.bring(np.full(len(self.ahead), i), i < self.ahead)
        for i in range(int(self.steps.max())):
            p.bring(i + self.ahead, i + self.ahead < self.steps)
            p.compute(i)
        return p.end

    def _shortened(self, most: int) -> StepTimes:
        """The same with fewer turns of the outer loops, but two where there are that many: about so
        many steps, if it has more."""
        turns = self.turns.copy()
        for n in turns:
            n[:] = np.minimum(n, np.maximum(2, n * most // np.prod(turns, axis=0)))
        return replace(self, turns=turns)


class Pipelines:
    """Pipelines at work: when each engine is free again, in cycles."""

    def __init__(self, times: StepTimes) -> None:
        self.times, self.steps = times, times.steps
        n, places = len(times.work), int(times.ahead.max()) + 1
        inner = np.cumprod(times.turns[::-1], axis=0)[::-1]
        self.below = np.concatenate([inner[1:], np.ones_like(inner[:1])])  # steps between turns
        levels = np.arange(len(inner))[:, None]
        self.innermost = np.max(np.where(times.turns > 1, levels, 0), axis=0)  # that turns
        self.each = np.arange(n)
        self.loader, self.unit, self.storer = (np.zeros(n) for _ in range(3))
        self.owed = np.zeros(n)  # cycles that a store has the memory while operands are brought
        self.there = np.zeros((places, n))  # when a step has its operands
        self.free = np.zeros((places, n))  # when their places can be filled anew
        self.loads = np.zeros((2, 2 * places, n))  # when the last transfers began, and ended
        self.turned = np.zeros(n)  # when the last turn of what is outside the innermost loop ended
        self.left = np.zeros((int(times.places.max()), n))  # when the last tiles were stored

    def level(self, i: np.ndarray | int) -> np.ndarray:
        """The level of step i."""
        turned = (i % self.below == 0) & (self.times.turns > 1)
        return np.where(turned.any(0), turned.argmax(0), len(self.below) - 1)

    def bring(self, i: np.ndarray, on: np.ndarray) -> None:
        """Brings the operands of step i. What an outer loop moves has a place from the turn before
        on, what the innermost does from the step on that had it."""
        p, place = self.times, (i % (self.times.ahead + 1), self.each)
        level = self.level(i)
        load = np.where(i == 0, p.first, _at(p.loads, level))
        transfer = np.where(i == 0, p.first, _at(p.channel, level))
        inner = np.minimum(load, _at(p.loads, self.innermost))
        moves = on & (load > 0)
        shared = self.owed * transfer / np.maximum(load, 1)  # between transfers it is no matter
        begin = np.maximum(self.loader, np.where(load > inner, self.turned, 0))
        outer = begin + load - inner
        then = np.maximum(outer, self.free[place])
        done = then + inner + shared
        for k, times in enumerate(((begin, outer), (then, done))):
            at = (slice(None), 2 * place[0] + k, self.each)
            self.loads[at] = np.where(moves, times, self.loads[at])
        self.loader = np.where(moves, done, self.loader)
        self.owed = np.where(moves, 0, self.owed)
        there = np.where(moves, done + p.latency, 0)
        self.there[place] = np.where(on, there, self.there[place])

    def compute(self, i: int) -> None:
        """Works on step i; stores the tile of the result that it may complete."""
        p, place = self.times, (i % (self.times.ahead + 1), self.each)
        level, on = self.level(i), i < self.steps
        new = (level < p.spatial) | (i == 0)
        last = (self.level(i + 1) < p.spatial) | (i + 1 == self.steps)
        begin = np.maximum(self.unit, self.there[place])
        begin = np.where(new, np.maximum(begin, self.left[p.places - 1, self.each]), begin)
        own = 0 if i == 0 else _at(p.busy, level)
        done = begin + p.work
        done = np.where(own > 0, self._after_loads(done) + own + p.latency, done)
        end = done + np.where(last, p.after, 0)
        self.unit = np.where(on, end, self.unit)
        self.free[place] = end + p.behind
        turns = on & (self.level(i + 1) < self.innermost)
        self.turned = np.where(turns, end + p.behind, self.turned)
        leaves = on & last
        # Of portions the first leave early, and the last takes as long as it is.
        late = self._after_loads(np.maximum(self.storer, end + p.behind)) + p.store / p.portions
        first_done = end - p.after * (1 - 1 / p.portions) + p.behind
        out = np.maximum(late, np.maximum(self.storer, first_done) + p.store)
        self.storer = np.where(leaves, out, self.storer)
        self.owed = np.where(leaves, p.stored, self.owed)
        left = np.concatenate([(out + p.end)[None], self.left[:-1]])
        self.left = np.where(leaves, left, self.left)

    def _after_loads(self, time: np.ndarray) -> np.ndarray:
        """When the memory takes what comes at some time: after a load that it is at."""
        if not self.times.stored.any():
            return time
        begun, ended = self.loads
        return np.maximum(time, np.where(begun <= time, ended, 0).max(0))

    @property
    def end(self) -> np.ndarray:
        """When everything is done."""
        return np.maximum(self.unit, self.storer + self.times.end)


def _at(times: np.ndarray, level: np.ndarray) -> np.ndarray:
    return np.take_along_axis(times, level[None], 0)[0]
