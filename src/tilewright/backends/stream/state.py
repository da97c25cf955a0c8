"""Whether the registers of a chip's state hold what its instructions take them to hold."""

from __future__ import annotations

import numpy as np

from tilewright.backends.stream.faults import Fault, Kind, lines, name_of
from tilewright.backends.stream.stream import Stream
from tilewright.ir.instruction import Instruction

NEVER = -1  # the instruction that set a register which none has set


def check_state(stream: Stream) -> Fault | None:
    """The first instruction that is not what it is taken to be, because another value is in a
    register than its field has: set by the last setter before it in its queue."""
    wrong: list[tuple[int, str, int]] = []
    for k, site in enumerate(stream.sites):
        rows = stream.rows(k)
        for column, f in enumerate(site.instruction.fields):
            if f.register is None or not len(rows):
                continue
            setter = stream.target.instruction(f.register[0])
            last = _last_setting(stream, setter)[rows]
            held = stream.fields[last, [x.name for x in setter.fields].index(f.register[1])]
            bad = np.flatnonzero((last == NEVER) | (held != stream.fields[rows, column]))
            if len(bad):
                wrong.append((int(rows[bad[0]]), f.name, int(last[bad[0]])))
    if not wrong:
        return None
    row, field, setting = min(wrong)
    me = name_of(stream, row)
    if setting == NEVER:
        return Fault(Kind.STATE, (row,), f"{me}, has {field} in a register that nothing has set")
    text = lines(
        f"{me}, has {field} in a register that holds something else",
        f"{name_of(stream, setting)}, set it last",
    )
    return Fault(Kind.STATE, (row, setting), text)


def _last_setting(stream: Stream, setter: Instruction) -> np.ndarray:
    """For every instruction, the last one before it that sets these registers; or NEVER."""
    ours = [k for k, s in enumerate(stream.sites) if s.instruction == setter]
    sets = np.isin(stream.site, ours)
    return np.maximum.accumulate(np.where(sets, np.arange(len(stream)), NEVER))
