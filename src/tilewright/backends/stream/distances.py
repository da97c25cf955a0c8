"""What a chip does not look after, and the compiler must: hardware loops that come back to an
element too soon, results that are read before they are there (`distance`, `cost(exposed=…)`)."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from tilewright.backends.stream.boxes import Boxes, boxes, hazards, queue_numbers
from tilewright.backends.stream.durations import Durations, durations
from tilewright.backends.stream.faults import Fault, FaultKind, name_of
from tilewright.backends.stream.idle import insert_idle
from tilewright.backends.stream.iterations import least_apart
from tilewright.backends.stream.stream import Stream
from tilewright.base.errors import CompileError
from tilewright.ir.instruction import Hazard

MOST_IDLE = 1 << 20  # instructions that do nothing, of a stream


def check_distances(stream: Stream, found: Boxes | None = None) -> Fault | None:
    """The first instruction whose loops touch an element again too soon, or that reads what an
    earlier one of its queue has not computed yet and the chip does not wait for; None if there is
    none. It holds for all times that instructions may take: an instruction begins when those before
    it in its queue have left the unit, which takes each of them as long as its cost says."""
    return _iterations_apart(stream) or _results_there(stream, found)


# ---------------------------------------------------------------- iterations


def _iterations_apart(stream: Stream) -> Fault | None:
    for k, site in enumerate(stream.sites):
        if not site.instruction.distances:
            continue
        rows = stream.rows(k)
        _, first = np.unique(stream.fields[rows], axis=0, return_index=True)
        for row in rows[np.sort(first)]:
            for name, wanted in site.instruction.distances:
                least = least_apart(site, stream.fields[row], name, wanted)
                if least is not None:
                    text = (
                        f"{name_of(stream, row)}, comes back to an element of {name} after {least} "
                        f"of its iterations, and needs {wanted}"
                    )
                    return Fault(FaultKind.DISTANCE, (int(row),), text)
    return None


# ---------------------------------------------------------------- results


def _results_there(stream: Stream, found: Boxes | None) -> Fault | None:
    own = _exposed(stream, found)
    if own is None:
        return None
    begins, ready = _least_times(stream, durations(stream))
    late = np.flatnonzero((own >= 0) & (begins < ready[own]))
    if not len(late):
        return None
    row, other = int(late[0]), int(own[late[0]])
    text = (
        f"{name_of(stream, row)}, may begin {ready[other] - begins[row]} cycles before what it "
        f"reads of {name_of(stream, other)}, is there, and {stream.target.name} does not wait"
    )
    return Fault(FaultKind.DISTANCE, (other, row), text)


def _exposed(stream: Stream, found: Boxes | None) -> np.ndarray | None:
    """The last instruction of its queue that each reads results of without the chip waiting for
    them; -1 for none. None if there are no such instructions."""
    if all(s.instruction.cost.hazard is not Hazard.EXPOSED for s in stream.sites):
        return None
    return hazards(stream, found)[:, Hazard.EXPOSED]


def _least_times(stream: Stream, times: Durations) -> tuple[np.ndarray, np.ndarray]:
    """When each instruction begins at the soonest, by the time that those before it in its queue
    take, and from when on its exposed results are there: results come in the queue's order."""
    queue = queue_numbers(stream)
    begins, ready = np.zeros(len(stream), np.int64), np.zeros(len(stream), np.int64)
    for q in np.unique(queue):
        rows = np.flatnonzero(queue == q)
        begins[rows] = np.cumsum(times.work[rows]) - times.work[rows]
        ready[rows] = np.maximum.accumulate(begins[rows] + times.exposed[rows])
    return begins, ready


def keep_distances(stream: Stream, found: Boxes) -> tuple[Stream, Boxes]:
    """The stream with instructions that do nothing where results would be read too early, and what
    it touches. CompileError for a queue that has no such instruction."""
    own = _exposed(stream, found)
    if own is None:
        return stream, found
    begins, ready = _least_times(stream, durations(stream))
    rows, counts = _missing(stream, own, begins, ready)
    if not rows:
        return stream, found
    before = np.repeat(rows, counts)
    spaced = insert_idle(stream, before, queue_numbers(stream)[before].tolist())
    return spaced, boxes(spaced)


def _missing(
    stream: Stream, own: np.ndarray, begins: np.ndarray, ready: np.ndarray
) -> tuple[list[int], list[int]]:
    """Instructions before which some that do nothing must stand, and how many."""
    queue = queue_numbers(stream)
    found: dict[int, list[int]] = {q: [] for q in range(len(stream.target.queues))}  # rows, and
    later: dict[int, list[int]] = {q: [0] for q in found}  # cycles that all from there on are later
    rows, counts, total = [], [], 0
    for row in np.flatnonzero(own >= 0).tolist():
        q, other = int(queue[row]), int(own[row])
        delay = later[q][bisect_right(found[q], other)]
        short = int(ready[other]) + delay - int(begins[row]) - later[q][-1]
        if short <= 0:
            continue
        each = _idle_cycles(stream, row, other)
        count = -(-short // each)
        total += count
        if total > MOST_IDLE:
            raise CompileError(
                f"{name_of(stream, row)}, must begin {short:,} cycles later for what it reads of "
                f"{name_of(stream, other)}: more than {MOST_IDLE:,} instructions that do nothing",
                hint=f"correct the cost of {stream.sites[stream.site[other]].instruction}, "
                "exposed=…, or describe one that does nothing for longer",
            )
        found[q].append(row)
        later[q].append(later[q][-1] + count * each)
        rows.append(row)
        counts.append(count)
    return rows, counts


def _idle_cycles(stream: Stream, row: int, other: int) -> int:
    """How long the instruction that does nothing, of the queue of these two, keeps the queue."""
    queue = stream.sites[stream.site[row]].instruction.queue
    idle = stream.target.idle(queue)
    cycles = idle.cost.setup + idle.cost.busy if idle is not None else 0
    if not isinstance(cycles, int) or cycles < 1:
        raise CompileError(
            f"{name_of(stream, row)}, comes too soon behind {name_of(stream, other)}, whose "
            f"results it reads, and {stream.target.name} has nothing to put between them",
            hint=f"describe an instruction of {queue} that does nothing (`pass`), and takes a "
            "cycle: cost(busy=1)",
        )
    return cycles
