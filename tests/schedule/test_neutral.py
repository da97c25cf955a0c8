"""Operands that change nothing: the operator gives back its left operand, whatever that is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtype import f32, i8, i32, u8
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    binary,
    cast,
    const,
    maximum,
    minimum,
)
from tilewright.schedule.match.neutral import clamped, neutral_value, value_range

X = Buffer("x", i8, ())
WIDE, U = cast(i32, X[()]), Buffer("u", u8, ())
BYTE = (-128, 127)

RANGES = {
    "an element": (X[()], BYTE),
    "converted": (WIDE, BYTE),
    "cut off": (minimum(WIDE, const(5, i32)), (-128, 5)),
    "between": (maximum(minimum(WIDE, const(5, i32)), const(-3, i32)), (-3, 5)),
    "a sum": (WIDE + WIDE, (i32.min, i32.max)),
    "what may wrap": (cast(i8, cast(i32, U[()])), BYTE),
    "a number": (const(7, i32), (7, 7)),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name: str):
    e, wanted = RANGES[name]
    assert value_range(e) == wanted


OPERATORS = [op for op in BinaryOp if op not in (BinaryOp.POW, BinaryOp.ATAN2)]


@given(st.sampled_from(OPERATORS), st.integers(-3, 3), st.integers(-128, 127))
def test_it_changes_nothing(op: BinaryOp, low: int, x: int):
    """Where there is such a number. None is found for few operators alone."""
    value = neutral_value(op, WIDE, (low - 200, low + 200))
    if value is not None:
        e = binary(op, WIDE, const(value, i32))
        assert int(evaluate_expr(e, {}, {X: np.array(x, np.int8)})) == x


def test_what_has_none():
    assert neutral_value(BinaryOp.MAX, WIDE + WIDE, BYTE) is None
    assert neutral_value(BinaryOp.MAX, WIDE, BYTE) == -128
    assert neutral_value(BinaryOp.MIN, WIDE, (0, 126)) is None
    assert neutral_value(BinaryOp.SHR, WIDE, (1, 31)) is None
    assert neutral_value(BinaryOp.MUL, WIDE, (0, 9)) == 1
    assert neutral_value(BinaryOp.REM, WIDE, (0, 9)) is None
    assert neutral_value(BinaryOp.ADD, cast(f32, WIDE), (0, 0)) is None


def clamp(op: BinaryOp, first: int, last: int) -> Expr:
    inner = BinaryOp.MIN if op is BinaryOp.MAX else BinaryOp.MAX
    return Binary(op, Binary(inner, WIDE + WIDE, const(first, i32)), const(last, i32))


@given(st.sampled_from([BinaryOp.MIN, BinaryOp.MAX]), st.integers(-9, 9), st.integers(-9, 9))
def test_clamps_in_the_other_order(op: BinaryOp, first: int, last: int):
    e = clamp(op, first, last)
    pattern = clamp(BinaryOp.MIN if op is BinaryOp.MAX else BinaryOp.MAX, 0, 0)
    turned = clamped(pattern, e)
    ordered = first <= last if op is BinaryOp.MIN else last <= first
    assert (turned.op is pattern.op) == ordered
    for x in range(-20, 20):
        memory = {X: np.array(x, np.int8)}
        assert evaluate_expr(turned, {}, memory) == evaluate_expr(e, {}, memory)
