"""Reductions along vectors: an accumulator for each lane, combined once at the end.

    for k:                                      for lane: part[lane] = neutral
        for lane (vectorize):             ->    for k: for lane: part[lane] += f(k, lane)
            acc += f(k, lane)                   for lane: acc += part[lane]

Combining lanes costs several instructions; here it is done once instead of in every iteration, and
once for what follows with as many lanes or fewer: the rest of a loop that vectors do not divide.
Allowed because an accumulation may be reordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.analyze.accesses import accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Buffer, Load, Var
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    loads,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.ir.tensor import neutral


def split_accumulators(kernel: Kernel) -> Kernel:
    """Gives every reduction over a vector loop inside serial loops an accumulator per lane, also
    where the loop does other things as well."""
    body = _visit(kernel.body, _Known(kernel))
    return kernel if body is kernel.body else kernel.with_(body=body)


class _Known:
    """The names that are taken, and how long loops are."""

    def __init__(self, kernel: Kernel) -> None:
        loops = (s for s in walk_statements(kernel.body) if isinstance(s, For))
        self.simplifier = Simplifier({s.var: s.extent for s in loops})
        self.taken = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}

    def fresh(self, name: str) -> str:
        unique, n = name, 1
        while unique in self.taken:
            unique, n = f"{name}_{n}", n + 1
        self.taken.add(unique)
        return unique


def _visit(block: Block, known: _Known) -> Block:
    out: list[Stmt] = []
    left = list(block)
    while left:
        stmt = left.pop(0)
        if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL:
            piece = _piece(stmt, known)
            if piece is not None:
                rest = _rest(left, piece, known)
                del left[: len(rest)]
                out += _split([piece, *rest], known)
                continue
        out.append(map_inner_blocks(stmt, lambda b: _visit(b, known)))
    same = len(out) == len(block) and all(a is b for a, b in zip(block, out, strict=True))
    return block if same else tuple(out)


@dataclass(frozen=True)
class _Piece:
    """A nest around a vector loop, and what that accumulates into the same elements throughout."""

    stmt: For
    lanes: For
    updates: tuple[Accumulate, ...]

    def update_of(self, element: Accumulate) -> Accumulate | None:
        """The update that adds to the same element."""
        return next((u for u in self.updates if _element(u) == _element(element)), None)


def _element(update: Accumulate) -> tuple[object, ...]:
    return update.buffer, update.indices, update.op, update.value.dtype


def _piece(stmt: For, known: _Known) -> _Piece | None:
    lanes, updates = _reductions(stmt)
    apart = tuple(u for u in updates if _is_apart(stmt, u, known.simplifier))
    return _Piece(stmt, lanes, apart) if lanes is not None and apart else None


def _rest(after: Sequence[Stmt], first: _Piece, known: _Known) -> list[_Piece]:
    """The statements behind a piece that add to the same elements only, in no more lanes."""
    found: list[_Piece] = []
    most = first.lanes.extent
    for stmt in after:
        piece = _piece(stmt, known) if isinstance(stmt, For) else None
        if piece is None or not isinstance(most, int) or not isinstance(piece.lanes.extent, int):
            break
        if piece.lanes.extent > most or None in map(first.update_of, piece.updates):
            break
        found.append(piece)
    return found


def _is_apart(stmt: For, update: Accumulate, s: Simplifier) -> bool:
    """Whether nothing else in the nest touches the buffer, and the element exists even if the nest
    never gets to it."""
    others = (a for a in accesses((stmt,)) if a.buffer == update.buffer and a.stmt is not update)
    return not any(others) and s.in_bounds(update.buffer, update.indices)


def _reductions(stmt: For) -> tuple[For | None, list[Accumulate]]:
    """The vector loop at the end of a perfect nest, and what it accumulates into elements that are
    the same in all of the nest."""
    inside = {stmt.var}
    at: Stmt = stmt
    while isinstance(at, (For, If)):
        if isinstance(at, For):
            inside.add(at.var)
            if at.kind is LoopKind.VECTORIZE:
                return at, [u for u in _accumulations(at.body) if _is_fixed(u, inside)]
        if len(at.body) != 1 or (isinstance(at, If) and at.orelse):
            break
        at = at.body[0]
    return None, []


def _accumulations(block: Block) -> Iterator[Accumulate]:
    """The accumulations of a block, under conditions too."""
    for stmt in block:
        if isinstance(stmt, Accumulate):
            yield stmt
        elif isinstance(stmt, If) and not stmt.orelse:
            yield from _accumulations(stmt.body)


def _is_fixed(update: Accumulate, inside: set[Var]) -> bool:
    """Whether an accumulation always means the same element."""
    return not any(variables(i) & inside or any(True for _ in loads(i)) for i in update.indices)


def _split(pieces: Sequence[_Piece], names: _Known) -> Block:
    """The first piece and those behind it, with its lanes."""
    first = pieces[0]
    lanes = first.lanes
    before: list[Stmt] = []
    after: list[Stmt] = []
    parts: list[tuple[Accumulate, Buffer]] = []
    assert isinstance(lanes.extent, int)
    for update in first.updates:
        name, dtype = names.fresh(f"{update.buffer.name}_lanes"), update.value.dtype
        part = Buffer(name, dtype, (lanes.extent,), "register")
        start, last = (Var(names.fresh(f"{lanes.var.name}_{s}")) for s in ("first", "last"))
        clear = Store(part, (start,), neutral(update.op, dtype))
        combine = update.with_(value=Load(part, (last,)))
        before += [Alloc(part), lanes.with_(var=start, body=(clear,))]
        after += [lanes.with_(var=last, body=(combine,))]
        parts.append((update, part))
    redirected = {
        id(own): own.with_(buffer=part, indices=(piece.lanes.var,))
        for piece in pieces
        for update, part in parts
        if (own := piece.update_of(update)) is not None
    }

    def redirect(s: Stmt) -> Stmt:
        return redirected.get(id(s)) or map_inner_blocks(s, lambda b: map_block(b, redirect))

    return (*before, *map_block(tuple(p.stmt for p in pieces), redirect), *after)
