"""Instructions of different queues on the same data: in order, with each wait left out, and with
their queues full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.backends.stream.rows import stream_of_rows
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Synchronised
from tilewright.base.errors import CompileError, TilewrightError
from tilewright.check.cases import Case, CaseMaker, memory_sizes, rows_of
from tilewright.check.engine import Engine, are_safe, left_out, run, simulator, synchronised
from tilewright.check.problem import operands_read, operands_written
from tilewright.check.reference import differences, random_memories
from tilewright.sim.events import simulate
from tilewright.target.target import Target

KINDS = ("RAW", "WAR", "WAW")
MORE = 2  # instructions than a queue holds


@dataclass(frozen=True)
class HazardReport:
    """Pairs of instructions of which one must wait for the other: how many are `ordered`, by waits
    or by the chip's `interlock`; how many waits were `left_out` in turn, and how often that was
    `caught`; which pairs nothing can order; how many pairs of queues were filled beyond their
    depth; and what went wrong."""

    ordered: int
    left_out: int
    caught: int
    unordered: tuple[str, ...]
    filled: int
    failures: tuple[str, ...]
    interlock: bool = False

    @property
    def conforms(self) -> bool:
        return not self.failures and self.caught == self.left_out


@dataclass(frozen=True)
class Pair:
    """Two instructions of the target, by their positions, and the operands of both that are the
    same bytes. `kind` says what the two do there: RAW is a read after a write."""

    first: int
    second: int
    operand: int
    other: int
    kind: str

    def text(self, target: Target) -> str:
        """ "mvin then gemm on spad"."""
        first, second = (target.instructions[k] for k in (self.first, self.second))
        return f"{first.name} then {second.name} on {first.operands[self.operand].memory}"


def pairs(target: Target) -> Iterator[Pair]:
    """Every two instructions of different queues, with every two operands in one memory of which
    one is written. What is in bundles is in no queue."""
    bundled = target.bundles is not None
    found = [] if bundled else list(enumerate(target.instructions))
    for a, x in found:
        for b, y in found:
            for kind in KINDS if x.queue != y.queue else ():
                did = operands_read(x) if kind == "WAR" else operands_written(x)
                does = operands_read(y) if kind == "RAW" else operands_written(y)
                for operand in did:
                    for other in does:
                        if operand.memory == other.memory:
                            o, p = x.operands.index(operand), y.operands.index(other)
                            yield Pair(a, b, o, p, kind)


def check_hazards(target: Target, engine: Engine, rng: np.random.Generator) -> HazardReport:
    """Tries every pair: the waits that the compiler derives must order it, and do so no longer when
    one is left out. A device other than the simulator must come to its result."""
    ordered = tried = caught = 0
    unordered: dict[str, None] = {}
    full: dict[tuple[str, str], Pair] = {}
    failures = []
    for pair in pairs(target):
        stream = overlapped(target, pair, rng)
        if stream is None:
            continue
        try:
            done = synchronised(stream)
        except CompileError:
            unordered[pair.text(target)] = None
            continue
        spoiled = list(left_out(done.waits))
        tried += len(spoiled)
        caught += sum(not are_safe(done, w) for w in spoiled)
        wrong = "" if are_safe(done, done.waits) else "its waits do not order it"
        wrong = wrong or _difference(done, engine, rng)
        failures += [f"{pair.kind}, {pair.text(target)}: {wrong}"] * bool(wrong)
        ordered += not wrong
        queues = [target.instructions[k].queue for k in (pair.first, pair.second)]
        full.setdefault((queues[0], queues[1]), pair)
    for pair in full.values():
        wrong = _filled(target, pair, engine, rng)
        failures += [f"queues filled, {pair.text(target)}: {wrong}"] * bool(wrong)
    return HazardReport(
        ordered, tried, caught, tuple(unordered), len(full), tuple(failures), target.interlock
    )


def overlapped(
    target: Target, pair: Pair, rng: np.random.Generator, times: tuple[int, int] = (1, 1)
) -> Stream | None:
    """The two instructions, each so many times, on the same bytes; None if their other operands
    find no room beside these."""
    makers = [CaseMaker(target, k, rng) for k in (pair.first, pair.second)]
    operands = (pair.operand, pair.other)
    found = [m.small() for m in makers]
    one, other = (m.spots(values) for m, values in zip(makers, found, strict=True))
    if one is None or other is None:
        return None
    spots = one, other
    shared = max(s[o].span * s[o].repeats for s, o in zip(spots, operands, strict=True))
    memory = makers[0].instruction.operands[pair.operand].memory
    used = {memory: shared}
    both: list[Case] = []
    for maker, values, places, o in zip(makers, found, spots, operands, strict=True):
        addresses = maker.addresses(places, used, first=o)
        if addresses is None:
            return None
        both.append(maker.case(values, places, addresses))
    rows = rows_of(target, [both[0]] * times[0] + [both[1]] * times[1])
    return stream_of_rows(target, rows, memory_sizes(target))


def _difference(done: Synchronised, engine: Engine, rng: np.random.Generator) -> str:
    """Where a device leaves other memories than the simulator does, in words."""
    if engine is simulator:
        return ""
    stream = done.stream
    start = random_memories([s.instruction for s in stream.sites], rng, dict(stream.sizes))
    try:
        found = run(done, engine, start)
    except TilewrightError as error:
        return f"the device refuses it: {error.what}"
    return differences(stream, run(done, simulator, start), found)


def _filled(target: Target, pair: Pair, engine: Engine, rng: np.random.Generator) -> str:
    """What is wrong when more instructions wait than the queues of a pair hold."""
    depth = {q.name: q.depth for q in target.queues}
    queues = [target.instructions[k].queue for k in (pair.first, pair.second)]
    stream = overlapped(target, pair, rng, (depth[queues[0]] + MORE, depth[queues[1]] + MORE))
    if stream is None:
        return ""
    try:
        done = synchronised(stream)
        simulate(done.stream, done.waits, found=done.boxes)
    except CompileError as error:
        return error.what
    return _difference(done, engine, rng)
