"""What the nests of a program do, and how long they take at least on a target (a roofline).

    nest   operations     bytes    at least
    Y      14,450,688   802,816   0.12 ms (arithmetic)

A nest is a statement of the program's body. An operation is one arithmetic operator on elements (a
multiply-add is two); subscripts and conditions cost nothing, as do conversions and choices. Bytes
are those of buffers from outside of the nest that its subscripts can reach, each once: what a cache
of any size leaves. The time is the longest of arithmetic at the target's peak, bytes at the
bandwidth of its memories, and the cycles of instructions; a fact that the target does not give
limits nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.ir.expand import expand_call
from tilewright.ir.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    as_expr,
)
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    Kernel,
    Stmt,
    Store,
    buffers_written,
    sub_blocks,
    symbols,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.target.target import Target


@dataclass(frozen=True)
class NestCost:
    """One nest: what it does, the least time for that, and what takes it."""

    nest: str  # the buffers it writes
    operations: int
    bytes: int
    seconds: float
    limit: str  # "arithmetic", "instructions" or a memory's name; "" if nothing is known


@dataclass(frozen=True)
class Roofline:
    """A program: its nests run one after the other."""

    nests: tuple[NestCost, ...]

    @property
    def operations(self) -> int:
        return sum(n.operations for n in self.nests)

    @property
    def bytes(self) -> int:
        return sum(n.bytes for n in self.nests)

    @property
    def seconds(self) -> float:
        return sum(n.seconds for n in self.nests)

    def __str__(self) -> str:
        rows = [("nest", "operations", "bytes", "at least")]
        for n in self.nests:
            limit = f" ({n.limit})" if n.limit else ""
            rows.append((n.nest, f"{n.operations:,}", f"{n.bytes:,}", f"{_time(n.seconds)}{limit}"))
        if len(self.nests) > 1:
            total = _time(self.seconds)
            rows.append(("all", f"{self.operations:,}", f"{self.bytes:,}", total))
        a, b, c = (max(len(row[k]) for row in rows) for k in range(3))
        return "\n".join(f"{w:<{a}}  {x:>{b}}  {y:>{c}}  {z}" for w, x, y, z in rows)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def kernel_cost(kernel: Kernel, target: Target) -> Roofline:
    """The cost of a program on a target; its sizes must be numbers."""
    unknown = symbols(kernel)
    if unknown:
        names = ", ".join(x.name for x in unknown)
        raise ScheduleError(
            f"the cost of {kernel.name} depends on {names}", hint="give them numbers: bind(…)"
        )
    found = [s for s in kernel.body if buffers_written((s,))]
    return Roofline(tuple(_nest_cost(s, target) for s in found))


def _nest_cost(nest: Stmt, target: Target) -> NestCost:
    operations: Counter[DType] = Counter()
    cycles: Counter[str] = Counter()  # by queue
    s = Simplifier()
    for stmt, times in _instances((nest,), 1, s):
        if isinstance(stmt, Call):
            cycles[stmt.instruction.queue] += times * _busy_cycles(stmt)
            for inner, often in _instances(expand_call(stmt), times, s):
                _count_into(operations, inner, often)
        else:
            _count_into(operations, stmt, times)
    moved = _moved(nest)
    limits = {"arithmetic": 0.0 if cycles else _arithmetic(operations, target)}
    limits["instructions"] = max(cycles.values(), default=0) / target.clock
    for memory in target.memories:
        if memory.bandwidth and moved[memory.name]:
            limits[memory.name] = moved[memory.name] / (memory.bandwidth * target.clock)
    limit = max(limits, key=lambda name: limits[name])
    own = {s.buffer for s in walk_statements((nest,)) if isinstance(s, Alloc)}
    written = sorted(b.name for b in buffers_written((nest,)) - own)
    return NestCost(
        ", ".join(written),
        sum(operations.values()),
        sum(moved.values()),
        limits[limit],
        limit if limits[limit] else "",
    )


def _arithmetic(operations: Counter[DType], target: Target) -> float:
    """Seconds at the peak: a multiply-add does two operations."""
    return sum(
        count / (2 * peak) for dtype, count in operations.items() if (peak := target.peak(dtype))
    )


def _busy_cycles(call: Call) -> int:
    """Returns the cycles for which a call keeps its queue busy; unknown terms count as 0."""
    names: dict[Expr, Expr] = {
        f.symbol: e for f, e in zip(call.instruction.fields, call.fields, strict=True)
    }
    cost = call.instruction.cost
    values = [substitute(as_expr(x), names) for x in (cost.setup, cost.busy)]
    return sum(int(x.value) for x in values if isinstance(x, Const))


# ---------------------------------------------------------------- counting


def _instances(block: Block, times: int, s: Simplifier) -> Iterator[tuple[Stmt, int]]:
    """The statements that do something, and how often at most; `s` learns of the loops."""
    for stmt in block:
        inside = times
        if isinstance(stmt, For):
            inside = times * _most(stmt, s)
            s = s.with_loops({stmt.var: stmt.extent})
        if isinstance(stmt, (Store, Accumulate, Call)):
            yield stmt, times
        for inner in sub_blocks(stmt):
            yield from _instances(inner, inside, s)


def _most(loop: For, s: Simplifier) -> int:
    """The most iterations of a loop."""
    most = loop.extent if isinstance(loop.extent, int) else s.bounds(loop.extent)[1]
    if most is None:
        raise ScheduleError(f"it is not known how often {loop.var.name} runs")
    return max(0, most)


def _count_into(operations: Counter[DType], stmt: Any, times: int) -> None:
    seen: set[Expr] = set()
    operations[stmt.buffer.dtype] += times * isinstance(stmt, Accumulate)
    for dtype, count in _operators(stmt.value, seen).items():
        operations[dtype] += times * count


def _operators(e: Expr, seen: set[Expr]) -> Counter[DType]:
    """Operators between the elements that `e` reads, each once; of a choice, the longer side."""
    found: Counter[DType] = Counter()
    if isinstance(e, Load) or e in seen:
        return found
    seen.add(e)
    if isinstance(e, Select):
        return max((_operators(x, seen) for x in (e.a, e.b)), key=Counter.total)
    for child in e.children():
        if isinstance(child, Expr):
            found += _operators(child, seen)
    if isinstance(e, (Unary, Binary, Compare)):
        found[e.a.dtype] += 1
    return found


def _moved(nest: Stmt) -> Counter[str]:
    """Bytes of each memory that a nest reads or writes, each element once."""
    own = {s.buffer for s in walk_statements((nest,)) if isinstance(s, Alloc)}
    reached: dict[tuple[Buffer, bool], int] = {}
    seen = set()
    for a in accesses((nest,)):
        key = (a.buffer, a.writes, a.indices)
        if a.buffer not in own and key not in seen:
            seen.add(key)
            at = (a.buffer, a.writes)
            reached[at] = reached.get(at, 0) + _places(a)
    moved: Counter[str] = Counter()
    for (buffer, _), places in reached.items():
        moved[buffer.memory] += min(places, _elements(buffer)) * buffer.dtype.bytes
    return moved


def _places(a: Access) -> int:
    """The elements that an access can reach: as many as its loops have iterations."""
    used = set().union(*(variables(i) for i in a.indices)) if a.indices else set()
    s = Simplifier({x.var: x.extent for x in a.loops})
    return math.prod(_most(x, s) for x in a.loops if x.var in used)


def _elements(buffer: Buffer) -> int:
    return math.prod(int(n) for n in buffer.shape)
