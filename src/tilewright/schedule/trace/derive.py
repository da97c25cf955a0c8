"""The formulas of a trace: extents of all loops and shapes of all buffers, for a class of factors.

A trace is replayed once, in full. Beside it, each step's rule says what the extents become as
formulas of the decisions (the whole numbers that the steps were given). The result holds for the
**class** of all decisions for which

    1. every factor divides the extent that it splits                          (Divides)
    2. what runs once runs once, and what runs more often does not run once    (Same)
    3. decisions that a rule could not follow are as they were                 (Pinned)

Why a decision in the class gives a legal schedule, and these extents. A split by a divisor renames
the iterations of a loop, one to one: i = i_o * f + i_i. It puts nothing in another order, and it
adds no condition. Primitives look at three things: the structure of the program (what is nested
in what, who writes which buffer), which of the loops run once, and the order of pairs of accesses
to one element. The first is the same throughout the class, as each rule makes the same statements;
the second is what (2) says. For the third we ask of each loop that a decision splits, or whose
extent follows from one, that two accesses to one element that may not change their order have the
same value of this loop: one subscript of both is the loop itself, times and plus a constant
(`_in_one_iteration`; `strong` if that holds for accumulations as well, which may not run at the
same time). They then have the same values of all its pieces, whatever the factors are; so their
order is decided by other loops and by places in blocks, and these do not depend on the factors. A
step after which the property does not hold for a loop (a ring, an initialisation that is folded
into it) pins what decides that loop's pieces; so does a split that leaves a rest.

Boxes (compute_at, cache_read) are as large as the span of subscripts. The subscripts are linear
in the pieces of a loop with coefficients k * (product of factors), where k does not depend on the
factors; what may lie outside of the buffer pins. Along an axis that a layout cuts into blocks the
form of a subscript depends on the factors: a loop that occurs there has its factors pinned.

What no rule follows pins all decisions so far: then the program is the same program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.analyze.accesses import accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Buffer, Var
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    Kernel,
    loads,
    symbols,
    walk_statements,
)
from tilewright.schedule.trace.formulas import Formula, Formulas
from tilewright.schedule.trace.steps import Step


@dataclass(frozen=True)
class Divides:
    """A factor divides the extent of a loop."""

    factor: Formula
    extent: Formula
    loop: str


@dataclass(frozen=True)
class Same:
    """An extent is 1 if it was, and is not if it was not."""

    extent: Formula
    is_one: bool
    what: str


@dataclass(frozen=True)
class Pinned:
    """A decision is as it was."""

    decision: Formula
    value: int
    what: str


Condition = Divides | Same | Pinned


@dataclass(frozen=True)
class Root:
    """A loop that is split, or that has an extent which follows from decisions. `strong`: all
    accesses to one element, accumulations too, are in one iteration of it. `plain`: subscripts are
    linear in it."""

    name: str
    strong: bool
    plain: bool = True


@dataclass(frozen=True)
class SplitLoop:
    """A loop made by splitting: one step of it is `stride` steps of its root."""

    root: Root
    stride: Formula


@dataclass
class Derivation:
    """What is known of the program as it stands, while a trace is replayed."""

    formulas: Formulas
    decided: Mapping[tuple[int, str], Formula]  # by step and argument
    extents: dict[str, Formula] = field(default_factory=dict)  # of loops, by name
    shapes: dict[str, tuple[Formula, ...]] = field(default_factory=dict)
    pieces: dict[str, SplitLoop] = field(default_factory=dict)
    blocked: dict[str, set[int]] = field(default_factory=dict)  # axes with // or % in subscripts
    conditions: list[Condition] = field(default_factory=list)
    pinned: set[Formula] = field(default_factory=set)
    carried: set[str] = field(default_factory=set)  # roots whose iterations depend on each other
    keeps: bool = False  # loops must run as often as they did
    depths: list[Formula] = field(default_factory=list)  # of rings: they decide what order is legal

    def is_fixed(self, *formulas: Formula) -> bool:
        """Whether formulas have one value in the whole class."""
        return all(self.formulas.depends[x] <= self.pinned for x in formulas)

    def now(self, x: Formula) -> int:
        return self.formulas.now[x]

    # ---------------------------------------------------------- recording

    def set_extent(self, name: str, extent: Formula, piece: SplitLoop | None = None) -> None:
        self.extents[name] = extent
        self.pieces.pop(name, None)
        if piece is not None:
            self.pieces[name] = piece
        self._same(extent, name)

    def set_shape(self, name: str, shape: Sequence[Formula]) -> None:
        self.shapes[name] = tuple(shape)
        for n in shape:
            self._same(n, f"an axis of {name}")

    def _same(self, n: Formula, what: str) -> None:
        if not self.is_fixed(n):
            self.conditions.append(Same(n, self.now(n) == 1, what))

    def pin(self, step: int, what: str) -> None:
        """Fixes all decisions up to a step (counted from 0)."""
        self.pin_formulas(what, *(x for (number, _), x in self.decided.items() if number <= step))

    def pin_formulas(self, what: str, *formulas: Formula) -> None:
        """Fixes the decisions that formulas depend on."""
        for decision in sorted(set().union(*(self.formulas.depends[x] for x in formulas))):
            if decision not in self.pinned:
                self.pinned.add(decision)
                self.conditions.append(Pinned(decision, self.now(decision), what))

    def carry(self, loops: Sequence[str], what: str) -> None:
        """Iterations of these loops may depend on each other from now on: what decides them, and
        the other pieces of their roots, is fixed."""
        roots = {self.pieces[name].root.name for name in loops if name in self.pieces}
        self.carried |= roots
        for name, piece in self.pieces.items():
            if piece.root.name in roots:
                self.pin_formulas(what, self.extents[name], piece.stride)

    def adopt(self, kernel: Kernel) -> None:
        """Takes what has no formula, or another extent than its formula gives, as it is: all that
        it may depend on is pinned."""
        for loop in loops_in(kernel.body):
            known = self.extents.get(loop.var.name)
            if known is None or self.now(known) != loop.extent:
                self.set_extent(loop.var.name, self.formulas.const(int(loop.extent)))
        for buffer in buffers_in(kernel):
            shape = self.shapes.get(buffer.name, ())
            if tuple(map(self.now, shape)) != buffer.shape or buffer.name not in self.shapes:
                self.set_shape(buffer.name, [self.formulas.const(int(n)) for n in buffer.shape])

    def agrees(self, kernel: Kernel) -> bool:
        """Whether every loop and buffer has a formula with the right value."""
        return all(
            x.var.name in self.extents and self.now(self.extents[x.var.name]) == x.extent
            for x in loops_in(kernel.body)
        ) and all(
            b.name in self.shapes and tuple(map(self.now, self.shapes[b.name])) == b.shape
            for b in buffers_in(kernel)
        )


@dataclass(frozen=True)
class Event:
    """A step as it was applied: the programs before and after, arguments and result as handles."""

    number: int
    step: Step
    arguments: Mapping[str, Any]
    result: Any
    before: Kernel
    after: Kernel

    @property
    def fresh(self) -> list[For]:
        """The loops that are new, in program order."""
        old = {x.var for x in loops_in(self.before.body)}
        return [x for x in loops_in(self.after.body) if x.var not in old]


def loops_in(block: Block) -> list[For]:
    return [s for s in walk_statements(block) if isinstance(s, For)]


def buffers_in(kernel: Kernel) -> list[Buffer]:
    inside = [s.buffer for s in walk_statements(kernel.body) if isinstance(s, Alloc)]
    return [*kernel.params, *inside]


def loop_of(block: Block, name: str) -> For:
    return next(x for x in loops_in(block) if x.var.name == name)


def has_numbers(kernel: Kernel) -> bool:
    """Whether all extents and shapes are numbers."""
    return all(isinstance(x.extent, int) for x in loops_in(kernel.body)) and all(
        isinstance(n, int) for b in buffers_in(kernel) for n in b.shape
    )


def can_derive(kernel: Kernel) -> bool:
    """Whether places are all decided by loops: no symbols, no subscripts from memory."""
    found = accesses(kernel.body)
    from_memory = any(True for a in found for i in a.indices for _ in loads(i))
    return has_numbers(kernel) and not symbols(kernel) and not from_memory


def begin(d: Derivation, kernel: Kernel) -> None:
    """What is known of a program before the first step."""
    d.adopt(kernel)
    d.blocked = blocked_axes(kernel)


def blocked_axes(kernel: Kernel) -> dict[str, set[int]]:
    """The axes of buffers that have subscripts which are not linear."""
    found: dict[str, set[int]] = {}
    s = Simplifier({x.var: x.extent for x in loops_in(kernel.body)})
    for access in accesses(kernel.body):
        for axis, index in enumerate(access.indices):
            if any(atom is not None and not isinstance(atom, Var) for atom in s.linear(index)):
                found.setdefault(access.buffer.name, set()).add(axis)
    return found
