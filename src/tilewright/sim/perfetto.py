"""A timeline as a trace in the Trace Event Format, which Perfetto and Chrome show.

Times are in microseconds, as the format wants; an instruction's fields, and its times in cycles,
are its arguments. Arrows lead from the instruction that was waited for last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilewright.sim.boxes import queue_numbers

if TYPE_CHECKING:
    from tilewright.sim.timeline import Timeline

STALLS = ("issue", "wait", "bank", "bandwidth")


def trace(timeline: Timeline) -> dict[str, Any]:
    """The trace, as JSON's values."""
    return {"displayTimeUnit": "ns", "traceEvents": list(_events(timeline))}


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    stream = timeline.stream
    yield {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": stream.target.name}}
    for q, queue in enumerate(stream.target.queues):
        yield {"ph": "M", "pid": 0, "tid": q, "name": "thread_name", "args": {"name": queue.name}}
        yield {
            "ph": "M",
            "pid": 0,
            "tid": q,
            "name": "thread_sort_index",
            "args": {"sort_index": q},
        }
    queue_of = queue_numbers(stream).tolist()
    for row in range(len(stream)):
        yield _slice(timeline, row, queue_of[row])
        cause = int(timeline.cause[row])
        if cause >= 0 and timeline.wait[row] > 0:
            yield _arrow(timeline, "s", row, queue_of[cause], int(timeline.leave[cause]) - 1)
            yield _arrow(timeline, "f", row, queue_of[row], int(timeline.begin[row]))


def _slice(timeline: Timeline, row: int, queue: int) -> dict[str, Any]:
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
    stalls = {s: int(getattr(timeline, s)[row]) for s in STALLS}
    arguments |= {f"stalled: {s}": cycles for s, cycles in stalls.items() if cycles}
    if timeline.cause[row] >= 0:
        arguments["waited for"] = int(timeline.cause[row])
    at = _microseconds(timeline, begin)
    took = _microseconds(timeline, leave) - at
    return {
        "ph": "X", "pid": 0, "tid": queue, "name": instruction.name, "cat": "instruction",
        "ts": at, "dur": round(took, 6), "args": arguments,
    }  # fmt: skip


def _arrow(timeline: Timeline, end: str, number: int, queue: int, cycle: int) -> dict[str, Any]:
    found = {"ph": end, "pid": 0, "tid": queue, "name": "wait", "cat": "wait", "id": number}
    return found | {"ts": _microseconds(timeline, cycle)} | ({"bp": "e"} if end == "f" else {})


def _microseconds(timeline: Timeline, cycle: int) -> float:
    return round(cycle / timeline.stream.target.clock * 1e6, 6)
