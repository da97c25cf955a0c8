"""The timed simulator: when every instruction of a stream begins and is done. No data."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.codegen.stream import Stream
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Dim, as_expr
from tilewright.sim.engine import Waits, _events, _pointer, queue_numbers


@dataclass(frozen=True, eq=False)
class Timeline:
    """Cycles: when instructions begin and when their results are there [n], and the last of all.
    `busy` is how long each queue's unit worked."""

    begin: np.ndarray
    end: np.ndarray
    cycles: int
    busy: Mapping[str, int]

    @property
    def bottleneck(self) -> str:
        return max(self.busy, key=lambda name: self.busy[name])


@dataclass(frozen=True, eq=False)
class Durations:
    """Cycles of every instruction's phases [n]."""

    setup: np.ndarray
    busy: np.ndarray
    transfer: np.ndarray
    latency: np.ndarray


def durations(stream: Stream) -> Durations:
    """What the instructions' costs say, evaluated on their fields. Bytes go through the slowest
    memory that an instruction touches, whose latency comes on top."""
    columns = [np.zeros(len(stream), np.int64) for _ in range(4)]
    for k, site in enumerate(stream.sites):
        rows = stream.rows(k)
        cost = site.instruction.cost
        env = {f.symbol: stream.fields[rows, c] for c, f in enumerate(site.instruction.fields)}

        def term(e: Dim, env: dict = env, n: int = len(rows)) -> np.ndarray:
            return np.broadcast_to(evaluate_expr(as_expr(e), env, {}), (n,))

        memories = [stream.target.memory(m) for m in site.memories]
        limited = [m for m in memories if m.bandwidth is not None]
        moved = term(cost.bytes)
        columns[0][rows], columns[1][rows] = term(cost.setup), term(cost.busy)
        if limited:
            rate = min(m.bandwidth for m in limited if m.bandwidth is not None)
            columns[2][rows] = np.ceil(moved / rate)
        extra = max((m.latency for m in memories), default=0) * (moved > 0)
        columns[3][rows] = term(cost.latency) + extra
    return Durations(*columns)


def simulate(stream: Stream, waits: Waits, times: Durations | None = None) -> Timeline:
    """Runs the stream on the target's queues; CompileError if it stops for good."""
    times = times or durations(stream)
    queue = queue_numbers(stream)
    n, names = len(stream), [q.name for q in stream.target.queues]
    queues = len(names)
    depth = np.array([q.depth for q in stream.target.queues], np.int32)
    members = np.argsort(queue, kind="stable").astype(np.int64)
    first = np.searchsorted(queue[members], np.arange(queues + 1)).astype(np.int64)
    begin, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    pairs = queues * queues
    scratch = (np.empty((pairs, max(n, 1)), np.int64), np.empty(pairs, np.int64))
    arrays = (queue, depth, waits.pops, waits.pushes, times.setup, times.busy, times.transfer)
    arrays += (times.latency, *scratch, np.empty(pairs, np.int64), members, first, begin, end)
    cycles = _events(ctypes.c_int64(n), ctypes.c_int32(queues), *(_pointer(a) for a in arrays))
    if cycles < 0:
        stuck = -cycles - 1
        raise CompileError(
            f"the stream stops: instruction {stuck} of {names[queue[stuck]]} waits for a token "
            "that never comes"
        )
    work = times.setup + np.maximum(times.busy, times.transfer)
    busy = {name: int(work[queue == q].sum()) for q, name in enumerate(names)}
    return Timeline(begin, end, int(cycles), busy)
