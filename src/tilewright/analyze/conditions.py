"""Conditions on indices as inequalities."""

from __future__ import annotations

from tilewright.base.dtype import bool_, index
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    Load,
)


def is_place(e: Expr) -> bool:
    """Whether a condition is about indices alone."""
    if isinstance(e, Binary) and e.dtype == bool_:
        return is_place(e.a) and is_place(e.b)
    if not isinstance(e, Compare) or e.a.dtype != index:
        return False
    return all(isinstance(x, Expr) and not isinstance(x, Load) for x in e.walk())


def conjuncts(e: Expr) -> list[Expr]:
    """The conditions that all must hold."""
    if isinstance(e, Binary) and e.op is BinaryOp.AND and e.dtype == bool_:
        return [*conjuncts(e.a), *conjuncts(e.b)]
    return [e]


def at_least_zero(condition: Expr) -> list[Expr] | None:
    """Expressions that are all 0 or more where a condition holds, and nowhere else; None if it is
    no conjunction of comparisons of indices in order."""
    found: list[Expr] = []
    for c in conjuncts(condition):
        if not isinstance(c, Compare) or c.op is CompareOp.NE or c.a.dtype != index:
            return None
        less, more = (c.a, c.b) if c.op in (CompareOp.LT, CompareOp.LE) else (c.b, c.a)
        strict = c.op in (CompareOp.LT, CompareOp.GT)
        found.append(more - less - 1 if strict else more - less)
        if c.op is CompareOp.EQ:
            found.append(less - more)
    return found
