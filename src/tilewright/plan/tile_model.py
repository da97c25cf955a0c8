"""An analytic model of a contraction in tiles: which fit a chip's memories, and how long they take.

The loops over tiles and slices of the reduction count like an odometer. An operand tile is loaded
again whenever a wheel turns on which its subscripts depend. While one step is worked on, the
operand tiles of the next ones are loaded; step_times.py puts that together. Times are the
instructions' own costs, with the fields that the copies would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial, reduce

import numpy as np

from tilewright.analyze.nests import Nest
from tilewright.backends.stream.addresses import bytes_of
from tilewright.base.errors import ScheduleError
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import Buffer, Expr, Symbol, Var, as_expr
from tilewright.ir.instruction import Hazard
from tilewright.ir.loop import For
from tilewright.ir.substitute import variables
from tilewright.plan.equal_units import at_once, equal_instructions
from tilewright.plan.interleave import PARTS, Stalls, UnitStep, Work, chosen, stalls
from tilewright.plan.operand_blocks import block_places
from tilewright.plan.pieces import (
    OperandTile,
    Sizes,
    broadcast_into,
    find_move,
    operand_tile,
    queue_cycles,
)
from tilewright.plan.rates import least, most
from tilewright.plan.step_times import Loads, Moves, StepTimes, fetches_of
from tilewright.plan.unit_plan import (
    Pace,
    Plan,
    contiguous_axes,
    epilogue_accesses,
    var_of,
    window_loops,
)
from tilewright.plan.units import AxisMapping
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

STORE_CHUNKS = 8  # at most, in which a tile is finished


@dataclass(frozen=True)
class AccumulatorWork:
    """Costs per element of the result around the contraction: clearing the accumulator before it,
    the epilogue after it."""

    steps: tuple[UnitStep, ...] = ()  # of the unit's queue, one after the other
    # Cycles that any schedule takes: of calls that read nothing (which clear), and of the others.
    least: tuple[float, float] = (0.0, 0.0)
    bytes: Mapping[str, float] = field(default_factory=dict)  # by memory
    stored: Mapping[str, float] = field(default_factory=dict)  # by memory: until it is stored
    starts_with_addend: bool = False  # a sum starts with what is added to it, not with 0

    def cycles(self, *, follows: bool) -> float:
        """Returns the cycles of the steps before the contraction, or of those after it."""
        return sum(s.cycles for s in self.steps if s.follows == follows)


@dataclass(eq=False)
class Tiles:
    """Tiles of these sizes, and what has been found of all of them, whatever else is planned; or
    those tiles of others which `at` numbers."""

    sizes: Sizes
    known: dict[str, np.ndarray] = field(default_factory=dict)  # the last axis is the tiles'
    every: Sizes | None = None
    at: np.ndarray | None = None

    def only(self, at: np.ndarray) -> Tiles:
        return Tiles({v: n[at] for v, n in self.sizes.items()}, self.known, self.sizes, at)

    def whatever_the_plan(self, name: str, of: Callable[[Sizes], np.ndarray]) -> np.ndarray:
        """What a function of sizes says, which is asked once for all tiles."""
        if name not in self.known:
            with np.errstate(all="ignore"):  # of tiles that are too large to fit anywhere
                self.known[name] = of(self.sizes if self.every is None else self.every)
        found = self.known[name]
        if self.at is None:
            return found
        if found.shape[-1] == 1:  # the same for all tiles
            return found[..., np.zeros_like(self.at)]
        return found[..., self.at]


class TileModel:
    """Sizes and times of a contraction on a unit, for many tiles at a time. `wanted` is how often
    loops ran before they were filled; without it, none is."""

    def __init__(
        self,
        s: Schedule,
        target: Target,
        nest: Nest,
        mapping: AxisMapping,
        wanted: Mapping[Var, int] | None = None,
        accumulator_work: AccumulatorWork | None = None,
    ) -> None:
        self.target, self.nest, self.mapping, self.unit = target, nest, mapping, mapping.unit
        self.accumulator_work = accumulator_work or AccumulatorWork()
        self.loops = [x for x in (*nest.axes, *nest.reduce) if x.extent != 1]
        plan = Plan(nest, mapping, {})
        self.loads = [operand_tile(s, target, plan, *pair, loaded=True) for pair in plan.reads]
        self.epilogue_loads: list[OperandTile] = []  # of the loads
        self.with_sums: list[OperandTile] = []  # of those, what comes to where the sums are
        self.accumulator_loads: list[OperandTile] = []  # what sums start with, as it fills a tile
        alone = nest.buffer not in set(s.allocations())  # nothing is made of the sums
        made, *others = [plan.result] if alone else epilogue_accesses(s, plan, nest.buffer)
        self.store = self._with_store_move(
            operand_tile(s, target, plan, *made, loaded=False), made[0].buffer
        )
        for pair in others:
            operand = operand_tile(s, target, plan, *pair, loaded=True)
            if self.accumulator_work.starts_with_addend:
                self.accumulator_loads.append(broadcast_into(self.store, operand))
            else:
                self.loads.append(operand)
                self.epilogue_loads.append(operand)
                if operand.memory == self.store.memory:
                    self.with_sums.append(operand)
        self.result = operand_tile(s, target, plan, *plan.result, loaded=False, local=True)
        # The axes of the result, and how much of each is in a row of it.
        self.rows = {x.var: 1 for x in plan.axes if x.extent != 1}
        if not mapping.unit.whole:
            found = contiguous_axes(plan, target, *plan.result)
            self.rows |= {v: n for axis, n in found if (v := var_of(plan, axis)) in self.rows}
        self.whole = {x.var: np.array([x.extent]) for x in self.loops}
        wanted = wanted or {}
        self.wanted = {v: np.array([wanted.get(v, int(n[0]))]) for v, n in self.whole.items()}

    def _with_store_move(self, operand: OperandTile, into: Buffer) -> OperandTile:
        """Returns the operand tile with the copy from the memory where a result waits to be stored,
        where nothing copies it from the unit's own."""
        moves = (
            find_move(self.target, name, into.memory, into.memory, into.dtype)
            for name in self.accumulator_work.stored
        )
        found = next((m for m in moves if m is not None), None)
        return operand if operand.move is not None else replace(operand, move=found)

    # ------------------------------------------------------ one tile

    def work(self, tile: Sizes) -> tuple[np.ndarray, np.ndarray]:
        """Returns the unit's busy cycles and its calls for one tile, each [tiles]."""
        cost, unit = self.unit.instruction.cost, self.unit
        axes = dict(self.mapping.axes)
        steps = {v: _per_size(partial(unit.step, v), tile[x.var]) for v, x in axes.items()}
        total = math.prod((tile[x.var] for x in self.loops), start=np.ones((), np.int64))
        calls: np.ndarray = total / math.prod(steps.values(), start=np.ones((), np.int64))
        values: dict[Expr, object] = {f.symbol: np.int64(1) for f in unit.instruction.fields}
        for v, n in steps.items():
            extent = unit.loops[v].extent
            if isinstance(extent, Symbol):
                values[extent] = n
        if unit.free:  # they run all in one
            values[as_expr(unit.loops[unit.free[0]].extent)] = calls
            calls = np.ones(1)
        known = {x: np.asarray(v).astype(np.int64) for x, v in values.items()}
        setup, work = (
            np.asarray(evaluate_exactly(x, known), float) for x in (cost.setup, cost.busy)
        )
        for memory in dict.fromkeys(b.memory for b in unit.instruction.operands):
            rate = self.target.memory(memory).bandwidth
            if rate is not None:  # operands may lie outside
                moved = np.asarray(evaluate_exactly(cost.bytes_in(memory), known), float)
                work = np.maximum(work, np.ceil(moved / rate))
        share = self._units(tile)
        return calls * (setup + work) / share + self._changes(tile), calls / share

    def _changes(self, tile: Sizes) -> np.ndarray:
        """Returns the cycles of a tile in which the unit waits for the next block of an operand, as
        its memory has room for one: until its last call is done, and the copy is."""
        found: np.ndarray = np.zeros(1)
        for operand in self.loads:
            if operand.relay is not None and block_places(self.target, operand.relay.written) == 1:
                calls, *_ = times = operand.relay_times(tile)
                waits = least(self.unit.instruction.cost.latency) + operand.relay.latency
                found = found + queue_cycles(times) + calls * waits
        return found

    def _units(self, tile: Sizes) -> np.ndarray:
        """Returns among how many equal units a tile's results are shared out."""
        count = len(equal_instructions(self.target, self.unit.instruction))
        if count == 1 or self.unit.whole:
            return np.ones(1)
        axes = [x for x in self.nest.axes if x.var in tile]
        blocks = [self._blocks(tile, [x]).astype(int) for x in axes]
        left, found = np.full(1, count), np.ones(1)
        for n in blocks:
            left = left // np.gcd(left, n)
            found = np.maximum(found, at_once(n, count))
        return np.where(left == 1, count, found)

    def elements(self, tile: Sizes) -> np.ndarray:
        """Returns the elements of one result tile [tiles]."""
        sizes = (tile[x.var] for x in self.nest.axes if x.var in tile)
        return math.prod(sizes, start=np.ones(1, np.int64))

    def fits(self, tile: Sizes, plan: Plan, pace: Pace | None = None) -> np.ndarray:
        """Returns whether all buffers fit [tiles], at the plan's pace or at one of each tile. An
        operand that the innermost turning loop reloads needs 1 + prefetch distance buffers, as does
        one that the epilogue of every tile wants, which is part of the tile's last step; one that
        an outer loop reloads at most 2."""
        pace = pace or plan.pace
        distance = pace.prefetch_distance
        turns = self._trip_counts(tile, plan.order)
        turning_loops = [np.where(n > 1, k, -1) for k, n in enumerate(turns)]
        last = np.max(turning_loops, axis=0)
        last_tile = np.max([turning_loops[0], *turning_loops[: self._spatial(plan.order)]], axis=0)
        used: dict[str, np.ndarray] = {}
        turning: dict[str, np.ndarray] = {}  # bytes of one turn of what has several buffers
        for operand in (*self.loads, self.store):
            if operand.held is not None:
                used[operand.memory] = used.get(operand.memory, np.zeros(1)) + operand.held
        brought = [x for x in self.loads if x.held is None]
        for operand in (*brought, *([self.result] if self.store.held is None else [])):
            level = self._reload_level(operand, turns, plan)
            inner = (level == last) & (operand is not self.result)
            inner |= (level == last_tile) & (operand in self.epilogue_loads)
            turns_more = np.minimum(distance, 1)
            if operand is self.result:
                early = self.accumulator_work.starts_with_addend & (distance > 0)
                turns_more = np.where(early, distance + 1, pace.result_buffers - 1)
                turns_more = turns_more + np.minimum(pace.clear_distance, self._tiles(turns, plan))
            many = np.where(level < 0, 1, 1 + np.where(inner, distance, turns_more))
            many = np.where(self._has_one_place(operand, level, last, plan), 1, many)
            size, name = self._held(operand, tile, plan), operand.memory
            if plan.rings and operand is not self.result:
                many, size = self._ring(operand, tile, plan, distance, level, many, size)
            used[name] = used.get(name, np.zeros(1)) + many * size
            if operand.relay is not None:  # its unit's memory has a block at least
                block = operand.relay.written
                used[block.memory] = used.get(block.memory, 0) + bytes_of(block) + 0 * size
            turning[name] = turning.get(name, np.zeros(1)) + np.where(many > 1, size, 0)
        elements = self.elements(tile)
        for each, buffers in (
            (self.accumulator_work.bytes, np.ones(1)),
            (self.accumulator_work.stored, pace.result_buffers),
        ):
            for name, bytes_ in each.items():
                used[name] = used.get(name, np.zeros(1)) + bytes_ * buffers * elements
        memories = {name: self.target.memory(name) for name in used}
        limits = {name: m.size or math.inf for name, m in memories.items()}
        fits = [size <= limits[name] for name, size in used.items()]
        fits += [size <= limits[name] / memories[name].banks for name, size in turning.items()]
        return np.asarray(reduce(np.logical_and, fits))  # of one tile, or of all

    def _has_one_place(
        self, operand: OperandTile, level: np.ndarray, last: np.ndarray, plan: Plan
    ) -> np.ndarray:
        """Returns whether an operand has one place, and comes when it is needed [tiles]: `level`
        and `last` are the innermost loops that reload it, and that turn."""
        if operand in self.with_sums:
            return np.full(1, plan.late)
        if plan.outer_places > 1 or operand is self.result:
            return np.zeros(1, bool)
        # What the epilogue multiplies, as a residual by the identity, comes where factors do.
        factor = operand.memory in {x.memory for x in self.loads[:2]}
        return (level >= 0) & (level < last) & factor

    def _held(self, operand: OperandTile, tile: Sizes, plan: Plan) -> np.ndarray:
        """Returns the bytes of an operand tile: of all tiles, if it is preloaded."""
        return operand.size(self.whole if plan.preloaded and operand in self.with_sums else tile)

    def _ring(
        self,
        operand: OperandTile,
        tile: Sizes,
        plan: Plan,
        distance: np.ndarray,
        level: np.ndarray,
        many: np.ndarray,
        size: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns how many buffers an operand has, and the bytes of one, where tiles share a halo:
        a lap of the fewest tiles that follow each other in one buffer (see whole_rings.py), or of
        all."""
        outer: np.ndarray = np.ones(1, np.int64)
        counts = self._trip_counts(tile, plan.order)
        for k, (var, turns) in enumerate(zip(plan.order, counts, strict=True)):
            new = operand.size(tile, var)
            apart = distance + -(-size // new)
            found = (level == k) & (new < size)
            buffers = np.where((turns >= apart) | (outer == 1), 1, 2)
            many = np.where(found, buffers, many)
            size = np.where(found, size + (np.minimum(turns, apart) - 1) * new, size)
            outer = outer * turns
        return many, size

    # ------------------------------------------------------ the whole

    def step_times(self, tiles: Tiles, plan: Plan, pace: Pace | None = None) -> StepTimes:
        """What the steps take with these tiles, and else as planned, at the plan's pace or at one
        of each tile."""
        pace = pace or plan.pace
        tile = tiles.sizes
        shape = np.broadcast_shapes(*(n.shape for n in tile.values()))
        turns = np.stack([np.broadcast_to(n, shape) for n in self._trip_counts(tile, plan.order)])
        spatial = self._spatial(plan.order)
        steps = np.prod(turns, axis=0)
        distance = np.minimum(pace.prefetch_distance, steps - 1)
        count = self._tiles(turns, plan)
        buffers = np.minimum(np.minimum(pace.result_buffers, count), steps - distance)
        elements = self.elements(tile)
        before, after = (
            np.broadcast_to(self.accumulator_work.cycles(follows=x) * elements, shape)
            for x in (False, True)
        )
        # Each chunk would load the epilogue's operands for itself.
        can_chunk = (pace.prefetch_distance > 0) & (not self.with_sums or plan.preloaded)
        single = (buffers == 1) & can_chunk
        stores, chunks, axis = self._store_times(tiles, after, single)
        work, calls = tiles.whatever_the_plan("work", self._work_and_calls)
        if (chunks > 1).any():
            still = self._stalls(tile, work, calls, chunks)
        else:
            still = Stalls(*tiles.whatever_the_plan("stalls", self._stalls_at_once))
            still = replace(still, parts=still.parts.astype(int))
        return StepTimes(
            turns,
            spatial,
            tuple(q.depth for q in self.target.queues),
            self.target.issue,
            fetches_of(self.target),
            self._queue(self.unit.instruction.queue),
            np.stack([still.latency, np.full(shape, self._latency())]),
            before + np.where(pace.clear_distance > 0, 0, still.before),
            work + still.work,
            np.stack([still.calls_before, still.calls, still.calls_after]),
            after + still.after,
            still.parts,
            still.sweeps,
            tuple(self._loads(tiles, plan, pace.prefetch_distance, turns)),
            stores,
            distance,
            np.minimum(pace.clear_distance, steps - buffers),
            buffers,
            chunks,
            axis,
            bool(self.accumulator_work.stored),
        )

    def _work_and_calls(self, tile: Sizes) -> np.ndarray:
        return np.stack(np.broadcast_arrays(*self.work(tile), *tile.values())[:2])

    def _stalls_at_once(self, tile: Sizes) -> np.ndarray:
        """Those of tiles that are finished at once: a row for each field [fields, tiles]."""
        work, calls = self._work_and_calls(tile)
        found = self._stalls(tile, work, calls, np.ones(work.shape, int))
        return np.stack([getattr(found, f.name) for f in fields(Stalls)])

    def _stalls(
        self, tile: Sizes, work: np.ndarray, calls: np.ndarray, chunks: np.ndarray
    ) -> Stalls:
        """How long the unit's queue waits for its own results, with as many parts of a tile taking
        turns as is best: of those that some axis of the result has."""
        instruction, shape = self.unit.instruction, work.shape
        elements = np.broadcast_to(self.elements(tile), shape)
        blocks = [tile[v] // row for v, row in self.rows.items()]
        found: list[Stalls] = []
        for parts in PARTS:
            can = np.logical_or.reduce([n % parts == 0 for n in blocks] or [parts == 1])
            many = np.broadcast_to(np.where(can, parts, 1), shape)
            each, sweep = self._sweeps(tile, calls, many)
            unit = Work(instruction, self._latency(), work, each, sweep)
            found.append(stalls(unit, self.accumulator_work.steps, elements, chunks, many))
        issue = self.target.issue * (1 + len(self.accumulator_work.steps))
        total = np.stack([x.before + x.work + x.after + issue * x.parts for x in found])
        return chosen(found, np.argmin(total, axis=0))

    def _sweeps(
        self, tile: Sizes, calls: np.ndarray, parts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns calls per step, and calls per sweep over distinct accumulators, each [tiles]. One
        call adds several times to an accumulator, if its hardware loops come back to that late
        enough (plan/fold.py)."""
        sums = np.broadcast_to(self._blocks(tile, self.nest.reduce), calls.shape)
        if not self.unit.free:
            return calls, np.maximum(1, calls / sums)
        apart = self._blocks(tile, self.nest.axes) / parts
        wanted = dict(self.unit.instruction.distances).get(self.unit.result.buffer.name, 1)
        return parts * np.where(apart < wanted, sums, 1), parts

    def _blocks(self, tile: Sizes, loops: Sequence[For]) -> np.ndarray:
        """How often the unit's fixed axes go into a tile, along some of the loops."""
        axes = {x.var: axis for axis, x in self.mapping.axes}
        count: np.ndarray = np.ones(1)
        for v in (x.var for x in loops if x.var in tile):
            step = partial(self.unit.step, axes[v]) if v in axes else lambda n: 1
            count = count * (tile[v] / _per_size(step, tile[v]))
        return count

    def _loads(
        self, tiles: Tiles, plan: Plan, distance: np.ndarray, turns: np.ndarray
    ) -> Iterator[Loads]:
        """Yields the loads of operands, then of what the sums start with."""
        tile = tiles.sizes
        innermost = np.max([np.where(n > 1, k, -1) for k, n in enumerate(turns)], axis=0)
        for number, operand in enumerate(self.loads):
            level = self._reload_level(operand, list(turns), plan)
            in_epilogue = operand in self.epilogue_loads and not self.unit.whole
            late = self._has_one_place(operand, level, innermost, plan)
            late = np.broadcast_to(late, turns.shape[1:])
            buffers = 1 + np.where(level == innermost, distance, np.minimum(distance, 1))
            buffers = np.where(late, 1, buffers)
            preloaded = plan.preloaded and operand in self.with_sums
            sizes = self.whole if preloaded else tile
            whole = (
                operand.times(self.whole)
                if preloaded
                else tiles.whatever_the_plan(f"operand {number}", operand.times)
            )
            times = np.zeros((4, len(turns) + 1, turns.shape[1]))
            times[:, -1] = whole
            for k, var in enumerate(plan.order):
                new = operand.times(sizes, var) if plan.rings else whole
                times[:, k] = np.where(level > k, whole, np.where(level == k, new, 0))
            if operand.move is not None:
                queue = self._queue(operand.move.queue)
                calls, setup, work, transfer = times
                yield Loads(
                    queue, operand.move.latency, calls, setup, work, transfer,
                    *operand.move.own_hazard, buffers, late, in_epilogue,
                )  # fmt: skip
            if operand.relay is not None:  # in every step, whether its tile is new or not
                blocks = tiles.whatever_the_plan(f"relay {number}", operand.relay_times)
                calls, setup, work, transfer = np.broadcast_to(blocks[:, None], times.shape)
                move = operand.relay
                yield Loads(
                    self._queue(move.queue), move.latency, calls, setup, work, transfer,
                    *move.own_hazard, buffers, np.zeros(turns.shape[1], bool),
                )  # fmt: skip
        for operand in self.accumulator_loads:
            times = np.zeros((4, len(turns) + 1, turns.shape[1]))
            begins = [*range(self._spatial(plan.order)), -1]
            times[:, begins] = operand.times(tile)[:, None]
            buffers = np.where(distance > 0, distance + 2, 1) + 0 * turns[0]
            if operand.move is not None:
                queue, within = self._queue(operand.move.queue), operand.move.own_hazard
                calls, setup, work, transfer = times
                yield Loads(
                    queue, operand.move.latency, calls, setup, work, transfer, *within, buffers,
                    np.zeros(turns.shape[1], bool), is_addend=True,
                )  # fmt: skip

    def _store_times(
        self, tiles: Tiles, after: np.ndarray, single: np.ndarray
    ) -> tuple[Moves, np.ndarray, np.ndarray]:
        """Returns what stores a tile of the result; in how many chunks a `single` one is finished,
        so that the first leave early; and which axis of the result (of self.rows) they are parts
        of. A chunk takes at least the latency of the epilogue's calls."""
        tile = tiles.sizes
        whole = tiles.whatever_the_plan("store", self.store.times)
        times = np.broadcast_to(whole, (4, *after.shape))
        chunks, axis = np.ones(after.shape, int), np.zeros(after.shape, int)
        expected = after + queue_cycles(times)
        most = after // max(1, len(self.accumulator_work.steps) * self._latency())
        for k, (v, row) in enumerate(self.rows.items()) if single.any() else ():
            count = np.ones(after.shape, int)
            for n in range(2, STORE_CHUNKS + 1):
                count = np.where((n <= most) & (tile[v] // row % n == 0), n, count)
            each = self._chunked_store_times(tile, v, count)
            out = queue_cycles(each)
            cycles = np.maximum(after, out) + np.minimum(after, out) / count
            better = single & (cycles < expected)
            expected = np.where(better, cycles, expected)
            chunks, axis = np.where(better, count, chunks), np.where(better, k, axis)
            times = np.where(better, each, times)
        move = self.store.move
        queue, latency = (move.queue, move.latency) if move else (self.unit.instruction.queue, 0)
        within = move.own_hazard if move else (Hazard.STALL, 0)
        calls, setup, work, transfer = times
        moves = Moves(self._queue(queue), latency, calls, setup, work, transfer, *within)
        return moves, chunks, axis

    def _chunked_store_times(self, tile: Sizes, axis: Var, count: np.ndarray) -> np.ndarray:
        """Returns what it takes to store a tile in so many chunks of an axis (OperandTile.times).
        A chunk's elements are not contiguous in the unit's memory along axes outside of that."""
        size, times = {**tile, axis: tile[axis] // count}, count
        for p, _, _ in self.store.dims:
            v = next((x for x in self.store.forms[p] if x in self.rows), None)
            if v == axis:
                break
            if isinstance(v, Var):
                times = times * (tile[v] // self.rows[v])
                size[v] = np.full_like(tile[v], self.rows[v])
        stored: np.ndarray = self.store.times(size) * times
        return stored

    def _queue(self, name: str) -> int:
        return [q.name for q in self.target.queues].index(name)

    def _spatial(self, order: Sequence[Var]) -> int:
        """Counts the spatial loops in `order`: each of their turns begins a new result tile."""
        return sum(v in {x.var for x in self.nest.axes} for v in order)

    def _tiles(self, turns: Sequence[np.ndarray] | np.ndarray, plan: Plan) -> np.ndarray:
        """Counts the tiles of the result [tiles]."""
        return np.asarray(math.prod(turns[: self._spatial(plan.order)], start=np.ones(1, int)))

    def _trip_counts(self, tile: Sizes, order: Sequence[Var]) -> list[np.ndarray]:
        return [self.whole[v] // tile[v] for v in order]

    def _reload_level(
        self, operand: OperandTile, turns: Sequence[np.ndarray], plan: Plan
    ) -> np.ndarray:
        """Returns the index of the innermost tile loop that reloads the operand [tiles]; -1 if it
        is loaded once."""
        level = np.full(1, -1)
        if plan.preloaded and operand in self.with_sums:
            return level
        for k, (var, count) in enumerate(zip(plan.order, turns, strict=True)):
            if operand.varies_with(var):
                level = np.where(count > 1, k, level)
        return level

    def _latency(self) -> int:
        """Cycles from the unit's last call to its results, at most."""
        return most(self.unit.instruction.cost.latency)


def _per_size(function: Callable[[int], int], sizes: np.ndarray) -> np.ndarray:
    """Applies the function to each size, once per distinct value."""
    different = np.flatnonzero(np.bincount(sizes.reshape(-1)))  # a sort would take longer
    found = np.array([function(int(n)) for n in different])
    return found[np.searchsorted(different, sizes)]


# ---------------------------------------------------------------- sizes of tiles


def tile_sizes(model: TileModel) -> dict[Var, list[int]]:
    """Lists the legal tile sizes of each loop: the divisors of its extent that the unit takes in
    whole calls."""
    mapping = model.mapping
    steps = {x.var: mapping.unit.loops[axis].extent for axis, x in mapping.axes}
    ranged = {} if mapping.unit.whole else {x.var: axis for axis, x in mapping.axes}
    whole = {
        v for v, n in steps.items() if mapping.unit.whole and v not in _axes_of_result(mapping)
    }
    most = {
        x.var: mapping.unit.size(axis) if mapping.unit.whole else 1 << 62
        for axis, x in mapping.axes
    }
    sizes = {}
    windows = window_loops(Plan(model.nest, mapping, {}), model.target)
    for loop in model.loops:
        assert isinstance(loop.extent, int)
        fixed = steps.get(loop.var, 1)
        step = fixed if isinstance(fixed, int) else 1
        found = [d for d in range(step, loop.extent + 1, step) if loop.extent % d == 0]
        if loop.var in ranged:  # one iteration would be no loop
            found = [d for d in found if mapping.unit.step(ranged[loop.var], d) > 1]
        if loop.var in whole:
            found = [loop.extent]
        elif loop.var in windows or (mapping.unit.whole and loop.var not in steps):
            found = [1]  # it is around the calls
        sizes[loop.var] = [d for d in found if d <= most.get(loop.var, d)]
        if not sizes[loop.var]:
            raise _uncut(model, loop, loop.var in whole)
    return sizes


def _uncut(model: TileModel, loop: For, whole: bool) -> ScheduleError:
    name = model.unit.instruction.name
    why = f"{name} does not take it in equal parts"
    if whole:
        (axis,) = (axis for axis, x in model.mapping.axes if x.var == loop.var)
        why = f"{name}, which keeps its sums to itself, takes {model.unit.size(axis)} at most"
    return ScheduleError(
        f"{loop.var.name} runs {loop.extent} times, and {why}",
        program=model.nest.stmt,
        hint="split the kernel, or describe an instruction with another range",
    )


def cartesian(sizes: Mapping[Var, Sequence[int]]) -> dict[Var, np.ndarray]:
    """Returns every combination of sizes: an array [combinations] for each loop."""
    grids = np.meshgrid(*(np.array(x, np.int64) for x in sizes.values()), indexing="ij")
    return {var: g.reshape(-1) for var, g in zip(sizes, grids, strict=True)}


def _axes_of_result(mapping: AxisMapping) -> set[Var]:
    """Returns the loops on which the result's subscripts depend."""
    axes = set().union(*map(variables, mapping.unit.result.indices))
    return {x.var for axis, x in mapping.axes if axis in axes}
