"""Traces in the Trace Event Format, which https://ui.perfetto.dev and Chrome show.

A trace is a list of events: names of processes and of their tracks, and slices on the tracks, which
may lie inside each other. Times are in microseconds, as the format wants.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tilewright.runtime.atomic import write_atomically

Event = dict[str, Any]


def process(name: str, number: int = 0) -> Event:
    """A process's name; its tracks are shown together."""
    return {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}}


def track(number: int, name: str, process: int = 0) -> Iterator[Event]:
    """A track's name; tracks are shown in the order of their numbers."""
    one = {"ph": "M", "pid": process, "tid": number}
    yield one | {"name": "thread_name", "args": {"name": name}}
    yield one | {"name": "thread_sort_index", "args": {"sort_index": number}}


def block(
    number: int,
    name: str,
    kind: str,
    begin: float,
    duration: float,
    arguments: Event,
    process: int = 0,
) -> Event:
    """A slice of a process's track `number`, from `begin` on, for so long."""
    one = {"ph": "X", "pid": process, "tid": number, "name": name, "cat": kind}
    return one | {"ts": begin, "dur": round(duration, 6), "args": arguments}


def trace(events: Iterable[Event]) -> dict[str, Any]:
    """A whole trace, as JSON's values."""
    return {"displayTimeUnit": "ns", "traceEvents": list(events)}


def write_trace(path: str | Path, events: Iterable[Event]) -> None:
    """Writes a trace: all of it or nothing. ArtifactError if it cannot be written."""
    text = json.dumps(trace(events), separators=(",", ":"), ensure_ascii=False)
    write_atomically(Path(path), lambda file: file.write(text.encode()))
