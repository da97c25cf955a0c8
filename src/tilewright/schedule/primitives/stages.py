"""Primitives on whole stages: inline, compute_at, cache_write, split_init."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.analyze.accesses import accesses
from tilewright.analyze.dependence import Path, conflict, meets, violation
from tilewright.analyze.linear import Linear, add, to_expr
from tilewright.analyze.rewrite import replace_in, rewrite_accesses, substitute_block, uses
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.dims import limits, same_dim
from tilewright.ir.expr import Buffer, Dim, Expr, Load, Var, all_of, as_expr, const, select
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    If,
    LoopKind,
    Stmt,
    Store,
    Write,
    buffers_written,
    loads,
    map_block,
    map_exprs,
    map_inner_blocks,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.trace.steps import Loop


@dataclass(frozen=True)
class Definition:
    """Where a buffer is computed: the block that holds it, and the one statement that writes it
    (a loop nest, usually)."""

    block: Block
    nest: Stmt

    @property
    def position(self) -> int:
        return next(i for i, s in enumerate(self.block) if s is self.nest)

    @property
    def after(self) -> Block:
        return self.block[self.position + 1 :]


def blocks(block: Block) -> list[Block]:
    """This block and all inside it."""
    found = [block]
    for stmt in block:
        for inner in sub_blocks(stmt):
            found += blocks(inner)
    return found


def definition(state: State, buffer: Buffer) -> Definition:
    """The statement that computes a buffer, in the block where it is allocated (the kernel's
    body for a parameter)."""
    state.check_buffer(buffer)
    home = next(
        (
            b
            for b in blocks(state.kernel.body)
            if any(isinstance(s, Alloc) and s.buffer == buffer for s in b)
        ),
        state.kernel.body,
    )
    writers = [s for s in home if buffer in buffers_written((s,))]
    if len(writers) != 1:
        refuse(f"{buffer.name} is written by {len(writers)} statements, not by one", state)
    return Definition(home, writers[0])


def _allocated(state: State, buffer: Buffer) -> None:
    state.check_buffer(buffer)
    if buffer not in set(state.allocations()):
        refuse(f"{buffer.name} is a parameter of the kernel", state, "use cache_write first")


def nest_loops(nest: Stmt) -> tuple[list[For], Block]:
    """The perfectly nested loops from `nest` inwards, and the innermost body."""
    loops: list[For] = []
    block: Block = (nest,)
    while len(block) == 1 and isinstance(block[0], For):
        loops.append(block[0])
        block = block[0].body
    return loops, block


# ---------------------------------------------------------------- inline


@primitive
def inline(state: State, buffer: Buffer) -> None:
    """Replaces every read of an intermediate by the expression that defines it.

        for i: P[i] = f(i)
        for j: Q[j] = g(P[h(j)])     ->   for j: Q[j] = g(f(h(j)))

    Legal when one plain store defines every element (no accumulation), and nothing it reads is
    written in between.
    """
    _allocated(state, buffer)
    where = definition(state, buffer)
    loops, body = nest_loops(where.nest)
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, Store) or store.buffer != buffer:
        refuse(f"{buffer.name} is not defined by a single store", state)
    axes = _axis_vars(state, store, loops)
    if uses(store.value, buffer):
        refuse(f"{buffer.name} is defined by elements of its own: {store}", state)
    for stmt in walk_statements(where.after):
        if isinstance(stmt, Call) and any(r.buffer == buffer for r in stmt.regions):
            refuse(f"an instruction reads {buffer.name}: {stmt}", state)

    def inlined(block: Block, value: Expr) -> Block:
        """The block with `value` for every read."""

        @functools.cache  # reads of one element share what they become
        def element(indices: tuple[Expr, ...]) -> Expr:
            return substitute(value, dict(zip(axes, indices, strict=True)))

        def expand(e: Expr) -> Expr:
            return rewrite(
                e, lambda x: element(x.indices) if isinstance(x, Load) and x.buffer == buffer else x
            )

        def without(stmt: Stmt) -> Stmt | None:
            if stmt is where.nest or (isinstance(stmt, Alloc) and stmt.buffer == buffer):
                return None
            return map_inner_blocks(stmt, lambda b: map_block(b, without))

        return map_block(map_block(block, without), lambda s: map_exprs(s, expand))

    _check_kept(state, where, lambda moved: inlined(where.after, _renamed(store.value, moved)))
    state.set_body(inlined(state.kernel.body, store.value))
    state.simplify_all()


def _renamed(e: Expr, buffers: Mapping[Buffer, Buffer]) -> Expr:
    """Returns the expression with loads redirected by `buffers`."""

    def visit(x: Expr) -> Expr:
        return (
            x.with_(buffer=buffers[x.buffer]) if isinstance(x, Load) and x.buffer in buffers else x
        )

    return rewrite(e, visit)


def _check_kept(
    state: State, where: Definition, after: Callable[[Mapping[Buffer, Buffer]], Block]
) -> None:
    """Refuses if a buffer that the definition reads is written between the definition and its new
    position, or at the same time. `after(moved)` returns the rewritten rest of the block, with the
    definition's reads renamed by `moved`."""
    read = {a.buffer for a in accesses((where.nest,)) if not a.writes}
    changed = read & buffers_written(where.after)
    moved = {b: b.with_(name=state.fresh(f"{b.name}_before")) for b in changed}
    found = list(accesses(after(moved))) if moved else []
    for old, new in moved.items():
        reads = [a for a in found if a.buffer == new]
        for write in (a for a in found if a.buffer == old and a.writes):
            for access in reads:
                loops = (*write.loops, *access.loops)
                concurrent = any(s.kind not in (LoopKind.SERIAL, LoopKind.UNROLL) for s in loops)
                if concurrent or meets(write, access, state.simplifier):
                    refuse(f"{old.name} is written after it is read", state)


def _axis_vars(state: State, store: Store | Accumulate, loops: list[For]) -> tuple[Var, ...]:
    """The loop variables that are the store's subscripts, one each, all different."""
    simplifier = state.simplifier
    extents = {s.var: s.extent for s in loops}
    axes: list[Var] = []
    for i, n in zip(store.indices, store.buffer.shape, strict=True):
        # The simplifier would replace the variable of a one-iteration loop by 0.
        e = i if isinstance(i, Var) else simplifier(i)
        if not isinstance(e, Var) and n == 1:
            # an axis of one element may have no loop any more
            e = Var(state.fresh("unit"))
        elif not isinstance(e, Var) or e not in extents or e in axes or not same_dim(extents[e], n):
            refuse(f"{store.buffer.name} is not defined one loop for each axis: {store}", state)
        axes.append(e)
    return tuple(axes)


# ---------------------------------------------------------------- compute_at


@primitive
def compute_at(state: State, buffer: Buffer, loop: Loop, clip: bool = False) -> Buffer:
    """Computes an intermediate piece by piece, right where a loop's body needs it.

        for i: P[i] = …                      for j:
        for j: Q[j] = … P[j] … P[j+1]   ->       P' = alloc([2]); for i in 2: P'[i] = …(j + i)
                                                 Q[j] = … P'[0] … P'[1]

    The new buffer holds the box of elements that one iteration reads. Elements may be computed
    more than once. Where the box reaches beyond the old buffer, something is computed that nobody
    reads; with `clip` a condition leaves that out. Legal when every read stands in the loop, behind
    the definition, which computes nothing else, and nothing the definition reads is written in
    between.
    """
    _allocated(state, buffer)
    target = state.for_(loop)
    where = definition(state, buffer)
    check_no_lanes(state, target)
    check_written_alone(state, where, buffer)
    _check_no_carried_state(state, where, buffer)
    inside = {id(s) for s in walk_statements((target,))}
    if not any(target is s for b in where.after for s in walk_statements((b,))):
        refuse(f"{loop} does not stand behind the definition of {buffer.name}", state)
    for access in accesses(state.kernel.body):
        if access.buffer == buffer and not access.writes and id(access.stmt) not in inside:
            refuse(f"{buffer.name} is also read outside of {loop}: {access.stmt}", state)
    for clamp in (False, True):  # clamp the box to the buffer if it would need a guard
        lows, shape = _region(state, buffer, target, clamp=clamp)
        local = buffer.with_(shape=shape)
        nest, guarded = _shrunk(state, where, buffer, local, lows, clip=clip)
        if not guarded:
            break
    body = rewrite_accesses(
        target.body,
        buffer,
        local,
        lambda at: tuple(i - low for i, low in zip(at, lows, strict=True)),
    )

    def moved_into(block: Block, nest: Block) -> Block:
        new_loop = target.with_(body=(Alloc(local), *nest, *body))

        def visit(stmt: Stmt) -> Stmt | None:
            if stmt is where.nest or (isinstance(stmt, Alloc) and stmt.buffer == buffer):
                return None
            if stmt is target:
                return new_loop
            return map_inner_blocks(stmt, lambda b: map_block(b, visit))

        return map_block(block, visit)

    def after(moved: Mapping[Buffer, Buffer]) -> Block:
        other = map_block(nest, lambda s: map_exprs(s, lambda e: _renamed(e, moved)))
        return moved_into(where.after, other)

    _check_kept(state, where, after)
    state.set_body(moved_into(state.kernel.body, nest))
    state.simplify_all()
    return local


def box_read(state: State, buffer: Buffer, target: For) -> tuple[list[Expr], tuple[Dim, ...]]:
    """The box that one iteration of a loop reads of a buffer: lowest corner and shape."""
    return _region(state, buffer, target, clamp=True)


def check_no_lanes(state: State, target: For) -> None:
    """Refuses to allocate in a loop whose iterations are lanes, or inside of one."""
    for loop in (*state.loops_around(target), target):
        if loop.kind is LoopKind.VECTORIZE:
            refuse(f"the lanes of {loop.var} cannot have memory of their own", state)


def check_written_alone(state: State, where: Definition, buffer: Buffer) -> None:
    """The definition writes the buffer only, and always the element that its axes say."""
    nest = where.nest
    own = {s.buffer for s in walk_statements((nest,)) if isinstance(s, Alloc)}
    others = sorted(b.name for b in buffers_written((nest,)) - own - {buffer})
    if others:
        refuse(f"what computes {buffer.name} computes {', '.join(others)} as well", state)
    writes = [a for a in accesses((nest,)) if a.writes and a.buffer == buffer]
    if any(a.indices != writes[0].indices or not isinstance(a.stmt, Write) for a in writes):
        refuse(f"{buffer.name} is computed in several ways: {writes[0]}, {writes[-1]}", state)


def _check_no_carried_state(state: State, where: Definition, buffer: Buffer) -> None:
    """Refuses if iterations over the buffer's axes depend on each other, such as by a nest-local
    buffer in which one leaves something for the next."""
    inner = list(walk_statements((where.nest,)))
    if not any(isinstance(s, Alloc) for s in inner):
        return
    writes = [s for s in inner if isinstance(s, (Store, Accumulate)) and s.buffer == buffer]
    axes = {v for s in writes for i in s.indices for v in variables(i)}
    for loop in (s for s in inner if isinstance(s, For) and s.var in axes):
        pair = conflict(loop.body, loop.var, state.simplifier)
        if pair is not None:
            refuse(f"iterations of {loop.var} need each other: {pair}", state)


def _region(
    state: State, buffer: Buffer, target: For, *, clamp: bool
) -> tuple[list[Expr], tuple[Dim, ...]]:
    """The box that one iteration of `target` reads: its lowest corner and its shape."""
    inner = {s.var for s in walk_statements(target.body) if isinstance(s, For)}
    changing = {buffer, *buffers_written(target.body)}
    found = [a for a in accesses(target.body) if a.buffer == buffer and not a.writes]
    inner |= {loop.var for a in found for loop in a.loops}  # those of instructions, too
    reads = [a.indices for a in found]
    lows: list[Expr] = []
    shape: list[Dim] = []
    for axis, n in enumerate(buffer.shape):
        spans = [_span(state.simplifier, i[axis], inner, changing) for i in dict.fromkeys(reads)]
        low, extent = _hull(state.simplifier, spans, n, clamp=clamp)
        if not isinstance(n, int) and isinstance(extent, int) and low == const(0):
            most, loops = limits(n)[1], {v for i in reads for v in variables(i[axis])} & inner
            if most == extent and any(_is_symbolic(state, v) for v in loops):
                extent = n  # as long as the axis is, not as long as it may be
        lows.append(low)
        shape.append(extent)
    return lows, tuple(shape)


def _is_symbolic(state: State, var: Var) -> bool:
    return isinstance(state.simplifier.extents.get(var), Expr)


Span = tuple[Expr, int] | None  # lowest value in terms of outer loops, number of values


def _span(s: Simplifier, i: Expr, inner: set[Var], changing: set[Buffer]) -> Span:
    """What a subscript covers; None (all of the axis) if that depends on memory that the loop
    changes, that may only be read under a condition, or at places that its inner loops choose."""
    outside: Linear = {}
    varying: Linear = {}
    for load in loads(i):
        if load.buffer in changing or not s.in_bounds(load.buffer, load.indices):
            return None
    for atom, k in s.linear(i).items():
        if atom is not None and variables(atom) & inner:
            if any(True for _ in loads(atom)):
                return None
            varying = add(varying, {atom: k})
        else:
            outside = add(outside, {atom: k})
    low, high = s.range(varying)
    if low is None or high is None:
        return None
    return to_expr(add(outside, {None: low} if low else {})), high - low + 1


def _hull(s: Simplifier, spans: list[Span], n: Dim, *, clamp: bool) -> tuple[Expr, Dim]:
    """The smallest box around all spans, or the whole axis."""
    known = [span for span in spans if span is not None]
    if not known or len(known) != len(spans):
        return const(0), n
    base = known[0][0]
    offsets: list[tuple[int, int]] = []
    for low, size in known:
        offset, highest = s.range(add(s.linear(low), s.linear(base), -1))
        if offset is None or offset != highest:
            return const(0), n
        offsets.append((offset, size))
    least = min(offset for offset, _ in offsets)
    most = max(offset + size for offset, size in offsets)
    extent = most - least
    if isinstance(n, int) and extent >= n and (clamp or s(base + least) != const(0)):
        return const(0), n
    return s(base + least), extent


def _shrunk(
    state: State,
    where: Definition,
    buffer: Buffer,
    local: Buffer,
    lows: list[Expr],
    *,
    clip: bool,
) -> tuple[Block, bool]:
    """Returns the definition restricted to the box at `lows`, and whether a guard was needed. Axis
    variable a becomes low + a; `clip` guards all that lies beyond the buffer, also what is
    harmless."""
    write = next(
        s
        for s in walk_statements((where.nest,))
        if isinstance(s, (Store, Accumulate)) and s.buffer == buffer
    )
    loops = [s for s in walk_statements((where.nest,)) if isinstance(s, For)]
    axes = _axis_vars(state, write, loops)
    values = {a: low + a for a, low in zip(axes, lows, strict=True)}
    extents = dict(zip(axes, local.shape, strict=True))
    simplifier = Simplifier({**state.simplifier.extents, **extents})
    guards = []
    for a, n in zip(axes, buffer.shape, strict=True):
        at = values[a]
        guards += [g for g in (at >= 0, at < as_expr(n)) if not simplifier.proves(g)]
    guard = simplifier(all_of(*guards)) if guards else None

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        if isinstance(stmt, For):
            return stmt.with_(extent=extents.get(stmt.var, stmt.extent))
        return stmt

    shrunk = substitute_block(map_block((where.nest,), visit), dict(values))
    if guard is not None:
        # Elements outside of the old buffer are harmless to compute, and nobody reads them.
        others = [a for a in accesses(shrunk) if a.buffer != buffer]
        outside = [a for a in others if not simplifier.in_bounds(a.buffer, a.indices)]
        if clip or any(a.writes for a in outside):
            shrunk = guarded_inside(shrunk, set(axes), guard)
        elif outside:
            shrunk = _guarded_reads(shrunk, guard, simplifier)
        else:
            guard = None
    shrunk = rewrite_accesses(
        shrunk, buffer, local, lambda at: tuple(i - low for i, low in zip(at, lows, strict=True))
    )
    return shrunk, guard is not None


def _guarded_reads(block: Block, guard: Expr, s: Simplifier) -> Block:
    """Reads that may be out of bounds without the condition give 0 then: loops stay as they are."""

    def read(e: Expr) -> Expr:
        if isinstance(e, Load) and not s.in_bounds(e.buffer, e.indices):
            return select(guard, e, const(0, e.dtype))
        return e

    return map_block(block, lambda stmt: map_exprs(stmt, lambda e: rewrite(e, read)))


def guarded_inside(block: Block, axes: set[Var], guard: Expr) -> Block:
    """The condition put right inside the last loop it depends on."""
    missing = axes & variables(guard)

    def visit(block: Block, missing: set[Var]) -> Block:
        if not missing:
            return (If(guard, block),)
        return map_block(
            block,
            lambda s: s.with_(body=visit(s.body, missing - {s.var})) if isinstance(s, For) else s,
        )

    return visit(block, missing)


# ---------------------------------------------------------------- cache_write


@primitive
def cache_write(state: State, buffer: Buffer, memory: str = "dram") -> Buffer:
    """Computes a buffer into a new one in `memory`, and copies that out afterwards.

        for i: Y[i] = f(i)   ->   for i: Y_local[i] = f(i)
                                  for i: Y[i] = Y_local[i]

    Legal when one statement, not an instruction call, writes the buffer. compute_at and set_memory
    then say how much of it is kept where.
    """
    where = definition(state, buffer)
    local = Buffer(state.fresh(f"{buffer.name}_local"), buffer.dtype, buffer.shape, memory)
    copy = _copy_nest(state, where.nest, buffer, local)
    computed = rewrite_accesses((where.nest,), buffer, local, lambda at: at)
    state.replace(where.nest, (Alloc(local), *computed, copy))
    return local


def _copy_nest(state: State, nest: Stmt, buffer: Buffer, local: Buffer) -> Stmt:
    """A nest like the definition's that copies, with fresh loops named after the old ones."""
    writes = (s for s in walk_statements((nest,)) if isinstance(s, (Store, Accumulate)))
    write = next((s for s in writes if s.buffer == buffer), None)
    if write is None:
        refuse(f"{buffer.name} is written by an instruction", state)
    names = [i.name if isinstance(i, Var) else "unit" for i in write.indices]
    taken = state.names()
    axes: list[Var] = []
    for name in names:
        unique, n = f"{name}_c", 1
        while unique in taken:
            unique, n = f"{name}_c_{n}", n + 1
        taken.add(unique)
        axes.append(Var(unique))
    past = isinstance(write, Store) and write.nontemporal
    body: Block = (Store(buffer, tuple(axes), Load(local, tuple(axes)), past),)
    for axis, extent in zip(reversed(axes), reversed(buffer.shape), strict=True):
        body = (For(axis, extent, body),)
    return body[0]


# ---------------------------------------------------------------- split_init


@primitive
def split_init(state: State, buffer: Buffer) -> list[Loop]:
    """Gives the initialisation of a reduction loops of its own.

        for i: { C[i] = 0; for k: C[i] += … }   ->   for i: C[i] = 0
                                                      for i: for k: C[i] += …

    Legal when no two accesses to one element, one of them a write, change their order.
    """
    state.check_buffer(buffer)
    chain, store, rest = _initialisation(state, buffer)

    def first(path: Path) -> Path:
        """Initialisations come before everything else."""
        inside = path[2 * len(chain)]
        assert isinstance(inside, int)
        return (min(inside, 1), *path[1:])

    vars_ = [loop.var for loop in chain]
    pair = violation((chain[0],), vars_, first, state.simplifier)
    if pair is not None:
        refuse(f"the order matters: {pair}", state)
    renamed: dict[Var, Var] = {}
    taken = state.names()
    init: Block = (store,)
    for loop in reversed(chain):
        name, n = f"{loop.var.name}_init", 1
        while name in taken:
            name, n = f"{loop.var.name}_init_{n}", n + 1
        taken.add(name)
        renamed[loop.var] = Var(name)
        init = (For(Var(name), loop.extent, init),)
    init = substitute_block(init, renamed)
    innermost = chain[-1]
    updated = replace_in((chain[0],), innermost, innermost.with_(body=rest))
    state.replace(chain[0], (*init, *updated))
    return [Loop(v) for v in reversed(list(renamed.values()))]


def _initialisation(state: State, buffer: Buffer) -> tuple[list[For], Store, Block]:
    """The perfect nest that ends in (store of buffer, rest)."""
    for block in blocks(state.kernel.body):
        for stmt in block:
            if not isinstance(stmt, For):
                continue
            loops, body = nest_loops(stmt)
            if len(body) > 1 and isinstance(body[0], Store) and body[0].buffer == buffer:
                return loops, body[0], body[1:]
    return refuse(f"no loop nest begins its body with a store to {buffer.name}", state)
