"""Guards narrow loops: a loop is cut where a condition on its iterations begins or ends to hold.

    for w in 114: pad[w] = select(1 <= w and w < 113, x[w - 1], 0)
->  for w in 1: pad[w] = 0;  for w in 112: pad[w + 1] = x[w];  for w in 1: pad[w + 113] = 0

Each part does without the condition, so that what lies one after another is moved in whole vectors.
"""

from __future__ import annotations

from tilewright.analyze.conditions import at_least_zero, is_place
from tilewright.ir.expr import Expr, Select
from tilewright.ir.loop import For, expressions, walk_statements
from tilewright.ir.substitute import variables
from tilewright.schedule.primitives.stages import nest_loops
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop

LEAST = 4  # iterations between the borders that are worth a loop of their own
MOST = 4  # at either border: more are no border


def cut_borders(s: Schedule, loops: list[Loop]) -> tuple[list[Loop], list[list[Loop]]]:
    """Cuts the innermost loop of a perfect nest whose iterations a condition picks, if that is not
    the outermost one: (the loops around it, the loops of each part)."""
    for depth in reversed(range(1, len(loops))):
        loop = loops[depth]
        found = _middle(s, loop)
        if found is None:
            continue
        extent = s.for_(loop).extent
        assert isinstance(extent, int)
        parts = [loop]
        if found.start:
            parts.insert(0, s.peel(loop, found.start))
        if found.stop < extent:
            parts.append(s.peel(loop, found.stop - extent))
        return loops[:depth], [_loops_from(s, part) for part in parts]
    return loops, []


def _loops_from(s: Schedule, outermost: Loop) -> list[Loop]:
    return [Loop(x.var) for x in nest_loops(s.for_(outermost))[0]]


def _middle(s: Schedule, loop: Loop) -> range | None:
    """The iterations for which conditions hold that are about this loop alone; None if that is not
    all but a border."""
    extent = s.for_(loop).extent
    if not isinstance(extent, int):
        return None
    start, stop = 0, extent
    for form in _conditions(s.for_(loop)):
        linear = s.simplifier.linear(form)
        others = {atom for atom in linear if atom not in (None, loop.var)}
        if any(loop.var in variables(atom) for atom in others if atom is not None):
            return None
        step, constant = linear.get(loop.var, 0), linear.get(None, 0)
        if step == 1 and not others:
            start = max(start, -constant)
        elif step == -1 and not others:
            stop = min(stop, constant + 1)
        elif step:
            return None
    is_border = max(start, extent - stop) <= MOST and stop - start >= LEAST
    return range(start, stop) if is_border and (start, stop) != (0, extent) else None


def _conditions(loop: For) -> list[Expr]:
    """What is not negative where the selects in a nest choose their first value."""
    found: list[Expr] = []
    for stmt in walk_statements((loop,)):
        for e in expressions(stmt):
            for x in e.walk():
                if isinstance(x, Select) and is_place(x.cond):
                    found += at_least_zero(x.cond) or []
    return found
