"""An analytic model of a contraction in tiles: which fit a chip's memories, and how long they take.

The loops over tiles and parts of sums count like an odometer. A piece of an operand is brought
again whenever a wheel turns that moves it. While one step is worked on, the pieces that the next
one needs are brought; pipelines.py puts that together. Times are the instructions' own costs, with
the fields that the moves would have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping as Names
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.analyze.nests import Nest
from tilewright.base.errors import ScheduleError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Expr, Symbol, Var, as_expr
from tilewright.ir.loop import For
from tilewright.ir.substitute import variables
from tilewright.schedule.pieces import Piece, Sizes, piece_of
from tilewright.schedule.pipelines import StepTimes
from tilewright.schedule.plan import Plan, made_of
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.units import Mapping
from tilewright.target.target import Target

PORTIONS = 8  # at most, in which a tile is finished


@dataclass(frozen=True)
class Besides:
    """What an element of the result takes besides the contraction: cycles of the unit's queue, for
    clearing and for what follows, and of others, to begin the sums with something; bytes of
    memories, and of those that hold a result until it is stored; and how many calls of the unit's
    queue it takes, one after the other. `before` and `after` are the cycles of the unit's queue
    without which no schedule does: of calls that read nothing, and of others."""

    cycles: float = 0.0
    before: float = 0.0
    after: float = 0.0
    calls: int = 0
    loading: float = 0.0
    bytes: Names[str, float] = field(default_factory=dict)
    stored: Names[str, float] = field(default_factory=dict)
    seeded: bool = False  # what is added to the sums is what they begin with


class Model:
    """Sizes and times of a contraction on a unit, for many tiles at a time. `wanted` is how often
    loops ran before they were padded; without it, none is."""

    def __init__(
        self,
        s: Schedule,
        target: Target,
        nest: Nest,
        mapping: Mapping,
        wanted: Names[Var, int] | None = None,
        besides: Besides | None = None,
    ) -> None:
        self.target, self.nest, self.mapping, self.unit = target, nest, mapping, mapping.unit
        self.besides = besides or Besides()
        self.loops = [x for x in (*nest.axes, *nest.reduce) if x.extent != 1]
        plan = Plan(nest, mapping, {})
        self.loads = [piece_of(s, target, plan, *pair, loaded=True) for pair in plan.reads]
        self.behind: list[Piece] = []  # of the loads: what is read behind the sums
        acc = nest.buffer
        first = True
        self.store: Piece | None = None
        if acc in set(s.allocations()):
            for theirs, ours in made_of(s, plan, acc):
                piece = piece_of(s, target, plan, theirs, ours, loaded=not first)
                self.store, first = (piece, False) if first else (self.store, False)
                if piece is not self.store and not self.besides.seeded:
                    self.loads.append(piece)
                    self.behind.append(piece)
        else:
            self.store = piece_of(s, target, plan, *plan.result, loaded=False)
        assert self.store is not None
        self.result = piece_of(s, target, plan, *plan.result, loaded=False, local=True)
        self.whole = {x.var: np.array([x.extent]) for x in self.loops}
        wanted = wanted or {}
        self.wanted = {v: np.array([wanted.get(v, int(n[0]))]) for v, n in self.whole.items()}

    # ------------------------------------------------------ one tile

    def work(self, tile: Sizes) -> np.ndarray:
        """Cycles of the unit for a tile."""
        cost, unit = self.unit.instruction.cost, self.unit
        axes = dict(self.mapping.axes)
        steps = {
            v: np.vectorize(lambda n, v=v: unit.step(v, int(n)))(tile[x.var])
            for v, x in axes.items()
        }
        total = math.prod(tile[x.var] for x in self.loops)
        calls = total / math.prod(steps.values())
        values: dict[Expr, object] = {f.symbol: np.int64(1) for f in unit.instruction.fields}
        for v, n in steps.items():
            extent = unit.loops[v].extent
            if isinstance(extent, Symbol):
                values[extent] = n
        if unit.free:  # they run all in one
            values[as_expr(unit.loops[unit.free[0]].extent)] = calls
            calls = np.ones(1)
        return calls * np.asarray(evaluate_expr(as_expr(cost.busy), values, {}), float)

    def elements(self, tile: Sizes) -> np.ndarray:
        """Of a tile of the result."""
        sizes = (tile[x.var] for x in self.nest.axes if x.var in tile)
        return math.prod(sizes, start=np.ones(1, np.int64))

    def fits(self, tile: Sizes, plan: Plan) -> np.ndarray:
        """Whether every memory holds the pieces: one that is brought more than once has a place for
        each step that it is ahead, as well."""
        turns = self._turns(tile, plan.order)
        last = np.max([np.where(n > 1, k, -1) for k, n in enumerate(turns)], axis=0)
        used: dict[str, np.ndarray] = {}
        turning: dict[str, np.ndarray] = {}  # bytes of one turn of what has several places
        for piece in (*self.loads, self.result):
            level = self._level(piece, turns, plan)
            inner = (level == last) & (piece is not self.result)
            turns_more = min(plan.ahead, 1)
            if piece is self.result:
                begun_early = self.besides.seeded and plan.ahead  # by a move
                turns_more = plan.ahead + 1 if begun_early else plan.places - 1
            many = np.where(level < 0, 1, 1 + np.where(inner, plan.ahead, turns_more))
            size, name = self._held(piece, tile, plan), piece.memory
            if plan.rings and piece is not self.result:
                many, size = self._ring(piece, tile, plan, level, many, size)
            used[name] = used.get(name, np.zeros(1)) + many * size
            turning[name] = turning.get(name, np.zeros(1)) + np.where(many > 1, size, 0)
        elements = self.elements(tile)
        for each, places in ((self.besides.bytes, 1), (self.besides.stored, plan.places)):
            for name, size in each.items():
                used[name] = used.get(name, np.zeros(1)) + size * places * elements
        memories = {name: self.target.memory(name) for name in used}
        limits = {name: m.size or math.inf for name, m in memories.items()}
        fits = [size <= limits[name] for name, size in used.items()]
        fits += [size <= limits[name] / memories[name].banks for name, size in turning.items()]
        return np.logical_and.reduce(fits)

    def _held(self, piece: Piece, tile: Sizes, plan: Plan) -> np.ndarray:
        """Bytes of a piece."""
        return piece.size(self.whole if plan.once and piece in self.behind else tile)

    def _ring(
        self,
        piece: Piece,
        tile: Sizes,
        plan: Plan,
        level: np.ndarray,
        many: np.ndarray,
        size: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many places a piece has, and the bytes of one, where tiles share elements: a lap of
        the fewest tiles that follow each other in one place (see rings.py), or of all."""
        outer: np.ndarray = np.ones(1, np.int64)
        counts = self._turns(tile, plan.order)
        for k, (var, turns) in enumerate(zip(plan.order, counts, strict=True)):
            new = piece.size(tile, var)
            apart = plan.ahead + -(-size // new)
            found = (level == k) & (new < size)
            places = np.where((turns >= apart) | (outer == 1), 1, 2)
            many = np.where(found, places, many)
            size = np.where(found, size + (np.minimum(turns, apart) - 1) * new, size)
            outer = outer * turns
        return many, size

    # ------------------------------------------------------ the whole

    def step_times(self, tile: Sizes, plan: Plan) -> StepTimes:
        """What the steps take with tiles of these sizes, and else as planned."""
        order = plan.order
        turns = self._turns(tile, order)
        pieces = [(p, self.whole if plan.once and p in self.behind else tile) for p in self.loads]
        times = [(p, sizes, self._level(p, turns, plan), *p.times(sizes)) for p, sizes in pieces]
        shape = np.broadcast_shapes(*(n.shape for n in tile.values()))
        queue = self.unit.instruction.queue
        spatial = order[: self._spatial(order)]
        loads, channel, busy = [], [], []
        for level in range(len(order)):
            moved, transfers, own = np.zeros(shape), np.zeros(shape), np.zeros(shape)
            for piece, sizes, last, *whole in times:
                if piece.move is not None:
                    same = piece.move.queue == queue
                    new = piece.times(sizes, order[level]) if plan.rings else whole
                    load, transfer = (
                        np.where(last > level, a, np.where(last == level, b, 0))
                        for a, b in zip(whole, new, strict=True)
                    )
                    own = own + np.where(same, load, 0)
                    moved = moved + np.where(same, 0, load)
                    transfers = transfers + transfer
            if order[level] in spatial:
                moved = moved + self.besides.loading * self.elements(tile)
            loads.append(moved)
            channel.append(transfers)
            busy.append(own)
        first = sum((load for *_, load, _ in times), np.zeros(shape))
        store, stored = (np.broadcast_to(x, shape) for x in self.store.times(tile))
        after = self.besides.cycles * self.elements(tile)
        tiles = math.prod(turns[: len(spatial)], start=np.ones(shape, int))
        places = np.minimum(plan.places, tiles)
        return StepTimes(
            np.stack([np.broadcast_to(n, shape) for n in turns]),
            len(spatial),
            np.broadcast_to(self.work(tile), shape),
            np.broadcast_to(after, shape),
            np.stack(loads),
            np.stack(channel),
            np.stack(busy),
            first,
            store,
            stored,
            np.full(shape, plan.ahead),
            places,
            np.where(places == 1, self._portions(np.broadcast_to(after, shape)), 1),
            max((p.move.latency for p in self.loads if p.move), default=0),
            self._latency(),
            self.store.move.latency if self.store.move else 0,
        )

    def _portions(self, after: np.ndarray) -> np.ndarray:
        """In which a tile with one place is finished, so that the first leave early: a call on one
        takes as long as its results need."""
        least = max(1, self.besides.calls * self._latency())
        return np.clip(after // least, 1, PORTIONS).astype(int)

    def _spatial(self, order: Sequence[Var]) -> int:
        """So many of the loops, outermost first, make a new tile of the result."""
        return sum(v in {x.var for x in self.nest.axes} for v in order)

    def _turns(self, tile: Sizes, order: Sequence[Var]) -> list[np.ndarray]:
        return [self.whole[v] // tile[v] for v in order]

    def _level(self, piece: Piece, turns: Sequence[np.ndarray], plan: Plan) -> np.ndarray:
        """The innermost loop that moves a piece; -1 for none."""
        level = np.full(1, -1)
        if plan.once and piece in self.behind:
            return level
        for k, (var, count) in enumerate(zip(plan.order, turns, strict=True)):
            if piece.moved_by(var):
                level = np.where(count > 1, k, level)
        return level

    def _latency(self) -> int:
        """Cycles from the unit's last call to its results, at most."""
        instruction = self.unit.instruction
        env = {f.symbol: np.int64(f.high) for f in instruction.fields}
        return int(evaluate_expr(as_expr(instruction.cost.latency), env, {}))


# ---------------------------------------------------------------- sizes of tiles


def tile_sizes(model: Model) -> dict[Var, list[int]]:
    """Divisors of every loop, in whole steps of the unit."""
    mapping = model.mapping
    steps = {x.var: mapping.unit.loops[axis].extent for axis, x in mapping.axes}
    ranged = {} if mapping.unit.whole else {x.var: axis for axis, x in mapping.axes}
    whole = {v for v, n in steps.items() if mapping.unit.whole and v not in _moving_result(mapping)}
    most = {
        x.var: mapping.unit.size(axis) if mapping.unit.whole else 1 << 62
        for axis, x in mapping.axes
    }
    sizes = {}
    for loop in model.loops:
        assert isinstance(loop.extent, int)
        fixed = steps.get(loop.var, 1)
        step = fixed if isinstance(fixed, int) else 1
        found = [d for d in range(step, loop.extent + 1, step) if loop.extent % d == 0]
        if loop.var in ranged:  # one iteration would be no loop
            found = [d for d in found if mapping.unit.step(ranged[loop.var], d) > 1]
        if loop.var in whole:
            found = [loop.extent]
        sizes[loop.var] = [d for d in found if d <= most.get(loop.var, d)]
        if not sizes[loop.var]:
            raise _uncut(model, loop, loop.var in whole)
    return sizes


def _uncut(model: Model, loop: For, whole: bool) -> ScheduleError:
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


def combined(sizes: Names[Var, Sequence[int]]) -> dict[Var, np.ndarray]:
    """All combinations."""
    grids = np.meshgrid(*(np.array(x, np.int64) for x in sizes.values()), indexing="ij")
    return {var: g.reshape(-1) for var, g in zip(sizes, grids, strict=True)}


def _moving_result(mapping: Mapping) -> set[Var]:
    """The loops that move the result."""
    axes = set().union(*map(variables, mapping.unit.result.indices))
    return {x.var for axis, x in mapping.axes if axis in axes}
