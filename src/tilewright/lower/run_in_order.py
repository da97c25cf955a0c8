"""Kernels for several workers, run by one."""

from __future__ import annotations

from tilewright.ir.loop import (
    Barrier,
    For,
    Kernel,
    LoopKind,
    Stmt,
    map_block,
    map_inner_blocks,
)


def run_in_order(kernel: Kernel) -> Kernel:
    """Makes bound loops plain ones and drops barriers, for a chip without axes: a bound loop is
    whole before what stands behind it begins, so nobody has to wait."""

    def visit(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Barrier):
            return None
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        bound = isinstance(stmt, For) and stmt.axis is not None
        return stmt.with_(kind=LoopKind.SERIAL) if bound else stmt

    body = map_block(kernel.body, visit)
    return kernel if body is kernel.body else kernel.with_(body=body)
