"""Primitives on what is computed: split_value gives part of it a buffer, reuse saves one, init_with
moves a term into a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tilewright.analyze.accesses import accesses
from tilewright.analyze.dependence import meets, violation
from tilewright.analyze.rewrite import replace_in, rewrite_accesses
from tilewright.ir.expr import (
    COMBINERS,
    DRAM,
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    as_expr,
    const,
    constant_value,
    select,
)
from tilewright.ir.instruction import Region, axis
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    If,
    Stmt,
    Store,
    buffers_written,
    loads,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.loops import copy_block
from tilewright.schedule.primitives.stages import (
    blocks,
    check_no_lanes,
    check_written_alone,
    definition,
    nest_loops,
)
from tilewright.schedule.trace.steps import Loop


@primitive
def split_value(
    state: State, loop: Loop, path: Sequence[int], memory: str = DRAM, *, whole: bool = False
) -> Buffer:
    """Computes part of what a nest stores in a nest of its own, before it.

        for i: Y[i] = max(X[i] + b[i], 0)          with path (0,)
    ->  T = alloc([n]); for i: T[i] = X[i] + b[i]
        for i: Y[i] = max(T[i], 0)

    `path` leads to the part: the position of an operand in the stored value, then of an operand in
    that, and so on. The new buffer has an axis for each loop that the part depends on, or a `whole`
    one for each loop of the nest, so that it can be written in the result's place. Legal when the
    nest stores into one buffer, be it that it adds more to that afterwards, and the part reads
    nothing that it writes.
    """
    target = state.for_(loop)
    for around in state.loops_around(target):
        check_no_lanes(state, around)
    loops, body = nest_loops(target)
    guard = body[0] if len(body) == 1 and isinstance(body[0], If) else None
    inner = guard.body if guard is not None and not guard.orelse else body
    store = inner[0] if inner else None
    alone = len(inner) == 1 or guard is None
    if not isinstance(store, Store) or not alone or buffers_written(inner) != {store.buffer}:
        refuse(f"{loop} does more than store into one buffer", state)
    part = _part(state, store.value, path)
    guarded = any(isinstance(x, Select) for x in store.value.walk())
    for read in (x for x in part.walk() if guarded and isinstance(x, Load)):
        if not state.simplifier.in_bounds(read.buffer, read.indices):
            refuse(f"{read} may only be read under a condition", state)
    early = [part] if guard is None else [part, guard.cond]
    if any(x.buffer == store.buffer for e in early for x in e.walk() if isinstance(x, Load)):
        refuse(f"{part} reads {store.buffer.name}, which the nest writes", state)
    every = whole or guard is not None
    needed = {x.var for x in loops} if every else variables(part)
    axes = [x for x in loops if x.var in needed]
    for x in axes:
        if isinstance(x.extent, Expr) and variables(x.extent):
            refuse(f"{x.var} runs {x.extent} times, which is not the same every time", state)
    name = state.fresh(f"{store.buffer.name.split('_part')[0]}_part")
    value = Buffer(name, part.dtype, tuple(x.extent for x in axes), memory)
    place = tuple(x.var for x in axes)
    first: Block = (Store(value, place, part),)
    first = (guard.with_(body=first),) if guard is not None else first
    for x in reversed(axes):
        first = (For(x.var, x.extent, first),)
    first = copy_block(first, state.names())
    reads = store.with_(value=_with_part(store.value, path, Load(value, place)))
    state.replace(target, (Alloc(value), *first, *replace_in((target,), store, reads)))
    state.simplify_all()
    return value


@primitive
def init_with(state: State, buffer: Buffer) -> None:
    """Begins a sum of integers with a term that is added to it afterwards.

        C[i] = 0; for k: C[i] += …;  Y[i] = f(C[i] + b[i])
    ->  C[i] = b[i]; for k: C[i] += …;  Y[i] = f(C[i])

    Elements that the nest does not read, since they pad, still begin with 0. Legal when the sum
    begins with 0, when one nest reads it, each element once, as an operand of an addition, and when
    nothing that the other operand reads is written from the one place to the other. Sums of floats
    would be rounded otherwise.
    """
    if not buffer.dtype.is_integer:
        refuse(
            f"{buffer.name} is {buffer.dtype}: another order of additions rounds otherwise", state
        )
    where = definition(state, buffer)
    check_written_alone(state, where, buffer)
    init = _zero(state, where.nest, buffer)
    readers = [s for s in where.after if any(a.buffer == buffer for a in accesses((s,)))]
    loops, body = nest_loops(readers[0]) if len(readers) == 1 else ([], ())
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, Store):
        refuse(f"{buffer.name} is not read by a nest of one store alone", state)
    total, term = _added(state, store.value, buffer)
    axes = {x.var for x in loops}
    pairs = zip(total.indices, init.indices, buffer.shape, strict=True)
    moving = [(a, b) for a, b, n in pairs if n != 1 or a in axes]
    names = dict(moving)
    if not set(names) <= axes or len(names) < len(moving):
        refuse(f"{total} is not an element for each iteration of its nest", state)
    if variables(term) & axes - set(names):
        refuse(f"{term} is another in iterations that read one element of {buffer.name}", state)
    between = where.block[where.position : where.block.index(readers[0]) + 1]
    changed = {x.buffer for x in loads(term)} & buffers_written(between)
    if changed:
        refuse(f"{term} is written before it is added", state)
    first = init.with_(value=_inside(state, substitute(term, names), loops, names))
    value = rewrite(store.value, lambda e: total if e in _sums(total, term) else e)
    block = replace_in(where.block, init, first)
    block = replace_in(block, store, store.with_(value=value))

    def visit(b: Block) -> Block:
        if b is where.block:
            return block
        return map_block(b, lambda s: map_inner_blocks(s, visit))

    state.set_body(visit(state.kernel.body))
    state.simplify_all()


def _inside(state: State, term: Expr, loops: Sequence[For], names: Mapping[Expr, Expr]) -> Expr:
    """The term where a nest of these loops, which an index now stands for, has it; elsewhere, where
    nobody reads the sum (it may be padded), 0."""
    bounds = [names[x.var] < as_expr(x.extent) for x in loops if x.var in names]
    bounds += [names[x.var] >= 0 for x in loops if x.var in names]
    unknown = [c for c in bounds if not state.simplifier.proves(c)]
    return select(all_of(*unknown), term, const(0, term.dtype)) if unknown else term


def _zero(state: State, nest: Stmt, buffer: Buffer) -> Store:
    """The store of 0 that begins a sum."""
    stores = [s for s in walk_statements((nest,)) if isinstance(s, Store) and s.buffer == buffer]
    sums = [s for s in walk_statements((nest,)) if isinstance(s, Accumulate)]
    if len(stores) != 1 or not sums or any(s.op is not BinaryOp.ADD for s in sums):
        refuse(f"{buffer.name} is no sum", state)
    if constant_value(stores[0].value) != 0:
        refuse(f"{buffer.name} begins with {stores[0].value}, not with 0", state)
    return stores[0]


def _added(state: State, value: Expr, buffer: Buffer) -> tuple[Load, Expr]:
    """The one read of a buffer in a value, and what is added to it."""
    reads = {x for x in loads(value) if x.buffer == buffer}
    found = [
        (x, other)
        for e in value.walk()
        if isinstance(e, Binary) and e.op is BinaryOp.ADD
        for x, other in ((e.a, e.b), (e.b, e.a))
        if x in reads and x not in set(loads(other))
    ]
    uses = sum(e in reads for e in _operands_below(value))
    if len(reads) != 1 or len(found) != 1 or uses != 1:
        refuse(f"{buffer.name} is not read as an operand of one addition alone", state)
    total, term = found[0]
    assert isinstance(total, Load)
    return total, term


def _operands_below(value: Expr) -> Iterator[Expr]:
    """Every part of a value, as often as it stands there."""
    yield value
    for e in _operands(value):
        yield from _operands_below(e)


def _sums(total: Load, term: Expr) -> tuple[Expr, Expr]:
    return Binary(BinaryOp.ADD, total, term), Binary(BinaryOp.ADD, term, total)


def _part(state: State, value: Expr, path: Sequence[int]) -> Expr:
    part = value
    for step in path:
        operands = _operands(part)
        if not 0 <= step < len(operands):
            refuse(f"{part} has {len(operands)} operands, and no number {step}", state)
        part = operands[step]
    return part


def _operands(e: Expr) -> list[Expr]:
    """The operands of an operator; a read has none (its subscripts are no values)."""
    return [] if isinstance(e, Load) else [c for c in e.children() if isinstance(c, Expr)]


def _with_part(value: Expr, path: Sequence[int], new: Expr) -> Expr:
    if not path:
        return new
    position = -1

    def visit(child: Expr) -> Expr:
        nonlocal position
        if not isinstance(child, Expr):
            return child
        position += 1
        return _with_part(child, path[1:], new) if position == path[0] else child

    return value.map(visit)


@primitive
def reuse(state: State, buffer: Buffer, into: Buffer) -> None:
    """Lets a buffer take the place in memory of one that it is computed from.

        T = alloc([n]); for i: T[i] = f(X[k + i]); … T[i] …
    ->  for i: X[k + i] = f(X[k + i]); … X[k + i] …

    Both are of one type and in one memory; the other is allocated in the same block or around it.
    Legal when the nest that computes the buffer reads one element of the other for each that it
    writes, another in each iteration, also of the loops around it, and when nothing else in those
    loops touches the other, and nothing afterwards but, in the same block, elements that do not
    change: with T[i] = X[2 * i], X[2 * i + 1] may still be read. Instructions that touch the buffer
    already, whose fields say by how much they step through it, do so through the other by as much.
    A sum, product or extreme of the old value and another becomes an accumulation; a copy is left
    out.
    """
    home = next((b for b in blocks(state.kernel.body) if Alloc(buffer) in b), ())
    nest = next((s for s in home if any(a.buffer == buffer for a in accesses((s,)))), None)
    loops, body = nest_loops(nest) if nest is not None else ([], ())
    store = body[0] if len(body) == 1 else None
    if nest is None or not isinstance(store, Store) or store.buffer != buffer:
        refuse(f"{buffer.name} is not computed by a nest of one store", state)
    if (buffer.dtype, buffer.memory) != (into.dtype, into.memory):
        both = " and ".join(f"{b} in {b.memory}" for b in (buffer, into))
        refuse(f"{both} are not of one type and memory", state)
    around = next((b for b in blocks(state.kernel.body) if Alloc(into) in b), ())
    position = next((i for i, s in enumerate(around) if _holds(s, nest)), None)
    if position is None:
        refuse(f"{into.name} is not allocated where {buffer.name} is, or around that", state)
    top = around[position]
    outer = [x for x in state.loops_around(nest) if _holds(top, x)]
    place = _place_in(state, store, into, outer)
    mine = store.with_(buffer=into, indices=place(store.indices))
    if not state.simplifier.in_bounds(into, mine.indices):
        refuse(f"{store} may write outside of {into}", state)
    if not _one_to_one(state, mine, loops):
        refuse(f"{store} may write an element twice", state)
    _check_apart(state, nest, home, outer, store, mine)
    behind = () if around is home else around[position + 1 :]
    if any(a.buffer == into for a in accesses(behind)):
        refuse(f"{into.name} is needed after {buffer.name} is computed", state)
    others = (a for a in accesses(home) if a.writes and a.buffer == buffer and a.stmt is not store)
    if any(isinstance(a.stmt, Store) for a in others):  # accumulations are of what this one stores
        refuse(f"{buffer.name} is written by another statement as well", state)
    copied = store.value == Load(into, mine.indices)
    kept = tuple(s for s in home if s != Alloc(buffer) and not (copied and s is nest))
    kept = replace_in(kept, store, _accumulation(store, into, place) or store)
    renamed = rewrite_accesses(kept, buffer, into, place)
    _check_steps(state, kept, renamed)

    def visit(block: Block) -> Block:
        if block is home:
            return renamed
        return map_block(block, lambda s: map_inner_blocks(s, visit))

    state.set_body(visit(state.kernel.body))


def _check_steps(state: State, old: Block, new: Block) -> None:
    """Refuses other buffers in the regions of calls if these step through them otherwise: fields of
    the calls say how."""
    pairs = zip(_regions(old), _regions(new), strict=True)
    for (call, operand, region), (_, _, other) in pairs:
        if region != other and _steps(state, operand, region) != _steps(state, operand, other):
            refuse(
                f"{call.instruction.name} steps through {region.buffer.name} as it lies, and"
                f" {other.buffer.name} lies otherwise",
                state,
            )


def _regions(block: Block) -> list[tuple[Call, Buffer, Region]]:
    calls = (s for s in walk_statements(block) if isinstance(s, Call))
    return [(s, *x) for s in calls for x in zip(s.instruction.operands, s.regions, strict=True)]


def _steps(state: State, operand: Buffer, region: Region) -> dict[Expr, int]:
    """How many elements of a region's buffer lie between neighbours along the operand's axes."""
    place = state.simplifier.position(region.indices, region.buffer.shape)
    axes = {axis(d) for d in range(len(operand.shape))}
    return {e: step for e, step in place.items() if e is not None and variables(e) & axes}


def _check_apart(
    state: State, nest: Stmt, home: Block, outer: Sequence[For], store: Store, mine: Store
) -> None:
    """Refuses a buffer of which a nest's block needs elements afterwards that `mine` writes in the
    place of `store`, which others in the loops around touch, or whose elements several iterations
    of those do."""
    into, after = mine.buffer, next(i for i, s in enumerate(home) if s is nest) + 1
    moved = [a for a in accesses(replace_in(home, store, mine)) if a.buffer == into]
    written = next(a for a in moved if a.stmt is mine and a.writes)
    later = [a for a in moved if isinstance(a.path[0], int) and a.path[0] >= after]
    if any(meets(written, a, state.simplifier) is not None for a in later):
        refuse(f"{into.name} is needed after it is written anew", state)
    if not outer:
        return
    found = [a for a in accesses((outer[0],)) if a.buffer == into]
    if any(not any(_holds(s, a.stmt) for s in home) for a in found):
        refuse(f"{into.name} is touched elsewhere in {outer[0].var}", state)
    touched: Block = ()
    for a in found:
        alone: Stmt = Store(into, a.indices, const(0, into.dtype))
        for x in reversed(a.loops[len(outer) :]):
            alone = x.with_(body=(alone,))
        touched += (alone,)
    for x in reversed(outer):
        touched = (x.with_(body=touched),)
    names = tuple(x.var for x in outer)
    if violation(touched, names, lambda path: None, state.simplifier, concurrent=True) is not None:
        refuse(f"iterations of {outer[0].var} share elements of {into.name}", state)


def _holds(stmt: Stmt, other: Stmt) -> bool:
    return any(s is other for s in walk_statements((stmt,)))


Place = Callable[[tuple[Expr, ...]], tuple[Expr, ...]]


def _place_in(state: State, store: Store, into: Buffer, outer: Sequence[For]) -> Place:
    """Where the elements of a buffer are in one that its store reads: at the subscripts of that
    read, for the element that is written."""
    reads = {x.indices for x in loads(store.value) if x.buffer == into}
    around = {x.var for x in outer}
    found = [_moved(state, store.indices, i, around) for i in next(iter(reads), ())]
    if len(reads) != 1 or None in found:
        refuse(f"{store} does not read one element of {into.name}", state)
    return lambda at: tuple(part(at) for part in found if part is not None)


def _moved(
    state: State, written: tuple[Expr, ...], read: Expr, around: set[Var]
) -> Callable[[tuple[Expr, ...]], Expr] | None:
    """A subscript of what is read, by those of what is written; None if these do not tell."""
    if any(isinstance(x, Load) for x in read.walk()):
        return None
    if variables(read) <= around:
        return lambda at: read
    for p, index in enumerate(written):
        apart = state.simplifier(read - index)
        if variables(apart) <= around:
            return lambda at: state.simplifier(at[p] + apart)
    names = [v for v in written if isinstance(v, Var)]
    if len(set(names)) < len(names) or not variables(read) <= {*names, *around}:
        return None
    return lambda at: substitute(
        read, {v: i for v, i in zip(written, at, strict=True) if isinstance(v, Var)}
    )


def _accumulation(store: Store, into: Buffer, place: Place) -> Accumulate | None:
    """A store of op(old value, other) as what it is once the old value is in its place."""
    value = store.value
    if not isinstance(value, Binary) or value.op not in COMBINERS:
        return None
    old = Load(into, place(store.indices))
    for mine, other in ((value.a, value.b), (value.b, value.a)):
        if mine == old and not any(x == old for x in other.walk()):
            return Accumulate(store.buffer, store.indices, value.op, other)
    return None


def _one_to_one(state: State, store: Store, loops: list[For]) -> bool:
    """Whether every iteration writes an element of its own."""
    alone: Block = (store.with_(value=const(0, store.buffer.dtype)),)
    for x in reversed(loops):
        alone = (x.with_(body=alone),)
    names = tuple(x.var for x in loops)
    return violation(alone, names, lambda path: None, state.simplifier, concurrent=True) is None
