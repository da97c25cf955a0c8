"""One call of a model on several devices as a trace: the host, each device with the kernels that it
is given, and the device's queues, each in its own time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.program.host_program import STEPS, Submit, name_of_step, nodes_of
from tilewright.runtime.call_timeline import Span, runs_of, spans
from tilewright.runtime.device_run import DeviceRun
from tilewright.runtime.program import Program, StepFacts
from tilewright.runtime.trace_events import Event, block, process, track

PROCESS = 1  # beside that of the calls as they were timed


def device_events(program: Program, timed: Sequence[int]) -> Iterator[Event]:
    """Yields the events; `timed` are the nanoseconds that each step took here. There are none where
    the host runs everything."""
    runs, host = runs_of(program), program.host
    devices = list(dict.fromkeys(s.device for s in host.steps if isinstance(s, Submit)))
    if not devices:
        return
    yield process(f"{host.name or 'model'}: devices in their own time", PROCESS)
    yield from track(0, "host", PROCESS)
    tracks: dict[tuple[str, str], int] = {}
    for device in devices:
        known = [r for (d, _), r in runs.items() if d == device]
        for queue in ("", *dict.fromkeys(q for r in known for q in r.facts.queues)):
            tracks[device, queue] = len(tracks) + 1
            yield from track(tracks[device, queue], f"{device} {queue}".rstrip(), PROCESS)
    found = spans(host, program.steps, timed)
    for number, (step, facts, span) in enumerate(
        zip(host.steps, program.steps, found, strict=True)
    ):
        known_facts = {"step": number, "nodes": list(nodes_of(step))}
        name, kind = name_of_step(step), STEPS[type(step)]
        if not isinstance(step, Submit):
            yield _slice(0, name, kind, span, known_facts)
            continue
        yield _slice(
            tracks[step.device, ""], name, kind, span, known_facts | {"cycles": facts.cycles}
        )
        yield from _pieces(facts, span, tracks[step.device, ""])
        if (step.device, step.kernel) in runs:
            run = runs[step.device, step.kernel]
            queues = {k: tracks[step.device, q] for k, q in enumerate(run.facts.queues)}
            yield from _groups(run, span, queues)


def _slice(number: int, name: str, kind: str, span: Span, facts: Event) -> Event:
    begin = round(span.begin / 1e3, 6)
    return block(number, name, kind, begin, span.nanoseconds / 1e3, facts, PROCESS)


def piece_spans(facts: StepFacts, span: Span) -> Iterator[Span]:
    """Yields the spans of the kernels that a device does in one step, one after another."""
    done, cycle = 0, span.nanoseconds / max(facts.cycles or 0, 1)
    for piece in facts.pieces:
        begin, done = done, done + piece.cycles
        yield Span(span.begin + begin * cycle, span.begin + done * cycle)


def _pieces(facts: StepFacts, span: Span, number: int) -> Iterator[Event]:
    for piece, part in zip(facts.pieces, piece_spans(facts, span), strict=True):
        known = {"nodes": list(piece.nodes), "cycles": piece.cycles, "at least alone": piece.bound}
        yield _slice(number, piece.kernel, "piece", part, known)


def _groups(run: DeviceRun, span: Span, tracks: Mapping[int, int]) -> Iterator[Event]:
    """Yields a slice for each group of instructions, on its queue's track."""
    cycle = 1e9 / run.facts.clock
    for queue, instruction, count, begin, end, busy in run.groups.T.tolist():
        part = Span(span.begin + begin * cycle, span.begin + end * cycle)
        known = {"instructions": count, "begin": begin, "end": end, "busy cycles": busy}
        name = run.facts.instructions[instruction] + (f" × {count}" if count > 1 else "")
        yield _slice(tracks[queue], name, "instructions", part, known)
