"""Matching, third step: the values of fields, from the program's loops, subscripts and conditions.

    the instruction                               the program            so
    x[i*step + k]                                 X[2*h + r + t]         step = 2
    x[…] if i*step + k - pad >= 0 else 0          … 2*h + r >= 3 - t     pad = 3 - t, at least 0
    for i in n                                    for h in 8: if h < m   n = min(m, 8)

Values are expressions of the loops around the call. A condition on a read says which iterations
are inside: P + a >= 0, where P moves with the loops, holds for the same ones whatever a is, beyond
the least value with which all of them are and the greatest with which none is. So the instruction's
a is the program's, brought between these two: a pad is 0 where nothing lies outside.
"""

from __future__ import annotations

from tilewright.analyze.conditions import at_least_zero, conjuncts
from tilewright.analyze.extremes import least, most
from tilewright.analyze.linear import add, to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Expr, Symbol, Var, const
from tilewright.ir.instruction import Instruction
from tilewright.schedule.match.binding import Binding, Obstacles
from tilewright.schedule.match.fields import Fields, Moving

# By what moves with the loops: what is constant in them, and the condition that says so.
Key = tuple[tuple[Expr | None, int], ...]
Bounds = dict[Key, list[tuple[Expr, Expr]]]


def solve_fields(
    instruction: Instruction, simplifier: Simplifier, b: Binding, obstacles: Obstacles
) -> Fields | None:
    """The values of all fields that the program says something of, for one assignment of loops to
    axes; None if there are none."""
    fields = Fields(instruction, simplifier, b, obstacles)
    solved = (
        all(fields.ranges(nest, k == 0) for k, nest in enumerate(b.nests))
        and all(fields.steps(ours, theirs) for _, ours, _, theirs in b.elements)
        and all(_guard(fields, ours, theirs) for ours, theirs in b.guards)
        and all(fields.equal(ours, theirs) for ours, theirs in b.equal)
    )
    if not solved:
        return None
    fields.settle()
    return fields


def _guard(fields: Fields, ours: Expr, theirs: Expr | None) -> bool:
    """Makes the instruction's condition hold where the program's does."""
    mine = at_least_zero(ours)
    known = _by_moving(fields, [] if theirs is None else conjuncts(theirs))
    if mine is None or known is None:
        return fields.no(f"the condition {theirs} is not {ours}")
    todo = mine
    while todo:
        ready = next((e for e in todo if len(_unknown(fields, e)) <= 1), None)
        if ready is None:
            return fields.no(f"{ours} does not say what each field in it is")
        todo = [e for e in todo if e is not ready]
        if not _inequality(fields, ready, known):
            return False
    for moving, bases in known.items():
        for base, condition in bases:
            inside = to_expr(add(dict(moving), fields.simplifier.linear(base))) >= 0
            if not fields.simplifier.proves(inside):
                what = f"{condition}, which {fields.instruction} cannot"
                loops = [var for var, _ in moving if isinstance(var, Var)]
                return fields.no(f"the program reads only where {what}", loops)
    return True


def _by_moving(fields: Fields, conditions: list[Expr]) -> Bounds | None:
    """None if a condition is no comparison that is linear in the loops."""
    found: Bounds = {}
    for condition in conditions:
        given = at_least_zero(condition)
        for e in given or ():
            moving, base = fields.split(fields.theirs(e))
            if moving is None:
                return None
            found.setdefault(_key(moving), []).append((to_expr(base), condition))
        if given is None:
            return None
    return found


def _key(moving: Moving) -> Key:
    return tuple(sorted(moving.items(), key=str))


def _unknown(fields: Fields, e: Expr) -> set[Symbol]:
    form = fields.ours(e)
    return set() if form is None else fields.unknown(form.rest)


def _inequality(fields: Fields, e: Expr, known: Bounds) -> bool:
    """Finds the one field in e >= 0; without one, checks that it says the same as the program."""
    form = fields.ours(e)
    moving = None if form is None else form.moving
    if form is None or moving is None:
        return fields.no(f"{e} >= 0 is not linear in the loops of {fields.instruction}")
    s = fields.simplifier
    causes = set(moving)
    far, near = _extremes(fields, moving)
    never, always = const(-1) - near, const(0) - far
    theirs = [*(base for base, _ in known.pop(_key(moving), [])), always]
    unknown = [(fields.field(x), k) for x, k in form.rest.items() if fields.field(x) is not None]
    if not unknown:
        sides = ([*parts, always] for parts in ([to_expr(form.rest)], theirs))
        here, there = (most(s, [least(s, parts), never]) for parts in sides)
        what = f"{fields.instruction} reads where {e} >= 0, the program not"
        return here == there or fields.no(what, causes)
    ((symbol, k),) = unknown
    if symbol is None or abs(k) != 1 or _unknown(fields, e) != {symbol}:
        return fields.no(f"{symbol} cannot be found from {e} >= 0")
    rest = {x: n for x, n in form.rest.items() if x is not symbol}
    offset, fixed = const(rest.pop(None, 0)), to_expr(rest) * k
    if k > 0:
        value = most(s, [least(s, [x - offset for x in theirs]), never - offset])
    else:
        value = least(s, [most(s, [offset - x for x in theirs]), offset - never])
    return fields.bind(symbol, s(value - fixed), causes)


def _extremes(fields: Fields, moving: Moving) -> tuple[Expr, Expr]:
    """The least and the greatest value of a linear form of the loops."""
    far: Expr = const(0)
    near = far
    for var, k in moving.items():
        end = (fields.extents[var] - 1) * k
        far, near = (far, near + end) if k > 0 else (far + end, near)
    return fields.simplifier(far), fields.simplifier(near)
