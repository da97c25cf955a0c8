"""How soon an instruction's iterations come back to an element: by the steps of its hardware loops
through memory, not by a table of all that they touch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.stream.stream import Site
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Dim, Expr, as_expr, const
from tilewright.ir.instruction import Instruction
from tilewright.target.iterations import HardwareNest, Touch, find_nests

MOST = 1 << 24  # places between two touches that are kept

Run = tuple[int, int]  # count, step
_Env = dict[Expr, np.ndarray]


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the first iteration touches an operand: bytes from its first element, and the runs of
    equal steps from there."""

    first: int
    runs: tuple[Run, ...]
    writes: bool


@dataclass(frozen=True, eq=False)
class _Pass:
    """A nest with values for its fields: how often each loop runs, its step in bytes, and, where
    that is listed, the loop's number and the bytes to each entry."""

    counts: tuple[int, ...]
    steps: tuple[int, ...]
    listed: tuple[int, np.ndarray] | None
    places: tuple[_Place, ...]

    @property
    def iterations(self) -> int:
        return math.prod(self.counts)

    def moved(self, numbers: Sequence[int]) -> np.ndarray:
        """Bytes from the first iteration to those of these numbers."""
        found = np.zeros(len(numbers), np.int64)
        rest = list(numbers)
        for k in range(len(self.counts) - 1, -1, -1):
            at = np.array([n % self.counts[k] for n in rest], np.int64)
            rest = [n // self.counts[k] for n in rest]
            found += at * self.steps[k]
            if self.listed is not None and self.listed[0] == k:
                found += self.listed[1][at]
        return found

    def between(self, turns: Sequence[int]) -> np.ndarray:
        """Bytes between two iterations that are so many turns of each loop apart: one distance, or
        one for each entry of the list where the first of the two may be."""
        fixed = np.array([sum(n * step for n, step in zip(turns, self.steps, strict=True))])
        if self.listed is None:
            return fixed
        k, offsets = self.listed
        n, entries = turns[k], len(offsets)
        here, there = (
            offsets[max(n, 0) : entries + min(n, 0)],
            offsets[max(-n, 0) : entries - max(n, 0)],
        )
        moved: np.ndarray = fixed + here - there
        return moved


def least_apart(site: Site, fields: np.ndarray, name: str, wanted: int) -> int | None:
    """The fewest iterations, below `wanted`, between two of an instruction that touch the same
    element of an operand, which one of them writes; None where there are no such two."""
    passes = [p for p in _passes(site, fields, name) if p.iterations]
    inside = (_within(p, wanted) for p in passes)
    found = [n for n in inside if n is not None]
    for a, b in itertools.combinations(range(len(passes)), 2):
        between = sum(p.iterations for p in passes[a + 1 : b])
        soonest = _across(passes[a], passes[b], wanted - between)
        found += [soonest + between] if soonest is not None else []
    return min(found, default=None)


def _within(p: _Pass, wanted: int) -> int | None:
    """Of one nest. Two iterations are a number apart that its loops share in few ways, and each way
    is one distance in memory."""
    again = _between_places(p, p)
    for apart in range(1, min(wanted, p.iterations)):
        for turns in _turns(p.counts, apart):
            if np.isin(p.between(turns), again).any():
                return apart
    return None


def _turns(counts: Sequence[int], apart: int) -> Iterator[tuple[int, ...]]:
    """The turns of each loop, outermost first, between two iterations that are so many apart."""
    if not counts:
        if apart == 0:
            yield ()
        return
    *outer, count = counts
    whole, rest = divmod(apart, count)
    for turns in _turns(outer, whole):
        yield (*turns, rest)
    for turns in _turns(outer, whole + 1) if rest else ():
        yield (*turns, rest - count)


def _across(p: _Pass, q: _Pass, wanted: int) -> int | None:
    """From one nest to another that follows it at once: the last iterations of the one, the first
    of the other."""
    last = range(max(0, p.iterations - max(wanted - 1, 0)), p.iterations)
    first = range(min(q.iterations, max(wanted - 1, 0)))
    if not last or not first:
        return None
    moved = q.moved(first)[None] - p.moved(last)[:, None]
    apart = np.arange(len(first))[None] + np.arange(len(last), 0, -1)[:, None]
    found = apart[np.isin(moved, _between_places(p, q)) & (apart < wanted)]
    return int(found.min()) if len(found) else None


def _between_places(p: _Pass, q: _Pass) -> np.ndarray:
    """Bytes that an iteration of q lies behind one of p where both touch the same element, and one
    of the two writes it."""
    found = [np.zeros(0, np.int64)]
    for a in p.places:
        for b in q.places:
            if a.writes or b.writes:
                back = tuple((count, -step) for count, step in b.runs)
                found.append(_sums(a.first - b.first, (*a.runs, *back)))
    return np.unique(np.concatenate(found))


def _sums(first: int, runs: Sequence[Run]) -> np.ndarray:
    """All sums of a number and a step of each run."""
    first += sum((count - 1) * step for count, step in runs if step < 0)
    found = np.array([first], np.int64)
    for count, step in _joined([(count, abs(step)) for count, step in runs if step]):
        if len(found) * count > MOST:
            raise CompileError(
                f"the elements that one iteration touches lie {len(found) * count:,} distances "
                f"from each other, and at most {MOST:,} are judged",
                hint="leave the distance out, or describe a unit that touches fewer at once",
            )
        found = np.unique(found[:, None] + np.arange(count) * step)
    return found


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Runs, shortest steps first, of which none just goes on where the one before it ends."""
    found: list[Run] = []
    for count, step in sorted(runs, key=lambda run: run[1]):
        before, each = found[-1] if found else (0, 1)
        if found and step % each == 0 and step <= before * each:
            found[-1] = before + (count - 1) * (step // each), each
        else:
            found.append((count, step))
    return found


# ---------------------------------------------------------------- fields


def _passes(site: Site, fields: np.ndarray, name: str) -> Iterator[_Pass]:
    """The nests that run, with the values of the fields."""
    instruction = site.instruction
    (number,) = (o for o, b in enumerate(instruction.operands) if b.name == name)
    operand = instruction.operands[number]
    env: _Env = {f.symbol: v for f, v in zip(instruction.fields, fields, strict=False)}
    listed = instruction.listed(operand)
    offsets = site.offsets[number] if site.offsets else None
    for nest in find_nests(instruction.body, operand, listed):
        if all(_value(e, env) for e in nest.conditions):
            yield _pass(instruction, operand, nest, env, offsets)


def _pass(
    instruction: Instruction,
    operand: Buffer,
    nest: HardwareNest,
    env: _Env,
    offsets: np.ndarray | None,
) -> _Pass:
    axes = range(len(operand.shape))
    bytes_ = [_value(instruction.step(operand, d), env) * operand.dtype.bytes for d in axes]
    counts = tuple(_value(x.extent, env) for x in nest.loops)

    def moves(terms: Sequence[Expr]) -> int:
        return sum(_value(e, env) * n for e, n in zip(terms, bytes_, strict=True))

    def place(touch: Touch) -> _Place:
        runs = tuple((_value(x.extent, env), moves(touch.moves(x))) for x in touch.within)
        first = moves([s.get(None, const(0)) for s in touch.steps])
        return _Place(first, runs, touch.writes)

    any_touch = nest.touches[:1]  # all move alike
    steps = tuple(moves(t.moves(x)) for t in any_touch for x in nest.loops) or (0,) * len(counts)
    entries = None
    listed = instruction.listed(operand)
    if listed is not None and offsets is not None and any_touch:
        along = any_touch[0].indices[listed]
        k = next(k for k, x in enumerate(nest.loops) if x.var == along)
        entries = k, offsets[: counts[k]]
    return _Pass(counts, steps, entries, tuple(map(place, nest.touches)))


def _value(e: Dim, env: _Env) -> int:
    return int(evaluate_expr(as_expr(e), env, {}))
