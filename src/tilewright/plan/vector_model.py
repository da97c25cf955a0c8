"""How long tiles of a kernel take whose work is element-wise, but for products among it, on a chip
with queues.

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
from tilewright.analyze.nests import Nest, nests
from tilewright.backends.stream.addresses import bytes_of
from tilewright.backends.stream.durations import Durations, durations
from tilewright.backends.stream.lifetimes import Spans, lifetimes
from tilewright.backends.stream.stream import Stream, expand_stream
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Call, buffers_written, loads
from tilewright.plan.bound import ContractionBound, control_cycles
from tilewright.plan.control import Control
from tilewright.plan.element_writes import reduction_of
from tilewright.plan.interleave import turns_of_sums, wait_of_sums
from tilewright.plan.one_loop import places_by_queue, stages_by_queue
from tilewright.plan.rates import iterations_of, most_a_cycle, most_for
from tilewright.plan.units import units
from tilewright.plan.vector_bound import (
    elements_of_nests,
    least_of_reductions,
    reads_of,
    reduction_buffers,
)
from tilewright.plan.vector_form import VectorForm
from tilewright.plan.vector_schedule import (
    VectorPlan,
    lane_axes,
    number_loops,
    result_nest,
    sliced_reduction,
    tile_vectors,
)
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

PREFETCH_DISTANCES = (2, 1, 0)  # that are tried: loads may share the queue of what they are for
RESULT_BUFFERS = (2, 1)  # one where two do not fit: it is stored while the next tile is brought
INTERLEAVES = (1, 2, 4)  # the last where sums along rows wait for themselves
STORE_PARTS = (1, 2, 4)  # of a tile that are tried where its store keeps the next one's loads
SLICES = 2  # of the ways to slice a reduction that fit, that are looked at
PROBE = 64  # rows of the tile that is looked at


@dataclass(frozen=True)
class VectorChoice:
    """A plan for a kernel in vector form, filled, and the cycles that the model expects of it."""

    form: VectorForm
    plan: VectorPlan
    cycles: float


@dataclass(frozen=True)
class _Work:
    """What one kind of call costs in every tile: cycles for an element of the box that it fills,
    cycles for each time, and its queue's wait for what it makes."""

    queue: str
    box: str  # the local buffer; "" for the result
    rate: float
    least: float  # the same at best
    setup: float
    wait: float
    sums: Instruction | None  # that adds to what it made last, again and again
    moved: float  # cycles of the memory outside, for an element
    least_moved: float  # the same, for what has to be moved
    outside: Buffer | None  # what it brings, or takes away
    in_slices: bool  # whether every slice of a reduction does it again
    sweeps: int  # iterations of a reduction
    apart: int  # elements that an accumulation has to have, to do several sweeps in one call
    latency: int  # of a call
    once: bool  # whether it brings what all tiles have in common
    clears: bool  # sums of a product, which waits for that in the same queue
    multiplies: bool  # whether a matrix unit does it
    takes: bool  # whether it reads what another queue brings for a tile


@dataclass(frozen=True)
class _Held:
    """A buffer in a chip's memory: the box that it holds, bytes for an element of it, and whether
    it is brought from outside, or leaves."""

    memory: str
    box: str
    bytes: float
    brought: bool
    leaving: bool
    spans: Spans | None  # of statements between which it holds something; None: all
    places: int  # steps that have something in it at once, where each queue works on its own

    def holds(self, at: int) -> bool:
        return self.spans is None or any(a <= at <= b for a, b in self.spans)


@dataclass(frozen=True)
class _Probe:
    """The stream of a small tile, what its instructions take, how many tiles it is, the part of
    each buffer that one needs, and which box the elements of each buffer of the stream are of: as
    it is brought, and as it is computed in the same place."""

    stream: Stream
    times: Durations
    turns: float
    boxes: Mapping[str, tuple[int, ...]]
    brought: Mapping[str, str]
    computed: Mapping[str, str]
    moved: frozenset[str]  # buffers that transfers fill
    sums: frozenset[str]  # buffers that products fill, be it before others do in their place


class VectorModel:
    """Queues, memories and cycles of one way to lay rows."""

    def __init__(
        self, form: VectorForm, target: Target, bare: VectorPlan, control: Control
    ) -> None:
        self.target, self.control = target, control
        self.form, self.bare = form, bare
        s = Schedule(self.form.kernel)
        self.result = result_nest(s)
        self.nests = nests(s.kernel.body)
        self.extents = {x.var: int(x.extent) for x in self.result.axes if isinstance(x.extent, int)}
        self.in_rows = {self.bare.lane, *number_loops(s, self.bare.lane)}
        free = {v: self._sizes(v) for v in self.extents}
        self.sizes = control.sizes(form.kernel.name, self.extents, free)
        self.lanes = lane_axes(s, self.bare.lane)
        self.numbers = [n for n, axis in self.lanes.items() if axis is None and n in form.memories]
        self.shapes = {b.name: b.shape for b in s.kernel.params}
        self.sliced = sliced_reduction(s.kernel, self.form.memories)
        self.work: list[_Work] = []
        self.held: list[_Held] = []
        self._probe()

    def _sizes(self, var: Var) -> list[int]:
        """What a tile may have along a loop of the result. Of a product it has whole rows: what is
        before that is made once for each tile."""
        if self.form.products and var == self.bare.lane:
            return [self.extents[var]]
        extent, step = self.extents[var], self.bare.lanes if var in self.in_rows else 1
        return [n for n in range(step, extent + 1, step) if extent % n == 0]

    def boxes(self, tile: Mapping[Var, int]) -> dict[str, tuple[int, ...]]:
        """The part of each buffer that a step needs; of the result by the name "" as well."""
        found = {"": tuple(tile[v] for v in self.extents)}
        ends: dict[Buffer, list[tuple[int, int]]] = {}  # of what all nests read
        for nest in reversed(self.nests):
            sizes = {x.var: int(x.extent) for x in (*nest.axes, *nest.reduce)}
            sizes |= tile
            if nest.buffer == self.result.buffer:
                found[nest.buffer.name] = _reach([nest.store.indices], sizes)
            else:
                along = zip(nest.store.indices, found[nest.buffer.name], strict=True)
                sizes |= {i: n for i, n in along if isinstance(i, Var)}
            for buffer, places in reads_of(nest).items():
                now = _ends(places, sizes)
                pairs = zip(now, ends.get(buffer, now), strict=True)
                ends[buffer] = [(min(a, c), max(b, d)) for (a, b), (c, d) in pairs]
                limits = zip(ends[buffer], buffer.shape, strict=True)
                found[buffer.name] = tuple(min(1 + b - a, int(m)) for (a, b), m in limits)
        return found

    def _outside(self, buffer: Buffer, boxes: Mapping[str, tuple[int, ...]]) -> float:
        """Times the bytes of a parameter's part that the memory moves, which gives whole lines."""
        if buffer.name not in boxes:
            return 1.0
        part, axis = boxes[buffer.name], self.lanes.get(buffer.name)
        last = axis is None or axis == len(part) - 1
        run = 1 if last else self.bare.lanes
        whole = [int(n) for n in self.shapes[buffer.name]]
        for n, m in zip(reversed(part), reversed(whole), strict=True):
            run *= n
            if n != m:
                break
        line = self.target.memory(buffer.memory).line
        return max(1.0, line / (run * buffer.dtype.bytes))

    def _tiles(self) -> list[dict[Var, int]]:
        """All tiles of which numbers fill rows as well."""
        every = itertools.product(*self.sizes.values())
        tiles = [dict(zip(self.sizes, each, strict=True)) for each in every]
        return [t for t in tiles if self._fills_rows(t)] if self.form.products else tiles

    def _fills_rows(self, tile: Mapping[Var, int]) -> bool:
        boxes = self.boxes(tile)
        return all(boxes[n][-1] % self.bare.lanes == 0 for n in self.numbers if boxes[n])

    def _probe(self) -> None:
        """Reads work and memory off the schedule of a small tile."""
        tile = min(
            self._tiles(),
            key=lambda t: abs(math.log(math.prod(t.values()) / (PROBE * self.bare.lanes))),
        )
        s, plan = Schedule(self.form.kernel), replace(self.bare, tile=tile)
        tiled = tile_vectors(s, self.target, plan, self.form, overlap=False)
        boxes = self.boxes(tile)
        elements = {name: math.prod(part) for name, part in boxes.items()}
        # Where a buffer took the place of others, it is the last; a value in between is of the box
        # that has as many elements.
        names = {held: name for name, held in tiled.held.items()}
        own = {name: name for name in tiled.held if name in names}  # with all that is brought
        stream = expand_stream(s.kernel, self.target, limits=False)
        moves = [x.call for x in stream.sites if self._is_outside(x.call)]
        brought = {b.name for x in moves for b in buffers_written((x,))}
        ends = [(buffers_written((x,)), x.regions) for x in moves]
        leaving = {r.buffer.name for made, regions in ends for r in regions if r.buffer not in made}
        spans = lifetimes(s.kernel)
        stages = stages_by_queue(s, tiled.loop, 1)
        self.steps = 1 + max(stages)
        places = places_by_queue(s, tiled.loop, stages)
        for buffer in s.allocations():
            size = math.prod(int(n) for n in buffer.shape)
            alike = (name for name, n in elements.items() if n == size)
            computed = names.setdefault(buffer.name, next(alike, ""))
            box = own.get(buffer.name, computed)
            each = bytes_of(buffer) / elements[box]
            known = buffer.name in brought, buffer.name in leaving
            several = places.get(buffer.name, 1)
            self.held.append(_Held(buffer.memory, box, each, *known, spans.get(buffer), several))
        turns = math.prod(self.extents.values()) / math.prod(tile.values())
        probe = _Probe(
            stream,
            durations(stream),
            turns,
            boxes,
            names | own,
            names,
            frozenset(brought),
            frozenset(tiled.held[name] for name in self.form.products),
        )
        self.work += [self._work(probe, k) for k in range(len(stream.sites))]

    def _is_outside(self, call: Call) -> bool:
        return any(self.target.memory(r.buffer.memory).size is None for r in call.regions)

    def _work(self, probe: _Probe, k: int) -> _Work:
        """What a call of the probe costs."""
        call, rows = probe.stream.sites[k].call, probe.stream.rows(k)
        times, turns, boxes = probe.times, probe.turns, probe.boxes
        written = {b.name for b in buffers_written((call,))}
        touched = [
            r.buffer for r in call.regions if self.target.memory(r.buffer.memory).size is None
        ]
        outside = next(iter(touched), None)
        names = probe.computed if outside is None else probe.brought
        box = next((names[b] for b in written if b in names), "")
        read = {names.get(r.buffer.name) for r in call.regions if r.buffer.name not in written}
        once = outside is not None and box in self.form.common
        if once:  # for each part of what there is, not for each tile
            turns = math.prod(self.boxes(self.extents)[box]) / math.prod(boxes[box])
        each = turns * math.prod(boxes[box])
        lines = 1.0 if outside is None else self._outside(outside, boxes)
        # Calls of one operation do not wait for each other, but where they add to the same rows.
        latency = times.latency[rows]
        again = not call.instruction.distances and reduction_of(call.instruction) is not None
        multiplies = any(call.instruction == u.instruction for u in units(self.target))
        clears = bool(written & probe.sums) and not read
        alone = touched or again or multiplies or clears
        wait = 0.0 if alone else min(float(latency.sum()), turns * latency.max())
        added = (n for n in self.nests if n.update is not None and read & _read(n))
        sweeps = next((math.prod(int(x.extent) for x in n.reduce) for n in added), 1)
        distances = [n for _, n in call.instruction.distances] if sweeps > 1 else []
        instruction = call.instruction
        done = float(iterations_of(instruction, probe.stream.fields[rows]).sum()) / each
        needed = 0.0
        if outside is not None:
            rate = self.target.memory(outside.memory).bandwidth or math.inf
            term = instruction.cost.bytes_in(outside.memory)
            needed = done / most_for(instruction, term) / rate
        return _Work(
            queue=instruction.queue,
            box=box,
            rate=float((times.work - times.setup)[rows].sum()) / each / lines,
            least=max(needed, done / most_a_cycle(instruction)),
            setup=float(times.setup[rows].sum()) / turns,
            wait=wait / turns,
            sums=call.instruction if again else None,
            moved=float(times.transfer[rows].max(1, initial=0).sum()) / each / lines,
            least_moved=needed,
            outside=outside,
            in_slices=self.sliced is not None and self.sliced.operand in read,
            sweeps=sweeps,
            apart=max(distances, default=0) * self.bare.lanes,
            latency=int(times.latency[rows].max(initial=0)),
            once=once,
            clears=clears,
            multiplies=multiplies,
            takes=outside is None and bool(probe.moved & {r.buffer.name for r in call.regions}),
        )

    def choices(self) -> list[VectorChoice]:
        """All tiles that fit, with the largest slices of a reduction that do."""
        sums = any(work.sums is not None for work in self.work)
        found = self._by_queue() if self.form.products or sums else []
        for tile, (distance, parts) in itertools.product(self._tiles(), self._paces()):
            turns = self._turns(tile)
            nested = sum(tile[v] < n for v, n in self.extents.items()) > 1
            fitting = (
                (slices, boxes, results)
                for slices, part in self._slices(tile)
                for boxes in [self.boxes(part)]
                if (results := self._results(boxes, distance, turns * slices, nested or slices > 1))
            )
            for slices, boxes, results in itertools.islice(fitting, SLICES):
                part = dict(tile)
                if self.sliced is not None and slices > 1:
                    part[self.sliced.loop] = self.sliced.extent // slices
                plan = replace(
                    self.bare, tile=part, prefetch_distance=distance, result_buffers=results,
                    interleave=parts,
                )  # fmt: skip
                cycles = self._cycles(boxes, turns, slices, parts, distance, results)
                n, more = self._stores_in_parts(boxes, distance)
                found.append(
                    VectorChoice(self.form, replace(plan, store_parts=n), cycles + turns * more)
                )
        return found

    def _stores_in_parts(
        self, boxes: Mapping[str, tuple[int, ...]], distance: int
    ) -> tuple[int, float]:
        """In how many parts a tile is best stored, and the cycles for which the loads of the next
        one wait then: where the queue that works loads as well, and has nothing else to do."""
        working = {x.queue for x in self.work if x.outside is None}
        moves = [(x, x.moved * math.prod(boxes[x.box])) for x in self.work if x.outside is not None]
        stores = [(x, n) for x, n in moves if x.queue not in working]
        loaded = sum(n for x, n in moves if x.queue in working)
        if distance or not loaded or not self.control.overlap:
            return 1, 0.0
        stored, setup = sum(n for _, n in stores), sum(x.setup for x, _ in stores)
        costs = {n: min(stored, loaded) / n + setup * (n - 1) for n in STORE_PARTS}
        best = min(costs, key=lambda n: costs[n])
        return best, costs[best]

    def _turns(self, tile: Mapping[Var, int]) -> int:
        return math.prod(self.extents.values()) // math.prod(tile.values())

    def _paces(self) -> list[tuple[int, int]]:
        """Steps between the load of a tile and its use, and parts of it that take turns."""
        waits = any(work.sums is not None for work in self.work)
        parts = INTERLEAVES if waits else INTERLEAVES[:2]
        every = list(itertools.product(PREFETCH_DISTANCES, parts))
        return every if self.control.overlap else [(0, 1)]

    def _by_queue(self) -> list[VectorChoice]:
        """The tiles of which every queue can work on one of its own."""
        found = []
        paces = [p for p in reversed(self._paces()) if p[0]]  # of equal ones more parts first
        for tile, (distance, parts) in itertools.product(self._tiles(), paces):
            boxes, turns = self.boxes(tile), self._turns(tile)
            steps = min(self.steps + distance - 1, turns)
            if turns == 1 or not self._fits_by_queue(boxes, distance):
                continue
            queues, bus = self._busy(boxes, 1, parts)
            longest = max(*queues.values(), bus)
            chain = sum(queues.values()) + self._late()
            cycles = turns * max(longest, chain / steps) + chain - longest + self._once(boxes)
            plan = replace(
                self.bare, tile=tile, prefetch_distance=distance, interleave=parts, by_queue=True
            )
            found.append(VectorChoice(self.form, plan, cycles))
        return found

    def _fits_by_queue(self, boxes: Mapping[str, tuple[int, ...]], distance: int) -> bool:
        used: dict[str, float] = {}
        for x in self.held:
            places = x.places + (distance - 1 if x.brought and x.places > 1 else 0)
            size = x.bytes * math.prod(boxes[x.box]) * places
            used[x.memory] = used.get(x.memory, 0.0) + size
        return all((self.target.memory(m).size or math.inf) >= n for m, n in used.items())

    def _late(self) -> int:
        """Cycles until what the last of each queue's transfers moves is there."""
        return sum({x.queue: x.latency for x in self.work if x.outside is not None}.values())

    def _once(self, boxes: Mapping[str, tuple[int, ...]]) -> float:
        """Cycles for the common factor that the first product waits for; others come meanwhile."""
        first = (x.rate * math.prod(boxes[x.box]) + x.setup for x in self.work if x.once)
        return next(first, 0.0)

    def bound(self) -> ContractionBound:
        """Cycles that no tiles beat: the busiest queue without set-ups and halos, or everything
        moved once."""
        whole = self.boxes(self.extents)
        no_products = [n for n in self.nests if n.buffer.name not in self.form.products]
        reduced = reduction_buffers(no_products)
        computed = least_of_reductions(no_products, self.target)
        moves = [x for x in self.work if x.outside is not None]
        for x in self.work:
            if x.outside is None and (x.box not in reduced or x.multiplies or x.clears):
                computed[x.queue] = computed.get(x.queue, 0.0) + x.least * math.prod(whole[x.box])
        queues = dict(computed)
        count = {x.box: self._elements(x.box, whole) for x in moves}
        for x in moves:
            queues[x.queue] = queues.get(x.queue, 0.0) + x.least * count[x.box]
        busiest = max(queues, key=lambda q: queues[q])
        loads_ = [x for x in moves if self._is_loaded(x)]
        stores = [x for x in moves if x not in loads_]
        # What the busiest queue brings itself, it can bring while it waits for the first of it.
        others = [x for x in loads_ if x.queue != busiest]
        fill = min((x.latency for x in others), default=0)
        drain = min((x.latency for x in stores if x.queue != busiest), default=0)
        bus = sum(x.least_moved * count[x.box] for x in moves)
        ends = min((x.latency for x in moves), default=0)
        return ContractionBound(
            queues[busiest], bus, fill, drain, ends, control_cycles(self.target),
            {q: (computed.get(q, 0.0), n) for q, n in queues.items()},
        )  # fmt: skip

    def _is_loaded(self, work: _Work) -> bool:
        """Whether a transfer brings an input, in whatever layout."""
        inputs = {b.name for b in self.form.kernel.inputs}
        return work.outside is not None and work.outside.name in inputs

    def _elements(self, box: str, whole: Mapping[str, tuple[int, ...]]) -> int:
        """Elements of a buffer that are needed: not those between windows that are far apart."""
        reads = [
            (n, places) for n in self.nests for b, places in reads_of(n).items() if b.name == box
        ]
        size = math.prod(whole[box])
        return min(size, elements_of_nests(reads)) if reads else size

    def _slices(self, tile: dict[Var, int]) -> Iterator[tuple[int, dict[Var, int]]]:
        """In how many slices a tile's reduction can be done, and what a step does then."""
        yield 1, tile
        if self.sliced is not None:
            extent = self.sliced.extent
            for n in (n for n in range(2, extent + 1) if extent % n == 0):
                yield n, tile | {self.sliced.loop: extent // n}

    def _results(
        self, boxes: Mapping[str, tuple[int, ...]], distance: int, steps: int, nested: bool
    ) -> int:
        """How many buffers the result has; 0 where not even one fits."""
        fits = (n for n in RESULT_BUFFERS if self._fits(boxes, distance, n, steps, nested))
        return next(fits, 0)

    def _fits(
        self,
        boxes: Mapping[str, tuple[int, ...]],
        distance: int,
        most_results: int,
        steps: int,
        nested: bool,
    ) -> bool:
        """Whether all buffers fit. In nested loops over tiles what an outer one computes for an
        inner one has as many places as what is brought."""
        places = min(distance, steps - 1) + 1
        results = min(most_results, steps) if self.control.overlap else 1
        used: dict[str, float] = {}
        passing: dict[str, dict[int, float]] = {}  # what is there while a tile is worked on
        steps_ = {at for x in self.held for span in x.spans or () for at in span}
        for x in self.held:
            turns = max(places if x.brought or nested else 1, results if x.leaving else 1)
            size = x.bytes * math.prod(boxes[x.box]) * turns
            if x.brought or x.leaving or nested or x.spans is None:
                used[x.memory] = used.get(x.memory, 0.0) + size
                continue
            at_once = passing.setdefault(x.memory, dict.fromkeys(steps_, 0.0))
            for at in (at for at in steps_ if x.holds(at)):
                at_once[at] += size
        for memory, at_once in passing.items():
            used[memory] = used.get(memory, 0.0) + max(at_once.values())
        return all((self.target.memory(m).size or math.inf) >= n for m, n in used.items())

    def _ahead(self, boxes: Mapping[str, tuple[int, ...]]) -> float:
        """Cycles of a tile's work before it touches its result's only buffer, which is stored
        meanwhile."""
        result = {x.buffer.name for w in self.result.writes for x in loads(w.value)}
        before = (x for x in self.work if x.box and x.box not in result)
        return sum(x.rate * math.prod(boxes[x.box]) + x.setup for x in before)

    def _cycles(
        self,
        boxes: Mapping[str, tuple[int, ...]],
        turns: int,
        slices: int,
        parts: int,
        distance: int,
        results: int,
    ) -> float:
        """Cycles of all tiles; what a slice does is done so many times for each."""
        queues, bus = self._busy(boxes, slices, parts)
        for x in (x for x in self.work if x.clears):
            queues[x.queue] += x.latency
        # From the first load of a tile until its result is outside.
        chain = sum(queues.values()) + self._late()
        if not self.control.overlap:
            return turns * chain
        at_once = distance + 2  # a tile is stored while the next is worked on
        longest = max(self._serial(queues), bus, chain / at_once)
        if distance == 0:
            longest = max(longest, self._one_place(queues, boxes))
        if results == 1:
            late = max(x.latency for x in self.work if x.outside is not None)
            longest = max(longest, sum(queues.values()) + late - self._ahead(boxes))
        rest = (chain - max(queues.values())) / slices
        return turns * longest + rest + self._once(boxes)

    def _serial(self, queues: Mapping[str, float]) -> float:
        """Cycles of a tile where queues that compute wait for each other."""
        computing = {x.queue for x in self.work if x.outside is None}
        return max(sum(queues[q] for q in computing), *queues.values())

    def _one_place(
        self, queues: Mapping[str, float], boxes: Mapping[str, tuple[int, ...]]
    ) -> float:
        """Cycles of a tile whose operands have one place: the next tile's come once what takes them
        is done."""
        computing = {x.queue for x in self.work if x.outside is None}
        loading = {x.queue: x.latency for x in self.work
                   if x.queue not in computing and self._is_loaded(x)}  # fmt: skip
        if not loading:
            return 0.0
        takes = (
            x.rate * math.prod(boxes[x.box]) + x.setup + (x.latency if x.clears else 0)
            for x in self.work
            if x.takes or x.clears  # between one product and the next
        )
        return sum(takes) + max(queues[q] + n for q, n in loading.items())

    def _busy(
        self, boxes: Mapping[str, tuple[int, ...]], slices: int, parts: int
    ) -> tuple[dict[str, float], float]:
        """Cycles of each queue in a tile, and of the memory outside."""
        queues: dict[str, float] = {}
        bus = 0.0
        for work in (x for x in self.work if not x.once):
            lines = 1.0 if work.outside is None else self._outside(work.outside, boxes)
            in_slice = self.sliced is not None and work.box == self.sliced.operand
            elements = math.prod(boxes[work.box]) * lines * (slices if in_slice else 1)
            once = work.setup + self._waits(work, boxes, parts)
            once *= slices if in_slice or work.in_slices else 1
            if math.prod(boxes[work.box]) < work.apart:
                once = work.sweeps * (work.setup + work.latency)
            queues[work.queue] = queues.get(work.queue, 0.0) + work.rate * elements + once
            bus += work.moved * elements
        return queues, bus

    def _waits(self, work: _Work, boxes: Mapping[str, tuple[int, ...]], parts: int) -> float:
        """Cycles that a queue waits for what calls of one kind make, in a tile. Where parts take
        turns, the others are worked on meanwhile, but by calls that add to the same sums."""
        if work.sums is None:
            others = work.rate * math.prod(boxes[work.box]) * (parts - 1) / parts
            return max(0.0, work.wait - others)
        rows, issue = math.prod(boxes[work.box]), self.target.issue
        sizes = [n for n in range(1, rows + 1) if rows % n == 0]
        turns = turns_of_sums(work.sums, rows, sizes, issue)
        return work.sweeps / self.bare.lanes * wait_of_sums(work.sums, rows, turns)


def _read(nest: Nest) -> set[str]:
    """The names of the buffers that a nest accumulates."""
    return {x.buffer.name for x in loads(nest.update.value)} if nest.update is not None else set()


def _reach(places: Sequence[Sequence[Expr]], sizes: Mapping[Var, int]) -> tuple[int, ...]:
    """Elements along each subscript from the first to the last that accesses touch, for so many
    iterations of each loop."""
    return tuple(1 + high - low for low, high in _ends(places, sizes))


def _ends(places: Sequence[Sequence[Expr]], sizes: Mapping[Var, int]) -> list[tuple[int, int]]:
    """The first and the last element along each subscript."""
    along = [[_span(i, sizes) for i in axis] for axis in zip(*places, strict=True)]
    return [(min(low for low, _ in x), max(high for _, high in x)) for x in along]


def _span(subscript: Expr, sizes: Mapping[Var, int]) -> tuple[int, int]:
    form = linear(subscript)
    ends = [k * (sizes.get(v, 1) - 1) for v, k in form.items() if isinstance(v, Var)]
    first = form.get(None, 0)
    return first + sum(n for n in ends if n < 0), first + sum(n for n in ends if n > 0)
