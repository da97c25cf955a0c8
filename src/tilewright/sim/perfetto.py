"""A timeline as events of a trace (runtime/trace_events.py): a track for each queue.

An instruction's fields, and its times in cycles, are its arguments. Arrows lead from the
instruction that was waited for last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilewright.runtime.trace_events import Event, block, process, track
from tilewright.sim.boxes import queue_numbers

if TYPE_CHECKING:
    from tilewright.sim.timeline import Timeline


def events(timeline: Timeline) -> Iterator[Event]:
    """The trace of a timeline, event by event."""
    stream = timeline.stream
    yield process(stream.target.name)
    for q, queue in enumerate(stream.target.queues):
        yield from track(q, queue.name)
    queue_of = queue_numbers(stream).tolist()
    for row in range(len(stream)):
        yield _slice(timeline, row, queue_of[row])
        cause = int(timeline.cause[row])
        if cause >= 0 and timeline.wait[row] > 0:
            yield _arrow(timeline, "s", row, queue_of[cause], int(timeline.leave[cause]) - 1)
            yield _arrow(timeline, "f", row, queue_of[row], int(timeline.begin[row]))


def _slice(timeline: Timeline, row: int, queue: int) -> Event:
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
    return block(queue, instruction.name, "instruction", at, took, arguments)


def _arrow(timeline: Timeline, end: str, number: int, queue: int, cycle: int) -> Event:
    found = {"ph": end, "pid": 0, "tid": queue, "name": "wait", "cat": "wait", "id": number}
    return found | {"ts": _microseconds(timeline, cycle)} | ({"bp": "e"} if end == "f" else {})


def _microseconds(timeline: Timeline, cycle: int) -> float:
    return round(cycle / timeline.stream.target.clock * 1e6, 6)
