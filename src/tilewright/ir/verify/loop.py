"""What must be true of every kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.dtype import DType, index
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import COMBINERS, Buffer, Const, Expr
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.lanes import lanes_of
from tilewright.ir.loop import (
    INDENT,
    WORKER,
    Accumulate,
    Alloc,
    Barrier,
    Block,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    Write,
    buffers_written,
    format_signature,
    format_stmt,
    loads,
    sub_blocks,
)
from tilewright.ir.nesting import Kind, Order, bound_axes, misplaced
from tilewright.ir.verify.expr import BINARY_TAKES, ExprChecker

CACHES = 3  # that a prefetch may name


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
        self.around: list[Kind] = []  # the kinds of the loops around
        self.order: Order = set()

    def fail(self, what: str, hint: str | None = None) -> CompileError:
        lines = [format_signature(self.program), *_excerpt(self.at)]
        return CompileError(what, program="\n".join(lines), hint=hint)

    def kernel(self) -> None:
        k = self.program
        for buffer in k.params:
            self.declare(buffer)
        self.scalars[WORKER.name] = WORKER
        self.read_only = set(k.inputs)
        self.finite(k.inputs, k.finite)
        self.block(k.body)
        for buffer in k.outputs:
            self.require(buffer in self.written, f"output {buffer.name} is never written")

    def block(self, block: Block) -> None:
        """Statements in order; what they allocate goes out of scope behind them."""
        allocated = []
        for position, stmt in enumerate(block):
            self.at.append((block, position))
            check = _STATEMENTS.get(type(stmt))
            if check is None:
                raise self.fail(f"{type(stmt).__name__} is not a statement")
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
        self.write(s.buffer)
        self.require(
            s.value.dtype == s.buffer.dtype,
            f"a value of {s.value.dtype} is stored in {s.buffer}",
            f"cast({s.buffer.dtype}, …)",
        )
        mask = s.mask if isinstance(s, Store) else None
        if mask is not None:
            self.condition(mask, "the mask")
        lanes = lanes_of(s.value)
        places = max(map(lanes_of, s.indices if mask is None else (mask, *s.indices)), default=1)
        self.require(lanes in (1, places), f"{lanes} lanes are stored in {places} places")
        return s.value.dtype

    def write(self, buffer: Buffer) -> None:
        self.require(
            buffer not in self.read_only,
            f"input {buffer.name} is written",
            "write an output, or a buffer of the kernel's own",
        )
        self.written.add(buffer)

    def region(self, operand: Buffer, region: Region) -> None:
        """What an operand of an instruction stands for: elements of a buffer where the operand may
        lie, at subscripts of the operand's axes."""
        axes = [axis(k) for k in range(len(operand.shape))]
        for var in axes:
            self.require(
                var.name not in self.scalars,
                f"loop {var.name} has the name of an operand's axis",
                "rename the loop",
            )
            self.scalars[var.name] = var
        self.element(region.buffer, region.indices)
        for var in axes:
            del self.scalars[var.name]
        wanted, found = ((b.dtype, b.memory) for b in (operand, region.buffer))
        self.require(
            wanted == found or (wanted[0] == found[0] and not wanted[1]),
            f"operand {operand.name} is {wanted[0]} in {wanted[1]}, but {region.buffer.name} is"
            f" {found[0]} in {found[1]}",
            "set_memory, or cache_read and cache_write, move data where an instruction takes it",
        )


def _check_for(c: _KernelChecker, s: For) -> None:
    c.dim(s.extent, f"the extent of loop {s.var.name}")
    if s.kind in (LoopKind.VECTORIZE, LoopKind.UNROLL):
        c.require(
            not isinstance(s.extent, Expr),
            f"{s.kind.value} loop {s.var.name} runs {s.extent} times, which is not a constant",
            "split it by a constant first",
        )
    found = misplaced(s, c.around, c.order)
    c.require(found is None, found.what if found else "", found.hint if found else None)
    c.bind(s.var)
    c.around.append(s.kind)
    c.block(s.body)
    c.around.pop()
    del c.scalars[s.var.name]


def _check_barrier(c: _KernelChecker, s: Barrier) -> None:
    axes = bound_axes(c.around)
    c.require(
        s.axis not in axes,
        f"a barrier of {s.axis} stands in a loop bound to {s.axis}",
        "put the barrier between two loops: each is what the workers do up to it",
    )
    c.require(LoopKind.VECTORIZE not in c.around, f"a barrier of {s.axis} stands in a vector loop")
    for outer in axes:
        c.require(
            (outer, s.axis) not in c.order,
            f"a barrier of {s.axis} stands in a loop bound to {outer}, an axis inside of {s.axis}",
        )
        c.order.add((s.axis, outer))


def _check_prefetch(c: _KernelChecker, s: Prefetch) -> None:
    c.element(s.buffer, s.indices)
    c.require(s.buffer in c.program.params, f"{s.buffer.name} is no parameter, and is prefetched")
    c.require(1 <= s.level <= CACHES, f"there is no cache {s.level}", f"1 … {CACHES}")
    read = [x for i in s.indices for x in loads(i)]
    c.require(not read, f"where {s.buffer.name} is prefetched is read from memory: {s}")


def _check_if(c: _KernelChecker, s: If) -> None:
    c.condition(s.cond, "the condition")
    if lanes_of(s.cond) > 1:
        raise c.fail(f"the condition {s.cond} differs from lane to lane", "mask what it is of")
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


def _check_call(c: _KernelChecker, s: Call) -> None:
    i = s.instruction
    c.require(
        len(s.regions) == len(i.operands) and len(s.fields) == len(i.fields),
        f"{i.name} takes {len(i.operands)} operands and {len(i.fields)} fields",
    )
    changed = _operands_written(i)
    for operand, region in zip(i.operands, s.regions, strict=True):
        c.region(operand, region)
        if operand in changed:
            c.write(region.buffer)
    for field, value in zip(i.fields, s.fields, strict=True):
        c.expr(value)
        c.require(value.dtype == index, f"field {field.name} is {value.dtype}, not {index}")
        c.require(
            not isinstance(value, Const) or field.admits(int(value.value)),
            f"field {field.name} of {i.name} is {value}",
            f"it takes {field.low} … {field.high}, multiples of {field.multiple}",
        )
    fields = zip(i.fields, s.fields, strict=True)
    values = {f.symbol: np.int64(v.value) for f, v in fields if isinstance(v, Const)}
    if len(values) == len(i.fields):
        for limit in i.limits:
            holds = bool(evaluate_expr(limit, values, {}))
            c.require(holds, f"the limit {limit} of {i.name} does not hold")


@functools.cache
def _operands_written(instruction: Instruction) -> frozenset[Buffer]:
    return frozenset(buffers_written(instruction.body))


_STATEMENTS: dict[type, Callable[[_KernelChecker, Any], object]] = {
    Call: _check_call,
    For: _check_for,
    If: _check_if,
    Alloc: lambda c, s: c.declare(s.buffer),
    Store: lambda c, s: c.value(s),
    Accumulate: _check_accumulate,
    Barrier: _check_barrier,
    Prefetch: _check_prefetch,
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
