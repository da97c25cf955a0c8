"""The iterations of an instruction, and where each of them finds an operand.

A hardware loop is one that a field decides the extent of, or one around such a loop. All that
stands inside of the innermost hardware loop is one iteration: the unit does it at once. Where
several nests of hardware loops follow each other, so do their iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.base.errors import TargetError
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Load,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_expr,
    const,
    unary,
)
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import Accumulate, Block, For, If, Stmt, Store, walk_statements
from tilewright.ir.substitute import variables

MOST_APART = 1024  # iterations that a distance may ask for
MOST_AT_ONCE = 1 << 16  # elements of an operand that one iteration touches

_NONE = const(0)
Steps = Mapping[Var | None, Expr]  # what each loop adds to a subscript; None: in the first of all


@dataclass(frozen=True)
class Touch:
    """A place where one iteration reads or writes an operand: the steps of each subscript, and the
    loops inside the iteration."""

    indices: tuple[Expr, ...]
    steps: tuple[Steps, ...]
    within: tuple[For, ...]
    writes: bool

    def moves(self, loop: For) -> tuple[Expr, ...]:
        """What a loop adds to each subscript."""
        return tuple([s.get(loop.var, _NONE) for s in self.steps])

    @property
    def elements(self) -> int:
        """How many one iteration touches there, at most."""
        still = (_NONE,) * len(self.steps)
        extents = [x.extent for x in self.within if self.moves(x) != still]
        return math.prod(n for n in extents if isinstance(n, int))

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.indices)) or '()'}]"


@dataclass(frozen=True)
class HardwareNest:
    """Hardware loops, outermost first, that run if all of the `conditions` hold; where they touch
    an operand."""

    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]
    touches: tuple[Touch, ...]


def find_nests(body: Block, operand: Buffer, listed: int | None) -> tuple[HardwareNest, ...]:
    """The nests of an instruction's meaning, in order; `listed` is the axis of the operand whose
    steps come from a list. TargetError where it cannot be said in general which iterations touch
    the same elements."""
    found = tuple(_nests(body, (), operand))
    if not found:
        raise TargetError(
            f"no hardware loops go over {operand.name}",
            hint="a hardware loop is one that a field decides: for i in grid(n)",
        )
    for nest in found:
        _check_loops(nest)
        _check_touches(nest, operand, listed)
    return found


def _nests(block: Block, conditions: tuple[Expr, ...], operand: Buffer) -> Iterator[HardwareNest]:
    beside = any(map(_is_hardware, block))
    for stmt in block:
        if not _is_hardware(stmt):
            if beside and any(True for _ in _uses(stmt, operand)):
                raise _imperfect(operand)
        elif isinstance(stmt, If):
            yield from _nests(stmt.body, (*conditions, stmt.cond), operand)
            other = (*conditions, unary(UnaryOp.NOT, stmt.cond))
            yield from _nests(stmt.orelse, other, operand)
        else:
            assert isinstance(stmt, For)
            loops = [stmt]
            while len(loops[-1].body) == 1 and _is_hardware(loops[-1].body[0]):
                inner = loops[-1].body[0]
                if not isinstance(inner, For):
                    raise _imperfect(operand)
                loops.append(inner)
            if any(map(_is_hardware, loops[-1].body)):
                raise _imperfect(operand)
            touches = _touches(loops[-1].body, tuple(loops), (), operand)
            yield HardwareNest(tuple(loops), conditions, tuple(touches))


def _is_hardware(stmt: Stmt) -> bool:
    """Whether it is, or holds, a loop whose extent a field decides."""
    loops = (s for s in walk_statements((stmt,)) if isinstance(s, For))
    return any(not isinstance(s.extent, int) for s in loops)


def _imperfect(operand: Buffer) -> TargetError:
    return TargetError(
        f"a hardware loop over {operand.name} stands beside other statements",
        hint="a distance is judged in loops that hold each other alone, the innermost all the "
        "rest; several such nests may follow each other",
    )


def _uses(stmt: Stmt, operand: Buffer) -> Iterator[tuple[tuple[Expr, ...], bool]]:
    """The subscripts of the operand in a statement and those inside of it; whether it is written
    there."""
    for s in walk_statements((stmt,)):
        yield from _used_by(s, operand)


def _used_by(stmt: Stmt, operand: Buffer) -> Iterator[tuple[tuple[Expr, ...], bool]]:
    """The same, of one statement without those inside of it."""
    if isinstance(stmt, (Store, Accumulate)):
        if stmt.buffer == operand:
            yield stmt.indices, True
        parts: tuple[Expr, ...] = (*stmt.indices, stmt.value)
    else:
        parts = (stmt.cond,) if isinstance(stmt, If) else ()
    for part in parts:
        for e in part.walk():
            if isinstance(e, Load) and e.buffer == operand:
                yield e.indices, False


def _touches(
    block: Block, loops: tuple[For, ...], within: tuple[For, ...], operand: Buffer
) -> Iterator[Touch]:
    for stmt in block:
        for indices, writes in _used_by(stmt, operand):
            around = {x.var for x in (*loops, *within)}
            yield Touch(indices, tuple(_steps(e, operand, around) for e in indices), within, writes)
        if isinstance(stmt, If):
            yield from _touches((*stmt.body, *stmt.orelse), loops, within, operand)
        elif isinstance(stmt, For):
            yield from _touches(stmt.body, loops, (*within, stmt), operand)


def _steps(e: Expr, operand: Buffer, around: set[Var]) -> Steps:
    found = None if any(isinstance(x, Load) for x in e.walk()) else _linear(e)
    if found is None:
        raise TargetError(
            f"{operand.name} is touched at {e}, which does not move in equal steps",
            hint="a distance is judged where subscripts are sums of loop variables, times numbers "
            "or fields",
        )
    assert found.keys() - {None} <= around
    return found


def _linear(e: Expr) -> dict[Var | None, Expr] | None:
    """A sum of variables, times what has none; None for anything else."""
    if not variables(e):
        return {None: e}
    if isinstance(e, Var):
        return {e: const(1)}
    if isinstance(e, Unary) and e.op is UnaryOp.NEG:
        return _scaled(_linear(e.a), const(-1))
    if isinstance(e, Binary) and e.op in (BinaryOp.ADD, BinaryOp.SUB):
        a, b = _linear(e.a), _linear(e.b)
        b = _scaled(b, const(-1)) if e.op is BinaryOp.SUB else b
        if a is None or b is None:
            return None
        return {v: a.get(v, _NONE) + b.get(v, _NONE) for v in {**a, **b}}
    if isinstance(e, Binary) and e.op is BinaryOp.MUL:
        by, terms = (e.a, e.b) if variables(e.b) else (e.b, e.a)
        return None if variables(by) else _scaled(_linear(terms), by)
    return None


def _scaled(terms: dict[Var | None, Expr] | None, by: Expr) -> dict[Var | None, Expr] | None:
    return None if terms is None else {v: x * by for v, x in terms.items()}


def _check_loops(nest: HardwareNest) -> None:
    """Fields alone decide how often a nest runs."""
    for loop in nest.loops:
        if variables(loop.extent):
            raise TargetError(
                f"loop {loop.var} runs {loop.extent} times, which other loops decide",
                hint="a distance is judged where fields alone decide how often hardware loops run",
            )
    for e in (*nest.conditions, *(as_expr(x.extent) for x in nest.loops)):
        if any(isinstance(x, Load) for x in e.walk()):
            raise TargetError(
                f"what memory holds decides {e}",
                hint="a distance is judged where fields alone decide how often hardware loops run",
            )


def _check_touches(nest: HardwareNest, operand: Buffer, listed: int | None) -> None:
    """From one iteration to another, all places of the operand move alike."""
    for touch in nest.touches:
        if listed is not None and not any(touch.indices[listed] == loop.var for loop in nest.loops):
            raise TargetError(
                f"{operand.name}{touch} has no hardware loop alone at its listed axis",
                hint="an entry of the list is for one iteration of one loop",
            )
        if touch.elements > MOST_AT_ONCE:
            raise TargetError(
                f"one iteration touches {touch.elements:,} elements at {operand.name}{touch}",
                hint=f"distances are judged for up to {MOST_AT_ONCE:,}",
            )
        for loop in nest.loops:
            if touch.moves(loop) != nest.touches[0].moves(loop):
                raise TargetError(
                    f"{operand.name}{nest.touches[0]} and {operand.name}{touch} move differently "
                    f"along {loop.var}",
                    hint="a distance is judged where all that an iteration touches of an operand "
                    "moves as one",
                )


# ---------------------------------------------------------------- lists of micro-operations


def list_extent(instruction: Instruction) -> Dim | None:
    """How many micro-operations the instruction's list has: a number, or what a field says; None
    for an instruction without a list."""
    loops = {s.var: s.extent for s in walk_statements(instruction.body) if isinstance(s, For)}
    places = [
        x for s in instruction.body for x in s.walk() if isinstance(x, (Load, Store, Accumulate))
    ]
    for x in places:
        listed = instruction.listed(x.buffer)
        for v in x.indices[listed].walk() if listed is not None else ():
            if isinstance(v, Var) and v in loops:
                return loops[v]
    return None


def list_count(instruction: Instruction) -> Field | None:
    """The field that says how many micro-operations the instruction's list has, if one does."""
    extent = list_extent(instruction)
    return instruction.field(extent.name) if isinstance(extent, Symbol) else None
