"""Reductions along vectors: an accumulator for each lane, combined once at the end.

    for k:                                      for lane: part[lane] = neutral
        for lane (vectorize):             ->    for k: for lane: part[lane] += f(k, lane)
            acc += f(k, lane)                   for lane: acc += part[lane]

Combining lanes costs several instructions; here it is done once instead of in every iteration.
Allowed because an accumulation may be reordered.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    known = _Known(kernel)
    body = map_block(kernel.body, lambda s: _visit(s, known))
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


def _visit(stmt: Stmt, known: _Known) -> Stmt | Block:
    if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL:
        lanes, updates = _reductions(stmt)
        updates = [update for update in updates if _is_apart(stmt, update, known.simplifier)]
        if lanes is not None and updates:
            return _split(stmt, lanes, updates, known)
    return map_inner_blocks(stmt, lambda b: map_block(b, lambda s: _visit(s, known)))


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


def _split(stmt: For, lanes: For, updates: list[Accumulate], names: _Known) -> Block:
    assert isinstance(lanes.extent, int)
    before: list[Stmt] = []
    after: list[Stmt] = []
    redirected: dict[int, Accumulate] = {}
    for update in updates:
        name, dtype = names.fresh(f"{update.buffer.name}_lanes"), update.value.dtype
        part = Buffer(name, dtype, (lanes.extent,), "register")
        first, last = (Var(names.fresh(f"{lanes.var.name}_{s}")) for s in ("first", "last"))
        clear = Store(part, (first,), neutral(update.op, dtype))
        combine = update.with_(value=Load(part, (last,)))
        before += [Alloc(part), lanes.with_(var=first, body=(clear,))]
        after += [lanes.with_(var=last, body=(combine,))]
        redirected[id(update)] = update.with_(buffer=part, indices=(lanes.var,))

    def redirect(s: Stmt) -> Stmt:
        return redirected.get(id(s)) or map_inner_blocks(s, lambda b: map_block(b, redirect))

    return (*before, *map_block((stmt,), redirect), *after)
