"""Copies between memories on a chip's own instructions: runs that lie side by side in both, in as
few pieces as the instructions allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, nest_of
from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError, TargetError
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expand import least_fields
from tilewright.ir.expr import Load
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Call, For, Store, walk_statements
from tilewright.plan.elementwise import arrange, collapse
from tilewright.plan.rates import calls
from tilewright.plan.units import copies
from tilewright.schedule.core.state import Moment, attempt
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target


def memory_before(target: Target, memory: str) -> str:
    """The memory from which instructions load what is in this one."""
    for instruction in target.instructions:
        for stmt in walk_statements(instruction.body):
            if isinstance(stmt, Store) and isinstance(stmt.value, Load):
                source = stmt.value.buffer.memory
                if stmt.buffer.memory == memory and source != memory:
                    return source
    raise TargetError(f"no instruction of {target.name} loads {memory}")


@dataclass(frozen=True)
class BundleMove:
    """The instruction that copies from one memory to another: its queue or slot, how many elements
    it takes along each axis, cycles to set it up, bytes a cycle, cycles until all is there."""

    ends: tuple[str, str]
    queue: str
    sizes: tuple[int, ...]
    setup: int
    rate: float
    latency: int


def move_between(target: Target, source: str, result: str, dtype: DType) -> BundleMove:
    """The target's copy of elements of a type between two memories; TargetError without one."""
    for instruction in copies(target, source, result):
        if instruction.operands[0].dtype == dtype:
            memories = [target.memory(m) for m in (source, result)]
            rates = [m.bandwidth for m in memories if m.bandwidth is not None]
            setup, late = (x if isinstance(x, int) else 0
                           for x in (instruction.cost.setup, instruction.cost.latency))  # fmt: skip
            latency = max(late, *(m.latency for m in memories))
            return BundleMove(
                (source, result), instruction.queue, tuple(_sizes(instruction)), setup,
                min(rates, default=math.inf), latency,
            )  # fmt: skip
    raise TargetError(f"no instruction of {target.name} copies {dtype} from {source} to {result}")


def is_move(nest: Nest) -> bool:
    """Whether a nest only copies."""
    return isinstance(nest.store, Store) and isinstance(nest.store.value, Load)


def map_move(s: Schedule, target: Target, loop: Loop) -> None:
    """Replaces a nest that copies by calls of an instruction that does. ScheduleError where none
    can."""
    nest = nest_of(s.for_(loop))
    assert nest is not None
    assert isinstance(nest.store, Store)
    assert isinstance(nest.store.value, Load)
    source, result = nest.store.value.buffer, nest.store.buffer
    found = [
        i
        for i in copies(target, source.memory, result.memory)
        if i.operands[0].dtype == source.dtype
    ]
    loops = collapse(s, [x for x in arrange(s, nest) if s.for_(x).extent != 1] or [loop])
    for instruction in found:
        if _take(s, loops, instruction):
            return
    raise ScheduleError(
        f"no instruction of {target.name} copies {source} from {source.memory} to {result.memory}",
        program=nest.stmt,
    )


def _take(s: Schedule, loops: list[Loop], instruction: Instruction) -> bool:
    """Gives the innermost loops to an instruction; the last, what it cannot take in whole pieces,
    in two parts."""
    sizes = list(_sizes(instruction))
    extent, most = s.for_(loops[-1]).extent, sizes[-1]
    assert isinstance(extent, int)
    if extent <= most or extent % most == 0:
        return _cheapest(s, loops[-len(sizes) :], instruction)
    before = s.moment
    _, inner = s.split(loops[-1], most, Tail.CUT)
    tail = s.loop(f"{loops[-1]}_t")
    if attempt(s.tensorize, inner, instruction) and attempt(s.tensorize, tail, instruction):
        return True
    s.back_to(before)
    return False


def _cheapest(s: Schedule, loops: list[Loop], instruction: Instruction) -> bool:
    """Gives an instruction the loops from one of these on: that with which calls cost least."""
    before = s.moment
    found: list[tuple[int, int, Moment]] = []
    for loop in loops:
        if attempt(s.tensorize, loop, instruction):
            cost = sum(times * _cycles(call) for call, times in calls(s.kernel.body))
            found.append((cost, len(found), s.moment))
        s.back_to(before)
    if not found:
        return False
    s.back_to(min(found, key=lambda f: f[:2])[-1])
    return True


def _cycles(call: Call) -> int:
    """What a call costs; bytes count as cycles."""
    cost, env = call.instruction.cost, least_fields(call)
    through = [n for _, n in cost.through] or [cost.bytes]
    setup, busy, *moved = (int(evaluate_exactly(x, env)) for x in (cost.setup, cost.busy, *through))
    return 1 + setup + busy + max(moved)


def _sizes(instruction: Instruction) -> Iterator[int]:
    """How many elements an instruction takes along each axis, at most."""
    for stmt in walk_statements(instruction.body):
        if isinstance(stmt, For):
            extent = stmt.extent
            yield extent if isinstance(extent, int) else instruction.field(str(extent)).high
