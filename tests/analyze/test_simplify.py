"""The simplifier: equal values, sound bounds, one canonical form."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_expressions import Case, cases, data_cases

from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import i64
from tilewright.ir.evaluate import Env, evaluate_expr
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Select,
    Symbol,
    Var,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.ir.interpret import scalar

I, J, N, M, K = Var("i"), Var("j"), Symbol("n"), Symbol("m", 0, 9), Symbol("k", 2, 3)


def together(environments: Iterable[Env]) -> Env:
    """Many environments as one, whose values are arrays: an expression is evaluated once."""
    rows = list(environments)
    return {v: np.array([row[v] for row in rows]) for v in rows[0]} if rows else {}


def values(e: Expr, envs: Env) -> np.ndarray:
    """Its value in each environment."""
    count = next((v.size for v in envs.values()), 0)
    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate_expr(e, envs, {}), (count,)) if count else np.zeros(0)


@settings(max_examples=1500)
@given(case=cases())
def test_values_bounds_and_one_form(case: Case):
    """Simplified expressions have the values of the originals, within the bounds claimed, and
    are left alone by a second simplification."""
    s = Simplifier(case.extents)
    simple = s(case.expr)
    low, high = s.bounds(case.expr)
    envs = together(case.environments())
    wanted, found = values(case.expr, envs), values(simple, envs)
    assert (found == wanted).all(), f"{case.expr} -> {simple}: {found}, not {wanted} at {envs}"
    assert low is None or (low <= wanted).all(), f"{case.expr} >= {low} at {envs}"
    assert high is None or (wanted <= high).all(), f"{case.expr} <= {high} at {envs}"
    assert s(simple) == simple, f"{case.expr} -> {simple} -> {s(simple)}"


@settings(max_examples=500)
@given(case=cases(), other=cases())
def test_conditions(case: Case, other: Case):
    """What a comparison is decided to be, it is."""
    for op in ("__lt__", "__le__", "__gt__", "__ge__", "equals", "differs"):
        extents = {**other.extents, **case.extents}
        condition = getattr(case.expr, op)(other.expr)
        simple = Simplifier(extents)(condition)
        envs = together(itertools.islice(Case(condition, extents).environments(), 60))
        assert (values(simple, envs) == values(condition, envs)).all(), condition


@settings(max_examples=500)
@given(case=data_cases())
def test_data_may_overflow(case):
    """Integers that are read from memory wrap around: nothing may be concluded from their not
    doing so."""
    expr, memory = case
    simple = Simplifier()(expr)
    with np.errstate(all="ignore"):
        assert scalar(expr, {}, memory) == scalar(simple, {}, memory), f"{expr} -> {simple}"


TEXTS = [
    (I * 4 + J - I * 3, {}, "i + j"),
    ((I * 4 + J) // 4, {J: 4}, "i"),
    ((I * 4 + J) % 4, {J: 4}, "j"),
    ((I * 4 + J) // 4, {J: 5}, "i + j // 4"),
    ((I * 6 + J * 3 + 2) // 3, {}, "i * 2 + j"),
    (I // 4 // 3, {}, "i // 12"),
    (I // 4 * 4 + I % 4, {}, "i"),
    (I // 3 % 4 * 3 + I % 3, {}, "i % 12"),
    (I // 3 % 4 * 3 + I % 3 + J * 3, {}, "j * 3 + i % 12"),
    ((J + I // 3) % 4 * 3 + I % 3, {}, "(j * 3 + i) % 12"),
    ((I * 64 + J) // 784 * 784 + (I * 64 + J) % 784, {J: 64}, "i * 64 + j"),
    (
        (I * 64 + J) // 784 * 784 + (I * 64 + J) // 28 % 28 * 28 + (I * 64 + J) % 28,
        {J: 64},
        "i * 64 + j",
    ),
    ((I * 6 + 3) % 9, {}, "(i * 2 + 1) % 3 * 3"),
    ((I * N + J) // N, {J: N}, "i"),
    ((I * N + J) % N, {J: N}, "j"),
    ((N * 3) // N, {}, "3"),
    ((M * 3) // M, {}, "m * 3 // m"),
    ((I * (N * K) + J) // K, {J: K}, "i * n"),
    ((I * (N * K) + J) % K, {J: K}, "j"),
    (J * (I * K) // K, {}, "i * j"),
    (N * (K * J) * I // K, {}, "i * j * n"),
    (I * K * N % K, {}, "0"),
    ((I * J * N + J) // J, {}, "(i * j * n + j) // j"),
    ((I + J) * N, {}, "i * n + j * n"),
    (minimum(I, J + 8), {I: 8, J: 3}, "i"),
    ((minimum(I * 16, 24) + J) // 8, {J: 8}, "min(i * 2, 3)"),
    ((minimum(I * 16, 24) + J) % 8, {J: 8}, "j"),
    ((I * 8 + minimum(J * 16, 24) + K) // 16, {K: 8}, "(i + min(j * 2, 3)) // 2"),
    ((I * 24 + J) // 16, {J: 8}, "i + i // 2"),
    ((maximum(I * 4, 6) * 2 + J) // 4, {J: 4}, "max(i * 2, 3)"),
    (maximum(I, J - 8), {I: 8, J: 3}, "i"),
    (select(I < 8, I, J), {I: 8}, "i"),
    (Select(I.equals(J), I, J), {}, "select(i == j, i, j)"),
    (I + 0, {I: 1}, "0"),
    (Binary(BinaryOp.MOD, I, const(0)), {I: 5}, "0"),
    (I + -(2**63), {}, "i + -9223372036854775808"),
    (I.equals(I + 1), {}, "False"),
    (I < N, {I: N}, "True"),
    (I * 16 + J < 80, {J: 16}, "i < 5"),
    (I * 16 + J <= 79, {J: 16}, "i < 5"),
    (I * 16 + J + 8 < 40, {J: 8}, "i < 2"),
    (I * 16 + J < 81, {J: 16}, "i * 16 + j < 81"),
    (I * 4 + J < N * 4, {I: N, J: 4}, "True"),
    ((I >= 0) & (J >= 0), {I: 3, J: 3}, "True"),
    (~(I < 3), {I: 3}, "False"),
]


@pytest.mark.parametrize("expr, extents, text", TEXTS, ids=str)
def test_texts(expr: Expr, extents: dict, text: str):
    assert str(Simplifier(extents)(expr)) == text


def test_inside_reads():
    x = Buffer("x", i64, (100,))
    s = Simplifier({J: 4})
    assert str(s(x[(I * 4 + J) // 4] + x[I])) == "x[i] * 2"


@given(st.integers(-20, 20), st.integers(-5, 5), st.integers(0, 3))
def test_division_by_constants(value: int, by: int, kind: int):
    """Also by negative numbers, and by zero."""
    op = (BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.DIV, BinaryOp.REM)[kind]
    e = Binary(op, I + value, const(by))
    s = Simplifier({I: 7})
    low, high = s.bounds(e)
    for i in range(7):
        wanted = int(evaluate_expr(e, {I: i}, {}))
        assert int(evaluate_expr(s(e), {I: i}, {})) == wanted
        assert low is None or low <= wanted
        assert high is None or wanted <= high
