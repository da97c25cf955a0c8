"""What is wrong with a description, in words: what, where it stands, why it matters, what to do."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.ir.expr import Buffer, as_expr
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import (
    Accumulate,
    For,
    buffers_written,
    loads,
    symbols,
    walk_statements,
)
from tilewright.target.target import Target


class Severity(enum.Enum):
    """An error makes the chip, or a part of it, unusable; a warning may be meant so."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """`where` is a line of the description ("chip.py:12"), empty if that is not known."""

    severity: Severity
    what: str
    where: str
    why: str
    hint: str

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        lines = [f"{place}{self.severity.value}: {self.what}", f"  why: {self.why}"]
        return "\n".join([*lines, f"  hint: {self.hint}"])


Problems = Iterator[Problem]


def error(target: Target, part: str, what: str, why: str, hint: str) -> Problem:
    """An error at a part of the description: "memory spad", "instruction mvin"."""
    return Problem(Severity.ERROR, what, line_of(target, part), why, hint)


def warning(target: Target, part: str, what: str, why: str, hint: str) -> Problem:
    return Problem(Severity.WARNING, what, line_of(target, part), why, hint)


def line_of(target: Target, part: str) -> str:
    """Where a part of the description stands, in a file of this folder or anywhere else."""
    origins = dict(target.origins)
    where = origins.get(part, origins.get("target", ""))
    return shortened(where)


def shortened(where: str) -> str:
    """A path, with or without a line, as it is seen from the current folder."""
    here = os.path.join(Path.cwd(), "")
    return where.removeprefix(here)


# ---------------------------------------------------------------- what rules ask


def operands_read(instruction: Instruction) -> list[Buffer]:
    """Operands whose elements the instruction looks at, those that it adds to included."""
    read = {x.buffer for s in instruction.body for x in loads(s)}
    read |= {s.buffer for s in walk_statements(instruction.body) if isinstance(s, Accumulate)}
    return [o for o in instruction.operands if o in read]


def operands_written(instruction: Instruction) -> list[Buffer]:
    written = buffers_written(instruction.body)
    return [o for o in instruction.operands if o in written]


def memories_read(instruction: Instruction) -> set[str]:
    """The memories that it reads, that of its micro-operations included."""
    found = {o.memory for o in operands_read(instruction)}
    return found | ({instruction.micro_ops.memory} if instruction.micro_ops else set())


def memories_written(instruction: Instruction) -> set[str]:
    return {o.memory for o in operands_written(instruction)}


def extent_fields(instruction: Instruction) -> list[Field]:
    """The fields that say how much is done: extents of loops."""
    extents = [s.extent for s in walk_statements(instruction.body) if isinstance(s, For)]
    names = {e.name for n in extents for e in symbols(as_expr(n))}
    return [f for f in instruction.fields if f.name in names]
