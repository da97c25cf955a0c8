"""Canonical forms, counted by hand, and what follows from them."""

import pytest

from tilewright.analyze.dependence import conflict
from tilewright.analyze.extremes import least, most
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import f32
from tilewright.ir.expr import (
    Buffer,
    Expr,
    Symbol,
    Var,
    as_expr,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.ir.loop import Store

I, J, K, N = Var("i"), Var("j"), Var("k"), Symbol("n")
EXTENTS = {I: 8, J: 4, K: 1}
FORMS = [
    ((I * 4 + 5) // 8, "(i + 1) // 2"),
    ((I * 4 + 8) // 8, "i // 2 + 1"),
    ((I * 4 + J) // 4, "i"),
    ((I * 4 + J) % 4, "j"),
    ((I * 8 + J) // 4, "i * 2"),
    (I // 2 // 3, "i // 6"),
    (I % 6 // 3, "i // 3 % 2"),
    (I % 6 // 4, "i % 6 // 4"),
    (I // 2 * 2 + I % 2, "i"),
    (I // 2 % 2 * 2 + I % 2, "i % 4"),
    ((I * N + J) // N, "i + j // n"),
    (I * N % N, "0"),
    (I // 8, "0"),
    (I // 7, "i // 7"),
    (I % 8, "i"),
    (I % 7, "i % 7"),
    ((I - 1) // 8, "(i + 7) // 8 - 1"),
    ((I * 6 + 4) // 4, "i + i // 2 + 1"),
    (I * 6 % 4, "i % 2 * 2"),
    ((I + J) // 11, "0"),
    ((I + J) // 10, "(i + j) // 10"),
    (K * 7 + I, "i"),
    ((I * 12 + J * 3 + 2) // 12, "i"),
    ((I * 12 + J * 3 + 3) // 12, "(j + 1) // 4 + i"),
    (maximum(I, const(7)), "7"),
    (maximum(I, const(6)), "max(i, 6)"),
    (minimum(I, const(7)), "i"),
    (minimum(I, const(0)), "0"),
    (I < 8, "True"),
    (I < 7, "i < 7"),
    (I >= 0, "True"),
    (I.equals(8), "False"),
    (I * 4 + J < 32, "True"),
    (I * 4 + J < 31, "i * 4 + j < 31"),
    (select(I < 8, I, J), "i"),
]


@pytest.mark.parametrize("e, text", FORMS, ids=str)
def test_forms(e: Expr, text: str):
    assert str(Simplifier(EXTENTS)(e)) == text


def test_extremes():
    """What another is always below, or equal to, is left out."""
    s = Simplifier(EXTENTS)
    assert str(least(s, [I, I + 1, minimum(I - 1, J) + 1])) == "min(i, j + 1)"
    assert str(most(s, [I, I + 1, maximum(I - 1, J) + 1])) == "max(i + 1, j + 1)"
    assert str(most(s, [as_expr(const(0)), I])) == "i"
    assert str(most(s, [N, N])) == "n"
    assert str(least(s, [I + N, N])) == "n"


@pytest.mark.parametrize(
    "at, apart",
    [
        (((J * N + I) // 4, (J * N + I) % 4), True),
        (((J * N + I) // 4, (J * N + I) % 2), False),
        (((J * N + I) // 4, (I + 1) % 4), True),
        (((J * N + I) % 4, (J * N + I) // 4), True),
    ],
    ids=str,
)
def test_a_quotient_and_a_remainder_say_what_is_divided(at: tuple[Expr, ...], apart: bool):
    """Also where it is no linear form: i moves an element of a row that begins at j * n."""
    store = Store(Buffer("y", f32, (N * 4, 4)), at, const(1.0, f32))
    assert (conflict((store,), I, Simplifier(EXTENTS)) is None) == apart
