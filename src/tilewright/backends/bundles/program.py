"""A kernel on a statically scheduled chip: sections of bundles, and transfers beside them.

The core goes through the program in order. It starts a transfer in one cycle, and then goes on;
where it needs what a transfer brings, or a transfer is to begin that needs another's, it waits:
`wait q, n` stalls it until at most n of the transfers that it started on queue q are not done.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.backends.bundles.check import check
from tilewright.backends.bundles.section_boxes import program_touched
from tilewright.backends.bundles.sections import CORE, Section, cut_sections
from tilewright.backends.stream.boxes import Boxes, boxes, dependences, hazards, queue_numbers
from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.durations import durations
from tilewright.backends.stream.faults import Fault, race
from tilewright.backends.stream.memory import check_memory
from tilewright.backends.stream.steps import check_steps
from tilewright.backends.stream.stream import Stream, expand_stream
from tilewright.backends.stream.waits import Waits, place_waits
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Cost, Hazard, Instruction
from tilewright.ir.loop import Call, For, Kernel, Stmt, map_block, map_inner_blocks
from tilewright.sim.timeline import COLUMNS, Timeline
from tilewright.target.target import Queue, Target

NEVER = 1 << 30  # more transfers than there are: no need to wait


@dataclass(frozen=True)
class TransferWait:
    """Until at most `left` transfers of a queue are under way."""

    queue: str
    left: int


@dataclass(frozen=True, eq=False)
class BundleProgram:
    """A kernel as sections and transfers. `waits` has what stands before each site of the stream
    in the code; the last queue of the stream is the core itself."""

    kernel: Kernel  # calls of sections and of transfers
    sections: Sequence[Section]
    stream: Stream
    boxes: Boxes
    waits: tuple[tuple[TransferWait, ...], ...]
    timeline: Timeline

    @property
    def tokens(self) -> Waits:
        """The waits as tokens between the core and the queues: what may happen in which order."""
        stream, core = self.stream, len(self.stream.target.queues) - 1
        queue, started = queue_numbers(stream), _started(stream)
        order = np.full((len(stream), core + 1), -1, np.int32)
        members = [np.flatnonzero(queue == q) for q in range(core + 1)]
        names = [q.name for q in stream.target.queues]
        for k, mine in enumerate(self.waits):
            rows = stream.rows(k)
            for wait in mine:
                q = names.index(wait.queue)
                done = started[rows, q] - wait.left
                late = done > 0
                order[rows[late], q] = members[q][done[late] - 1]
        # What the core waits for before it starts a transfer is done for all that it does then.
        works = members[core]
        order[works, :core] = np.maximum.accumulate(order[:, :core], axis=0)[works]
        transfers = np.flatnonzero(queue != core)
        before = started[transfers, core]
        order[transfers[before > 0], core] = members[core][before[before > 0] - 1]
        return place_waits(stream, order)


def make_program(
    kernel: Kernel, target: Target, constants: Mapping[Buffer, np.ndarray] = MappingProxyType({})
) -> BundleProgram:
    """The bundles and waits of a kernel that is all calls: proven, and timed. `constants` is what
    some of its buffers hold from the start."""
    assert target.bundles is not None
    outer, sections = cut_sections(kernel, target)
    for section in sections:
        fault = check(section.body, section.code, target)
        if fault is not None:
            raise CompileError(f"the bundles of {kernel.name} are wrong: {fault}")
    whole = _with_branches(outer, target)
    queues = (*target.queues, Queue(CORE, 1))
    names = [q.name for q in queues]
    linked = dataclasses.replace(
        target, queues=queues, tokens=tuple(itertools.combinations(names, 2))
    )
    stream = dataclasses.replace(expand_stream(whole, linked), constants=constants)
    found = boxes(stream, program_touched(stream, sections))
    need = dependences(stream, found)
    waits = place_core_waits(stream, need)
    wrong: object = (
        check_steps(stream)
        or check_memory(stream, (*kernel.inputs, *constants), found)
        or check_distances(stream, found)
        or check_core_waits(stream, need, waits, found)
    )
    if wrong is not None:
        raise CompileError(f"the transfers of {kernel.name} are wrong: {wrong}")
    return BundleProgram(whole, sections, stream, found, waits, run_timed(stream, waits, found))


def _with_branches(kernel: Kernel, target: Target) -> Kernel:
    """What goes around a transfer ends with a branch."""
    assert target.bundles is not None
    branch = Instruction("branch", (), (), (), CORE, Cost(busy=1 + target.bundles.branch))

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        return stmt.with_(body=(*stmt.body, Call(branch, ()))) if isinstance(stmt, For) else stmt

    return kernel.with_(body=map_block(kernel.body, visit))


# ---------------------------------------------------------------- waits


def _started(stream: Stream) -> np.ndarray:
    """started[i, q]: how many instructions of queue q come before instruction i."""
    queue = queue_numbers(stream)
    ones = queue[:, None] == np.arange(len(stream.target.queues))
    return np.asarray(np.cumsum(ones, axis=0) - ones)


def place_core_waits(stream: Stream, need: np.ndarray) -> tuple[tuple[TransferWait, ...], ...]:
    """What each site waits for, so that all needs are met; one that others imply is left out."""
    started = _started(stream)
    names = [q.name for q in stream.target.queues]
    found: list[list[TransferWait]] = []
    for k in range(len(stream.sites)):
        rows = stream.rows(k)
        mine = []
        for q, name in enumerate(names):
            needed = need[rows, q]
            if name == CORE or not (needed >= 0).any():
                continue
            done = np.where(needed >= 0, started[np.maximum(needed, 0), q] + 1, 0)
            left = np.where(needed >= 0, started[rows, q] - done, NEVER)
            mine.append(TransferWait(name, int(left.min())))
        found.append(mine)
    for mine in found:
        for wait in list(mine):
            mine.remove(wait)
            if _uncovered(stream, need, found) is not None:
                mine.append(wait)
    return tuple(tuple(mine) for mine in found)


def check_core_waits(
    stream: Stream, need: np.ndarray, waits: Sequence[Sequence[TransferWait]], found: Boxes
) -> Fault | None:
    """The first place where the waits do not suffice; None if they imply every need."""
    pair = _uncovered(stream, need, waits)
    return race(found, *pair) if pair is not None else None


def _uncovered(
    stream: Stream, need: np.ndarray, waits: Sequence[Sequence[TransferWait]]
) -> tuple[int, int] | None:
    """An instruction that may begin too early, and the one that it needs. What the core does is
    done when it goes on; of a queue, what comes first is done first."""
    started, queue = _started(stream), queue_numbers(stream)
    for q, name in enumerate(x.name for x in stream.target.queues):
        if name == CORE:
            continue
        least = [min((w.left for w in mine if w.queue == name), default=NEVER) for mine in waits]
        left = np.array(least)[stream.site]
        done = np.maximum.accumulate(np.maximum(started[:, q] - left, 0))
        needed = need[:, q]
        index = np.where(needed >= 0, started[np.maximum(needed, 0), q], -1)
        early = np.flatnonzero((index >= done) & (queue != q))
        if len(early):
            return int(early[0]), int(needed[early[0]])
    return None


# ---------------------------------------------------------------- time


def run_timed(
    stream: Stream, waits: Sequence[Sequence[TransferWait]], found: Boxes | None = None
) -> Timeline:
    """When everything happens. Transfers of a queue follow each other, and wait for what others of
    it have brought; all queues share the bandwidth of memories."""
    return _Clock(stream, waits, hazards(stream, found)).run()


class _Clock:
    """The core's time, and that of queues."""

    def __init__(
        self, stream: Stream, waits: Sequence[Sequence[TransferWait]], own: np.ndarray
    ) -> None:
        self.stream, self.own = stream, own.tolist()
        self.times = durations(stream)
        self.names = [q.name for q in stream.target.queues]
        self.depth = [q.depth for q in stream.target.queues]
        self.waits = [[(self.names.index(w.queue), w.left) for w in mine] for mine in waits]
        self.columns: dict[str, Any] = {name: np.zeros(len(stream), np.int64) for name in COLUMNS}
        self.columns["cause"] -= 1
        self.now = 0
        self.engine = [0] * len(self.names)  # from when on each queue's unit is free
        self.channels = [0] * self.times.transfer.shape[1]
        self.usable = [0] * len(stream)  # when others of its queue can use what it forwards
        self.rows: list[list[int]] = [[] for _ in self.names]  # what each queue was given

    def run(self) -> Timeline:
        queue, sites = queue_numbers(self.stream).tolist(), self.stream.site.tolist()
        core = self.names.index(CORE)
        for i in range(len(self.stream)):
            for q, left in self.waits[sites[i]]:
                self._wait(i, q, left)
            if queue[i] == core:
                self._work(i, core)
            else:
                self._start(i, queue[i], core)
        cycles = max([self.now, *self.columns["end"].tolist()])
        t = self.times
        return Timeline(self.stream, cycles, t.work, t.bytes, t.energy, **self.columns)

    def _wait(self, i: int, q: int, left: int) -> None:
        """A cycle to see how far the queue is, and those until it is far enough."""
        self.now += 1
        done = len(self.rows[q]) - left
        if done > 0:
            last = self.rows[q][done - 1]
            late = int(self.columns["end"][last]) - self.now
            if late > 0:
                self.now += late
                self.columns["wait"][i] += late
                self.columns["cause"][i] = last

    def _work(self, i: int, core: int) -> None:
        self.columns["begin"][i] = self.now
        self.now += int(self.times.busy[i])
        self.columns["leave"][i] = self.columns["end"][i] = self.engine[core] = self.now

    def _results(self, i: int) -> int:
        """When what a transfer reads of others of its queue is there."""
        stall, forward = self.own[i][Hazard.STALL], self.own[i][Hazard.FORWARD]
        done = int(self.columns["end"][stall]) if stall >= 0 else 0
        return max(done, self.usable[forward] if forward >= 0 else 0)

    def _start(self, i: int, q: int, core: int) -> None:
        """The core gives a transfer to a queue that has room, and goes on."""
        columns, mine = self.columns, self.rows[q]
        full = len(mine) - self.depth[q]
        if full >= 0:
            self.now = max(self.now, int(columns["begin"][mine[full]]))
        self.now += 1
        free = max(self.now, self.engine[q])
        begin = max(free, self._results(i))
        columns["issue"][i] = max(0, self.now - self.engine[q])
        columns["result"][i] = begin - free
        ready = begin + int(self.times.setup[i])
        used = {c: n for c, n in enumerate(self.times.transfer[i].tolist()) if n}
        most = max(used.values(), default=0)
        moves = max([ready, *(self.channels[c] for c in used)])  # through all of them at once
        for c, n in used.items():
            self.channels[c] = moves + n
        own = ready + max(int(self.times.busy[i]), most)
        leave = max(own, moves + most) if used else own
        columns["bandwidth"][i] = leave - own
        before = int(columns["end"][mine[-1]]) if mine else 0
        columns["begin"][i], columns["leave"][i] = begin, leave
        columns["end"][i] = max(leave + int(self.times.latency[i]), before)
        self.engine[q] = leave
        self.usable[i] = max(
            begin + int(self.times.forward[i]), self.usable[mine[-1]] if mine else 0
        )
        mine.append(i)
