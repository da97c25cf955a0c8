"""Primitives that add buffers: cache_read, rfactor; and peel, which they are used with."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.analyze.accesses import accesses
from tilewright.analyze.rewrite import replace_in, rewrite_accesses, substitute_block
from tilewright.ir.expr import (
    Buffer,
    Dim,
    Expr,
    Load,
    Var,
    all_of,
    as_dim,
    as_expr,
    constant_value,
)
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    Stmt,
    Store,
    buffers_written,
    loads,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.ir.tensor import neutral
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.annotate import check_may_cut
from tilewright.schedule.primitives.loops import copy_block
from tilewright.schedule.primitives.stages import box_read, check_no_lanes, definition, nest_loops
from tilewright.schedule.trace.steps import Loop


@primitive
def cache_read(
    state: State,
    buffer: Buffer,
    loop: Loop,
    memory: str = "dram",
    strided: Sequence[int] = (),
    slack: int = 0,
) -> Buffer:
    """Copies what an iteration of a loop reads of a buffer into a new one in `memory`, first.

        for i: … X[8*i + j] …   ->   for i: X_local = alloc([8]); for d: X_local[d] = X[8*i + d]
                                            … X_local[j] …

    The new buffer holds the box of elements that one iteration reads; along the `strided` axes only
    those that it reads, if they are equally far apart; an axis as a whole, if every iteration reads
    it from its beginning and that adds less than `slack` bytes to a run of neighbours. Legal when
    the loop does not write the buffer.
    """
    target = state.for_(loop)
    state.check_buffer(buffer)
    if any(not 0 <= d < len(buffer.shape) for d in strided):
        refuse(f"{buffer.name} has {len(buffer.shape)} axes, counted from 0: not {strided}", state)
    check_no_lanes(state, target)
    if buffer in buffers_written(target.body):
        refuse(f"{loop} writes {buffer.name}", state)
    if not any(a.buffer == buffer for a in accesses(target.body)):
        refuse(f"{loop} does not read {buffer.name}", state)
    lows, shape = box_read(state, buffer, target)
    shape = _with_slack(buffer, lows, shape, slack)
    steps = [1] * len(lows)
    for d in strided:
        steps[d] = _step(state, buffer, target, d, lows[d])
    extents = tuple(
        n if k == 1 or not isinstance(n, int) else -(-n // k)
        for n, k in zip(shape, steps, strict=True)
    )
    local = Buffer(state.fresh(f"{buffer.name}_local"), buffer.dtype, extents, memory)
    copy = _copy_box(state, buffer, local, lows, steps)
    body = rewrite_accesses(
        target.body,
        buffer,
        local,
        lambda at: tuple((i - x) // k for i, x, k in zip(at, lows, steps, strict=True)),
    )
    state.replace(target, target.with_(body=(Alloc(local), *copy, *body)))
    state.simplify_all()
    return local


def _with_slack(
    buffer: Buffer, lows: Sequence[Expr], shape: Sequence[Dim], slack: int
) -> tuple[Dim, ...]:
    """The box, with whole axes where little is left out."""
    found = list(shape)
    for d, (low, size) in enumerate(zip(lows, buffer.shape, strict=True)):
        known = [n for n in (found[d], *buffer.shape[d:]) if isinstance(n, int)]
        if len(known) < 1 + len(buffer.shape) - d or constant_value(low) != 0:
            continue  # symbolic, or elsewhere in other iterations
        read, whole, *inner = known
        if 0 < (whole - read) * math.prod(inner) * buffer.dtype.bytes < slack:
            found[d] = size
    return tuple(found)


def _step(state: State, buffer: Buffer, target: For, d: int, low: Expr) -> int:
    """How far apart the places are, along an axis, that one iteration reads; 1 if that differs."""
    found = 0
    for access in accesses(target.body):
        if access.buffer == buffer:
            found = math.gcd(found, *state.simplifier.linear(access.indices[d] - low).values())
    return found or 1


def _copy_box(
    state: State, buffer: Buffer, local: Buffer, lows: list[Expr], steps: Sequence[int]
) -> Block:
    """local[d…] = buffer[low + step * d…], left undefined where that is outside of the buffer."""
    taken = state.names()
    axes = []
    for d in range(len(lows)):
        name, n = f"{local.name}_{d}", 1
        while name in taken:
            name, n = f"{local.name}_{d}_{n}", n + 1
        taken.add(name)
        axes.append(Var(name))
    places = tuple(low + a * k for low, a, k in zip(lows, axes, steps, strict=True))
    body: Block = (Store(local, tuple(axes), Load(buffer, places)),)
    extents = dict(zip(axes, local.shape, strict=True))
    known = state.simplifier.with_loops(extents)
    inside = [
        c for p, n in zip(places, buffer.shape, strict=True) for c in (p >= 0, p < as_expr(n))
    ]
    guards = [c for c in inside if not known.proves(c)]
    if guards:
        body = (If(all_of(*guards), body),)
    for a, extent in zip(reversed(axes), reversed(local.shape), strict=True):
        body = (For(a, extent, body),)
    return body


@primitive
def rfactor(state: State, buffer: Buffer, loop: Loop) -> Buffer:
    """Splits a reduction into partial ones, one for each iteration of one of its loops.

        C[i] = 0; for k: for r: C[i] += f(i, k, r)
    ->  for k: P[k, i] = 0; for r: P[k, i] += f(i, k, r)
        C[i] = 0; for k: C[i] += P[k, i]

    Legal when the nest initialises the element and then does nothing but accumulate into it, in a
    perfect nest of which the loop is one.
    """
    where = definition(state, buffer)
    axes, store, reduce, update = _reduction(state, where.nest, buffer)
    target = next((x for x in reduce if x.var == loop.var), None)
    if target is None or variables(target.extent):
        refuse(f"{loop} is no loop of a reduction into {buffer.name}", state)
    partial = Buffer(
        state.fresh(f"{buffer.name}_partial"), buffer.dtype, (target.extent, *buffer.shape)
    )
    place = (loop.var, *update.indices)
    start = Store(partial, place, neutral(update.op, update.value.dtype))
    inner = replace_in(reduce[-1].body, update, update.with_(buffer=partial, indices=place))
    for x in reversed([x for x in reduce if x is not target]):
        inner = (For(x.var, x.extent, inner),)
    first: Block = (For(target.var, target.extent, (start, *inner)),)
    combined = Accumulate(buffer, update.indices, update.op, Load(partial, place))
    last: Block = (store, target.with_(body=(combined,)))
    for axis in reversed(axes):
        first, last = (axis.with_(body=first),), (axis.with_(body=last),)
    state.replace(where.nest, (Alloc(partial), *first, *copy_block(last, state.names())))
    state.simplify_all()
    return partial


def _reduction(
    state: State, nest: Stmt, buffer: Buffer
) -> tuple[list[For], Store, list[For], Accumulate]:
    """(axes, initialisation, reduction's loops, accumulation) of a nest that is just these."""
    axes, body = nest_loops(nest)
    store, loop = body if len(body) == 2 else (None, None)
    reduce, rest = nest_loops(loop) if isinstance(loop, For) else ([], ())
    writes = [s for s in walk_statements(rest) if not isinstance(s, (For, If))]
    update = writes[0] if len(writes) == 1 else None
    if (
        not isinstance(store, Store)
        or not isinstance(update, Accumulate)
        or (store.buffer, store.indices) != (update.buffer, update.indices)
        or any(load.buffer == buffer for load in loads(nest))
    ):
        refuse(f"{buffer.name} is no plain reduction", state)
    return axes, store, reduce, update


@primitive
def peel(state: State, loop: Loop, count: int) -> Loop:
    """Does the first iterations of a loop (the last ones, for a negative count) on their own.

        for i in n: S(i)   ->   for i_p in count: S(i_p);  for i in n - count: S(i + count)

    Always legal, for a loop that runs at least |count| times. Returns the loop over the peeled
    iterations; `loop` stays the one over the others.
    """
    target = state.for_(loop)
    check_may_cut(state, target)
    n = as_expr(target.extent)
    size = abs(count)
    if count == 0 or not state.simplifier.proves(n >= size):
        refuse(f"{loop} cannot be cut after {count} of its {target.extent} iterations", state)
    var = Var(state.fresh(f"{loop}_p"))
    rest = as_dim(state.simplifier(n - size))
    copied = copy_block(target.body, state.names())
    offset = as_expr(0) if count > 0 else as_expr(rest)
    part = For(var, size, substitute_block(copied, {loop.var: offset + var}), target.kind)
    moved = substitute_block(target.body, {loop.var: loop.var + size}) if count > 0 else target.body
    main = target.with_(extent=rest, body=moved)
    state.replace(target, (part, main) if count > 0 else (main, part))
    state.simplify_all()
    return Loop(var)
