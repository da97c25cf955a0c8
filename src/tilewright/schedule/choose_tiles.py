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
from dataclasses import dataclass, field, fields, replace

import numpy as np

from tilewright.analyze.linear import Linear
from tilewright.analyze.nests import Nest
from tilewright.base.dtype import DType
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Dim, Expr, Load, Symbol, Var, as_expr
from tilewright.ir.graph import Layout
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, walk_statements
from tilewright.ir.substitute import variables
from tilewright.schedule.accelerate import (
    Plan,
    far_axes,
    layout_of,
    local_layout,
    made_of,
    order_of,
    rows_of,
)
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
    ranges: tuple[tuple[Symbol, Symbol | None], ...]  # its loops of any length, innermost first;
    # the field that says how far apart their steps are, or None: side by side

    @property
    def queue(self) -> str:
        return self.instruction.queue

    def term(self, e: Dim, values: Names[Symbol, np.ndarray]) -> np.ndarray:
        """A term of the cost; fields that are not given are at their least."""
        env: dict[Expr, object] = {f.symbol: np.int64(f.low) for f in self.instruction.fields}
        return np.asarray(evaluate_expr(as_expr(e), {**env, **values}, {}), float)


def find_move(
    target: Target, source: str, destination: str, dram: str, dtype: DType | None = None
) -> Move | None:
    """The target's copy between two memories, of a type if one is given; `dram` is the one whose
    elements lie apart."""
    for instruction in copies(target, source, destination):
        if dtype not in (None, *(b.dtype for b in instruction.operands if b.memory == dram)):
            continue
        memories = [target.memory(m) for m in (source, destination)]
        rate = min((m.bandwidth for m in memories if m.bandwidth is not None), default=math.inf)
        latency = max(m.latency for m in memories)
        far = next(b for b in instruction.operands if b.memory == dram)
        loops = [s for s in walk_statements(instruction.body) if isinstance(s, For)]
        ranges = []
        for d, x in enumerate(loops[: len(far.shape)]):
            carrier = instruction.carrier(far, d)
            if isinstance(x.extent, Symbol):
                ranges.append((x.extent, None if carrier is None else carrier.symbol))
        return Move(instruction, rate, latency, tuple(reversed(ranges)))
    return None


@dataclass(frozen=True)
class Piece:
    """One operand of a tile: its subscripts as linear forms of the contraction's loops, and the
    dimensions of its copy in the unit's memory, rows left out, outermost first: (subscript,
    elements of it that one step covers, elements between steps in the other memory)."""

    forms: tuple[Linear, ...]
    far: tuple[bool, ...]  # of each subscript: whether what nobody needs is left out
    dims: tuple[tuple[int, int, int], ...]
    row: int  # elements
    bytes: int  # of an element
    memory: str
    move: Move | None  # None: it is there already, or nothing moves it
    extents: tuple[int, ...] = ()  # of the subscripts, where windows may reach beyond them

    def moved_by(self, var: Var) -> bool:
        return any(var in variables(x) for f in self.forms for x in f if x is not None)

    def reach(self, tile: Sizes) -> list[np.ndarray]:
        """Elements along each subscript that the copy has."""
        pairs = zip(self.forms, self._steps(tile), strict=True)
        reach = [-(-_reach(form, tile) // step) for form, step in pairs]
        if self.extents:
            reach = [np.minimum(n, most) for n, most in zip(reach, self.extents, strict=True)]
        return reach

    def _steps(self, tile: Sizes) -> list[np.ndarray]:
        """How far apart those are."""
        return [
            _step(form, tile) if far else np.ones(1, np.int64)
            for form, far in zip(self.forms, self.far, strict=True)
        ]

    def size(self, tile: Sizes) -> np.ndarray:
        """Bytes."""
        return math.prod(self.reach(tile)) * self.bytes  # type: ignore[return-value]

    def elements(self, whole: Sizes) -> int:
        """How many different ones all iterations touch."""
        counts = [len(_values(form, whole)) for form in self.forms]
        return math.prod(map(min, zip(counts, self.extents or counts, strict=True)))

    def times(self, tile: Sizes) -> tuple[np.ndarray, np.ndarray]:
        """Cycles on its queue, and of those on the memory, to move the piece of a tile once."""
        if self.move is None:
            return np.zeros(1), np.zeros(1)
        move, (counts, apart) = self.move, self._runs(tile)
        calls = math.prod(counts[len(move.ranges) :], start=np.ones(1))
        values = {}
        for (symbol, carrier), count, far in zip(move.ranges, counts, apart, strict=False):
            assert symbol.upper is not None
            calls = calls * -(-count // symbol.upper)
            values[symbol] = np.minimum(count, symbol.upper)
            if carrier is not None:
                values[carrier] = far
        cost = move.instruction.cost
        transfer = calls * np.ceil(move.term(cost.bytes, values) / move.rate)
        return calls * move.term(cost.setup, values) + transfer, transfer

    def _runs(self, tile: Sizes) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Steps of equal distance that follow each other, innermost first, and those distances:
        each run can be one loop of an instruction. The first are those that take whole rows."""
        assert self.move is not None
        reach, steps = self.reach(tile), self._steps(tile)
        shape = np.broadcast_shapes(*(r.shape for r in reach))
        runs, apart = [np.ones(shape)], [np.full(shape, float(self.row))]
        at = np.zeros(shape, int)
        whole = bool(self.move.ranges) and self.move.ranges[0][1] is None
        for p, step, near in reversed(self.dims):
            distance = near * steps[p]
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
        return runs, apart


def _reach(form: Linear, tile: Sizes) -> np.ndarray:
    """How many values a subscript takes, from its least to its greatest."""
    steps = (abs(k) * (tile[x] - 1) for x, k in form.items() if isinstance(x, Var) and x in tile)
    return 1 + sum(steps, np.zeros(1, np.int64))


def _step(form: Linear, tile: Sizes) -> np.ndarray:
    """How far apart the values are that a subscript takes."""
    found = np.zeros(1, np.int64)
    for x, k in form.items():
        if isinstance(x, Var) and x in tile:
            found = np.gcd(found, np.where(tile[x] > 1, abs(k), 0))
        elif x is not None:
            return np.ones(1, np.int64)
    return np.maximum(found, 1)


def _values(form: Linear, whole: Sizes) -> np.ndarray:
    """The different values of a subscript."""
    found = np.zeros(1, np.int64)
    for x, k in form.items():
        if isinstance(x, Var) and x in whole:
            found = np.unique(found[:, None] + k * np.arange(int(whole[x][0])))
    return found


# ---------------------------------------------------------------- model


@dataclass(frozen=True)
class Besides:
    """What an element of the result takes besides the contraction: cycles of the unit's queue, for
    clearing and for what follows, and of others, to begin the sums with something; bytes of
    memories, and of those that hold a result until it is stored."""

    cycles: float = 0.0
    loading: float = 0.0
    bytes: Names[str, float] = field(default_factory=dict)
    stored: Names[str, float] = field(default_factory=dict)
    seeded: bool = False  # what is added to the sums is what they begin with


class Model:
    """Sizes and times of a contraction on a unit, for many tiles at a time."""

    def __init__(
        self,
        s: Schedule,
        target: Target,
        nest: Nest,
        mapping: Mapping,
        besides: Besides | None = None,
    ) -> None:
        self.target, self.nest, self.mapping, self.unit = target, nest, mapping, mapping.unit
        self.besides = besides or Besides()
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
                if piece is not self.store and not self.besides.seeded:
                    self.loads.append(piece)
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
        sizes = [tile[x.var] for x in self.nest.axes if x.var in tile]
        return np.prod(np.broadcast_arrays(*sizes), axis=0)

    def fits(self, tile: Sizes, order: Sequence[Var], ahead: int) -> np.ndarray:
        """Whether every memory holds the pieces: one that is brought more than once has a place for
        each step that it is ahead, as well."""
        turns = self._turns(tile, order)
        last = np.max([np.where(n > 1, k, -1) for k, n in enumerate(turns)], axis=0)
        used: dict[str, np.ndarray] = {}
        turning: dict[str, np.ndarray] = {}  # bytes of one turn of what has several places
        for piece in (*self.loads, self.result):
            level = self._level(piece, turns, order)
            inner = (level == last) & (piece is not self.result)
            turns_more = min(ahead, 1)
            if piece is self.result and self.besides.seeded and ahead:
                turns_more = 1 + ahead  # it is begun early
            many = np.where(level < 0, 1, 1 + np.where(inner, ahead, turns_more))
            size, name = piece.size(tile), piece.memory
            used[name] = used.get(name, np.zeros(1)) + many * size
            turning[name] = turning.get(name, np.zeros(1)) + np.where(many > 1, size, 0)
        elements, twice = self.elements(tile), 1 + min(ahead, 1)
        for each, places in ((self.besides.bytes, 1), (self.besides.stored, twice)):
            for name, size in each.items():
                used[name] = used.get(name, np.zeros(1)) + size * places * elements
        memories = {name: self.target.memory(name) for name in used}
        limits = {name: m.size or math.inf for name, m in memories.items()}
        fits = [size <= limits[name] for name, size in used.items()]
        fits += [size <= limits[name] / memories[name].banks for name, size in turning.items()]
        return np.logical_and.reduce(fits)

    # ------------------------------------------------------ the whole

    def phases(self, tile: Sizes, order: Sequence[Var]) -> Phases:
        """What the steps take with the loops over tiles in this order, outermost first."""
        turns = self._turns(tile, order)
        times = [(p, self._level(p, turns, order), *p.times(tile)) for p in self.loads]
        shape = np.broadcast_shapes(*(n.shape for n in tile.values()))
        queue = self.unit.instruction.queue
        spatial = {x.var for x in self.nest.axes}
        loads, channel, busy = [], [], []
        for level in range(len(order)):
            moved, transfers, own = np.zeros(shape), np.zeros(shape), np.zeros(shape)
            for piece, last, load, transfer in times:
                if piece.move is not None:
                    same = piece.move.queue == queue
                    own = own + np.where(same & (last >= level), load, 0)
                    moved = moved + np.where((not same) & (last >= level), load, 0)
                    transfers = transfers + np.where(last >= level, transfer, 0)
            if order[level] in spatial:
                moved = moved + self.besides.loading * self.elements(tile)
            loads.append(moved)
            channel.append(transfers)
            busy.append(own)
        first = sum((load for _, _, load, _ in times), np.zeros(shape))
        store, stored = (np.broadcast_to(x, shape) for x in self.store.times(tile))
        after = self.besides.cycles * self.elements(tile)
        return Phases(
            np.stack([np.broadcast_to(n, shape) for n in turns]),
            sum(v in spatial for v in order),
            np.broadcast_to(self.work(tile), shape),
            np.broadcast_to(after, shape),
            np.stack(loads),
            np.stack(channel),
            np.stack(busy),
            first,
            store,
            stored,
            max((p.move.latency for p in self.loads if p.move), default=0),
            self._latency(),
            self.store.move.latency if self.store.move else 0,
        )

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
        fixed = {x.var: self.unit.loops[v].extent for v, x in self.mapping.axes}
        steps = {v: np.array([n]) for v, n in fixed.items() if isinstance(n, int)}
        if self.unit.whole:
            steps |= {x.var: whole[x.var] for x in self.nest.reduce if x.var in whole}
        least = {v: steps.get(v, np.ones(1, np.int64)) for v in whole}
        factors = self.loads[:2]
        fill = sum(float(p.times(least)[0][0]) for p in factors)
        fill += max((p.move.latency for p in factors if p.move), default=0)
        drain = float(self.store.times(least)[0][0])
        drain += self.store.move.latency if self.store.move else 0
        drain += self._latency()
        work = float(self.work(whole)[0]) + self.besides.cycles * float(self.elements(whole)[0])
        return Bound(work, moves, fill, drain)

    def _latency(self) -> int:
        """Cycles from the unit's last call to its results, at most."""
        instruction = self.unit.instruction
        env = {f.symbol: np.int64(f.high) for f in instruction.fields}
        return int(evaluate_expr(as_expr(instruction.cost.latency), env, {}))

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
    if plan.unit.whole:
        return _whole_piece(s, target, plan, theirs, ours, loaded=loaded)
    rows = rows_of(plan, target, theirs, ours)
    packed = layout_of(rows, plan, theirs, ours, s)
    packed = packed or Layout(tuple(range(len(theirs.indices))))
    held = local_layout(plan, rows, theirs, ours)
    blocks = dict(packed.blocks)
    shape = packed.physical_shape(tuple(theirs.buffer.shape))
    far = [math.prod(int(n) for n in shape[d + 1 :]) for d in range(len(shape))]
    sizes = dict(held.blocks)
    dims = []
    for p in held.order:
        step = sizes.get(p, 1)
        one = far[packed.order.index(p)]
        dims.append((p, step, one if p in blocks else one * step))
    places = (theirs.buffer.memory, ours.buffer.memory)
    move = find_move(target, *(places if loaded else places[::-1]), dram=theirs.buffer.memory)
    forms = tuple(s.simplifier.linear(i) for i in theirs.indices)
    row = math.prod(sizes.values())
    width = (ours if local else theirs).buffer.dtype.bytes
    distant = far_axes(theirs.buffer.with_(shape=shape))
    apart = tuple(loaded and packed.order.index(p) in distant for p in range(len(forms)))
    return Piece(forms, apart, tuple(dims), row, width, ours.buffer.memory, move)


def _whole_piece(
    s: Schedule, target: Target, plan: Plan, theirs: Load, ours: Load, *, loaded: bool
) -> Piece:
    """How an operand of a whole operator lies in memory: in the order of its axes."""
    order = order_of(plan, theirs, ours)
    shape = [int(theirs.buffer.shape[p]) for p in order]
    dims = [(p, 1, math.prod(shape[k + 1 :])) for k, p in enumerate(order)]
    places = (theirs.buffer.memory, ours.buffer.memory)
    move = find_move(
        target, *(places if loaded else places[::-1]), theirs.buffer.memory, theirs.buffer.dtype
    )
    forms = tuple(s.simplifier.linear(i) for i in theirs.indices)
    never = (False,) * len(forms)
    extents = tuple(int(n) for n in theirs.buffer.shape)
    return Piece(
        forms, never, tuple(dims), 1, theirs.buffer.dtype.bytes, ours.buffer.memory, move, extents
    )


# ---------------------------------------------------------------- steps


@dataclass(frozen=True)
class Phases:
    """Cycles of the steps of n pipelines. A step of level k is one where loop k is the outermost
    that turns: what it brings is what that loop or one inside of it moves."""

    turns: np.ndarray  # [levels, n]: iterations of each loop over tiles, outermost first
    spatial: int  # so many of the loops make a new tile of the result; the others add to it
    work: np.ndarray  # [n] of the unit for a step
    after: np.ndarray  # [n] on its queue, once a tile's sums are complete
    loads: np.ndarray  # [levels, n] on the queues that bring operands
    channel: np.ndarray  # [levels, n] of those, on the memory
    busy: np.ndarray  # [levels, n] for operands that the unit's own queue brings
    first: np.ndarray  # [n] for all operands of the first step
    store: np.ndarray  # [n] for a tile of the result
    stored: np.ndarray  # [n] of those, on the memory
    latency: int  # until operands are there
    behind: int  # until the unit is done with them, after its last call has left
    end: int  # until a result is there

    def only(self, kept: np.ndarray) -> Phases:
        """Of some of the pipelines."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        taken = {k: x[..., kept] for k, x in arrays.items() if isinstance(x, np.ndarray)}
        return replace(self, **taken)

    @property
    def steps(self) -> np.ndarray:
        return np.prod(self.turns, axis=0)

    def estimate(self) -> np.ndarray:
        """Cycles if each step took as long as the slowest of what happens during it."""
        total = self.first + self.latency + self.work + self.after + self.store + self.end
        for level in range(len(self.turns)):
            inner = np.prod(self.turns[:level], axis=0)
            count = inner * self.turns[level] - inner
            new = level < self.spatial
            busy = self.work + self.busy[level] + (self.after if new else 0)
            moved = self.loads[level] + np.where(self.loads[level] > 0, self.latency, 0)
            channel = self.channel[level] + (self.stored if new else 0)
            one = np.maximum(np.maximum(busy, moved), channel)
            total = total + count * (np.maximum(one, self.store + self.end) if new else one)
        return total

    def serial(self) -> np.ndarray:
        """Cycles if nothing overlaps."""
        tiles = np.prod(self.turns[: self.spatial], axis=0)
        total = self.first + self.latency + tiles * (self.after + self.store + self.end)
        for level in range(len(self.turns)):
            inner = np.prod(self.turns[:level], axis=0)
            count = inner * self.turns[level] - inner
            total = total + count * (self.loads[level] + self.busy[level] + self.latency)
        return total + self.steps * self.work

    def run(self, ahead: int) -> np.ndarray:
        """Cycles with operands brought so many steps ahead: the pipelines run step by step."""
        p = Pipelines(self, ahead)
        for i in range(ahead):
            p.bring(i)
        for i in range(int(self.steps.max())):
            p.bring(i + ahead)
            p.compute(i)
        return p.end

    def level(self, i: int) -> np.ndarray:
        """The level of step i."""
        inner = np.cumprod(self.turns[::-1], axis=0)[::-1]
        below = np.concatenate([inner[1:], np.ones_like(inner[:1])])  # steps between turns
        turned = (i % below == 0) & (self.turns > 1)
        return np.where(turned.any(0), turned.argmax(0), len(self.turns) - 1)


class Pipelines:
    """Pipelines at work: when each engine is free again, in cycles."""

    def __init__(self, phases: Phases, ahead: int) -> None:
        self.phases, self.steps = phases, phases.steps
        n = len(phases.work)
        self.loader, self.unit, self.storer = (np.zeros(n) for _ in range(3))
        self.owed = np.zeros(n)  # cycles that a store has the memory while operands are brought
        self.there = [np.zeros(n) for _ in range(ahead + 1)]  # when a step has its operands
        self.free = [np.zeros(n) for _ in range(ahead + 1)]  # when their places can be filled anew
        self.left = [np.zeros(n), np.zeros(n)]  # when the last two tiles were stored

    def bring(self, i: int) -> None:
        """Brings the operands of step i."""
        p, place = self.phases, i % len(self.there)
        level = p.level(i)
        load = self.phases.first if i == 0 else _at(p.loads, level)
        transfer = load if i == 0 else _at(p.channel, level)
        on = (i < self.steps) & (load > 0)
        shared = self.owed * transfer / np.maximum(load, 1)  # between transfers it is no matter
        done = np.maximum(self.loader, self.free[place]) + load + shared
        self.loader = np.where(on, done, self.loader)
        self.owed = np.where(on, 0, self.owed)
        self.there[place] = np.where(on, done + p.latency, 0)

    def compute(self, i: int) -> None:
        """Works on step i; stores the tile of the result that it may complete."""
        p, place = self.phases, i % len(self.there)
        level, on = p.level(i), i < self.steps
        new = (level < p.spatial) | (i == 0)
        last = (p.level(i + 1) < p.spatial) | (i + 1 == self.steps)
        begin = np.maximum(self.unit, self.there[place])
        begin = np.where(new, np.maximum(begin, self.left[0]), begin)
        own = 0 if i == 0 else _at(p.busy, level)
        end = begin + p.work + own + np.where(last, p.after, 0)
        self.unit = np.where(on, end, self.unit)
        self.free[place] = end + p.behind
        leaves = on & last
        out = np.maximum(self.storer, end + p.behind) + p.store
        self.storer = np.where(leaves, out, self.storer)
        self.owed = np.where(leaves, p.stored, self.owed)
        self.left[0] = np.where(leaves, self.left[1], self.left[0])
        self.left[1] = np.where(leaves, out + p.end, self.left[1])

    @property
    def end(self) -> np.ndarray:
        """When everything is done."""
        return np.maximum(self.unit, self.storer + self.phases.end)


def _at(phases: np.ndarray, level: np.ndarray) -> np.ndarray:
    return np.take_along_axis(phases, level[None], 0)[0]


# ---------------------------------------------------------------- choosing


AHEAD = (1, 2)  # steps that operands may be brought before they are used
MOST = 32  # pipelines of each order that are run step by step
STEPS = 2000  # of one


def choose_tiles(model: Model, *, overlap: bool = True) -> list[Choice]:
    """All tiles that fit the memories, in every order that matters, the fastest first."""
    tile = _tiles(model.loops, model.mapping)
    count = next(iter(tile.values())).size
    found: dict[object, Choice] = {}
    for order, ahead in itertools.product(_orders(model), AHEAD if overlap else (0,)):
        fits = np.broadcast_to(model.fits(tile, order, ahead), count)
        if not fits.any():
            continue
        kept = {v: n[fits] for v, n in tile.items()}
        phases = model.phases(kept, order)
        cycles = phases.estimate() if overlap else phases.serial()
        best = np.argsort(cycles, kind="stable")[:MOST]
        if overlap:
            best = best[phases.steps[best] <= max(STEPS, phases.steps[best].min())]
            cycles = np.array(cycles)
            cycles[best] = phases.only(best).run(ahead)
        for k in best:
            chosen = {v: int(n[k]) for v, n in kept.items()}
            turning = tuple(v for v in order if chosen[v] != model.whole[v][0])
            seeded = model.besides.seeded
            plan = Plan(model.nest, model.mapping, chosen, order, ahead, seeded)
            same = (turning, tuple(chosen.values()), min(ahead, len(turning)))
            found.setdefault(same, Choice(plan, float(cycles[k])))
    return sorted(found.values(), key=lambda c: c.cycles)


def _tiles(loops: Sequence[For], mapping: Mapping) -> dict[Var, np.ndarray]:
    """Divisors of every loop, in whole steps of the unit: all combinations."""
    steps = {x.var: mapping.unit.loops[axis].extent for axis, x in mapping.axes}
    whole = {v for v, n in steps.items() if mapping.unit.whole and v not in _moved(mapping)}
    most = {
        x.var: mapping.unit.range(axis).high if mapping.unit.whole else 1 << 62
        for axis, x in mapping.axes
    }
    sizes = []
    for loop in loops:
        assert isinstance(loop.extent, int)
        fixed = steps.get(loop.var, 1)
        step = fixed if isinstance(fixed, int) else 1
        found = [d for d in range(step, loop.extent + 1, step) if loop.extent % d == 0]
        if loop.var in whole:
            found = [loop.extent]
        sizes.append([d for d in found if d <= most.get(loop.var, d)])
    grids = np.meshgrid(*(np.array(x, np.int64) for x in sizes), indexing="ij")
    return {loop.var: g.reshape(-1) for loop, g in zip(loops, grids, strict=True)}


def _moved(mapping: Mapping) -> set[Var]:
    """The loops that move the result."""
    axes = set().union(*map(variables, mapping.unit.result.indices))
    return {x.var for axis, x in mapping.axes if axis in axes}


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
