"""Random index expressions, with loops of constant and symbolic extent around them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies_expr import Draws

from tilewright.base.dtype import i64
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Load,
    Select,
    Symbol,
    Var,
    const,
)

SYMBOLS = (Symbol("n"), Symbol("m", 0, 6), Symbol("k", 2, 3))
VARS = tuple(Var(name) for name in "hijkl")
CONSTANTS = (1, 2, 3, 4, 5, 6, 8, 12, 0, -1, -3)
MOST = 200  # environments tried for one expression


@dataclass(frozen=True)
class Case:
    """An expression and the loops it stands in."""

    expr: Expr
    extents: dict[Var, Dim]

    def environments(self) -> Iterator[dict[Expr, Any]]:
        """Values of the symbols, and of the variables below their extents: all, or a part."""
        yield from itertools.islice(self._environments(), MOST)

    def _environments(self) -> Iterator[dict[Expr, Any]]:
        for values in itertools.product((1, 5, 2), (0, 3, 1), (2, 3)):
            symbols = dict(zip(SYMBOLS, map(np.int64, values), strict=True))
            sizes = [_value(n, symbols) for n in self.extents.values()]
            for place in itertools.islice(itertools.product(*map(range, sizes)), MOST // 4):
                yield symbols | dict(zip(self.extents, map(np.int64, place), strict=True))


def _value(extent: Dim, symbols: dict[Expr, Any]) -> int:
    return extent if isinstance(extent, int) else int(symbols[extent])


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    return index_case(Draws(draw))


def index_case(d: Draws) -> Case:
    """The same, from any draws."""
    extents: dict[Var, Dim] = {
        v: d.pick((4, 1, 3, 8, *SYMBOLS)) for v in VARS[: d.int(1, len(VARS))]
    }
    return Case(_index(d, tuple(extents), d.int(1, 5)), extents)


def _index(d: Draws, variables: tuple[Var, ...], depth: int) -> Expr:
    if depth == 0:
        choice = d.int(0, 5)
        if choice <= 3:
            return d.pick(variables)
        return const(d.pick(CONSTANTS)) if choice == 4 else d.pick(SYMBOLS)
    choice = d.int(0, 9)
    a = _index(d, variables, depth - 1)
    if choice <= 2:
        op = d.pick((BinaryOp.MUL, BinaryOp.FLOORDIV, BinaryOp.MOD))
        return Binary(op, a, const(d.pick(CONSTANTS)))
    if choice == 3:  # by something symbolic
        op = d.pick((BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.MUL))
        return Binary(op, a, d.pick(SYMBOLS))
    b = _index(d, variables, depth - 1)
    if choice == 4:
        cond = d.pick((a < b, a.equals(b), a >= b))
        return Select(cond, b, _index(d, variables, depth - 1))
    ops = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.FLOORDIV, BinaryOp.MOD)
    return Binary(d.pick((BinaryOp.ADD, BinaryOp.ADD, *ops)), a, b)


# ---------------------------------------------------------------- data

_EXTREMES = (2**63 - 1, -(2**63), 2**62, -(2**62), 3, -1, 0, 7, 2**40 + 1)
_DATA = Buffer("x", i64, (len(_EXTREMES),))


@st.composite
def data_cases(draw: Callable[..., Any]) -> tuple[Expr, dict[Buffer, np.ndarray]]:
    """An expression of large integers in memory, and the memory."""
    d = Draws(draw)
    expr = _data(d, d.int(1, 4))
    if d.chance(2):
        compared = d.pick((expr < _data(d, 2), expr.equals(_data(d, 2)), expr >= _data(d, 2)))
        expr = Select(compared, const(1), const(0))
    return expr, {_DATA: np.array(_EXTREMES)}


def _data(d: Draws, depth: int) -> Expr:
    if depth == 0:
        if d.chance(3):
            return const(d.pick((1, 2, 4, 3, -1, 2**63 - 1, -(2**63), 2**40)))
        return Load(_DATA, (const(d.int(0, len(_EXTREMES) - 1)),))
    ops = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.SUB, BinaryOp.FLOORDIV, BinaryOp.MOD)
    op = d.pick((*ops, BinaryOp.MIN, BinaryOp.MAX))
    return Binary(op, _data(d, depth - 1), _data(d, depth - 1))
