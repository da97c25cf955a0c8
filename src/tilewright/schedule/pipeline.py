"""Primitives for overlapping work: fold_init, buffer_ring."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analyze.accesses import accesses
from tilewright.analyze.rewrite import replace_in, rewrite_accesses
from tilewright.ir.expr import Buffer, Dim, Expr, as_expr, const
from tilewright.ir.loop import Alloc, Block, For, If, Store, map_block, map_inner_blocks
from tilewright.schedule.stages import blocks
from tilewright.schedule.state import Loop, State, primitive, refuse


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
def buffer_ring(state: State, buffer: Buffer, loops: Sequence[Loop], depth: int) -> Buffer:
    """Gives a buffer that every iteration of some loops fills anew several places in turn, so that
    one can be filled while another is in use.

        for i: P = alloc([8]); P[…] = …; … P[…]
    ->  P = alloc([depth, 8]); for i: P[i % depth, …] = …; … P[i % depth, …]

    `loops` are the loops around the allocation that take turns, outermost first, each directly in
    the one before. Always legal: no iteration reads what another wrote.
    """
    targets = [state.for_(loop) for loop in loops]
    if depth < 1 or not targets:
        refuse(f"a ring of {depth} places over {len(targets)} loops", state)
    if not any(isinstance(s, Alloc) and s.buffer == buffer for s in targets[-1].body):
        refuse(f"{loops[-1]} does not allocate {buffer.name} in its body", state)
    for outer, inner in zip(targets, targets[1:], strict=False):
        if not any(s is inner for s in outer.body):
            refuse(f"{inner.var.name} does not stand in the body of {outer.var.name}", state)
    ring = buffer.with_(shape=(depth, *buffer.shape))
    turn = _turn(targets) % depth
    inner = targets[-1]
    without = tuple(
        s for s in inner.body if not (isinstance(s, Alloc) and s.buffer == buffer)
    )
    body = rewrite_accesses(without, buffer, ring, lambda at: (turn, *at))
    outermost = replace_in((targets[0],), inner, inner.with_(body=body))
    state.replace(targets[0], (Alloc(ring), *outermost))
    state.simplify_all()
    assert not any(a.buffer == buffer for a in accesses(state.kernel.body))
    return ring


def _turn(loops: Sequence[For]) -> Expr:
    """The number of the iteration, counted over all loops."""
    count: Expr = const(0)
    for loop in loops:
        extent: Dim = loop.extent
        count = count * extent + loop.var
    return count
