"""The timed simulator: when every instruction of a stream begins and is done. No data.

An instruction is fetched, and issued `Target.issue` cycles after the one before it, once its queue
has room; it begins when the one before it has left the queue's unit, what it waits for is there, so
are the results of its own queue that it reads, and no other queue's instruction uses its banks. It
takes setup + max(busy, transfer) cycles; transfers go through every memory of limited bandwidth
that it touches, first come first served. It is done, and others learn of it, `latency` cycles after
it has left the unit, in the order of its queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.codegen.stream import Site, Stream
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import Dim
from tilewright.sim import native
from tilewright.sim.boxes import Boxes, boxes, dependences, hazards, members, queue_numbers
from tilewright.sim.check import interleave
from tilewright.sim.timeline import COLUMNS, Timeline
from tilewright.sim.waits import Waits, native_sync
from tilewright.target.target import Target


MOST = 1 << 53  # cycles, bytes or picojoules of one instruction that are simulated


@dataclass(frozen=True, eq=False)
class Durations:
    """What every instruction's cost says: cycles of its phases [n], through each memory of limited
    bandwidth [n, limited memories], until its queue can use what it forwards [n]; bytes and
    picojoules [n]."""

    setup: np.ndarray
    busy: np.ndarray
    transfer: np.ndarray
    latency: np.ndarray
    forward: np.ndarray
    exposed: np.ndarray
    bytes: np.ndarray
    energy: np.ndarray


def durations(stream: Stream) -> Durations:
    """The instructions' costs, evaluated on their fields. The latency of the slowest memory that
    an instruction moves bytes through comes on top of its own. CompileError for a cost that is
    negative, or more than is simulated."""
    n = len(stream)
    limited = [m for m in stream.target.memories if m.bandwidth is not None]
    columns = {f.name: np.zeros(n, np.int64) for f in fields(Durations)}
    columns["transfer"] = np.zeros((n, len(limited)), np.int64)
    for k, site in enumerate(stream.sites):
        rows, cost = stream.rows(k), site.instruction.cost
        terms = _Terms(site, stream.fields[rows])
        for name in ("setup", "busy", "latency", "energy", "forward", "exposed"):
            term = getattr(cost, name)
            columns[name][rows] = 0 if term is None else terms(name, term)
        for memory in map(stream.target.memory, dict.fromkeys(site.memories)):
            moved = terms("bytes", cost.bytes_in(memory.name))
            columns["bytes"][rows] = np.maximum(columns["bytes"][rows], moved)
            if memory in limited:
                cycles = np.ceil(moved / memory.bandwidth)
                columns["transfer"][rows, limited.index(memory)] = cycles
            terms.extra = np.maximum(terms.extra, memory.latency * (moved > 0))
        columns["latency"][rows] += terms.extra
    return Durations(**columns)


class _Terms:
    """The terms of a cost, for n instructions of a site with these fields [n, fields]."""

    def __init__(self, site: Site, values: np.ndarray) -> None:
        self.site, self.shape = site, (len(values),)
        self.env = {f.symbol: values[:, c] for c, f in enumerate(site.instruction.fields)}
        self.extra = np.zeros(self.shape, np.int64)  # latency, of memories

    def __call__(self, name: str, term: Dim) -> np.ndarray:
        found = evaluate_exactly(term, self.env)
        least, most = (found.min(), found.max()) if found.size else (0, 0)
        if least < 0 or most > MOST:
            raise CompileError(
                f"{name} of {self.site.instruction} is {least if least < 0 else most:,}",
                hint=f"costs from 0 to {MOST:,} are simulated: correct the description",
            )
        return np.broadcast_to(found.astype(np.int64), self.shape)


def simulate(
    stream: Stream,
    waits: Waits,
    times: Durations | None = None,
    *,
    serial: bool = False,
    found: Boxes | None = None,
) -> Timeline:
    """Runs the stream on the target's queues; CompileError if it stops for good. With `serial` one
    instruction runs after another, whatever the waits say."""
    times = times or durations(stream)
    queue, target, found = queue_numbers(stream), stream.target, found or boxes(stream)
    need = dependences(stream, found) if target.interlock else None
    ordered, first = members(stream, queue)
    n = len(stream)
    columns = {
        name: np.zeros(n, np.int64)
        for name in COLUMNS
    }
    given = int(np.bitwise_count(waits.pushes).sum() + np.bitwise_count(waits.sets).sum())
    cycles = native.events(
        native_sync(stream, waits),
        native.Times(
            target.issue, *fetches(target), int(serial), times.transfer.shape[1], times.setup,
            times.busy, times.latency, times.transfer, banks_used(stream, found), need,
            hazards(stream, found), times.forward,
        ),
        native.Cycles(*columns.values(), np.empty(given, np.int32), *np.empty((2, n), np.int64)),
        ordered,
        first,
    )  # fmt: skip
    if cycles < 0:
        fault = interleave(stream, waits, -np.arange(n)).deadlock()
        raise CompileError(str(fault), hint="the waits of this stream are wrong: check_waits")
    work = times.setup + np.maximum(times.busy, times.transfer.max(1, initial=0))
    return Timeline(stream, cycles, work, times.bytes, times.energy, **columns)


def fetches(target: Target) -> tuple[int, int, int, int, int]:
    """How instructions are fetched, as the native function takes it: how many ahead, how many in a
    burst, the number of the memory among those of limited bandwidth, cycles of that for a burst,
    and until it is there."""
    if target.fetch is None:
        return 0, 0, -1, 0, 0
    memory = target.memory(target.fetch.memory)
    limited = [m for m in target.memories if m.bandwidth is not None]
    source = limited.index(memory) if memory in limited else -1
    size = target.fetch.bytes * target.fetch.burst
    cycles = 0 if memory.bandwidth is None else math.ceil(size / memory.bandwidth)
    return target.fetch.ahead, target.fetch.burst, source, cycles, memory.latency


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
