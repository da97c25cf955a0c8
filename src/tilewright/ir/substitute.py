"""Rewriting expressions, replacing variables in them, and finding those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir.expr import Const, Dim, Expr, Symbol, Var

Values = Mapping[Any, Expr]  # by expressions, of any kind: a mapping's keys are invariant


def substitute(e: Expr, values: Values) -> Expr:
    """`e` with variables (or any expressions) replaced."""
    if not values:
        return e
    memo: dict[Expr, Expr] = {}

    def visit(x: Expr) -> Expr:
        if not isinstance(x, Expr):  # a buffer: shapes are not rewritten
            return x
        if x in values:
            return values[x]
        if isinstance(x, (Var, Const, Symbol)):
            return x
        if x not in memo:
            memo[x] = x.map(visit)
        return memo[x]

    return visit(e)


def rewrite(e: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """`e` with `function` applied to every expression in it, operands first. A part that is shared
    is rewritten once and stays shared."""
    memo: dict[int, tuple[Expr, Expr]] = {}  # with the part itself, so that its id stays its own

    def visit(x: Expr) -> Expr:
        if not isinstance(x, Expr):  # a buffer
            return x
        if id(x) not in memo:
            memo[id(x)] = x, function(x.map(visit))
        return memo[id(x)][1]

    return visit(e)


def variables(e: Dim) -> frozenset[Var]:
    """The variables in an expression, those inside reads included."""
    if isinstance(e, int):
        return frozenset()
    try:
        return e._variables
    except AttributeError:
        found = frozenset(x for x in e.walk() if isinstance(x, Var))
        object.__setattr__(e, "_variables", found)
        return found
