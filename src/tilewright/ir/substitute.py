"""Rewriting expressions, replacing variables in them, and finding those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.node import Node
from tilewright.ir.expr import Buffer, Const, Dim, Expr, Symbol, Var

Values = Mapping[Any, Expr]  # by expressions, of any kind: a mapping's keys are invariant
Mentioned = Var | Symbol | Buffer
_LEAVES = frozenset({Var, Symbol})  # where all that is replaced are these, most parts stay


def substitute(e: Expr, values: Values) -> Expr:
    """`e` with variables (or any expressions) replaced."""
    if not values:
        return e
    memo: dict[Expr, Expr] = {}
    leaves = _LEAVES.issuperset(map(type, values))

    def visit(x: Expr) -> Expr:
        if not isinstance(x, Expr):  # a buffer: shapes are not rewritten
            return x
        if x in values:
            return values[x]
        if isinstance(x, (Var, Const, Symbol)):
            return x
        if x not in memo:
            without = leaves and mentioned(x).isdisjoint(values)
            memo[x] = x if without else x.map(visit)
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
        found = frozenset(x for x in mentioned(e) if isinstance(x, Var))
        object.__setattr__(e, "_variables", found)
        return found


def mentioned(record: Node) -> frozenset[Mentioned]:
    """The variables, symbols and buffers in an expression or a statement, those of its parts
    included. Each record keeps its own, so that of a changed program only what is new is looked
    at."""
    try:
        return record._mentioned
    except AttributeError:
        pass
    pending = [record]
    while pending:  # a chain of operators may be deeper than Python's stack
        x = pending[-1]
        children = x.children()
        known: list[Any] = [getattr(c, "_mentioned", None) for c in children]
        if None in known:
            pending += [c for c, found in zip(children, known, strict=True) if found is None]
            continue
        own = (x,) if isinstance(x, (Var, Symbol, Buffer)) else ()
        object.__setattr__(x, "_mentioned", frozenset(own).union(*known))
        pending.pop()
    return record._mentioned
