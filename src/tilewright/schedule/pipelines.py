"""Pipelines of a chip over tiles, run step by step without a simulator: how long each takes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np


@dataclass(frozen=True)
class Phases:
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
    latency: int  # until operands are there
    behind: int  # until the unit is done with them, after its last call has left
    end: int  # until a result is there

    def only(self, kept: np.ndarray) -> Phases:
        """Of some of the pipelines."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        taken = {k: x[..., kept] for k, x in arrays.items() if isinstance(x, np.ndarray)}
        return replace(self, **taken)

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
            one = np.maximum(np.maximum(busy, moved), channel)
            total = total + count * (np.maximum(one, self.store + self.end) if new else one)
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

    def run(self, ahead: int) -> np.ndarray:
        """Cycles with operands brought so many steps ahead: the pipelines run step by step."""
        p = Pipelines(self, ahead)
        for i in range(ahead):
            p.bring(i)
        for i in range(int(self.steps.max())):
            p.bring(i + ahead)
            p.compute(i)
        return p.end

    def level(self, i: int) -> np.ndarray:
        """The level of step i."""
        inner = np.cumprod(self.turns[::-1], axis=0)[::-1]
        below = np.concatenate([inner[1:], np.ones_like(inner[:1])])  # steps between turns
        turned = (i % below == 0) & (self.turns > 1)
        return np.where(turned.any(0), turned.argmax(0), len(self.turns) - 1)


class Pipelines:
    """Pipelines at work: when each engine is free again, in cycles."""

    def __init__(self, phases: Phases, ahead: int) -> None:
        self.phases, self.steps = phases, phases.steps
        n = len(phases.work)
        self.loader, self.unit, self.storer = (np.zeros(n) for _ in range(3))
        self.owed = np.zeros(n)  # cycles that a store has the memory while operands are brought
        self.there = [np.zeros(n) for _ in range(ahead + 1)]  # when a step has its operands
        self.free = [np.zeros(n) for _ in range(ahead + 1)]  # when their places can be filled anew
        self.left = [np.zeros(n), np.zeros(n)]  # when the last two tiles were stored

    def bring(self, i: int) -> None:
        """Brings the operands of step i."""
        p, place = self.phases, i % len(self.there)
        level = p.level(i)
        load = self.phases.first if i == 0 else _at(p.loads, level)
        transfer = load if i == 0 else _at(p.channel, level)
        on = (i < self.steps) & (load > 0)
        shared = self.owed * transfer / np.maximum(load, 1)  # between transfers it is no matter
        done = np.maximum(self.loader, self.free[place]) + load + shared
        self.loader = np.where(on, done, self.loader)
        self.owed = np.where(on, 0, self.owed)
        self.there[place] = np.where(on, done + p.latency, 0)

    def compute(self, i: int) -> None:
        """Works on step i; stores the tile of the result that it may complete."""
        p, place = self.phases, i % len(self.there)
        level, on = p.level(i), i < self.steps
        new = (level < p.spatial) | (i == 0)
        last = (p.level(i + 1) < p.spatial) | (i + 1 == self.steps)
        begin = np.maximum(self.unit, self.there[place])
        begin = np.where(new, np.maximum(begin, self.left[0]), begin)
        own = 0 if i == 0 else _at(p.busy, level)
        end = begin + p.work + own + np.where(last, p.after, 0)
        self.unit = np.where(on, end, self.unit)
        self.free[place] = end + p.behind
        leaves = on & last
        out = np.maximum(self.storer, end + p.behind) + p.store
        self.storer = np.where(leaves, out, self.storer)
        self.owed = np.where(leaves, p.stored, self.owed)
        self.left[0] = np.where(leaves, self.left[1], self.left[0])
        self.left[1] = np.where(leaves, out + p.end, self.left[1])

    @property
    def end(self) -> np.ndarray:
        """When everything is done."""
        return np.maximum(self.unit, self.storer + self.phases.end)


def _at(phases: np.ndarray, level: np.ndarray) -> np.ndarray:
    return np.take_along_axis(phases, level[None], 0)[0]
