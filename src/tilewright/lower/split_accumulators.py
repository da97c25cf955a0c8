"""Reductions along vectors: an accumulator for each lane, combined once at the end.

    for k:                                      for lane: part[lane] = neutral
        for lane (vectorize):             ->    for k: for lane: part[lane] += f(k, lane)
            acc += f(k, lane)                   for lane: acc += part[lane]

Combining lanes costs several instructions; here it is done once instead of in every iteration.
Allowed because an accumulation may be reordered.
"""

from __future__ import annotations

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
    """Gives every reduction over a vector loop inside serial loops an accumulator per lane."""
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
        found = _reduction(stmt)
        if found is not None and _is_there(stmt, found[1], known.simplifier):
            return _split(stmt, *found, known)
    return map_inner_blocks(stmt, lambda b: map_block(b, lambda s: _visit(s, known)))


def _is_there(stmt: For, update: Accumulate, s: Simplifier) -> bool:
    """Whether the element exists even if the nest never gets to it, and nothing in it is read."""
    read = any(load.buffer == update.buffer for load in loads(stmt))
    return not read and s.in_bounds(update.buffer, update.indices)


def _reduction(stmt: For) -> tuple[For, Accumulate] | None:
    """The vector loop and the accumulation at the end of a perfect nest, if the element that is
    accumulated is the same in all of the nest."""
    inside = {stmt.var}
    at: Stmt = stmt
    while isinstance(at, (For, If)):
        if len(at.body) != 1 or (isinstance(at, If) and at.orelse):
            return None
        if isinstance(at, For):
            inside.add(at.var)
            if at.kind is LoopKind.VECTORIZE:
                return _lane_accumulation(at, inside)
        at = at.body[0]
    return None


def _lane_accumulation(lanes: For, inside: set[Var]) -> tuple[For, Accumulate] | None:
    at: Stmt = lanes.body[0]
    while isinstance(at, If) and len(at.body) == 1 and not at.orelse:
        at = at.body[0]
    if not isinstance(at, Accumulate) or not isinstance(lanes.extent, int):
        return None
    used = set().union(*(variables(i) for i in at.indices)) if at.indices else set()
    return None if used & inside else (lanes, at)


def _split(stmt: For, lanes: For, update: Accumulate, names: _Known) -> Block:
    assert isinstance(lanes.extent, int)
    part = Buffer(
        names.fresh(f"{update.buffer.name}_lanes"), update.value.dtype, (lanes.extent,), "register"
    )
    first, last = (Var(names.fresh(f"{lanes.var.name}_{s}")) for s in ("first", "last"))
    clear = Store(part, (first,), neutral(update.op, update.value.dtype))
    combine = update.with_(value=Load(part, (last,)))

    def redirect(s: Stmt) -> Stmt:
        if s is update:
            return update.with_(buffer=part, indices=(lanes.var,))
        return map_inner_blocks(s, lambda b: map_block(b, redirect))

    nest = map_block((stmt,), redirect)
    return (
        Alloc(part),
        lanes.with_(var=first, body=(clear,)),
        *nest,
        lanes.with_(var=last, body=(combine,)),
    )
