"""A model's kernel as instructions of chips are matched with it: no axes of one element, and what
is cheap to compute again computed where it is read.

    for n in range(1):                                      for o, h, w:
        pad[n, c, …] = select(inside, x[n, c, …], 0)   ->       sum[o, h, w] +=
        …                                                           select(inside, x[c, …], 0) · …

An axis of one element is no axis of an instruction's, and a batch of one is no loop. The arrays are
the same bytes: a row-major array without such axes lies in memory as before.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.analyze.nests import nests
from tilewright.analyze.rewrite import rewrite_accesses, simplify_block, substitute_block
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import index
from tilewright.ir.expr import Buffer, Expr, const
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    Kernel,
    Stmt,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.schedule.core.attempt import attempt
from tilewright.schedule.schedule import Schedule


def device_form(kernel: Kernel, keep: Collection[str] = ()) -> Kernel:
    """The kernel in that form; parameters called in `keep` keep their axes."""
    s = Schedule(kernel)
    for buffer in list(s.allocations()):
        found = [n for n in nests(s.kernel.body) if n.buffer == buffer]
        if len(found) == 1 and not found[0].reduce:
            attempt(s.inline, buffer)
    return without_unit_axes(s.kernel, keep)


def without_unit_axes(kernel: Kernel, keep: Collection[str] = ()) -> Kernel:
    """The kernel without loops of one iteration and without axes of one element."""
    body = map_block(kernel.body, _without_unit_loops)
    local = {x.buffer for x in walk_statements(body) if isinstance(x, Alloc)}
    new: dict[Buffer, Buffer] = {}
    for buffer in (*kernel.params, *local):
        kept = [d for d, n in enumerate(buffer.shape) if n != 1]
        if buffer.name in keep or len(kept) == len(buffer.shape):
            continue
        new[buffer] = buffer.with_(shape=tuple(buffer.shape[d] for d in kept) or (1,))

        def place(at: tuple[Expr, ...], kept: list[int] = kept) -> tuple[Expr, ...]:
            return tuple(at[d] for d in kept) or (const(0, index),)

        body = rewrite_accesses(body, buffer, new[buffer], place)
    extents = {x.var: x.extent for x in walk_statements(body) if isinstance(x, For)}
    return kernel.with_(
        inputs=tuple(new.get(b, b) for b in kernel.inputs),
        outputs=tuple(new.get(b, b) for b in kernel.outputs),
        body=simplify_block(body, Simplifier(extents)),
    )


def _without_unit_loops(stmt: Stmt) -> Stmt | Block:
    stmt = map_inner_blocks(stmt, lambda b: map_block(b, _without_unit_loops))
    if isinstance(stmt, For) and stmt.extent == 1:
        return substitute_block(stmt.body, {stmt.var: const(0, index)})
    return stmt
