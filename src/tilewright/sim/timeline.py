"""When the instructions of a stream ran, and what its queues stood still for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backends.stream.boxes import queue_numbers
from tilewright.backends.stream.stream import Site, Stream
from tilewright.base.node import cached_property
from tilewright.ir.loop import buffers_written
from tilewright.runtime.trace_events import Event, block, process, track, write_trace
from tilewright.target.target import Queue

REASONS = {  # what a queue's unit stands still for
    "issue": "no instruction has been issued to it",
    "wait": "its next one waits for others",
    "result": "its next one reads what the queue has not done yet",
    "bank": "others use the banks it needs",
    "bandwidth": "others use the memory's bandwidth",
    "done": "nothing is left to do",
}
BEFORE = tuple(REASONS)[:-1]  # an instruction


COLUMNS = ("begin", "leave", "end", *BEFORE, "cause")


@dataclass(frozen=True, eq=False)
class Timeline:
    """A stream's run: `cycles` in all. Of its n instructions, in cycles: when each began, left the
    unit and was done; how much it worked; how long the unit stood still before it, by reason, and
    how much longer it took for want of bandwidth. `cause` is the instruction that it waited for
    last, or -1. Bytes that it moved, picojoules that it took. Where several `cores` run the stream
    these are their runs, of which this is the last one's."""

    stream: Stream
    cycles: int
    work: np.ndarray
    bytes: np.ndarray
    energy: np.ndarray
    begin: np.ndarray
    leave: np.ndarray
    end: np.ndarray
    issue: np.ndarray
    wait: np.ndarray
    result: np.ndarray
    bank: np.ndarray
    bandwidth: np.ndarray
    cause: np.ndarray
    cores: tuple[Timeline, ...] = ()

    @cached_property
    def busy(self) -> Mapping[str, int]:
        """How long each queue's unit worked, set-up included."""
        return self._by_queue(self.work)

    @cached_property
    def stalls(self) -> Mapping[str, Mapping[str, int]]:
        """How long each queue's unit stood still, for each of the REASONS. With the time that it
        worked this is all of the run."""
        last = self._by_queue(self.leave, np.maximum)
        parts = {reason: self._by_queue(getattr(self, reason)) for reason in BEFORE}
        parts["done"] = {name: self.cycles - end for name, end in last.items()}
        return {q.name: {r: part[q.name] for r, part in parts.items()} for q in self._queues}

    def stalls_before(self, row: int) -> Mapping[str, int]:
        """How long the unit stood still before one instruction, for each reason that there is."""
        return {reason: int(getattr(self, reason)[row]) for reason in BEFORE}

    @cached_property
    def moved(self) -> Mapping[tuple[str, str], int]:
        """Bytes moved from one memory to another, by all cores."""
        found: dict[tuple[str, str], int] = {}
        for k, site in enumerate(self.stream.sites):
            size = int(self.bytes[self.stream.rows(k)].sum()) * self.stream.cores
            pair = _ends(site)
            if size and pair:
                found[pair] = found.get(pair, 0) + size
        return found

    @property
    def joules(self) -> float:
        """The energy that the instructions' costs add up to."""
        return float(self.energy.sum()) * self.stream.cores * 1e-12

    @property
    def bytes_moved(self) -> int:
        """By all instructions of all cores."""
        return int(self.bytes.sum()) * self.stream.cores

    @property
    def seconds(self) -> float:
        return self.cycles / self.stream.target.clock

    @property
    def bottleneck(self) -> str:
        """The queue that works most."""
        return max(self.busy, key=lambda name: self.busy[name])

    def perfetto(self, path: str | Path) -> None:
        """Writes a trace that https://ui.perfetto.dev shows: a track for each queue."""
        write_trace(path, events(self))

    @property
    def _queues(self) -> tuple[Queue, ...]:
        return self.stream.target.queues

    def _by_queue(self, values: np.ndarray, how: np.ufunc = np.add) -> dict[str, int]:
        totals = np.zeros(len(self._queues), np.int64)
        how.at(totals, queue_numbers(self.stream), values)
        return {q.name: int(total) for q, total in zip(self._queues, totals, strict=True)}

    def __str__(self) -> str:
        clock = self.stream.target.clock
        head = f"{self.cycles:,} cycles ({self.seconds * 1e6:,.1f} µs at {clock / 1e6:g} MHz)"
        head += f", {self.bottleneck} works {self._share(self.busy[self.bottleneck])} of them"
        if self.cores:
            head += f"; {len(self.cores)} cores, of which this is the last one's run"
        rows = [["queue", "works", *REASONS]]
        for q in self._queues:
            rows.append([q.name, self._share(self.busy[q.name])])
            rows[-1] += [self._share(self.stalls[q.name][r]) for r in REASONS]
        widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
        table = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in rows
        ]
        rest = [f"{a} to {b}: {size:,} bytes" for (a, b), size in self.moved.items()]
        if self.energy.any():
            rest.append(f"energy: {self.joules * 1e6:,.3f} µJ")
        return "\n".join([head, *table, *rest])

    def _share(self, cycles: int) -> str:
        return f"{cycles / max(self.cycles, 1):.1%}"


def _ends(site: Site) -> tuple[str, str] | None:
    """From where to where a site's instructions move: the memories of the first operand that is
    only read, and of the first that is written."""
    written = buffers_written(site.instruction.body)
    pairs = list(zip(site.instruction.operands, site.memories, strict=True))
    sources = [m for operand, m in pairs if operand not in written]
    results = [m for operand, m in pairs if operand in written]
    return (sources[0], results[0]) if sources and results else None


# ---------------------------------------------------------------- as a trace


def events(timeline: Timeline) -> Iterator[Event]:
    """The timeline as a trace (runtime/trace_events.py), event by event: a process for each core,
    with a track for each queue. An instruction's fields, and its times in cycles, are its
    arguments. Arrows lead from the instruction that was waited for last."""
    name = timeline.stream.target.name
    if not timeline.cores:
        yield from _core_events(timeline, name, 0)
    for k, one in enumerate(timeline.cores):
        yield from _core_events(one, f"{name}, core {k}", k)


def _core_events(timeline: Timeline, name: str, core: int) -> Iterator[Event]:
    stream = timeline.stream
    yield process(name, core)
    for q, queue in enumerate(stream.target.queues):
        yield from track(q, queue.name, core)
    queue_of = queue_numbers(stream).tolist()
    for row in range(len(stream)):
        yield _slice(timeline, row, queue_of[row], core)
        cause = int(timeline.cause[row])
        if cause >= 0 and timeline.wait[row] > 0:
            left, begun = int(timeline.leave[cause]) - 1, int(timeline.begin[row])
            yield _arrow(timeline, "s", row, queue_of[cause], left, core)
            yield _arrow(timeline, "f", row, queue_of[row], begun, core)


def _slice(timeline: Timeline, row: int, queue: int, core: int) -> Event:
    """One instruction, from when it begins until it leaves the unit."""
    stream = timeline.stream
    instruction = stream.sites[stream.site[row]].instruction
    values = zip(instruction.fields, stream.fields[row], strict=False)
    begin, leave = int(timeline.begin[row]), int(timeline.leave[row])
    arguments: dict[str, Any] = {"fields": {f.name: int(v) for f, v in values}}
    arguments |= {
        "instruction": row,
        "begin": begin,
        "leave": leave,
        "done": int(timeline.end[row]),
    }
    stalls = timeline.stalls_before(row)
    arguments |= {f"stalled: {s}": cycles for s, cycles in stalls.items() if cycles}
    if timeline.cause[row] >= 0:
        arguments["waited for"] = int(timeline.cause[row])
    at = _microseconds(timeline, begin)
    took = _microseconds(timeline, leave) - at
    return block(queue, instruction.name, "instruction", at, took, arguments, core)


def _arrow(timeline: Timeline, end: str, number: int, queue: int, cycle: int, core: int) -> Event:
    number += core * len(timeline.stream)
    found = {"ph": end, "pid": core, "tid": queue, "name": "wait", "cat": "wait", "id": number}
    return found | {"ts": _microseconds(timeline, cycle)} | ({"bp": "e"} if end == "f" else {})


def _microseconds(timeline: Timeline, cycle: int) -> float:
    return round(cycle / timeline.stream.target.clock * 1e6, 6)
