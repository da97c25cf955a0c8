"""What scalar operators mean, once more and without numpy: Python's integers, floats, fractions.

Slow, one number at a time. Values are Python ints, floats and bools.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tilewright.base.dtype import DType, Kind, f32
from tilewright.ir.expr import BinaryOp, CompareOp, UnaryOp

NAN, INF = math.nan, math.inf

# For each float type: bits of precision, exponent of the smallest normal number, largest finite
# number, whether it has infinities, whether it has a negative zero.
FORMATS: dict[str, tuple[int, int, Fraction, bool, bool]] = {
    "f64": (53, -1022, Fraction(2**53 - 1) * 2**971, True, True),
    "f32": (24, -126, Fraction(2**24 - 1) * 2**104, True, True),
    "f16": (11, -14, Fraction(65504), True, True),
    "bf16": (8, -126, Fraction(2**8 - 1) * 2**120, True, True),
    "f8e4m3fn": (4, -6, Fraction(448), False, True),
    "f8e4m3fnuz": (4, -7, Fraction(240), False, False),
    "f8e5m2": (3, -14, Fraction(57344), True, True),
    "f8e5m2fnuz": (3, -15, Fraction(57344), False, False),
}


def is_narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits <= 16


def round_to(value: float | Fraction, dtype: DType) -> float:
    """The nearest value of a float type, ties to even."""
    precision, least, largest, has_inf, has_minus_zero = FORMATS[dtype.name]
    if isinstance(value, float) and not math.isfinite(value):
        return value if has_inf or math.isnan(value) else NAN
    negative = value < 0 or (value == 0 and math.copysign(1, float(value)) < 0)
    size = abs(Fraction(value))
    if size == 0:
        return -0.0 if negative and has_minus_zero else 0.0
    unit = Fraction(2) ** max(_exponent(size) - precision + 1, least - precision + 1)
    rounded = round(size / unit) * unit
    if rounded > largest:
        return (-INF if negative else INF) if has_inf else NAN
    if rounded == 0 and not has_minus_zero:
        return 0.0
    return -float(rounded) if negative else float(rounded)


def _exponent(size: Fraction) -> int:
    """floor(log2(size))"""
    e = size.numerator.bit_length() - size.denominator.bit_length()
    return e if size >= Fraction(2) ** e else e - 1


def wrap(value: int, dtype: DType) -> int:
    """The low bits, as a number of the type."""
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.kind is Kind.INT and low > dtype.max else low


# ---------------------------------------------------------------- unary


def unary(op: UnaryOp, a: Any, dtype: DType) -> Any:
    if dtype.kind is Kind.BOOL:
        assert op is UnaryOp.NOT
        return not a
    if dtype.is_integer:
        return wrap(_INTEGER_UNARY[op](a, dtype), dtype)
    if op is UnaryOp.ISNAN:
        return math.isnan(a)
    if op is UnaryOp.ISINF:
        return math.isinf(a)
    return _narrowed(_float_unary(op, a), dtype)


def _narrowed(value: float, dtype: DType) -> float:
    """Narrow floats are computed in f32, then rounded."""
    return round_to(round_to(value, f32), dtype) if is_narrow(dtype) else round_to(value, dtype)


_INTEGER_UNARY = {
    UnaryOp.NEG: lambda a, t: -a,
    UnaryOp.NOT: lambda a, t: ~a,
    UnaryOp.ABS: lambda a, t: abs(a),
    UnaryOp.SIGN: lambda a, t: (a > 0) - (a < 0),
    UnaryOp.POPCOUNT: lambda a, t: (a & ((1 << t.bits) - 1)).bit_count(),
}


def _whole(function: Any, a: float) -> float:
    """A rounding function; zero keeps the sign of what it came from."""
    return a if not math.isfinite(a) else math.copysign(float(function(Fraction(a))), a)


def _float_unary(op: UnaryOp, a: float) -> float:
    if op is UnaryOp.SIGN:
        return a if a == 0 or a != a else math.copysign(1, a)
    if op in _EXACT_UNARY:
        return _EXACT_UNARY[op](a)
    return _guarded(_MATH[op], a)


_EXACT_UNARY = {
    UnaryOp.NEG: lambda a: -a,
    UnaryOp.ABS: abs,
    UnaryOp.FLOOR: lambda a: _whole(math.floor, a),
    UnaryOp.CEIL: lambda a: _whole(math.ceil, a),
    UnaryOp.ROUND: lambda a: _whole(round, a),
    UnaryOp.TRUNC: lambda a: _whole(math.trunc, a),
    UnaryOp.SQRT: lambda a: a if a == 0 else math.sqrt(a) if a > 0 else NAN,
}
_MATH = {op: getattr(math, op.value) for op in UnaryOp if hasattr(math, op.value)}
_MATH[UnaryOp.SIGMOID] = lambda a: (math.exp(a) if a < 0 else 1.0) / (1 + math.exp(-abs(a)))
_MATH[UnaryOp.GELU] = lambda a: 0.0 if a == -INF else a / 2 * math.erfc(-a / math.sqrt(2))
_POLES = {
    UnaryOp.LOG: {0.0: -INF},
    UnaryOp.LOG1P: {-1.0: -INF},
    UnaryOp.ATANH: {1.0: INF, -1.0: -INF},
}


def _guarded(function: Any, a: float) -> float:
    """Python raises where C gives an infinity or NaN."""
    op = next(o for o, f in _MATH.items() if f is function)
    if a in _POLES.get(op, {}):
        return _POLES[op][a]
    try:
        return function(a)
    except OverflowError:
        return INF if op in (UnaryOp.EXP, UnaryOp.EXPM1, UnaryOp.COSH) else math.copysign(INF, a)
    except ValueError:
        return NAN


# ---------------------------------------------------------------- binary


def binary(op: BinaryOp, a: Any, b: Any, dtype: DType) -> Any:
    if dtype.kind is Kind.BOOL:
        return bool(_BOOL[op](a, b))
    if dtype.is_integer:
        return wrap(_INTEGER[op](a, b, dtype), dtype)
    if op is BinaryOp.FLOORDIV:
        quotient = round_to(_divide(a, b), f32 if is_narrow(dtype) else dtype)
        return _narrowed(_whole(math.floor, quotient), dtype)
    return _narrowed(_FLOAT[op](a, b), dtype)


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0


def _power(a: int, b: int, dtype: DType) -> int:
    if b < 0:
        return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
    return pow(a, b, 1 << dtype.bits)


def _shift(a: int, b: int, dtype: DType, left: bool) -> int:
    if not 0 <= b < dtype.bits:
        return 0 if left or a >= 0 else -1
    return a << b if left else a >> b


_INTEGER = {
    BinaryOp.ADD: lambda a, b, t: a + b,
    BinaryOp.SUB: lambda a, b, t: a - b,
    BinaryOp.MUL: lambda a, b, t: a * b,
    BinaryOp.DIV: lambda a, b, t: _truncated(a, b),
    BinaryOp.FLOORDIV: lambda a, b, t: a // b if b else 0,
    BinaryOp.MOD: lambda a, b, t: a % b if b else 0,
    BinaryOp.REM: lambda a, b, t: a - b * _truncated(a, b) if b else 0,
    BinaryOp.MIN: lambda a, b, t: min(a, b),
    BinaryOp.MAX: lambda a, b, t: max(a, b),
    BinaryOp.POW: _power,
    BinaryOp.AND: lambda a, b, t: a & b,
    BinaryOp.OR: lambda a, b, t: a | b,
    BinaryOp.XOR: lambda a, b, t: a ^ b,
    BinaryOp.SHL: lambda a, b, t: _shift(a, b, t, True),
    BinaryOp.SHR: lambda a, b, t: _shift(a, b, t, False),
}
_BOOL = {
    BinaryOp.AND: lambda a, b: a and b,
    BinaryOp.OR: lambda a, b: a or b,
    BinaryOp.XOR: lambda a, b: a != b,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
    BinaryOp.MUL: lambda a, b: a and b,
    BinaryOp.ADD: lambda a, b: a or b,
}


def _divide(a: float, b: float) -> float:
    if b == 0:
        return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1, b)
    return a / b


def _remainder(a: float, b: float) -> float:
    return NAN if math.isinf(a) or b == 0 or a != a or b != b else math.fmod(a, b)


def _modulo(a: float, b: float) -> float:
    """The remainder with the divisor's sign."""
    r = _remainder(a, b)
    if r == 0:
        return math.copysign(0.0, b)
    return r + b if (r < 0) != (b < 0) else r


def _pick(function: Any, a: float, b: float) -> float:
    return NAN if a != a or b != b else function(a, b)


def _pow(a: float, b: float) -> float:
    odd = b == math.floor(b) and b % 2 == 1 if math.isfinite(b) else False
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INF if a < 0 and odd else INF
    except ValueError:  # a pole, or the root of a negative number
        return NAN if a != 0 else math.copysign(INF, a) if odd else INF


_FLOAT = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: _divide,
    BinaryOp.MOD: _modulo,
    BinaryOp.REM: _remainder,
    BinaryOp.MIN: lambda a, b: _pick(min, a, b),
    BinaryOp.MAX: lambda a, b: _pick(max, a, b),
    BinaryOp.POW: _pow,
    BinaryOp.ATAN2: math.atan2,
}
COMPARE = {
    CompareOp.EQ: lambda a, b: a == b,
    CompareOp.NE: lambda a, b: a != b,
    CompareOp.LT: lambda a, b: a < b,
    CompareOp.LE: lambda a, b: a <= b,
    CompareOp.GT: lambda a, b: a > b,
    CompareOp.GE: lambda a, b: a >= b,
}


# ---------------------------------------------------------------- conversion


def cast(a: Any, source: DType, to: DType) -> Any:
    if to.kind is Kind.BOOL:
        return a != 0
    if to.is_float:
        exact = a if source.is_float else Fraction(int(a))
        return round_to(round_to(exact, f32), to) if is_narrow(to) else round_to(exact, to)
    if source.is_float:
        if math.isnan(a):
            return 0
        return int(min(max(a, to.min), to.max)) if math.isinf(a) else _saturate(math.trunc(a), to)
    return wrap(int(a), to)


def _saturate(a: int, to: DType) -> int:
    return min(max(a, int(to.min)), int(to.max))
