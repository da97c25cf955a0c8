"""Least and greatest of index expressions: few terms, and the same values."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.analyze.extremes import least, most
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Expr, Var, const, maximum, minimum

I, J = Var("i"), Var("j")
S = Simplifier({I: 5, J: 7})

CASES = {
    "what is always above is left out": (least, [I, I + 3, J], "min(i, j)"),
    "nested, with a number added": (least, [minimum(I, J + 2) + 3, const(4)], "min(i + 3, 4)"),
    "a negative greatest": (least, [const(0) - maximum(I, J), const(-2)], "min(min(-i, -j), -2)"),
    "one is enough": (most, [I, I + 1, const(-1)], "i + 1"),
    "equal": (most, [I + J, J + I], "i + j"),
}


@pytest.mark.parametrize("name", CASES)
def test_few_terms(name: str):
    function, parts, wanted = CASES[name]
    assert str(function(S, parts)).replace("0 - ", "-") == wanted


def terms(depth: int) -> st.SearchStrategy[Expr]:
    plain = st.builds(
        lambda a, b, c: I * a + J * b + c,
        st.integers(-2, 2),
        st.integers(-2, 2),
        st.integers(-9, 9),
    )
    if depth == 0:
        return plain
    inner = terms(depth - 1)
    nested = st.builds(
        lambda f, a, b, n, sign: f(a, b) * sign + n,
        st.sampled_from([minimum, maximum]),
        inner,
        inner,
        st.integers(-5, 5),
        st.sampled_from([1, -1]),
    )
    return st.one_of(plain, nested)


@given(st.lists(terms(2), min_size=1, max_size=4), st.booleans())
def test_same_values(parts: list[Expr], lowest: bool):
    found = (least if lowest else most)(S, parts)
    for i, j in itertools.product(range(5), range(7)):
        env = {I: i, J: j}
        values = [int(evaluate_expr(e, env, {})) for e in parts]
        wanted = min(values) if lowest else max(values)
        assert int(evaluate_expr(found, env, {})) == wanted
