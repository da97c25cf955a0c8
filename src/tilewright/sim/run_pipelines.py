"""Pipelines over tiles on the timed engine: what the analytic model expects of them.

A pipeline is a stream with an instruction for each move of an operand, each step of the unit and
each store of a tile, as the schedule will order them; each waits for what it needs. All pipelines
are put together at once: arrays have the steps of all, one pipeline after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.ir.instruction import Hazard
from tilewright.plan.step_times import Moves, StepTimes
from tilewright.runtime import stream_functions as native

Column = np.ndarray  # one number for each time that something is done
CALLS = 8  # instructions of a move, at most: of more, so many stand for them
# What is done in a step, in order; operands, 16 at most, count from LOAD or LOAD_EPILOGUE on.
LOAD, CLEAR, WORK, LOAD_EPILOGUE, FINISH, STORE, RANKS = 0, 16, 17, 18, 34, 35, 36


def run_pipelines(times: StepTimes) -> np.ndarray:
    """When each of n pipelines is done, in cycles [n]; never (inf) where its steps wait for each
    other."""
    parts = list(_parts(times))
    of = np.concatenate([np.repeat(x.of, x.count) for x in parts])
    slots = np.concatenate([np.repeat(x.slot, x.count) for x in parts])
    order = np.lexsort((slots, of))
    bounds = np.searchsorted(of[order], np.arange(len(times.work) + 1))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    queue = np.zeros(len(order), np.int32)
    cycles = np.zeros((5, len(order)), np.int64)  # set-up, work, transfer, latency, forwarded
    end = 0
    for x in parts:
        ends = end + np.cumsum(x.count)
        here = place[end : ends[-1]]
        queue[here], cycles[3, here] = x.queue, np.repeat(x.latency, x.count)
        cycles[4, here] = x.forward
        each, k = np.repeat(x.cycles / x.count, x.count, axis=1), _within(x.count)
        cycles[:3, here] = np.rint(each * (k + 1)) - np.rint(each * k)
        x.first, x.last = place[ends - x.count], place[ends - 1]
        end = ends[-1]
    need = np.full((len(order), len(times.depths)), -1, np.int32)
    own = np.full((len(order), len(Hazard)), -1, np.int32)
    for x in parts:
        for which, other, done, sweeps in x.needs:
            at, last = x.first[which], other.last[done] - bounds[x.of[which]]
            if sweeps is not None:
                k, each = _within(x.count[which]), np.repeat(np.arange(len(which)), x.count[which])
                behind = other.count[done][each] * (x.count[which][each] - 1 - k)
                of = x.count[which][each] * sweeps[x.of[which]][each]
                at, last = at[each] + k, last[each] - (behind // of).astype(int)
            held, kind = (own, other.hazard) if other.queue == x.queue else (need, other.queue)
            held[at, kind] = np.maximum(held[at, kind], last)
    found = _timed(queue, cycles, need, own, bounds, _issuing(times, parts)).astype(float)
    return np.where(found < 0, np.inf, found)


@dataclass(frozen=True)
class Issuing:
    """How many instructions the queues of pipelines hold [pipelines, queues]; the cycles to issue
    one, and how they are fetched [pipelines, 7] (runtime/native/events.c: tw_streams)."""

    depths: np.ndarray
    columns: np.ndarray


def _issuing(times: StepTimes, parts: Sequence[Activity]) -> Issuing:
    """Where one instruction stands for several."""
    shape = len(times.work), len(times.depths)
    ours, all_ = np.zeros(shape), np.zeros(shape)
    for x in parts:
        ours[:, x.queue] += np.bincount(x.of, x.count, len(ours))
        all_[:, x.queue] += np.bincount(x.of, np.maximum(x.calls, 1), len(ours))
    depths = np.maximum(1, np.array(times.depths) * ours / np.maximum(1, all_)).astype(np.int32)
    several = all_.sum(1) / ours.sum(1)  # that one stands for
    columns = np.zeros((len(depths), 7), np.int64)
    columns[:, 0] = np.rint(times.issue * several)
    columns[:, 3] = -1
    f = times.fetches
    if f is not None:
        burst = np.maximum(1, np.rint(f.burst / several)).astype(np.int64)
        columns[:, 1] = np.maximum(burst, np.rint(f.ahead / several))
        columns[:, 2] = burst
        columns[:, 3:] = 0, f.cycles, f.cycles, f.latency
    return Issuing(depths, columns)


@dataclass
class Activity:
    """Something that is done again and again on a queue. Each time: in which pipeline, and where it
    stands there, the step and its rank in that [times]; cycles of set-up, work and transfer, of so
    many instructions together [3, times]. Where those are in the stream is known when all parts
    are."""

    queue: int
    latency: Column
    of: Column
    slot: Column
    cycles: np.ndarray
    calls: Column  # instructions of the chip
    hazard: Hazard = Hazard.STALL  # what its queue does where others read its results
    forward: int = 0  # after how many cycles, if they are forwarded
    several: bool = True  # whether they are run as several, if they are
    count: Column = field(init=False)  # those here, which stand for them
    needs: list[tuple[Column, Activity, Column, np.ndarray | None]] = field(default_factory=list)
    first: Column = field(init=False)  # of the instructions of each time
    last: Column = field(init=False)

    def __post_init__(self) -> None:
        self.count = np.clip(self.calls, 1, CALLS if self.several else 1).astype(int)

    def need(
        self, which: Column, other: Activity, done: Column, sweeps: np.ndarray | None = None
    ) -> None:
        """Those times wait for those of another part; or the instructions of the ones for those of
        the others, half of them for half of them: of the last of so many sweeps [pipelines]."""
        self.needs.append((which, other, done, sweeps))


class Steps:
    """All steps of all pipelines: the pipeline of each, its number there and its level; and the
    tiles of the result, the first and the last step of each."""

    def __init__(self, times: StepTimes) -> None:
        turns, counts = times.turns, times.steps
        self.of = np.repeat(np.arange(len(counts)), counts)
        self.step = _numbers(self.of)
        self.level = np.full(len(self.of), len(turns) - 1)
        below = np.ones_like(counts)  # steps in a turn
        for k in reversed(range(len(turns))):
            turned = (self.step % below[self.of] == 0) & (turns[k] > 1)[self.of]
            self.level = np.where(turned, k, self.level)
            below = below * turns[k]
        self.level[self.step == 0] = len(turns)
        new = (self.level < times.spatial) | (self.step == 0)
        self.tile = np.cumsum(new) - 1
        self.begin = np.flatnonzero(new)
        self.finish = np.append(self.begin[1:], len(new)) - 1


def _within(counts: Column) -> Column:
    """0, 1, … for each time, as many as it has."""
    found: Column = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return found


def _numbers(of: np.ndarray) -> np.ndarray:
    """0, 1, … of those that belong together."""
    return np.arange(len(of)) - np.searchsorted(of, of)


def _again(of: Column, places: Column) -> tuple[Column, Column]:
    """The times that take the place which another had, in the same pipeline; and those others."""
    which = np.flatnonzero(_numbers(of) >= places)
    return which, which - places[which]


def _parts(p: StepTimes) -> Iterator[Activity]:
    """All that pipelines do: a tile is cleared, worked on step by step, finished and stored."""
    steps = Steps(p)
    tiled = steps.of[steps.begin]
    chunks = p.store_chunks[tiled]
    ends = np.cumsum(chunks)  # of the chunks of each tile, among all
    whose = np.repeat(tiled, chunks)
    last = np.repeat(steps.step[steps.finish], chunks)
    begun = steps.step[steps.begin] - p.clear_distance[tiled]
    clear = _on_unit(p, tiled, begun * RANKS + CLEAR, p.before, p.calls[0])
    work = _on_unit(p, steps.of, steps.step * RANKS + WORK, p.work, p.calls[1], several=True)
    after = p.after / p.store_chunks, p.calls[2] / p.store_chunks
    finish = _on_unit(p, whose, last * RANKS + FINISH, *after)
    store = _move(
        p.store,
        whose,
        (last + p.result_buffers[whose] - 1) * RANKS + STORE,
        (whose,),
        p.store_chunks[whose],
    )
    ahead = -(-p.clear_distance * p.tiles // p.steps)  # tiles of the result that are begun early
    again, earlier = _again(tiled, (p.result_buffers + ahead)[tiled])
    if p.after.any():
        store.need(np.arange(len(whose)), finish, np.arange(len(whose)))
    else:
        store.need(np.arange(len(whose)), work, np.repeat(steps.finish, chunks), p.sweeps)
    if p.apart:
        finish.need(ends[again] - chunks[again], store, ends[earlier] - 1)
    elif p.before.any():
        clear.need(again, store, ends[earlier] - 1)
    else:
        work.need(steps.begin[again], store, ends[earlier] - 1, np.ones(len(p.work)))
    for rank, loads in enumerate(p.loads):
        brought = loads.calls[steps.level, steps.of] > 0
        turns = np.flatnonzero(brought)
        uses = steps.finish[steps.tile[turns]] if loads.in_epilogue else turns
        # Of the factors, the schedule brings the last one first.
        rank = LOAD_EPILOGUE + rank if loads.in_epilogue else CLEAR - 1 - rank
        ahead = np.where(loads.late, 0, p.prefetch_distance)[steps.of[uses]]
        slot = (steps.step[uses] - ahead) * RANKS + rank
        load = _move(loads, steps.of[turns], slot, (steps.level[turns], steps.of[turns]))
        again, earlier = _again(load.of, loads.buffers[load.of])
        turn = np.cumsum(brought) - 1
        if loads.is_addend:
            load.need(again, store, ends[earlier] - 1)
        elif loads.in_epilogue:
            load.need(again, finish, ends[steps.tile[turns[earlier + 1] - 1]] - 1)
        else:  # before the next turn
            load.need(again, work, turns[earlier + 1] - 1)
        if loads.in_epilogue:
            finish.need(ends - chunks, load, turn[steps.finish])
        else:
            work.need(np.arange(len(turn)), load, turn)
        yield load
    yield from (clear, work, finish, store)


def _on_unit(
    p: StepTimes,
    of: Column,
    slot: Column,
    work: np.ndarray,
    calls: np.ndarray,
    *,
    several: bool = False,
) -> Activity:
    none = np.zeros(len(of))
    cycles = np.stack([none, work[of], none])
    latency = p.latency[0 if several else 1][of]
    return Activity(p.queue, latency, of, slot, cycles, calls[of], several=several)


def _move(
    moves: Moves, of: Column, slot: Column, at: tuple[Column, ...], parts: Column | int = 1
) -> Activity:
    each = (moves.setup, moves.work, moves.transfer)
    cycles = np.stack([x[at] for x in each]) / parts
    latency = np.full(len(of), moves.latency)
    calls = moves.calls[at] / parts
    return Activity(moves.queue, latency, of, slot, cycles, calls, moves.hazard, moves.forward)


def _timed(
    queue: np.ndarray, cycles: np.ndarray, need: np.ndarray, own: np.ndarray, bounds: np.ndarray,
    issuing: Issuing,
) -> np.ndarray:  # fmt: skip
    """Cycles of streams whose instructions wait for what they need, those of each queue [streams];
    negative if one stops for good. Stream k has the instructions bounds[k] to bounds[k + 1]."""
    count, queues = issuing.depths.shape
    of = np.repeat(np.arange(count), np.diff(bounds))
    order = np.lexsort((queue, of))  # of one queue as they are in the stream
    members = order - bounds[of]
    heads = queues * np.arange(count)[:, None] + np.arange(queues + 1)
    first = np.searchsorted((queues * of + queue)[order], heads) - bounds[:-1, None]
    longest = int(np.diff(bounds).max(initial=0))
    tokens, events = np.zeros(longest, np.uint32), np.zeros(longest, np.uint64)
    setup, work, transfer, latency, forward = cycles
    sync = native.Sync(
        len(queue), queues, 0, 0, queue, issuing.depths, tokens, tokens, events, events,
        np.zeros(longest, np.uint8),
    )  # fmt: skip
    times = native.Times(
        0, 0, 0, -1, 0, 0, 0, 0, 1, setup, work, latency, transfer, events, need, own, forward
    )
    scratch = native.Cycles(
        *np.empty((9, longest), np.int64), np.empty(0, np.int32),
        *np.empty((2, longest), np.int64),
    )  # fmt: skip
    found = np.empty(count, np.int64)
    native.streams(
        sync, times, scratch, members, first, count, bounds.astype(np.int64), issuing.columns, found
    )
    return found
