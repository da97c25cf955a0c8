"""The timed simulator: when every instruction of a stream begins and is done. No data.

An instruction is issued `Target.issue` cycles after the one before it, once its queue has room; it
begins when the one before it has left the queue's unit, what it waits for is there, and no
other queue's instruction uses its banks. It takes setup + max(busy, transfer) cycles; transfers go
through every memory of limited bandwidth that it touches, first come first served. It is done, and
others learn of it, `latency` cycles after it has left the unit, in the order of its queue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.codegen.stream import Site, Stream
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Dim, as_expr
from tilewright.sim import native
from tilewright.sim.boxes import Boxes, boxes, dependences, members, queue_numbers
from tilewright.sim.check import interleave
from tilewright.sim.timeline import Timeline
from tilewright.sim.waits import Waits, native_sync


@dataclass(frozen=True, eq=False)
class Durations:
    """What every instruction's cost says: cycles of its phases [n], through each memory of limited
    bandwidth [n, limited memories]; bytes and picojoules [n]."""

    setup: np.ndarray
    busy: np.ndarray
    transfer: np.ndarray
    latency: np.ndarray
    bytes: np.ndarray
    energy: np.ndarray


def durations(stream: Stream) -> Durations:
    """The instructions' costs, evaluated on their fields. The latency of the slowest memory that
    an instruction moves bytes through comes on top of its own."""
    n = len(stream)
    limited = [m for m in stream.target.memories if m.bandwidth is not None]
    setup, busy, latency, moved, energy = (np.zeros(n, np.int64) for _ in range(5))
    transfer = np.zeros((n, len(limited)), np.int64)
    for k, site in enumerate(stream.sites):
        rows = stream.rows(k)
        terms = _terms(site, stream.fields[rows])
        memories = [stream.target.memory(m) for m in site.memories]
        setup[rows], busy[rows], moved[rows], energy[rows] = terms[:4]
        for c, m in enumerate(limited):
            if m in memories:
                transfer[rows, c] = np.ceil(terms[2] / m.bandwidth)
        extra = max((m.latency for m in memories), default=0) * (terms[2] > 0)
        latency[rows] = terms[4] + extra
    return Durations(setup, busy, transfer, latency, moved, energy)


def _terms(site: Site, fields: np.ndarray) -> list[np.ndarray]:
    """Set-up, busy, bytes, energy and latency of a site's instructions."""
    cost = site.instruction.cost
    env = {f.symbol: fields[:, c] for c, f in enumerate(site.instruction.fields)}

    def column(e: Dim) -> np.ndarray:
        return np.broadcast_to(evaluate_expr(as_expr(e), env, {}), (len(fields),))

    return [column(e) for e in (cost.setup, cost.busy, cost.bytes, cost.energy, cost.latency)]


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
    queue, target = queue_numbers(stream), stream.target
    need = None
    if target.interlock or any(m.banks > 1 for m in target.memories):
        found = found or boxes(stream)
    if target.interlock:
        need = dependences(stream, found)
    ordered, first = members(stream, queue)
    n = len(stream)
    columns = {
        name: np.zeros(n, np.int64)
        for name in ("begin", "leave", "end", "issue", "wait", "bank", "bandwidth", "cause")
    }
    given = int(np.bitwise_count(waits.pushes).sum() + np.bitwise_count(waits.sets).sum())
    cycles = native.events(
        native_sync(stream, waits),
        native.Times(
            target.issue, int(serial), times.transfer.shape[1], times.setup, times.busy,
            times.latency, times.transfer, banks_used(stream, found), need,
        ),
        native.Cycles(*columns.values(), np.empty(given, np.int32)),
        ordered,
        first,
    )  # fmt: skip
    if cycles < 0:
        fault = interleave(stream, waits, -np.arange(n)).deadlock()
        raise CompileError(str(fault), hint="the waits of this stream are wrong: check_waits")
    work = times.setup + np.maximum(times.busy, times.transfer.max(1, initial=0))
    return Timeline(stream, cycles, work, times.bytes, times.energy, **columns)


def banks_used(stream: Stream, found: Boxes | None) -> np.ndarray:
    """The banks that every instruction uses [n], as bits: of all memories with several, one after
    another. A box takes all banks from its first byte's to its last one's."""
    used = np.zeros(len(stream), np.uint64)
    base = 0
    for number, m in enumerate(stream.target.memories):
        if m.banks == 1 or found is None or m.size is None:
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
