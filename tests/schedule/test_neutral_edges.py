"""Neutral operands at the ends of ranges, and clamps in either order."""

import pytest

from tilewright.base.dtype import f32, i8, i32, u8
from tilewright.ir.expr import BinaryOp, Buffer, cast, const, maximum, minimum
from tilewright.schedule.match.neutral import clamped, neutral_value, value_range

X, Y, B, F = (Buffer(n, t, (4,))[0] for n, t in (("x", i32), ("y", i8), ("b", u8), ("f", f32)))
WIDE = -(1 << 31), (1 << 31) - 1


@pytest.mark.parametrize(
    "e, found",
    [
        (X, WIDE),
        (Y, (-128, 127)),
        (cast(i32, Y), (-128, 127)),
        (cast(i8, X), (-128, 127)),
        (cast(i8, cast(i32, Y)), (-128, 127)),
        (cast(u8, Y), (0, 255)),  # -1 is 255
        (cast(i32, B), (0, 255)),
        (cast(i8, cast(i32, B)), (-128, 127)),
        (const(7, i32), (7, 7)),
        (minimum(X, const(9, i32)), (WIDE[0], 9)),
        (maximum(X, const(9, i32)), (9, WIDE[1])),
        (maximum(minimum(X, const(9, i32)), const(-3, i32)), (-3, 9)),
        (minimum(cast(i32, Y), const(200, i32)), (-128, 127)),
        (maximum(cast(i32, Y), const(200, i32)), (200, 200)),
        (X + const(1, i32), WIDE),
    ],
)
def test_ranges(e, found):
    assert value_range(e) == found


@pytest.mark.parametrize(
    "op, e, between, found",
    [
        (BinaryOp.ADD, X, (0, 0), 0),
        (BinaryOp.ADD, X, (1, 9), None),
        (BinaryOp.ADD, X, (-9, -1), None),
        (BinaryOp.ADD, F, (0, 9), None),
        (BinaryOp.SUB, X, (-1, 1), 0),
        (BinaryOp.MUL, X, (1, 1), 1),
        (BinaryOp.MUL, X, (2, 9), None),
        (BinaryOp.MUL, X, (-1, 0), None),
        (BinaryOp.DIV, X, (0, 1), 1),
        (BinaryOp.FLOORDIV, X, (1, 3), 1),
        (BinaryOp.SHL, X, (0, 31), 0),
        (BinaryOp.SHR, X, (0, 31), 0),
        (BinaryOp.OR, X, (0, 1), 0),
        (BinaryOp.XOR, X, (0, 1), 0),
        (BinaryOp.AND, X, (-1, 0), None),
        (BinaryOp.MIN, cast(i32, Y), (-128, 127), 127),
        (BinaryOp.MIN, cast(i32, Y), (-128, 126), None),
        (BinaryOp.MIN, cast(i32, Y), (-128, 300), 300),
        (BinaryOp.MAX, cast(i32, Y), (-128, 127), -128),
        (BinaryOp.MAX, cast(i32, Y), (-127, 127), None),
        (BinaryOp.MAX, cast(i32, Y), (-300, 0), -300),
    ],
)
def test_numbers_that_change_nothing(op, e, between, found):
    assert neutral_value(op, e, between) == found


def test_a_clamp_the_other_way_round():
    low, high = const(0, i32), const(9, i32)
    first_low, first_high = minimum(maximum(X, low), high), maximum(minimum(X, high), low)
    assert clamped(first_high, first_low) == first_high
    assert clamped(first_low, first_high) == first_low
    assert clamped(first_low, first_low) == first_low
    assert clamped(first_high, minimum(maximum(low, X), high)) == first_high
    empty = minimum(maximum(X, high), low)  # always 0; the other order would always be 9
    assert clamped(first_high, empty) == empty
    same = minimum(maximum(X, high), high)
    assert clamped(first_high, same) == maximum(minimum(X, high), high)
    assert clamped(X + low, first_low) == first_low
    assert clamped(first_high, minimum(X, high)) == minimum(X, high)
