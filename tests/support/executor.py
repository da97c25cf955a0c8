"""Running kernels as hardware may: the iterations of parallel loops interleaved at random, the
lanes of vector loops in step, the workers of axes each at its own pace between barriers; and noting
what every iteration touches.

ir/interpret.py is the definition, and runs everything one iteration after the other. A kernel whose
loops are marked rightly, and whose barriers are in place, gives the same here.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.analyze.workers import axes
from tilewright.ir.evaluate import evaluate_dim, poisoned
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import Buffer, Expr, Load, Select, as_expr
from tilewright.ir.interpret import scalar
from tilewright.ir.loop import (
    WORKER,
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.loop import symbols as kernel_symbols
from tilewright.ir.scalar import apply_binary

Env = dict[Expr, Any]
Memory = dict[Buffer, np.ndarray]
Place = tuple[int, ...]


@dataclass(frozen=True)
class Touch:
    """One element read or written, and the iterations it was in: (loop, run of it, index)."""

    buffer: Buffer
    place: Place
    how: object  # "read", "write", or the operator of an accumulation
    within: tuple[tuple[For, int, int], ...]
    birth: int  # which allocation of the buffer


@dataclass(eq=False)
class Lane:
    """One thread of control: variables, memory, and the iterations it is in."""

    env: Env
    memory: Memory
    within: tuple[tuple[For, int, int], ...] = ()

    def inside(self, loop: For, run: int, i: int) -> Lane:
        """The same, in an iteration of one more loop; what that allocates is its own."""
        env = {**self.env, loop.var: np.int64(i)}
        return Lane(env, dict(self.memory), (*self.within, (loop, run, i)))


# Each step reads, or writes one element for each lane; a worker of an axis may wait at a barrier.
Steps = Iterator[Barrier | None]
Worker = dict[str, int]  # a worker's number on every axis


@dataclass(eq=False)
class Running:
    """A worker on its way through a kernel."""

    worker: Worker
    steps: Steps
    at: Barrier | None = None  # where it waits
    done: bool = False


def _is_control(s: Stmt) -> bool:
    """Whether every worker runs a statement, for the loops that are bound or barriers in it."""
    inner = (x for b in sub_blocks(s) for x in walk_statements(b))
    return any(isinstance(x, (For, Barrier)) and x.axis is not None for x in inner)


@dataclass
class Executor:
    """`concurrent` runs parallel and vector loops as hardware does, else everything in order.
    `touched` lists all accesses, where `log` asks for them, and `waits` the barriers, each with the
    number of accesses before it."""

    concurrent: bool = True
    seed: int = 0
    log: bool = False
    touched: list[Touch] = field(default_factory=list)
    waits: list[tuple[int, str]] = field(default_factory=list)
    made: list[np.ndarray] = field(default_factory=list)  # every buffer's array, once allocated
    runs: Iterator[int] = field(default_factory=itertools.count)
    team: list[Running] = field(default_factory=list)
    workers: dict[str, int] = field(default_factory=dict)  # of an axis, if it was run in order

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def run(
        self, kernel: Kernel, inputs: Sequence[np.ndarray], symbols: Mapping[str, int]
    ) -> list[np.ndarray]:
        """The kernel's outputs."""
        self.symbols = symbols
        memory: Memory = dict(zip(kernel.inputs, inputs, strict=True))
        for buffer in kernel.outputs + kernel.scratch:
            memory[buffer] = self.fresh(buffer)
        env: Env = {s: np.int64(symbols[s.name]) for s in kernel_symbols(kernel)}
        env[WORKER] = np.int64(0)
        for _ in self.whole(kernel, Lane(env, memory)):
            pass
        return [memory[b] for b in kernel.outputs]

    def fresh(self, buffer: Buffer) -> np.ndarray:
        shape = tuple(evaluate_dim(d, self.symbols) for d in buffer.shape)
        made = poisoned(shape, buffer.dtype)
        self.made.append(made)
        return made

    # ---------------------------------------------------------- statements, for all lanes

    def block(self, block: Block, lanes: list[Lane]) -> Steps:
        for stmt in block:
            if lanes:
                yield from self.statement(stmt, lanes)

    def statement(self, s: Stmt, lanes: list[Lane]) -> Steps:
        if isinstance(s, For):
            yield from self.loop(s, lanes)
        elif isinstance(s, If):
            yes = [x for x in lanes if self.value(s.cond, x)]
            no = [x for x in lanes if x not in yes]
            yield from self.block(s.body, yes)
            yield from self.block(s.orelse, no)
        elif isinstance(s, Alloc):
            (lane,) = lanes  # lanes have no memory of their own
            lane.memory[s.buffer] = self.fresh(s.buffer)
        elif isinstance(s, Barrier):
            self.waits.append((len(self.touched), s.axis))
        elif isinstance(s, Call):
            yield from self.block(expand_call(s), lanes)
        elif isinstance(s, Prefetch):
            pass
        else:
            yield from self.write(s, lanes)

    def write(self, s: Store | Accumulate, lanes: list[Lane]) -> Steps:
        """All lanes read, then all write."""
        values = [self.value(s.value, x) for x in lanes]
        places = [tuple(int(self.value(i, x)) for i in s.indices) for x in lanes]
        yield
        if isinstance(s, Accumulate) and self.concurrent:
            yield from self.accumulate(s, lanes, places, values)
            return
        for lane, place, value in zip(lanes, places, values, strict=True):
            array = lane.memory[s.buffer]
            if isinstance(s, Accumulate):
                value = apply_binary(s.op, array[place], value)
            self.note(s.buffer, place, getattr(s, "op", "write"), lane)
            array[self.check(array, place)] = value
        yield

    def accumulate(
        self, s: Accumulate, lanes: list[Lane], places: list[Place], values: list[Any]
    ) -> Steps:
        """Lane after lane, reading before the step and writing behind it."""
        for lane, place, value in zip(lanes, places, values, strict=True):
            array = lane.memory[s.buffer]
            new = apply_binary(s.op, array[self.check(array, place)], value)
            self.note(s.buffer, place, s.op, lane)
            if len(lanes) == 1:
                yield
            array[place] = new

    def check(self, array: np.ndarray, place: Place) -> Place:
        assert all(0 <= i < n for i, n in zip(place, array.shape, strict=True)), "out of range"
        return place

    # ---------------------------------------------------------- loops

    def loop(self, s: For, lanes: list[Lane]) -> Steps:
        extents = {int(scalar(as_expr(s.extent), x.env, x.memory)) for x in lanes}
        (extent,) = extents  # lanes run in step
        if s.axis is not None:
            self.workers[s.axis] = max(extent, self.workers.get(s.axis, 1))
        run = next(self.runs)
        if self.concurrent and s.kind is LoopKind.VECTORIZE:
            (lane,) = lanes
            yield from self.block(s.body, [lane.inside(s, run, i) for i in range(extent)])
        elif self.concurrent and s.kind is LoopKind.PARALLEL:
            (lane,) = lanes
            yield from self.interleaved(s, [lane.inside(s, run, i) for i in range(extent)])
        else:
            for i in range(extent):
                yield from self.block(s.body, [x.inside(s, run, i) for x in lanes])

    def interleaved(self, s: For, lanes: list[Lane]) -> Steps:
        """A step of one iteration, a step of another: a few at a time, in any order."""
        waiting = [self.block(s.body, [x]) for x in lanes]
        self.rng.shuffle(waiting)
        running: list[Steps] = []
        while waiting or running:
            while waiting and len(running) < 3:
                running.append(waiting.pop())
            steps = self.rng.choice(running)
            if next(steps, self) is self:
                running.remove(steps)
            yield

    # ---------------------------------------------------------- workers of axes

    def whole(self, kernel: Kernel, lane: Lane) -> Steps:
        order = axes(kernel) if self.concurrent else ()
        if not order:
            yield from self.block(kernel.body, [lane])
            return
        in_order = Executor(concurrent=False)  # says how far the loops of each axis go at most
        in_order.run(kernel, [lane.memory[b] for b in kernel.inputs], self.symbols)
        places = itertools.product(*(range(in_order.workers.get(axis, 1)) for axis in order))
        self.storage: dict[tuple[Buffer, Place], np.ndarray] = {}
        for at in places:
            worker = dict(zip(order, at, strict=True))
            own = Lane(lane.env, dict(lane.memory))
            self.team.append(Running(worker, self.worker(kernel.body, own, worker, ())))
        yield from self.race(order)

    def race(self, order: Sequence[str]) -> Steps:
        """One worker goes a few steps, or as far as the next barrier; then another."""
        running = list(self.team)
        while running:
            one = self.rng.choice(running)
            for _ in range(self.rng.choice((1, 1, 3, 1000))):
                at = next(one.steps, self)
                if at is not None:
                    running.remove(one)
                    if isinstance(at, Barrier):
                        one.at = at
                        running += self.released(at, one, order)
                    else:
                        one.done = True
                    break
                yield

    def released(self, at: Barrier, one: Running, order: Sequence[str]) -> list[Running]:
        """The workers that may go on, once all that share a place on the axes around are here."""
        around = order[: order.index(at.axis)] if at.axis in order else order
        group = [x for x in self.team if all(x.worker[a] == one.worker[a] for a in around)]
        assert not any(x.done for x in group), f"{at} waits for ever"
        if any(x.at is not at for x in group):
            return []
        for x in group:
            x.at = None
        return group

    def worker(self, block: Block, lane: Lane, worker: Worker, bound: tuple[str, ...]) -> Steps:
        """What one worker does of a block, in loops bound to these axes."""
        for s in block:
            if isinstance(s, Barrier):
                yield s
            elif isinstance(s, Alloc):
                lane.memory[s.buffer] = self.shared(s.buffer, tuple(worker[a] for a in bound))
            elif isinstance(s, For) and s.axis is not None:
                if worker[s.axis] < self.value(as_expr(s.extent), lane):
                    inside = lane.inside(s, 0, worker[s.axis])
                    yield from self.worker(s.body, inside, worker, (*bound, s.axis))
            elif isinstance(s, For) and _is_control(s):
                for i in range(self.value(as_expr(s.extent), lane)):
                    yield from self.worker(s.body, lane.inside(s, 0, i), worker, bound)
            elif isinstance(s, If) and _is_control(s):
                chosen = s.body if self.value(s.cond, lane) else s.orelse
                yield
                yield from self.worker(chosen, lane, worker, bound)
            elif not any(i for axis, i in worker.items() if axis not in bound):
                yield from self.statement(s, [lane])

    def shared(self, buffer: Buffer, owner: Place) -> np.ndarray:
        """Memory has a place of its own: what it held before is still there."""
        if (buffer, owner) not in self.storage:
            self.storage[buffer, owner] = self.fresh(buffer)
        return self.storage[buffer, owner]

    # ---------------------------------------------------------- values

    def value(self, e: Expr, lane: Lane) -> Any:
        if self.log:
            self._note_reads(e, lane)
        return scalar(e, lane.env, lane.memory)

    def _note_reads(self, e: Expr, lane: Lane) -> None:
        if isinstance(e, Select):
            self._note_reads(e.cond, lane)
            self._note_reads(e.a if scalar(e.cond, lane.env, lane.memory) else e.b, lane)
            return
        if isinstance(e, Load):
            place = tuple(int(scalar(i, lane.env, lane.memory)) for i in e.indices)
            self.note(e.buffer, place, "read", lane)
        for child in e.children():
            if isinstance(child, Expr):
                self._note_reads(child, lane)

    def note(self, buffer: Buffer, place: Place, how: object, lane: Lane) -> None:
        if self.log:
            birth = next((i for i, a in enumerate(self.made) if a is lane.memory[buffer]), -1)
            self.touched.append(Touch(buffer, place, how, lane.within, birth))


def run_concurrently(
    kernel: Kernel,
    inputs: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
) -> list[np.ndarray]:
    """The kernel's outputs, with its parallel and vector loops run as hardware does."""
    return Executor(seed=seed).run(kernel, inputs, symbols or {})
