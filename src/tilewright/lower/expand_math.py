"""Functions of f32 as arithmetic that vectors can do.

Machine vectors have no exp or sin. Each function is an expression of additions, products, shifts
and bit casts, which is as exact as docs/semantics.md says for all numbers (NaN, infinities,
subnormals), whether products are contracted or not. Types narrower than f32 are computed in f32, so
they come here as well; functions of f64 stay, and become calls of the C library, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtype import f32
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Unary,
    UnaryOp,
    const,
    maximum,
    select,
)
from tilewright.ir.loop import Kernel, map_block, map_exprs
from tilewright.lower import math_table
from tilewright.lower.math_arc import acos, asin, atan, atan2
from tilewright.lower.math_common import absolute
from tilewright.lower.math_erf import erf, erfc, gelu
from tilewright.lower.math_exp import cosh, exp, expm1, sigmoid, sinh, tanh
from tilewright.lower.math_log import acosh, asinh, atanh, log, log1p
from tilewright.lower.math_pow import pow_
from tilewright.lower.math_round import rounded_cast
from tilewright.lower.math_trig import cos, sin, tan

UNARY: dict[UnaryOp, Callable[[Expr], Expr]] = {
    UnaryOp.EXP: exp,
    UnaryOp.EXPM1: expm1,
    UnaryOp.LOG: log,
    UnaryOp.LOG1P: log1p,
    UnaryOp.SIN: sin,
    UnaryOp.COS: cos,
    UnaryOp.TAN: tan,
    UnaryOp.ASIN: asin,
    UnaryOp.ACOS: acos,
    UnaryOp.ATAN: atan,
    UnaryOp.SINH: sinh,
    UnaryOp.COSH: cosh,
    UnaryOp.TANH: tanh,
    UnaryOp.ASINH: asinh,
    UnaryOp.ACOSH: acosh,
    UnaryOp.ATANH: atanh,
    UnaryOp.ERF: erf,
    UnaryOp.ERFC: erfc,
    UnaryOp.SIGMOID: sigmoid,
    UnaryOp.GELU: gelu,
}
LOOKED_UP: dict[UnaryOp, Callable[[Expr], Expr]] = {  # where vectors have tables
    UnaryOp.TANH: math_table.tanh,
    UnaryOp.ERF: math_table.erf,
    UnaryOp.ERFC: math_table.erfc,
    UnaryOp.GELU: math_table.gelu,
}
BINARY: dict[BinaryOp, Callable[[Expr, Expr], Expr]] = {
    BinaryOp.POW: pow_,
    BinaryOp.ATAN2: atan2,
}


def _sigmoid_of_exp(x: Expr) -> Expr:
    """1 / (1 + e**-x), and below 0 e**x / (1 + e**x): the power is at most 1."""
    one = const(1.0, x.dtype)
    power = Unary(UnaryOp.EXP, -absolute(x))
    return select(x < 0, power, one) / (one + power)


def _gelu_of_erfc(x: Expr) -> Expr:
    """x erfc(-x / sqrt(2)) / 2, which is 0 at -inf."""
    share = Unary(UnaryOp.ERFC, x * const(-(0.5**0.5), x.dtype))
    return maximum(const(-64.0, x.dtype), x) * const(0.5, x.dtype) * share


# Functions of f64 that the C library lacks, by those that it has.
_LIBRARY = {UnaryOp.SIGMOID: _sigmoid_of_exp, UnaryOp.GELU: _gelu_of_erfc}


def expand_math(kernel: Kernel, table: int = 0) -> Kernel:
    """Replaces functions that vectors lack; `table` is the number of f32 that one instruction
    looks up in (VectorUnit.table)."""
    functions = UNARY | LOOKED_UP if table >= math_table.ENTRIES else UNARY
    memo: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        if not isinstance(e, Expr):
            return e
        if e not in memo:
            memo[e] = _expand(e.map(visit), functions)
        return memo[e]

    body = map_block(kernel.body, lambda s: map_exprs(s, visit))
    return kernel if body is kernel.body else kernel.with_(body=body)


def _expand(e: Expr, functions: dict[UnaryOp, Callable[[Expr], Expr]]) -> Expr:
    if isinstance(e, Cast):
        rounded = rounded_cast(e)
        return e if rounded is None else rounded
    if isinstance(e, Unary) and e.op in functions and e.dtype.is_float:
        if e.dtype.bits > 32:
            return _LIBRARY[e.op](e.a) if e.op in _LIBRARY else e
        wide = functions[e.op](_widened(e.a))
    elif isinstance(e, Binary) and e.op in BINARY and e.dtype.is_float and e.dtype.bits <= 32:
        wide = BINARY[e.op](_widened(e.a), _widened(e.b))
    else:
        return e
    return wide if e.dtype == f32 else Cast(e.dtype, wide)


def _widened(x: Expr) -> Expr:
    if isinstance(x, Const):
        return const(x.value, f32)
    return x if x.dtype == f32 else Cast(f32, x)
