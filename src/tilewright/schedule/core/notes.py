"""What is written beside loops: annotations, which belong to a schedule and not to its program.

They are found by the loop's variable, so they stay with a loop through every primitive that leaves
it a loop: reordered, moved, marked, shortened. The loops that a primitive makes of it (tiles, a
peeled part, a fused loop) are others, and have none; so are copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ScheduleError
from tilewright.base.identifiers import identifier
from tilewright.ir.expr import Var
from tilewright.ir.loop import INDENT, For, Kernel, walk_statements

Value = bool | int | float | str
WHOLE = "whole"  # the one key that primitives go by


@dataclass(frozen=True)
class Note:
    """key = value, beside a loop; written by the step with this number, from 1."""

    var: Var
    key: str
    value: Value
    step: int

    def __str__(self) -> str:
        return f"{self.key}={self.value!r}"


@dataclass(frozen=True)
class Notes:
    """All annotations of a schedule, in the order in which they were first written."""

    entries: tuple[Note, ...] = ()

    def of(self, var: Var) -> dict[str, Value]:
        """What is written beside a loop."""
        return {note.key: note.value for note in self.entries if note.var == var}

    def with_note(self, note: Note) -> Notes:
        """One more; it takes the place of one with the same key."""
        place = (note.var, note.key)
        entries = tuple(note if (x.var, x.key) == place else x for x in self.entries)
        return Notes(entries if note in entries else (*entries, note))

    def kept(self, var: Var) -> Note | None:
        """What says that a loop is kept whole."""
        return next((x for x in self.entries if (x.var, x.key) == (var, WHOLE)), None)

    def after(self, before: Kernel, after: Kernel) -> Notes:
        """The annotations of the loops that are left. Refuses a change of the extent of a loop that
        is kept whole."""
        if not self.entries or before is after:
            return self
        extents = {s.var: s.extent for s in _loops(before)}
        for s in _loops(after):
            if self.kept(s.var) is not None and s.extent != extents.get(s.var, s.extent):
                what = f"it would run {s.extent} times, not {extents[s.var]}"
                raise ScheduleError(f"{self.reason(s.var)}: {what}", program=before)
        left = {s.var for s in _loops(after)}
        return Notes(tuple(note for note in self.entries if note.var in left))

    def reason(self, var: Var) -> str:
        """Says that a loop is kept whole, and since when."""
        note = self.kept(var)
        assert note is not None
        return f"{var.name} is kept whole (step {note.step}: keep_whole(loop={var.name}))"

    def show(self, kernel: Kernel) -> str:
        """The program's text, with comments where loops are annotated."""
        found = {}
        for s in _loops(kernel):
            notes = [str(x) for x in self.entries if x.var == s.var]
            if notes:
                found[f"for {identifier(s.var.name)} in "] = ", ".join(notes)
        lines = str(kernel).split("\n")
        for number, line in enumerate(lines):
            for head, comment in found.items():
                if line.lstrip(INDENT).startswith(head):
                    lines[number] = f"{line}  # {comment}"
        return "\n".join(lines)


def _loops(kernel: Kernel) -> list[For]:
    return [s for s in walk_statements(kernel.body) if isinstance(s, For)]
