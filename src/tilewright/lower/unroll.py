"""Unrolling: loops marked so become copies of their body; loops of one iteration their body."""

from __future__ import annotations

from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Dim, Expr, Var, as_dim, as_expr, const, constant_value
from tilewright.ir.loop import (
    Alloc,
    Block,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    map_block,
    map_exprs,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute


def unroll(kernel: Kernel) -> Kernel:
    """Replaces every loop marked UNROLL by copies of its body, one for each iteration.

    A body that allocates keeps its loop: its buffers would need new names.
    """
    loops = (s for s in walk_statements(kernel.body) if isinstance(s, For))
    unroller = _Unroller({s.var: s.extent for s in loops})
    body = map_block(kernel.body, lambda s: map_exprs(s, unroller.simplifier))
    body = map_block(body, unroller.visit)
    return kernel if body is kernel.body else kernel.with_(body=body)


class _Unroller:
    """Rewrites statements; knows the names of all loops, so that copies get new ones."""

    def __init__(self, extents: dict[Var, Dim]) -> None:
        self.simplifier = Simplifier(extents)
        self.taken = {v.name for v in extents}

    def visit(self, stmt: Stmt) -> Stmt | Block:
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, self.visit))
        if not isinstance(stmt, For):
            return stmt
        if stmt.extent == 1 and stmt.kind is not LoopKind.PARALLEL:
            return stmt.body  # simplified subscripts do not mention its variable
        if stmt.kind is not LoopKind.UNROLL or _allocates(stmt.body):
            return stmt
        return self._copies(stmt)

    def _copies(self, stmt: For) -> Stmt | Block:
        """The body once for each iteration. Around a single vector loop the copies go into it:
        its lanes are independent, so the two loops may be exchanged."""
        assert isinstance(stmt.extent, int)
        if len(stmt.body) == 1 and isinstance(stmt.body[0], For):
            inner = stmt.body[0]
            if inner.kind is LoopKind.VECTORIZE:
                return inner.with_(body=self._copies(stmt.with_(body=inner.body)))
        return tuple(s for i in range(stmt.extent) for s in self._instance(stmt, i))

    def _instance(self, loop: For, i: int) -> Block:
        """The body for one iteration; conditions that are decided give way to their branch."""
        values: dict[Expr, Expr] = {loop.var: const(i)}
        for inner in walk_statements(loop.body):
            if isinstance(inner, For) and i > 0:
                values[inner.var] = self._copy_of(inner.var, i)

        known: dict[Expr, Expr] = {}  # operands are read by several statements

        def expression(e: Expr) -> Expr:
            if e not in known:
                new = substitute(e, values)
                known[e] = e if new is e else self.simplifier(new)
            return known[e]

        def visit(stmt: Stmt) -> Stmt | Block:
            if isinstance(stmt, If):
                cond = expression(stmt.cond)
                taken = constant_value(cond)
                if taken is not None:
                    return map_block(stmt.body if taken else stmt.orelse, visit)
                return map_inner_blocks(stmt, lambda b: map_block(b, visit)).with_(cond=cond)
            if isinstance(stmt, For):
                var = values.get(stmt.var, stmt.var)
                extent = as_dim(expression(as_expr(stmt.extent)))
                inner = map_inner_blocks(stmt, lambda b: map_block(b, visit))
                return inner.with_(var=var, extent=extent)
            return map_exprs(stmt, expression)

        return map_block(loop.body, visit)

    def _copy_of(self, var: Var, i: int) -> Var:
        name, n = f"{var.name}_u{i}", 1
        while name in self.taken:
            name, n = f"{var.name}_u{i}_{n}", n + 1
        self.taken.add(name)
        copy = Var(name, var.dtype)
        self.simplifier.extents[copy] = self.simplifier.extents[var]
        return copy


def _allocates(block: Block) -> bool:
    """Buffers need names of their own: such bodies are not copied."""
    return any(isinstance(s, Alloc) for s in walk_statements(block))
