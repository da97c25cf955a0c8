"""Nests that run along memory: the default schedule of everything that is no contraction.

Loops follow the order of the result in memory, neighbours that are contiguous in every operand
become one, the innermost runs along vectors, the outermost are shared among cores.
"""

from __future__ import annotations

import math

from tilewright.analyze.nests import Nest, accesses_of, nest_of, stride
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Var,
    const,
)
from tilewright.ir.loop import (
    For,
    expressions,
    loads,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, variables
from tilewright.lower.lane_values import NEAR, RUNS
from tilewright.plan.caches import lines_apart, near_cache
from tilewright.plan.cut_borders import cut_borders, cut_last_block, iterations, loops_from
from tilewright.plan.parallelize import WORK, parallelize
from tilewright.schedule.core.state import attempt
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.primitives.stages import nest_loops
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

SHORT = 16  # a run of fewer elements is no better than reads at any places
LEAST_SQUARE = 4  # rows and columns of what is turned in registers


def schedule_nest(
    s: Schedule, stmt: For, target: Target, *, share: bool, first: int | None = None
) -> None:
    """Arranges, vectorizes and (with `share`) parallelizes one perfect nest, in pieces of the axis
    `first` of what it writes."""
    nest = nest_of(stmt)
    assert nest is not None
    loops = arrange(s, nest)
    if share and first is not None:
        loops = cut_axis_for_cores(s, loops, first, target)
    least = target.tasks if share and target.cores > 1 else 1
    around, parts = cut_last_block(s, loops)
    if not parts:
        around, parts = _cut_last_block_read(s, loops)
    few = share and iterations(s, around) < least
    for part in parts:
        _schedule_part(s, part, target, least, share=few)
    if not parts:
        _schedule_part(s, loops, target, least, share=share)
    elif share and not few:
        parallelize(s, around, target)


def _cut_last_block_read(s: Schedule, loops: list[Loop]) -> tuple[list[Loop], list[list[Loop]]]:
    """Peels what is read of a last block, which is not full, off the loop along blocks, so that the
    others are read whole: (the loops around that loop, the loops of both parts)."""
    nest = nest_of(s.for_(loops[0]))
    reads = [x for w in nest.writes for x in loads(w)] if nest is not None else []
    for depth, loop in enumerate(loops[:-1]):
        factors = {block_factor(x.indices, loop.var) for x in reads} - {None}
        extent, factor = s.for_(loop).extent, next(iter(factors), None)
        if len(factors) != 1 or factor is None or not isinstance(extent, int) or extent <= factor:
            continue
        if extent % factor:
            last = s.peel(loop, -(extent % factor))
            return loops[:depth], [loops[depth:], loops_from(s, last)]
    return loops, []


def _schedule_part(
    s: Schedule, loops: list[Loop], target: Target, least: int, *, share: bool
) -> None:
    """The same for a part of a nest, or all of it."""
    nest = nest_of(s.for_(loops[0]))
    assert nest is not None
    around, parts = cut_borders(s, loops, least) if nest.update is None else (loops, [])
    if not parts:
        tiled = _schedule_loops(s, around, target, share=share)
    else:
        for loops in parts:
            _schedule_loops(s, loops, target, share=False)
        tiled = around
    if share:
        parallelize(s, tiled, target)


def _schedule_loops(s: Schedule, loops: list[Loop], target: Target, *, share: bool) -> list[Loop]:
    """Vectorizes the loops of a perfect nest; returns those around a vector, or a tile."""
    loops = collapse(s, loops)
    lanes = _within_blocks(s, loops[-1], lanes_of(s, loops[-1], target))
    if share and len(loops) == 1:
        loops = _cut_for_cores(s, loops[0], lanes, target)
    before = s.moment
    tiled = attempt(_turn_squares, s, loops, lanes, target)
    if tiled is None:
        s.back_to(before)
        tiled = attempt(_interleave, s, loops, lanes)
    if tiled is None:
        s.back_to(before)
        tiled = [*loops[:-1], *vectorize_innermost(s, loops[-1], lanes)[:-1]]
    return tiled


# ---------------------------------------------------------------- order


def arrange(s: Schedule, nest: Nest, along: Buffer | None = None) -> list[Loop]:
    """Puts the loops of a nest into the order in memory of its result, or of the buffer `along`
    that it reads; reductions (if any) innermost. Blocked axes are split so that the block is a loop
    of its own, and loops after whose period the same is read again, so that it is read in runs."""
    loops, _ = nest_loops(nest.stmt)
    names = [x.var for x in loops]
    for var in list(names):
        factor = block_factor(_subscripts(nest, along), var)
        if factor is not None and _move_innermost(s, names, var):
            outer, inner = s.split(Loop(var), factor)
            names[-1:] = [outer.var, inner.var]
    plain = _nest_with(s, names[0])
    for var in list(names):
        period = _period(plain, var, s.for_(Loop(var)).extent) if plain is not None else None
        if period is not None and (var != names[-1] or period >= SHORT):
            outer, inner = s.split(Loop(var), period)
            at = names.index(var)
            names[at : at + 1] = [outer.var, inner.var]
    nest_now = _nest_with(s, names[0])
    single = {v for v in names if s.for_(Loop(v)).extent == 1}
    order = _memory_order(_subscripts(nest_now, along) if nest_now else (), names, single)
    if attempt(s.reorder, *(Loop(v) for v in order)):
        names = order
    return [Loop(v) for v in names]


def _subscripts(nest: Nest, along: Buffer | None) -> tuple[Expr, ...]:
    """Where the nest touches a buffer that it reads; where it writes, for None."""
    if along is None:
        return nest.store.indices
    reads = (x for x in nest.store.value.walk() if isinstance(x, Load) and x.buffer == along)
    return next(reads).indices


def _nest_with(s: Schedule, var: Var) -> Nest | None:
    return nest_of(s.for_(Loop(var)))


def block_factor(indices: tuple[Expr, ...], var: Var) -> int | None:
    """The factor f of a subscript `var % f`, if there is one."""
    for i in indices:
        if isinstance(i, Binary) and i.op is BinaryOp.MOD and i.a == var and isinstance(i.b, Const):
            return int(i.b.value)
    return None


def _period(nest: Nest, var: Var, extent: Dim) -> int | None:
    """The number of iterations after which a loop reads the same again, as `var % period` and
    nothing else; None if there is none."""
    values = [w.value for w in nest.writes]
    of_var = {x for v in values for x in v.walk() if isinstance(x, Binary) and x.a == var}
    first = next(iter(of_var), None)
    if len(of_var) != 1 or first is None or first.op is not BinaryOp.MOD:
        return None
    others = (rewrite(v, lambda x: const(0) if x == first else x) for v in values)
    if any(var in variables(v) for v in others):
        return None
    period = int(first.b.value) if isinstance(first.b, Const) else 0
    whole = isinstance(extent, int) and 1 < period < extent and extent % period == 0
    return period if whole else None


def _move_innermost(s: Schedule, names: list[Var], var: Var) -> bool:
    """A condition that split adds stays inside a perfect nest if its loop is innermost."""
    order = [v for v in names if v != var] + [var]
    if order != names and not attempt(s.reorder, *(Loop(v) for v in order)):
        return False
    names[:] = order
    return True


def _memory_order(indices: tuple[Expr, ...], names: list[Var], single: set[Var]) -> list[Var]:
    """Loops by where they first stand in the result's subscripts. Of the others those of a single
    iteration, which subscripts need not show, come first, and the rest last."""
    first: dict[Var, int] = {}
    for position, i in enumerate(indices):
        for v in sorted(variables(i), key=lambda v: v.name):
            first.setdefault(v, position)
    return sorted(names, key=lambda v: first.get(v, -1 if v in single else len(indices)))


def collapse(s: Schedule, loops: list[Loop], most: int | None = None) -> list[Loop]:
    """Fuses neighbouring loops that step through every operand as one loop would, from the inside
    out, as far as the result runs at most so often."""
    out = [loops[-1]]
    for loop in reversed(loops[:-1]):
        if _contiguous(s, loop, out[0]) and _at_most(s, loop, out[0], most):
            out[0] = s.fuse(loop, out[0])
        else:
            out.insert(0, loop)
    return out


def _at_most(s: Schedule, outer: Loop, inner: Loop, most: int | None) -> bool:
    a, b = s.for_(outer).extent, s.for_(inner).extent
    return most is None or (a * b if isinstance(a, int) and isinstance(b, int) else 0) <= most


def _contiguous(s: Schedule, outer: Loop, inner: Loop) -> bool:
    """Whether, in every operand, a step of the outer loop is as far as all of the inner one."""
    extent = s.for_(inner).extent
    if extent == 1 or s.for_(outer).extent == 1:
        return True
    if not isinstance(extent, int):
        return False
    for stmt in walk_statements((s.for_(outer),)):
        for e in expressions(stmt):
            if any(
                isinstance(x, Compare) and variables(x) & {outer.var, inner.var} for x in e.walk()
            ):
                return False
        for buffer, indices in accesses_of(stmt):
            a = stride(buffer, indices, outer.var, s.simplifier)
            b = stride(buffer, indices, inner.var, s.simplifier)
            if a is None or b is None or a != b * extent:
                return False
    return True


# ---------------------------------------------------------------- cores


def axis_behind_blocks(nest: Nest) -> int | None:
    """The axis of what a nest writes that lies within each block of channels: the rows of a
    picture, which cores share so that all its neighbours read what they have written themselves.
    None where there are no blocks."""
    indices = nest.store.indices
    for axis in nest.axes:
        if block_factor(indices[-1:], axis.var) is None:
            continue
        outer = next((p for p, i in enumerate(indices[:-1]) if axis.var in variables(i)), None)
        if outer is not None and outer + 2 < len(indices):
            return outer + 1
    return None


def cut_axis_for_cores(s: Schedule, loops: list[Loop], axis: int, target: Target) -> list[Loop]:
    """Cuts the loop over an axis of what a nest writes into equal pieces, which go first."""
    nest = nest_of(s.for_(loops[0]))
    at = None if nest is None else nest.store.indices[axis]
    loop = next((x for x in loops if x.var == at), None)
    extent = None if loop is None else s.for_(loop).extent
    if loop is None or not isinstance(extent, int) or target.cores == 1:
        return loops
    counts = range(target.cores, target.tasks + 1)
    pieces = next((n for n in counts if extent % n == 0), None)
    if pieces is None:
        return loops
    before = s.moment
    outer, inner = s.split(loop, extent // pieces)
    order = [outer, *(inner if x == loop else x for x in loops)]
    if attempt(s.reorder, *order):
        return order
    s.back_to(before)
    return loops


# ---------------------------------------------------------------- transpositions


def _turn_squares(s: Schedule, loops: list[Loop], lanes: int, target: Target) -> list[Loop]:
    """Where what is read lies along another loop than the innermost, tiles of both: lowering reads
    a tile's rows and turns it in registers (lower/squares.py). Returns the loops around a tile;
    ScheduleError where there is nothing to turn."""
    *others, last = loops
    across, block = _across(s, others, last, lanes)
    extent, width = s.for_(across).extent, s.for_(last).extent
    if isinstance(extent, int) and isinstance(width, int) and block is None and width > RUNS:
        while lanes > LEAST_SQUARE and min(extent, width) < lanes:
            lanes //= 2
    _require_whole(s, (last, across), lanes)
    if block is not None and isinstance(extent, int) and extent % lanes == lanes // 2:
        lanes //= 2  # a last square that is shifted would lie across two blocks
    elif _rows_collide(s, last, across, lanes, target):
        lanes //= 2
    place = others.index(across)
    across_o, across_i = s.split(across, lanes, Tail.SHIFT)
    last_o, last_i = s.split(last, lanes, Tail.SHIFT)
    around = [*others[:place], across_o, *others[place + 1 :], last_o]
    s.reorder(*around, across_i, last_i)
    s.vectorize(last_i)
    s.unroll(across_i)
    return around


def _rows_collide(s: Schedule, last: Loop, across: Loop, lanes: int, target: Target) -> bool:
    """Whether the first cache holds fewer rows of the result than a square has, as they lie; and
    the near ones all rows that are read until the other half of their lines is."""
    nest, rows = nest_of(s.for_(last)), s.for_(last).extent
    if nest is None or not isinstance(rows, int):
        return False
    written = stride(nest.buffer, nest.store.indices, across.var, s.simplifier)
    reads = [x for w in nest.writes for x in loads(w)]
    steps = [stride(x.buffer, x.indices, last.var, s.simplifier) for x in reads]
    far = max(abs(n or 0) * x.buffer.dtype.bytes for n, x in zip(steps, reads, strict=True))
    if written is None or far == 0:
        return False
    places = lines_apart(abs(written) * nest.buffer.dtype.bytes, target)
    return places < lanes and rows <= lines_apart(far, target, near_cache(target))


def _interleave(s: Schedule, loops: list[Loop], lanes: int) -> list[Loop]:
    """Where the innermost loop is short, and what is read lies along the loop around it: a vector
    loop over both, for which lowering reads vectors and interleaves them. Returns the loops around;
    ScheduleError where there is nothing to interleave."""
    if len(loops) < 2:
        raise ScheduleError("there is no loop around it")
    *others, across, last = loops
    _require_whole(s, (across,), lanes)
    if s.for_(last).extent not in range(2, RUNS + 1) or _across(s, [across], last, lanes)[1]:
        raise ScheduleError("there is nothing to interleave")
    outer, inner = s.split(across, lanes, Tail.SHIFT)
    s.vectorize(s.fuse(inner, last))
    return [*others, outer]


def _across(s: Schedule, others: list[Loop], last: Loop, lanes: int) -> tuple[Loop, int | None]:
    """The loop along which a read is contiguous that is not so along the innermost; in blocks of
    what size, if it is so in blocks."""
    reads = [x for w in walk_statements((s.for_(last),)) for e in expressions(w) for x in e.walk()]
    for read in reads:
        if not isinstance(read, Load):
            continue
        step = stride(read.buffer, read.indices, last.var, s.simplifier)
        if step is None or abs(step) <= NEAR:
            continue
        for loop in others:
            step = stride(read.buffer, read.indices, loop.var, s.simplifier)
            block = block_factor(read.indices, loop.var) if step is None else None
            if step == 1 or (block is not None and block % lanes == 0):
                return loop, block
    raise ScheduleError("nothing that is read lies across")


def _require_whole(s: Schedule, loops: tuple[Loop, ...], lanes: int) -> None:
    extents = [s.for_(loop).extent for loop in loops]
    if lanes < 2 or not all(isinstance(n, int) and n >= lanes for n in extents):
        raise ScheduleError("a square is larger than what there is to turn")


# ---------------------------------------------------------------- vectors


def lanes_of(s: Schedule, loop: Loop, target: Target) -> int:
    """Lanes that fill a register with the widest type in the loop."""
    widest = 1
    for stmt in walk_statements((s.for_(loop),)):
        for buffer, _ in accesses_of(stmt):
            widest = max(widest, buffer.dtype.bytes)
    return max(1, target.vectors.bytes // widest)


def _within_blocks(s: Schedule, loop: Loop, lanes: int) -> int:
    """Fewer lanes, where a vector of so many would lie across the blocks of what is read: behind a
    boundary that is no multiple of the lanes. At least a quarter of them, or all."""
    offsets = [
        math.gcd(*(k for atom, k in form.items() if atom != loop.var))
        for stmt in walk_statements((s.for_(loop),))
        for e in expressions(stmt)
        for x in e.walk()
        if isinstance(x, Binary) and x.op is BinaryOp.FLOORDIV and isinstance(x.b, Const)
        if int(x.b.value) % lanes == 0  # other divisors are shapes
        if (form := s.simplifier.linear(x.a)).get(loop.var) == 1
    ]
    fewer = math.gcd(lanes, *offsets)
    return fewer if 4 * fewer >= lanes else lanes


def vectorize_innermost(s: Schedule, loop: Loop, lanes: int) -> list[Loop]:
    """Runs the innermost loop along vectors of `lanes`, if that is legal. Returns the loops it
    became, outermost first."""
    extent = s.for_(loop).extent
    if lanes == 1 or extent == 1:
        return [loop]
    if isinstance(extent, int) and extent <= lanes:
        attempt(s.vectorize, loop)
        return [loop]
    before = s.moment
    for tail in (Tail.SHIFT, Tail.GUARD):  # a shifted last vector needs no mask
        pair = attempt(s.split, loop, lanes, tail)
        if pair is not None and attempt(s.vectorize, pair[1]):
            return list(pair)
        s.back_to(before)
    return [loop]


def _cut_for_cores(s: Schedule, loop: Loop, lanes: int, target: Target) -> list[Loop]:
    """Gives a single long loop an outer one to share: pieces of whole vectors."""
    extent = s.for_(loop).extent
    if target.cores == 1 or not isinstance(extent, int) or extent < WORK:
        return [loop]
    wanted = target.tasks
    exact = (p for p in range(wanted, 4 * wanted) if extent % (p * lanes) == 0)
    pieces = next(exact, wanted)
    return list(s.split(loop, -(-extent // (pieces * lanes)) * lanes))
