"""Every place in a piece of program that touches memory: what, where, when, on which conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir.expand import expand_call
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Select, UnaryOp, unary
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Call,
    For,
    If,
    Prefetch,
    Stmt,
    Store,
    walk_statements,
)


@dataclass(frozen=True, eq=False)
class Access:
    """One read or write. `op` is set for accumulations.

    `path` says when it happens, from the outside in: positions in blocks (ints) and loops, in
    turn; within a statement all reads (0) come before the write (1), within a conditional its
    condition (0) before the body (1), and that before the other branch (2): lanes do both in turn.
    `conditions` must hold for it to happen.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    op: BinaryOp | None
    stmt: Stmt
    path: tuple[int | For, ...]
    conditions: tuple[Expr, ...]

    @property
    def loops(self) -> tuple[For, ...]:
        """The enclosing loops inside the piece that was looked at, outermost first."""
        return tuple(x for x in self.path if isinstance(x, For))

    def __str__(self) -> str:
        what = "read" if not self.writes else "write" if self.op is None else "accumulation"
        place = f"{self.buffer.name}[{', '.join(map(str, self.indices)) or '()'}]"
        return f"{what} of {place}"


def accesses(block: Block) -> Iterator[Access]:
    """Every access in program order."""
    yield from _block(block, (), ())


_Path = tuple[int | For, ...]
_Conditions = tuple[Expr, ...]


def _block(block: Block, path: _Path, conditions: _Conditions) -> Iterator[Access]:
    for position, stmt in enumerate(block):
        yield from _ACCESSES[type(stmt)](stmt, (*path, position), conditions)


def _for(s: For, path: _Path, conditions: _Conditions) -> Iterator[Access]:
    if isinstance(s.extent, Expr):
        yield from _reads(s.extent, s, path, conditions)
    yield from _block(s.body, (*path, s), conditions)


def _if(s: If, path: _Path, conditions: _Conditions) -> Iterator[Access]:
    yield from _reads(s.cond, s, (*path, 0), conditions)
    yield from _block(s.body, (*path, 1), (*conditions, s.cond))
    if s.orelse:
        yield from _block(s.orelse, (*path, 2), (*conditions, unary(UnaryOp.NOT, s.cond)))


def _write(s: Store | Accumulate, path: _Path, conditions: _Conditions) -> Iterator[Access]:
    for e in (*s.indices, s.value):
        yield from _reads(e, s, (*path, 0), conditions)
    op = s.op if isinstance(s, Accumulate) else None
    yield Access(s.buffer, s.indices, True, op, s, (*path, 1), conditions)


def _reads(e: Expr, s: Stmt, path: _Path, conditions: _Conditions) -> Iterator[Access]:
    """The reads in an expression; those on a side of a select, under its condition."""
    if isinstance(e, Select):
        yield from _reads(e.cond, s, path, conditions)
        yield from _reads(e.a, s, path, (*conditions, e.cond))
        yield from _reads(e.b, s, path, (*conditions, unary(UnaryOp.NOT, e.cond)))
        return
    if isinstance(e, Load):
        yield Access(e.buffer, e.indices, False, None, s, path, conditions)
    for child in e.children():
        if isinstance(child, Expr):
            yield from _reads(child, s, path, conditions)


def _call(s: Call, path: _Path, conditions: _Conditions) -> Iterator[Access]:
    """What the instruction's meaning touches, but for buffers of its own; the statement is the
    call."""
    for e in (*(i for r in s.regions for i in r.indices), *s.fields):
        yield from _reads(e, s, (*path, 0), conditions)
    body = expand_call(s)
    own = {x.buffer for x in walk_statements(body) if isinstance(x, Alloc)}
    for access in _block(body, (*path, 1), conditions):
        if access.buffer not in own:
            yield replace(access, stmt=s)


_ACCESSES: dict[type[Stmt], Callable[[Any, _Path, _Conditions], Iterator[Access]]] = {
    Call: _call,
    For: _for,
    If: _if,
    Store: _write,
    Accumulate: _write,
    Alloc: lambda s, path, conditions: iter(()),
    Barrier: lambda s, path, conditions: iter(()),
    Prefetch: lambda s, path, conditions: iter(()),  # a hint
}
