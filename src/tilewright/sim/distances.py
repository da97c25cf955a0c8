"""What a chip does not look after, and the compiler must: hardware loops that come back to an
element too soon, results that are read before they are there (`distance`, `cost(exposed=…)`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.codegen.stream import Site, Stream
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Expr, Var, as_expr
from tilewright.ir.instruction import Hazard, Instruction
from tilewright.ir.loop import For, walk_statements
from tilewright.sim.boxes import Boxes, boxes, hazards, queue_numbers
from tilewright.sim.durations import Durations, durations
from tilewright.sim.faults import Fault, Kind, name_of
from tilewright.sim.idle import insert_idle


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
                least = _least_distance(site, stream.fields[row], name)
                if least is not None and least < wanted:
                    text = (
                        f"{name_of(stream, row)}, comes back to an element of {name} after {least} "
                        f"of its iterations, and needs {wanted}"
                    )
                    return Fault(Kind.DISTANCE, (int(row),), text)
    return None


def _least_distance(site: Site, fields: np.ndarray, name: str) -> int | None:
    """Iterations of an instruction's hardware loops between two that touch the same element of an
    operand, at least; None if none does."""
    instruction = site.instruction
    (number,) = (o for o, b in enumerate(instruction.operands) if b.name == name)
    env: dict[Expr, np.ndarray] = {
        f.symbol: value for f, value in zip(instruction.fields, fields, strict=False)
    }
    loops = [x for x in walk_statements(instruction.body) if isinstance(x, For)]
    loops = [x for x in loops if not isinstance(x.extent, int)]
    counts = [int(evaluate_expr(as_expr(x.extent), env, {})) for x in loops]
    place = np.zeros(counts, np.int64)
    for d, (loop, count) in enumerate(zip(loops, counts, strict=True)):
        along = [-1 if k == d else 1 for k in range(len(loops))]
        place = place + _moves(site, number, loop.var, count, env).reshape(along)
    flat = place.reshape(-1)
    order = np.argsort(flat, kind="stable")
    same = np.diff(flat[order]) == 0
    return int(np.diff(order)[same].min()) if same.any() else None


def _moves(site: Site, number: int, var: Var, count: int, env: dict) -> np.ndarray:
    """Bytes from an operand's first element to where each iteration of a loop finds it."""
    instruction, operand = site.instruction, site.instruction.operands[number]
    moved = np.zeros(count, np.int64)
    for d, subscript in enumerate(_subscripts(instruction, operand)):
        if subscript != var:
            continue
        offsets = site.offsets[number] if site.offsets else None
        if d == instruction.listed(operand) and offsets is not None:
            moved = moved + offsets[:count]
        else:
            step = int(evaluate_expr(as_expr(instruction.step(operand, d)), env, {}))
            moved = moved + np.arange(count) * step * operand.dtype.bytes
    return moved


def _subscripts(instruction: Instruction, operand: Buffer) -> tuple[Expr, ...]:
    stores = (x for x in walk_statements(instruction.body) if hasattr(x, "indices"))
    return next(x.indices for x in stores if x.buffer == operand)


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
    return Fault(Kind.DISTANCE, (other, row), text)


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
    takes = times.setup + np.maximum(times.busy, times.transfer.max(1, initial=0))
    begins, ready = np.zeros(len(stream), np.int64), np.zeros(len(stream), np.int64)
    for q in np.unique(queue):
        rows = np.flatnonzero(queue == q)
        begins[rows] = np.cumsum(takes[rows]) - takes[rows]
        ready[rows] = np.maximum.accumulate(begins[rows] + times.exposed[rows])
    return begins, ready


def keep_distances(stream: Stream, found: Boxes) -> tuple[Stream, Boxes]:
    """The stream with instructions that do nothing where results would be read too early, and what
    it touches. CompileError for a queue that has no such instruction."""
    own = _exposed(stream, found)
    if own is None:
        return stream, found
    begins, ready = _least_times(stream, durations(stream))
    missing = list(_missing(stream, own, begins, ready))
    if not missing:
        return stream, found
    before = np.array([row for row, count in missing for _ in range(count)])
    spaced = insert_idle(stream, before, queue_numbers(stream)[before].tolist())
    return spaced, boxes(spaced)


def _missing(
    stream: Stream, own: np.ndarray, begins: np.ndarray, ready: np.ndarray
) -> Iterator[tuple[int, int]]:
    """Instructions before which so many that do nothing must stand."""
    queue, later = queue_numbers(stream), np.zeros(len(stream), np.int64)
    for row in np.flatnonzero(own >= 0):
        mine = queue == queue[row]
        short = int(ready[own[row]] + later[own[row]] - begins[row] - later[row])
        if short > 0:
            name = stream.target.queues[queue[row]].name
            count = -(-short // _idle_cycles(stream, name, row, int(own[row])))
            later[np.flatnonzero(mine & (np.arange(len(stream)) >= row))] += count * _idle_cycles(
                stream, name, row, int(own[row])
            )
            yield int(row), count


def _idle_cycles(stream: Stream, queue: str, row: int, other: int) -> int:
    idle = stream.target.idle(queue)
    busy = idle.cost.busy if idle is not None else 0
    if not isinstance(busy, int) or busy < 1:
        raise CompileError(
            f"{name_of(stream, row)}, comes too soon behind {name_of(stream, other)}, whose "
            f"results it reads, and {stream.target.name} has nothing to put between them",
            hint=f"describe an instruction of {queue} that does nothing (`pass`), and takes a "
            "cycle: cost(busy=1)",
        )
    return busy
