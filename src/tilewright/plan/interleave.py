"""Dependences within a queue, and parts of a tile that take turns to hide them.

An instruction that reads what the one before it computed stands still until that is there. In two
halves, each reads what was computed before the other half:

    add(all)  ....  shift(all)  ....       add(0)  add(1)  shift(0)  shift(1)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import Symbol, Var, as_expr
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, walk_statements
from tilewright.plan import units
from tilewright.plan.rates import most

PARTS = (1, 2, 3, 4, 5, 6, 7, 8)  # that take turns


@dataclass(frozen=True)
class UnitStep:
    """What is done to every element of a tile in the unit's queue besides the contraction: cycles
    for an element; elements that an instruction takes, at most; how long one that reads the results
    waits behind the last instruction; whether it follows the sums, not precedes them."""

    cycles: float
    most: int
    delay: int
    follows: bool


@dataclass(frozen=True)
class Stalls:
    """Cycles that the unit's queue stands still [n] for n tiles, and the instructions that it runs:
    before the sums, in each step that adds to them, and behind them; in how many parts tiles are
    done; how often all sums of a tile are added to in a step, before the first of them are
    complete; after how many cycles of the unit's last instruction its results are there."""

    before: np.ndarray
    work: np.ndarray
    after: np.ndarray
    calls_before: np.ndarray
    calls: np.ndarray
    calls_after: np.ndarray
    parts: np.ndarray
    sweeps: np.ndarray
    latency: np.ndarray


def delay(instruction: Instruction) -> int:
    """Cycles from when an instruction leaves its unit until one of the same queue that reads its
    results can begin, at most."""
    cost = instruction.cost
    known = cost.forward if cost.forward is not None else cost.exposed
    if known is None:
        return most(cost.latency)
    return most(as_expr(known) - as_expr(cost.setup) - as_expr(cost.busy))


def apart(wait: float, each: np.ndarray) -> np.ndarray:
    """Calls of so many cycles after which one may read what the first of them computed, without
    having to wait."""
    return 1 + np.asarray(np.ceil(wait / np.maximum(each, 1e-9)))


def calls_apart(unit: units.Unit, steps: Mapping[Var, int]) -> int:
    """The same for a unit's calls, which take so many iterations along its axes."""
    env = {f.symbol: np.int64(max(f.low, 1)) for f in unit.instruction.fields}
    extents = {unit.loops[axis].extent: np.int64(n) for axis, n in steps.items()}
    env |= {e: n for e, n in extents.items() if isinstance(e, Symbol)}
    cost = unit.instruction.cost
    each = sum(float(evaluate_exactly(x, env)) for x in (cost.setup, cost.busy))
    return int(apart(delay(unit.instruction), np.array(max(each, 1.0))))


def turns_of_sums(instruction: Instruction, rows: int, sizes: Sequence[int], issue: int) -> int:
    """In how many parts, of those `sizes`, so many numbers are best, to which an instruction adds a
    row each, again and again: it waits least for what it added last, and half of all instructions
    are left for other queues, if they are issued so many cycles apart."""
    fits = [n for n in sizes if 2 * n * issue <= cycles_of_rows(instruction, rows)]
    return min(fits or [1], key=lambda n: (wait_of_sums(instruction, rows, n), n))


def wait_of_sums(instruction: Instruction, rows: int, parts: int) -> float:
    """Cycles that such an instruction waits in each sweep over so many numbers in parts."""
    others = cycles_of_rows(instruction, rows) * (parts - 1) / parts
    return max(0.0, delay(instruction) - others)


def cycles_of_rows(instruction: Instruction, rows: int) -> float:
    """How long an instruction whose range is of rows works on so many of them."""
    env = {f.symbol: np.int64(max(f.low, 1)) for f in instruction.fields}
    ranges = [x.extent for x in walk_statements(instruction.body) if isinstance(x, For)]
    symbols = [e for e in ranges if isinstance(e, Symbol)]
    most_rows = min(rows, max((most(e) for e in symbols), default=1))
    env |= {e: np.int64(most_rows) for e in symbols[:1]}
    return float(evaluate_exactly(instruction.cost.busy, env)) * rows / most_rows


def most_elements(instruction: Instruction) -> int:
    """Elements that an instruction takes, at most: the product of its loops' extents."""
    loops = [s for s in walk_statements(instruction.body) if isinstance(s, For)]
    return math.prod(most(x.extent) for x in loops)


@dataclass(frozen=True)
class Work:
    """What the unit does in a step of n tiles: cycles, instructions, and those of them that touch
    different sums, before the same ones are added to again [n]."""

    instruction: Instruction
    latency: int
    work: np.ndarray
    calls: np.ndarray
    sweep: np.ndarray


def stalls(
    unit: Work,
    steps: Sequence[UnitStep],
    elements: np.ndarray,
    chunks: np.ndarray,
    parts: np.ndarray,
) -> Stalls:
    """Of n tiles of so many elements, in so many parts, finished in so many chunks."""
    wait = delay(unit.instruction)
    each = unit.work / unit.calls
    gap = np.maximum(0, wait - (unit.sweep - 1) * each)
    before = calls_before = calls_after = np.zeros(len(unit.work))
    # What follows reads the first part of the sums, which the last step left so long ago.
    since = (parts - 1) * unit.sweep * each / parts
    after = chunks * np.maximum(0, wait - since - gap)
    left = np.zeros(len(unit.work))
    for step in steps:
        if not step.follows:
            before = before + _late(step, elements, parts)
            calls_before = calls_before + _calls(step, elements, parts)
            continue
        after = after + chunks * left
        calls_after = calls_after + chunks * _calls(step, elements / chunks, parts)
        left = _late(step, elements / chunks, parts)
    often = unit.calls / unit.sweep
    together = unit.sweep < 2 * apart(wait, each)  # no sums are complete before the last ones are
    return Stalls(
        before, often * gap, after, calls_before, unit.calls, calls_after, parts,
        np.where(together, often, 1), unit.latency - gap,
    )  # fmt: skip


def _calls(step: UnitStep, elements: np.ndarray, parts: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(parts, np.ceil(elements / step.most)))


def _late(step: UnitStep, elements: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """How long what reads the first part of a step's results waits behind its last part."""
    several = _calls(step, elements, parts)
    return np.asarray(np.maximum(0, step.delay - (several - 1) * step.cycles * elements / several))


def chosen(several: Sequence[Stalls], which: np.ndarray) -> Stalls:
    """Of each tile, those of the number that `which` says [n]."""
    columns = (np.stack([getattr(x, f.name) for x in several]) for f in fields(Stalls))
    return Stalls(*(np.take_along_axis(c, which[None], 0)[0] for c in columns))
