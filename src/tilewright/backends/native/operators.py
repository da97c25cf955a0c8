"""Scalar and vector operators in LLVM IR, one small function for each (docs/semantics.md)."""

from __future__ import annotations

import re
from collections.abc import Callable

from tilewright.backends.native.convert import (
    constant,
    convert,
    intrinsic,
    is_narrow,
    suffix,
    wrap_narrow,
)
from tilewright.backends.native.text import Function, LLVMValue, element_type, literal, splat
from tilewright.base.dtype import Kind, bool_, f16, f32, f64, i16, i32, i64
from tilewright.base.errors import CompileError
from tilewright.ir.expr import BinaryOp, CompareOp, UnaryOp

CONTRACT = "contract"  # an add may take a product in (FMA): docs/semantics.md


# ---------------------------------------------------------------- unary


def emit_unary(f: Function, op: UnaryOp, v: LLVMValue) -> LLVMValue:
    if is_narrow(v.dtype):
        wide = emit_unary(f, op, convert(f, v, f32))
        return wide if wide.dtype is bool_ else convert(f, wide, v.dtype)
    table = _FLOAT_UNARY if v.dtype.is_float else _INT_UNARY
    if op not in table:
        raise CompileError(f"{op.value} of {v.dtype} has no machine code")
    return wrap_narrow(f, table[op](f, v))


def _line(f: Function, text: str, like: LLVMValue) -> LLVMValue:
    return LLVMValue(f.let(text), like.dtype, like.lanes)


def _libm(name: str) -> Callable[[Function, LLVMValue], LLVMValue]:
    """A C library function, lane by lane: for what has no expansion of ours."""

    def emit(f: Function, v: LLVMValue) -> LLVMValue:
        return call_lanes(f, name, v)

    return emit


def call_lanes(f: Function, name: str, *args: LLVMValue) -> LLVMValue:
    """A C function of scalars (`name`, with an f behind it for f32) applied to every lane."""
    first = args[0]
    kind = element_type(first.dtype)
    symbol = name + ("f" if first.dtype is f32 else "")
    if first.lanes == 1:
        return LLVMValue(f.call(kind, symbol, *args), first.dtype)
    result = "poison"
    for lane in range(first.lanes):
        parts = [f"{kind} {f.let(f'extractelement {a}, i64 {lane}')}" for a in args]
        one = f.call(kind, symbol, *parts)
        result = f.let(f"insertelement {first.type} {result}, {kind} {one}, i64 {lane}")
    return LLVMValue(result, first.dtype, first.lanes)


def _sign(f: Function, v: LLVMValue) -> LLVMValue:
    zero, one = constant(0, v.dtype, v.lanes), constant(1, v.dtype, v.lanes)
    less, more = ("fcmp olt", "fcmp ogt") if v.dtype.is_float else ("icmp slt", "icmp sgt")
    if v.dtype.kind is Kind.UINT:
        more = "icmp ugt"
    mask = f"<{v.lanes} x i1>" if v.lanes > 1 else "i1"
    up = f.let(f"{more} {v}, {zero.ref}")
    base = v if v.dtype.is_float else zero  # 0 and NaN stay
    result = _line(f, f"select {mask} {up}, {one}, {base}", v)
    if v.dtype.kind is Kind.UINT:
        return result
    down = f.let(f"{less} {v}, {zero.ref}")
    return _line(f, f"select {mask} {down}, {constant(-1, v.dtype, v.lanes)}, {result}", v)


def _isnan(f: Function, v: LLVMValue) -> LLVMValue:
    return LLVMValue(f.let(f"fcmp uno {v}, {v.ref}"), bool_, v.lanes)


def _isinf(f: Function, v: LLVMValue) -> LLVMValue:
    size = intrinsic(f, "fabs", v)
    inf = constant(float("inf"), v.dtype, v.lanes)
    return LLVMValue(f.let(f"fcmp oeq {size}, {inf.ref}"), bool_, v.lanes)


def _not(f: Function, v: LLVMValue) -> LLVMValue:
    ones = "true" if v.dtype.kind is Kind.BOOL else "-1"
    return _line(f, f"xor {v}, {splat(ones, v.dtype, v.lanes)}", v)


def _neg_int(f: Function, v: LLVMValue) -> LLVMValue:
    return _line(f, f"sub {v.type} {splat('0', v.dtype, v.lanes)}, {v.ref}", v)


def _abs_int(f: Function, v: LLVMValue) -> LLVMValue:
    if v.dtype.kind is Kind.UINT:
        return v
    return LLVMValue(f.call(v.type, f"llvm.abs.{suffix(v)}", v, "i1 false"), v.dtype, v.lanes)


def _popcount(f: Function, v: LLVMValue) -> LLVMValue:
    """The ones in the two's complement; of a byte that holds a narrower type, its low bits'."""
    if v.dtype.bits < 8:
        v = _line(f, f"and {v}, {splat(str((1 << v.dtype.bits) - 1), v.dtype, v.lanes)}", v)
    return intrinsic(f, "ctpop", v)


_LIBRARY = (
    *(UnaryOp.EXP, UnaryOp.EXPM1, UnaryOp.LOG, UnaryOp.LOG1P),
    *(UnaryOp.ERF, UnaryOp.ERFC),
    *(UnaryOp.SIN, UnaryOp.COS, UnaryOp.TAN),
    *(UnaryOp.SINH, UnaryOp.COSH, UnaryOp.TANH, UnaryOp.ASINH, UnaryOp.ACOSH, UnaryOp.ATANH),
    *(UnaryOp.ASIN, UnaryOp.ACOS, UnaryOp.ATAN),
)
_FLOAT_UNARY: dict[UnaryOp, Callable[[Function, LLVMValue], LLVMValue]] = {
    UnaryOp.NEG: lambda f, v: _line(f, f"fneg {v}", v),
    UnaryOp.ABS: lambda f, v: intrinsic(f, "fabs", v),
    UnaryOp.SIGN: _sign,
    UnaryOp.SQRT: lambda f, v: intrinsic(f, "sqrt", v),
    UnaryOp.FLOOR: lambda f, v: intrinsic(f, "floor", v),
    UnaryOp.CEIL: lambda f, v: intrinsic(f, "ceil", v),
    UnaryOp.ROUND: lambda f, v: intrinsic(f, "roundeven", v),
    UnaryOp.TRUNC: lambda f, v: intrinsic(f, "trunc", v),
    UnaryOp.ISNAN: _isnan,
    UnaryOp.ISINF: _isinf,
    **{op: _libm(op.value) for op in _LIBRARY},
}

_INT_UNARY: dict[UnaryOp, Callable[[Function, LLVMValue], LLVMValue]] = {
    UnaryOp.NEG: _neg_int,
    UnaryOp.NOT: _not,
    UnaryOp.ABS: _abs_int,
    UnaryOp.SIGN: _sign,
    UnaryOp.POPCOUNT: _popcount,
}


# ---------------------------------------------------------------- binary


def emit_binary(f: Function, op: BinaryOp, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """Operands of one type and one number of lanes."""
    if is_narrow(a.dtype):
        wide = emit_binary(f, op, convert(f, a, f32), convert(f, b, f32))
        return convert(f, wide, a.dtype)
    table = _FLOAT_BINARY if a.dtype.is_float else _INT_BINARY
    if a.dtype.kind is Kind.BOOL:
        table = _BOOL_BINARY
    if op not in table:
        raise CompileError(f"{op.value} of {a.dtype} has no machine code")
    return wrap_narrow(f, table[op](f, a, b))


def _plain(op: str) -> Callable[[Function, LLVMValue, LLVMValue], LLVMValue]:
    return lambda f, a, b: _line(f, f"{op} {a}, {b.ref}", a)


def _mask(v: LLVMValue) -> str:
    return f"<{v.lanes} x i1>" if v.lanes > 1 else "i1"


def _select(f: Function, cond: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    return _line(f, f"select {_mask(a)} {cond}, {a}, {b}", a)


QUIET = {f32: (i32, 22), f64: (i64, 51), f16: (i16, 9)}  # the bit of quiet NaN


def _extreme(test: str) -> Callable[[Function, LLVMValue, LLVMValue], LLVMValue]:
    """min or max with NaN handed on. A constant operand goes first: then one comparison and one
    selection say it all (which is the machine's own min or max, whose second operand is its result
    where one is NaN). Otherwise NaN of the second is chosen behind that, by a comparison that does
    not wait for the first, which a reduction has just computed."""

    def emit(f: Function, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        if _is_number(b):
            a, b = b, a
        if _is_number(a):
            return _select(f, f.let(f"fcmp {test} {a}, {b.ref}"), a, b)
        best = _select(f, f.let(f"fcmp {test} {b}, {a.ref}"), b, a)
        return _select(f, f.let(f"fcmp uno {b}, {b.ref}"), _quiet(f, b), best)

    return emit


def _quiet(f: Function, v: LLVMValue) -> LLVMValue:
    """NaN with the bit set that makes it a quiet one. LLVM would merge selections of v itself, and
    miss the machine's own minimum."""
    of, bit = QUIET[v.dtype]
    quiet = constant(1 << bit, of, v.lanes)
    bits = f.let(f"bitcast {v} to {quiet.type}")
    nan = f.let(f"or {quiet.type} {bits}, {quiet.ref}")
    return _line(f, f"bitcast {quiet.type} {nan} to {v.type}", v)


def _is_number(v: LLVMValue) -> bool:
    """Whether a float is a constant, and not NaN."""
    nan = constant(float("nan"), v.dtype, v.lanes).ref
    return not v.ref.startswith("%") and v.ref != nan


def _is_signed(v: LLVMValue) -> bool:
    return v.dtype.kind is Kind.INT


def _divide(op: str, *, floor: bool) -> Callable[[Function, LLVMValue, LLVMValue], LLVMValue]:
    """Integer division or remainder that cannot trap: by zero gives 0, MIN / -1 wraps."""

    def emit(f: Function, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        zero, one = constant(0, a.dtype, a.lanes), constant(1, a.dtype, a.lanes)
        if _is_safe_divisor(b):
            plain = _line(f, f"{'s' if _is_signed(a) else 'u'}{op} {a}, {b.ref}", a)
            return _floored(f, op, a, b, plain) if floor and _is_signed(a) else plain
        by_zero = f.let(f"icmp eq {b}, {zero.ref}")
        safe = _select(f, by_zero, one, b)
        if not _is_signed(a):
            return _select(f, by_zero, zero, _line(f, f"u{op} {a}, {safe.ref}", a))
        minus = f.let(f"icmp eq {b}, {constant(-1, a.dtype, a.lanes).ref}")
        divisor = _select(f, minus, one, safe)
        result = _line(f, f"s{op} {a}, {divisor.ref}", a)
        if floor:
            result = _floored(f, op, a, divisor, result)
        special = _neg_int(f, a) if op == "div" else zero
        return _select(f, by_zero, zero, _select(f, minus, special, result))

    return emit


def _is_safe_divisor(v: LLVMValue) -> bool:
    """Whether a divisor is a constant by which nothing special happens."""
    found = re.fullmatch(r"(?:splat \(i\d+ )?(-?\d+)\)?", v.ref)
    return found is not None and int(found[1]) not in (0, -1)


def _floored(f: Function, op: str, a: LLVMValue, b: LLVMValue, result: LLVMValue) -> LLVMValue:
    """Truncated quotient or remainder to floored ones."""
    rest = result if op == "rem" else _line(f, f"srem {a}, {b.ref}", a)
    zero = constant(0, a.dtype, a.lanes)
    inexact = f.let(f"icmp ne {rest}, {zero.ref}")
    signs = _line(f, f"xor {rest}, {b.ref}", a)
    differ = f.let(f"icmp slt {signs}, {zero.ref}")
    fix = f.let(f"and {_mask(a)} {inexact}, {differ}")
    if op == "rem":
        return _select(f, fix, _line(f, f"add {result}, {b.ref}", a), result)
    less = _line(f, f"sub {result}, {constant(1, a.dtype, a.lanes).ref}", a)
    return _select(f, fix, less, result)


def _shift(op: str) -> Callable[[Function, LLVMValue, LLVMValue], LLVMValue]:
    """Shifts by the width or more, or by a negative count, shift everything out."""

    def emit(f: Function, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        bits = max(8, a.dtype.bits)
        inside = f.let(f"icmp ult {b}, {splat(str(bits), a.dtype, a.lanes)}")
        limit = LLVMValue(splat(str(bits - 1), a.dtype, a.lanes), a.dtype, a.lanes)
        count = _select(f, inside, b, limit)
        kind = op if op == "shl" else ("ashr" if _is_signed(a) else "lshr")
        result = _line(f, f"{kind} {a}, {count.ref}", a)
        if kind == "ashr":
            return result  # by width - 1 already gives the sign everywhere
        return _select(f, inside, result, constant(0, a.dtype, a.lanes))

    return emit


def _int_extreme(name: str) -> Callable[[Function, LLVMValue, LLVMValue], LLVMValue]:
    return lambda f, a, b: intrinsic(f, ("s" if _is_signed(a) else "u") + name, a, b)


def _floor_div(f: Function, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    return intrinsic(f, "floor", _line(f, f"fdiv {a}, {b.ref}", a))


def _float_mod(f: Function, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """The remainder with the divisor's sign, as numpy's mod."""
    rest = call_lanes(f, "fmod", a, b)
    zero = constant(0, a.dtype, a.lanes)
    nonzero = f.let(f"fcmp une {rest}, {zero.ref}")
    left, right = f.let(f"fcmp olt {rest}, {zero.ref}"), f.let(f"fcmp olt {b}, {zero.ref}")
    differ = f.let(f"xor {_mask(a)} {left}, {right}")
    fix = f.let(f"and {_mask(a)} {nonzero}, {differ}")
    moved = _select(f, fix, _line(f, f"fadd {rest}, {b.ref}", a), rest)
    signed_zero = intrinsic(f, "copysign", zero, b)
    return _select(f, nonzero, moved, signed_zero)


def _pow_int(f: Function, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """Square and multiply over all bits of the exponent; see scalar._integer_power."""
    result, base, left = constant(1, a.dtype, a.lanes), a, b
    one, zero = constant(1, a.dtype, a.lanes), constant(0, a.dtype, a.lanes)
    for _ in range(a.dtype.bits - (1 if _is_signed(a) else 0)):
        odd = f.let(f"trunc {left} to {_mask(a)}")
        result = _select(f, odd, _line(f, f"mul {result}, {base.ref}", a), result)
        base = _line(f, f"mul {base}, {base.ref}", a)
        left = _line(f, f"lshr {left}, {one.ref}", a)
    if not _is_signed(a):
        return result
    minus_one = constant(-1, a.dtype, a.lanes)
    odd = f.let(f"trunc {b} to {_mask(a)}")
    is_minus = f.let(f"icmp eq {a}, {minus_one.ref}")
    is_one = f.let(f"icmp eq {a}, {one.ref}")
    alternating = _select(f, odd, minus_one, one)
    small = _select(f, is_one, one, _select(f, is_minus, alternating, zero))
    negative = f.let(f"icmp slt {b}, {zero.ref}")
    return _select(f, negative, small, result)


_FLOAT_BINARY: dict[BinaryOp, Callable[[Function, LLVMValue, LLVMValue], LLVMValue]] = {
    BinaryOp.ADD: _plain(f"fadd {CONTRACT}"),
    BinaryOp.SUB: _plain(f"fsub {CONTRACT}"),
    BinaryOp.MUL: _plain(f"fmul {CONTRACT}"),
    BinaryOp.DIV: _plain("fdiv"),
    BinaryOp.FLOORDIV: _floor_div,
    BinaryOp.MOD: _float_mod,
    BinaryOp.REM: lambda f, a, b: call_lanes(f, "fmod", a, b),
    BinaryOp.MIN: _extreme("olt"),
    BinaryOp.MAX: _extreme("ogt"),
    BinaryOp.POW: lambda f, a, b: call_lanes(f, "pow", a, b),
    BinaryOp.ATAN2: lambda f, a, b: call_lanes(f, "atan2", a, b),
}

_INT_BINARY: dict[BinaryOp, Callable[[Function, LLVMValue, LLVMValue], LLVMValue]] = {
    BinaryOp.ADD: _plain("add"),
    BinaryOp.SUB: _plain("sub"),
    BinaryOp.MUL: _plain("mul"),
    BinaryOp.DIV: _divide("div", floor=False),
    BinaryOp.FLOORDIV: _divide("div", floor=True),
    BinaryOp.MOD: _divide("rem", floor=True),
    BinaryOp.REM: _divide("rem", floor=False),
    BinaryOp.MIN: _int_extreme("min"),
    BinaryOp.MAX: _int_extreme("max"),
    BinaryOp.POW: _pow_int,
    BinaryOp.AND: _plain("and"),
    BinaryOp.OR: _plain("or"),
    BinaryOp.XOR: _plain("xor"),
    BinaryOp.SHL: _shift("shl"),
    BinaryOp.SHR: _shift("shr"),
}

_BOOL_BINARY: dict[BinaryOp, Callable[[Function, LLVMValue, LLVMValue], LLVMValue]] = {
    BinaryOp.AND: _plain("and"),
    BinaryOp.OR: _plain("or"),
    BinaryOp.XOR: _plain("xor"),
    BinaryOp.MIN: _plain("and"),
    BinaryOp.MAX: _plain("or"),
    BinaryOp.MUL: _plain("and"),
    BinaryOp.ADD: _plain("or"),
}

_ORDER = {
    CompareOp.LT: "lt",
    CompareOp.LE: "le",
    CompareOp.GT: "gt",
    CompareOp.GE: "ge",
}


def emit_compare(f: Function, op: CompareOp, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    if is_narrow(a.dtype):
        a, b = convert(f, a, f32), convert(f, b, f32)
    if a.dtype.is_float:
        test = {CompareOp.EQ: "oeq", CompareOp.NE: "une"}.get(op) or "o" + _ORDER[op]
        return LLVMValue(f.let(f"fcmp {test} {a}, {b.ref}"), bool_, a.lanes)
    sign = "s" if _is_signed(a) else "u"
    test = {CompareOp.EQ: "eq", CompareOp.NE: "ne"}.get(op) or sign + _ORDER[op]
    return LLVMValue(f.let(f"icmp {test} {a}, {b.ref}"), bool_, a.lanes)


_REDUCE_FLOAT = {BinaryOp.ADD: "fadd", BinaryOp.MUL: "fmul"}
_REDUCE_INT = {
    BinaryOp.ADD: "add",
    BinaryOp.MUL: "mul",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.XOR: "xor",
}
_REDUCE_BOOL = {
    **dict.fromkeys((BinaryOp.AND, BinaryOp.MIN, BinaryOp.MUL), "and"),
    **dict.fromkeys((BinaryOp.OR, BinaryOp.MAX, BinaryOp.ADD), "or"),
    BinaryOp.XOR: "xor",
}


def emit_lanes_reduction(f: Function, op: BinaryOp, v: LLVMValue) -> LLVMValue:
    """All lanes combined, in an order LLVM may choose."""
    kind = element_type(v.dtype)
    if v.dtype.is_float and op in _REDUCE_FLOAT and not is_narrow(v.dtype):
        start = literal(-0.0 if op is BinaryOp.ADD else 1, v.dtype)
        name = f"llvm.vector.reduce.{_REDUCE_FLOAT[op]}.{suffix(v)}"
        return LLVMValue(f.call(f"reassoc {kind}", name, f"{kind} {start}", v), v.dtype)
    names = _REDUCE_BOOL if v.dtype.kind is Kind.BOOL else _REDUCE_INT
    if not v.dtype.is_float and op in names and v.dtype.bits >= 8:
        name = f"llvm.vector.reduce.{names[op]}.{suffix(v)}"
        return LLVMValue(f.call(kind, name, v), v.dtype)
    while v.lanes % 2 == 0:  # halves with halves: few steps wait for one another
        v = emit_binary(f, op, *_halves(f, v))
    result = LLVMValue(f.let(f"extractelement {v}, i64 0"), v.dtype) if v.lanes > 1 else v
    for lane in range(1, v.lanes):
        one = LLVMValue(f.let(f"extractelement {v}, i64 {lane}"), v.dtype)
        result = emit_binary(f, op, result, one)
    return result


def _halves(f: Function, v: LLVMValue) -> list[LLVMValue]:
    """The lower lanes and the upper ones; scalars of two lanes."""
    half = v.lanes // 2
    if half == 1:
        return [LLVMValue(f.let(f"extractelement {v}, i64 {lane}"), v.dtype) for lane in range(2)]
    parts = []
    for start in (0, half):
        places = ", ".join(f"i32 {start + lane}" for lane in range(half))
        text = f"shufflevector {v}, {v.type} poison, <{half} x i32> <{places}>"
        parts.append(LLVMValue(f.let(text), v.dtype, half))
    return parts
