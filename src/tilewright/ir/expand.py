"""An instruction call as what it means: loops over the buffers it is applied to."""

from __future__ import annotations

import functools

import numpy as np

from tilewright.ir.expr import Buffer, Expr, Load, Var, as_dim, constant_value
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
    map_block,
    map_exprs,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, substitute


@functools.lru_cache(maxsize=4096)
def expand_call(call: Call) -> Block:
    """The body of the call's instruction with regions and fields put in. Its loops and its own
    buffers are called `instruction.loop`, so that they cannot meet the names around the call."""
    instruction = call.instruction
    inner = list(walk_statements(instruction.body))
    loops = [s.var for s in inner if isinstance(s, For)]
    values: dict[Expr, Expr] = {v: Var(f"{instruction.name}.{v.name}") for v in loops}
    values |= {f.symbol: value for f, value in zip(instruction.fields, call.fields, strict=True)}
    regions = dict(zip(instruction.operands, call.regions, strict=True))
    for own in (s.buffer for s in inner if isinstance(s, Alloc)):
        renamed = own.with_(name=f"{instruction.name}.{own.name}")
        regions[own] = Region(renamed, tuple(axis(d) for d in range(len(own.shape))))

    def replaced(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in regions:
            region = regions[e.buffer]
            return Load(region.buffer, region.at(e.indices, substitute))
        return values.get(e, e)

    def expression(e: Expr) -> Expr:
        return rewrite(e, replaced)

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        if isinstance(stmt, For):
            extent = stmt.extent
            new = values[stmt.var]
            extent = as_dim(expression(extent)) if isinstance(extent, Expr) else extent
            return stmt.with_(var=new, extent=extent)
        if isinstance(stmt, If):
            return stmt.with_(cond=expression(stmt.cond))
        if isinstance(stmt, Alloc):
            return Alloc(regions[stmt.buffer].buffer)
        stmt = map_exprs(stmt, expression)
        return _redirect(stmt, regions) if isinstance(stmt, (Store, Accumulate)) else stmt

    return map_block(instruction.body, visit)


def _redirect(stmt: Store | Accumulate, regions: dict[Buffer, Region]) -> Stmt:
    region = regions.get(stmt.buffer)
    if region is None:
        return stmt
    return stmt.with_(buffer=region.buffer, indices=region.at(stmt.indices, substitute))


def least_fields(call: Call) -> dict[Expr, np.int64]:
    """Returns the value of each field of a call, for its cost: the least where it is no number."""
    fields = zip(call.instruction.fields, call.fields, strict=True)
    return {f.symbol: np.int64(constant_value(e) or f.low) for f, e in fields}
