"""Arithmetic on dimensions: one form for equal polynomials, checked by putting numbers in."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_expr import Draws

from tilewright.base.dtype import f32
from tilewright.ir.dims import canonical, divide_exactly, limits, polynomial, tensor_type
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Dim,
    Expr,
    Symbol,
    Unary,
    UnaryOp,
    as_expr,
    const,
)

N, M, Z = Symbol("n", 1, 9), Symbol("m", 2), Symbol("z", 0, 3)
OPS = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.SUB, BinaryOp.FLOORDIV, BinaryOp.MOD)
ALL_OPS = (*OPS, BinaryOp.MIN, BinaryOp.MAX, BinaryOp.DIV)


@st.composite
def dims(draw: Callable[..., Any], ops: tuple[BinaryOp, ...] = ALL_OPS) -> Dim:
    """A dimension, built without folding."""
    d = Draws(draw)

    def expr(depth: int) -> Expr:
        if depth == 0:
            return d.pick((const(d.int(-4, 6)), N, M, Z))
        if d.chance(8):
            return Unary(UnaryOp.NEG, expr(depth - 1))
        return Binary(d.pick(ops), expr(depth - 1), expr(depth - 1))

    e = expr(d.int(0, 3))
    return e if d.chance(3) else e + d.int(-2, 2)


@st.composite
def points(draw: Callable[..., Any]) -> dict[str, int]:
    return {
        "n": draw(st.integers(1, 9)),
        "m": draw(st.integers(2, 12)),
        "z": draw(st.integers(0, 3)),
    }


@given(dims(), points())
def test_the_canonical_form_has_the_same_value(dim, at):
    assert evaluate_dim(canonical(dim), at) == evaluate_dim(dim, at)


@given(dims())
def test_the_canonical_form_is_its_own(dim):
    once = canonical(dim)
    assert canonical(once) == once
    assert isinstance(once, int) or not isinstance(once, type(const(0)))


@given(dims((BinaryOp.ADD, BinaryOp.MUL, BinaryOp.SUB)), st.randoms(use_true_random=False))
def test_equal_polynomials_are_equal_records(dim, random):
    """Terms and factors may stand in any order and be grouped in any way."""

    def shuffled(e: Dim) -> Dim:
        terms = [*polynomial(e).items()]
        random.shuffle(terms)
        total: Expr = as_expr(0)
        for factors, coefficient in terms:
            product: Expr = as_expr(coefficient)
            for factor in random.sample(factors, len(factors)):
                product = factor * product if random.random() < 0.5 else product * factor
            total = product + total if random.random() < 0.5 else total + product
        return total

    assert canonical(shuffled(dim)) == canonical(dim)


@given(dims(), dims(), points())
def test_exact_quotients_are_exact(a, b, at):
    quotient = divide_exactly(a, b)
    if quotient is not None:
        values = [evaluate_dim(d, at) for d in (a, b, quotient)]
        assert values[0] == values[1] * values[2]


@given(dims((BinaryOp.ADD, BinaryOp.MUL, BinaryOp.SUB)), st.sampled_from([N, M, N * M, M * 3]))
def test_a_product_is_divided_by_its_factor(dim, factor):
    assert divide_exactly(as_expr(dim) * factor, factor) == canonical(dim)


@given(dims(), points())
def test_limits_hold(dim, at):
    low, high = limits(dim)
    value = evaluate_dim(dim, at)
    assert low is None or low <= value
    assert high is None or value <= high


@pytest.mark.parametrize(
    "dim, text",
    [
        (N + N, "2 * n"),
        (N * M - M * N, "0"),
        (-N + N, "0"),
        (Unary(UnaryOp.NEG, N) * -1, "n"),
        ((N * 4 + 6) // 4, "n + 1"),
        ((N * 4 + 7) % 4, "3"),
        ((N * 6 + 3) // 4, "(2 * n + 3) // 4 + n"),
        ((N * M) // M, "n"),
        ((N * Z) // Z, "n * z // z"),  # z may be 0, and then the quotient is 0
        ((N * Z) % Z, "n * z % z"),
        (Binary(BinaryOp.DIV, N + N, const(1)) + N, "3 * n"),
        (as_expr(7) // as_expr(-2), "-4"),
        (as_expr(7) // as_expr(0), "0"),
        (Binary(BinaryOp.MAX, N - N, const(5)) * 2, "10"),
        (Binary(BinaryOp.FLOORDIV, N, const(0)), "n // 0"),
        ((N + 1) * (N - 1), "n * n + -1"),
    ],
    ids=str,
)
def test_canonical_text(dim, text):
    found = str(canonical(dim))
    assert found == text


def test_types_are_canonical():
    assert tensor_type(f32, (N + N, M * 1, const(3))) == tensor_type(f32, (N * 2, M, 3))
    assert str(tensor_type(f32, (N + M - N,))) == "f32[m]"
