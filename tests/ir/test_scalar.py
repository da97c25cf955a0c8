"""Every scalar operator, for every type, on edge values: against plain Python arithmetic."""

import itertools
import math
import struct

import numpy as np
import pytest
import scalar_reference as reference
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtype import DTYPES, DType, Kind, dtype, f32, from_numpy, i4, u4
from tilewright.ir.expr import TESTS, BinaryOp, CompareOp, UnaryOp
from tilewright.ir.scalar import apply_binary, apply_bitcast, apply_cast, apply_compare, apply_unary
from tilewright.ir.verify.expr import BINARY_TAKES, UNARY_TAKES

TYPES = tuple(DTYPES.values())

# Operators whose last bits may differ from one library to another, with the error allowed, in
# units of the last place of f32 and f64. Narrow floats round that error away, or to one unit.
ULPS = {
    **dict.fromkeys((UnaryOp.EXP, UnaryOp.EXPM1, UnaryOp.LOG, UnaryOp.LOG1P), 4),
    UnaryOp.SIGMOID: 4,
    UnaryOp.GELU: 86,  # 8 + 1.5 x**2, for x of -7.25
    **dict.fromkeys((UnaryOp.SIN, UnaryOp.COS, UnaryOp.TAN), 4),
    **dict.fromkeys((UnaryOp.ASIN, UnaryOp.ACOS, UnaryOp.ATAN, UnaryOp.ERF, UnaryOp.ERFC), 4),
    **dict.fromkeys((UnaryOp.SINH, UnaryOp.COSH, UnaryOp.TANH), 4),
    **dict.fromkeys((UnaryOp.ASINH, UnaryOp.ACOSH, UnaryOp.ATANH), 4),
    BinaryOp.POW: 4,
    BinaryOp.ATAN2: 4,
}


def edges(t: DType) -> list:
    """Numbers at which something changes."""
    if t.kind is Kind.BOOL:
        return [False, True]
    if t.is_integer:
        near = {t.min, t.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, t.bits - 1, t.bits, t.max // 2}
        return sorted(v for v in near | {t.max - 1, t.max} if t.min <= v <= t.max)
    largest, tiny = float(reference.FORMATS[t.name][2]), float(np.finfo(np.float32).tiny)
    sizes = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.25, 0.1, 127.5, 1e-3, largest, largest / 3, tiny)
    known = [t.round(s * sign) for s in (*sizes, math.inf) for sign in (1, -1)]
    return [*{repr(v): v for v in [*known, math.nan]}.values()]


def as_array(values: list, t: DType) -> np.ndarray:
    return np.array(values).astype(t.numpy) if t.is_float else np.array(values, t.numpy)


def check(found: np.ndarray, wanted: list, t: DType, ulps: int, shown: list) -> None:
    """Equal to the bit where ulps is 0; zeros may differ in sign only where that is left open."""
    assert found.dtype == t.numpy
    for value, want, args in zip(found.tolist(), wanted, shown, strict=True):
        assert agree(value, want, t, ulps), f"{args}: {value}, not {want}"


def agree(value, want, t: DType, ulps: int) -> bool:
    if not t.is_float:
        return value == want and type(value) is type(want)
    if math.isnan(want) or math.isnan(value):
        return math.isnan(want) and math.isnan(value)
    if value == want:
        return ulps > 0 or math.copysign(1, value) == math.copysign(1, want)
    if math.isinf(value) or math.isinf(want):
        return False
    precision, least, *_ = reference.FORMATS[t.name]
    allowed = max(1, ulps) if ulps else 0
    unit = 2.0 ** max(math.frexp(want)[1] - precision, least - precision + 1)
    return abs(value - want) <= allowed * unit


UNARY_CASES = [(op, t) for op in UnaryOp for t in TYPES if t.kind in UNARY_TAKES[op]]
BINARY_CASES = [(op, t) for op in BinaryOp for t in TYPES if t.kind in BINARY_TAKES[op]]


@pytest.mark.parametrize("op, t", UNARY_CASES, ids=lambda x: getattr(x, "value", str(x)))
def test_unary(op, t):
    values = edges(t)
    result = DTYPES["bool"] if op in TESTS else t
    found = apply_unary(op, as_array(values, t))
    wanted = [reference.unary(op, v, t) for v in values]
    check(found, wanted, result, ULPS.get(op, 0), [(op.value, v) for v in values])


@pytest.mark.parametrize("op, t", BINARY_CASES, ids=lambda x: getattr(x, "value", str(x)))
def test_binary(op, t):
    pairs = list(itertools.product(edges(t), repeat=2))
    left, right = (as_array([p[i] for p in pairs], t) for i in (0, 1))
    wanted = [reference.binary(op, a, b, t) for a, b in pairs]
    # Which zero is the smaller is left open.
    ulps = 1 if op in (BinaryOp.MIN, BinaryOp.MAX) and t.is_float else ULPS.get(op, 0)
    check(apply_binary(op, left, right), wanted, t, ulps, [(op.value, *p) for p in pairs])


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_compare(t):
    pairs = list(itertools.product(edges(t), repeat=2))
    left, right = (as_array([p[i] for p in pairs], t) for i in (0, 1))
    for op in CompareOp:
        wanted = [reference.COMPARE[op](a, b) for a, b in pairs]
        check(apply_compare(op, left, right), wanted, dtype("bool"), 0, pairs)


@pytest.mark.parametrize("source", TYPES, ids=str)
@pytest.mark.parametrize("to", TYPES, ids=str)
def test_cast(source, to):
    values = edges(source)
    if source.is_float:
        values += [source.round(v) for v in (15.5, -8.5, 255.4, 256.0, 3e9, -3e9, 1e19, 2.0**63)]
    wanted = [reference.cast(v, source, to) for v in values]
    check(apply_cast(as_array(values, source), to), wanted, to, 0, values)


@pytest.mark.parametrize("t", [i4, u4], ids=str)
def test_four_bit_types_completely(t):
    pairs = list(itertools.product(range(t.min, t.max + 1), repeat=2))
    left, right = (as_array([p[i] for p in pairs], t) for i in (0, 1))
    for op in BinaryOp:
        if t.kind in BINARY_TAKES[op]:
            wanted = [reference.binary(op, a, b, t) for a, b in pairs]
            check(apply_binary(op, left, right), wanted, t, 0, [(op.value, *p) for p in pairs])


CODES = {"f64": "<d", "f32": "<f", "f16": "<e", "i64": "<q", "u64": "<Q", "i32": "<i", "u32": "<I"}
CODES |= {"i16": "<h", "u16": "<H", "i8": "<b", "u8": "<B"}


@pytest.mark.parametrize("source", CODES)
@pytest.mark.parametrize("to", CODES)
def test_bitcast(source, to):
    if struct.calcsize(CODES[source]) != struct.calcsize(CODES[to]):
        return
    values = [v for v in edges(dtype(source)) if v == v]  # how a NaN is coded is left open
    wanted = [struct.unpack(CODES[to], struct.pack(CODES[source], v))[0] for v in values]
    found = apply_bitcast(as_array(values, dtype(source)), dtype(to)).tolist()
    assert repr(found) == repr(wanted)


@given(st.data())
def test_scalars_arrays_and_broadcasting_agree(data):
    """What one number gives alone, it gives as an element of an array."""
    op, t = data.draw(st.sampled_from(BINARY_CASES))
    values = as_array(edges(t), t)
    i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in "ab")
    table = apply_binary(op, values[:, None], values[None, :])
    assert table.shape == (len(values), len(values))
    alone = apply_binary(op, values[i], values[j])
    zero_rank = apply_binary(op, np.asarray(values[i]), np.asarray(values[j]))
    for found in (alone, zero_rank):
        assert from_numpy(found.dtype) == t
        assert repr(found.tolist()) == repr(table[i, j].tolist())


@given(st.floats(width=32), st.sampled_from([t for t in TYPES if t.is_float]))
def test_rounding_is_to_nearest_even(value, t):
    assert repr(t.round(value)) == repr(reference.round_to(value, t))


@given(st.floats())
def test_f32_rounds_as_ieee(value):
    assert repr(f32.round(value)) == repr(reference.round_to(value, f32))
