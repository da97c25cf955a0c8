"""Instructions that do several steps at once (a softmax of rows): the schedule of a kernel that is
one of them, with what is made of its result.

    for tiles of rows:                                      stage
        X_local = alloc in the unit's memory; copy in       0
        softmax(X_local)                                    1
        copy out, element by element                        2

Its meaning has arrays of its own, so that the kernel's are computed for a row at a time first. An
instruction that works in place does so on what was brought.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import uses
from tilewright.backends.stream.addresses import bytes_of
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import DRAM, Buffer, Expr, Load, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Kernel,
    Stmt,
    buffers_written,
    loads,
    walk_statements,
)
from tilewright.plan.bound import ContractionBound, control_cycles
from tilewright.plan.control import Control
from tilewright.plan.map_values import RowLayout, map_values, row_length
from tilewright.plan.one_loop import flatten, hoist_all, stages_of
from tilewright.plan.rates import block_cycles, cycles_by_queue
from tilewright.plan.unit_plan import nest_with
from tilewright.plan.units import copies
from tilewright.plan.vector_schedule import Transfer, outside_of, result_nest
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

DISTANCES = (2, 1)  # steps between the load of a tile and its use that are tried


@dataclass(frozen=True)
class FusedPlan:
    """An instruction that does a kernel in tiles of so many rows, and the cycles that are expected
    of it."""

    instruction: Instruction
    loop: str  # over rows, by name
    rows: int
    prefetch_distance: int
    cycles: float


@dataclass(frozen=True)
class FusedChoices:
    """Plans that may fit the memories, the fastest first, and the cycles that none can beat."""

    plans: tuple[FusedPlan, ...]
    bound: ContractionBound


def fused_instructions(target: Target) -> Iterator[Instruction]:
    """The target's instructions of several steps, which keep to themselves what passes between."""
    for i in target.instructions:
        inner = list(walk_statements(i.body))
        sums = [x for x in inner if isinstance(x, Accumulate)]
        own = any(isinstance(x, Alloc) for x in inner)
        local = all(target.memory(b.memory).size is not None for b in i.operands)
        if own and len(sums) > 1 and local and i.operands:
            yield i


def fused_choices(kernel: Kernel, target: Target, control: Control) -> FusedChoices | None:
    """The plans for a kernel that one of those instructions does; None where none does."""
    found: list[FusedPlan] = []
    steps: list[_Step] = []
    for instruction in fused_instructions(target):
        s = Schedule(kernel)
        axes = result_nest(s).axes
        if len(axes) < 2 or not isinstance(axes[-2].extent, int):
            continue
        extents = {axes[-2].var: axes[-2].extent}
        sizes = [n for n in range(1, axes[-2].extent + 1) if axes[-2].extent % n == 0]
        chosen = control.sizes(kernel.name, extents, {axes[-2].var: sizes})[axes[-2].var]
        for rows in chosen:
            s = Schedule(kernel)
            try:
                bare = FusedPlan(instruction, axes[-2].var.name, rows, 0, 0.0)
                loop = tile_fused(s, target, bare, overlap=False)
            except ScheduleError:
                continue
            steps.append(_step(s, loop, target))
            found += [
                replace(bare, prefetch_distance=n, cycles=steps[-1].all(n))
                for n in (DISTANCES if control.overlap else (0,))
            ]
    if not found:
        return None
    found.sort(key=lambda p: p.cycles)
    return FusedChoices(tuple(found), _bound(kernel, target, steps))


@dataclass(frozen=True)
class _Step:
    """Cycles of a step's loads and stores, which share the memory outside, of its work, by queue,
    and from its first load until its result is outside; how many steps there are."""

    moves: float
    queues: Mapping[str, float]
    chain: float
    count: int

    @property
    def work(self) -> float:
        return sum(self.queues.values())

    def all(self, distance: int) -> float:
        """Cycles of all steps, with loads so many steps ahead."""
        if not distance:
            return self.count * self.chain
        longest = max(self.moves, self.work, self.chain / (distance + 2))
        return self.count * longest + self.chain - longest


def _step(s: Schedule, loop: Loop, target: Target) -> _Step:
    parts: dict[bool, list[Stmt]] = {True: [], False: []}  # whether they move, or work
    for stmt in s.for_(loop).body:
        if not isinstance(stmt, Alloc):
            parts[outside_of(stmt) is not Transfer.WORK].append(stmt)
    latency = max(m.latency for m in target.memories if m.size is None)
    moves = block_cycles(tuple(parts[True]), target)
    queues = cycles_by_queue(tuple(parts[False]), target)
    count = s.for_(loop).extent
    assert isinstance(count, int)
    return _Step(moves, queues, moves + sum(queues.values()) + 2 * latency, count)


def _bound(kernel: Kernel, target: Target, steps: Sequence[_Step]) -> ContractionBound:
    """The work of the busiest queue, of the tiles of which that is least, or all arrays brought and
    stored once."""
    least = {q: min(x.queues.get(q, 0.0) * x.count for x in steps)
             for q in {q for x in steps for q in x.queues}}  # fmt: skip
    size = sum(bytes_of(b) for b in kernel.params)
    rates = [m.bandwidth or math.inf for m in target.memories if m.size is None]
    latency = min(m.latency for m in target.memories if m.size is None)
    return ContractionBound(
        max(least.values()), size / max(rates), latency, latency, latency, control_cycles(target),
        {q: (n, n) for q, n in least.items()},
    )  # fmt: skip


def tile_fused(s: Schedule, target: Target, plan: FusedPlan, *, overlap: bool = True) -> Loop:
    """Builds the schedule in the module's docstring; returns its loop over tiles. ScheduleError
    where the instruction does not do what the kernel does."""
    instruction = plan.instruction
    memory = instruction.operands[0].memory
    for buffer in s.allocations():
        attempt(s.inline, buffer)
    own = set(s.allocations())
    steps = [n.buffer.name for n in nests(s.kernel.body) if n.buffer in own]
    local = _made_apart(s, memory)
    tiles, inside = _cut_rows(s, target, memory, plan.rows)
    local = s.compute_at(local, tiles[-1])
    for name in reversed(steps):
        s.compute_at(s.buffer(name), tiles[-1])
    read = [b for b in s.kernel.inputs if uses(s.for_(tiles[-1]), b)]
    held = [s.cache_read(b, tiles[-1], memory) for b in read]
    if _is_in_place(instruction):
        s.reuse(local, held[0])
        local = held[0]
    *_, made = (n for n in nests(s.for_(tiles[-1]).body) if n.buffer == local)
    if len(made.axes) < 2:
        raise ScheduleError(f"{instruction} does several rows, and a tile has one")
    row = Loop(made.axes[-2].var)
    for name in reversed(steps):
        s.compute_at(s.buffer(name), row)
    s.tensorize(row, instruction)
    for buffer in held:
        nest = nest_with(s, buffer)
        _split_last(s, target, nest, buffer.memory)
        map_values(s, target, Loop(nest.axes[0].var))
    map_values(s, target, Loop(inside[0]), RowLayout(tuple(inside), ()))
    hoist_all(s, tiles)
    loop = flatten(s, tiles, local.name, plan.prefetch_distance + 1, 2 if overlap else 1)
    count = s.for_(loop).extent
    if overlap and isinstance(count, int) and count > 1:
        distance = min(plan.prefetch_distance, count - 1)
        s.pipeline(loop, stages_of(s, target, loop, distance, min(2, count - distance)))
    return loop


def _is_in_place(instruction: Instruction) -> bool:
    """Whether it writes what it reads."""
    written = buffers_written(instruction.body) & set(instruction.operands)
    read = {x.buffer for stmt in instruction.body for x in loads(stmt)}
    return written <= read


def _made_apart(s: Schedule, memory: str) -> Buffer:
    """The array of what the kernel's steps make of its input, without what follows."""
    result = result_nest(s)
    steps = set(s.allocations())
    value = result.store.value
    path: list[int] = []
    while True:
        inner = [x for x in value.children() if isinstance(x, Expr)]
        having = [k for k, x in enumerate(inner) if steps & {y.buffer for y in loads(x)}]
        if isinstance(value, Load) or len(having) != 1 or _reads_more(inner, having[0], steps):
            break
        value, path = inner[having[0]], [*path, having[0]]
    if not path:
        return s.cache_write(s.buffer(result.buffer.name), memory)
    return s.split_value(Loop(result.axes[0].var), path, memory)


def _reads_more(operands: Sequence[Expr], k: int, steps: set[Buffer]) -> bool:
    """Whether other operands read anything, or the one nothing but steps."""
    others = any(True for n, x in enumerate(operands) if n != k for _ in loads(x))
    return others or {y.buffer for y in loads(operands[k])} <= steps


def _cut_rows(s: Schedule, target: Target, memory: str, rows: int) -> tuple[list[Loop], list[Var]]:
    """Cuts the nest that makes the result into tiles of rows: the loops over them, and those in
    one."""
    nest = result_nest(s)
    *outer, row, _ = [Loop(x.var) for x in nest.axes]
    last = _split_last(s, target, nest, memory)
    over, inner = s.split(row, rows)
    tiles = [*outer, over]
    s.reorder(*tiles, inner, *last)
    return tiles, [inner.var, *(x.var for x in last)]


def _split_last(s: Schedule, target: Target, nest: Nest, memory: str) -> list[Loop]:
    """The innermost loop of a nest in rows of the instruction that copies between its memories."""
    last = nest.axes[-1]
    both = itertools.chain(copies(target, memory, DRAM), copies(target, DRAM, memory))
    length = next((row_length(i) for i in both), 1)
    if isinstance(last.extent, int) and last.extent % length == 0 and last.extent > length > 1:
        return list(s.split(Loop(last.var), length))
    return [Loop(last.var)]
