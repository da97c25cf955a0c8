"""All loops over tiles as one, whose iterations overlap."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilewright.analyze.rewrite import uses
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Call,
    Stmt,
    buffers_written,
    walk_statements,
)
from tilewright.plan.rates import reads
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target


def hoist_all(s: Schedule, around: Sequence[Loop], result: str = "") -> None:
    """Brings what is the same in every iteration of a loop before it, and then what is made of
    that. The result stays where it is, also where one tile has all of it, and so does what several
    statements make: sums, which are cleared and added to, overlap with other tiles there."""
    for loop in reversed(around):
        body = s.for_(loop).body
        allocs = [x.buffer for x in body if isinstance(x, Alloc)]
        once = [b for b in allocs if sum(b in buffers_written((x,)) for x in body) == 1]
        left, count = [b for b in once if b.name != result], 0
        while len(left) != count:
            count = len(left)
            left = [b for b in left if not attempt(s.hoist, b, loop)]


def flatten(
    s: Schedule,
    around: Sequence[Loop],
    result: str,
    depth: int,
    tiles: int,
    once: Sequence[str] = (),
) -> Loop:
    """Makes one loop of those over tiles. Buffers that an outer one fills for an inner one have
    `depth` places, that of the result has `tiles`, and those named in `once` have one."""
    loop = around[0]
    for inner in around[1:]:
        used, turns = s.for_(inner).body, s.for_(loop).extent
        for stmt in s.for_(loop).body:
            if isinstance(stmt, Alloc) and any(uses(x, stmt.buffer) for x in used):
                places = tiles if stmt.buffer.name == result else depth
                places = 1 if stmt.buffer.name in once else places
                places = min(places, turns) if isinstance(turns, int) else places
                s.multi_buffer(stmt.buffer, [loop], places)
        s.sink(loop, inner)
        loop = s.fuse(loop, inner)
    return loop


def stages_of(
    s: Schedule,
    target: Target,
    loop: Loop,
    distance: int,
    buffers: int = 2,
    cleared: int = 0,
    late: Collection[Buffer] = (),
) -> tuple[int, ...]:
    """Returns the pipeline's stage of each statement: loads are a prefetch distance before work,
    unless they fill buffers of `late`; what reads nothing and clears sums is so many steps before
    it, stores are as late as the result's buffers allow."""
    work = max(distance, cleared)
    outside = {b.memory for b in s.kernel.params if target.memory(b.memory).size is None}

    def stage(stmt: Stmt) -> int:
        calls = [x for x in walk_statements((stmt,)) if isinstance(x, Call)]
        into = buffers_written((stmt,))
        written = {b.memory for b in into}
        read = {r.buffer.memory for x in calls for r in x.regions} - written
        if outside & written:
            return work + buffers - 1
        if not any(reads(x.instruction) for x in calls):
            return work - cleared
        # A unit may read outside as well: it adds, or reads something of the chip.
        inner = (y for x in calls for y in walk_statements(x.instruction.body))
        loads = read and read <= outside and not any(isinstance(y, Accumulate) for y in inner)
        return work - distance if loads and not into & set(late) else work

    found = [stage(x) for x in s.for_(loop).body if not isinstance(x, Alloc)]
    return tuple(n - min(found) for n in found)  # there may be no loads


def stages_by_queue(s: Schedule, loop: Loop, distance: int) -> tuple[int, ...]:
    """Returns the pipeline's stage of each statement so that every queue works on a step of its
    own: a statement is one step behind those of other queues that make what it reads, loads are
    `distance` steps ahead of what reads them, and what reads nothing is a step before its buffer is
    first used: it would be done only once all before it in its queue is."""
    params = frozenset(s.kernel.params)
    body = [_Statement.of(x) for x in s.for_(loop).body if not isinstance(x, Alloc)]
    stages: list[int] = []
    for k, stmt in enumerate(body):
        before = [(body[n], stages[n]) for n in range(k) if body[n].touched & stmt.touched]
        behind = [
            at + (0 if x.queues == stmt.queues else distance if x.read & params else 1)
            for x, at in before
            if x.written & stmt.read
        ]
        stages.append(max([at for _, at in before] + behind, default=0))
    for k in reversed(range(len(body))):
        users = [stages[n] for n in range(k + 1, len(body)) if body[n].touched & body[k].written]
        if not body[k].read and users:
            stages[k] = max(0, min(users) - 1)
    return tuple(n - min(stages) for n in stages)


def places_by_queue(s: Schedule, loop: Loop, stages: Sequence[int]) -> dict[str, int]:
    """How many steps of a pipeline with these stages have something in a buffer at once, of those
    of the loop, by name."""
    body = [_Statement.of(x) for x in s.for_(loop).body if not isinstance(x, Alloc)]
    found: dict[str, int] = {}
    for stmt in s.for_(loop).body:
        if isinstance(stmt, Alloc):
            at = [n for x, n in zip(body, stages, strict=True) if stmt.buffer in x.touched]
            found[stmt.buffer.name] = 1 + max(at) - min(at) if at else 1
    return found


@dataclass(frozen=True)
class _Statement:
    """The queues that a statement's calls are for, and the buffers that it reads and writes."""

    queues: frozenset[str]
    read: frozenset[Buffer]
    written: frozenset[Buffer]

    @classmethod
    def of(cls, stmt: Stmt) -> _Statement:
        calls = [x for x in walk_statements((stmt,)) if isinstance(x, Call)]
        written = frozenset(buffers_written((stmt,)))
        read = frozenset(r.buffer for x in calls if reads(x.instruction) for r in x.regions)
        return cls(frozenset(x.instruction.queue for x in calls), read, written)

    @property
    def touched(self) -> frozenset[Buffer]:
        return self.read | self.written
