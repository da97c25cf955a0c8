"""Which tiles to give a kernel without a contraction on a chip with queues.

Work and transfers are read off the schedule of one small tile: cycles for an element of each local
buffer, and for each call. A tile takes its busiest queue so long, or the memory outside; what the
other queues do is seen once, before the first tile and behind the last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.analyze.linear import linear
from tilewright.analyze.nests import nests, stride
from tilewright.backends.stream.durations import durations
from tilewright.backends.stream.stream import expand_stream
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Load, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Call, For, Kernel, loads, walk_statements
from tilewright.plan.control import Control
from tilewright.plan.fill_unit import fill_kernel
from tilewright.plan.map_values import write_of
from tilewright.plan.vector_form import VectorForm, vector_form
from tilewright.plan.vector_schedule import VectorPlan, lane_axes, result_nest, tile_vectors
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

PREFETCH_DISTANCES = (2, 1)  # that are tried: loads may share the queue of what they are for
INTERLEAVES = (1, 2)
PROBE = 64  # rows of the tile that is looked at


@dataclass(frozen=True)
class VectorChoice:
    """A plan for a kernel in vector form, filled, and the cycles that the model expects of it."""

    form: VectorForm
    plan: VectorPlan
    cycles: float


def vector_choices(kernel: Kernel, target: Target, control: Control) -> Iterator[VectorChoice]:
    """Plans that fit the memories, the fastest first. ScheduleError if no instruction does what the
    kernel does."""
    form = vector_form(kernel, target)
    refusal = None
    found: list[VectorChoice] = []
    for lanes in row_sizes(target):
        for bare in _lane_loops(form.kernel, lanes):
            try:
                found += _Model(form, target, bare, control).choices()
            except ScheduleError as error:
                refusal = refusal or error
    if refusal is not None and not found:
        raise refusal
    return iter(sorted(found, key=lambda c: c.cycles))


def row_sizes(target: Target) -> list[int]:
    """How many elements the rows of the target's element-wise instructions have."""
    found = dict.fromkeys(
        _row(i)
        for i in target.instructions
        if write_of(i) is not None
        and all(target.memory(b.memory).size is not None for b in i.operands)
    )
    return list(found)


def _row(instruction: Instruction) -> int:
    loops = (x.extent for x in walk_statements(instruction.body) if isinstance(x, For))
    return math.prod(n for n in loops if isinstance(n, int))


def _lane_loops(kernel: Kernel, lanes: int) -> Iterator[VectorPlan]:
    """The loops of the result along which rows may lie: all as one, if arrays are walked through as
    they lie, then those that are filled up least."""
    s = Schedule(kernel)
    result = result_nest(s)
    axes = [x for x in result.axes if isinstance(x.extent, int)]
    count = math.prod(int(x.extent) for x in axes)
    if count % lanes == 0 and _walks_through(s):
        yield VectorPlan(axes[0].var, lanes, {}, fused=True)
    for loop in sorted(axes[::-1], key=lambda x: -(-int(x.extent) // lanes) * lanes / int(x.extent)):
        try:
            lane_axes(s, loop.var)
        except ScheduleError:
            continue
        yield VectorPlan(loop.var, lanes, {})


def _walks_through(s: Schedule) -> bool:
    """Whether the kernel is one nest that goes through every array as it lies in memory."""
    result = result_nest(s)
    if len(nests(s.kernel.body)) > 1:
        return False
    reads = [(x.buffer, x.indices) for x in loads(result.store.value)]
    for buffer, indices in [*reads, (result.buffer, result.store.indices)]:
        step = 1
        for loop in reversed(result.axes):
            if loop.extent != 1 and stride(buffer, indices, loop.var, s.simplifier) != step:
                return False
            step *= int(loop.extent) if isinstance(loop.extent, int) else 0
    return True


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class _Work:
    """What one kind of call costs in every tile: cycles for an element of the box that it fills,
    cycles for each time, and its queue's wait for what it makes."""

    queue: str
    box: str  # the local buffer; "" for the result
    rate: float
    setup: float
    wait: float
    bytes: float  # cycles of the memory outside, for an element


class _Model:
    """Queues, memories and cycles of one way to lay rows."""

    def __init__(
        self, form: VectorForm, target: Target, bare: VectorPlan, control: Control
    ) -> None:
        self.target, self.control = target, control
        self.form, self.bare = _filled(form, bare)
        s = Schedule(self.form.kernel)
        self.result = result_nest(s)
        self.nests = nests(s.kernel.body)
        self.extents = {x.var: int(x.extent) for x in self.result.axes if isinstance(x.extent, int)}
        if self.bare.fused:
            self.extents = {self.bare.lane: math.prod(self.extents.values())}
        free = {v: self._sizes(v) for v in self.extents}
        self.sizes = control.sizes(form.kernel.name, self.extents, free)
        self.work: list[_Work] = []
        self.held: list[tuple[str, str, float]] = []  # memory, box, bytes of an element
        self._probe()

    def _sizes(self, var: Var) -> list[int]:
        extent, step = self.extents[var], self.bare.lanes if var == self.bare.lane else 1
        return [n for n in range(step, extent + 1, step) if extent % n == 0]

    def boxes(self, tile: Mapping[Var, int]) -> dict[str, int]:
        """Elements of each local buffer that a tile needs; of the result by the name ""."""
        found = {"": math.prod(tile.values())}
        shapes: dict[str, list[int]] = {}
        for nest in reversed(self.nests) if not self.bare.fused else ():
            sizes = {x.var: int(x.extent) for x in (*nest.axes, *nest.reduce)}
            if nest.buffer == self.result.buffer:
                sizes |= tile
            else:
                shape = shapes.get(nest.buffer.name, [1] * len(nest.store.indices))
                along = zip(nest.store.indices, shape, strict=True)
                sizes |= {i: n for i, n in along if isinstance(i, Var)}
            for read in (x for w in nest.writes for x in loads(w.value)):
                if read.buffer.name in self.form.memories:
                    reach = [
                        1 + sum(abs(k) * (sizes.get(v, 1) - 1) for v, k in linear(i).items() if isinstance(v, Var))
                        for i in read.indices
                    ]
                    old = shapes.get(read.buffer.name, [1] * len(reach))
                    limits = map(int, read.buffer.shape)
                    new = [min(max(a, b), m) for a, b, m in zip(reach, old, limits, strict=True)]
                    shapes[read.buffer.name] = new
        return found | {name: math.prod(shape) for name, shape in shapes.items()}

    def _tiles(self) -> list[dict[Var, int]]:
        return [dict(zip(self.sizes, each, strict=True)) for each in itertools.product(*self.sizes.values())]

    def _probe(self) -> None:
        """Reads work and memory off the schedule of a small tile."""
        tile = min(self._tiles(), key=lambda t: abs(math.log(math.prod(t.values()) / (PROBE * self.bare.lanes))))
        s = Schedule(self.form.kernel)
        tile_vectors(s, self.target, replace(self.bare, tile=tile), self.form.memories, overlap=False)
        boxes = self.boxes(tile)
        turns = math.prod(self.extents.values()) / math.prod(tile.values())
        stream = expand_stream(s.kernel, self.target, limits=False)
        times = durations(stream)
        for k, site in enumerate(stream.sites):
            rows = stream.rows(k)
            written = {r.buffer.name for r in site.call.regions} & boxes.keys()
            box = max(written, key=lambda b: boxes[b], default="")
            local = all(self.target.memory(r.buffer.memory).size is not None for r in site.call.regions)
            busy = float((times.work - times.setup)[rows].sum())
            moved = float(times.transfer[rows].max(1, initial=0).sum())
            setup = float(times.setup[rows].sum())
            wait = float(times.latency[rows].sum()) if local else 0.0
            self.work.append(_Work(
                site.instruction.queue, box, busy / turns / boxes[box], setup / turns, wait / turns, moved / turns / boxes[box],
            ))
        for buffer in s.allocations():
            box = buffer.name if buffer.name in boxes else ""
            size = math.prod(map(int, buffer.shape)) * buffer.dtype.bytes
            self.held.append((buffer.memory, box, size / boxes[box]))

    def choices(self) -> list[VectorChoice]:
        found = []
        for tile in self._tiles():
            boxes = self.boxes(tile)
            turns = math.prod(self.extents.values()) // math.prod(tile.values())
            for distance, parts in itertools.product(PREFETCH_DISTANCES, INTERLEAVES):
                if not self.control.overlap and (distance, parts) != (1, 1):
                    continue
                if not self._fits(boxes, min(distance, turns - 1) + 1 if self.control.overlap else 1):
                    continue
                plan = replace(self.bare, tile=tile, prefetch_distance=distance, interleave=parts)
                found.append(VectorChoice(self.form, plan, self._cycles(boxes, turns, parts)))
        return found

    def _fits(self, boxes: Mapping[str, int], places: int) -> bool:
        used: dict[str, float] = {}
        for memory, box, size in self.held:
            used[memory] = used.get(memory, 0.0) + size * boxes[box] * places
        return all((self.target.memory(m).size or math.inf) >= n for m, n in used.items())

    def _cycles(self, boxes: Mapping[str, int], turns: int, parts: int) -> float:
        queues: dict[str, float] = {}
        bus = 0.0
        for work in self.work:
            wait = work.wait if parts == 1 else 0.0
            queues[work.queue] = queues.get(work.queue, 0.0) + work.rate * boxes[work.box] + work.setup + wait
            bus += work.bytes * boxes[work.box]
        longest = max(*queues.values(), bus)
        if not self.control.overlap:
            return turns * sum(queues.values())
        return turns * longest + sum(queues.values()) - max(queues.values())


def _filled(form: VectorForm, plan: VectorPlan) -> tuple[VectorForm, VectorPlan]:
    """The form with its lane loop filled to whole rows."""
    if plan.fused:
        return form, plan
    loop = next(x for x in result_nest(Schedule(form.kernel)).axes if x.var == plan.lane)
    extent = int(loop.extent) if isinstance(loop.extent, int) else 0
    wanted = -(-extent // plan.lanes) * plan.lanes
    if wanted == extent:
        return form, plan
    return replace(form, kernel=fill_kernel(form.kernel, {plan.lane: wanted})), plan
