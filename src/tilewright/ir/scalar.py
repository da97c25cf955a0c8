"""What every scalar operator means, in numpy: docs/semantics.md made executable.

Each function takes arrays (or numpy scalars) of one type and broadcasts. Both interpreters and
constant folding use these; generated code is tested against them. The rules:

- Integers wrap. Division by zero gives 0, and so do remainders. Shifting by the width or more
  (or by a negative count) shifts everything out.
- Floats of 16 bits or fewer are computed in f32 and rounded once after each operator.
- Float to integer truncates and saturates; NaN gives 0. Integer to integer wraps.
- min and max give NaN when an operand is NaN. ROUND goes to even.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.dtype import DType, Kind, from_numpy
from tilewright.ir.expr import BinaryOp, CompareOp, UnaryOp

Array = Any  # np.ndarray or numpy scalar


def _wide(dtype: DType) -> bool:
    return not dtype.is_float or dtype.bits > 16


def apply_unary(op: UnaryOp, a: Array) -> Array:
    """The operator on every element; the result's type follows expr.Unary.dtype."""
    dtype = from_numpy(a.dtype)
    with np.errstate(all="ignore"):
        if op in (UnaryOp.ISNAN, UnaryOp.ISINF):
            return _TESTS[op](a.astype(np.float32) if not _wide(dtype) else a)
        if op is UnaryOp.POPCOUNT:
            return _popcount(a, dtype)
        if op is UnaryOp.NOT:
            return (
                np.logical_not(a)
                if dtype.kind is Kind.BOOL
                else np.invert(_as_wide_int(a)).astype(a.dtype)
            )
        wide = a if _wide(dtype) else a.astype(np.float32)
        if dtype.is_integer and dtype.bits < 8:
            wide = wide.astype(np.int8)
        return np.asarray(_UNARY[op](wide)).astype(a.dtype)


def apply_binary(op: BinaryOp, a: Array, b: Array) -> Array:
    """The operator on every pair of elements of one type, which is the result's too."""
    dtype = from_numpy(a.dtype)
    with np.errstate(all="ignore"):
        if dtype.kind is Kind.BOOL:
            return _BOOL[op](a, b)
        if dtype.is_integer:
            return _apply_integer(op, a, b, dtype)
        if _wide(dtype):
            return _FLOAT[op](a, b)
        return np.asarray(_FLOAT[op](a.astype(np.float32), b.astype(np.float32))).astype(a.dtype)


def apply_compare(op: CompareOp, a: Array, b: Array) -> Array:
    """bool for every pair; every comparison with NaN is false, but `!=`."""
    with np.errstate(all="ignore"):
        return _COMPARE[op](a, b)


def apply_cast(a: Array, to: DType) -> Array:
    """Conversion by value."""
    a = np.asarray(a)
    source = from_numpy(a.dtype)
    with np.errstate(all="ignore"):
        if to.kind is Kind.BOOL:
            return a != a.dtype.type(0)
        if source.is_float and to.is_integer:
            return _saturate(a if _wide(source) else a.astype(np.float32), to)
        if source.is_integer and to.is_integer and to.bits < 8:
            return _wrap(a.astype(np.int64), to)
        if not _wide(to):  # by way of f32, as generated code does
            return a.astype(np.float32).astype(to.numpy)
        return a.astype(to.numpy)


def apply_bitcast(a: Array, to: DType) -> Array:
    """The same bits as another type of the same width."""
    return np.asarray(a).view(to.numpy)


def _saturate(a: np.ndarray, to: DType) -> np.ndarray:
    whole = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    low, high = float(to.min), float(to.max)
    result = np.where(whole <= low, to.min, 0).astype(np.int64 if to.min < 0 else np.uint64)
    inside = (whole > low) & (whole < high)
    result[...] = np.where(inside, np.where(inside, whole, 0).astype(result.dtype), result)
    result[...] = np.where(whole >= high, np.array(to.max, result.dtype), result)
    return result.astype(to.numpy)


def _wrap(a: np.ndarray, to: DType) -> np.ndarray:
    low = a & ((1 << to.bits) - 1)
    if to.kind is Kind.INT:
        low = np.where(low >= 1 << (to.bits - 1), low - (1 << to.bits), low)
    return low.astype(np.int8 if to.kind is Kind.INT else np.uint8).astype(to.numpy)


def _as_wide_int(a: Array) -> Array:
    return a.astype(np.int64) if from_numpy(a.dtype).bits < 8 else a


def _apply_integer(op: BinaryOp, a: Array, b: Array, dtype: DType) -> Array:
    if dtype.bits < 8:
        return _wrap(np.asarray(_INTEGER[op](a.astype(np.int64), b.astype(np.int64))), dtype)
    return np.asarray(_INTEGER[op](a, b)).astype(a.dtype)


def _popcount(a: Array, dtype: DType) -> Array:
    """The number of ones in the two's complement."""
    flat = np.ascontiguousarray(a).reshape(*np.shape(a), 1).view(np.uint8)
    return np.unpackbits(flat, axis=-1).sum(axis=-1).astype(dtype.numpy)


def _sign(a: Array) -> Array:
    """-1, 0 or 1; a zero keeps its sign, and NaN stays."""
    return np.copysign(np.sign(a), a) if a.dtype.kind == "f" else np.sign(a)


def _truncated_division(a: Array, b: Array) -> Array:
    floor = np.floor_divide(a, b)
    inexact = (b != 0) & (floor * b != a)
    return floor + np.asarray(inexact & ((a < 0) != (b < 0))).astype(a.dtype)


def _integer_power(a: Array, b: Array) -> Array:
    """Wrapping power; a negative exponent gives 1/a**|b| truncated: 0 unless a is 1 or -1."""
    if np.all(b >= 0):
        return np.power(a, b)
    odd = (b & 1).astype(bool)
    small = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)).astype(a.dtype)
    return np.where(b < 0, small, np.power(a, np.where(b < 0, b.dtype.type(0), b)))


def _shift_left(a: Array, b: Array) -> Array:
    bits = from_numpy(a.dtype).bits
    inside = (b >= 0) & (b < bits)
    return np.where(inside, np.left_shift(a, np.where(inside, b, b.dtype.type(0))), a.dtype.type(0))


def _shift_right(a: Array, b: Array) -> Array:
    bits = from_numpy(a.dtype).bits
    inside = (b >= 0) & (b < bits)
    return np.right_shift(a, np.where(inside, b, b.dtype.type(bits - 1))) * np.where(
        inside | (a < 0), a.dtype.type(1), a.dtype.type(0)
    )


def _of_each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python's floats on every element, as f64."""
    each = np.vectorize(function, otypes=[np.float64])

    def apply(a: Array) -> Array:
        wide = np.asarray(a, np.float64)
        return each(wide) if wide.size else wide

    return apply


def _gelu(a: float) -> float:
    """a erfc(-a / sqrt(2)) / 2, which is 0 at -inf."""
    return max(a, -64.0) * 0.5 * math.erfc(-a * 0.5**0.5)


def _sigmoid(a: Array) -> Array:
    """1 / (1 + e**-a), and below 0 e**a / (1 + e**a): the power is at most 1."""
    power = np.exp(-np.abs(a))
    return np.where(a < 0, power, a.dtype.type(1)) / (1 + power)


_TESTS: dict[UnaryOp, Callable[[Array], Array]] = {
    UnaryOp.ISNAN: np.isnan,
    UnaryOp.ISINF: np.isinf,
}

_UNARY: dict[UnaryOp, Callable[[Array], Array]] = {
    UnaryOp.NEG: np.negative,
    UnaryOp.ABS: np.abs,
    UnaryOp.SIGN: _sign,
    UnaryOp.SQRT: np.sqrt,
    UnaryOp.EXP: np.exp,
    UnaryOp.EXPM1: np.expm1,
    UnaryOp.LOG: np.log,
    UnaryOp.LOG1P: np.log1p,
    UnaryOp.SIN: np.sin,
    UnaryOp.COS: np.cos,
    UnaryOp.TAN: np.tan,
    UnaryOp.ASIN: np.arcsin,
    UnaryOp.ACOS: np.arccos,
    UnaryOp.ATAN: np.arctan,
    UnaryOp.SINH: np.sinh,
    UnaryOp.COSH: np.cosh,
    UnaryOp.TANH: np.tanh,
    UnaryOp.ASINH: np.arcsinh,
    UnaryOp.ACOSH: np.arccosh,
    UnaryOp.ATANH: np.arctanh,
    UnaryOp.ERF: _of_each(math.erf),
    UnaryOp.ERFC: _of_each(math.erfc),
    UnaryOp.SIGMOID: _sigmoid,
    UnaryOp.GELU: _of_each(_gelu),
    UnaryOp.FLOOR: np.floor,
    UnaryOp.CEIL: np.ceil,
    UnaryOp.ROUND: np.rint,
    UnaryOp.TRUNC: np.trunc,
}

_FLOAT: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.FLOORDIV: lambda a, b: np.floor(np.divide(a, b)),
    BinaryOp.MOD: np.mod,
    BinaryOp.REM: np.fmod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.POW: np.power,
    BinaryOp.ATAN2: np.arctan2,
}

_INTEGER: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: _truncated_division,
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.MOD: np.mod,
    BinaryOp.REM: np.fmod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.POW: _integer_power,
    BinaryOp.AND: np.bitwise_and,
    BinaryOp.OR: np.bitwise_or,
    BinaryOp.XOR: np.bitwise_xor,
    BinaryOp.SHL: _shift_left,
    BinaryOp.SHR: _shift_right,
}

_BOOL: dict[BinaryOp, Callable[[Array, Array], Array]] = {
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
    BinaryOp.XOR: np.logical_xor,
    BinaryOp.MIN: np.logical_and,
    BinaryOp.MAX: np.logical_or,
    BinaryOp.MUL: np.logical_and,
    BinaryOp.ADD: np.logical_or,
}

_COMPARE: dict[CompareOp, Callable[[Array, Array], Array]] = {
    CompareOp.EQ: np.equal,
    CompareOp.NE: np.not_equal,
    CompareOp.LT: np.less,
    CompareOp.LE: np.less_equal,
    CompareOp.GT: np.greater,
    CompareOp.GE: np.greater_equal,
}
