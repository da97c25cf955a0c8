"""Primitives for overlapping work: fold_init, multi_buffer, pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from operator import ge, lt

from tilewright.analyze.accesses import accesses
from tilewright.analyze.dependence import Late, Path, violation
from tilewright.analyze.rewrite import replace_in, rewrite_accesses, substitute_block, uses
from tilewright.ir.expr import Buffer, Dim, Expr, as_dim, as_expr, const
from tilewright.ir.loop import Alloc, Block, For, If, Stmt, Store, map_block, map_inner_blocks
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.annotate import check_may_cut
from tilewright.schedule.primitives.loops import copy_block, plain_loop
from tilewright.schedule.primitives.stages import blocks
from tilewright.schedule.trace.steps import Loop


@primitive
def fold_init(state: State, buffer: Buffer, loop: Loop) -> None:
    """Moves the initialisation of a reduction into the first iteration of its loop.

        C = 0; for k: C += …   ->   for k: { if k == 0: C = 0;  C += … }

    Legal when the initialisation stands right before the loop, which runs at least once.
    """
    target = state.for_(loop)
    home = next(b for b in blocks(state.kernel.body) if any(s is target for s in b))
    position = next(i for i, s in enumerate(home) if s is target)
    init = home[position - 1] if position else None
    store = init.body[0] if isinstance(init, If) and len(init.body) == 1 else init
    if not isinstance(store, Store) or store.buffer != buffer:
        refuse(f"no initialisation of {buffer.name} stands right before {loop}", state)
    if not state.simplifier.proves(as_expr(target.extent) >= 1):
        refuse(f"{loop} may not run at all", state)
    first = as_expr(loop.var).equals(0)
    cond = first & init.cond if isinstance(init, If) else first
    folded = target.with_(body=(If(cond, (store,)), *target.body))

    def visit(block: Block) -> Block:
        if block is home:
            return (*home[: position - 1], folded, *home[position + 1 :])
        return map_block(block, lambda s: map_inner_blocks(s, visit))

    state.set_body(visit(state.kernel.body))


@primitive
def multi_buffer(state: State, buffer: Buffer, loops: Sequence[Loop], depth: int) -> Buffer:
    """Gives a buffer that every iteration of some loops fills anew several places in turn, so that
    one can be filled while another is in use.

        for i: P = alloc([8]); P[…] = …; … P[…]
    ->  P = alloc([depth, 8]); for i: P[i % depth, …] = …; … P[i % depth, …]

    `loops` are the loops around the allocation that take turns, outermost first, each directly in
    the one before. Always legal: no iteration reads what another wrote.
    """
    targets = [plain_loop(state, loop) for loop in loops]
    if depth < 1 or not targets:
        refuse(f"a ring of {depth} places over {len(targets)} loops", state)
    if not any(isinstance(s, Alloc) and s.buffer == buffer for s in targets[-1].body):
        refuse(f"{loops[-1]} does not allocate {buffer.name} in its body", state)
    for outer, inner in itertools.pairwise(targets):
        if not any(s is inner for s in outer.body):
            refuse(f"{inner.var.name} does not stand in the body of {outer.var.name}", state)
    ring = buffer.with_(shape=(depth, *buffer.shape))
    turn = _turn(targets) % depth
    inner = targets[-1]
    without = tuple(s for s in inner.body if not (isinstance(s, Alloc) and s.buffer == buffer))
    body = rewrite_accesses(without, buffer, ring, lambda at: (turn, *at))
    outermost = replace_in((targets[0],), inner, inner.with_(body=body))
    state.replace(targets[0], (Alloc(ring), *outermost))
    state.simplify_all()
    assert not any(a.buffer == buffer for a in accesses(state.kernel.body))
    return ring


@primitive
def pipeline(state: State, loop: Loop, stages: Sequence[int], order: Sequence[int] = ()) -> Loop:
    """Overlaps iterations: each statement of the body gets a stage, and one step of the new loop
    does stage s of iteration i - s. Statements of a step are done in the order of the body, or in
    that of the numbers in `order`, one for each statement.

        for i in n: { A(i); B(i) }     with stages (0, 1)
    ->  A(0);  for i in n - 1: { A(i + 1); B(i) };  B(n - 1)

    Buffers that the body allocates get as many places as iterations use them at a time, in turn.
    Legal when no two accesses to one element, one of them a write, change their order.
    """
    target = plain_loop(state, loop)
    check_may_cut(state, target)
    body = tuple(s for s in target.body if not isinstance(s, Alloc))
    if len(stages) != len(body) or min(stages, default=1) != 0:
        refuse(f"{len(body)} statements need a stage each, the first of them 0: {stages}", state)
    places = tuple(order) or tuple(range(len(body)))
    if sorted(places) != list(range(len(body))):
        refuse(f"{len(body)} statements need a place each, from 0 on: {places}", state)
    last = max(stages)
    n = as_expr(target.extent)
    if not state.simplifier.proves(n >= last):
        refuse(f"{loop} may run fewer than {last} times", state)
    rings, body = _rings(target, body, stages)
    _check_pipelined(state, target.with_(body=body), stages, places)
    turns = sorted(range(len(body)), key=places.__getitem__)
    body, stages = tuple(body[k] for k in turns), [stages[k] for k in turns]
    steps: list[Stmt] = []
    taken = state.names()
    for step in range(last):  # prologue: what the first steps do before all stages are busy
        steps += _step(taken, body, stages, target, as_expr(step), partial(ge, step))
    steady = _step(None, body, stages, target, loop.var + last, lambda s: True)
    steps.append(target.with_(extent=as_dim(state.simplifier(n - last)), body=steady))
    for step in range(last):  # epilogue
        steps += _step(taken, body, stages, target, n + step, partial(lt, step))
    state.replace(target, (*(Alloc(ring) for ring in rings), *steps))
    state.simplify_all()
    return loop


def _rings(target: For, body: Block, stages: Sequence[int]) -> tuple[list[Buffer], Block]:
    """Buffers of the body, with a place for each iteration that is under way at the same time."""
    rings: list[Buffer] = []
    for stmt in target.body:
        if not isinstance(stmt, Alloc):
            continue
        users = [g for s, g in zip(body, stages, strict=True) if uses(s, stmt.buffer)]
        depth = max(users, default=0) - min(users, default=0) + 1
        ring = stmt.buffer.with_(shape=(depth, *stmt.buffer.shape))

        def place(at: tuple[Expr, ...], turn: Expr = target.var % depth) -> tuple[Expr, ...]:
            return (turn, *at)

        body = rewrite_accesses(body, stmt.buffer, ring, place)
        rings.append(ring)
    return rings, body


def _step(
    taken: set[str] | None,
    body: Block,
    stages: Sequence[int],
    target: For,
    now: Expr,
    wanted: Callable[[int], bool],
) -> Block:
    """What one step does: every wanted stage s of iteration now - s. A copy beside the loop has
    names of its own (none of `taken`)."""
    out: list[Stmt] = []
    for stmt, stage in zip(body, stages, strict=True):
        if wanted(stage):
            copy = (stmt,) if taken is None else copy_block((stmt,), taken)
            out += substitute_block(copy, {target.var: now - stage})
    return tuple(out)


def _check_pipelined(
    state: State, target: For, stages: Sequence[int], places: Sequence[int]
) -> None:
    """Stage s of an iteration happens s steps later; within a step, statements have places."""

    def shifted(path: Path) -> Path:
        if not isinstance(path[1], For) or path[1] is not target:
            return path
        position = path[2]
        assert isinstance(position, int)
        late = Late(target, stages[position])
        return (path[0], late, places[position], *path[3:])

    pair = violation((target,), (target.var,), shifted, state.simplifier, within=True)
    if pair is not None:
        refuse(f"the order matters: {pair}", state)


def _turn(loops: Sequence[For]) -> Expr:
    """The number of the iteration, counted over all loops."""
    count: Expr = const(0)
    for loop in loops:
        extent: Dim = loop.extent
        count = count * extent + loop.var
    return count
