"""Which plan to give a statically scheduled chip: by what its slots and transfers need.

A step of what overlaps takes each slot for as many cycles as it has operations, spread over the
slots of that kind; the busiest decides (the resource bound of modulo scheduling), and a chain of
sums takes as long as its operations' latencies. Filling and draining comes once for each time the
steps begin. Tiles move the bytes of their operands, each as often as a loop over tiles changes it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilewright.analyze.linear import Linear, linear
from tilewright.analyze.nests import Nest, nests
from tilewright.backends.bundles.move import BundleMove, memory_before, move_between
from tilewright.backends.bundles.schedule_contraction import BundlePlan, Orders, layout_for
from tilewright.base.errors import ScheduleError
from tilewright.base.node import cached_property
from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.loop import Kernel, loads
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.control import CHOSEN, Control
from tilewright.plan.find_mappings import find_mappings
from tilewright.plan.map_values import check_values
from tilewright.plan.units import AxisMapping
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

CALLS = 32  # operations of the unit in a block, at most
MOST = 128  # in what overlaps
BLOCKS = 16  # of which tiles are looked at
TILES = 2  # of each block that stay
FILL = 12  # cycles until the first operations of a loop have their operands
CROWDED = 1.15  # times a file's size: what may seem to be needed at most, and then be less


@dataclass(frozen=True)
class BundleChoice:
    """A plan, and the cycles that the model expects of it; and `others` with the same tile, for
    where it needs too many registers."""

    plan: BundlePlan
    cycles: float
    others: tuple[BundleChoice, ...] = ()


def choose_plans(
    kernel: Kernel,
    target: Target,
    control: Control = CHOSEN,
    lying: Orders = MappingProxyType({}),
) -> Iterator[BundleChoice]:
    """Plans that fit the local memory, those that pad least first, of these the fastest; of a
    statically scheduled chip, only loops of the result are cut into tiles. Inputs named in `lying`
    have their axes in that order in memory."""
    rings = control.rings is not False
    for _, found in itertools.groupby(sorted(_mappings(kernel, target), key=_work), _work):
        models: list[BundleModel] = []
        for each in found:
            known: dict[object, _Transfers] = {}
            ways = _beginnings(*each[:2])
            models += [BundleModel(*each, target, control, lying, x, known) for x in ways]
        blocks = [(model, block) for model in models for block in model.blocks()]
        blocks.sort(key=lambda pair: pair[1].rank)
        plans = [
            BundleChoice(plan, model.cycles(plan))
            for begins in (False, True)
            for model, block in [x for x in blocks if x[0].bare.begins is begins][:BLOCKS]
            for plan in model.tiles(block, rings)
        ]
        alike: dict[object, list[BundleChoice]] = {}  # blocks of one tile, the fastest first
        for choice in sorted(plans, key=lambda c: c.cycles):
            alike.setdefault((*choice.plan.tile.items(), choice.plan.order), []).append(choice)
        yield from (replace(first, others=tuple(rest)) for first, *rest in alike.values())


def least_cycles(kernel: Kernel, target: Target) -> float:
    """Cycles of a unit's operations for a kernel's contraction; ScheduleError where none of them
    does it, or what follows it."""
    found = list(_mappings(kernel, target))
    _check_epilogue(target, *found[0])
    return min(_issues(*each) for each in found)


def _check_epilogue(target: Target, kernel: Kernel, nest: Nest, mapping: AxisMapping) -> None:
    """Raises the ScheduleError of instructions that cannot make of sums what is made of them,
    however those lie."""
    bare = BundlePlan(nest, mapping, {}, {}, ())
    near = memory_before(target, bare.reads[0][1].buffer.memory)
    file = bare.result.buffer.memory
    for other in nests(kernel.body):
        reads = {x.buffer for x in loads(other.store.value)}
        if other.buffer.name == nest.buffer.name or nest.buffer not in reads:
            continue
        held = dict.fromkeys(reads, near) | {nest.buffer: file}
        inside = replace(other.store, buffer=other.buffer.with_(memory=file))
        check_values(Schedule(kernel), target, replace(other, writes=(inside,)), held)


def _issues(kernel: Kernel, nest: Nest, mapping: AxisMapping) -> float:
    """Cycles of a unit's operations alone."""
    plan = BundlePlan(nest, mapping, {}, {}, ())
    calls = math.prod(n // plan.size(v) for v, n in plan.extents.items())
    return calls * max(1, _number(mapping.unit.instruction.cost.busy))


def _work(found: tuple[Kernel, Nest, AxisMapping]) -> int:
    """Iterations of a contraction with what is added to its loops."""
    _, nest, _ = found
    extents = (x.extent for x in (*nest.axes, *nest.reduce))
    return math.prod(n for n in extents if isinstance(n, int))


def _mappings(kernel: Kernel, target: Target) -> Iterator[tuple[Kernel, Nest, AxisMapping]]:
    """The ways for the target's operations to do a kernel's contraction, each with the kernel,
    whose loops are filled to what the operation takes."""
    assert target.bundles is not None
    slots = {name for name, _ in target.bundles.slots}
    none = True
    for filled, nest, mapping in find_mappings(kernel, target):
        if mapping.unit.instruction.queue not in slots or not _adds_up(nest):
            continue
        if _steps_alike(nest, mapping):
            none = False
            yield filled, nest, mapping
    if none:
        raise ScheduleError(
            f"no operation of {target.name} takes a contraction of this kernel",
            program=kernel,
            hint="the axes of an operation move its registers as loops move the kernel's arrays",
        )


def _beginnings(kernel: Kernel, nest: Nest) -> list[bool]:
    """Whether sums begin with what is added to them, which is loaded then: an array of theirs."""
    s = Schedule(kernel)
    if nest.buffer not in set(s.allocations()) or not attempt(s.init_with, nest.buffer):
        return [False]
    first = next(n for n in nests(s.kernel.body) if n.buffer == nest.buffer).store.value
    plain = isinstance(first, Load) and first.buffer in kernel.inputs
    return [False, True] if plain and first.dtype == nest.buffer.dtype else [False]


def _adds_up(nest: Nest) -> bool:
    """Whether a contraction has a loop along which it adds up, be it once."""
    used = {v for i in nest.store.indices for v in variables(i)}
    return any(x.var not in used for x in (*nest.axes, *nest.reduce))


def _steps_alike(nest: Nest, mapping: AxisMapping) -> bool:
    """Whether the operands have the unit's types, and subscripts that move as its own do."""
    plan = BundlePlan(nest, mapping, {}, {}, ())
    assert nest.update is not None
    result = Load(nest.update.buffer, nest.update.indices), plan.result
    loops: dict[Expr, Var] = {axis: loop.var for axis, loop in mapping.axes}
    for access, operand in (*plan.reads, result):
        wanted = [
            {loops[v]: k for v, k in linear(i).items() if v in loops} for i in operand.indices
        ]
        found = [
            {v: k for v, k in linear(i).items() if v in set(loops.values())} for i in access.indices
        ]
        moving = [form for form in found if form]
        if access.dtype != operand.dtype or len(moving) != len(wanted):
            return False
        if any(form not in moving for form in wanted):
            return False
    return True


# ---------------------------------------------------------------- operands


@dataclass(frozen=True, eq=False)
class BundleOperand:
    """An operand, or the result: how its subscripts move with the loops, how it lies in memory,
    and what moves it between local memory and registers, and between that and its own."""

    load: Load
    forms: tuple[Linear, ...]
    layout: Layout | None
    registers: BundleMove
    transfer: BundleMove | None
    row: int  # bytes of a register

    @property
    def bytes(self) -> int:
        return self.load.dtype.bytes

    def varies_with(self, var: Var) -> bool:
        return any(var in form for form in self.forms)

    def reach(self, sizes: Mapping[Var, int]) -> list[int]:
        """Elements along each subscript, for so many iterations of each loop."""
        return [1 + sum([k * (sizes.get(v, 1) - 1) for v, k in form]) for form in self._steps]

    @cached_property
    def _steps(self) -> list[list[tuple[Var, int]]]:
        """How far each subscript goes with each loop."""
        return [[(v, abs(k)) for v, k in x.items() if isinstance(v, Var)] for x in self.forms]

    def size(self, sizes: Mapping[Var, int]) -> int:
        """Bytes."""
        return math.prod(self.reach(sizes)) * self.bytes

    def dims(self, sizes: Mapping[Var, int]) -> list[int]:
        """Its extents as it lies in memory, outermost first."""
        reach = self.reach(sizes)
        if self.layout is None:
            return reach
        blocks = dict(self.layout.blocks)
        outer = [-(-reach[p] // blocks.get(p, 1)) for p in self.layout.order]
        return [*outer, *(min(f, reach[p]) for p, f in self.layout.blocks)]

    def runs(self, part: Mapping[Var, int], whole: Mapping[Var, int]) -> list[int]:
        """Elements side by side, and how often these are repeated, innermost first, where a part
        of a whole is moved: neighbours join where the part has all of one."""
        runs = [1]
        inside, around = self.dims(part), self.dims(whole)
        for n, m in zip(reversed(inside), reversed(around), strict=True):
            runs[-1] *= n
            if n != m:
                runs.append(1)
        return [*runs, 1]

    def operations(self, part: Mapping[Var, int], whole: Mapping[Var, int]) -> int:
        """Loads or stores that move a part between local memory and registers."""
        side, *rest = self.runs(part, whole)
        return math.prod(rest) * -(-side // self.registers.sizes[-1])

    def cycles(self, part: Mapping[Var, int], whole: Mapping[Var, int]) -> float:
        """The time of a transfer."""
        if self.transfer is None:
            return 0.0
        _, rows, *rest = self.runs(part, whole)
        calls = math.prod(rest) * (-(-rows // self.transfer.sizes[0]))
        return calls * self.transfer.setup + self.size(part) / self.transfer.rate

    def held(self, sizes: Mapping[Var, int]) -> int:
        """Registers."""
        return -(-self.size(sizes) // self.row)


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Block:
    """What is in registers at a time, which loops' iterations overlap, and how many cycles each
    operation of the unit takes in the long run."""

    sizes: Mapping[Var, int]
    steady: tuple[Var, ...]
    operations: int
    pace: float

    @property
    def rank(self) -> tuple[float, int]:
        """The faster the better; of two alike, the shorter."""
        return round(self.pace, 2), self.operations


@dataclass(frozen=True)
class _Transfers:
    """Bytes of local memory that tiles need; cycles in which what never changes is brought, all of
    a first tile's operands, what a next one has new of them, and a tile's result is sent."""

    used: int
    once: float
    first: float
    each: float
    send: float


class BundleModel:
    """Slots, registers, bytes and cycles of a contraction on a unit."""

    def __init__(
        self,
        kernel: Kernel,
        nest: Nest,
        mapping: AxisMapping,
        target: Target,
        control: Control = CHOSEN,
        lying: Orders = MappingProxyType({}),
        begins: bool = False,
        known: dict[object, _Transfers] | None = None,
    ) -> None:
        assert target.bundles is not None
        self.target, self.nest, self.mapping = target, nest, mapping
        self.slots = dict(target.bundles.slots)
        self.bare = BundlePlan(nest, mapping, {}, {}, (), lying=lying, begins=begins)
        near = memory_before(target, self.bare.reads[0][1].buffer.memory)
        self.near = near
        assert nest.update is not None
        result = Load(nest.update.buffer, nest.update.indices)
        final = _result_of(kernel, nest)
        self.loads = [self._operand(x, operand, x.buffer, near) for x, operand in self.bare.reads]
        self.result = self._operand(result, self.bare.result, final, near, out=True)
        self.whole = {x.var: int(x.extent) for x in (*nest.axes, *nest.reduce)}
        self.axes = [x.var for x in nest.axes if x.extent != 1]
        self.unit = mapping.unit.instruction
        self.busy = max(1, _number(self.unit.cost.busy))
        self.latency = max(1, _number(self.unit.cost.latency))
        self.steps = math.prod(self.whole[x.var] // self.bare.size(x.var) for x in nest.reduce)
        self._intervals: dict[object, int] = {}
        self._known_transfers = {} if known is None else known  # whatever sums begin with
        extents = {v: self.whole[v] for v in self.axes}
        self.sizes = control.sizes(kernel.name, extents, dict(self._divisors()))
        self.epilogue = final != nest.buffer
        self.beside = _read_beside(kernel, nest) - begins if self.epilogue else 0
        ends = near, self.bare.result.buffer.memory
        self.begins = move_between(target, *ends, nest.buffer.dtype) if begins else None

    def _operand(
        self, load: Load, operand: Load, home: Buffer, near: str, out: bool = False
    ) -> BundleOperand:
        file = operand.buffer.memory
        ends = (file, near) if out else (near, file)
        far = (near, home.memory) if out else (home.memory, near)
        kept = home.dtype if out else load.dtype
        transfer = None if home.memory == near else move_between(self.target, *far, kept)
        return BundleOperand(
            Load(home, load.indices) if out else load,
            tuple(linear(i) for i in load.indices),
            layout_for(self.bare, load.buffer.name, load.indices, operand),
            move_between(self.target, *ends, kept),
            transfer,
            self.target.memory(file).row,
        )

    # ---------------------------------------------------------- blocks

    def blocks(self) -> list[Block]:
        """The blocks that keep the unit busiest."""
        found = []
        for steady in self._steady():
            if steady and not self._lies_evenly():
                continue
            for sizes in self._sizes():
                operations = self._calls(sizes) * (self.steps if steady else 1)
                pace = self._pace(sizes, steady) if operations <= MOST else None
                if pace is not None:
                    found.append(Block(sizes, steady, operations, pace))
        return sorted(found, key=lambda b: b.rank)[:BLOCKS]

    def _steady(self) -> list[tuple[Var, ...]]:
        """The loops whose iterations may overlap: the sums' own; or all of the result's, or those
        that one of the operands does not change with."""
        some = [tuple(v for v in self.axes if not p.varies_with(v)) for p in self.loads]
        found = dict.fromkeys([tuple(self.axes), *some])
        if self.steps > 1:
            found[()] = None
        return [steady for steady in found if steady or self.steps > 1]

    def _lies_evenly(self) -> bool:
        """Whether operands that fill registers begin where one does, when the sums are unrolled:
        no step of a sum may shift them by less."""
        for p, (_, operand) in zip(self.loads, self.bare.reads, strict=True):
            size = math.prod(n for n in operand.buffer.shape if isinstance(n, int)) * p.bytes
            taken = {loop.var for _, loop in self.mapping.axes if p.varies_with(loop.var)}
            shifts = {x.var for x in self.nest.reduce} - taken
            along = [set(form) for form in p.forms if set(form) & taken]
            if size % p.row == 0 and any(form & shifts for form in along):
                return False
        return True

    def _sizes(self) -> Iterator[dict[Var, int]]:
        options = []
        for v in self.axes:
            step, extent = self.bare.size(v), self.whole[v]
            options.append([(v, b) for b in range(step, extent + 1, step)
                            if any(t % b == 0 for t in self.sizes[v])
                            and b // step <= CALLS])  # fmt: skip
        for chosen in itertools.product(*options):
            if math.prod(b // self.bare.size(v) for v, b in chosen) <= CALLS:
                yield dict(chosen)

    def _divisors(self) -> Iterator[tuple[Var, list[int]]]:
        """Of every loop of the result, in whole steps of the unit; what is in local memory already
        has no tiles."""
        for v in self.axes:
            step, extent = self.bare.size(v), self.whole[v]
            found = [t for t in range(step, extent + 1, step) if extent % t == 0]
            yield v, found if self.result.transfer is not None else [extent]

    def _step(self, sizes: Mapping[Var, int], steady: Sequence[Var]) -> dict[Var, int]:
        """Iterations of every loop in one step of what overlaps."""
        sums = {x.var: self.bare.size(x.var) for x in self.nest.reduce}
        if steady:
            sums = {x.var: self.whole[x.var] for x in self.nest.reduce}
        return {**sums, **sizes}

    def _calls(self, sizes: Mapping[Var, int]) -> int:
        """Operations of the unit for one step of the sums of a block."""
        return math.prod(sizes[v] // self.bare.size(v) for v in self.axes)

    def interval(self, sizes: Mapping[Var, int], steady: Sequence[Var]) -> int:
        """Cycles between the steps that overlap: what slots need, and chains of sums."""
        key = tuple(sizes.items()), tuple(steady)
        if key not in self._intervals:
            self._intervals[key] = self._interval(sizes, steady)
        return self._intervals[key]

    def _interval(self, sizes: Mapping[Var, int], steady: Sequence[Var]) -> int:
        step = self._step(sizes, steady)
        calls = self._calls(sizes) * (self.steps if steady else 1)
        used = dict.fromkeys(self.slots, 0)
        used[self.unit.queue] += calls * self.busy
        for p in self.loads:
            if not steady or any(p.varies_with(v) for v in steady):
                used[p.registers.queue] += p.operations(step, self.whole)
        if steady:
            stores = self.result.operations(step, self.whole)
            used[self.result.registers.queue] += stores
            used[self.unit.queue] += self._epilogue_operations(sizes, stores)
            if self.begins is not None:
                used[self.begins.queue] += self._held_sums(sizes)
        needed = max(-(-n // self.slots[slot]) for slot, n in used.items())
        return needed if steady else max(needed, self.latency)

    def _pace(self, sizes: Mapping[Var, int], steady: Sequence[Var]) -> float | None:
        """Cycles for each operation of the unit; None where the registers are too few."""
        step = self._step(sizes, steady)
        every = self.interval(sizes, steady)
        most = CROWDED if steady else 1.0
        used: dict[str, float] = {}
        for p in self.loads:
            file = self.target.memory(p.registers.ends[1])
            still = bool(steady) and not any(p.varies_with(v) for v in steady)
            share = 1.0 if still else min(2.0, 1.0 + self.latency / every) if not steady else 0.5
            used[file.name] = used.get(file.name, 0) + share * p.held(step)
        sums = self._held_sums(sizes)
        if steady:
            life = max(self.steps * self.latency, every) + 2 * self.latency
            sums = -(-sums * life // every) if life > every else sums
        file = self.target.memory(self.bare.result.buffer.memory)
        used[file.name] = used.get(file.name, 0) + sums
        for name, count in used.items():
            memory = self.target.memory(name)
            if count > most * (memory.size or 0) / memory.row:
                return None
        total = self._section(self.whole_axes, sizes, steady)
        return total / (self._calls(self.whole_axes) * self.steps)

    def _epilogue_operations(self, sizes: Mapping[Var, int], stores: int) -> int:
        """Operations of the epilogue of a block's sums."""
        return self.epilogue * stores + self.beside * self._held_sums(sizes)

    def _held_sums(self, sizes: Mapping[Var, int]) -> int:
        """Registers of a block's sums."""
        count = math.prod(sizes[v] for v in self.axes)
        wide = self.bare.result.dtype.bytes
        return -(-count * wide // self.target.memory(self.bare.result.buffer.memory).row)

    @property
    def whole_axes(self) -> dict[Var, int]:
        return {v: self.whole[v] for v in self.axes}

    def _section(
        self, tile: Mapping[Var, int], sizes: Mapping[Var, int], steady: Sequence[Var]
    ) -> float:
        """Cycles of all blocks of a tile."""
        every = self.interval(sizes, steady)
        inside = math.prod(tile[v] // sizes[v] for v in steady) if steady else self.steps
        around = math.prod(tile[v] // sizes[v] for v in self.axes if v not in steady)
        step = self._step(sizes, steady)
        still = sum(
            p.operations(step, self.whole)
            for p in self.loads
            if steady and not any(p.varies_with(v) for v in steady)
        )
        if steady:
            ends = still / 2 + max(0, self.steps * self.latency - every)
        else:
            stores = self.result.operations(step, self.whole)
            begun = 0 if self.begins is None else self._held_sums(sizes)
            ends = (stores + begun) / 2 + self._epilogue_operations(sizes, stores)
        return around * (every * inside + FILL + ends)

    # ---------------------------------------------------------- tiles

    def tiles(self, block: Block, ring: bool) -> list[BundlePlan]:
        """The best plans with a block."""
        if self.result.transfer is None:
            plan = replace(
                self.bare, tile=self.whole_axes, block=block.sizes, order=tuple(self.axes),
                steady=block.steady, ring=ring,
            )  # fmt: skip
            return [plan] if self.fits(plan) else []
        found = [
            replace(
                self.bare, tile=tile, block=block.sizes, order=order, steady=block.steady, ring=ring
            )
            for tile in self._tile_sizes(block)
            for order in self._orders(tile)
        ]
        fitting = [p for p in found if self.fits(p)]
        return sorted(fitting, key=self.cycles)[:TILES]

    def _tile_sizes(self, block: Block) -> Iterator[dict[Var, int]]:
        options = [[(v, t) for t in self.sizes[v] if t % block.sizes[v] == 0] for v in self.axes]
        for chosen in itertools.product(*options):
            yield dict(chosen)

    def _orders(self, tile: Mapping[Var, int]) -> list[tuple[Var, ...]]:
        """The loops over tiles, each in turn innermost."""
        cut = [v for v in self.axes if tile[v] != self.whole[v]] or self.axes[-1:]
        rest = [v for v in self.axes if v not in cut]
        return [(*rest, *(v for v in cut if v != last), last) for last in cut]

    def fits(self, plan: BundlePlan) -> bool:
        """Whether local memory holds two of what changes from tile to tile, and one of the rest."""
        size = self.target.memory(self.near).size
        return size is None or self._transfers(plan).used <= size

    def _transfers(self, plan: BundlePlan) -> _Transfers:
        """What tiles bring and send, whatever the blocks: many plans differ in these alone."""
        key = (*plan.tile.values(), plan.order, plan.ring)
        if key not in self._known_transfers:
            self._known_transfers[key] = self._find_transfers(plan)
        return self._known_transfers[key]

    def _find_transfers(self, plan: BundlePlan) -> _Transfers:
        part, last = self._tile(plan), plan.order[-1]
        changing = {v for v in self.axes if self.whole[v] != plan.tile[v]}
        used = 0
        each, first, once = 0.0, 0.0, 0.0
        for p in (*self.loads, self.result):
            held, time = p.size(part), p.cycles(part, self.whole)
            moves = p is self.result or p.varies_with(last)
            new = self._new(p, plan) if moves and p is not self.result else 1.0
            if p.transfer is not None and moves:
                if plan.ring and p is not self.result:
                    held = int(held * (1 + new))
                elif last in changing:
                    held *= 2
            used += -(-held // 64) * 64
            if p is self.result:
                continue
            if moves:
                each += time * new
                first += time
            elif any(p.varies_with(v) for v in changing):
                first += time
            else:
                once += time
        return _Transfers(used, once, first, each, self.result.cycles(part, self.whole))

    def _tile(self, plan: BundlePlan) -> dict[Var, int]:
        return {**self.whole, **plan.tile}

    def _new(self, p: BundleOperand, plan: BundlePlan) -> float:
        """How much of an operand's tile the one before did not have, where that is kept."""
        d = plan.sliding(p.load)
        if not plan.ring or d is None:
            return 1.0
        last, part = plan.order[-1], self._tile(plan)
        return min(1.0, p.forms[d][last] * part[last] / p.reach(part)[d])

    def cycles(self, plan: BundlePlan) -> float:
        """The whole contraction."""
        section = self._section(plan.tile, plan.block, plan.steady)
        turns = {v: self.whole[v] // plan.tile[v] for v in self.axes}
        inner = turns[plan.order[-1]]
        outer = math.prod(turns.values()) // inner
        t = self._transfers(plan)
        if inner == 1:
            return t.once + outer * (t.first + section + t.send)
        step = max(section, t.each + t.send)  # transfers share the memory's bandwidth
        return t.once + outer * (t.first + inner * step + t.send)


def _result_of(kernel: Kernel, nest: Nest) -> Buffer:
    """What leaves the registers: the sums themselves, or what is made of them."""
    if nest.buffer in kernel.params:
        return nest.buffer
    for other in nests(kernel.body):
        if other.buffer != nest.buffer:
            loads = (x for w in other.writes for x in w.value.walk() if isinstance(x, Load))
            if any(x.buffer == nest.buffer for x in loads):
                return other.buffer
    return nest.buffer


def _read_beside(kernel: Kernel, nest: Nest) -> int:
    """Arrays that an epilogue reads beside the sums: each takes an operation for every register of
    these."""
    values = [w.value for n in nests(kernel.body) if n.buffer != nest.buffer for w in n.writes]
    return len({x.buffer for v in values for x in v.walk() if isinstance(x, Load)} - {nest.buffer})


def _number(term: object) -> int:
    return term if isinstance(term, int) else 1
