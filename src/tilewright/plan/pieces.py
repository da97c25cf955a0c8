"""Operand tiles, as a chip's instructions copy them: the bytes and cycles of many tile sizes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.analyze.linear import Linear
from tilewright.base.dtype import DType
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import Buffer, Dim, Expr, Load, Symbol, Var
from tilewright.ir.instruction import Hazard, Instruction
from tilewright.ir.loop import For, buffers_written, walk_statements
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.interleave import most_elements
from tilewright.plan.operand_blocks import memory_between
from tilewright.plan.rates import least
from tilewright.plan.unit_plan import (
    Plan,
    contiguous_axes,
    operand_layout,
    order_of,
    parameter_layout,
    widely_strided_axes,
)
from tilewright.plan.units import copies
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

Sizes = Mapping[Var, np.ndarray]  # of each loop, for all tiles that are compared


@dataclass(frozen=True)
class TileMove:
    """An instruction that copies an operand tile between memories: what its time depends on."""

    instruction: Instruction
    rates: tuple[tuple[str, float], ...]  # bytes a cycle of each memory; inf for any number
    latency: int  # from when it has left the queue's unit until the elements are there, at least
    # Innermost first: (extent symbol, stride field or None for contiguous) of a loop of any length.
    hardware_loops: tuple[tuple[Symbol, Symbol | None], ...]

    @property
    def queue(self) -> str:
        return self.instruction.queue

    def made(self, memory: str) -> DType:
        """The type of the elements that it leaves in a memory."""
        return next(b.dtype for b in self.instruction.operands if b.memory == memory)

    @property
    def written(self) -> Buffer:
        """The operand that it writes."""
        (operand,) = buffers_written(self.instruction.body)
        return operand

    @property
    def own_hazard(self) -> tuple[Hazard, int]:
        """Returns the kind of hazard that a read in the copy's own queue meets, and the cycles from
        the copy's start after which that read may have the result: at least, and 0 if unknown."""
        cost = self.instruction.cost
        known = cost.forward if cost.forward is not None else cost.exposed
        return cost.hazard, least(0 if known is None else known)

    def term(self, e: Dim, values: Mapping[Symbol, np.ndarray]) -> np.ndarray:
        """A term of the cost; fields that are not given are at their least."""
        env: dict[Expr, object] = {f.symbol: np.int64(f.low) for f in self.instruction.fields}
        given = {x: np.asarray(v).astype(np.int64) for x, v in values.items()}
        return np.asarray(evaluate_exactly(e, {**env, **given}), float)

    def transfer(self, values: Mapping[Symbol, np.ndarray]) -> np.ndarray:
        """Cycles of the memory that takes longest."""
        cost = self.instruction.cost
        each = (np.ceil(self.term(cost.bytes_in(m), values) / rate) for m, rate in self.rates)
        return functools.reduce(np.maximum, each)


def find_move(
    target: Target, source: str, destination: str, dram: str, dtype: DType | None = None
) -> TileMove | None:
    """The target's copy between two memories, of a type if one is given; `dram` is the one whose
    elements lie apart."""
    for instruction in copies(target, source, destination):
        if dtype not in (None, *(b.dtype for b in instruction.operands if b.memory == dram)):
            continue
        memories = [target.memory(m) for m in (source, destination)]
        rates = tuple((m.name, m.bandwidth or math.inf) for m in memories)
        cost = instruction.cost
        latency = max((m.latency for m in memories if least(cost.bytes_in(m.name)) > 0), default=0)
        latency += least(cost.latency)
        far = next(b for b in instruction.operands if b.memory == dram)
        loops = [s for s in walk_statements(instruction.body) if isinstance(s, For)]
        ranges = []
        for d, x in enumerate(loops[: len(far.shape)]):
            carrier = instruction.carrier(far, d)
            if isinstance(x.extent, Symbol):
                ranges.append((x.extent, None if carrier is None else carrier.symbol))
        return TileMove(instruction, rates, latency, tuple(reversed(ranges)))
    return None


@dataclass(frozen=True)
class OperandTile:
    """One operand of a contraction, as each of its tiles is copied. Sizes are arrays [tiles]."""

    forms: tuple[Linear, ...]  # its subscripts, as linear forms of the contraction's loops
    far: tuple[bool, ...]  # of each subscript: whether unused elements along it are left out
    # Its axes in the unit's memory but for the contiguous row, outermost first: (subscript,
    # elements of that covered per step, elements between steps in the other memory).
    dims: tuple[tuple[int, int, int], ...]
    row: int  # elements between rows in the other memory, where they follow each other
    bytes: int  # of an element
    memory: str
    move: TileMove | None  # None: it is there already, or nothing moves it
    extents: tuple[int, ...] = ()  # of the subscripts, where windows may reach beyond them
    loops: Mapping[Var, int] = field(default_factory=dict)  # how often they run, with extents
    line: int = 0  # bytes that the other memory gives at a time, with extents
    held: int | None = None  # bytes of all of it, where it lies in the unit's memory for good
    # Where nothing copies it to the unit's memory directly: `memory` is one between them, and this
    # copies a block from there for each of the unit's calls that takes another.
    relay: TileMove | None = None

    def varies_with(self, var: Var) -> bool:
        return any(var in variables(x) for f in self.forms for x in f if x is not None)

    def reach(self, tile: Sizes, after: Var | None = None) -> list[np.ndarray]:
        """Returns the elements of the operand tile along each subscript [tiles]. With `after`,
        counts only those that the previous tile along that loop did not hold: without the halo."""
        steps = self._steps(tile)
        reach = [-(-_reach(f, tile) // k) for f, k in zip(self.forms, steps, strict=True)]
        most = self.extents or (math.inf,) * len(reach)
        moving = [d for d, f in enumerate(self.forms) if after in f]
        if after is not None and len(moving) == 1:
            (d,) = moving
            new = -(-abs(self.forms[d][after]) * tile[after] // steps[d])
            reach[d] = np.where(reach[d] < most[d], np.minimum(reach[d], new), reach[d])
        reach = [np.minimum(n, limit) for n, limit in zip(reach, most, strict=True)]
        return [self._with_slack(d, n, tile) for d, n in enumerate(reach)]

    def _with_slack(self, d: int, reach: np.ndarray, tile: Sizes) -> np.ndarray:
        """Copies a whole axis instead of the used part where no two tiles differ along it and
        fewer bytes than a line of the memory are added."""
        if not self.extents:
            return reach
        apart = next((near for p, _, near in self.dims if p == d), 1) * self.bytes
        loops = [v for v in self.forms[d] if isinstance(v, Var) and v in tile]
        whole = math.prod((tile[v] == self.loops[v] for v in loops), start=np.ones(1, bool))
        little = (self.extents[d] - reach) * apart < self.line
        return np.where(whole & little, self.extents[d], reach)

    def _steps(self, tile: Sizes) -> list[np.ndarray]:
        """Returns the stride of each subscript's values within a tile; 1 where gaps are copied."""
        return [
            _step(form, tile) if far else np.ones(1, np.int64)
            for form, far in zip(self.forms, self.far, strict=True)
        ]

    def size(self, tile: Sizes, after: Var | None = None) -> np.ndarray:
        """Returns the bytes of the operand tile [tiles]; `after` as for `reach`."""
        return np.asarray(math.prod(self.reach(tile, after)) * self.bytes)

    def elements(self, whole: Sizes) -> int:
        """Estimates from below how many distinct elements the whole contraction touches."""
        counts = [_different(form, whole) for form in self.forms]
        return math.prod(map(min, zip(counts, self.extents or counts, strict=True)))

    def relay_times(self, tile: Sizes) -> np.ndarray:
        """Returns `times` of the copies from a memory between: of each block once."""
        assert self.relay is not None
        instruction = self.relay.instruction
        calls = np.ceil(self.size(tile) / self.bytes / most_elements(instruction))
        sizes = {s: np.array([s.upper or 1]) for s, _ in self.relay.hardware_loops}
        cost = instruction.cost
        setup, busy = (calls * self.relay.term(x, sizes) for x in (cost.setup, cost.busy))
        transfer = calls * self.relay.transfer(sizes)
        return np.stack(np.broadcast_arrays(calls, setup, busy, transfer))

    def times(self, tile: Sizes, after: Var | None = None) -> np.ndarray:
        """Returns [4, tiles] for one copy of the operand tile: instructions, and their total cycles
        of set-up, of the queue, and of the slowest memory; `after` as for `reach`."""
        if self.move is None:
            return np.zeros((4, 1))
        move, (counts, apart) = self.move, self._runs(tile, after)
        calls = math.prod(counts[len(move.hardware_loops) :], start=np.ones(1))
        values = {}
        for (symbol, carrier), count, far in zip(move.hardware_loops, counts, apart, strict=False):
            assert symbol.upper is not None
            cuts = -(-count // symbol.upper)
            calls = calls * cuts
            values[symbol] = count / cuts  # on average
            if carrier is not None:
                values[carrier] = far
        cost = move.instruction.cost
        transfer = calls * move.transfer(values)
        setup, busy = (calls * move.term(x, values) for x in (cost.setup, cost.busy))
        return np.stack(np.broadcast_arrays(calls, setup, busy, transfer))

    def _runs(self, tile: Sizes, after: Var | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Groups the tile's axes into strided runs, each done by one hardware loop; returns their
        iterations [tiles] and their strides in elements [tiles], innermost first."""
        assert self.move is not None
        reach, steps = self.reach(tile, after), self._steps(tile)
        shape = np.broadcast_shapes(*(r.shape for r in reach))
        runs, apart = [np.ones(shape)], [np.full(shape, float(self.row))]
        at = np.zeros(shape, int)
        whole = bool(self.move.hardware_loops) and self.move.hardware_loops[0][1] is None
        most = max((symbol.upper or 1 for symbol, _ in self.move.hardware_loops), default=1)
        for p, step, near in reversed(self.dims):
            distance = near * steps[p]
            count = np.broadcast_to(-(-reach[p] // step), shape)
            counts, distances = np.stack(runs), np.stack(apart)
            now = np.take_along_axis(counts, at[None], 0)[0]
            gap = np.take_along_axis(distances, at[None], 0)[0]
            fresh = (now == 1) & ~((at == 0) & whole)
            one = (now == 1) | (now * count <= most)  # longer ones are not made of two
            joins = fresh | ((distance == gap * now) & one)
            at = at + ((count > 1) & ~joins)
            if at.max() == len(runs):
                runs.append(np.ones(shape))
                apart.append(np.zeros(shape))
            for k, run in enumerate(runs):
                here = (at == k) & (count > 1)
                apart[k] = np.where(here & (run == 1), distance, apart[k])
                runs[k] = np.where(here, run * count, run)
        return runs, apart


def broadcast_into(result: OperandTile, source: OperandTile) -> OperandTile:
    """Returns the accumulator's tile as copied from `source`, which has fewer axes (a bias)."""
    dims = []
    for p, step, _ in result.dims:
        moving = [v for v in result.forms[p] if v is not None]
        apart = [
            near * step // each
            for d, each, near in source.dims
            if any(v in source.forms[d] for v in moving)
        ]
        dims.append((p, step, sum(apart)))
    return replace(result, dims=tuple(dims), move=source.move, row=0)


def queue_cycles(times: np.ndarray) -> np.ndarray:
    """Returns the cycles of the copying queue, by `times`: set-up + max(busy, transfer)."""
    _, setup, work, transfer = times
    cycles: np.ndarray = setup + np.maximum(work, transfer)
    return cycles


def _reach(form: Linear, tile: Sizes) -> np.ndarray:
    """Returns how many values lie between a subscript's least and its greatest [tiles]."""
    steps = (abs(k) * (tile[x] - 1) for x, k in form.items() if isinstance(x, Var) and x in tile)
    return 1 + sum(steps, np.zeros(1, np.int64))


def _step(form: Linear, tile: Sizes) -> np.ndarray:
    """Returns the stride of the values that a subscript takes within a tile [tiles]."""
    found = np.zeros(1, np.int64)
    for x, k in form.items():
        if isinstance(x, Var) and x in tile:
            found = np.gcd(found, np.where(tile[x] > 1, abs(k), 0))
        elif x is not None:
            return np.ones(1, np.int64)
    return np.maximum(found, 1)


def _different(form: Linear, whole: Sizes) -> int:
    """Returns a lower bound on the distinct values of a subscript, which is exact where each loop's
    step joins on to what the loops of smaller steps reach, or goes beyond."""
    steps = [
        (abs(k), int(whole[x][0])) for x, k in form.items() if isinstance(x, Var) and x in whole
    ]
    step, count, reach = 0, 1, 0  # of the values so far; a step of 0 where they are unevenly apart
    for k, n in sorted(x for x in steps if x[1] > 1):
        if count == 1:
            step, count = k, n
        elif step and k % step == 0 and k <= reach + step:
            count += (n - 1) * (k // step)
        else:
            step, count = 0, count * n if k > reach else max(count, n)
        reach += k * (n - 1)
    return count


def operand_tile(
    s: Schedule,
    target: Target,
    plan: Plan,
    access: Load,
    operand: Load,
    *,
    loaded: bool,
    local: bool = False,
) -> OperandTile:
    """Returns the tile of an operand, copied in (`loaded`) or out. A loaded one has the element
    size that its copy writes; with `local`, the element size of the unit's operand is used."""
    if plan.unit.whole:
        return _whole_operand_tile(s, target, plan, access, operand, loaded=loaded)
    rows = contiguous_axes(plan, target, access, operand)
    packed = parameter_layout(rows, plan, access, operand, s, target)
    packed = packed or Layout(tuple(range(len(access.indices))))
    held = operand_layout(plan, rows, access, operand)
    blocks = dict(packed.blocks)
    shape = packed.physical_shape(tuple(access.buffer.shape))
    far = [math.prod(int(n) for n in shape[d + 1 :]) for d in range(len(shape))]
    sizes = dict(held.blocks)
    dims = []
    for p in held.order:
        step = sizes.get(p, 1)
        one = far[packed.order.index(p)]
        dims.append((p, step, one if p in blocks else one * step))
    move, relay = _move(target, access, operand, loaded=loaded), None
    memory, between = operand.buffer.memory, memory_between(target, access, operand)
    if loaded and between is not None:
        outside, kind = access.buffer.memory, access.buffer.dtype
        move = find_move(target, outside, between, outside, kind)
        relay, memory = find_move(target, between, memory, between, kind), between
    forms = tuple(s.simplifier.linear(i) for i in access.indices)
    row = math.prod(sizes.values())
    width = (operand if local else access).buffer.dtype.bytes
    if loaded and move is not None:
        width = move.made(memory).bytes
    distant = widely_strided_axes(access.buffer.with_(shape=shape), target)
    apart = tuple(loaded and packed.order.index(p) in distant for p in range(len(forms)))
    return OperandTile(forms, apart, tuple(dims), row, width, memory, move, relay=relay)


def _whole_operand_tile(
    s: Schedule, target: Target, plan: Plan, access: Load, operand: Load, *, loaded: bool
) -> OperandTile:
    """Returns the tile of a whole operator's operand, which lies in the order of its axes."""
    order = order_of(plan, access, operand)
    shape = [int(access.buffer.shape[p]) for p in order]
    dims = [(p, 1, math.prod(shape[k + 1 :])) for k, p in enumerate(order)]
    move = _move(target, access, operand, loaded=loaded)
    forms = tuple(s.simplifier.linear(i) for i in access.indices)
    never = (False,) * len(forms)
    extents = tuple(int(n) for n in access.buffer.shape)
    loops = {x.var: int(x.extent) for x in (*plan.nest.axes, *plan.nest.reduce)}
    width, memory = access.buffer.dtype.bytes, operand.buffer.memory
    line = target.memory(access.buffer.memory).line
    held = math.prod(shape) * width if access.buffer.memory == memory else None
    return OperandTile(
        forms, never, tuple(dims), 1, width, memory, move, extents, loops, line, held
    )


def _move(target: Target, access: Load, operand: Load, *, loaded: bool) -> TileMove | None:
    """What copies an operand in (`loaded`) or out; None where it is what the program names."""
    outside, inside = access.buffer.memory, operand.buffer.memory
    if outside == inside:
        return None
    places = (outside, inside) if loaded else (inside, outside)
    return find_move(target, *places, outside, access.buffer.dtype)
