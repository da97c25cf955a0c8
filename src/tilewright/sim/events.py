"""The timed simulator: when every instruction of a stream begins and is done. No data.

An instruction is fetched, and issued `Target.issue` cycles after the one before it, once its queue
has room; it begins when the one before it has left the queue's unit, what it waits for is there, so
are the results of its own queue that it reads, and no other queue's instruction uses its banks. It
takes setup + max(busy, transfer) cycles; transfers go through every memory of limited bandwidth
that it touches, first come first served. It is done, and others learn of it, `latency` cycles after
it has left the unit, in the order of its queue. Where several cores run the stream, each has all
of this for itself, but the memories that they share: of what comes to those in the same cycle, the
core with the least number is first.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilewright.backends.stream.boxes import (
    Boxes,
    boxes,
    dependences,
    hazards,
    members,
    queue_numbers,
)
from tilewright.backends.stream.check_waits import interleave
from tilewright.backends.stream.durations import Durations, durations
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits, native_sync
from tilewright.base.errors import CompileError
from tilewright.runtime import stream_functions as native
from tilewright.sim.timeline import COLUMNS, Timeline
from tilewright.target.target import Target

NO_MEMORY = -2  # what the native function gives


def simulate(
    stream: Stream,
    waits: Waits,
    times: Durations | None = None,
    *,
    serial: bool = False,
    found: Boxes | None = None,
) -> Timeline:
    """Runs the stream on the target's queues; CompileError if it stops for good. With `serial` one
    instruction runs after another, whatever the waits say. Of several cores it is the run of the
    one that is done last, which has those of all."""
    times = times or durations(stream)
    queue, target, found = queue_numbers(stream), stream.target, found or boxes(stream)
    need = dependences(stream, found) if target.interlock else None
    ordered, first = members(stream, queue)
    n, cores = len(stream), stream.cores
    columns = {name: np.zeros((cores, n), np.int64) for name in COLUMNS}
    given = int(np.bitwise_count(waits.pushes).sum() + np.bitwise_count(waits.sets).sum())
    scratch = np.empty(cores * given, np.int32), *np.empty((2, cores * n), np.int64)
    cycles = native.events(
        native_sync(stream, waits),
        native.Times(
            target.issue, *fetches(target, n), int(serial), times.transfer.shape[1], times.setup,
            times.busy, times.latency, times.transfer, banks_used(stream, found), need,
            hazards(stream, found), times.forward,
        ),
        native.Cycles(*columns.values(), *scratch),
        ordered,
        first,
        cores,
        _shared(target),
    )  # fmt: skip
    if cycles == NO_MEMORY:
        raise MemoryError(f"no memory to simulate {cores} cores")
    if cycles < 0:
        fault = interleave(stream, waits, -np.arange(n)).deadlock()
        raise CompileError(str(fault), hint="the waits of this stream are wrong: check_waits")
    every = tuple(
        Timeline(
            stream, cycles, times.work, times.bytes, times.energy,
            **{name: column[k] for name, column in columns.items()},
        )
        for k in range(cores)
    )  # fmt: skip
    last = max(every, key=lambda t: int(t.end.max(initial=0)))
    return last if cores == 1 else replace(last, cores=every)


def _shared(target: Target) -> int:
    """Which memories of limited bandwidth are one for all cores, as bits."""
    limited = [m for m in target.memories if m.bandwidth is not None]
    return sum(1 << k for k, m in enumerate(limited) if m.shared_by > 1)


def fetches(target: Target, n: int) -> tuple[int, int, int, int, int, int]:
    """How n instructions are fetched, as the native function takes it: how many ahead, how many in
    a burst, the number of the memory among those of limited bandwidth, cycles of that for a burst
    and for the last one, which may be shorter, and until a burst is there."""
    if target.fetch is None:
        return 0, 0, -1, 0, 0, 0
    memory = target.memory(target.fetch.memory)
    limited = [m for m in target.memories if m.bandwidth is not None]
    source = limited.index(memory) if memory in limited else -1
    burst = target.fetch.burst
    rate = memory.bandwidth or math.inf
    whole, last = (math.ceil(target.fetch.bytes * k / rate) for k in (burst, n % burst or burst))
    return target.fetch.ahead, burst, source, whole, last, memory.latency


def banks_used(stream: Stream, found: Boxes) -> np.ndarray:
    """The banks that every instruction uses [n], as bits: of all memories with several, one after
    another. A box takes all banks from its first byte's to its last one's."""
    used = np.zeros(len(stream), np.uint64)
    base = 0
    for number, m in enumerate(stream.target.memories):
        if m.banks == 1 or m.size is None:
            continue
        t = found.touched
        here = t.memory == number
        size = m.size // m.banks
        first = np.clip(t.start[here] // size, 0, m.banks - 1)
        last = np.clip((found.ends[here] - 1) // size, 0, m.banks - 1)
        ones = np.array([(1 << k) - 1 for k in range(m.banks + 1)], np.uint64)
        bits = (ones[last - first + 1] << first.astype(np.uint64)) << np.uint64(base)
        np.bitwise_or.at(used, t.row[here], bits)
        base += m.banks
    return used
