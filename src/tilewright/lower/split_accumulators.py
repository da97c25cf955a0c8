"""Reductions along vectors: an accumulator for each lane, combined once at the end.

    for k:                                      for lane: part[lane] = neutral
        for lane (vectorize):             ->    for k: for lane: part[lane] += f(k, lane)
            acc += f(k, lane)                   for lane: acc += part[lane]

A tile of sums has as many for each: loops that are unrolled inside of the nest, over elements.

Combining lanes costs several instructions; here it is done once instead of in every iteration, and
once for what follows with as many lanes or fewer: the rest of a loop that vectors do not divide.
Allowed because an accumulation may be reordered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tilewright.analyze.accesses import accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import DType
from tilewright.ir.expr import Buffer, Expr, Load, Var
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
from tilewright.ir.substitute import substitute, variables
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
class _Sum:
    """What a nest accumulates into an element, or into one for each iteration of `places`, unrolled
    loops inside of it that the element follows."""

    update: Accumulate
    places: tuple[For, ...]

    def indices(self, at: Sequence[Var]) -> tuple[Expr, ...]:
        """The element's subscripts, at other variables than those of its places."""
        moved = dict(zip((x.var for x in self.places), at, strict=True))
        return tuple(substitute(i, moved) for i in self.update.indices)

    def element(self) -> tuple[object, ...]:
        """Equal for what adds to the same elements in the same way."""
        same = [Var(f"place {k}") for k in range(len(self.places))]
        update, extents = self.update, tuple(x.extent for x in self.places)
        return update.buffer, self.indices(same), extents, update.op, update.value.dtype


@dataclass(frozen=True)
class _Piece:
    """A nest around a vector loop, and its sums."""

    stmt: For
    lanes: For
    sums: tuple[_Sum, ...]

    def sum_of(self, other: _Sum) -> _Sum | None:
        """The sum of the same elements."""
        return next((x for x in self.sums if x.element() == other.element()), None)


def _piece(stmt: For, known: _Known) -> _Piece | None:
    lanes, sums = _reductions(stmt)
    apart = tuple(x for x in sums if _is_apart(stmt, x.update, known.simplifier))
    return _Piece(stmt, lanes, apart) if lanes is not None and apart else None


def _rest(after: Sequence[Stmt], first: _Piece, known: _Known) -> list[_Piece]:
    """The statements behind a piece that add to the same elements only, in no more lanes, and read
    none of them: they are made when all is added up."""
    found: list[_Piece] = []
    most = first.lanes.extent
    buffers = {x.update.buffer for x in first.sums}
    for stmt in after:
        piece = _piece(stmt, known) if isinstance(stmt, For) else None
        if piece is None or not isinstance(most, int) or not isinstance(piece.lanes.extent, int):
            break
        if piece.lanes.extent > most or None in map(first.sum_of, piece.sums):
            break
        if _touches(stmt, buffers, [x.update for x in piece.sums]):
            break
        found.append(piece)
    return found


def _is_apart(stmt: For, update: Accumulate, s: Simplifier) -> bool:
    """Whether nothing else in the nest touches the buffer, and the element exists even if the nest
    never gets to it."""
    apart = not _touches(stmt, {update.buffer}, [update])
    return apart and s.in_bounds(update.buffer, update.indices)


def _touches(stmt: Stmt, buffers: Collection[Buffer], updates: Sequence[Accumulate]) -> bool:
    """Whether a statement touches buffers otherwise than by what these updates write."""
    every = (a for a in accesses((stmt,)) if a.buffer in buffers)
    return not all(a.writes and any(a.stmt is u for u in updates) for a in every)


def _reductions(stmt: For) -> tuple[For | None, list[_Sum]]:
    """The vector loop at the end of a perfect nest, and what it accumulates into elements that are
    the same throughout, or follow unrolled loops of the nest alone."""
    around: list[For] = []
    at: Stmt = stmt
    while isinstance(at, (For, If)):
        if isinstance(at, For):
            around.append(at)
            if at.kind is LoopKind.VECTORIZE:
                found = (_sum_of(u, around) for u in _accumulations(at.body))
                return at, [x for x in found if x is not None]
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


def _sum_of(update: Accumulate, around: Sequence[For]) -> _Sum | None:
    """An accumulation inside of loops, if it means elements as `_Sum` says."""
    if any(any(True for _ in loads(i)) for i in update.indices):
        return None
    used = set().union(*map(variables, update.indices))
    places = tuple(loop for loop in around if loop.var in used)
    known = all(x.kind is LoopKind.UNROLL and isinstance(x.extent, int) for x in places)
    return _Sum(update, places) if known else None


@dataclass(frozen=True)
class _Part:
    """The accumulators of a sum: one for each place and lane."""

    summed: _Sum
    loops: tuple[For, ...]  # over places, then over lanes
    buffer: Buffer

    @staticmethod
    def of(summed: _Sum, lanes: For, names: _Known) -> _Part:
        update, loops = summed.update, (*summed.places, lanes)
        name = names.fresh(f"{update.buffer.name}_lanes")
        sizes = tuple(x.extent for x in loops)
        return _Part(summed, loops, Buffer(name, update.value.dtype, sizes, "register"))

    def clear(self, names: _Known) -> For:
        at = self._variables("first", names)
        return self._nest(at, Store(self.buffer, at, neutral(self.summed.update.op, self.dtype)))

    def combine(self, names: _Known) -> For:
        """The accumulators added to the elements."""
        at = self._variables("last", names)
        indices, value = self.summed.indices(at[:-1]), Load(self.buffer, at)
        return self._nest(at, self.summed.update.with_(indices=indices, value=value))

    def instead(self, own: _Sum, lanes: For) -> Accumulate:
        """What a piece adds up, added to its lanes' accumulators."""
        at = (*(x.var for x in own.places), lanes.var)
        return own.update.with_(buffer=self.buffer, indices=at)

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def _variables(self, suffix: str, names: _Known) -> tuple[Var, ...]:
        return tuple(Var(names.fresh(f"{x.var.name}_{suffix}")) for x in self.loops)

    def _nest(self, at: tuple[Var, ...], inner: Stmt) -> For:
        for loop, var in zip(reversed(self.loops), reversed(at), strict=True):
            inner = loop.with_(var=var, body=(inner,))
        assert isinstance(inner, For)
        return inner


def _split(pieces: Sequence[_Piece], names: _Known) -> Block:
    """The first piece and those behind it, with its lanes."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    redirected: dict[int, Accumulate] = {}
    for summed in pieces[0].sums:
        part = _Part.of(summed, pieces[0].lanes, names)
        before += [Alloc(part.buffer), part.clear(names)]
        after += [part.combine(names)]
        for piece in pieces:
            own = piece.sum_of(summed)
            if own is not None:
                redirected[id(own.update)] = part.instead(own, piece.lanes)

    def redirect(s: Stmt) -> Stmt:
        return redirected.get(id(s)) or map_inner_blocks(s, lambda b: map_block(b, redirect))

    return (*before, *map_block(tuple(p.stmt for p in pieces), redirect), *after)
