"""Whether the instructions of a stream find their registers as they need them, keep to their
buffers, and read only what was written."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.backends.stream.boxes import Boxes, ShadowMemory, boxes
from tilewright.backends.stream.faults import Fault, FaultKind, lines, name_of, use_line
from tilewright.backends.stream.stream import Stream
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Instruction
from tilewright.runtime import stream_functions as native


def check_memory(
    stream: Stream, inputs: Iterable[Buffer], found: Boxes | None = None
) -> Fault | None:
    """The first instruction whose registers are not what it needs (check_state), or else that
    touches bytes outside of its operand's buffer, or that reads, with instructions in program
    order, a byte that nothing has written but the inputs; None if there is none. Where it depends
    on data, or on conditions that are not linear, what is touched, that is not judged."""
    b = boxes(stream) if found is None else found
    return check_state(stream) or check_bounds(b) or check_written(b, inputs)


def check_bounds(b: Boxes) -> Fault | None:
    """The first instruction that touches bytes outside of its operand's buffer."""
    t, stream = b.touched, b.stream
    site = stream.site[t.row]
    operand = np.array([-1 if u.operand is None else u.operand for u in t.uses] or [0])[t.use]
    alike = site * max(1, len(t.uses)) + t.use  # uses with the same limits
    of = np.zeros((int(alike.max(initial=0)) + 1, 2), np.int64)
    example = np.full(len(of), -1)
    example[alike] = np.arange(len(alike))
    for k in example[example >= 0].tolist():
        of[alike[k]] = _limits(stream, int(site[k]), int(operand[k]), int(t.memory[k]))
    begin, end = of[alike].T
    wrong = np.flatnonzero(((t.start < begin) | (b.ends > end)) & t.exact)
    if not len(wrong):
        return None
    k = wrong[0]
    row, memory = int(t.row[k]), stream.target.memories[t.memory[k]].name
    buffer = _buffer(stream, int(site[k]), int(operand[k]))
    text = lines(
        f"{name_of(stream, row)}, touches bytes {t.start[k]} to {b.ends[k] - 1} of {memory}, and "
        f"{memory if buffer is None else buffer.name} lies at {begin[k]} to {end[k] - 1}",
        use_line(b, k, writes=bool(t.writes[k])),
    )
    return Fault(FaultKind.OUTSIDE, (row,), text)


def _buffer(stream: Stream, site: int, operand: int) -> Buffer | None:
    """The buffer of an operand, if it has a place of its own; lists of micro-operations do not."""
    if operand < 0:
        return None
    buffer = stream.sites[site].call.regions[operand].buffer
    return buffer if buffer in stream.places else None


def _limits(stream: Stream, site: int, operand: int, memory: int) -> tuple[int, int]:
    """Where the buffer of an operand begins and ends in its memory."""
    buffer = _buffer(stream, site, operand)
    if buffer is None:
        return 0, stream.sizes[stream.target.memories[memory].name]
    place = stream.places[buffer]
    return place.offset, place.end(buffer)


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
    return Fault(FaultKind.UNWRITTEN, (row,), text)


# ---------------------------------------------------------------- registers of the chip's state

NEVER = -1  # the instruction that set a register which none has set


def check_state(stream: Stream) -> Fault | None:
    """The first instruction that is not what it is taken to be, because another value is in a
    register than its field has: set by the last setter before it in its queue."""
    wrong: list[tuple[int, str, int]] = []
    settings: dict[str, np.ndarray] = {}  # a stream has many sites, and few setters
    for k, site in enumerate(stream.sites):
        rows = stream.rows(k)
        for column, f in enumerate(site.instruction.fields):
            if f.register is None or not len(rows):
                continue
            setter = stream.target.instruction(f.register[0])
            if setter.name not in settings:
                settings[setter.name] = _last_setting(stream, setter)
            last = settings[setter.name][rows]
            held = stream.fields[last, [x.name for x in setter.fields].index(f.register[1])]
            bad = np.flatnonzero((last == NEVER) | (held != stream.fields[rows, column]))
            if len(bad):
                wrong.append((int(rows[bad[0]]), f.name, int(last[bad[0]])))
    if not wrong:
        return None
    row, field, setting = min(wrong)
    me = name_of(stream, row)
    if setting == NEVER:
        return Fault(
            FaultKind.STATE, (row,), f"{me}, has {field} in a register that nothing has set"
        )
    text = lines(
        f"{me}, has {field} in a register that holds something else",
        f"{name_of(stream, setting)}, set it last",
    )
    return Fault(FaultKind.STATE, (row, setting), text)


def _last_setting(stream: Stream, setter: Instruction) -> np.ndarray:
    """For every instruction, the last one before it that sets these registers; or NEVER."""
    ours = [k for k, s in enumerate(stream.sites) if s.instruction == setter]
    sets = np.isin(stream.site, ours)
    return np.maximum.accumulate(np.where(sets, np.arange(len(stream)), NEVER))
