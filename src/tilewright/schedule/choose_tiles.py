"""Which tiles of a contraction to give a chip: every legal size, by an analytic model of its time.

A tile of the result needs its operands in the unit's memories, twice over where tiles overlap. Its
time on each queue is counted from the instructions' costs: setting up and moving bytes, or working.
Overlapped, the busiest queue decides; the first load and the last store come on top.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass

import numpy as np

from tilewright.analyze.nests import Nest, stride
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Dim, Expr, Load, Var, as_expr
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For
from tilewright.ir.substitute import variables
from tilewright.schedule.accelerate import Plan
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.units import Mapping, copies
from tilewright.target.target import Target


@dataclass(frozen=True)
class Choice:
    """A plan, and the cycles that the model expects of it."""

    plan: Plan
    cycles: float


@dataclass(frozen=True)
class Move:
    """The instruction that moves an operand: its queue, the rows it takes at most, cycles to set
    one up, bytes a cycle, cycles until the data are there."""

    queue: str
    rows: int
    setup: int
    rate: float
    latency: int = 0

    def cycles(self, calls: float, size: float) -> float:
        return calls * self.setup + size / self.rate


@dataclass(frozen=True)
class Piece:
    """One operand of a tile: how far each of its subscripts reaches, as linear forms; and the
    dimensions of its copy in the unit's memory but for the row that one step of a move takes,
    outermost first: (subscript, elements of it that one step covers, how far apart in memory)."""

    forms: tuple[Names[Expr | None, int], ...]
    dims: tuple[tuple[int, int, int], ...]
    row: int  # elements
    bytes: int  # of an element
    memory: str
    move: Move

    def reach(self, extents: Names[Var, int]) -> list[int]:
        """Elements along each subscript."""
        return [_reach(form, extents) for form in self.forms]

    def size(self, extents: Names[Var, int]) -> int:
        """Bytes."""
        return math.prod(self.reach(extents)) * self.bytes

    def cycles(self, extents: Names[Var, int]) -> float:
        """Time to move it: rows that follow each other at one distance go together."""
        reach = self.reach(extents)
        counts = [(-(-reach[p] // step), apart) for p, step, apart in self.dims]
        together, distance = 1, 0
        for count, apart in reversed(counts):
            if count == 1:
                continue
            if together > 1 and apart != distance * together:
                break
            distance = distance or apart
            together *= count
        rows = math.prod(count for count, _ in counts)
        calls = rows / _largest_divisor(together, self.move.rows)
        return self.move.cycles(calls, self.size(extents))


def choose_tiles(
    s: Schedule, target: Target, nest: Nest, mapping: Mapping, *, overlap: bool = True
) -> list[Choice]:
    """All tiles that fit the memories, the fastest first."""
    model = Model(s, target, nest, mapping)
    found = [
        Choice(Plan(nest, mapping, tile), model.cycles(tile, overlap))
        for tile in _tiles(nest, mapping)
        if model.fits(tile, 2 if overlap else 1)
    ]
    return sorted(found, key=lambda c: c.cycles)


def _tiles(nest: Nest, mapping: Mapping) -> Iterator[dict[Var, int]]:
    """Divisors of every loop, in whole steps of the unit."""
    steps = {loop.var: mapping.unit.size(axis) for axis, loop in mapping.axes}
    sizes = []
    loops = (*nest.axes, *nest.reduce)
    for loop in loops:
        assert isinstance(loop.extent, int)
        step = steps.get(loop.var, 1)
        sizes.append([d for d in range(step, loop.extent + 1, step) if loop.extent % d == 0])
    names = [loop.var for loop in loops]
    for chosen in itertools.product(*sizes):
        yield dict(zip(names, chosen, strict=True))


class Model:
    """Sizes and times of a contraction on a unit, as functions of a tile."""

    def __init__(self, s: Schedule, target: Target, nest: Nest, mapping: Mapping) -> None:
        self.target, self.nest, self.unit = target, nest, mapping.unit
        self.mapping = mapping
        update = nest.update
        assert update is not None
        reads = Plan(nest, mapping, {}).reads
        self.loads = [self._piece(s, x.buffer, x.indices, ours, True) for x, ours in reads]
        ours = Load(mapping.unit.update.buffer, mapping.unit.update.indices)
        self.result = self._piece(s, update.buffer, update.indices, ours, False)
        self.pieces = (*self.loads, self.result)
        loops = (*nest.axes, *nest.reduce)
        self.whole = {x.var: x.extent for x in loops if isinstance(x.extent, int)}
        self.step = math.prod(mapping.unit.size(axis) for axis, _ in mapping.axes)
        self.busy = _at_most(mapping.unit.instruction, mapping.unit.instruction.cost.busy)

    def _piece(
        self,
        s: Schedule,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        ours: Load,
        loaded: bool,
    ) -> Piece:
        """How an operand lies in memory and in the unit's (accelerate._arrangement)."""
        loops = {axis: loop.var for axis, loop in self.mapping.axes}
        places = []
        for i in ours.indices:
            (axis,) = variables(i)
            places.append(next(p for p, e in enumerate(indices) if loops[axis] in variables(e)))
        *others, last = places
        (axis,) = variables(ours.indices[-1])
        row = self.unit.size(axis)
        blocked = stride(buffer, indices, loops[axis], s.simplifier) != 1
        apart = _distances(buffer, last if blocked else None, row)
        rest = [p for p in range(len(indices)) if p not in places]
        dims = [(p, 1, apart[p]) for p in rest]
        dims.append((last, row, apart[last] if blocked else row))
        dims += [(p, 1, apart[p]) for p in others]
        source, destination = buffer.memory, ours.buffer.memory
        move = self._move(*((source, destination) if loaded else (destination, source)))
        forms = tuple(s.simplifier.linear(i) for i in indices)
        return Piece(forms, tuple(dims), row, buffer.dtype.bytes, destination, move)

    def _move(self, source: str, destination: str) -> Move:
        """The target's copy between two memories."""
        for instruction in copies(self.target, source, destination):
            cost = instruction.cost
            memories = [self.target.memory(m) for m in (source, destination)]
            rate = min((m.bandwidth for m in memories if m.bandwidth is not None), default=math.inf)
            rows = max((f.high for f in instruction.fields if f.high < 1 << 15), default=1)
            latency = max(m.latency for m in memories)
            return Move(instruction.queue, rows, _at_most(instruction, cost.setup), rate, latency)
        return Move("", 1, 0, math.inf)  # there already, or refused later with its reason

    def fits(self, tile: Names[Var, int], held: int) -> bool:
        """Whether every memory holds the pieces of `held` tiles."""
        used: dict[str, int] = {}
        for piece in self.pieces:
            used[piece.memory] = used.get(piece.memory, 0) + held * piece.size(tile)
        limits = {name: self.target.memory(name).size for name in used}
        return all(size <= (limits[m] or size) for m, size in used.items())

    def cycles(self, tile: Names[Var, int], overlap: bool) -> float:
        """The whole contraction: operands are loaded for each part of each tile, results stored
        once for each tile."""
        steps = self._times(tile, (*self.nest.axes, *self.nest.reduce))
        tiles = self._times(tile, self.nest.axes)
        busy: dict[str, float] = {}
        for piece in self.pieces:
            queue, times = piece.move.queue, tiles if piece is self.result else steps
            busy[queue] = busy.get(queue, 0) + times * piece.cycles(tile)
        ends = sum(piece.cycles(tile) for piece in self.pieces)  # the first loads, the last store
        queue = self.unit.instruction.queue
        busy[queue] = busy.get(queue, 0) + math.prod(self.whole.values()) / self.step * self.busy
        if not overlap:
            return sum(busy.values())
        # A buffer is free once the tile before the last is done with it: a load begins then, and
        # its data are there a memory's latency after its last byte has left.
        for queue, latency in {p.move.queue: p.move.latency for p in self.loads}.items():
            busy[queue] += steps * latency
        return max(busy.values()) + ends + tiles * self._held_up(tile, steps)

    def _held_up(self, tile: Names[Var, int], steps: int) -> float:
        """How long a tile's store, which shares the memory's bandwidth, keeps the unit waiting for
        the operands of the step during which it happens."""
        work = math.prod(self.whole.values()) / self.step * self.busy / steps
        moved = sum(p.size(tile) / p.move.rate for p in self.pieces)
        latency = max((p.move.latency for p in self.loads), default=0)
        return max(0.0, moved + latency - work)

    def _times(self, tile: Names[Var, int], loops: Sequence[For]) -> int:
        return math.prod(self.whole[x.var] // tile[x.var] for x in loops)

    def bound(self) -> Bound:
        """What no schedule can beat."""
        whole = self.whole
        moves: dict[str, float] = {}
        for piece in self.pieces:
            queue = piece.move.queue
            moves[queue] = moves.get(queue, 0) + piece.size(whole) / piece.move.rate
        steps = {loop.var: self.unit.size(axis) for axis, loop in self.mapping.axes}
        least = {v: steps.get(v, 1) for v in whole}
        first = [p.move.cycles(1, p.size(least)) for p in self.loads]
        fill = sum(first) + max((p.move.latency for p in self.loads), default=0)
        last = self.result.move
        drain = last.cycles(1, self.result.size(least)) + last.latency
        latency = _at_most(self.unit.instruction, self.unit.instruction.cost.latency)
        work = math.prod(whole.values()) / self.step * self.busy
        return Bound(work, max(moves.values()), fill, drain + latency)


@dataclass(frozen=True)
class Bound:
    """Cycles that a contraction takes at least, counted without a simulator: the unit at work all
    the time, or every operand moved once; and one smallest load before, one smallest store
    behind."""

    work: float
    moves: float
    fill: float
    drain: float

    @property
    def cycles(self) -> int:
        return math.ceil(max(self.work, self.moves) + self.fill + self.drain)


def _distances(buffer: Buffer, blocked: int | None, row: int) -> list[int]:
    """Elements between neighbours along each axis of a row-major buffer; between blocks of `row`
    along the `blocked` axis, which lie innermost."""
    extents = [n if isinstance(n, int) else 1 for n in buffer.shape]
    if blocked is not None:
        extents[blocked] = -(-extents[blocked] // row)
    inner = row if blocked is not None else 1
    return [inner * math.prod(extents[d + 1 :]) for d in range(len(extents))]


def _largest_divisor(n: int, most: int) -> int:
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0)


def _reach(form: Names[Expr | None, int], extents: Names[Var, int]) -> int:
    """How many values a subscript takes, from its least to its greatest."""
    return 1 + sum(
        abs(k) * (extents.get(atom, 1) - 1)  # type: ignore[call-overload]
        for atom, k in form.items()
        if atom is not None
    )


def _at_most(instruction: Instruction, term: Dim) -> int:
    """A term of the cost with every field at its greatest."""
    env = {f.symbol: np.int64(f.high) for f in instruction.fields}
    return int(evaluate_expr(as_expr(term), env, {}))
