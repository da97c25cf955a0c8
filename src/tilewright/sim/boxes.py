"""What a stream touches, as the native functions take it: boxes in normal form, and memories cut
into cells that every instruction touches wholly or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.codegen.place import bytes_of
from tilewright.codegen.stream import Stream
from tilewright.codegen.touched import Touched, touched
from tilewright.ir.expr import Buffer
from tilewright.sim import native

MOST_AXES = 16  # of a box, the bytes of an element included
INPUT, UNWRITTEN = -1, -2  # writers of cells that no instruction wrote


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of a stream in normal form: the last axis is a run of single bytes, steps are
    positive and descending. The cells of memory k are granules[k] bytes; the boxes of instruction i
    are first[i] to first[i + 1]."""

    stream: Stream
    touched: Touched
    granules: np.ndarray
    first: np.ndarray
    arrays: native.Struct

    def __len__(self) -> int:
        return len(self.touched.row)

    @cached_property
    def ends(self) -> np.ndarray:
        """Behind the last byte of each box."""
        t = self.touched
        return t.start + ((t.extents - 1) * t.steps).sum(1) + 1

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Of each memory, how many cells are in use, and the bytes of one."""
        sizes = [self.stream.sizes.get(m.name, 0) for m in self.stream.target.memories]
        return [(-(-n // int(g)), int(g)) for n, g in zip(sizes, self.granules, strict=True)]

    def bytes_of(self, box: int) -> np.ndarray:
        """Every byte of one box, in order."""
        t = self.touched
        found = np.array([t.start[box]])
        for extent, step in zip(t.extents[box], t.steps[box], strict=True):
            found = (found[:, None] + np.arange(extent) * step).reshape(-1)
        return np.unique(found)

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
    shaped = [np.ascontiguousarray(c, np.int64) for c in (t.extents, t.steps)]
    flags = [np.ascontiguousarray(c, np.uint8) for c in (t.reads, t.writes)]
    arrays = native.BoxArrays(len(t.row), t.extents.shape[1], *wide, *shaped, *flags)
    granules = np.zeros(len(stream.target.memories), np.int64)
    native.normalize(arrays, granules)
    row, memory, start = wide
    normal = Touched(row, memory, start, *shaped, t.reads, t.writes, t.exact, t.use, t.uses)
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
    """need[i, p]: the last instruction of queue p that must be done before instruction i begins;
    -1 for none. Found by following every byte through the stream."""
    b = boxes(stream) if found is None else found
    queue, queues = queue_numbers(stream), len(stream.target.queues)
    memories = []
    for count, granule in b.cells:
        last = np.full(count, -1, np.int32), np.full((count, queues), -1, np.int32)
        memories.append(native.Cells(count, granule, *last))
    need = np.empty((len(stream), queues), np.int32)
    held = native.array(native.Cells, memories)
    native.dependences(len(stream), queues, queue, b.arrays, held, need)
    return need


class ShadowMemory:
    """Who wrote each cell of each memory last. At first nothing but the inputs is written, and what
    the stream has of its own."""

    def __init__(self, b: Boxes, inputs: Iterable[Buffer]) -> None:
        names = [m.name for m in b.stream.target.memories]
        self.granules = [granule for _, granule in b.cells]
        self.start = [np.full(count, UNWRITTEN, np.int32) for count, _ in b.cells]
        for buffer in (*inputs, *b.stream.constants):
            place = b.stream.places[buffer]
            end = place.offset + bytes_of(buffer)
            k = names.index(place.memory)
            granule = self.granules[k]
            self.start[k][place.offset // granule : -(-end // granule)] = INPUT

    def fresh(self) -> Any:
        """The memories as they are at first, for native functions to change; see `writers`."""
        pairs = zip(self.granules, self.start, strict=True)
        found = [native.Shadow(len(w), granule, w.copy()) for granule, w in pairs]
        return native.array(native.Shadow, found)


def writers(memories: Any, number: int) -> np.ndarray:
    """Who wrote each cell of memory `number` last, in memories that ShadowMemory.fresh gave."""
    return memories.kept[number].kept[2]
