"""Which tiles of a contraction to give a chip, and the order of the loops over them: every legal
size, by an analytic model of the pipeline's time.

The loops over tiles and parts of sums count like an odometer. A piece of an operand is brought
again whenever a wheel turns that moves it. While one step is worked on, the pieces that the next
one needs are brought: a step takes as long as the slower of the two, and steps of a kind take the
same. Times are the instructions' own costs, with the fields that the moves would have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass

import numpy as np

from tilewright.analyze.linear import Linear
from tilewright.analyze.nests import Nest
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Dim, Expr, Load, Symbol, Var, as_expr
from tilewright.ir.graph import Layout
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, walk_statements
from tilewright.ir.substitute import variables
from tilewright.schedule.accelerate import Plan, layout_of, local_layout, made_of, rows_of
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.units import Mapping, copies
from tilewright.target.target import Target

Sizes = Names[Var, np.ndarray]  # of each loop, for all tiles that are compared


@dataclass(frozen=True)
class Choice:
    """A plan, and the cycles that the model expects of it."""

    plan: Plan
    cycles: float


@dataclass(frozen=True)
class Bound:
    """Cycles that a contraction takes at least, counted without a simulator: the unit's queue at
    work all the time, or every operand moved once; and one smallest load before, one smallest store
    behind."""

    work: float
    moves: float
    fill: float
    drain: float

    @property
    def cycles(self) -> int:
        return math.ceil(max(self.work, self.moves) + self.fill + self.drain)


# ---------------------------------------------------------------- moves


@dataclass(frozen=True)
class Move:
    """An instruction that moves an operand between memories: what its time depends on."""

    instruction: Instruction
    rate: float  # bytes a cycle of the slower memory
    latency: int
    ranges: tuple[tuple[Symbol, bool], ...]  # its loops of any length, innermost first; whether
    # steps along them must be whole rows

    @property
    def queue(self) -> str:
        return self.instruction.queue

    def term(self, e: Dim, values: Names[Symbol, np.ndarray]) -> np.ndarray:
        """A term of the cost; fields that are not given are at their least."""
        env: dict[Expr, object] = {f.symbol: np.int64(f.low) for f in self.instruction.fields}
        return np.asarray(evaluate_expr(as_expr(e), {**env, **values}, {}), float)


def find_move(target: Target, source: str, destination: str, dram: str) -> Move | None:
    """The target's copy between two memories; `dram` is the one whose elements lie apart."""
    for instruction in copies(target, source, destination):
        memories = [target.memory(m) for m in (source, destination)]
        rate = min((m.bandwidth for m in memories if m.bandwidth is not None), default=math.inf)
        latency = max(m.latency for m in memories)
        far = next(b for b in instruction.operands if b.memory == dram)
        loops = [s for s in walk_statements(instruction.body) if isinstance(s, For)]
        ranges = [
            (x.extent, instruction.carrier(far, d) is None)
            for d, x in enumerate(loops)
            if isinstance(x.extent, Symbol)
        ]
        return Move(instruction, rate, latency, tuple(reversed(ranges)))
    return None


@dataclass(frozen=True)
class Piece:
    """One operand of a tile: its subscripts as linear forms of the contraction's loops, and the
    dimensions of its copy in the unit's memory, rows left out, outermost first: (subscript,
    elements of it that one step covers, elements between steps in the other memory)."""

    forms: tuple[Linear, ...]
    dims: tuple[tuple[int, int, int], ...]
    row: int  # elements
    bytes: int  # of an element
    memory: str
    move: Move | None  # None: it is there already, or nothing moves it

    def moved_by(self, var: Var) -> bool:
        return any(var in variables(x) for f in self.forms for x in f if x is not None)

    def reach(self, tile: Sizes) -> list[np.ndarray]:
        """Elements along each subscript."""
        return [_reach(form, tile) for form in self.forms]

    def size(self, tile: Sizes) -> np.ndarray:
        """Bytes."""
        return math.prod(self.reach(tile)) * self.bytes  # type: ignore[return-value]

    def elements(self, whole: Sizes) -> int:
        """How many different ones all iterations touch."""
        return math.prod(len(_values(form, whole)) for form in self.forms)

    def times(self, tile: Sizes) -> tuple[np.ndarray, np.ndarray]:
        """Cycles on its queue, and of those on the memory, to move the piece of a tile once."""
        if self.move is None:
            return np.zeros(1), np.zeros(1)
        move, counts = self.move, self._runs(tile)
        calls = math.prod(counts[len(move.ranges) :], start=np.ones(1))
        values = {}
        for (symbol, _), count in zip(move.ranges, counts, strict=False):
            assert symbol.upper is not None
            calls = calls * -(-count // symbol.upper)
            values[symbol] = np.minimum(count, symbol.upper)
        cost = move.instruction.cost
        transfer = calls * np.ceil(move.term(cost.bytes, values) / move.rate)
        return calls * move.term(cost.setup, values) + transfer, transfer

    def _runs(self, tile: Sizes) -> list[np.ndarray]:
        """Steps of equal distance that follow each other, innermost first: each run can be one loop
        of an instruction. The first are those of the loops that take whole rows."""
        assert self.move is not None
        reach = self.reach(tile)
        shape = np.broadcast_shapes(*(r.shape for r in reach))
        runs, apart = [np.ones(shape)], [np.full(shape, float(self.row))]
        at = np.zeros(shape, int)
        whole = bool(self.move.ranges) and self.move.ranges[0][1]
        for p, step, distance in reversed(self.dims):
            count = np.broadcast_to(-(-reach[p] // step), shape)
            counts, distances = np.stack(runs), np.stack(apart)
            now = np.take_along_axis(counts, at[None], 0)[0]
            gap = np.take_along_axis(distances, at[None], 0)[0]
            fresh = (now == 1) & ~((at == 0) & whole)
            joins = fresh | (distance == gap * now)
            at = at + ((count > 1) & ~joins)
            if at.max() == len(runs):
                runs.append(np.ones(shape))
                apart.append(np.zeros(shape))
            for k, run in enumerate(runs):
                here = (at == k) & (count > 1)
                apart[k] = np.where(here & (run == 1), distance, apart[k])
                runs[k] = np.where(here, run * count, run)
        return runs


def _reach(form: Linear, tile: Sizes) -> np.ndarray:
    """How many values a subscript takes, from its least to its greatest."""
    steps = (abs(k) * (tile[x] - 1) for x, k in form.items() if isinstance(x, Var) and x in tile)
    return 1 + sum(steps, np.zeros(1, np.int64))


def _values(form: Linear, whole: Sizes) -> np.ndarray:
    """The different values of a subscript."""
    found = np.zeros(1, np.int64)
    for x, k in form.items():
        if isinstance(x, Var) and x in whole:
            found = np.unique(found[:, None] + k * np.arange(int(whole[x][0])))
    return found


# ---------------------------------------------------------------- model


class Model:
    """Sizes and times of a contraction on a unit, for many tiles at a time.

    `post` is how many cycles the unit's queue spends on each element of the result besides the
    contraction: on clearing, and on what follows.
    """

    def __init__(
        self, s: Schedule, target: Target, nest: Nest, mapping: Mapping, post: float = 0.0
    ) -> None:
        self.target, self.nest, self.mapping, self.unit = target, nest, mapping, mapping.unit
        self.post = post
        self.loops = [x for x in (*nest.axes, *nest.reduce) if x.extent != 1]
        plan = Plan(nest, mapping, {})
        self.loads = [_piece(s, target, plan, *pair, loaded=True) for pair in plan.reads]
        acc = nest.buffer
        first = True
        self.store: Piece | None = None
        if acc in set(s.allocations()):
            for theirs, ours in made_of(s, plan, acc):
                piece = _piece(s, target, plan, theirs, ours, loaded=not first)
                self.store, first = (piece, False) if first else (self.store, False)
                self.loads += [] if piece is self.store else [piece]
        else:
            self.store = _piece(s, target, plan, *plan.result, loaded=False)
        assert self.store is not None
        self.result = _piece(s, target, plan, *plan.result, loaded=False, local=True)
        self.whole = {x.var: np.array([x.extent]) for x in self.loops}

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
        return math.prod(tile[x.var] for x in self.nest.axes if x.var in tile)  # type: ignore[return-value]

    def fits(self, tile: Sizes, order: Sequence[Var], ahead: int) -> np.ndarray:
        """Whether every memory holds the pieces: one that is brought more than once has a place for
        each step that it is ahead, as well."""
        turns = self._turns(tile, order)
        last = np.max([np.where(n > 1, k, -1) for k, n in enumerate(turns)], axis=0)
        used: dict[str, np.ndarray] = {}
        for piece in (*self.loads, self.result):
            level = self._level(piece, turns, order)
            inner = (level == last) & (piece is not self.result)
            many = np.where(level < 0, 1, 1 + np.where(inner, ahead, min(ahead, 1)))
            used[piece.memory] = used.get(piece.memory, np.zeros(1)) + many * piece.size(tile)
        limits = {name: self.target.memory(name).size for name in used}
        return np.logical_and.reduce([u <= (limits[m] or math.inf) for m, u in used.items()])

    # ------------------------------------------------------ the whole

    def cycles(self, tile: Sizes, order: Sequence[Var], ahead: int) -> np.ndarray:
        """The whole contraction with the loops over tiles in this order, outermost first, and
        operands brought so many steps ahead; 0: nothing overlaps."""
        turns = self._turns(tile, order)
        spatial = {x.var for x in self.nest.axes}
        tiles = math.prod(n for v, n in zip(order, turns, strict=True) if v in spatial)
        queue = self.unit.instruction.queue
        work, after = self.work(tile), self.post * self.elements(tile)
        store, stored = self.store.times(tile)
        end = self.store.move.latency if self.store.move else 0
        times = [(p, self._level(p, turns, order), *p.times(tile)) for p in self.loads]
        latency = max((p.move.latency for p in self.loads if p.move), default=0)
        first = sum(load for _, _, load, _ in times) + latency  # before the first step
        total, sums = first, [np.zeros(1)] * 3
        for level, var in enumerate(order):
            count = math.prod(turns[: level + 1]) - math.prod(turns[:level])
            ends = after if var in spatial else 0  # a new tile begins, so one has ended
            busy, moved, channel = work + ends, np.zeros(1), np.zeros(1)
            for piece, last, load, transfer in times:
                again = last >= level
                same = piece.move is not None and piece.move.queue == queue
                busy = busy + np.where(again & same, load, 0)
                moved = moved + np.where(again & (not same), load, 0)
                channel = channel + np.where(again, transfer, 0)
            if var in spatial:
                channel = channel + stored
            waits = np.where(moved > 0, latency, 0)
            one = np.maximum(np.maximum(busy, moved + waits), channel + waits)
            if var in spatial:  # the store before the last has freed its place
                one = np.maximum(one, store + end)
            total = total + count * (one if ahead else busy + moved + waits)
            sums = [x + count * y for x, y in zip(sums, (busy, moved, channel), strict=True)]
        if ahead > 1:  # what comes late in one step has been early in another
            total = first + np.maximum.reduce([*sums, tiles * (store + end)])
        stores = store if ahead else tiles * store
        return total + work + after + stores + end

    def _turns(self, tile: Sizes, order: Sequence[Var]) -> list[np.ndarray]:
        return [self.whole[v] // tile[v] for v in order]

    def _level(self, piece: Piece, turns: Sequence[np.ndarray], order: Sequence[Var]) -> np.ndarray:
        """The innermost loop that moves a piece; -1 for none."""
        level = np.full(1, -1)
        for k, (var, count) in enumerate(zip(order, turns, strict=True)):
            if piece.moved_by(var):
                level = np.where(count > 1, k, level)
        return level

    def bound(self) -> Bound:
        """What no schedule can beat."""
        whole = self.whole
        moves = sum(p.elements(whole) * p.bytes / p.move.rate for p in self._moved())
        steps = {x.var: np.array([self.unit.step(v, int(x.extent))]) for v, x in self.mapping.axes}
        least = {v: steps.get(v, np.ones(1, np.int64)) for v in whole}
        factors = self.loads[:2]
        fill = sum(float(p.times(least)[0][0]) for p in factors)
        fill += max((p.move.latency for p in factors if p.move), default=0)
        drain = float(self.store.times(least)[0][0])
        drain += self.store.move.latency if self.store.move else 0
        cost = self.unit.instruction.cost
        env = {f.symbol: np.int64(f.high) for f in self.unit.instruction.fields}
        drain += float(evaluate_expr(as_expr(cost.latency), env, {}))
        work = float(self.work(whole)[0]) + self.post * float(self.elements(whole)[0])
        return Bound(work, moves, fill, drain)

    def _moved(self) -> Iterator[Piece]:
        assert self.store is not None
        yield from (p for p in (*self.loads, self.store) if p.move is not None)


def _piece(
    s: Schedule,
    target: Target,
    plan: Plan,
    theirs: Load,
    ours: Load,
    *,
    loaded: bool,
    local: bool = False,
) -> Piece:
    """How an operand lies in memory and in the unit's; its elements are of the type that they have
    there if `local`."""
    rows = rows_of(plan, target, theirs, ours)
    packed = layout_of(rows, plan, theirs, s) or Layout(tuple(range(len(theirs.indices))))
    held = local_layout(plan, rows, theirs, ours)
    blocks = dict(packed.blocks)
    shape = packed.physical_shape(tuple(theirs.buffer.shape))
    far = [math.prod(int(n) for n in shape[d + 1 :]) for d in range(len(shape))]
    sizes = dict(held.blocks)
    dims = []
    for p in held.order:
        step = sizes.get(p, 1)
        dims.append((p, step, far[p] if p in blocks else far[p] * step))
    places = (theirs.buffer.memory, ours.buffer.memory)
    move = find_move(target, *(places if loaded else places[::-1]), dram=theirs.buffer.memory)
    forms = tuple(s.simplifier.linear(i) for i in theirs.indices)
    row = math.prod(sizes.values())
    width = (ours if local else theirs).buffer.dtype.bytes
    return Piece(forms, tuple(dims), row, width, ours.buffer.memory, move)


# ---------------------------------------------------------------- choosing


AHEAD = (1, 2)  # steps that operands may be brought before they are used


def choose_tiles(model: Model, *, overlap: bool = True) -> list[Choice]:
    """All tiles that fit the memories, in every order that matters, the fastest first."""
    tile = _tiles(model.loops, model.mapping)
    count = next(iter(tile.values())).size
    found: list[Choice] = []
    for order, ahead in itertools.product(_orders(model), AHEAD if overlap else (0,)):
        fits = np.broadcast_to(model.fits(tile, order, ahead), count)
        kept = {v: n[fits] for v, n in tile.items()}
        cycles = np.broadcast_to(model.cycles(kept, order, ahead), int(fits.sum()))
        for k in np.argsort(cycles, kind="stable")[:MOST]:
            chosen = {v: int(n[k]) for v, n in kept.items()}
            plan = Plan(model.nest, model.mapping, chosen, order, ahead)
            found.append(Choice(plan, float(cycles[k])))
    return sorted(found, key=lambda c: c.cycles)


MOST = 64  # of each order


def _tiles(loops: Sequence[For], mapping: Mapping) -> dict[Var, np.ndarray]:
    """Divisors of every loop, in whole steps of the unit: all combinations."""
    steps = {x.var: mapping.unit.loops[axis].extent for axis, x in mapping.axes}
    sizes = []
    for loop in loops:
        assert isinstance(loop.extent, int)
        fixed = steps.get(loop.var, 1)
        step = fixed if isinstance(fixed, int) else 1
        sizes.append([d for d in range(step, loop.extent + 1, step) if loop.extent % d == 0])
    grids = np.meshgrid(*(np.array(x, np.int64) for x in sizes), indexing="ij")
    return {loop.var: g.reshape(-1) for loop, g in zip(loops, grids, strict=True)}


def _orders(model: Model) -> Iterator[tuple[Var, ...]]:
    """The loops over tiles, those over parts of sums innermost: loops that move the same pieces
    stay together."""
    groups: dict[tuple[bool, ...], list[Var]] = {}
    for loop in (x for x in model.nest.axes if x.extent != 1):
        key = tuple(p.moved_by(loop.var) for p in model.loads[:2])
        groups.setdefault(key, []).append(loop.var)
    sums = [x.var for x in model.nest.reduce]
    for order in itertools.permutations(groups.values()):
        yield (*(v for group in order for v in group), *sums)
