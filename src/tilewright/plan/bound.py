"""Cycles that a contraction takes at least, however it is scheduled: counted without a simulator,
from what an instruction does in a cycle at best, and from bytes that are moved once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from tilewright.ir.instruction import Hazard
from tilewright.plan.pieces import OperandTile, Sizes, queue_cycles
from tilewright.plan.rates import least, most_for
from tilewright.plan.tile_model import TileModel, cartesian, tile_sizes
from tilewright.plan.units import mappings, units
from tilewright.target.target import Target


@dataclass(frozen=True)
class ContractionBound:
    """Either queues that do the contraction, and what follows it there, are at `work` all the time,
    with the first operands to come before (`fill`) and the last result to leave behind (`drain`);
    or the busiest memory moves everything once (`moves`), between the first move's set-up and the
    last one's latency (`ends`). Before that the first instruction is fetched and issued; behind it
    comes what ends the stream (`control`)."""

    work: float
    moves: float
    fill: float
    drain: float
    ends: float = 0.0
    control: float = 0.0
    # Of a kernel without a contraction, by queue: the cycles of what it computes at least, and with
    # those of moves, which later kernels of a stream may do without.
    queues: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        longest = max(self.work + self.fill + self.drain, self.moves + self.ends)
        return math.ceil(longest + self.control - 1e-6)

    def shared(self, cores: int) -> ContractionBound:
        """What so many cores take that share what one computes."""
        if cores == 1:
            return self
        queues = {name: (a / cores, b / cores) for name, (a, b) in self.queues.items()}
        return replace(self, work=self.work / cores, queues=queues)

    @property
    def parts(self) -> dict[str, int]:
        """Each of them, rounded up."""
        numbers = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: math.ceil(n) for name, n in numbers if isinstance(n, (int, float))}


def find_bound(model: TileModel) -> ContractionBound:
    """What no schedule can beat: with the instructions that a kernel is mapped to, and all that
    could contract, in the best of the ways that loops can be their axes."""
    tiles = cartesian(tile_sizes(model))  # not always the smallest is there first
    moves = [p for p in (*model.loads, model.store) if p is not None and p.move is not None]
    setups = [float(np.min(p.times(tiles)[1])) for p in moves]
    latencies = [p.move.latency for p in moves if p.move is not None]
    ends = min(setups, default=0.0) + min(latencies, default=0)
    fill = _fill(model, tiles)
    drain, control = _drain(model, tiles), control_cycles(model.target)
    return ContractionBound(_work(model, fill), _moves(model, moves), fill, drain, ends, control)


def least_cycles(model: TileModel) -> float:
    """Cycles that a contraction takes at least, whatever is made of its sums: those of its factors
    and its result alone, which find_bound adds to."""
    tiles = cartesian(tile_sizes(model))
    moves = [p for p in (*model.loads[:2], model.store) if p.move is not None]
    work = _work(model, 0.0) + _fill(model, tiles)
    return max(work, _moves(model, moves)) + control_cycles(model.target)


def control_cycles(target: Target) -> float:
    """Cycles until the first instruction is in its queue, and from when all others are done."""
    cycles = target.issue
    if target.fetch is not None:
        memory = target.memory(target.fetch.memory)
        cycles += math.ceil(target.fetch.bytes / (memory.bandwidth or math.inf)) + memory.latency
    if target.end is not None:
        cost = target.end.cost
        cycles += sum(least(x) for x in (cost.setup, cost.busy, cost.latency))
    return float(cycles)


def _drain(model: TileModel, tiles: Sizes) -> float:
    """From the unit's last call until the last results are there. What follows the sums may be done
    while that call's are on their way, and stored in parts of the smallest tile."""
    _, after = model.accumulator_work.least
    unit, move = model.unit.instruction, model.store.move
    cycles = float(least(unit.cost.latency))
    if move is not None and move.queue == unit.queue and unit.cost.hazard is not Hazard.STALL:
        cycles = 0.0  # the store may have the last results before others do
    cycles = max(0.0, cycles - after * _elements(model))
    if model.store.move is None:
        return cycles
    calls, setup, *_ = times = model.store.times(tiles)
    last = setup if after else queue_cycles(times)
    return cycles + float(np.min(last / calls)) + model.store.move.latency


def _elements(model: TileModel) -> int:
    """Of the result."""
    return math.prod(int(model.wanted[x.var][0]) for x in model.nest.axes if x.var in model.wanted)


def _work(model: TileModel, fill: float) -> float:
    """Cycles of the contraction where all queues that can do it share it; if that is one, with what
    it has to do besides: what reads nothing may be done while operands come."""
    rates: dict[str, float] = {}
    extents = {v: int(n[0]) for v, n in model.wanted.items()}
    for unit in units(model.target):
        found = [m for m in mappings(model.nest, unit) if m.waste < math.inf]
        found += [model.mapping] if unit == model.unit else []
        for mapping in found:
            queue = unit.instruction.queue
            rates[queue] = max(rates.get(queue, 0.0), mapping.most_a_cycle(extents))
    products = math.prod(extents.values())
    work = products / sum(rates.values())
    if len(rates) > 1:
        return work
    elements, (before, after) = _elements(model), model.accumulator_work.least
    return work + after * elements + max(0.0, before * elements - fill)


def _fill(model: TileModel, tiles: Sizes) -> float:
    """Until the smallest tiles of both factors are there; queues bring them at the same time. A
    unit that reads outside itself waits for that memory."""
    memories = (model.target.memory(x.memory) for x in model.loads[:2] if x.move is None)
    outside = max((m.latency for m in memories if m.size is None), default=0)
    busy: dict[str, float] = {}
    latency: dict[str, float] = {}
    for operand in model.loads[:2]:
        move = operand.move
        if move is not None:
            queue = move.queue
            busy[queue] = busy.get(queue, 0.0) + float(np.min(queue_cycles(operand.times(tiles))))
            own = queue == model.unit.instruction.queue
            late = 0 if own and move.own_hazard[0] is not Hazard.STALL else move.latency
            latency[queue] = min(latency.get(queue, math.inf), late)
    return float(max((outside, *(busy[q] + latency[q] for q in busy))))


def _moves(model: TileModel, moves: list[OperandTile]) -> float:
    """Cycles of the busiest memory, if all that is touched is moved once: of factors whole blocks,
    along axes of which the unit takes a fixed number."""
    found: dict[str, float] = {}
    filled = model.wanted | {
        loop.var: np.array([model.mapping.extents[loop.var]])
        for axis, loop in model.mapping.axes
        if isinstance(model.unit.loops[axis].extent, int)
    }
    for operand in moves:
        assert operand.move is not None
        extents = filled if operand in model.loads[:2] else model.wanted
        elements, instruction = operand.elements(extents), operand.move.instruction
        for name, rate in operand.move.rates:
            least_bytes = 1 / most_for(instruction, instruction.cost.bytes_in(name))
            size = elements * min(least_bytes, operand.bytes)
            found[name] = found.get(name, 0.0) + size / rate
    for operand in (*model.loads, model.store):  # those that the unit itself reads and writes
        memory = model.target.memory(operand.memory)
        if operand.move is None and memory.size is None and memory.bandwidth is not None:
            size = operand.elements(model.wanted) * operand.bytes
            found[memory.name] = found.get(memory.name, 0.0) + size / memory.bandwidth
    return max(found.values(), default=0.0)
