"""Values in LLVM IR: constants, lanes, and conversions from type to type (docs/semantics.md).

bf16 and the 8-bit floats are held as their bits: hardware that converts bf16 takes subnormal
numbers for zero, and other machines have no conversion at all.
"""

from __future__ import annotations

import numpy as np

from tilewright.backends.native.text import (
    Function,
    LLVMValue,
    element_type,
    literal,
    splat,
    type_name,
)
from tilewright.base.dtype import DType, Kind, bf16, bool_, f32, f64, i32


def constant(value: int | float | bool, dtype: DType, lanes: int = 1) -> LLVMValue:
    return LLVMValue(splat(literal(value, dtype), dtype, lanes), dtype, lanes)


def suffix(v: LLVMValue) -> str:
    """The type suffix of an overloaded intrinsic."""
    base = {"double": "f64", "float": "f32", "half": "f16"}
    name = element_type(v.dtype)
    name = base.get(name, name)
    return f"v{v.lanes}{name}" if v.lanes > 1 else name


def intrinsic(f: Function, name: str, *args: LLVMValue) -> LLVMValue:
    """A call of an LLVM intrinsic whose result is of its first argument's type."""
    first = args[0]
    result = f.call(first.type, f"llvm.{name}.{suffix(first)}", *args)
    return LLVMValue(result, first.dtype, first.lanes)


def broadcast(f: Function, v: LLVMValue, lanes: int) -> LLVMValue:
    """The scalar in all lanes; a vector as it is."""
    if v.lanes == lanes or lanes == 1:
        return v
    if not v.ref.startswith("%"):
        return LLVMValue(splat(v.ref, v.dtype, lanes), v.dtype, lanes)
    kind = type_name(v.dtype, lanes)
    first = f.let(f"insertelement {kind} poison, {v}, i64 0")
    mask = f"<{lanes} x i32> zeroinitializer"
    return LLVMValue(f.let(f"shufflevector {kind} {first}, {kind} poison, {mask}"), v.dtype, lanes)


def is_narrow(dtype: DType) -> bool:
    """A float type that is computed in f32 and rounded after each operator."""
    return dtype.is_float and dtype.bits <= 16


# ---------------------------------------------------------------- conversions


def convert(f: Function, v: LLVMValue, to: DType) -> LLVMValue:
    """Conversion by value."""
    source = v.dtype
    if source == to:
        return v
    if to.kind is Kind.BOOL:
        return _to_bool(f, v)
    if source.kind is Kind.BOOL:
        if is_narrow(to):
            return convert(f, convert(f, v, f32), to)
        return _op(f, "uitofp" if to.is_float else "zext", v, to)
    if source.is_float and to.is_float:
        return _float_to_float(f, v, to)
    if source.is_float:
        return _float_to_int(f, v, to)
    if to.is_float:
        return _int_to_float(f, v, to)
    return _int_to_int(f, v, to)


def _op(f: Function, op: str, v: LLVMValue, to: DType) -> LLVMValue:
    return LLVMValue(f.let(f"{op} {v} to {type_name(to, v.lanes)}"), to, v.lanes)


def _to_bool(f: Function, v: LLVMValue) -> LLVMValue:
    if is_narrow(v.dtype):
        v = convert(f, v, f32)
    zero = splat(literal(0, v.dtype), v.dtype, v.lanes)
    op = "fcmp une" if v.dtype.is_float else "icmp ne"
    return LLVMValue(f.let(f"{op} {v}, {zero}"), bool_, v.lanes)


def _float_to_float(f: Function, v: LLVMValue, to: DType) -> LLVMValue:
    if v.dtype is bf16:
        return convert(f, _from_bf16(f, v), to)
    if to is bf16:
        return _to_bf16(f, convert(f, v, f32))
    if to.bits > v.dtype.bits:
        return _op(f, "fpext", v, to)
    if v.dtype is f64 and to.bits == 16:
        return _op(f, "fptrunc", _op(f, "fptrunc", v, f32), to)
    return _op(f, "fptrunc", v, to)


def _from_bf16(f: Function, v: LLVMValue) -> LLVMValue:
    """The upper half of an f32."""
    bits = _op(f, "zext", v, i32)
    upper = LLVMValue(f.let(f"shl {bits}, {splat('16', i32, v.lanes)}"), i32, v.lanes)
    return _op(f, "bitcast", upper, f32)


def _to_bf16(f: Function, v: LLVMValue) -> LLVMValue:
    """The upper half, rounded to nearest even on the bits; a NaN keeps a bit that says so."""

    def line(op: str, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return LLVMValue(f.let(f"{op} {a}, {b.ref}"), i32, v.lanes)

    def number(n: int) -> LLVMValue:
        return constant(n, i32, v.lanes)

    bits = _op(f, "bitcast", v, i32)
    odd = line("and", line("lshr", bits, number(16)), number(1))
    rounded = line("add", line("add", bits, odd), number(0x7FFF))
    quiet = line("or", bits, number(0x400000))
    is_nan = f.let(f"fcmp uno {v}, {v.ref}")
    mask = f"<{v.lanes} x i1>" if v.lanes > 1 else "i1"
    kept = LLVMValue(f.let(f"select {mask} {is_nan}, {quiet}, {rounded}"), i32, v.lanes)
    return _op(f, "trunc", line("lshr", kept, number(16)), bf16)


def _float_to_int(f: Function, v: LLVMValue, to: DType) -> LLVMValue:
    if is_narrow(v.dtype):
        v = convert(f, v, f32)
    sign = "s" if to.kind is Kind.INT else "u"
    if to.bits < 32:  # saturate at the narrow limits: clamp what vectors can convert to
        wide = _float_to_int(f, v, i32)
        return _int_to_int(f, _clamp(f, wide, int(to.min), int(to.max)), to)
    if v.lanes > 1:
        return _lanes_to_int(f, v, to)
    result = type_name(to, v.lanes)
    name = f"llvm.fpto{sign}i.sat.{suffix(LLVMValue('', to, v.lanes))}.{suffix(v)}"
    return LLVMValue(f.call(result, name, v), to, v.lanes)


def _lanes_to_int(f: Function, v: LLVMValue, to: DType) -> LLVMValue:
    """Saturates before the conversion: LLVM makes scalars of vectors that it is to saturate."""
    low, high = int(to.min), int(to.max)
    top = float(v.dtype.round(high))
    top = top if top <= high else float(np.nextafter(v.dtype.numpy.type(top), 0))
    mask = f"<{v.lanes} x i1>"
    bits = [constant(x, v.dtype, v.lanes) for x in (0.0, float(low), top)]

    def select(
        test: str, a: LLVMValue, b: LLVMValue, chosen: LLVMValue, other: LLVMValue
    ) -> LLVMValue:
        found = f.let(f"fcmp {test} {a}, {b.ref}")
        return LLVMValue(f.let(f"select {mask} {found}, {chosen}, {other}"), chosen.dtype, v.lanes)

    number = select("uno", v, v, bits[0], v)
    number = select("olt", number, bits[1], bits[1], number)
    number = select("ogt", number, bits[2], bits[2], number)
    whole = _op(f, "fptosi" if to.kind is Kind.INT else "fptoui", number, to)
    if int(top) == high:
        return whole
    return select("ogt", v, bits[2], constant(high, to, v.lanes), whole)


def _clamp(f: Function, v: LLVMValue, low: int, high: int) -> LLVMValue:
    v = intrinsic(f, "smax", v, constant(low, v.dtype, v.lanes))
    return intrinsic(f, "smin", v, constant(high, v.dtype, v.lanes))


def _int_to_float(f: Function, v: LLVMValue, to: DType) -> LLVMValue:
    if is_narrow(to):
        return convert(f, _int_to_float(f, v, f32), to)
    return _op(f, "sitofp" if v.dtype.kind is Kind.INT else "uitofp", v, to)


def _int_to_int(f: Function, v: LLVMValue, to: DType) -> LLVMValue:
    have, want = max(8, v.dtype.bits), max(8, to.bits)
    if want < have:
        v = _op(f, "trunc", v, to)
    elif want > have:
        v = _op(f, "sext" if v.dtype.kind is Kind.INT else "zext", v, to)
    else:
        v = LLVMValue(v.ref, to, v.lanes)
    return wrap_narrow(f, v)


def wrap_narrow(f: Function, v: LLVMValue) -> LLVMValue:
    """Brings the value of a type below 8 bits, held in a byte, back into its range."""
    if not v.dtype.is_integer or v.dtype.bits >= 8:
        return v
    shift = splat(str(8 - v.dtype.bits), v.dtype, v.lanes)
    up = LLVMValue(f.let(f"shl {v}, {shift}"), v.dtype, v.lanes)
    down = "ashr" if v.dtype.kind is Kind.INT else "lshr"
    return LLVMValue(f.let(f"{down} {up}, {shift}"), v.dtype, v.lanes)
