"""When buffers of a scheduled kernel hold something: those that never do at the same time may lie
in one place, since waits are for bytes.

    for i in 8: load(A); a(A, T); b(T, U); c(U, V); store(V)        T from 1 to 2, U from 2 to 3
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Buffer, Dim, Expr, as_expr, constant_value
from tilewright.ir.instruction import Region, axis
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Call,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    buffers_written,
    loads,
    walk_statements,
)
from tilewright.ir.substitute import substitute

Spans = list[tuple[int, int]]  # from a statement to another, both included


def lifetimes(kernel: Kernel) -> dict[Buffer, Spans]:
    """Between which statements each buffer that is allocated holds something, counted through the
    kernel and the bodies of its outer loops. One that holds something from one iteration of an
    outer loop to the next does so while the loop runs, or from the first that uses it to the last;
    parameters have no spans, and hold something all the time."""
    spans: dict[Buffer, Spans] = {}
    used: dict[Buffer, tuple[int, int]] = {}
    kept: set[Buffer] = set()
    for region in _regions(kernel):
        begun: set[Buffer] = set()
        for at, stmt in region.statements:
            read, written, filled = _touched(stmt)
            for buffer in read | written:
                first, last = region.span(at)
                used[buffer] = (min(used.get(buffer, (first, last))[0], first), last)
                if buffer in filled and buffer not in read:
                    spans.setdefault(buffer, []).append((at, at))
                    begun.add(buffer)
                elif buffer in begun:
                    first, _ = spans[buffer][-1]
                    spans[buffer][-1] = (first, at)
                else:
                    kept.add(buffer)
    found = {b: [used[b]] if b in kept else spans[b] for b in used}
    return {b: s for b, s in found.items() if b not in kernel.params}


@dataclass(frozen=True)
class _Region:
    """Statements with their numbers: of an outer loop, or between such loops."""

    statements: Sequence[tuple[int, Stmt]]
    repeats: bool

    def span(self, at: int) -> tuple[int, int]:
        """While what a statement of it uses holds something, if it did before."""
        return (self.statements[0][0], self.statements[-1][0]) if self.repeats else (at, at)


def _regions(kernel: Kernel) -> list[_Region]:
    found: list[_Region] = []
    between: list[tuple[int, Stmt]] = []
    count = 0
    for stmt in kernel.body:
        inner = [s for s in stmt.body if not isinstance(s, Alloc)] if isinstance(stmt, For) else []
        if len(inner) < 2:
            between.append((count, stmt))
            count += 1
            continue
        assert isinstance(stmt, For)
        inside = [(count + k, s) for k, s in enumerate(inner)]
        found += [_Region(between, False), _Region(inside, stmt.extent != 1)]
        between = []
        count += len(inner)
    return [r for r in (*found, _Region(between, False)) if r.statements]


def _touched(stmt: Stmt) -> tuple[set[Buffer], set[Buffer], set[Buffer]]:
    """Buffers that a statement reads, that it writes, and those of which one of its calls writes
    all."""
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    filled: set[Buffer] = set()

    def visit(s: Stmt, around: Mapping[Expr, int], always: bool) -> None:
        if isinstance(s, For):
            extent = s.extent if isinstance(s.extent, int) else 0
            for x in s.body:
                visit(x, {**around, s.var: extent}, always)
        elif isinstance(s, If):
            for x in (*s.body, *s.orelse):
                visit(x, around, False)
        elif isinstance(s, Call):
            own = buffers_written(s.instruction.body)
            for operand, region in zip(s.instruction.operands, s.regions, strict=True):
                if operand in own:
                    written.add(region.buffer)
                    if always and _fills(s, operand, region, around):
                        filled.add(region.buffer)
                if operand not in own or operand in _read(s):
                    read.add(region.buffer)

    visit(stmt, {}, True)
    return read, written, filled


def _read(call: Call) -> set[Buffer]:
    """The operands that an instruction reads, or adds to."""
    found = {x.buffer for s in call.instruction.body for x in loads(s)}
    inner = walk_statements(call.instruction.body)
    return found | {s.buffer for s in inner if isinstance(s, Accumulate)}


def _fills(call: Call, operand: Buffer, region: Region, around: Mapping[Expr, int]) -> bool:
    """Whether a call, in the loops around it, writes every element of an operand's buffer: it does
    if no two iterations write the same one, and they are as many."""
    sizes = _written_sizes(call, operand)
    if sizes is None:
        return False
    place = Simplifier().position(region.indices, region.buffer.shape)
    extents = dict(around) | {axis(d): n for d, n in enumerate(sizes)}
    steps = {atom: abs(step) for atom, step in place.items() if atom is not None}
    if not set(steps) <= set(extents):
        return False
    reach, count = 0, 1  # of the steps so far, the smallest first
    for atom, step in sorted(steps.items(), key=lambda pair: pair[1]):
        if step <= reach:
            return False
        reach += step * (extents[atom] - 1)
        count *= extents[atom]
    return count == math.prod(int(n) for n in region.buffer.shape)


def _written_sizes(call: Call, operand: Buffer) -> list[int] | None:
    """How far an instruction writes along each axis of an operand, from its first element on; None
    where that is not known."""
    fields: dict[Expr, Expr] = {
        f.symbol: v for f, v in zip(call.instruction.fields, call.fields, strict=True)
    }
    found: list[list[int]] = []

    def visit(s: Stmt, extents: Mapping[Expr, Dim]) -> None:
        if isinstance(s, For):
            for x in s.body:
                visit(x, {**extents, s.var: s.extent})
        elif isinstance(s, Store) and s.buffer == operand and {*s.indices} <= {*extents}:
            sizes = [constant_value(substitute(as_expr(extents[i]), fields)) for i in s.indices]
            if all(n is not None for n in sizes) and len({*s.indices}) == len(s.indices):
                found.append([int(n) for n in sizes if n is not None])

    for stmt in call.instruction.body:
        visit(stmt, {})
    return found[0] if found else None


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
