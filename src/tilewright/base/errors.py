"""What can go wrong, as a user sees it.

TilewrightError
├── ModelError      the model file or graph is not one we can read or compile
│   └── ContentsError   its shapes depend on what inputs hold
├── CompileError    a program broke a rule of the compiler's (also: our own invariants)
│   └── ScheduleError   a schedule primitive was refused
├── TargetError     a description of a chip, or a target's limit
├── InputError      a call's arguments: names, shapes, dtypes
├── MemoryShortage  the process may not have as much memory as it takes
├── CheckError      what a call's inputs hold, found by a module compiled with checks=True
└── ArtifactError   a compiled file that cannot be loaded here

Every error says what, where, in which program, and what to do about it.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from typing import TypeVar

E = TypeVar("E", bound="TilewrightError")

SHOWN = 3  # lines of context at either end


class TilewrightError(Exception):
    """`what` happened; `context` lines say while doing what; `program` shows where; `hint` says
    what to do."""

    def __init__(self, what: str, *, program: object = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.program = program
        self.hint = hint
        self.context: list[str] = []

    def add_context(self, line: str) -> None:
        """Records what was being done, innermost first."""
        self.context.append(line)

    def again(self: E) -> E:
        """The same, to be raised once more: raising an error, and those through whose hands it
        goes, add to it."""
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__, context=[*self.context])
        return other

    def __str__(self) -> str:
        lines = [self.what, *_shortened([f"  while {line}" for line in self.context])]
        if self.program is not None:
            lines.append("  in: " + textwrap.indent(str(self.program), "      ").lstrip())
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def _shortened(lines: list[str]) -> list[str]:
    """The innermost and outermost of a deep nest."""
    if len(lines) <= 2 * SHOWN + 1:
        return lines
    return [*lines[:SHOWN], f"  … {len(lines) - 2 * SHOWN} more …", *lines[-SHOWN:]]


class ModelError(TilewrightError):
    """The model cannot be read, is not well formed, or asks for something we do not have."""


class ContentsError(ModelError):
    """The model's shapes depend on what some of its `inputs` hold, or on `symbols` (dimensions of
    inputs), by name: they must be known while importing."""

    def __init__(
        self,
        what: str,
        *,
        inputs: tuple[str, ...] = (),
        symbols: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(what, hint=hint)
        self.inputs = inputs
        self.symbols = symbols


class CompileError(TilewrightError):
    """A program broke one of the compiler's rules."""


class ScheduleError(CompileError):
    """A schedule primitive was refused."""


class TargetError(TilewrightError):
    """A chip's description is wrong, or what was asked is beyond the chip's limits."""


class InputError(TilewrightError):
    """A call's arguments do not fit the model."""


class MemoryShortage(TilewrightError, MemoryError):
    """The machine, or a limit of the process, leaves less memory than is needed."""


class CheckError(TilewrightError, RuntimeError):
    """An index out of range, or an integer divided by zero, in a call of a module that was compiled
    with `checks=True`."""


class ArtifactError(TilewrightError):
    """A compiled file cannot be loaded here."""


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The sentence to close an unknown-name error with: near misses, else what there is."""
    same = [k for k in known if k.lower() == word.lower()]
    near = same or difflib.get_close_matches(word, known, n=3)
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"known: {shown}" if known else "there are none"
