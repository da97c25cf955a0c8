"""Code of a statically scheduled chip: bundles, and loops around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.backends.bundles.operations import Operation
from tilewright.ir.expr import Expr, Var


@dataclass(frozen=True, eq=False)
class Issue:
    """An operation in a bundle: the first register of each operand (None: in memory), and what the
    variable of its loop is here, where iterations overlap."""

    operation: Operation
    registers: tuple[int | None, ...]
    values: Mapping[Var, Expr]


@dataclass(frozen=True)
class LoopControl:
    """What the control slot does: begins a loop ("loop"), or ends one ("branch")."""

    name: str
    count: int


Bundle = tuple[Issue | LoopControl, ...]


@dataclass(frozen=True, eq=False)
class Pipelined:
    """A loop whose iterations overlap: the variable that the program counts them with, the cycles
    between one and the next, what the slots and the dependences need at least, how many are under
    way, and how many copies of the body name registers of their own."""

    var: Var
    count: int
    interval: int
    slots: int
    recurrence: int
    stages: int
    copies: int


@dataclass(frozen=True, eq=False)
class Repeat:
    """`count` times the code. A hardware loop costs nothing."""

    var: Var
    count: int
    code: Code
    hardware: bool
    pipelined: Pipelined | None = None


Code = tuple[Bundle | Repeat, ...]


def cycles(code: Code) -> int:
    """Bundles that are issued, one each cycle."""
    return sum(item.count * cycles(item.code) if isinstance(item, Repeat) else 1 for item in code)


def issues(code: Code, times: int = 1) -> Iterator[tuple[Issue, int]]:
    """Every operation in the code, with how often it is issued."""
    for item in code:
        if isinstance(item, Repeat):
            yield from issues(item.code, times * item.count)
        else:
            for x in item:
                if isinstance(x, Issue):
                    yield x, times


def loops(code: Code) -> Iterator[Repeat]:
    """Every loop in the code, outer ones first."""
    for item in code:
        if isinstance(item, Repeat):
            yield item
            yield from loops(item.code)
