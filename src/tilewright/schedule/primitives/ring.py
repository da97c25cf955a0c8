"""The primitive that keeps what consecutive tiles share: ring_buffer (a sliding window)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tilewright.analyze.accesses import accesses
from tilewright.analyze.dependence import Late, Path, violation
from tilewright.analyze.rewrite import replace_in, rewrite_accesses, simplify_block
from tilewright.analyze.rewrite import substitute_block as substituted
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import index
from tilewright.ir.expr import Buffer, Dim, Expr, Var, as_dim, as_expr, const
from tilewright.ir.instruction import axis
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    If,
    Stmt,
    Write,
    expressions,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.loops import copy_block, plain_loop
from tilewright.schedule.primitives.stages import Definition, check_written_alone, definition
from tilewright.schedule.trace.steps import Loop

T = TypeVar("T")


@dataclass(frozen=True)
class _Slide:
    """A buffer's elements move along one axis: in the next iteration, the element at a - step has
    the value that the one at a has now."""

    axis: int
    loop: For  # of the nest that fills the buffer
    extent: int  # of that
    step: int


@primitive
def ring_buffer(
    state: State, buffer: Buffer, loop: Loop, depth: int | None = None, at_once: bool = False
) -> Buffer:
    """Keeps what consecutive iterations of a loop have in common of a buffer that each of them
    fills anew, and fills only what is new.

        for i: P = alloc([3]); for a in 3: P[a] = f(i + a);  … P[a] …
    ->  P = alloc([3]); for i: { if i == 0: for a in 2: P[a] = f(a)
                                 P[(i + 2) % 3] = f(i + 2);  … P[(i + a) % 3] … }

    The axis along which the box moves has `depth` places, by default as many as the box is long.
    With `at_once` one nest fills all of it in the first iteration, and one what is new in others.
    Legal when one nest fills the buffer, one loop for each axis; when iteration i + 1 computes at
    place a what iteration i computes at a + step, with the same 0 < step < extent always; when
    nothing that the nest reads is written before the element would be computed again; and when no
    instruction meets the end that the axis now has.
    """
    target = plain_loop(state, loop)
    if not any(isinstance(s, Alloc) and s.buffer == buffer for s in target.body):
        refuse(f"{loop} does not allocate {buffer.name} in its body", state)
    where = definition(state, buffer)
    check_written_alone(state, where, buffer)
    slide = _slide(state, where, buffer, target)
    extent = _whole(buffer.shape[slide.axis])
    if slide.step >= extent:
        what = f"{slide.step} places further, along an axis of {extent}"
        refuse(f"no two iterations share an element of {buffer.name}: each is {what}", state)
    depth = extent if depth is None else depth
    if depth < extent:
        refuse(f"{buffer.name} needs {extent} places along axis {slide.axis}, not {depth}", state)
    _check_kept(state, target, where, buffer, slide)
    ring = buffer.with_(shape=_replaced(buffer.shape, slide.axis, depth))
    straight = _straight(state, target, buffer, ring, slide)

    def turn(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        place = (at[slide.axis] + loop.var * slide.step) % depth
        return _replaced(at, slide.axis, straight.get(at[slide.axis], place))

    body = tuple(s for s in target.body if not (isinstance(s, Alloc) and s.buffer == buffer))
    position = next(i for i, s in enumerate(body) if s is where.nest)
    body = rewrite_accesses(body, buffer, ring, turn)
    fill = _fill(state, body[position], target, slide, extent, at_once)
    new = target.with_(body=(*body[:position], *fill, *body[position + 1 :]))
    state.replace(target, (Alloc(ring), new))
    state.simplify_all()
    return ring


def _fill(
    state: State, nest: Stmt, target: For, slide: _Slide, extent: int, at_once: bool
) -> Block:
    """What the first iteration finds nowhere, and what every iteration needs besides."""
    overlap = extent - slide.step
    first = copy_block(_part(nest, slide, 0, extent if at_once else overlap), state.names())
    first = substituted(first, {target.var: const(0)})
    new = _part(nest, slide, overlap, slide.step)
    if at_once:
        return (If(as_expr(target.var).equals(0), first, new),)
    return (If(as_expr(target.var).equals(0), first), *new)


def _part(nest: Stmt, slide: _Slide, start: int, extent: int) -> Block:
    """The nest for some places alone: from `start` on, along the axis that moves."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.var == slide.loop.var:
            return stmt.with_(
                extent=extent, body=substituted(stmt.body, {stmt.var: stmt.var + start})
            )
        return map_inner_blocks(stmt, lambda b: map_block(b, visit))

    return map_block((nest,), visit)


def _replaced(items: tuple[T, ...], axis: int, item: T) -> tuple[T, ...]:
    return (*items[:axis], item, *items[axis + 1 :])


# ---------------------------------------------------------------- what moves


def _slide(state: State, where: Definition, buffer: Buffer, target: For) -> _Slide:
    """How the buffer's elements move from one iteration to the next."""
    nest = where.nest
    read = {a.buffer for a in accesses((nest,)) if not a.writes}
    if buffer in read:
        refuse(f"{buffer.name} is computed of elements of its own", state)
    for anew in (s.buffer for s in target.body if isinstance(s, Alloc)):
        if anew in read:
            what = f"{buffer.name} is computed of {anew.name}, which each iteration has anew"
            refuse(what, state, f"ring_buffer({anew.name}, {target.var}) first")
    writes = (s for s in walk_statements((nest,)) if isinstance(s, Write))
    write = next(s for s in writes if s.buffer == buffer)
    loops = {s.var: s for s in walk_statements((nest,)) if isinstance(s, For)}
    axes = [loops.get(i) if isinstance(i, Var) else None for i in write.indices]
    for d, along in enumerate(axes):
        extent = _whole(buffer.shape[d])
        if along is None or axes.count(along) > 1 or along.extent != extent:
            continue
        for step in sorted(_steps(nest, along.var, target.var, state.simplifier)):
            slide = _Slide(d, along, extent, step)
            if _repeats(state, nest, buffer, target, slide):
                return slide
    return refuse(
        f"{buffer.name} does not move along an axis by the same step in each iteration of "
        f"{target.var}: {write}",
        state,
    )


def _whole(extent: object) -> int:
    """An extent that is a constant; 0 for any other."""
    return extent if isinstance(extent, int) else 0


def _steps(nest: Stmt, along: Var, loop: Var, s: Simplifier) -> set[int]:
    """How far the nest may move: where it uses k*along + l*loop, by l / k."""
    found = set()
    for e in _index_expressions(nest):
        form = s.linear(e)
        k, step = form.get(along, 0), form.get(loop, 0)
        if k and step % k == 0 and step // k > 0:
            found.add(step // k)
    return found


def _index_expressions(nest: Stmt) -> Iterator[Expr]:
    for stmt in walk_statements((nest,)):
        for whole in expressions(stmt):
            for e in whole.walk():
                if isinstance(e, Expr) and e.dtype == index:
                    yield e


def _repeats(state: State, nest: Stmt, buffer: Buffer, target: For, slide: _Slide) -> bool:
    """Whether the nest is the same for iteration i + 1 at a and for iteration i at a + step,
    but for the place along the axis. Both are brought to canonical form where both exist."""
    rest = as_dim(state.simplifier(as_expr(target.extent) - 1))
    overlap = max(slide.extent - slide.step, 1)  # of none, only one step is looked at
    nameless = rewrite_accesses((nest,), buffer, buffer, _without(slide.axis))
    found = []
    for moved in (target, slide.loop):
        by = 1 if moved is target else slide.step
        block = substituted(nameless, {moved.var: moved.var + by})
        extents = {s.var: s.extent for s in walk_statements(block) if isinstance(s, For)}
        both = {**extents, target.var: rest, slide.loop.var: overlap}
        found.append(simplify_block(block, state.simplifier.with_loops(both)))
    return found[0] == found[1]


def _without(axis: int) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    return lambda at: _replaced(at, axis, const(0))


# ---------------------------------------------------------------- whether it may be kept


def _straight(
    state: State, target: For, buffer: Buffer, ring: Buffer, slide: _Slide
) -> dict[Expr, Expr]:
    """What the subscripts that instructions go along become. They see places side by side, which
    must not be on both sides of the ring's end, and as far apart in memory as before."""
    found: dict[Expr, Expr] = {}
    depth = _whole(ring.shape[slide.axis])
    for call in (s for s in walk_statements(target.body) if isinstance(s, Call)):
        for operand, region in zip(call.instruction.operands, call.regions, strict=True):
            if region.buffer != buffer:
                continue
            extents = _extents(call, operand)
            along = [variables(i) & set(extents) for i in region.indices]
            if depth != buffer.shape[slide.axis] and any(along[: slide.axis]):
                refuse(f"{region} would be further apart in memory", state, "leave depth out")
            i = region.indices[slide.axis]
            known = state.simplifier.with_loops(extents)
            place = known((i + target.var * slide.step) % depth)
            atoms = [x for x in known.linear(place) if x is not None and x not in extents]
            if any(variables(x) & set(extents) for x in atoms):
                refuse(f"the ring's end may stand in the middle of {region}", state)
            found[i] = place
    return found


def _extents(call: Call, operand: Buffer) -> dict[Var, Dim]:
    """The axes of an operand, as long as they are in a call."""
    fields = zip(call.instruction.fields, call.fields, strict=True)
    values: dict[Expr, Expr] = {f.symbol: value for f, value in fields}
    shape = (as_dim(substitute(as_expr(n), values)) for n in operand.shape)
    return {axis(k): n for k, n in enumerate(shape)}


def _check_kept(
    state: State, target: For, where: Definition, buffer: Buffer, slide: _Slide
) -> None:
    """Elements that were computed k iterations before would be computed the same now."""
    read = {a.buffer for a in accesses((where.nest,)) if not a.writes}
    others = replace_in(target.body, where.nest, None)
    if not read & {a.buffer for a in accesses(others) if a.writes}:
        return
    position = next(i for i, s in enumerate(target.body) if s is where.nest)
    for k in range(1, -(-slide.extent // slide.step)):
        kept = _part(where.nest, slide, 0, slide.extent - k * slide.step)
        old = If(as_expr(target.var) >= k, kept)

        def earlier(path: Path, k: int = k) -> Path:
            """The nest's iterations happen k earlier."""
            if len(path) < 3 or path[2] != position:
                return path
            assert isinstance(path[1], For)
            return (path[0], Late(path[1], -k), *path[2:])

        shifted = target.with_(body=replace_in(target.body, where.nest, old))
        pair = violation((shifted,), (target.var,), earlier, state.simplifier, within=True)
        if pair is not None:
            refuse(f"{buffer.name} would be out of date: {pair}", state)
