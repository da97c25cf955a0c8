"""When an operation may be issued, after others that were placed before it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analyze.linear import Linear, add
from tilewright.backends.bundles.code import Issue
from tilewright.backends.bundles.operations import Operand
from tilewright.ir.expr import Buffer, constant_value
from tilewright.ir.substitute import variables

MOST = 48  # places of a buffer that are told apart


@dataclass(frozen=True, eq=False)
class _Touch:
    """A place in memory that was touched: its form (None: anywhere in the buffer), whether it was
    written, and from when on another may write, and read, there."""

    form: Linear | None
    span: int
    written: bool
    free: int


class Scoreboard:
    """What has been issued, and from when on its registers and memory are there for others.

    What is read is read at once: a write may be issued in the same cycle. What is written belongs
    to its writer until the result is there."""

    def __init__(self) -> None:
        self.landing: dict[tuple[str, int], int] = {}  # of registers: by file and number
        self.read: dict[tuple[str, int], int] = {}
        self.memory: dict[Buffer, list[_Touch]] = {}
        self.last = 0  # when everything is there, and no slot is taken

    def earliest(self, issue: Issue) -> int | None:
        """The first cycle at which this may come; None where nothing is in its way."""
        found: list[int] = []
        for operand, register in zip(issue.operation.operands, issue.registers, strict=True):
            if register is not None:
                for key in _cells(operand, register):
                    if key in self.landing:
                        found.append(self.landing[key])
                    if operand.writes and key in self.read:
                        found.append(self.read[key])
                continue
            form = form_at(operand, issue)
            for touch in self.memory.get(operand.buffer, ()):
                if (operand.writes or touch.written) and _may_meet(touch, form, operand.span):
                    found.append(touch.free)
        return max(found, default=None)

    def record(self, issue: Issue, at: int) -> None:
        """Takes note of an operation that is issued at a cycle."""
        landing = at + issue.operation.latency
        self.last = max(self.last, landing, at + issue.operation.busy)
        for operand, register in zip(issue.operation.operands, issue.registers, strict=True):
            free = landing if operand.writes else at
            if register is not None:
                for key in _cells(operand, register):
                    if operand.writes:
                        self.landing[key] = max(landing, self.landing.get(key, landing))
                    else:
                        self.read[key] = max(at, self.read.get(key, at))
                continue
            known = self.memory.setdefault(operand.buffer, [])
            known.append(_Touch(form_at(operand, issue), operand.span, operand.writes, free))
            if len(known) > MOST:
                self.memory[operand.buffer] = _joined(known)


def form_at(operand: Operand, issue: Issue) -> Linear | None:
    """Where an operand in memory is, with the values that its loop's variable has here; None if
    that is no linear form."""
    form = operand.start
    for var, value in issue.values.items():
        number = constant_value(value)
        if number is None or any(
            atom is not None and atom != var and var in variables(atom) for atom in form
        ):
            return None
        k = form.get(var, 0)
        rest = {atom: c for atom, c in form.items() if atom != var}
        form = add(rest, {None: k * int(number)}) if k * number else rest
    return form


def _cells(operand: Operand, register: int) -> list[tuple[str, int]]:
    """The registers of an operand, the first of which is `register`."""
    return [(operand.buffer.memory, register + c) for c in range(len(operand.cells))]


def _may_meet(touch: _Touch, form: Linear | None, span: int) -> bool:
    if touch.form is None or form is None:
        return True
    apart = add(form, touch.form, -1)
    if any(atom is not None for atom in apart):
        return True
    return -span < apart.get(None, 0) < touch.span


def _joined(touches: list[_Touch]) -> list[_Touch]:
    """One for all reads, and one for all writes, wherever they are."""
    found = []
    for written in (False, True):
        free = [t.free for t in touches if t.written == written]
        if free:
            found.append(_Touch(None, 0, written, max(free)))
    return found
