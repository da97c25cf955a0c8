"""Whether the instructions of a stream keep to their buffers, and read only what was written."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.codegen.stream import Stream, bytes_of
from tilewright.codegen.touched import Use
from tilewright.ir.expr import Buffer
from tilewright.sim import native
from tilewright.sim.boxes import Boxes, ShadowMemory, boxes
from tilewright.sim.faults import Fault, Kind, lines, name_of, use_line


def check_memory(
    stream: Stream, inputs: Iterable[Buffer], found: Boxes | None = None
) -> Fault | None:
    """The first instruction that touches bytes outside of its operand's buffer, or that reads, with
    instructions in program order, a byte that nothing has written but the inputs; None if there is
    none. Where it depends on data or on conditions that are not linear what is touched, that is
    not judged."""
    b = boxes(stream) if found is None else found
    return check_bounds(b) or check_written(b, inputs)


def check_bounds(b: Boxes) -> Fault | None:
    """The first instruction that touches bytes outside of its operand's buffer."""
    t, stream = b.touched, b.stream
    names = [m.name for m in stream.target.memories]
    memory_of = dict(zip(t.use.tolist(), t.memory.tolist(), strict=True))
    limits = [
        _limits(stream, u, names[memory_of[k]]) if k in memory_of else (0, 0)
        for k, u in enumerate(t.uses)
    ]
    begin, end = np.array([(0, 0), *limits], np.int64)[t.use + 1].T
    wrong = np.flatnonzero(((t.start < begin) | (b.ends > end)) & t.exact)
    if not len(wrong):
        return None
    k = wrong[0]
    use = t.uses[t.use[k]]
    buffer = _buffer(stream, use)
    row, memory = int(t.row[k]), names[t.memory[k]]
    text = lines(
        f"{name_of(stream, row)}, touches bytes {t.start[k]} to {b.ends[k] - 1} of {memory}, and "
        f"{buffer.name if buffer else memory} lies at {begin[k]} to {end[k] - 1}",
        use_line(b, k, writes=bool(t.writes[k])),
    )
    return Fault(Kind.OUTSIDE, (row,), text)


def _buffer(stream: Stream, use: Use) -> Buffer | None:
    """The buffer of an operand; None for a list of micro-operations."""
    return None if use.operand is None else stream.sites[use.site].call.regions[use.operand].buffer


def _limits(stream: Stream, use: Use, memory: str) -> tuple[int, int]:
    """Where the buffer of an operand begins and ends in its memory."""
    buffer = _buffer(stream, use)
    if buffer is None:
        return 0, stream.sizes[memory]
    begin = stream.places[buffer].offset
    return begin, begin + bytes_of(buffer)


def check_written(b: Boxes, inputs: Iterable[Buffer]) -> Fault | None:
    """The first instruction in program order that reads a byte that nothing has written."""
    t, n = b.touched, len(b.stream)
    digests, where = np.zeros(len(b), np.uint64), np.zeros(1, np.int64)
    k = native.shadow_run(
        b.arrays, ShadowMemory(b, inputs).fresh(), n, np.arange(n), b.first,
        np.ascontiguousarray(t.exact, np.uint8), 1, None, digests, where,
    )  # fmt: skip
    if k < 0:
        return None
    row, memory = int(t.row[k]), b.stream.target.memories[t.memory[k]].name
    text = lines(
        f"{name_of(b.stream, row)}, reads byte {where[0]} of {memory}, which nothing has written",
        use_line(b, k, writes=False),
    )
    return Fault(Kind.UNWRITTEN, (row,), text)
