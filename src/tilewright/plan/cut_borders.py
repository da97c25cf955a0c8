"""Guards narrow loops: a loop is cut where a condition on its iterations begins or ends to hold.

    for w in 114: pad[w] = select(1 <= w and w < 113, x[w - 1], 0)
->  for w in 1: pad[w] = 0;  for w in 112: pad[w + 1] = x[w];  for w in 1: pad[w + 113] = 0

    for w in 114: pad[w] = x[min(max(w - 1, 0), 111)]
->  for w in 1: pad[w] = x[0];  for w in 112: pad[w + 1] = x[w];  for w in 1: pad[w + 113] = x[111]

Each part does without the condition, so that what lies one after another is moved in whole vectors.

    for o in 8: for i in 16: if o * 16 + i < 120: …
->  for o in 7: for i in 16: …;  for i in 16: if 112 + i < 120: …
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.analyze.conditions import at_least_zero, conjuncts, is_place
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Expr, Load, Select, Symbol, Var, as_expr
from tilewright.ir.loop import For, If, expressions, loads, walk_statements
from tilewright.ir.substitute import variables
from tilewright.schedule.primitives.stages import nest_loops
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop

LEAST = 4  # iterations between the borders that are worth a loop of their own
MOST = 4  # at either border: more are no border
LONGEST = 1 << 16  # iterations whose subscripts are looked at one by one


def cut_borders(s: Schedule, loops: list[Loop], least: int) -> tuple[list[Loop], list[list[Loop]]]:
    """Cuts the innermost loop of a perfect nest whose iterations a condition picks, if the loops
    around it have `least` iterations, to be shared among cores: (these, the loops of each part)."""
    for depth in reversed(range(1, len(loops))):
        loop = loops[depth]
        before, behind = _borders(s, loop)
        if not (before or behind) or iterations(s, loops[:depth]) < least:
            continue
        parts = [loop]
        if before:
            parts.insert(0, s.peel(loop, before))
        if behind:
            parts.append(s.peel(loop, -behind))
        return loops[:depth], [loops_from(s, part) for part in parts]
    return loops, []


def cut_last_block(s: Schedule, loops: list[Loop]) -> tuple[list[Loop], list[list[Loop]]]:
    """Peels the last block, which is not full, off a perfect nest's loop over blocks, so that the
    others need no condition: (the loops around that loop, the loops of both parts)."""
    inside = walk_statements((s.for_(loops[0]),))
    conditions = [c for x in inside if isinstance(x, If) for c in conjuncts(x.cond)]
    for depth, loop in enumerate(loops[:-1] if conditions else ()):
        extent = s.for_(loop).extent
        if not isinstance(extent, int) or extent < 2:
            continue
        full = s.simplifier.with_loops({loop.var: extent - 1})
        if all(full.proves(c) for c in conditions):
            last = s.peel(loop, -1)
            return loops[:depth], [loops[depth:], loops_from(s, last)]
    return loops, []


def iterations(s: Schedule, loops: list[Loop]) -> float:
    """How often the body of some loops runs; infinitely often where that is not known."""
    extents = [s.for_(loop).extent for loop in loops]
    return math.prod(n if isinstance(n, int) else math.inf for n in extents)


def loops_from(s: Schedule, outermost: Loop) -> list[Loop]:
    """The loops of a perfect nest."""
    return [Loop(x.var) for x in nest_loops(s.for_(outermost))[0]]


def _borders(s: Schedule, loop: Loop) -> tuple[int, int]:
    """How many iterations come before and behind those for which all conditions hold that are about
    this loop alone; none if that is more than borders, or nothing is between them."""
    before = behind = 0
    last = as_expr(s.for_(loop).extent) - 1
    for form in _conditions(s.for_(loop)):
        linear = s.simplifier.linear(form)
        step = linear.get(loop.var, 0)
        inner = {atom for atom in linear if atom not in (None, loop.var)}
        if any(atom is not None and loop.var in variables(atom) for atom in inner):
            return 0, 0
        if step == 0:
            continue
        # What has to be 0 or more is so from here on, counted from the end that the step begins at.
        start = s.simplifier.linear(loop.var - form if step == 1 else last - loop.var - form)
        if abs(step) != 1 or set(start) - {None}:
            return 0, 0
        if step == 1:
            before = max(before, start.get(None, 0))
        else:
            behind = max(behind, start.get(None, 0))
    extent = s.for_(loop).extent
    if isinstance(extent, int):
        runs = [_longest_run(i, loop.var, extent) for i in _nonlinear(s, s.for_(loop))]
        before = max([before, *(begin for begin, _ in runs)])
        behind = max([behind, *(extent - end for _, end in runs)])
    lowest = s.simplifier.bounds(last + 1)[0] or 0
    is_worth_it = lowest - before - behind >= (LEAST if isinstance(extent, int) else 0)
    return (before, behind) if is_worth_it and max(before, behind) <= MOST else (0, 0)


def _nonlinear(s: Schedule, loop: For) -> set[Expr]:
    """Subscripts of the loop's variable alone that are no linear form of it."""
    reads = (x for y in walk_statements((loop,)) for e in expressions(y) for x in loads(e))
    alone = {i for read in reads for i in read.indices if variables(i) == {loop.var}}
    return {i for i in alone if set(s.simplifier.linear(i)) - {loop.var, None}}


def _longest_run(e: Expr, var: Var, extent: int) -> tuple[int, int]:
    """Where the most iterations begin and end in which a subscript goes up one by one."""
    if extent > LONGEST or any(isinstance(x, (Load, Symbol)) for x in e.walk()):
        return 0, extent
    steps = np.diff(np.broadcast_to(evaluate_expr(e, {var: np.arange(extent)}, {}), extent))
    ends = np.flatnonzero(np.concatenate(([True], steps != 1, [True])))
    longest = int(np.argmax(np.diff(ends)))
    return int(ends[longest]), int(ends[longest + 1])


def _conditions(loop: For) -> list[Expr]:
    """What is not negative where the selects in a nest choose their first value."""
    found: list[Expr] = []
    for stmt in walk_statements((loop,)):
        for e in expressions(stmt):
            for x in e.walk():
                if isinstance(x, Select) and is_place(x.cond):
                    found += at_least_zero(x.cond) or []
    return found
