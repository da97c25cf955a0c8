"""Where the time of a call goes, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilewright.base.words import nanoseconds, shorten
from tilewright.program.host_program import STEPS, name_of_step, nodes_of
from tilewright.program.size import Size, evaluate_size
from tilewright.runtime.atomic import as_path
from tilewright.runtime.device_trace import device_events
from tilewright.runtime.program import Program, StepInstruction
from tilewright.runtime.shapes import Signature
from tilewright.runtime.trace_events import Event, block, process, track, write_trace

WIDTH = 80  # columns of the table
BAR = 10  # columns of the longest bar
GAP = "  "


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of a model. `kind` is "call" (of a kernel), "host_call" (of a function of the
    caller's), "copy", "submit" (of a kernel, to a device) or "wait" (for one). `operations` and
    `bytes` are None where the compiler did not say."""

    kind: str
    name: str
    device: str
    nodes: tuple[str, ...]  # of the model
    nanoseconds: int  # median of all calls
    fastest: int
    operations: int | None
    bytes: int | None
    instruction: StepInstruction | None = None  # what multiplies and adds in it


@dataclass(frozen=True, slots=True)
class Profile:
    """Printed, it is a table of the steps; `save` writes what happened as a trace.

    `nanoseconds` is the median of whole calls, from the first step to the end of the last, and
    `fastest` the least. `stamps` has a row for each call: the times in nanoseconds before each step
    and after the last. `program` is what was run, for `symbols` of these values, on so many
    `threads`.
    """

    steps: tuple[StepTime, ...]
    nanoseconds: int
    fastest: int
    calls: int
    model: str = ""
    stamps: np.ndarray | None = field(default=None, repr=False, compare=False)
    program: Program | None = field(default=None, repr=False, compare=False)
    symbols: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    threads: int = field(default=1, repr=False, compare=False)

    def save(self, path: str | Path) -> None:
        """Writes every timed call as a trace, which https://ui.perfetto.dev and chrome://tracing
        open: all of it, or ArtifactError and nothing. Where there are devices besides the host, one
        call with their queues is in it too, in their own time."""
        write_trace(as_path(path, 'profile.save("trace.json")'), self._events())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"Profile({self.model}: {len(self.steps)} steps, {nanoseconds(self.nanoseconds)})"

    def _lines(self) -> Iterator[str]:
        yield (
            f"{self.model or 'the model'}: {nanoseconds(self.nanoseconds)} a call"
            f" (median of {self.calls}; fastest {nanoseconds(self.fastest)})"
        )
        spent = sum(s.nanoseconds for s in self.steps)
        longest = max((s.nanoseconds for s in self.steps), default=0)
        rows = [("#", "time", "share", "", "kernel", "nodes")]
        for i, s in enumerate(self.steps):
            share = f"{s.nanoseconds / max(1, spent):.1%}"
            bar = "▇" * round(BAR * s.nanoseconds / max(1, longest))
            rows.append(
                (str(i), nanoseconds(s.nanoseconds), share, bar, s.name, ", ".join(s.nodes))
            )
        rows.append(("", nanoseconds(spent), "100.0%", "", "all steps", ""))
        wide = [max(len(row[c]) for row in rows) for c in range(3)]
        room = WIDTH - sum(wide) - BAR - 5 * len(GAP)
        kernel = min(room // 2, max(len(row[4]) for row in rows))
        for number, time, share, bar, name, nodes in rows:
            numbers = (x.rjust(n) for x, n in zip((number, time, share), wide, strict=True))
            cells = (*numbers, bar.ljust(BAR))
            names = (shorten(name, kernel).ljust(kernel), shorten(nodes, room - kernel))
            yield GAP.join([*cells, *names]).rstrip()

    def _events(self) -> Iterator[Event]:
        yield process(self.model or "model")
        yield from track(0, "calls")
        if self.stamps is None or not len(self.stamps):
            return
        times = (self.stamps - self.stamps[0, 0]) / 1e3
        for number, row in enumerate(times.tolist()):
            yield block(0, f"call {number}", "call", row[0], row[-1] - row[0], {})
            for i, s in enumerate(self.steps):
                facts = {"step": i, "nodes": list(s.nodes), "device": s.device or "host"}
                facts |= {"operations": s.operations, "bytes": s.bytes}
                known = {k: v for k, v in facts.items() if v is not None}
                yield block(0, s.name, s.kind, row[i], row[i + 1] - row[i], known)
        if self.program is not None:
            yield from device_events(self.program, [s.nanoseconds for s in self.steps])


def make_profile(
    program: Program, signature: Signature, stamps: np.ndarray, threads: int
) -> Profile:
    """`stamps` has a row for each call: the times before each step and after the last."""
    spent = np.diff(stamps, axis=1)
    middle, least = np.median(spent, axis=0), np.min(spent, axis=0)
    host = program.host

    def amount(size: Size | None) -> int | None:
        return None if size is None else evaluate_size(size, signature.symbols)

    steps = tuple(
        StepTime(
            STEPS[type(step)],
            name_of_step(step),
            host.device_of(step),
            nodes_of(step),
            int(middle[i]),
            int(least[i]),
            amount(facts.operations),
            amount(facts.bytes),
            facts.instruction,
        )
        for i, (step, facts) in enumerate(zip(host.steps, program.steps, strict=True))
    )
    whole = stamps[:, -1] - stamps[:, 0]
    median, fastest = int(np.median(whole)), int(np.min(whole))
    return Profile(
        steps, median, fastest, len(stamps), host.name, stamps, program, signature.symbols, threads
    )
