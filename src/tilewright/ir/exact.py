"""Index arithmetic that does not overflow: what instructions cost, however large their fields."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.ir.evaluate import Env, evaluate_expr
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_expr,
)

MOST = 1 << 62  # magnitudes below which 64 bits are enough


def evaluate_exactly(term: Dim, env: Env) -> np.ndarray:
    """The value of index arithmetic for numbers, or for columns of them: of 64 bits where no part
    of it can leave them, else Python's integers (an array of objects)."""
    e = as_expr(term)
    if _magnitude(e, env) < MOST:
        return np.asarray(evaluate_expr(e, env, {}))
    wide = {x: np.asarray(np.asarray(v, np.int64), object) for x, v in env.items()}
    return np.asarray(_value(e, wide), object)


def _magnitude(e: Expr, env: Mapping[Expr, Any]) -> float:
    """Of the largest value that any part of an expression can have."""
    if isinstance(e, Const):
        return abs(float(e.value))
    if isinstance(e, Var | Symbol):
        return float(np.max(np.abs(np.asarray(env[e], float)), initial=0))
    parts = [_magnitude(x, env) for x in e.children() if isinstance(x, Expr)]
    if isinstance(e, Binary) and e.op is BinaryOp.MUL:
        return max(1.0, parts[0]) * max(1.0, parts[1])
    if isinstance(e, Binary) and e.op in _GROWING:
        return float("inf")
    return sum(parts) + 1


def _value(e: Expr, env: Mapping[Expr, object]) -> Any:
    """The same as `evaluate_expr`, of Python's integers."""
    if isinstance(e, Const):
        return np.asarray(e.value, object)
    if isinstance(e, Var | Symbol):
        return env[e]
    if isinstance(e, Select):
        return np.where(_value(e.cond, env).astype(bool), _value(e.a, env), _value(e.b, env))
    if isinstance(e, Cast):
        return _value(e.a, env)
    if isinstance(e, Unary):
        return _UNARY[e.op](_value(e.a, env))
    assert isinstance(e, Binary | Compare)
    return _BINARY[e.op](_value(e.a, env), _value(e.b, env))


def _divided(quotient: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """What division by 0 gives is 0 (docs/semantics.md)."""

    def divide(a: Any, b: Any) -> Any:
        return np.where(b == 0, 0, quotient(a, np.where(b == 0, 1, b)))

    return divide


def _towards_zero(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


_GROWING = (BinaryOp.POW, BinaryOp.SHL)
_UNARY: dict[UnaryOp, Callable[[Any], Any]] = {
    UnaryOp.NEG: operator.neg,
    UnaryOp.ABS: abs,
    UnaryOp.SIGN: np.sign,
    UnaryOp.NOT: np.invert,
}
_BINARY: dict[BinaryOp | CompareOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.POW: operator.pow,
    BinaryOp.DIV: _divided(_towards_zero),
    BinaryOp.REM: _divided(lambda a, b: a - b * _towards_zero(a, b)),
    BinaryOp.FLOORDIV: _divided(operator.floordiv),
    BinaryOp.MOD: _divided(operator.mod),
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.AND: operator.and_,
    BinaryOp.OR: operator.or_,
    BinaryOp.XOR: operator.xor,
    BinaryOp.SHL: lambda a, b: a * 2**b,
    BinaryOp.SHR: lambda a, b: a // 2**b,
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}
