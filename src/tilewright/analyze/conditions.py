"""Conditions on indices as inequalities, and what they say of subscripts."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analyze.linear import add, linear, to_expr
from tilewright.base.dtype import bool_, index
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    Load,
    as_expr,
    const,
    maximum,
    minimum,
)
from tilewright.ir.loop import For
from tilewright.ir.substitute import substitute, variables


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


def greatest(i: Expr, loops: Sequence[For], conditions: Sequence[Expr]) -> Expr:
    """The greatest value of a subscript that is linear in each of some loops: at their ends, or at
    the end that a condition sets."""
    found: Expr = const(0)
    extents = {loop.var: as_expr(loop.extent) for loop in loops}
    for atom, k in linear(i).items():
        inside = [] if atom is None else [v for v in extents if v in variables(atom)]
        part = const(k) if atom is None else atom * k
        if len(inside) > 1:
            raise CompileError(f"the subscript {i} is not linear in its loops")
        for var in inside:
            ends = (substitute(part, {var: const(0)}), substitute(part, {var: extents[var] - 1}))
            part = ends[1] if atom == var and k > 0 else maximum(*ends)
        found = found + part
    for condition in conditions:
        for e in at_least_zero(condition) or []:
            bound = to_expr(add(linear(i), linear(e)))  # i <= i + e
            if not variables(bound) & set(extents):
                found = minimum(found, bound)
    return found
