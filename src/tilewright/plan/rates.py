"""What an instruction does in a cycle at best, and what calls take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from tilewright.analyze.simplify import Simplifier
from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expand import least_fields
from tilewright.ir.expr import Dim, Expr, Load, as_expr
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import (
    Accumulate,
    Block,
    Call,
    For,
    expressions,
    sub_blocks,
    walk_statements,
)
from tilewright.target.target import MOST_CYCLES, Target

VALUES = 1 << 12  # of a field that are tried; of more, as many from each end
STARTS = 6  # fields that are tried at both ends together
Values = dict[Expr, object]
Sizes = tuple[tuple[str, tuple[int, ...]], ...]  # that fields may have, by name, smallest first


def most_a_cycle(instruction: Instruction, sizes: Sizes = ()) -> float:
    """Iterations of its loops that an instruction does in a cycle, at most."""
    return most_for(instruction, instruction.cost.setup + instruction.cost.busy, sizes)


@lru_cache(maxsize=1 << 10)
def most_for(instruction: Instruction, term: Dim, sizes: Sizes = ()) -> float:
    """Iterations of its loops that an instruction does for 1 of a term of its cost, at most: where
    the cost of each axis is a factor of its own, or is added, the best of all values that fields
    admit, or that `sizes` has of some."""
    cost = as_expr(term)
    loops = (x for x in walk_statements(instruction.body) if isinstance(x, For))
    extents = {x.extent for x in loops if isinstance(x.extent, Expr)}
    used = [f for f in instruction.fields if f.symbol in extents or f.symbol in set(cost.walk())]
    only = dict(sizes)
    tried = {f: np.array(only[f.name]) if f.name in only else _values_of(f) for f in used}
    least: Values = {f.symbol: np.int64(f.low) for f in instruction.fields}

    def rate(values: Values) -> np.ndarray:
        env = {**least, **values}
        cycles = np.asarray(evaluate_exactly(cost, env), float)
        done = _iterations(instruction.body, env)
        with np.errstate(divide="ignore"):
            return np.where(cycles > 0, done / np.maximum(cycles, 1e-9), math.inf)

    best = 0.0
    ends = (only[f.name][-1:] if f.name in only else (f.low, f.high) for f in used[:STARTS])
    for start in itertools.product(*ends):
        at = {f: int(tried[f][0]) for f in used} | dict(zip(used, start, strict=False))
        best = max(best, _climb(rate, tried, at))
    return best


def _climb(
    rate: Callable[[Values], np.ndarray], tried: dict[Field, np.ndarray], at: dict[Field, int]
) -> float:
    """The best rate that is found by changing one field at a time."""
    best = float(rate({f.symbol: np.int64(n) for f, n in at.items()}))
    while True:
        before = best
        for f, values in tried.items():
            if len(values) == 1:
                continue
            others: Values = {g.symbol: np.int64(n) for g, n in at.items() if g is not f}
            rates = np.broadcast_to(rate({**others, f.symbol: values}), values.shape)
            if rates.max() > best:
                best, at[f] = float(rates.max()), int(values[rates.argmax()])
        if best <= before:
            return best


def _values_of(f: Field) -> np.ndarray:
    first = -(-f.low // f.multiple) * f.multiple
    values = range(first, f.high + 1, f.multiple)
    if len(values) > 2 * VALUES:
        return np.array([*values[:VALUES], *values[-VALUES:]], np.int64)
    return np.array(values, np.int64)


def least(term: Dim) -> int:
    """What a term of a cost is at least, whatever values its fields have."""
    low, _ = Simplifier().bounds(as_expr(term))
    return max(0, low or 0)


def most(term: Dim) -> int:
    """What a term of a cost is at most."""
    _, high = Simplifier().bounds(as_expr(term))
    return MOST_CYCLES if high is None else max(0, high)


def iterations_of(instruction: Instruction, fields: np.ndarray) -> np.ndarray:
    """Of the loops of instructions [n] with these fields [n, fields or more]."""
    env: Values = {f.symbol: fields[:, c] for c, f in enumerate(instruction.fields)}
    return np.broadcast_to(_iterations(instruction.body, env), (len(fields),))


def reads(instruction: Instruction) -> bool:
    """Whether what it does follows from an operand."""
    statements = list(walk_statements(instruction.body))
    read = [x for s in statements for e in expressions(s) for x in e.walk() if isinstance(x, Load)]
    return bool(read) or any(isinstance(s, Accumulate) for s in statements)


def _iterations(block: Block, env: Values) -> np.ndarray:
    """Of the nest of loops that has most."""
    found = [np.ones(())]
    for stmt in block:
        for inner in sub_blocks(stmt):
            n = _iterations(inner, env)
            if isinstance(stmt, For):
                n = n * np.asarray(evaluate_exactly(stmt.extent, env), float)
            found.append(n)
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*found)))


def calls(block: Block, times: int = 1) -> Iterator[tuple[Call, int]]:
    """Every call of a block, with how often it is done."""
    for stmt in block:
        if isinstance(stmt, Call):
            yield stmt, times
        extent = stmt.extent if isinstance(stmt, For) and isinstance(stmt.extent, int) else 1
        for inner in sub_blocks(stmt):
            yield from calls(inner, times * extent)


def block_cycles(block: Block, target: Target) -> float:
    """Cycles that the calls of a block take of their queues, one after another."""
    return sum(cycles_by_queue(block, target).values())


def cycles_by_queue(block: Block, target: Target) -> dict[str, float]:
    """The same of each queue."""
    found: dict[str, float] = {}
    for call, times in calls(block):
        queue = call.instruction.queue
        found[queue] = found.get(queue, 0.0) + times * _cycles(call, target)
    return found


def _cycles(call: Call, target: Target) -> float:
    cost, env = call.instruction.cost, least_fields(call)
    setup, busy = (int(evaluate_exactly(x, env)) for x in (cost.setup, cost.busy))
    touched = [target.memory(r.buffer.memory) for r in call.regions]
    moved = (
        int(evaluate_exactly(cost.bytes_in(m.name), env)) / m.bandwidth
        for m in touched
        if m.bandwidth is not None
    )
    return setup + max([float(busy), *moved])
