"""Where allocations live: registers, the stack, or scratch memory that the caller provides."""

from __future__ import annotations

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.ir.expr import Buffer, Dim, Expr, as_dim, as_expr, product
from tilewright.ir.loop import (
    WORKER,
    Alloc,
    Block,
    For,
    Kernel,
    LoopKind,
    Stmt,
    map_block,
    map_inner_blocks,
)

STACK_BYTES = 32 << 10  # largest allocation on a worker's stack; smaller than any default guard


def place_storage(kernel: Kernel, *, workers: int) -> Kernel:
    """Small constant allocations go to the stack (registers, after LLVM's promotion); the others
    become scratch parameters, one copy for each worker where a parallel loop allocates.

    Allocations are moved to the start of the kernel, or of the parallel loop's body: what a
    buffer holds does not outlast its block, so one place serves all iterations.
    """
    scratch: list[Buffer] = []
    body = _place(kernel.body, False, workers, scratch)
    return kernel.with_(body=body, scratch=kernel.scratch + tuple(scratch))


def _place(block: Block, inside: bool, workers: int, scratch: list[Buffer]) -> Block:
    """Handles the allocations of one function body (the kernel, or one parallel loop)."""
    stacked: list[Stmt] = []
    moved: list[Buffer] = []

    def collect(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Alloc):
            if fits_stack(stmt.buffer):
                stacked.append(stmt)
            else:
                moved.append(stmt.buffer)
            return None
        if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
            body = _place(stmt.body, True, workers, scratch)
            return stmt if body is stmt.body else stmt.with_(body=body)
        return map_inner_blocks(stmt, lambda b: map_block(b, collect))

    block = map_block(block, collect)
    for buffer in moved:
        block = _to_scratch(block, buffer, inside, workers, scratch)
    return (*stacked, *block) if stacked else block


def fits_stack(buffer: Buffer) -> bool:
    """Whether an allocation has a constant size that a stack takes."""
    size: Dim = as_dim(as_expr(product((*buffer.shape, buffer.dtype.bytes))))
    return isinstance(size, int) and size <= STACK_BYTES


def _to_scratch(
    block: Block, buffer: Buffer, inside: bool, workers: int, scratch: list[Buffer]
) -> Block:
    shape = (workers, *buffer.shape) if inside else buffer.shape
    param = Buffer(buffer.name, buffer.dtype, shape, "dram")
    scratch.append(param)

    def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (WORKER, *at) if inside else at

    return rewrite_accesses(block, buffer, param, place)
