"""Linear forms: sums of multiples, as exact as integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from index_expressions import Case, cases

from tilewright.analyze.linear import add, is_constant, linear, multiply, scaled, to_expr
from tilewright.ir.expr import Expr, Symbol, Var, minimum
from tilewright.ir.interpret import scalar

I, J, N = Var("i"), Var("j"), Symbol("n")


@given(case=cases(), other=cases())
def test_arithmetic(case: Case, other: Case):
    """A form's expression has the value of what it came from; so have sums and products."""
    case = Case(case.expr, {**other.extents, **case.extents})
    a, b = case.expr, other.expr
    formed = {
        a: linear(a),
        a + b: add(linear(a), linear(b)),
        a - b * 3: add(linear(a), linear(b), -3),
        a * -2: scaled(linear(a), -2),
        a * b: multiply(linear(a), linear(b)),
    }
    for env in list(case.environments())[:20]:
        for wanted, form in formed.items():
            assert scalar(to_expr(form), env, {}) == scalar(wanted, env, {})


@pytest.mark.parametrize(
    "expr, text",
    [
        (I + J * 4 - I, "j * 4"),
        ((I - J) * 4 + 3, "i * 4 - j * 4 + 3"),
        (J * I - I * J, "0"),
        (I - I - 3, "-3"),
        (J * -1, "0 - j"),
        ((I + 1) * (N + 2), "i * 2 + i * n + n + 2"),
        (minimum(I, J) * 2 + minimum(I, J), "min(i, j) * 3"),
    ],
    ids=str,
)
def test_text(expr: Expr, text: str):
    assert str(to_expr(linear(expr))) == text


def test_constants():
    assert is_constant(linear(I - I))
    assert is_constant(linear(I - I + 4))
    assert not is_constant(linear(I))
