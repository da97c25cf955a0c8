"""The primitive that interleaves the iterations of a loop, statement by statement: vthread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analyze.dependence import Path, violation
from tilewright.analyze.rewrite import rewrite_accesses, substitute_block
from tilewright.ir.expr import Buffer, Var, as_dim, as_expr
from tilewright.ir.loop import Alloc, Block, For, If, LoopKind, Stmt, loads, walk_statements
from tilewright.ir.substitute import variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.annotate import check_may_cut
from tilewright.schedule.primitives.loops import plain_loop
from tilewright.schedule.trace.steps import Loop


@primitive
def vthread(state: State, loop: Loop, n: int, through: Sequence[Loop] = ()) -> tuple[Loop, ...]:
    """Shares a loop among n virtual threads, which run in step: all of them do a statement of the
    body, then all do the next.

        for i in 8: { P = alloc([4]); A(i, P); B(i, P) }     with n = 2
    ->  for i in 4: P = alloc([2, 4]); for v in 2: A(v*4 + i, P[v]);  for v in 2: B(v*4 + i, P[v])

    Each thread does consecutive iterations, and has its own copy of the buffers that the body
    allocates. Loops of the body named in `through` are gone through in step as well, one iteration
    at a time. Legal when no two accesses to one element, one of them a write, change their order.
    Returns the loops over the threads; `loop` becomes the one over the iterations of each.
    """
    target = plain_loop(state, loop)
    check_may_cut(state, target)
    if any(s.kind is LoopKind.VECTORIZE for s in state.loops_around(target)):
        refuse(f"{loop} stands in a vector loop", state)
    inside = _gone_through(state, target, through)
    if n < 1:
        refuse(f"there must be at least 1 thread, not {n}", state)
    total = as_expr(target.extent)
    count = as_dim(state.simplifier((total + (n - 1)) // n))
    thread = Var(state.fresh(f"{loop}_v"))
    at = as_expr(thread) * count + loop.var
    known = state.simplifier.with_loops({thread: n, loop.var: count})
    guard = None if known.proves(at < total) else known(at < total)
    body = substitute_block(target.body, {loop.var: at})

    def alone(stmt: Stmt) -> Block:
        return (stmt,) if guard is None else (If(guard, (stmt,)),)

    steps = target.with_(extent=count, body=_each(body, inside, alone))
    before = For(thread, n, (steps,))
    pair = violation((before,), (thread,), lambda path: _in_step(path, inside), known)
    if pair is not None:
        hint = (
            None if isinstance(count, int) else f"split {loop} by a constant, and share the tiles"
        )
        refuse(f"the order matters: {pair}", state, hint)
    taken, threads = state.names(), []

    def shared(stmt: Stmt) -> Block:
        """One statement, done by all threads."""
        var = _fresh(thread.name, taken)
        threads.append(Loop(var))
        return (For(var, n, substitute_block(alone(stmt), {thread: var})),)

    for buffer in _allocated(body, inside):
        own = buffer.with_(shape=(n, *buffer.shape))
        body = rewrite_accesses(body, buffer, own, lambda at: (thread, *at))
    state.replace(target, target.with_(extent=count, body=_each(body, inside, shared)))
    state.simplify_all()
    return tuple(threads)


def _gone_through(state: State, target: For, through: Sequence[Loop]) -> set[Var]:
    """The loops that the threads go through in step: reached through one another, and the same
    for all threads."""
    wanted = {loop.var: plain_loop(state, loop) for loop in through}
    reached = _reached(target.body, set(wanted))
    for var, stmt in wanted.items():
        if var not in reached:
            what = f"in the body of {target.var.name}, or of a loop in it that is named too"
            refuse(f"{var.name} does not stand {what}", state)
        extent = as_expr(stmt.extent)
        if target.var in variables(extent) or any(True for _ in loads(extent)):
            refuse(f"the extent of {var.name} may differ from thread to thread", state)
    return reached


def _reached(block: Block, wanted: set[Var]) -> set[Var]:
    found: set[Var] = set()
    for stmt in block:
        if isinstance(stmt, For) and stmt.var in wanted:
            found |= {stmt.var} | _reached(stmt.body, wanted)
    return found


def _each(block: Block, inside: set[Var], done: Callable[[Stmt], Block]) -> Block:
    """The block with done(statement) for every statement that the threads take turns in."""
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, For) and stmt.var in inside:
            out.append(stmt.with_(body=_each(stmt.body, inside, done)))
        elif isinstance(stmt, Alloc):
            out.append(stmt)
        else:
            out += done(stmt)
    return tuple(out)


def _allocated(block: Block, inside: set[Var]) -> list[Buffer]:
    """What the threads have copies of: allocations that do not stand in one of their turns."""
    return [
        s.buffer
        for s in walk_statements(_each(block, inside, lambda stmt: ()))
        if isinstance(s, Alloc)
    ]


def _in_step(path: Path, inside: set[Var]) -> Path:
    """The time of an access when the threads run in step: the thread's number comes behind the
    statement's position, and behind the loops that are gone through."""
    _, thread, _, steps, *rest = path
    split = 1
    while split + 1 < len(rest) and _is_loop(rest[split], inside):
        split += 2
    return (0, steps, *rest[:split], thread, *rest[split:])


def _is_loop(x: object, inside: set[Var]) -> bool:
    return isinstance(x, For) and x.var in inside


def _fresh(name: str, taken: set[str]) -> Var:
    unique, n = name, 1
    while unique in taken:
        unique, n = f"{name}_{n}", n + 1
    taken.add(unique)
    return Var(unique)
