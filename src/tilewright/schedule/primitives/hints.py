"""Primitives on how data goes through the caches, and not on what it is: prefetch,
store_nontemporal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.analyze.accesses import accesses
from tilewright.ir.expr import Buffer, Expr, Var, const
from tilewright.ir.loop import (
    Block,
    For,
    If,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    loads,
    map_block,
    map_inner_blocks,
)
from tilewright.ir.substitute import substitute
from tilewright.ir.verify.loop import CACHES
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.stages import box_read
from tilewright.schedule.trace.steps import Loop

LINE = 64  # bytes that memory gives at a time


@primitive
def prefetch(state: State, buffer: Buffer, loop: Loop, at: Loop, level: int = 2) -> Loop:
    """Brings what the next iteration of a loop reads of a parameter into a cache: some lines of it
    in each iteration of a loop inside, in the order of memory.

        for i: for j in 4: S(X[i, 0:128], j)
    ->  for i: for j in 4: { for l in 2: prefetch(X[i + 1, (2*j + l) * 16]); S(X[i, 0:128], j) }

    `level` is the cache, 1 the nearest; it should hold what two iterations read. Always legal, if
    that is a box of constant size, and `at` and the loops between run a constant number of times.
    Returns the loop over lines.
    """
    target, inner = state.for_(loop), state.for_(at)
    state.check_buffer(buffer)
    if buffer not in state.kernel.params:
        refuse(
            f"{buffer.name} is no parameter of the kernel",
            state,
            "what a kernel writes is in the caches already",
        )
    if not 1 <= level <= CACHES:
        refuse(f"there is no cache {level}", state, f"1 … {CACHES}")
    between = _loops_between(state, target, inner)
    lows, shape = _next_box(state, buffer, target)
    per_line = max(1, LINE // buffer.dtype.bytes)
    extents = (*shape[:-1], -(-shape[-1] // per_line)) if shape else (1,)
    count, iterations = math.prod(extents), math.prod(n for _, n in between)
    share = -(-count // max(1, iterations))
    var = Var(state.fresh(f"{buffer.name}_line"))
    line: Expr = const(0)
    for outer, n in (*between, (var, share)):
        line = line * n + outer
    steps = (*(1 for _ in shape[:-1]), per_line)
    places = zip(lows, _digits(line, extents), steps, strict=False)  # one element has no place
    body: Block = (Prefetch(buffer, tuple(low + d * k for low, d, k in places), level),)
    if share * iterations > count:
        body = (If(line < count, body),)
    state.replace(inner, inner.with_(body=(For(var, share, body), *inner.body)))
    state.simplify_all()
    return Loop(var)


def _loops_between(state: State, target: For, inner: For) -> list[tuple[Var, int]]:
    """The loops from inside of one down to another (none if they are the same), and how often they
    run."""
    around = [*state.loops_around(inner), inner]
    lanes = next((s for s in around if s.kind is LoopKind.VECTORIZE), None)
    if lanes is not None:
        refuse(f"the lanes of {lanes.var} fetch together what they read", state)
    if not any(s is target for s in around):
        refuse(f"{inner.var} does not stand in {target.var}", state)
    found = []
    for s in around[around.index(target) + 1 :]:
        if not isinstance(s.extent, int):
            refuse(f"{s.var} runs {s.extent} times, which is not a constant", state)
        found.append((s.var, s.extent))
    return found


def _next_box(state: State, buffer: Buffer, target: For) -> tuple[list[Expr], tuple[int, ...]]:
    """The box that the next iteration of a loop reads of a buffer: lowest corner and shape."""
    if not any(a.buffer == buffer and not a.writes for a in accesses(target.body)):
        refuse(f"{target.var} does not read {buffer.name}", state)
    lows, box = box_read(state, buffer, target)
    shape = tuple(n for n in box if isinstance(n, int))
    if len(shape) != len(box):
        refuse(f"how much {target.var} reads of {buffer.name} is not constant", state)
    if any(True for low in lows for _ in loads(low)):
        refuse(f"where {target.var} reads {buffer.name} is read from memory", state)
    following: dict[Expr, Expr] = {target.var: target.var + 1}
    return [substitute(low, following) for low in lows], shape


def _digits(number: Expr, extents: Sequence[int]) -> list[Expr]:
    """A number's place in a box, row by row."""
    found: list[Expr] = []
    for n in reversed(extents[1:]):
        found.append(number % n)
        number = number // n
    return [number, *reversed(found)]


@primitive
def store_nontemporal(state: State, buffer: Buffer) -> None:
    """Lets whole vectors of an output go past the caches, to memory.

        for i: Y[i] = f(i)   ->   for i: nontemporal(Y[i], f(i))

    For what nobody reads soon: lines are not read before they are written, and drive no others out.
    Always legal; a store that is no vector at a multiple of its length is one like any other.
    """
    state.check_buffer(buffer)
    if buffer not in state.kernel.outputs:
        refuse(f"{buffer.name} is no output of the kernel", state)
    found = 0

    def visit(stmt: Stmt) -> Stmt:
        nonlocal found
        if isinstance(stmt, Store) and stmt.buffer == buffer:
            found += 1
            return stmt.with_(nontemporal=True)
        return map_inner_blocks(stmt, lambda b: map_block(b, visit))

    body = map_block(state.kernel.body, visit)
    if not found:
        refuse(f"{buffer.name} is not written by stores", state)
    state.set_body(body)
