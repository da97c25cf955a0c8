"""What is known while a piece of program is matched with an instruction's meaning: the steps are
unify.py (statements and values), assign_axes.py (loops), solve_fields.py (fields), match.py
(operands in memory)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tilewright.analyze.conditions import conjuncts, is_place
from tilewright.ir.expr import Buffer, Expr, Symbol, Var
from tilewright.ir.instruction import Field
from tilewright.ir.loop import Alloc, Block, For, If, Stmt

Indices = tuple[Expr, ...]
Element = tuple[Buffer, Indices, Buffer, Indices]  # of the instruction, of the program


class MatchStage(enum.IntEnum):
    """How far a way to match got: what differs."""

    VALUES = 0
    LOOPS = 1
    FIELDS = 2
    MEMORY = 3
    LIMITS = 4


Culprits = frozenset[Var]  # loops that are in the way by how long they are


@dataclass
class Obstacles:
    """Why ways to match failed. Those count that got farthest: to a later stage, or with more of
    the program matched. Each names its culprits; None: any loop may be one."""

    farthest: tuple[MatchStage, int] = (MatchStage.VALUES, -1)
    reasons: dict[str, Culprits | None] = field(default_factory=dict)

    def add(
        self, stage: MatchStage, progress: int, reason: str, culprits: Culprits | None = None
    ) -> None:
        if (stage, progress) > self.farthest:
            self.farthest, self.reasons = (stage, progress), {}
        if (stage, progress) == self.farthest:
            self.reasons.setdefault(reason, culprits)

    def join(self, other: Obstacles) -> None:
        for reason, culprits in other.reasons.items():
            self.add(*other.farthest, reason, culprits)

    def __str__(self) -> str:
        """What stands in the way of the nearest; of several, the one that was tried first."""
        return next(iter(self.reasons), "nothing fits")

    @property
    def culprits(self) -> Culprits | None:
        """Those of what stands in the way."""
        return next(iter(self.reasons.values()), None)


@dataclass(frozen=True)
class NestPair:
    """Loops of the instruction and of the program around one block. The program's block runs under
    `conditions`; loops of one iteration are left out of `loops`."""

    axes: tuple[For, ...]
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]


@dataclass(frozen=True)
class Binding:
    """What is known so far: elements of the instruction's operands and local buffers, and which of
    the program's they are; loops that are axes (None for an axis of one); values of fields."""

    nests: tuple[NestPair, ...] = ()
    elements: tuple[Element, ...] = ()
    guards: tuple[tuple[Expr, Expr | None], ...] = ()  # conditions of reads; None: always read
    equal: tuple[tuple[Expr, Expr], ...] = ()  # indices that are values
    locals: tuple[tuple[Buffer, Buffer], ...] = ()
    scopes: tuple[tuple[Buffer, frozenset[Buffer]], ...] = ()  # what a local buffer may be
    loops: tuple[tuple[Var, For | None], ...] = ()
    fields: tuple[tuple[Symbol, Expr], ...] = ()
    parts: tuple[tuple[Buffer, Expr], ...] = ()  # operands that are values, where those are allowed
    limits: tuple[Expr, ...] = ()  # conditions on fields under which it does this

    @property
    def progress(self) -> int:
        """How much is matched."""
        return len(self.elements) + len(self.guards) + len(self.loops) + len(self.fields)

    def with_part(self, operand: Buffer, part: Expr) -> Binding:
        return replace(self, parts=(*self.parts, (operand, part)))

    def with_limit(self, condition: Expr) -> Binding:
        return replace(self, limits=(*self.limits, condition))

    def with_element(self, element: Element) -> Binding:
        known = element in self.elements
        return self if known else replace(self, elements=(*self.elements, element))

    def with_scope(self, ours: Iterable[Buffer], theirs: frozenset[Buffer]) -> Binding:
        """Local buffers of the instruction, and the program's that stand in the same place."""
        scopes = tuple((local, theirs) for local in sorted(ours, key=str))
        return replace(self, scopes=(*self.scopes, *scopes))

    def with_guard(self, ours: Expr, theirs: Expr | None) -> Binding:
        return replace(self, guards=(*self.guards, (ours, theirs)))

    def bind_field(self, var: Symbol, value: Expr) -> Binding | None:
        known = dict(self.fields)
        if var in known:
            return self if known[var] == value else None
        return replace(self, fields=(*self.fields, (var, value)))

    def bind_local(self, local: Buffer, buffer: Buffer) -> Binding | None:
        """Each local buffer of the instruction is one of the program's, allocated in the same
        place."""
        pair = (local, buffer)
        if pair in self.locals:
            return self
        ours, theirs = zip(*self.locals, strict=True) if self.locals else ((), ())
        allowed = dict(self.scopes).get(local, frozenset())
        if local in ours or buffer in theirs or buffer not in allowed:
            return None
        return replace(self, locals=(*self.locals, pair))


def outside(f: Field, value: object) -> str:
    """Why a field cannot have a value."""
    steps = f" in steps of {f.multiple}" if f.multiple > 1 else ""
    return f"{f.name} would be {value}: the field goes from {f.low} to {f.high}{steps}"


# ---------------------------------------------------------------- the shape of programs


def statements(block: Block) -> Block:
    """What a block does, without its allocations, and with what loops of one iteration do instead
    of those."""
    found: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, For) and stmt.extent == 1:
            found += statements(stmt.body)
        elif not isinstance(stmt, Alloc):
            found.append(stmt)
    return tuple(found)


def allocated(block: Block) -> frozenset[Buffer]:
    """The buffers that a block allocates, itself or in loops of one iteration."""
    found: set[Buffer] = set()
    for stmt in block:
        if isinstance(stmt, Alloc):
            found.add(stmt.buffer)
        elif isinstance(stmt, For) and stmt.extent == 1:
            found |= allocated(stmt.body)
    return frozenset(found)


def perfect_nest(stmt: Stmt) -> tuple[list[For], Block]:
    """Loops that stand alone in each other, outermost first, and what is in the last."""
    loops: list[For] = []
    block: Block = (stmt,)
    while len(block) == 1 and isinstance(block[0], For):
        loops.append(block[0])
        block = block[0].body
    return loops, block


def guarded_nests(stmt: Stmt) -> Iterator[tuple[list[For], list[Expr], Block]]:
    """Loops that stand alone in each other, or under conditions alone; those conditions; and what
    is innermost. A condition may also count as part of that."""
    loops: list[For] = []
    conditions: list[Expr] = []
    block: Block = (stmt,)
    while True:
        inner = statements(block)
        one = inner[0] if len(inner) == 1 and not allocated(block) else None
        if isinstance(one, For):
            loops.append(one)
        elif isinstance(one, If) and not one.orelse and is_place(one.cond):
            yield list(loops), list(conditions), block
            conditions += conjuncts(one.cond)
        else:
            yield loops, conditions, block
            return
        block = one.body
