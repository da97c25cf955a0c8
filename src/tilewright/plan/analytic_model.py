"""The analytic model of a kernel on a chip: its contraction, and what has to be done besides, which
is read off the schedule of some small tile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from tilewright.analyze.nests import Nest, guarded_factors, nests
from tilewright.backends.stream.addresses import bytes_of
from tilewright.backends.stream.durations import durations
from tilewright.backends.stream.stream import expand_stream
from tilewright.base.errors import ScheduleError
from tilewright.base.remembered import Remembered
from tilewright.ir.expr import Buffer, Load, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Block,
    Call,
    For,
    Kernel,
    Stmt,
    buffers_written,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.plan.accelerate import tile_for_unit
from tilewright.plan.accelerate_whole import check_orders, check_whole
from tilewright.plan.choose_tiles import choose_tiles
from tilewright.plan.find_mappings import find_mappings
from tilewright.plan.interleave import UnitStep, delay, most_elements
from tilewright.plan.map_values import check_values
from tilewright.plan.operand_blocks import memory_between
from tilewright.plan.rates import iterations_of, most_a_cycle, reads
from tilewright.plan.tile_model import AccumulatorWork, TileModel
from tilewright.plan.unit_plan import (
    Epilogue,
    Plan,
    check_residual,
    epilogue_for,
    epilogue_of,
    exits,
    nest_with,
)
from tilewright.plan.units import AxisMapping, copies, units
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

# So many mappings with one epilogue are scheduled before the rest of them are given up: they fail
# alike. In benchmarks/matrix.py the first that succeeds comes behind six failures at most.
MOST_FAILURES = 12


def analytic_model(
    kernel: Kernel,
    target: Target,
    orders: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    between: bool = False,
) -> TileModel:
    """The model of the first mapping of which a chip's instructions do all; ScheduleError if there
    is none. Parameters named in `orders` lie in memory with their axes in that order, with
    `between` also where a whole unit takes them in another. What was asked lately is remembered: a
    piece of a stream is tried several times."""
    found = _remembered(kernel, target, tuple(sorted(orders.items())), between)
    if isinstance(found, ScheduleError):
        raise found.again()
    return found


@lru_cache(maxsize=256)
def _remembered(
    kernel: Kernel, target: Target, orders: tuple[tuple[str, tuple[int, ...]], ...], between: bool
) -> TileModel | ScheduleError:
    try:
        return _first_model(kernel, target, orders, between)
    except ScheduleError as error:
        return error


def _first_model(
    kernel: Kernel, target: Target, orders: tuple[tuple[str, tuple[int, ...]], ...], between: bool
) -> TileModel:
    refusals: list[ScheduleError] = []
    failed: Counter[Epilogue] = Counter()
    for way in _ways(kernel, target):
        if isinstance(way, ScheduleError):
            refusals.append(way)
            continue
        epilogue = epilogue_for(way.nest, way.mapping)
        if failed[epilogue] == MOST_FAILURES:
            continue
        mapping = replace(way.mapping, orders=orders, between=between)
        try:
            if mapping.unit.whole:
                check_orders(Plan(way.nest, mapping, {}))
            return _model(way, target, mapping, _extents(kernel))
        except ScheduleError as error:  # an instruction may want more than loops
            refusals.append(error)
            failed[epilogue] += 1
    raise _other_types(kernel, target) or refusals[0].again()


def bare_model(
    kernel: Kernel, target: Target, orders: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> TileModel:
    """The same of the contraction alone, without what is made of its sums: of the first mapping of
    which that is not refused yet. It takes a tenth of the time."""
    refusals: list[ScheduleError] = []
    for way in _ways(kernel, target):
        if isinstance(way, ScheduleError):
            refusals.append(way)
            continue
        mapping = replace(way.mapping, orders=tuple(orders.items()))
        try:
            return TileModel(Schedule(way.filled), target, way.nest, mapping, _extents(kernel))
        except ScheduleError as error:
            refusals.append(error)
    raise _other_types(kernel, target) or refusals[0].again()


@dataclass(frozen=True)
class _Way:
    """A way to lay a kernel's loops on a unit, of which a chip's instructions seem to do all."""

    filled: Kernel
    nest: Nest
    mapping: AxisMapping
    starts_with_addend: bool  # sums have to start with what is added to them


@lru_cache(maxsize=256)
def _ways(kernel: Kernel, target: Target) -> Remembered[_Way | ScheduleError]:
    """The ways for a chip to do a kernel, the best first, and why others are none. Several models
    of a kernel go through them, most of them no further than the first."""
    return Remembered(lambda: _find_ways(kernel, target))


def _find_ways(kernel: Kernel, target: Target) -> Iterator[_Way | ScheduleError]:
    checked: dict[Epilogue, bool] = {}
    refused: set[Epilogue] = set()
    for filled, nest, mapping in find_mappings(kernel, target, refused):
        epilogue, plan = epilogue_for(nest, mapping), Plan(nest, mapping, {})
        try:
            if epilogue not in checked:
                checked[epilogue] = _check_epilogue(filled, target, plan)
        except ScheduleError as error:
            refused.add(epilogue)
            yield error.again()
            continue
        try:
            _check_operands(target, plan)
            _check_residuals(filled, plan)
        except ScheduleError as error:
            yield error.again()
            continue
        yield _Way(filled, nest, mapping, checked[epilogue])


def _other_types(kernel: Kernel, target: Target) -> ScheduleError | None:
    """The reason that comes before all others: products of elements that no unit multiplies."""
    known = {tuple(sorted(x.buffer.dtype.name for x in (u.left, u.right))) for u in units(target)}
    for nest in nests(kernel.body):
        pair = guarded_factors(nest.update.value) if nest.update is not None else None
        kinds = tuple(sorted(x.buffer.dtype.name for x in pair)) if pair is not None else ()
        if pair is not None and known and kinds not in known:
            theirs = " or ".join(" by ".join(dict.fromkeys(x)) for x in sorted(known))
            return ScheduleError(
                f"{nest.buffer.name} is a sum of products of {' by '.join(dict.fromkeys(kinds))},"
                f" and the units of {target.name} multiply {theirs}",
                program=nest.stmt,
                hint="quantize the kernel, or convert its operands, to what a unit takes",
            )
    return None


def _extents(kernel: Kernel) -> dict[Var, int]:
    found = (x for x in walk_statements(kernel.body) if isinstance(x, For))
    return {x.var: x.extent for x in found if isinstance(x.extent, int)}


def _model(way: _Way, target: Target, mapping: AxisMapping, wanted: Mapping[Var, int]) -> TileModel:
    """The model of a way to lay loops on a unit, with the order in which parameters lie.
    ScheduleError where the smallest tile cannot be scheduled."""
    kernel, nest, starts_with_addend = way.filled, way.nest, way.starts_with_addend
    s = Schedule(kernel)
    model = TileModel(s, target, nest, mapping, wanted)
    least = choose_tiles(model, None, overlap=False)
    if not least:
        return model
    if mapping.unit.whole:  # which does all that follows, or cannot
        plan = least[0].plan
        if mapping.between:  # calls have to go along whole axes then
            whole = {x.var: x.extent for _, x in mapping.axes if isinstance(x.extent, int)}
            plan = replace(plan, tile={**plan.tile, **whole})
        tile_for_unit(Schedule(kernel), target, plan, overlap=False)
        return model
    first = replace(least[0].plan, starts_with_addend=starts_with_addend)
    try:
        accumulator_work = _accumulator_work(kernel, target, model, first)
    except ScheduleError as error:
        if starts_with_addend:
            raise
        try:  # a chip may be able to begin a sum with something, and not to add it afterwards
            plan = replace(least[0].plan, starts_with_addend=True)
            accumulator_work = _accumulator_work(kernel, target, model, plan)
        except ScheduleError:
            raise error from None
    return TileModel(s, target, nest, mapping, wanted, accumulator_work)


def _check_epilogue(kernel: Kernel, target: Target, plan: Plan) -> bool:
    """Whether sums have to start with what is added to them. Refuses what no instructions make of
    the sums, in whatever tiles: finding that out by scheduling one takes a hundred times longer."""
    s, acc = Schedule(kernel), plan.nest.buffer
    if acc not in set(s.allocations()):
        return False
    every = exits(s, acc)
    if plan.unit.whole and len(every) == 1:
        check_whole(s, plan)
        return False
    memory = plan.result[1].buffer.memory
    held = {acc: memory} | {nest.buffer: memory for _, nest in every[:-1]}
    for _, nest in every[1:]:
        check_values(s, target, nest, held)
    try:
        check_values(s, target, every[0][1], held)
    except ScheduleError as error:
        try:
            s.init_with(acc)
            check_values(s, target, epilogue_of(s, acc)[1], held)
            check_values(s, target, nest_with(s, s.buffer(acc.name)), held)
        except ScheduleError:
            raise error from None
        return True
    return False


def _check_operands(target: Target, plan: Plan) -> None:
    """Refuses factors in memories from which nothing comes to those where a plan's unit takes
    them."""
    for access, operand in plan.brought:
        here, there = access.buffer.memory, operand.buffer.memory
        if not any(copies(target, here, there)) and memory_between(target, access, operand) is None:
            raise ScheduleError(
                f"no instructions of {target.name} bring {access.buffer.name} from {here} to"
                f" {there}, where {plan.unit.instruction.name} takes it",
                program=plan.nest.stmt,
                hint="a load would, or parameters in a memory that is loaded from",
            )


def _check_residuals(kernel: Kernel, plan: Plan) -> None:
    """Refuses what is added to what is made of the sums, where a plan's unit does not do it."""
    for read, nest in _residuals(kernel, plan.nest.buffer):
        check_residual(plan, nest, read)


@lru_cache(maxsize=64)
def _residuals(kernel: Kernel, acc: Buffer) -> tuple[tuple[Load, Nest], ...]:
    """What adds to what is made of sums, each with the read of these."""
    s = Schedule(kernel)
    return tuple(exits(s, acc)[:-1]) if acc in set(s.allocations()) else ()


def _accumulator_work(
    kernel: Kernel, target: Target, model: TileModel, plan: Plan
) -> AccumulatorWork:
    """What an element of the result takes, the contraction left out."""
    s = Schedule(kernel)
    tile_for_unit(s, target, plan, overlap=False)
    unit = plan.unit.instruction
    calls = [x for x in walk_statements(s.kernel.body) if isinstance(x, Call)]
    touched = {id(x): {r.buffer for r in x.regions} for x in calls}
    of_unit = set().union(*(touched[id(x)] for x in calls if x.instruction == unit))
    moves = [x for x in calls if touched[id(x)] & set(s.kernel.params)]
    brought = set().union(*(set(buffers_written((x,))) for x in moves))
    leaving = set().union(*(touched[id(x)] for x in moves)) - brought
    elements = float(model.elements({v: np.array([n]) for v, n in plan.tile.items()})[0])
    once: dict[str, float] = {}
    stored: dict[str, float] = {}
    for buffer in set(s.allocations()) - of_unit - brought:
        held = stored if buffer in leaving else once
        size = bytes_of(buffer) / elements
        held[buffer.memory] = held.get(buffer.memory, 0.0) + size
    factors = {access.buffer.name for access, _ in plan.reads}
    others = [x for x in moves if not factors & {r.buffer.name for r in x.regions}]
    apart = set().union(*(buffers_written((x,)) for x in others))
    return replace(
        _accumulator_cycles(s, target, unit, plan, apart),
        bytes=once,
        stored=stored,
        starts_with_addend=plan.starts_with_addend,
    )


def _accumulator_cycles(
    s: Schedule, target: Target, unit: Instruction, plan: Plan, apart: set[Buffer]
) -> AccumulatorWork:
    """Cycles of the unit's queue for an element of the result, the contraction left out, but not
    products of what lies in the buffers of `apart`."""
    factors = {x.buffer for x in (plan.unit.left, plan.unit.right)}

    def counts(call: Call) -> bool:
        local = all(target.memory(r.buffer.memory).size is not None for r in call.regions)
        read = zip(call.instruction.operands, call.regions, strict=True)
        own = call.instruction != unit or any(r.buffer in apart for b, r in read if b in factors)
        return local and own and call.instruction.queue == unit.queue

    stream = expand_stream(s.kernel.with_(body=_only(s.kernel.body, counts)), target, limits=False)
    times = durations(stream)
    least = [0.0, 0.0]  # of calls that read nothing, and of others
    steps = []
    n = math.prod(x.extent for x in plan.axes if isinstance(x.extent, int))
    for k, site in enumerate(stream.sites):
        rows, instruction = stream.rows(k), site.instruction
        cycles = float((times.setup + times.busy)[rows].sum()) / n
        most, follows = most_elements(instruction), reads(instruction)
        steps.append(UnitStep(cycles, most, delay(instruction), follows))
        done = float(iterations_of(instruction, stream.fields[rows]).sum())
        least[follows] += done / most_a_cycle(instruction)
    return AccumulatorWork(tuple(steps), (least[0] / n, least[1] / n))


def _only(block: Block, wanted: Callable[[Call], bool]) -> Block:
    """The calls that are wanted, and what is around them."""

    def kept(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Call):
            return stmt if wanted(stmt) else None
        return map_inner_blocks(stmt, lambda inner: map_block(inner, kept))

    return map_block(block, kept)
