"""Random chips with all kinds of memories, queues, waits and dependences; random streams for them,
and the same streams as tests/support/slow_clock.py takes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import slow_clock
from handmade_streams import Row, stream_of

from tilewright import grid, u8
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits
from tilewright.ir.instruction import Instruction
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost
from tilewright.target.target import Target

BYTES = 256  # of a memory
LATENCIES = (0, 1, 2, 7, 30, 200, 1000)
WAITS = ("interlock", "tokens", "events", "barriers", "tokens and events")
COUNT = Range(0, 2000)
MOST = 24  # bytes of an instruction


@dataclass(frozen=True)
class Kind:
    """An instruction: its queue, its memories, how its own queue treats its results, whether it
    adds to its result."""

    queue: str
    source: str
    result: str
    hazard: str
    adds: bool

    @property
    def name(self) -> str:
        does = "add" if self.adds else "copy"
        return f"{self.queue}_{does}_{self.source}_{self.result}_{self.hazard}"


@dataclass(frozen=True)
class Chip:
    """A random chip: its description, and what tests know of it without reading that."""

    target: Target
    kinds: tuple[Kind, ...]


def random_chip(rng: np.random.Generator) -> Chip:
    t = TargetBuilder("random", clock=1e9)
    memories = [f"m{k}" for k in range(rng.integers(1, 4))]
    for name in memories:
        bandwidth = rng.choice([None, 1, 3, 8])
        t.memory(
            name, BYTES, bandwidth=bandwidth, latency=int(rng.choice(LATENCIES)),
            banks=int(rng.choice([1, 1, 2, 4])),
        )  # fmt: skip
    queues = [f"q{k}" for k in range(rng.integers(1, 5))]
    for name in queues:
        t.queues(name, depth=int(rng.choice([1, 2, 4, 64])))
    _wait(t, str(rng.choice(WAITS)), queues)
    t.issue(int(rng.choice([0, 1, 2, 9])))
    if rng.random() < 0.5:
        burst = int(rng.choice([1, 2, 5]))
        t.fetch(
            str(rng.choice(memories)), bytes=int(rng.choice([1, 4, 16])), burst=burst,
            ahead=burst * int(rng.choice([1, 2, 8])),
        )  # fmt: skip
    kinds = []
    for queue in queues:
        for hazard in ("stall", "forward", "exposed"):
            source, result = (str(rng.choice(memories)) for _ in range(2))
            kinds.append(Kind(queue, source, result, hazard, bool(rng.random() < 0.5)))
            _describe(t, kinds[-1])

        @t.instruction(queue, name=f"{queue}_nothing")
        def nothing():
            cost(busy=1)

    if rng.random() < 0.5:

        @t.instruction(str(rng.choice(queues)))
        def finish():
            cost(busy=1)

        t.end(finish)
    target = t.build()
    known = {k.name: k for k in kinds}
    costed = (_costed(i, known[i.name]) if i.name in known else i for i in target.instructions)
    return Chip(replace(target, instructions=tuple(costed)), tuple(kinds))


def _wait(t: TargetBuilder, kind: str, queues: Sequence[str]) -> None:
    pairs = [(a, b) for k, a in enumerate(queues) for b in queues[k + 1 :]]
    if kind == "interlock":
        t.interlock()
    elif kind == "tokens":
        t.tokens(*pairs)
    elif kind == "barriers":
        t.barriers()
    else:
        t.tokens(*(pairs[::2] if kind != "events" else ()))
        t.events(64)


def _describe(t: TargetBuilder, k: Kind) -> None:
    """One instruction: what it takes stands in its fields."""
    if k.adds:

        @t.instruction(k.queue, name=k.name)
        def add(
            a: u8[MOST] @ k.source, b: out(u8[MOST] @ k.result), n: Range(1, MOST), setup: COUNT,
            busy: COUNT, latency: COUNT, after: COUNT, near: COUNT, far: COUNT,
        ):  # fmt: skip
            for i in grid(n):
                b[i] += a[i]
            cost(setup=setup, busy=busy, latency=latency)

    else:

        @t.instruction(k.queue, name=k.name)
        def copy(
            a: u8[MOST] @ k.source, b: out(u8[MOST] @ k.result), n: Range(1, MOST), setup: COUNT,
            busy: COUNT, latency: COUNT, after: COUNT, near: COUNT, far: COUNT,
        ):  # fmt: skip
            for i in grid(n):
                b[i] = a[i]
            cost(setup=setup, busy=busy, latency=latency)


def _costed(i: Instruction, k: Kind) -> Instruction:
    """The instruction with the bytes of its memories, and what its queue does."""
    near, far, after = (i.field(name).symbol for name in ("near", "far", "after"))
    through = {k.source: near, k.result: far}
    given = {} if k.hazard == "stall" else {k.hazard: after}
    return i.with_(cost=i.cost.with_(through=tuple(through.items()), **given))


def random_stream(chip: Chip, rng: np.random.Generator, count: int) -> Stream:
    """So many instructions at random; source and destination of one lie apart. What is read too
    early is made rare: exposed results come after few cycles."""
    rows: list[Row] = []
    while len(rows) < count:
        k = chip.kinds[rng.integers(len(chip.kinds))]
        n = int(rng.choice([4, 8, 16, 24]))
        source, to = (int(8 * rng.integers(0, (BYTES - n) // 8 + 1)) for _ in range(2))
        if k.source == k.result and abs(source - to) < n:
            continue
        few = 40 if k.hazard == "exposed" else 1000
        values = {
            "n": n,
            "setup": int(rng.choice([0, 1, 16])),
            "busy": int(rng.choice([0, 1, 5, 60])),
            "latency": int(rng.choice(LATENCIES)),
            "after": min(few, int(rng.choice(LATENCIES))),
            "near": int(rng.choice([0, 1, n, 64])),
            "far": int(rng.choice([0, 1, n, 64])),
        }
        rows.append((k.name, values, (source, to)))
    if chip.target.end is not None:
        rows.append(("finish", {}, ()))
    sizes = {m.name: BYTES for m in chip.target.memories}
    return stream_of(chip.target, rows, sizes)


def as_steps(
    chip: Chip, stream: Stream, waits: Waits, starts: Sequence[int] = ()
) -> list[slow_clock.Step]:
    """A stream and its waits, as the slow clock takes them; at `starts` parts begin."""
    target, kinds = chip.target, {k.name: k for k in chip.kinds}
    names = [q.name for q in target.queues]
    steps = []
    for row in range(len(stream)):
        instruction = stream.sites[stream.site[row]].instruction
        queue = names.index(instruction.queue)
        common = {
            "takes": _channels(waits.pops[row], waits.awaits[row], queue, gives=False),
            "gives": _channels(waits.pushes[row], waits.sets[row], queue, gives=True),
            "barrier": bool(waits.barriers[row]) or row in starts,
            "part": row in starts,
        }
        kind = kinds.get(instruction.name)
        if kind is None:
            ends = instruction.name == "finish"
            steps.append(slow_clock.Step(queue, busy=1, ends=ends, **common))
            continue
        v = dict(
            zip((f.name for f in instruction.fields), stream.fields[row].tolist(), strict=False)
        )
        a, b = stream.addresses[row].tolist()
        moved = {kind.source: v["near"]}
        moved[kind.result] = v["far"]
        there, here = ({(m, at + k) for k in range(v["n"])} for m, at in
                       ((kind.source, a), (kind.result, b)))  # fmt: skip
        steps.append(
            slow_clock.Step(
                queue, v["setup"], v["busy"],
                v["latency"] + max([0, *(target.memory(m).latency for m, x in moved.items() if x)]),
                {m: math.ceil(x / target.memory(m).bandwidth) for m, x in moved.items()
                 if target.memory(m).bandwidth is not None},
                frozenset(there | (here if kind.adds else set())),
                frozenset(here),
                frozenset(_banks(target, there | here)),
                hazard=kind.hazard, forward=v["after"], **common,
            )
        )  # fmt: skip
    return steps


def _channels(tokens: int, events: int, me: int, *, gives: bool) -> list[object]:
    others = [p for p in range(16) if int(tokens) >> p & 1]
    pairs: list[object] = [(me, p) if gives else (p, me) for p in others]
    return pairs + [("event", e) for e in range(64) if int(events) >> e & 1]


def _banks(target: Target, touched: set) -> set:
    """From the first byte of each run to its last: here all that is touched."""
    found = set()
    for memory, byte in touched:
        m = target.memory(memory)
        if m.banks > 1:
            found.add((memory, byte * m.banks // BYTES))
    return found


def machine_of(target: Target) -> slow_clock.Machine:
    fetch = None
    if target.fetch is not None:
        memory, f = target.memory(target.fetch.memory), target.fetch
        limited = memory.bandwidth is not None
        channel, rate = (
            (memory.name, Fraction(memory.bandwidth)) if limited else (None, Fraction(1))
        )
        fetch = slow_clock.Fetching(channel, f.bytes, rate, f.burst, f.ahead, memory.latency)
    depths = [q.depth for q in target.queues]
    return slow_clock.Machine(depths, target.issue, target.interlock, fetch, target.token_depth)
