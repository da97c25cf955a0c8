"""What can be wrong with a stream, in words: which instruction, which other one, and where their
meanings were written."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.stream.boxes import Boxes
from tilewright.backends.stream.stream import Stream
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Stmt, walk_statements


class FaultKind(enum.Enum):
    """Kinds of faults."""

    OUTSIDE = "out of range"  # bytes outside of the operand's buffer
    UNWRITTEN = "uninitialised"  # bytes are read that nothing has written
    STEPS = "steps"  # fields step otherwise through an operand than the program
    STATE = "state"  # a register holds another value than an instruction needs
    RACE = "race"  # nothing orders two instructions that must be
    STALE = "stale"  # another instruction's data are read than in program order
    DEADLOCK = "deadlock"
    DISTANCE = "distance"  # an element is touched again, or read, too soon
    TOKENS = "tokens"  # a token is left over, or an event is set twice
    RESULT = "result"  # outputs are not what they should be

    @property
    def is_synchronisation(self) -> bool:
        """Whether it cannot happen when instructions run one after another."""
        return self in (FaultKind.RACE, FaultKind.STALE, FaultKind.DEADLOCK, FaultKind.TOKENS)


@dataclass(frozen=True)
class Fault:
    """What is wrong. `rows` are the instructions concerned, the one that does it first."""

    kind: FaultKind
    rows: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def name_of(stream: Stream, row: int) -> str:
    """instruction 12, gemm(accumulate=1) of compute"""
    instruction = stream.sites[stream.site[row]].instruction
    values = zip(instruction.fields, stream.fields[row], strict=False)
    fields = ", ".join(f"{f.name}={value}" for f, value in values)
    return f"instruction {row}, {instruction.name}({fields}) of {instruction.queue}"


def use_line(b: Boxes, box: int, *, writes: bool) -> str:
    """instruction 12 writes it: operand c, tiny.py:43"""
    use = b.touched.uses[b.touched.use[box]]
    where = place_of(use.instruction, use.writer if writes else use.reader)
    does = "writes" if writes else "reads"
    what = "its list of micro-operations"
    if use.operand is not None:
        what = f"operand {use.instruction.operands[use.operand].name}"
    return f"instruction {b.touched.row[box]} {does} it: {what}{where}"


def place_of(instruction: Instruction, stmt: Stmt | None) -> str:
    """, FILE:LINE of a statement of an instruction's meaning; nothing for one without a file."""
    if not instruction.file:
        return ""
    found = (k for k, s in enumerate(walk_statements(instruction.body)) if s is stmt)
    return f", {instruction.file}:{instruction.lines[next(found, -1) + 1]}"


def lines(*parts: str | Sequence[str]) -> str:
    """The first part, and the others below it."""
    flat = [p for part in parts for p in ([part] if isinstance(part, str) else part)]
    return "\n  ".join(flat)


def shared_byte(b: Boxes, row: int, other: int) -> tuple[str, int, int, int] | None:
    """Where two instructions conflict: the memory, the first byte that both touch, one of them
    writing, and the box of each. None if they do not."""
    t = b.touched
    best: tuple[str, int, int, int] | None = None
    for i in b.of(row):
        for j in b.of(other):
            if t.memory[i] != t.memory[j] or not (t.writes[i] or t.writes[j]):
                continue
            common = np.intersect1d(b.bytes_of(i), b.bytes_of(j), assume_unique=True)
            if len(common) and (best is None or common[0] < best[1]):
                best = b.stream.target.memories[t.memory[i]].name, int(common[0]), i, j
    return best


def race(b: Boxes, row: int, earlier: int) -> Fault:
    """`row` may begin before `earlier` is done, though it must not."""
    stream = b.stream
    begins = f"{name_of(stream, row)}, may begin before {name_of(stream, earlier)}, is done"
    found = shared_byte(b, row, earlier)
    if found is None:  # the order was asked for
        return Fault(FaultKind.RACE, (row, earlier), begins)
    memory, byte, i, j = found
    t = b.touched
    text = lines(
        f"{begins}, and both touch byte {byte} of {memory}",
        use_line(b, i, writes=bool(t.writes[i])),
        use_line(b, j, writes=bool(t.writes[j])),
    )
    return Fault(FaultKind.RACE, (row, earlier), text)
