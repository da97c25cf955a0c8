"""Registers for what a loop's iterations hold while several are under way.

A buffer that is new in each iteration needs a place for every iteration that still uses its own.
There are no rotating registers: the loop's body is repeated `copies` times, and each copy names
registers of its own (modulo variable expansion; Lam, "Software pipelining", 1988).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.bundles.modulo import Modulo
from tilewright.backends.bundles.operations import Body, Operation
from tilewright.ir.expr import Buffer


@dataclass(frozen=True)
class RegisterRun:
    """Registers of a buffer that operands need side by side: `size` from `first` on."""

    buffer: Buffer
    first: int
    size: int


@dataclass(frozen=True, eq=False)
class Allocation:
    """The first register of each run, for iteration i in the copy i % copies of the body."""

    copies: int
    places: Mapping[tuple[RegisterRun, int], int]
    runs: Mapping[tuple[Buffer, int], RegisterRun]

    def register(self, buffer: Buffer, cell: int, iteration: int) -> int:
        """The number of the register that a buffer's `cell`-th is."""
        run = self.runs[buffer, cell]
        return self.places[run, iteration % self.copies] + cell - run.first


def find_runs(
    operations: Sequence[Operation], private: set[Buffer]
) -> dict[tuple[Buffer, int], RegisterRun]:
    """The registers of private buffers, joined where an operand needs several."""
    joined: dict[Buffer, list[range]] = {}
    for operation in operations:
        for o in operation.operands:
            if o.buffer in private:
                mine, apart = o.cells, []
                for other in joined.get(o.buffer, []):
                    if other.start < mine.stop and mine.start < other.stop:
                        mine = range(min(mine.start, other.start), max(mine.stop, other.stop))
                    else:
                        apart.append(other)
                joined[o.buffer] = [*apart, mine]
    return {
        (buffer, cell): RegisterRun(buffer, cells.start, len(cells))
        for buffer, found in joined.items()
        for cells in found
        for cell in cells
    }


@dataclass(frozen=True)
class Span:
    """The items of a body between which a run is in use; whether at the last one it is only read,
    by an operation: what that writes may take its place."""

    run: RegisterRun
    first: int
    last: int
    read_last: bool


def spans(body: Body) -> list[Span]:
    """When the registers of a body's own buffers are in use, by its items, in order."""
    own = set(body.buffers)
    runs = find_runs(list(body.walk()), own)
    found: dict[RegisterRun, Span] = {}
    for k, item in enumerate(body.items):
        inner = [item] if isinstance(item, Operation) else list(item.body.walk())
        for o in (o for operation in inner for o in operation.operands if o.buffer in own):
            run = runs[o.buffer, o.cells.start]
            before = found.get(run)
            read = isinstance(item, Operation) and not o.writes
            if before is not None and before.last == k:
                read = read and before.read_last
            found[run] = Span(run, before.first if before else k, k, read)
    return sorted(found.values(), key=lambda s: (s.first, -s.run.size, s.run.first))


def lifetimes(
    operations: Sequence[Operation],
    schedule: Modulo,
    runs: Mapping[tuple[Buffer, int], RegisterRun],
) -> dict[RegisterRun, tuple[int, int]]:
    """From when a run belongs to an iteration until another may have it. What is written belongs
    to its writer from then on, until it is there; what is read, until it is read."""
    found: dict[RegisterRun, tuple[int, int]] = {}
    for operation, at in zip(operations, schedule.times, strict=True):
        for o in operation.operands:
            run = runs.get((o.buffer, o.cells.start)) if o.row else None
            if run is not None:
                end = at + operation.latency if o.writes else at
                low, high = found.get(run, (at, end))
                found[run] = min(low, at), max(high, end)
    return found


def allocate(
    operations: Sequence[Operation],
    schedule: Modulo,
    private: set[Buffer],
    free: Mapping[str, np.ndarray],
) -> Allocation | None:
    """Places for the private buffers of a loop, among the registers that are free; None if these
    are too few."""
    runs = find_runs(operations, private)
    lives = lifetimes(operations, schedule, runs)
    interval = schedule.interval
    copies = max((-(-(high - low) // interval) for low, high in lives.values()), default=1)
    copies = max(copies, 1)
    period = copies * interval
    busy = {
        name: np.repeat(~np.array(available, bool)[:, None], period, axis=1)
        for name, available in free.items()
    }
    places: dict[tuple[RegisterRun, int], int] = {}
    for run in sorted(lives, key=lambda r: (-r.size, lives[r])):
        low, high = lives[run]
        table = busy[run.buffer.memory]
        for copy in range(copies):
            cycles = (low + copy * interval + np.arange(max(high - low, 1))) % period
            free_now: np.ndarray = ~np.any(table[:, cycles], axis=1)
            at = first_free(free_now, run.size)
            if at is None:
                return None
            table[at : at + run.size, cycles] = True
            places[run, copy] = at
    return Allocation(copies, places, runs)


def first_free(free: np.ndarray, size: int) -> int | None:
    """The first of `size` free registers side by side."""
    if size > len(free):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(free, size).all(axis=1)
    found = np.flatnonzero(windows)
    return int(found[0]) if len(found) else None
