"""A new kind of statement, expression or operator must be known everywhere: each table has all."""

import types

from tilewright.backends.native import expr as native_expr
from tilewright.ir import evaluate, expr, interpret, lanes, loop, scalar
from tilewright.ir.expr import BinaryOp, CompareOp, Const, Expr, UnaryOp
from tilewright.ir.loop import Stmt
from tilewright.ir.text import expr as text_expr
from tilewright.ir.verify import expr as verify_expr
from tilewright.ir.verify import loop as verify_loop
from tilewright.program import check
from tilewright.program import host_program as host


def kinds(module: types.ModuleType, base: type) -> set[type]:
    """The classes below `base` that a module defines."""
    found = {v for v in vars(module).values() if isinstance(v, type) and issubclass(v, base)}
    return {c for c in found if c.__module__ == module.__name__} - {base}


def test_statements():
    known = set(loop._FORMAT)
    assert known == kinds(loop, Stmt)
    assert known == set(verify_loop._STATEMENTS) == set(interpret._RUN)


def test_expressions():
    of_lanes = kinds(lanes, Expr)
    known = kinds(expr, Expr)
    assert known == set(evaluate._EVALUATE)  # tensor expressions have no lanes
    for table in (expr.FORMAT, verify_expr._CHECKS, interpret._SCALAR, native_expr._EMIT):
        assert known | of_lanes == set(table) | ({Const} if table is native_expr._EMIT else set())


def test_host_steps():
    assert set(check._STEPS) == set(host.STEPS)
    assert {*host.STEPS, host.SymbolSpec, host.MemorySpec, host.Slot} == set(host._FORMAT)


def test_operators():
    by_hand = {UnaryOp.ISNAN, UnaryOp.ISINF, UnaryOp.NOT, UnaryOp.POPCOUNT}
    assert set(scalar._UNARY) | by_hand == set(UnaryOp)
    assert set(scalar._FLOAT) | set(scalar._INTEGER) == set(BinaryOp)
    assert set(scalar._COMPARE) == set(CompareOp)
    others = {
        "select",
        "cast",
        "bitcast",
        "lane",
        "masked",
        "branch",
        "across",
        "shuffle",
        "lookup",
    }
    assert others < set(text_expr._FUNCTIONS)
    spelled = set(text_expr._FUNCTIONS) - others
    assert spelled | {"not"} | {op.value for op in expr.INFIX.values()} == {
        op.value for op in (*UnaryOp, *BinaryOp)
    }
    assert set(text_expr._AST_BINARY.values()) == set(expr.INFIX.values())
    assert set(text_expr._AST_COMPARE.values()) == set(CompareOp)
