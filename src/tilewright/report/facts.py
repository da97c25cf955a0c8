"""What a report shows of a model's call, as numbers and texts: steps and their pieces, how values
pass between them, how much memory is in use, and what the devices can do at best."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.base.errors import InputError
from tilewright.program.host_program import Copy, HostCall, HostStep, KernelCall, Submit, Wait
from tilewright.program.size import Size, evaluate_size
from tilewright.report.bounds import find_bound
from tilewright.report.flow import Edge, MemoryTrack, find_edges, memory_tracks
from tilewright.report.limits import Limits
from tilewright.runtime.call_timeline import Span, runs_of, spans
from tilewright.runtime.device_run import DeviceRun
from tilewright.runtime.device_trace import piece_spans
from tilewright.runtime.profile import Profile, StepTime
from tilewright.runtime.program import Program, StepFacts

PIECE = "piece"
COLOURS = 6  # in page.css


@dataclass(frozen=True)
class Item:
    """A step of a call, or one of the kernels (a piece) of which a step of a device is made.

    `span` is when it takes place; `least` are the nanoseconds that it takes at least, for want of
    what `limit` says; `model` those that the model which chose a chip's tiles expects. `here` is
    what it took on this machine, a simulated chip's kernel with its simulation. `why` says what
    keeps devices from a step of the host, `after` has the pieces that it follows, by their `id`.
    """

    id: str
    step: int
    kind: str
    title: str
    kernel: str
    device: str
    nodes: tuple[str, ...]
    span: Span
    here: float | None = None
    least: float | None = None
    limit: str = ""
    model: float | None = None
    operations: int | None = None
    bytes: int | None = None
    cycles: int | None = None
    why: tuple[str, ...] = ()
    fallback: str = ""
    after: tuple[str, ...] = ()

    @property
    def of_bound(self) -> float | None:
        """How near it is to the least: 1 cannot be faster."""
        taken = self.span.nanoseconds
        return None if self.least is None or taken <= 0 else self.least / taken


@dataclass(frozen=True)
class Roof:
    """What a device does at best: `rates` of arithmetic in operations a second, and `memories` in
    bytes a second, both by name."""

    device: str
    rates: tuple[tuple[str, float], ...]
    memories: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Report:
    """All that a page shows. `nanoseconds` is a call with each device in its own time, and `here`
    the median of `calls` on this machine; `runs` are by device and kernel."""

    model: str
    target: str
    nanoseconds: float
    here: float
    calls: int
    devices: tuple[str, ...]  # the host first: what runs all that is no other's
    items: tuple[Item, ...]
    edges: tuple[Edge, ...]
    tracks: tuple[MemoryTrack, ...]
    roofs: tuple[Roof, ...]
    runs: Mapping[tuple[str, str], DeviceRun]

    @property
    def host(self) -> str:
        return self.devices[0]

    @property
    def simulated(self) -> bool:
        return bool(self.runs)

    @property
    def colours(self) -> dict[str, str]:
        """The class of each device's colour in page.css."""
        return {name: f"d{k % COLOURS}" for k, name in enumerate(self.devices)}


def gather(profile: Profile, limits: Limits | None) -> Report:
    """The report of a profile that a Module made; without `limits`, what the host does at best is
    what its description says."""
    program = profile.program
    if program is None:
        raise InputError(
            "this profile does not say what was run", hint="profile = module.profile(x)"
        )
    runs = runs_of(program)
    timed = [s.nanoseconds for s in profile.steps]
    found = spans(program.host, program.steps, timed)
    devices = _devices(program)
    items: list[Item] = []
    for number, span in enumerate(found):
        items += _items(profile, program, number, span, limits, runs, devices[0])
    return Report(
        model=profile.model or "model",
        target=str(program.target),
        nanoseconds=max((s.end for s in found), default=0.0),
        here=float(profile.nanoseconds),
        calls=profile.calls,
        devices=devices,
        items=tuple(items),
        edges=tuple(find_edges(program, profile.symbols)),
        tracks=tuple(memory_tracks(program, profile.symbols, runs, devices[0])),
        roofs=tuple(_roofs(program, limits, runs, devices[0])),
        runs=runs,
    )


def _devices(program: Program) -> tuple[str, ...]:
    """The devices by name, first the host, which is called as its kernels say."""
    steps = program.host.steps
    called = list(dict.fromkeys(s.device for s in steps if isinstance(s, KernelCall)))
    others = list(dict.fromkeys(s.device for s in steps if isinstance(s, Submit)))
    return (*(called or ["this machine" if "host" in others else "host"]), *others)


# ---------------------------------------------------------------- steps


def _items(
    profile: Profile,
    program: Program,
    number: int,
    span: Span,
    limits: Limits | None,
    runs: Mapping[tuple[str, str], DeviceRun],
    host: str,
) -> Iterator[Item]:
    """Yields a step, and the kernels of which it is made where they are several."""
    step, facts, timed = program.host.steps[number], program.steps[number], profile.steps[number]
    least, limit = _least(timed, facts, span, limits)
    run = runs.get((timed.device, timed.name))
    expected = None if run is None else run.facts.expected
    cycle = _cycle(facts, span)
    yield Item(
        id=str(number),
        step=number,
        kind=timed.kind,
        title=_title(step, timed, len(facts.pieces), host),
        kernel=timed.name,
        device=step.device if isinstance(step, KernelCall | Submit) else host,
        nodes=timed.nodes,
        span=span,
        here=float(timed.nanoseconds),
        least=least,
        limit=limit,
        model=None if expected is None else expected * cycle,
        operations=timed.operations,
        bytes=timed.bytes if run is None else run.facts.moved,
        cycles=facts.cycles,
        why=facts.obstacles,
        fallback=facts.fallback,
    )
    for k, (piece, part) in enumerate(zip(facts.pieces, piece_spans(facts, span), strict=True), 1):
        yield Item(
            id=f"{number}.{k}",
            step=number,
            kind=PIECE,
            title=plain_name(piece.kernel),
            kernel=piece.kernel,
            device=timed.device,
            nodes=piece.nodes,
            span=part,
            least=None if piece.bound is None else piece.bound * cycle,
            limit=CYCLES if piece.bound is not None else "",
            operations=_number(piece.operations, profile.symbols),
            bytes=_number(piece.bytes, profile.symbols),
            cycles=piece.cycles,
            after=tuple(f"{number}.{a + 1}" for a in piece.after),
        )


CYCLES = "no order of the chip's instructions is faster"
LIMITS = {
    "compute": "its arithmetic, at the best rate of this machine",
    "memory": "its bytes, at the rate of this machine's",
    "overhead": "what a step takes that does nothing",
}


def _least(
    timed: StepTime, facts: StepFacts, span: Span, limits: Limits | None
) -> tuple[float | None, str]:
    """The least nanoseconds that a step takes, and what for."""
    if facts.bound is not None:
        return facts.bound * _cycle(facts, span), CYCLES
    bound = None if limits is None else find_bound(timed, limits)
    if bound is None:
        return None, ""
    memory = f" {bound.memory}" if bound.memory else ""
    return bound.nanoseconds, LIMITS[bound.limit] + memory


def _cycle(facts: StepFacts, span: Span) -> float:
    """Nanoseconds."""
    return span.nanoseconds / max(facts.cycles or 0, 1)


def _number(size: Size | None, symbols: Mapping[str, int]) -> int | None:
    return None if size is None else evaluate_size(size, symbols)


def plain_name(kernel: str) -> str:
    """ "conv add relu" of "k1_conv_add_relu"."""
    return re.sub(r"^k\d+_", "", kernel).replace("_", " ")


def _title(step: HostStep, timed: StepTime, pieces: int, host: str) -> str:
    match step:
        case Copy():
            return f"copy to {timed.device or host}"
        case Wait():
            return f"wait for {step.device}"
        case HostCall():
            return step.op
        case KernelCall() if not step.nodes:
            return f"arrange ({step.kernel})"
    if pieces:
        return f"{pieces} kernels as one stream"
    return plain_name(timed.name)


# ---------------------------------------------------------------- what devices do at best


def _roofs(
    program: Program, limits: Limits | None, runs: Mapping[tuple[str, str], DeviceRun], host: str
) -> Iterator[Roof]:
    yield _host_roof(program, limits, host)
    for device in dict.fromkeys(d for d, _ in runs):
        facts = next(r.facts for (d, _), r in runs.items() if d == device)
        peak, rate = facts.operations_per_second, facts.bytes_per_second
        yield Roof(
            device,
            () if peak is None else (("peak", float(peak)),),
            () if rate is None else ((facts.memories[0].name, float(rate)),),
        )


def _host_roof(program: Program, limits: Limits | None, host: str) -> Roof:
    if limits is None:
        peak, rate = program.target.operations_per_second, program.target.bytes_per_second
        described = () if peak is None else (("float32, as described", float(peak)),)
        return Roof(host, described, () if rate is None else (("memory", float(rate)),))
    rates = {"float32": limits.operations_per_second}
    for name, rate_of in limits.rates:
        if rate_of > 1.05 * max(rates.values()):  # what is as fast would hide the other's name
            rates[name] = rate_of
    levels = tuple((one.name, one.bytes_per_second) for one in limits.levels)
    return Roof(host, tuple(rates.items()), levels)


COPIES = ""  # in the place of a device's name


def busy(report: Report) -> dict[str, float]:
    """How long each device runs, and data are copied (COPIES), where that is at all."""
    spent = dict.fromkeys((report.host, COPIES, *report.devices[1:]), 0.0)
    for item in report.items:
        if item.kind not in (PIECE, "wait"):
            spent[COPIES if item.kind == "copy" else item.device] += item.span.nanoseconds
    return {name: ns for name, ns in spent.items() if ns or name == report.host}
