"""What would help: the chip with one fact better, and what the analytic model expects of the best
tiles there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.backends.stream.boxes import Boxes
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits
from tilewright.base.errors import CompileError, TargetError
from tilewright.ir.expr import Symbol
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import For, walk_statements
from tilewright.plan.units import units
from tilewright.sim.events import simulate
from tilewright.target.pairs import selectable
from tilewright.target.target import Memory, Target
from tilewright.target.vary import half, with_costs, with_memory, with_range, with_slots

NEAR = 4  # times what a field is, and beyond its range: larger tiles may need that


@dataclass(frozen=True)
class Change:
    """A better chip, in words. `limits` if the old one kept tiles out: a memory's size, its banks,
    a field's range."""

    what: str
    target: Target
    limits: bool = False


@dataclass(frozen=True)
class WhatIf:
    """Cycles that are expected after a change, and the share of the time that it saves."""

    change: str
    cycles: int
    gain: float


def ask(
    changes: Sequence[Change], now: float, expect: Callable[[Target], float | None]
) -> list[tuple[Change, WhatIf]]:
    """What is expected of each change, the best first."""
    found = []
    for change in changes:
        try:
            cycles = expect(change.target)
        except (CompileError, TargetError):
            continue  # that chip does it in no way that is asked for
        if cycles is not None:
            found.append((change, WhatIf(change.what, round(cycles), 1 - cycles / now)))
    return sorted(found, key=lambda pair: -pair[1].gain)


def retimed(stream: Stream, waits: Waits, found: Boxes | None, target: Target) -> int:
    """Cycles of the same instructions on a chip with other costs."""
    known = {i.name: i for i in target.instructions}
    sites = tuple(
        replace(s, call=s.call.with_(instruction=known.get(s.instruction.name, s.instruction)))
        for s in stream.sites
    )
    return simulate(replace(stream, target=target, sites=sites), waits, found=found).cycles


# ---------------------------------------------------------------- changes


def changes(target: Target, stream: Stream) -> list[Change]:
    """All that could be better for a stream, one at a time."""
    found = [*_speeds(target, stream), *_sizes(target), *_ranges(target, stream)]
    return [c for c in found if c.target != target]


def _speeds(target: Target, stream: Stream) -> Iterator[Change]:
    """Of memories, of moves, of the unit, of what else there is."""
    for m in target.memories:
        if m.bandwidth is not None:
            faster = with_memory(target, m.name, bandwidth=2 * m.bandwidth)
            yield Change(f"{m.name}: twice the bandwidth", faster)
        if m.latency:
            sooner = with_memory(target, m.name, latency=half(m.latency))
            yield Change(f"{m.name}: half the latency", sooner)
    used = list(dict.fromkeys(s.instruction.name for s in stream.sites))
    used = [i.name for i in target.instructions if i.name in used or target.bundles is not None]
    moves = [n for n in used if target.instruction(n).cost.setup != 0]
    yield Change(
        f"{', '.join(moves)}: set up in half the time", with_costs(target, "setup", half, moves)
    )
    of_unit = {u.instruction.name for u in units(target)} & set(used)
    rest = [n for n in used if n not in of_unit and target.instruction(n).cost.busy != 0]
    for names in (sorted(of_unit), rest):
        faster = with_costs(target, "busy", half, names)
        yield Change(f"{', '.join(names)}: twice as fast", faster)
    if target.bundles is not None:
        names = sorted(of_unit)
        sooner = with_costs(target, "latency", half, names)
        yield Change(f"{', '.join(names)}: half the latency", sooner)
        for slot, count in target.bundles.slots:
            more = with_slots(target, slot, 2 * count)
            yield Change(f"{slot}: {2 * count} slots in a bundle", more)


def _sizes(target: Target) -> Iterator[Change]:
    """Of memories: larger, or without banks."""
    sized = [m for m in target.memories if m.size is not None]
    for m in sized:
        yield Change(f"{_named(m)}: twice as large", _larger(target, m), limits=True)
        if m.banks > 1:
            free = with_memory(target, m.name, banks=1)
            yield Change(f"{_named(m)}: one bank, not {m.banks}", free, limits=True)
    if len(sized) > 1:
        every = target
        for m in sized:
            every = _larger(every, m)
        yield Change("every memory: twice as large", every, limits=True)


def _named(m: Memory) -> str:
    return f"{m.name} ({m.size:,} bytes)"


def _larger(target: Target, m: Memory) -> Target:
    assert m.size is not None
    return with_memory(target, m.name, size=2 * m.size)


def _ranges(target: Target, stream: Stream) -> Iterator[Change]:
    """Of fields that say how far a loop of an instruction goes, where that is near its most."""
    most: dict[tuple[str, str], int] = {}
    for k, site in enumerate(stream.sites):
        used = stream.fields[stream.rows(k)]
        for column, f in enumerate(site.instruction.fields if len(used) else ()):
            key = (site.instruction.name, f.name)
            most[key] = max(most.get(key, 0), int(used[:, column].max()))
    added = {i.pair[0].name: i.pair[1] for i in selectable(target) if i.pair is not None}
    for i in target.instructions:
        for k, f in enumerate(i.fields):
            if _is_extent(i, f) and f.high < NEAR * most.get((i.name, f.name), 0):
                wider = with_range(target, i.name, f.name, 2 * f.high)
                if i.name in added:  # what adds to sums has to go as far as what begins them
                    other = added[i.name]
                    wider = with_range(wider, other.name, other.fields[k].name, 2 * f.high)
                what = f"{f.name} of {i.name} (at most {f.high:,}): twice the range"
                yield Change(what, wider, limits=True)


def _is_extent(i: Instruction, f: Field) -> bool:
    loops = (s for s in walk_statements(i.body) if isinstance(s, For))
    return any(isinstance(s.extent, Symbol) and s.extent == f.symbol for s in loops)
