"""What a stream touches, as the native functions take it: boxes in normal form, and memories cut
into cells that every instruction touches wholly or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.backends.stream.parts import part_ends
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.touched import Touched, touched
from tilewright.base.errors import CompileError
from tilewright.base.node import cached_property
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Hazard
from tilewright.runtime import stream_functions as native

MOST_AXES = 16  # of a box, the bytes of an element included
FEW = 8  # cells of equal size for each run, at least, where cells between runs are cheaper
INPUT, UNWRITTEN = -1, -2  # writers of cells that no instruction wrote


@dataclass(frozen=True, eq=False)
class Cut:
    """How a memory is cut into `count` cells: cell c begins at byte bounds[c] and ends where the
    next begins; without bounds, each has `granule` bytes."""

    count: int
    granule: int
    bounds: np.ndarray | None = None

    def within(self, begin: int, end: int) -> slice:
        """The cells of bytes `begin` to `end`."""
        if self.bounds is None:
            return slice(begin // self.granule, -(-end // self.granule))
        inside = slice(1, -1)  # those that are not the memory's own ends
        first = np.searchsorted(self.bounds[inside], begin, side="right")
        return slice(int(first), int(np.searchsorted(self.bounds[inside], end)) + 1)

    def cells_of(self, starts: np.ndarray, run: int) -> int:
        """How many cells there are in all runs of so many bytes."""
        if self.bounds is None:
            return len(starts) * (run // self.granule + 2)
        ends = np.searchsorted(self.bounds, starts + run)
        return int((ends - np.searchsorted(self.bounds, starts, side="right") + 1).sum())

    @property
    def members(self) -> tuple[int, int, np.ndarray | None]:
        """As the native functions take it."""
        return self.count, self.granule, self.bounds


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of a stream in normal form: the last axis is a run of single bytes, steps are
    positive and descending. All starts, runs and steps in memory k are multiples of granules[k]
    bytes; the boxes of instruction i are first[i] to first[i + 1]."""

    stream: Stream
    touched: Touched
    granules: np.ndarray
    first: np.ndarray
    arrays: native.Struct

    def __len__(self) -> int:
        return len(self.touched.row)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pointers stay in their process: what they point to is found again."""
        return boxes, (self.stream, self.touched)

    @cached_property
    def ends(self) -> np.ndarray:
        """Behind the last byte of each box."""
        t = self.touched
        return np.asarray(t.start + ((t.extents - 1) * t.steps).sum(1) + 1)

    @cached_property
    def cuts(self) -> list[Cut]:
        """The cells of each memory: of equal size, or, if there are far fewer runs than those, what
        lies between the ends of all runs."""
        t, names = self.touched, [m.name for m in self.stream.target.memories]
        runs = t.extents[:, :-1].prod(1)
        found = []
        for k, (name, granule) in enumerate(zip(names, self.granules, strict=True)):
            size = self.stream.sizes.get(name, 0)
            here = np.flatnonzero(t.memory == k)
            cut = Cut(-(-size // int(granule)), int(granule))
            few = FEW * runs[here].sum() < cut.count
            found.append(self._between_runs(name, here, size) if few else cut)
        return found

    def _between_runs(self, memory: str, here: np.ndarray, size: int) -> Cut:
        """Cells between the ends of the runs of some boxes, and of the memory's buffers."""
        ends = [np.array([0, size])]
        for buffer, place in self.stream.places.items():
            if place.memory == memory:
                ends.append(np.array([place.offset, place.end(buffer)]))
        for box in here:
            starts = self.runs_of(box)
            ends += [starts, starts + self.touched.extents[box, -1]]
        bounds = np.unique(np.concatenate(ends))
        bounds = np.ascontiguousarray(bounds[(bounds >= 0) & (bounds <= size)])
        return Cut(len(bounds) - 1, 1, bounds)

    def runs_of(self, box: int) -> np.ndarray:
        """Where the runs of one box begin."""
        t = self.touched
        found = np.array([t.start[box]])
        for extent, step in zip(t.extents[box, :-1], t.steps[box, :-1], strict=True):
            found = (found[:, None] + np.arange(extent) * step).reshape(-1)
        return found

    def bytes_of(self, box: int) -> np.ndarray:
        """Every byte of one box, in order."""
        run = np.arange(self.touched.extents[box, -1])
        return np.unique(self.runs_of(box)[:, None] + run)

    @cached_property
    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """What must come before what (`dependences`, `hazards`), found by following every byte
        through the stream."""
        stream, queues = self.stream, len(self.stream.target.queues)
        need, own = self._followed(queue_numbers(stream), queues)
        _read_registers(stream, own)
        _end_last(stream, need, own)
        return need, own

    def dependences_of(self, group: np.ndarray, count: int) -> np.ndarray:
        """need[i, g]: the last instruction of another group g before instruction i that has to be
        done before that begins; -1 for none. Instructions are in `count` groups [n], each of them
        of one queue, in which they stay in their order."""
        return self._followed(np.ascontiguousarray(group, np.int32), count)[0]

    def _followed(self, group: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Likewise, and the hazards within groups, by following every byte."""
        stream = self.stream
        memories = []
        for cut in self.cuts:
            last = np.full(cut.count, -1, np.int32), np.full((cut.count, count), -1, np.int32)
            memories.append(native.Cells(*cut.members, *last))
        need = np.empty((len(stream), count), np.int32)
        own = np.empty((len(stream), len(Hazard)), np.int32)
        kinds = np.array([s.instruction.cost.hazard for s in stream.sites], np.uint8)
        found = native.Needs(need, own, np.ascontiguousarray(kinds[stream.site]))
        held = native.array(native.Cells, memories)
        native.dependences(len(stream), count, group, self.arrays, held, found)
        return need, own

    def of(self, row: int) -> range:
        """The boxes of an instruction."""
        return range(self.first[row], self.first[row + 1])


def boxes(stream: Stream, found: Touched | None = None) -> Boxes:
    """What all instructions of a stream touch; `found`, where that is known better than from their
    meanings."""
    t = touched(stream) if found is None else found
    if t.extents.shape[1] > MOST_AXES:
        raise CompileError(
            f"an operand is used by a nest of {t.extents.shape[1] - 1} loops, and at most "
            f"{MOST_AXES - 1} are simulated"
        )
    wide = [np.ascontiguousarray(c, np.int64) for c in (t.row, t.memory, t.start)]
    extents, steps = (np.ascontiguousarray(c, np.int64) for c in (t.extents, t.steps))
    flags = [np.ascontiguousarray(c, np.uint8) for c in (t.reads, t.writes)]
    arrays = native.BoxArrays(len(t.row), t.extents.shape[1], *wide, extents, steps, *flags)
    granules = np.zeros(len(stream.target.memories), np.int64)
    native.normalize(arrays, granules)
    row, memory, start = wide
    normal = Touched(row, memory, start, extents, steps, t.reads, t.writes, t.exact, t.use, t.uses)
    first = np.searchsorted(row, np.arange(len(stream) + 1))
    granules = np.maximum(granules, 1)
    return Boxes(stream, normal, granules, np.ascontiguousarray(first, np.int64), arrays)


def queue_numbers(stream: Stream) -> np.ndarray:
    """The queue of every instruction, by its number in the target."""
    names = [q.name for q in stream.target.queues]
    of_site = np.array([names.index(s.instruction.queue) for s in stream.sites], np.int32)
    return np.ascontiguousarray(of_site[stream.site])


def members(stream: Stream, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The instructions by queue: those of queue q are all[first[q]:first[q + 1]]."""
    ordered = np.argsort(queue, kind="stable").astype(np.int64)
    first = np.searchsorted(queue[ordered], np.arange(len(stream.target.queues) + 1))
    return ordered, first.astype(np.int64)


def dependences(stream: Stream, found: Boxes | None = None) -> np.ndarray:
    """need[i, p]: the last instruction of another queue p that must be done before instruction i
    begins; -1 for none."""
    return (boxes(stream) if found is None else found).order[0]


def hazards(stream: Stream, found: Boxes | None = None) -> np.ndarray:
    """own[i, h]: the last instruction of the same queue whose results instruction i reads, of those
    of hazard h (ir/instruction.py); -1 for none."""
    return (boxes(stream) if found is None else found).order[1]


def _read_registers(stream: Stream, own: np.ndarray) -> None:
    """Adds the instructions that set the registers which others have fields in."""
    for instruction in {s.instruction for s in stream.sites if s.instruction.sets_state}:
        setters = [s.instruction == instruction for s in stream.sites]
        before = np.flatnonzero(np.array(setters)[stream.site])
        for k, site in enumerate(stream.sites):
            if all((f.register or ("",))[0] != instruction.name for f in site.instruction.fields):
                continue
            after = stream.rows(k)
            last = np.searchsorted(before, after) - 1
            rows = np.where(last >= 0, before[last], -1)
            hazard = instruction.cost.hazard
            own[after, hazard] = np.maximum(own[after, hazard], rows)


def _end_last(stream: Stream, need: np.ndarray, own: np.ndarray) -> None:
    """Has the instruction that ends the stream, or a part of it, wait for all queues, its own
    too."""
    ends, queue = part_ends(stream), queue_numbers(stream)
    for q in set(queue.tolist()) if len(ends) else ():
        rows = np.flatnonzero(queue == q)
        before = np.searchsorted(rows, ends) - 1
        last = np.where(before >= 0, rows[before], -1)
        mine = queue[ends] == q
        own[ends[mine], Hazard.STALL] = last[mine]
        need[ends[~mine], q] = last[~mine]


class ShadowMemory:
    """Who wrote each cell of each memory last. At first nothing but the inputs is written, and what
    the stream has of its own."""

    def __init__(self, b: Boxes, inputs: Iterable[Buffer]) -> None:
        names = [m.name for m in b.stream.target.memories]
        self.cuts = b.cuts
        self.start = [np.full(cut.count, UNWRITTEN, np.int32) for cut in b.cuts]
        for buffer in (*inputs, *b.stream.constants):
            place = b.stream.places[buffer]
            k = names.index(place.memory)
            self.start[k][self.cuts[k].within(place.offset, place.end(buffer))] = INPUT

    def fresh(self) -> Any:
        """The memories as they are at first, for native functions to change; see `writers`."""
        pairs = zip(self.cuts, self.start, strict=True)
        found = [native.Shadow(*cut.members, writers.copy()) for cut, writers in pairs]
        return native.array(native.Shadow, found)


def writers(memories: Any, number: int) -> np.ndarray:
    """Who wrote each cell of memory `number` last, in memories that ShadowMemory.fresh gave."""
    found: np.ndarray = memories.kept[number].kept[-1]
    return found
