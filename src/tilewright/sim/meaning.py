"""What one call of a program does, as machine code: the meaning of its instruction with the steps
of its operands put in, scheduled for the host's vectors.

Calls of one instruction whose operands step alike are one function, whatever program they are in.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.nests import accesses_of, stride
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.base.passes import run_passes
from tilewright.codegen.llvm import emit_kernel
from tilewright.codegen.machine import compile_object
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import Buffer, Expr, as_expr, const
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import (
    Accumulate,
    Call,
    For,
    Kernel,
    LoopKind,
    Store,
    buffers_written,
    symbols,
    walk_statements,
)
from tilewright.lower.native import native_passes
from tilewright.runtime.loader import LoadedCode, load_code
from tilewright.schedule.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.steps import Loop
from tilewright.target.target import Target

Steps = tuple[tuple[int, ...], ...]  # bytes, of each operand along each of its axes
Listed = tuple[Expr | None, ...]  # elements, of each operand at an entry of its list
MOST_LANES = 64
ENDLESS = 1 << 40  # elements of an operand: it is not known where its buffer ends
RUN = "run_site"


@dataclass(frozen=True, eq=False)
class SiteCode:
    """Machine code of `void run(const int64_t *fields, char *const *operands)`, at `address`."""

    code: LoadedCode
    address: int


@functools.lru_cache(maxsize=1024)
def site_code(instruction: Instruction, steps: Steps, listed: Listed, host: Target) -> SiteCode:
    """The function for calls of an instruction whose operands have these steps."""
    kernel = vectorized(site_kernel(instruction, steps, listed))
    lowered = run_passes(kernel, native_passes(host), stage="lowered", subject=kernel.name)
    if lowered.scratch:
        held = ", ".join(map(str, lowered.scratch))
        raise CompileError(
            f"the meaning of {instruction} needs {held}, more than a stack holds",
            hint="give it an operand for that, or make it smaller",
        )
    text = emit_kernel(lowered, host) + _entry(instruction, lowered)
    code = load_code([(kernel.name, compile_object(text, host.native))], [RUN])
    return SiteCode(code, code.addresses[RUN])


def site_kernel(instruction: Instruction, steps: Steps, listed: Listed) -> Kernel:
    """The meaning of a call: operands are flat buffers that begin at their first element."""
    regions, params = [], []
    for operand, moves, entry in zip(instruction.operands, steps, listed, strict=True):
        flat = Buffer(operand.name, operand.dtype, (ENDLESS,))
        position: Expr = const(0) if entry is None else entry
        for d, step in enumerate(moves):
            position = position + as_expr(axis(d)) * (step // operand.dtype.bytes)
        regions.append(Region(flat, (position,)))
        params.append(flat)
    call = Call(instruction, tuple(regions), tuple(f.symbol for f in instruction.fields))
    body = expand_call(call)
    written = buffers_written(body)
    inputs = tuple(b for b in params if b not in written)
    outputs = tuple(b for b in params if b in written)
    return Kernel(f"site_{instruction.name}", inputs, outputs, body)


def _entry(instruction: Instruction, lowered: Kernel) -> str:
    """LLVM's text of the function that takes fields and operands from arrays."""
    lines, arguments = [], ["ptr null"]
    operands = {b.name: k for k, b in enumerate(instruction.operands)}
    for b in lowered.params:
        k = operands[b.name]
        lines += [
            f"  %po{k} = getelementptr ptr, ptr %operands, i64 {k}",
            f"  %o{k} = load ptr, ptr %po{k}",
        ]
        arguments.append(f"ptr %o{k}")
    fields = {f.name: k for k, f in enumerate(instruction.fields)}
    for symbol in symbols(lowered):
        k = fields[symbol.name]
        lines += [
            f"  %pf{k} = getelementptr i64, ptr %fields, i64 {k}",
            f"  %f{k} = load i64, ptr %pf{k}",
        ]
        arguments.append(f"i64 %f{k}")
    call = f"  call void @{lowered.name}({', '.join(arguments)})"
    head = f"\ndefine void @{RUN}(ptr %fields, ptr %operands) {{"
    return "\n".join([head, *lines, call, "  ret void", "}", ""])


# ---------------------------------------------------------------- vectors


def vectorized(kernel: Kernel) -> Kernel:
    """The kernel with a vector loop around every write that has one along which each access moves
    by one element or none. Sums of floats are taken in order: results are the same on all hosts."""
    s = Schedule(kernel)
    tried: set[Loop] = set()
    while True:
        found = next((loop for loop in _vector_loops(s) if loop not in tried), None)
        if found is None:
            return s.kernel
        tried.add(found)
        try:
            s.vectorize(_lanes(s, found))
        except ScheduleError:  # its iterations depend on each other: another loop may do
            continue


def _vector_loops(s: Schedule) -> Iterator[Loop]:
    """For writes without a vector loop, the loops that could be one, the best first."""
    for stmt in walk_statements(s.kernel.body):
        if not isinstance(stmt, (Store, Accumulate)):
            continue
        loops = s.loops_around(stmt)
        if any(x.kind is LoopKind.VECTORIZE for x in loops):
            continue
        rated = [(_fitness(s, stmt, x), k) for k, x in enumerate(loops)]
        yield from (Loop(loops[k].var) for rate, k in sorted(rated, reverse=True) if rate > 0)


def _fitness(s: Schedule, stmt: Store | Accumulate, loop: For) -> int:
    """How many accesses of a write move by one element along a loop; 0 if it is no vector loop."""
    if isinstance(loop.extent, int) and loop.extent < 4:
        return 0
    steps = [stride(b, i, loop.var, s.simplifier) for b, i in accesses_of(stmt)]
    if any(step not in (0, 1) for step in steps):
        return 0
    ordered = stmt.buffer.dtype.is_float
    return 0 if steps[-1] == 0 and (ordered or isinstance(stmt, Store)) else sum(steps)


def _lanes(s: Schedule, loop: Loop) -> Loop:
    """A loop of at most MOST_LANES iterations out of this one."""
    extent = s.for_(loop).extent
    if isinstance(extent, int):
        if extent <= MOST_LANES:
            return loop
        lanes = max(n for n in range(1, MOST_LANES + 1) if extent % n == 0)
        if lanes >= 4:
            return s.split(loop, lanes)[1]
    return s.split(loop, 16, Tail.CUT)[1]
