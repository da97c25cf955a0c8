"""What must be true of every kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import CompileError
from tilewright.ir.expr import COMBINERS, Buffer, Expr
from tilewright.ir.loop import (
    INDENT,
    WORKER,
    Accumulate,
    Alloc,
    Block,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    Write,
    format_signature,
    format_stmt,
    sub_blocks,
)
from tilewright.ir.verify_expr import BINARY_TAKES, ExprChecker


def verify_kernel(kernel: Kernel) -> None:
    """CompileError, with the place, where the kernel breaks a rule of loop programs."""
    _KernelChecker(kernel).kernel()


class _KernelChecker(ExprChecker):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.program = kernel
        self.at: list[tuple[Block, int]] = []  # the blocks around, and where in them
        self.read_only: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.parallel = 0  # parallel loops around

    def fail(self, what: str, hint: str | None = None) -> CompileError:
        lines = [format_signature(self.program), *_excerpt(self.at)]
        return CompileError(what, program="\n".join(lines), hint=hint)

    def kernel(self) -> None:
        k = self.program
        for buffer in k.params:
            self.declare(buffer)
        self.scalars[WORKER.name] = WORKER
        self.read_only = set(k.inputs)
        self.block(k.body)
        for buffer in k.outputs:
            self.require(buffer in self.written, f"output {buffer.name} is never written")

    def block(self, block: Block) -> None:
        """Statements in order; what they allocate goes out of scope behind them."""
        allocated = []
        for position, stmt in enumerate(block):
            self.at.append((block, position))
            check = _STATEMENTS.get(type(stmt))
            self.require(check is not None, f"{type(stmt).__name__} is not a statement")
            check(self, stmt)
            if isinstance(stmt, Alloc):
                allocated.append(stmt.buffer.name)
            self.at.pop()
        for name in allocated:
            del self.buffers[name]

    def value(self, s: Write) -> DType:
        """What both kinds of write must satisfy; the value's type."""
        self.element(s.buffer, s.indices)
        self.expr(s.value)
        self.require(
            s.buffer not in self.read_only,
            f"input {s.buffer.name} is written",
            "write an output, or a buffer of the kernel's own",
        )
        self.require(
            s.value.dtype == s.buffer.dtype,
            f"a value of {s.value.dtype} is stored in {s.buffer}",
            f"cast({s.buffer.dtype}, …)",
        )
        self.written.add(s.buffer)
        return s.value.dtype


def _check_for(c: _KernelChecker, s: For) -> None:
    c.dim(s.extent, f"the extent of loop {s.var.name}")
    if s.kind in (LoopKind.VECTORIZE, LoopKind.UNROLL):
        c.require(
            not isinstance(s.extent, Expr),
            f"{s.kind.value} loop {s.var.name} runs {s.extent} times, which is not a constant",
            "split it by a constant first",
        )
    parallel = s.kind is LoopKind.PARALLEL
    c.require(
        not (parallel and c.parallel),
        f"parallel loop {s.var.name} stands in another one",
        "workers are shared out once; fuse the loops",
    )
    c.bind(s.var)
    c.parallel += parallel
    c.block(s.body)
    c.parallel -= parallel
    del c.scalars[s.var.name]


def _check_if(c: _KernelChecker, s: If) -> None:
    c.condition(s.cond, "the condition")
    c.block(s.body)
    c.block(s.orelse)


def _check_accumulate(c: _KernelChecker, s: Accumulate) -> None:
    dtype = c.value(s)
    c.require(
        s.op in COMBINERS,
        f"accumulate with {s.op.value}, which is not commutative",
        "the operators are " + ", ".join(sorted(op.value for op in COMBINERS)),
    )
    c.require(dtype.kind in BINARY_TAKES[s.op], f"accumulate with {s.op.value} of {dtype}")


_STATEMENTS: dict[type, Callable[[_KernelChecker, Any], object]] = {
    For: _check_for,
    If: _check_if,
    Alloc: lambda c, s: c.declare(s.buffer),
    Store: lambda c, s: c.value(s),
    Accumulate: _check_accumulate,
}


# ---------------------------------------------------------------- where in the program


def _excerpt(at: list[tuple[Block, int]]) -> list[str]:
    """The statement that was being checked and the heads of those around it; `...` stands for
    what is left out."""
    if not at:
        return [INDENT + "..."]
    (block, position), *inner = at
    stmt = block[position]
    lines = ["..."] if position else []
    if isinstance(stmt, If) and inner and inner[0][0] is stmt.orelse:
        lines += [f"if {stmt.cond}:", INDENT + "...", "else:", *_excerpt(inner)]
    else:
        lines.append(format_stmt(stmt)[0] if isinstance(stmt, Stmt) else repr(stmt))
        if sub_blocks(stmt):
            lines += _excerpt(inner)
    if position + 1 < len(block):
        lines.append("...")
    return [INDENT + line for line in lines]
