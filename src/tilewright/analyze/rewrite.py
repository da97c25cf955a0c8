"""Rewriting loop programs: substitution, replacement, and redirecting accesses."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analyze.simplify import Simplifier
from tilewright.base.node import Node
from tilewright.ir.expr import Buffer, Expr, Load, constant_value
from tilewright.ir.instruction import Region
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Call,
    For,
    If,
    Prefetch,
    Stmt,
    Store,
    map_block,
    map_exprs,
    map_inner_blocks,
)
from tilewright.ir.substitute import Values, mentioned, rewrite, substitute


def replace_in(block: Block, target: Stmt, new: Stmt | Block | None) -> Block:
    """The block with one statement (found by identity) replaced."""

    def visit(stmt: Stmt) -> Stmt | Block | None:
        if stmt is target:
            return new
        return map_inner_blocks(stmt, lambda inner: map_block(inner, visit))

    return map_block(block, visit)


def simplify_block(block: Block, simplifier: Simplifier) -> Block:
    """Simplifies every expression; a conditional that is decided gives way to its branch."""

    def visit(stmt: Stmt) -> Stmt | Block:
        if stmt in simplifier.simple:
            return stmt
        found = simplified(stmt)
        if found is stmt:
            simplifier.simple.add(stmt)
        return found

    def simplified(stmt: Stmt) -> Stmt | Block:
        if isinstance(stmt, If):
            cond = simplifier(stmt.cond)
            taken = constant_value(cond)
            if taken is not None:
                return map_block(stmt.body if taken else stmt.orelse, visit)
            stmt = stmt if cond is stmt.cond else stmt.with_(cond=cond)
            return map_inner_blocks(stmt, lambda b: map_block(b, visit))
        if isinstance(stmt, For):
            extent = simplifier.dim(stmt.extent)
            stmt = stmt if extent == stmt.extent else stmt.with_(extent=extent)
            return map_inner_blocks(stmt, lambda b: map_block(b, visit))
        return map_exprs(stmt, simplifier)

    return map_block(block, visit)


def substitute_block(block: Block, values: Values) -> Block:
    """The block with variables replaced everywhere."""
    return map_block(block, lambda stmt: map_exprs(stmt, lambda e: substitute(e, values)))


def rewrite_accesses(
    block: Block, buffer: Buffer, new: Buffer, place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
) -> Block:
    """Every access to `buffer` becomes one to `new` at place(indices); its Alloc follows. Hints
    follow if `new` is the same buffer in another form: what is prefetched is that buffer still, and
    no other is stored past the caches."""

    def redirect(e: Expr) -> Expr:
        return Load(new, place(e.indices)) if isinstance(e, Load) and e.buffer == buffer else e

    def read(e: Expr) -> Expr:
        return rewrite(e, redirect) if buffer in mentioned(e) else e

    def visit(stmt: Stmt) -> Stmt:
        if buffer not in mentioned(stmt):
            return stmt
        if isinstance(stmt, Alloc):
            return Alloc(new) if stmt.buffer == buffer else stmt
        if isinstance(stmt, Barrier):
            return stmt
        if isinstance(stmt, (For, If)):
            stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
            if isinstance(stmt, If):
                cond = read(stmt.cond)
                return stmt if cond is stmt.cond else stmt.with_(cond=cond)
            return stmt
        if isinstance(stmt, Prefetch) and new.name != buffer.name:
            return stmt
        stmt = map_exprs(stmt, read)
        if isinstance(stmt, Call):
            regions = tuple(
                Region(new, place(r.indices)) if r.buffer == buffer else r for r in stmt.regions
            )
            return stmt if regions == stmt.regions else stmt.with_(regions=regions)
        assert isinstance(stmt, (Store, Accumulate, Prefetch))
        if stmt.buffer == buffer:
            moved = stmt.with_(buffer=new, indices=place(stmt.indices))
            other = isinstance(moved, Store) and new.name != buffer.name
            return moved.with_(nontemporal=False) if other else moved
        return stmt

    return map_block(block, visit)


def uses(node: Node, buffer: Buffer) -> bool:
    """Whether a statement or expression mentions a buffer."""
    return buffer in mentioned(node)
