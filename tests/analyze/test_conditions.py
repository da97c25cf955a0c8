"""Conditions as inequalities: they hold for the same values."""

import pytest

from tilewright.analyze.conditions import at_least_zero, conjuncts, is_place
from tilewright.base.dtype import f32, i8
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Expr, Var, const

I, J = Var("i"), Var("j")
X = Buffer("x", i8, (9,))

CONDITIONS = {
    "less": I < J,
    "at most": I <= J,
    "more": I * 2 > J,
    "at least": I >= J + 1,
    "equal": I.equals(J),
    "all of several": (I < 4) & (J >= 2) & (I <= J),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_inequalities(name: str):
    condition = CONDITIONS[name]
    forms = at_least_zero(condition)
    for i in range(6):
        for j in range(6):
            env = {I: i, J: j}
            wanted = bool(evaluate_expr(condition, env, {}))
            assert all(int(evaluate_expr(e, env, {})) >= 0 for e in forms) == wanted


NO_BOX: dict[str, tuple[Expr, bool]] = {  # and whether they are about indices
    "a hole": (I.differs(J), True),
    "one of two": ((I < 3) | (J < 3), True),
    "data": (X[I] < const(3, i8), False),
    "numbers": (const(1.0, f32) < const(2.0, f32), False),
    "an index that is read": (X[I].equals(const(0, i8)) & (I < 3), False),
}


@pytest.mark.parametrize("name", NO_BOX)
def test_others(name: str):
    condition, place = NO_BOX[name]
    assert at_least_zero(condition) is None
    assert is_place(condition) == place


def test_conjuncts():
    assert conjuncts((I < 4) & ((J < 3) & (I >= 1))) == [I < 4, J < 3, I >= 1]
    assert conjuncts((I < 4) | (J < 3)) == [(I < 4) | (J < 3)]
