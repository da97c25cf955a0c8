"""Instructions as machine code of the host: their meaning, with vector loops.

What they do follows from what the chip is given, and nothing else: fields, of which some are the
steps of operands, the addresses of the operands' first elements, and lists of micro-operations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.nests import accesses_of, stride
from tilewright.backends.native.entry import emit_entry
from tilewright.backends.native.llvm import emit_kernel
from tilewright.backends.native.object_code import compile_object
from tilewright.backends.native.passes import native_passes
from tilewright.base.dtype import index
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.base.passes import run_passes
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    all_of,
    as_expr,
    const,
)
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    buffers_written,
    expressions,
    loads,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import variables
from tilewright.runtime.loader import LoadedCode, load_code
from tilewright.runtime.simulator import ENTRY as RUN
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

Steps = tuple[tuple[int, ...], ...]  # bytes, of each operand along each of its axes
LEAST_LANES, MOST_LANES = 4, 64
ENDLESS = 1 << 40  # elements: it is not known where an operand's buffer ends


@dataclass(frozen=True, eq=False)
class SiteCode:
    """Machine code of run(fields, operands, lists) at `address`: see stream.c."""

    code: LoadedCode
    address: int


@functools.lru_cache(maxsize=1024)
def site_code(instruction: Instruction, host: Target, steps: Steps | None = None) -> SiteCode:
    """The function that does an instruction; with `steps`, these are its operands'."""
    code = load_code([(instruction.name, site_object(instruction, host, steps))], [RUN])
    return SiteCode(code, code.addresses[RUN])


@functools.lru_cache(maxsize=1024)
def site_object(instruction: Instruction, host: Target, steps: Steps | None = None) -> bytes:
    """The object file of that function, `run_site`."""
    kernel = vectorized(meaning(instruction, steps))
    lowered = run_passes(kernel, native_passes(host), stage="lowered", subject=kernel.name)
    if lowered.scratch:
        held = ", ".join(map(str, lowered.scratch))
        raise CompileError(
            f"the meaning of {instruction} needs {held}, more than a stack holds",
            hint="give it an operand for that, or make it smaller",
        )
    names = [operand.name for operand in instruction.operands]
    arrays = {
        "fields": [f.name for f in instruction.fields],
        "operands": names,
        "lists": [f"{name}.list" for name in names],
    }
    text = emit_kernel(lowered, host) + emit_entry(lowered, RUN, arrays)
    return compile_object(text, host.llvm)


def meaning(instruction: Instruction, steps: Steps | None = None) -> Kernel:
    """The instruction as a kernel: operands are flat buffers that begin at their first element, and
    a list of micro-operations is one of elements from there. With `steps`, operands step by so many
    bytes along their axes, instead of as the instruction's fields say."""
    regions, operands, lists = [], [], []
    for o, operand in enumerate(instruction.operands):
        flat = Buffer(operand.name, operand.dtype, (ENDLESS,))
        operands.append(flat)
        position: Expr = const(0)
        for d in range(len(operand.shape)):
            step = instruction.step(operand, d)
            if steps is not None:
                step = steps[o][d] // operand.dtype.bytes
            position = position + as_expr(step) * axis(d)
        listed = instruction.listed(operand)
        if listed is not None:
            lists.append(Buffer(f"{operand.name}.list", index, (ENDLESS,)))
            position = position + Load(lists[-1], (axis(listed),))
        regions.append(Region(flat, (position,)))
    call = Call(instruction, tuple(regions), tuple(f.symbol for f in instruction.fields))
    body = expand_call(call)
    written = buffers_written(body)
    inputs = (*(b for b in operands if b not in written), *lists)
    outputs = tuple(b for b in operands if b in written)
    return Kernel(f"site_{instruction.name}", inputs, outputs, body)


# ---------------------------------------------------------------- vectors


def vectorized(kernel: Kernel) -> Kernel:
    """The kernel with a vector loop around every write that has one along which each access moves
    by one element or none. Sums of floats are taken in order: results are the same on all hosts."""
    s = Schedule(kernel.with_(body=map_block(kernel.body, _guards_outside)))
    tried: set[Loop] = set()
    while True:
        found = next((loop for loop in _vector_loops(s) if loop not in tried), None)
        if found is None:
            return s.kernel
        tried.add(found)
        try:
            lanes = _lanes(s, found)
        except ScheduleError:  # too few iterations for sure
            continue
        s.kernel = s.kernel.with_(body=_marked(s.kernel.body, lanes))


def _guards_outside(stmt: Stmt) -> Stmt:
    """A sum of integers of which some terms are 0 under conditions, with the loops that these are
    about outermost, then the conditions, which are then asked less often: sums of integers are the
    same in any order.

        for c: for r: acc += select(inside(r), x[c, r], 0) * w[c, r]
    ->  for r: if inside(r): for c: acc += x[c, r] * w[c, r]
    """
    loops: list[For] = []
    inner = stmt
    while isinstance(inner, For) and len(inner.body) == 1:
        loops.append(inner)
        (inner,) = inner.body
    is_sum = isinstance(inner, Accumulate) and inner.op is BinaryOp.ADD
    if not is_sum or not isinstance(inner, Accumulate) or inner.buffer.dtype.is_float:
        return map_inner_blocks(stmt, lambda b: map_block(b, _guards_outside))
    value, conditions = _without_guards(inner.value)
    about = set().union(*map(variables, conditions))
    sums = {x.var for x in loops} - set().union(*map(variables, inner.indices))
    bounds = set().union(*(variables(x.extent) for x in loops if isinstance(x.extent, Expr)))
    read = {x.buffer for e in (inner.value, *inner.indices) for x in loads(e)}
    any_order = len(sums) == len(loops) and not bounds & sums and inner.buffer not in read
    if not conditions or not loops or not any_order:
        return stmt
    body: Stmt = inner.with_(value=value)
    for x in reversed([x for x in loops if x.var not in about]):
        body = x.with_(body=(body,))
    body = If(all_of(*conditions), (body,))
    for x in reversed([x for x in loops if x.var in about]):
        body = x.with_(body=(body,))
    return body


def _without_guards(value: Expr) -> tuple[Expr, list[Expr]]:
    """A product without the conditions under which it is not 0, and these."""
    if isinstance(value, Binary) and value.op is BinaryOp.MUL:
        (a, of_a), (b, of_b) = _without_guards(value.a), _without_guards(value.b)
        return value.with_(a=a, b=b), of_a + of_b
    if isinstance(value, Cast):
        inner, conditions = _without_guards(value.a)
        return value.with_(a=inner), conditions
    if isinstance(value, Select) and isinstance(value.b, Const) and value.b.value == 0:
        return value.a, [value.cond]
    return value, []


def _marked(block: Block, loop: Loop) -> Block:
    def mark(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.var == loop.var:
            return stmt.with_(kind=LoopKind.VECTORIZE)
        return map_inner_blocks(stmt, lambda b: map_block(b, mark))

    return map_block(block, mark)


def _vector_loops(s: Schedule) -> Iterator[Loop]:
    """For writes without a vector loop, the loops that can be one, the best first."""
    for stmt in walk_statements(s.kernel.body):
        if not isinstance(stmt, (Store, Accumulate)):
            continue
        loops = s.loops_around(stmt)
        if any(x.kind is LoopKind.VECTORIZE for x in loops):
            continue
        rated = [(_fitness(s, x), k) for k, x in enumerate(loops)]
        yield from (Loop(loops[k].var) for rate, k in sorted(rated, reverse=True) if rate > 0)


def _fitness(s: Schedule, loop: For) -> int:
    """How many accesses move by one element with each iteration of a loop; 0 if it cannot be a
    vector loop: its iterations must be apart from each other, as they are where all accesses of
    what is written are at one element, which moves, or into which all are added."""
    if isinstance(loop.extent, int) and loop.extent < LEAST_LANES:
        return 0
    inside = list(walk_statements(loop.body))
    uniform = [e for x in inside if not isinstance(x, (Store, Accumulate)) for e in expressions(x)]
    if any(isinstance(x, Alloc) for x in inside) or any(loop.var in variables(e) for e in uniform):
        return 0
    written = buffers_written(loop.body)
    places: dict[Buffer, set[tuple[Expr, ...]]] = {}
    fitness = 0
    for stmt in inside:
        if not isinstance(stmt, (Store, Accumulate)):
            continue
        accesses = list(accesses_of(stmt))
        steps = [stride(b, i, loop.var, s.simplifier) for b, i in accesses]
        if any(step not in (0, 1) for step in steps):
            return 0
        for buffer, indices in accesses:
            places.setdefault(buffer, set()).add(indices)
        added = isinstance(stmt, Accumulate) and len(inside) == 1
        if steps[-1] == 0 and (not added or stmt.buffer.dtype.is_float):
            return 0
        fitness += sum(step == 1 for step in steps)
    return fitness if all(len(places[b]) == 1 for b in written) else 0


def _lanes(s: Schedule, loop: Loop) -> Loop:
    """A loop of a few iterations out of this one."""
    extent = s.for_(loop).extent
    if isinstance(extent, int):
        if extent <= MOST_LANES:
            return loop
        lanes = max(n for n in range(1, MOST_LANES + 1) if extent % n == 0)
        if lanes >= LEAST_LANES:
            return s.split(loop, lanes)[1]
    return s.split(loop, 16, Tail.CUT)[1]
