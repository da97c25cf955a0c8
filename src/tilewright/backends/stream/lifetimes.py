"""When buffers of a scheduled kernel hold something: those that never do at the same time may lie
in one place, since waits are for bytes.

    for i in 8: load(A); a(A, T); b(T, U); c(U, V); store(V)        T from 1 to 2, U from 2 to 3
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.ir.expr import Buffer, Expr, constant_value
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Call,
    For,
    If,
    Kernel,
    Stmt,
    buffers_written,
    loads,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables

Spans = list[tuple[int, int]]  # from a statement to another, both included


def lifetimes(kernel: Kernel) -> dict[Buffer, Spans]:
    """Of each buffer that holds nothing from one iteration of an outer loop to the next: between
    which statements it does, counted through the kernel and the bodies of its outer loops. Others
    have none, and hold something all the time."""
    spans: dict[Buffer, Spans] = {}
    kept: set[Buffer] = set()
    for region in _regions(kernel):
        begun: set[Buffer] = set()
        for at, stmt in region:
            read, written, filled = _touched(stmt)
            for buffer in read | written:
                if buffer in filled and buffer not in read:
                    spans.setdefault(buffer, []).append((at, at))
                    begun.add(buffer)
                elif buffer in begun:
                    first, _ = spans[buffer][-1]
                    spans[buffer][-1] = (first, at)
                else:
                    kept.add(buffer)
    return {b: s for b, s in spans.items() if b not in kept}


def _regions(kernel: Kernel) -> list[list[tuple[int, Stmt]]]:
    """Statements with their numbers: those of each outer loop, and those between."""
    found: list[list[tuple[int, Stmt]]] = [[]]
    count = 0
    for stmt in kernel.body:
        inner = [s for s in stmt.body if not isinstance(s, Alloc)] if isinstance(stmt, For) else []
        if len(inner) < 2:
            found[-1].append((count, stmt))
            count += 1
            continue
        found += [[(count + k, s) for k, s in enumerate(inner)], []]
        count += len(inner)
    return found


def _touched(stmt: Stmt) -> tuple[set[Buffer], set[Buffer], set[Buffer]]:
    """Buffers that a statement reads, that it writes, and those of which it writes all."""
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    elements: dict[Buffer, int] = {}

    def visit(s: Stmt, around: Mapping[Expr, int], always: bool) -> None:
        if isinstance(s, For):
            extent = s.extent if isinstance(s.extent, int) else 0
            for x in s.body:
                visit(x, {**around, s.var: extent}, always)
        elif isinstance(s, If):
            for x in (*s.body, *s.orelse):
                visit(x, around, False)
        elif isinstance(s, Call):
            own = _written(s)
            for operand, region in zip(s.instruction.operands, s.regions, strict=True):
                if operand in own:
                    written.add(region.buffer)
                    n = _elements(s, operand) if always else 0
                    moving = set().union(*map(variables, region.indices)) if n else set()
                    times = math.prod(n for v, n in around.items() if v in moving)
                    elements[region.buffer] = elements.get(region.buffer, 0) + n * times
                if operand not in own or operand in _read(s):
                    read.add(region.buffer)

    visit(stmt, {}, True)
    filled = {b for b, n in elements.items() if n >= math.prod(int(x) for x in b.shape)}
    return read, written, filled


def _written(call: Call) -> set[Buffer]:
    return buffers_written(call.instruction.body) & set(call.instruction.operands)


def _read(call: Call) -> set[Buffer]:
    """The operands that an instruction reads, or adds to."""
    found = {x.buffer for s in call.instruction.body for x in loads(s)}
    inner = walk_statements(call.instruction.body)
    return found | {s.buffer for s in inner if isinstance(s, Accumulate)}


def _elements(call: Call, operand: Buffer) -> int:
    """How many elements a call touches of an operand; 0 where that is not known."""
    fields: dict[Expr, Expr] = {
        f.symbol: v for f, v in zip(call.instruction.fields, call.fields, strict=True)
    }
    sizes: list[int] = []
    for n in operand.shape:
        size = n if isinstance(n, int) else constant_value(substitute(n, fields))
        sizes.append(int(size) if size is not None else 0)
    return math.prod(sizes)


def packed(
    buffers: Sequence[Buffer],
    sizes: Mapping[Buffer, int],
    spans: Mapping[Buffer, Spans],
    align: int,
) -> dict[Buffer, int]:
    """Where buffers of these sizes begin: each as far to the front as those allow that hold
    something at the same time, the largest first."""
    places: dict[Buffer, int] = {}
    for buffer in sorted(buffers, key=lambda b: (b in spans, -sizes[b])):
        taken = sorted(
            (places[b], places[b] + sizes[b])
            for b in places
            if _together(spans.get(b), spans.get(buffer))
        )
        at = 0
        for start, end in taken:
            if at + sizes[buffer] <= start:
                break
            at = max(at, -(-end // align) * align)
        places[buffer] = at
    return places


def _together(a: Spans | None, b: Spans | None) -> bool:
    """Whether two buffers ever hold something at the same time."""
    if a is None or b is None:
        return True
    return any(x[0] <= y[1] and y[0] <= x[1] for x in a for y in b)
