"""Replacing variables in expressions, and finding them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.expr import Const, Dim, Expr, Symbol, Var, as_expr


def substitute(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
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


def variables(e: Dim) -> set[Var]:
    """The variables in an expression, those inside reads included."""
    return {x for x in as_expr(e).walk() if isinstance(x, Var)}
