"""Primitives on loops: split, fuse, reorder, unroll, vectorize, parallel."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeGuard

from tilewright.analyze.accesses import accesses
from tilewright.analyze.dependence import Path, conflict, meets, violation
from tilewright.analyze.rewrite import rewrite_accesses, substitute_block
from tilewright.ir.expr import Expr, Var, as_dim, as_expr, constant_value, minimum
from tilewright.ir.loop import (
    Alloc,
    Block,
    Bound,
    For,
    If,
    LoopKind,
    buffers_written,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.annotate import check_may_cut
from tilewright.schedule.trace.steps import Loop


class Tail(enum.Enum):
    """What `split` does with the iterations that do not fill the last tile."""

    GUARD = "guard"  # one loop nest, with a condition
    CUT = "cut"  # full tiles first, then a loop over the rest
    SHIFT = "shift"  # the last tile starts early enough to be full, and does some again

    def __str__(self) -> str:
        return self.value


@primitive
def split(state: State, loop: Loop, factor: int, tail: Tail = Tail.GUARD) -> tuple[Loop, Loop]:
    """Cuts a loop into tiles of `factor` iterations.

        for i in n: S(i)
    ->  for i_o in ceil(n / factor): for i_i in factor: if i_o*factor + i_i < n: S(…)

    The condition is left out where it always holds. With tail=cut the last, partial tile becomes
    a loop of its own behind (`i_t`), and the tiles need no condition. With tail=shift the last
    tile begins at n - factor: i = min(i_o*factor, n - factor) + i_i. Legal for all loops but vector
    loops; cut needs a full tile, shift also a body that may be done twice (plain stores, of what
    was not read before), and not by two workers.
    """
    target = state.for_(loop)
    check_may_cut(state, target)
    if target.kind is LoopKind.VECTORIZE:
        refuse(f"{loop} is a vector loop", state, "split it before")
    if factor < 1:
        refuse(f"the factor must be at least 1, not {factor}", state)
    outer, inner = Var(state.fresh(f"{loop}_o")), Var(state.fresh(f"{loop}_i"))
    n = as_expr(target.extent)
    whole = constant_value(as_dim(state.simplifier(n % factor))) == 0
    if tail is Tail.CUT and not whole:
        return _split_cut(state, target, factor, outer, inner)
    value = as_expr(outer) * factor + inner
    if tail is Tail.SHIFT and not whole:
        if not state.simplifier.proves(n >= factor):
            refuse(f"{loop} may run fewer than {factor} times", state)
        _check_repeatable(state, target)
        value = minimum(as_expr(outer) * factor, n - factor) + inner
        whole = True
    body = substitute_block(target.body, {loop.var: value})
    if not whole:
        body = (If(value < n, body),)
    count = as_dim(state.simplifier((n + (factor - 1)) // factor))
    tile = For(inner, factor, body)
    state.replace(target, For(outer, count, (tile,), target.kind))
    state.simplify_all()
    return Loop(outer), Loop(inner)


def _check_repeatable(state: State, target: For) -> None:
    """An iteration done twice reads the same again: nothing that is read is written afterwards."""
    if target.kind not in (LoopKind.SERIAL, LoopKind.UNROLL):
        refuse(f"workers would do iterations of {target.var} at the same time", state)
    changed = buffers_written(target.body)
    local = {s.buffer for s in walk_statements(target.body) if isinstance(s, Alloc)}
    found = [a for a in accesses((target,)) if a.buffer in changed - local]
    for a in found:
        later = (b for b in found if b.writes and b.buffer == a.buffer and not a.writes)
        if a.op is not None or any(meets(a, b, state.simplifier) for b in later):
            refuse(f"{target.var.name} cannot do an iteration twice: {a}", state)


def _split_cut(state: State, target: For, factor: int, outer: Var, inner: Var) -> tuple[Loop, Loop]:
    n = as_expr(target.extent)
    rest_var = Var(state.fresh(f"{target.var.name}_t"))
    tiles = as_dim(state.simplifier(n // factor))
    if tiles == 0:
        refuse(f"{target.var} runs {n} times, which is not one tile of {factor}", state)
    full = substitute_block(target.body, {target.var: as_expr(outer) * factor + inner})
    rest = substitute_block(
        copy_block(target.body, state.names()), {target.var: as_expr(tiles) * factor + rest_var}
    )
    cut = For(rest_var, as_dim(state.simplifier(n % factor)), rest, target.kind)
    state.replace(target, (For(outer, tiles, (For(inner, factor, full),), target.kind), cut))
    state.simplify_all()
    return Loop(outer), Loop(inner)


def copy_block(block: Block, taken: set[str]) -> Block:
    """The block with names for its loops and allocations that are not in `taken` (and then are)."""

    def fresh(name: str) -> str:
        unique, n = name, 1
        while unique in taken:
            unique, n = f"{name}_{n}", n + 1
        taken.add(unique)
        return unique

    renamed: dict[Expr, Expr] = {}
    for stmt in walk_statements(block):
        if isinstance(stmt, For):
            renamed[stmt.var] = Var(fresh(stmt.var.name))
    for stmt in walk_statements(block):
        if isinstance(stmt, Alloc):
            new = stmt.buffer.with_(name=fresh(stmt.buffer.name))
            block = rewrite_accesses(block, stmt.buffer, new, lambda indices: indices)
    return _rename_loops(substitute_block(block, renamed), renamed)


def _rename_loops(block: Block, renamed: dict[Expr, Expr]) -> Block:
    out = []
    for stmt in block:
        if isinstance(stmt, For):
            body = _rename_loops(stmt.body, renamed)
            stmt = stmt.with_(var=renamed[stmt.var], body=body)
        elif isinstance(stmt, If):
            stmt = stmt.with_(
                body=_rename_loops(stmt.body, renamed), orelse=_rename_loops(stmt.orelse, renamed)
            )
        out.append(stmt)
    return tuple(out)


@primitive
def fuse(state: State, outer: Loop, inner: Loop) -> Loop:
    """Makes one loop of two that are perfectly nested.

        for i in n: for j in m: S(i, j)   ->   for i_j in n*m: S(i_j // m, i_j % m)

    Legal for loops of one kind, plain or unrolled.
    """
    first, second = state.for_(outer), state.for_(inner)
    check_may_cut(state, first, second)
    if first.kind is not LoopKind.UNROLL or second.kind is not LoopKind.UNROLL:
        first, second = plain_loop(state, outer), plain_loop(state, inner)
    if len(first.body) != 1 or first.body[0] is not second:
        refuse(f"{inner} is not the only statement of {outer}", state, "fuse needs a perfect nest")
    if outer.var in variables(second.extent):
        refuse(f"the extent of {inner} depends on {outer}", state)
    var = Var(state.fresh(f"{outer}_{inner}"))
    m = as_expr(second.extent)
    extent = as_dim(state.simplifier(as_expr(first.extent) * m))
    kind = first.kind
    if second.extent == 1:
        values: dict[Expr, Expr] = {outer.var: var, inner.var: as_expr(0)}
    elif first.extent == 1:
        values = {outer.var: as_expr(0), inner.var: var}
    else:
        values = {outer.var: as_expr(var) // m, inner.var: as_expr(var) % m}
    state.replace(first, For(var, extent, substitute_block(second.body, values), kind))
    state.simplify_all()
    return Loop(var)


@primitive
def reorder(state: State, *loops: Loop) -> None:
    """Puts perfectly nested loops into the order given, outermost first.

        for i: for j: S(i, j)   ->   for j: for i: S(i, j)

    Legal when no two accesses to one element, one of them a write, change their order;
    accumulations with one operator may.
    """
    wanted = [state.for_(loop) for loop in loops]
    if not wanted:
        return
    chain = _perfect_chain(state, wanted)
    order = iter(wanted)
    chosen = {s.var for s in wanted}
    new_order = [next(order) if s.var in chosen else s for s in chain]
    if [s.var for s in new_order] == [s.var for s in chain]:
        return
    for stmt in chain:
        if variables(stmt.extent) & {s.var for s in chain}:
            refuse(f"the extent of {stmt.var} depends on another of the loops", state)
    place = {stmt.var: i for i, stmt in enumerate(new_order)}
    crossing = _crossing(chain, place)
    for stmt in crossing:
        if isinstance(stmt.kind, Bound) or stmt.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZE):
            what = f"{stmt.var} is a loop of kind {stmt.kind.value} already"
            refuse(what, state, "reorder first")

    def permuted(path: Path) -> Path:
        found = (x for x in path if _in(x, place))
        loops = iter(sorted(found, key=lambda x: place[x.var]))
        return tuple(next(loops) if _in(x, place) else x for x in path)

    moved = [stmt.var for stmt in crossing]
    pair = violation((chain[0],), moved, permuted, state.simplifier)
    if pair is not None:
        refuse(f"the order matters: {pair}", state)
    body = chain[-1].body
    for stmt in reversed(new_order):
        body = (stmt.with_(body=body),)
    state.replace(chain[0], body)


def _perfect_chain(state: State, loops: list[For]) -> list[For]:
    """The nest from the outermost to the innermost of `loops`, each the only statement of the
    one before."""
    if len({s.var for s in loops}) != len(loops):
        refuse("a loop is named twice", state)
    outermost = min(loops, key=lambda s: len(state.loops_around(s)))
    missing = {s.var for s in loops}
    chain: list[For] = []
    at = outermost
    while True:
        chain.append(at)
        missing.discard(at.var)
        if not missing:
            return chain
        if len(at.body) != 1 or not isinstance(at.body[0], For):
            names = ", ".join(sorted(v.name for v in missing))
            refuse(f"{names} is not perfectly nested in {at.var}", state)
        at = at.body[0]


def _in(x: object, places: Mapping[Var, int]) -> TypeGuard[For]:
    return isinstance(x, For) and x.var in places


def _crossing(old: list[For], place: Mapping[Var, int]) -> list[For]:
    """The loops that change places with another."""
    return [
        a
        for i, a in enumerate(old)
        if any((i < j) != (place[a.var] < place[b.var]) for j, b in enumerate(old) if j != i)
    ]


def plain_loop(state: State, loop: Loop) -> For:
    """The loop, which must not have a kind yet."""
    target = state.for_(loop)
    if target.kind is not LoopKind.SERIAL:
        refuse(f"{loop} is a loop of kind {target.kind.value} already", state)
    return target


@primitive
def unroll(state: State, loop: Loop) -> None:
    """Marks a loop of constant extent to become copies of its body. Always legal."""
    target = plain_loop(state, loop)
    if not isinstance(target.extent, int):
        refuse(f"{loop} runs {target.extent} times, which is not a constant", state)
    state.replace(target, target.with_(kind=LoopKind.UNROLL))


@primitive
def vectorize(state: State, loop: Loop) -> None:
    """Marks a loop of constant extent to run as lanes, in step.

    Legal when its iterations are independent; an accumulation into one element for all lanes is
    combined across them.
    """
    target = plain_loop(state, loop)
    if not isinstance(target.extent, int):
        refuse(f"{loop} runs {target.extent} times, which is not a constant", state)
    if any(isinstance(s, Alloc) for s in walk_statements(target.body)):
        refuse(f"{loop} allocates in its body", state, "allocate outside of the loop")
    inner = [s for s in walk_statements(target.body) if isinstance(s, For)]
    if any(s.kind not in (LoopKind.SERIAL, LoopKind.UNROLL) for s in inner):
        refuse(f"{loop} contains a vector or parallel loop", state)
    if any(s.kind is LoopKind.VECTORIZE for s in state.loops_around(target)):
        refuse(f"{loop} stands in a vector loop", state)

    for s in inner:
        if loop.var in variables(as_expr(s.extent)):
            refuse(f"how often {s.var} runs differs from lane to lane of {loop}", state)

    def in_step(path: Path) -> Path:
        """All lanes do one read or write, then all the next."""
        return (*(x for x in path if not _in(x, {loop.var: 0})), target)

    pair = violation((target,), (loop.var,), in_step, state.simplifier)
    if pair is not None:
        refuse(f"the lanes of {loop} are not independent: {pair}", state)
    state.replace(target, target.with_(kind=LoopKind.VECTORIZE))


@primitive
def parallel(state: State, loop: Loop) -> None:
    """Marks a loop to be shared among workers.

    Legal when its iterations touch different elements (buffers allocated in its body are each
    worker's own).
    """
    target = plain_loop(state, loop)
    around = state.loops_around(target)
    inner = [s for s in walk_statements(target.body) if isinstance(s, For)]
    if any(s.kind is LoopKind.PARALLEL for s in (*around, *inner)):
        refuse(f"{loop} is inside or around another parallel loop", state)
    if any(s.axis is not None for s in around):
        refuse(f"{loop} stands in a bound loop", state, "bind it to an axis")
    if any(s.kind is LoopKind.VECTORIZE for s in around):
        refuse(f"{loop} stands in a vector loop", state)
    pair = conflict(target.body, target.var, state.simplifier, concurrent=True)
    if pair is not None:
        refuse(f"the iterations of {loop} are not independent: {pair}", state)
    state.replace(target, target.with_(kind=LoopKind.PARALLEL))
