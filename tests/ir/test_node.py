"""Records: equality, hashes, rebuilding; and the numbers that make equality hard."""

import copy
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import DIFFERENT, rebuilt
from strategies import exprs, kernels

from tilewright.base.dtype import DTYPES, bf16, bool_, dtype, f32, i64, index
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    CompareOp,
    Const,
    Symbol,
    UnaryOp,
    Var,
    as_expr,
    binary,
    ceil_div,
    compare,
    const,
    product,
    select,
    unary,
)
from tilewright.ir.loop import For
from tilewright.ir.scalar import apply_binary, apply_compare, apply_unary
from tilewright.ir.text.loop import parse_kernel

NAN = math.nan


@given(exprs())
def test_equal_records_have_equal_hashes(e):
    again = rebuilt(e)
    assert again == e
    assert hash(again) == hash(e)
    assert len({e, again}) == 1


@given(exprs(depth=3), exprs(depth=3))
def test_records_are_equal_just_when_their_text_and_type_are(a, b):
    """The text says everything about an expression but what its names stand for, which here
    follows from the names."""
    assert (a == b) == (str(a) == str(b) and a.dtype == b.dtype)


@given(kernels())
def test_mapping_nothing_changes_nothing(k):
    assert k.map(lambda child: child) is k
    assert all(stmt.map(lambda child: child) is stmt for stmt in k.body)


@given(exprs())
def test_mapping_rebuilds_what_changed(e):
    found = e.map(lambda child: Var("new") if child == Var("vi") else child)
    assert (found is e) == (Var("vi") not in tuple(e.children()))
    assert type(found) is type(e)


@given(kernels())
def test_records_survive_copies(k):
    assert copy.deepcopy(k) == k
    assert pickle.loads(pickle.dumps(k)) == k  # other processes of the tuner


def test_walk_visits_parents_first():
    x, i = Buffer("x", f32, (4, Symbol("n"))), Var("i")
    load = x[i, 0]
    assert [*load.walk()] == [load, x, Symbol("n"), i, const(0)]


def test_changing_fields():
    loop = For(Var("i"), 4, ())
    assert loop.with_(extent=5) == For(Var("i"), 5, ())
    assert loop.with_() == loop
    assert loop != For(Var("i"), 5, ())
    assert loop != "for"
    with pytest.raises(AttributeError):
        loop.extent = 5


# ---------------------------------------------------------------- constants


@pytest.mark.parametrize("position", range(len(DIFFERENT)))
def test_constants_differ_as_their_bits_do(position):
    c = DIFFERENT[position]
    assert c == rebuilt(c)
    assert hash(c) == hash(rebuilt(c))
    assert [c == other for other in DIFFERENT] == [i == position for i in range(len(DIFFERENT))]


def test_a_program_with_nan_equals_itself():
    text = "def k(y: out(f32[2])):\n    y[0] = f32(nan)\n    y[1] = f32(-0.0)"
    assert parse_kernel(text) == parse_kernel(text)
    assert parse_kernel(text) != parse_kernel(text.replace("-0.0", "0.0"))
    assert hash(parse_kernel(text)) == hash(parse_kernel(text))


def test_const_rounds_floats_and_refuses_integers_that_do_not_fit():
    assert const(0.1, f32).value == 0.10000000149011612
    assert const(1e300, f32).value == math.inf
    assert math.isnan(const(1e300, dtype("f8e4m3fn")).value)
    assert const(1, bf16) == Const(1.0, bf16)
    assert const(2, bool_) == Const(True, bool_)
    for value in (300, -129, 1.5, NAN, math.inf):
        with pytest.raises(CompileError):
            const(value, dtype("i8"))


# ---------------------------------------------------------------- folding while building

EDGES = [index.min, index.min + 1, -7, -2, -1, 0, 1, 2, 7, 2**53 + 1, index.max]
FOLDED = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.FLOORDIV]
FOLDED += [BinaryOp.MOD, BinaryOp.MIN, BinaryOp.MAX]


@pytest.mark.parametrize("op", FOLDED)
def test_folding_means_what_the_operator_means(op):
    """What is folded while an expression is built has the operator's value; a result that does
    not fit is left for run time, where it wraps."""
    for a in EDGES:
        for b in EDGES:
            found = binary(op, const(a), const(b))
            wanted = int(apply_binary(op, i64.numpy.type(a), i64.numpy.type(b)))
            if isinstance(found, Const):
                assert found.value == wanted, (op, a, b)
            else:
                assert found == Binary(op, const(a), const(b))


@given(st.sampled_from(list(BinaryOp)), st.integers(-3, 3), st.integers(-9, 9), st.booleans())
def test_identities_keep_the_value(op, a, x, left):
    """x + 0, x * 1, 0 * x and so on are simplified while building."""
    if op is BinaryOp.ATAN2:
        return
    i = Var("i")
    pair = (const(a), i) if left else (i, const(a))
    found = binary(op, *pair)
    values = (a, x) if left else (x, a)
    wanted = int(apply_binary(op, *map(i64.numpy.type, values)))
    if isinstance(found, Const):
        assert found.value == wanted
    elif found == i:
        assert x == wanted
    else:
        assert found == Binary(op, *pair)


def test_folding_of_conditions():
    i, true, false = Var("i"), as_expr(True), as_expr(False)
    cond = i < 3
    assert (cond & true, cond | false) == (cond, cond)
    assert (cond & false, cond | true) == (false, true)
    assert unary(UnaryOp.NOT, true) == false
    assert select(True, i, 0) == i
    assert select(cond, i, i) == i
    assert compare(CompareOp.LT, const(1), const(2)) == true
    for op in CompareOp:
        for a in (-1, 0, 1):
            found = compare(op, const(a), const(0))
            wanted = apply_compare(op, i64.numpy.type(a), i64.numpy.type(0))
            assert found == as_expr(bool(wanted))


def test_negation_of_the_least_index_is_left_for_run_time():
    least = const(index.min)
    assert str(unary(UnaryOp.NEG, least)) == f"neg({index.min})"
    assert int(apply_unary(UnaryOp.NEG, i64.numpy.type(index.min))) == index.min


def test_dims():
    n = Symbol("n")
    assert product((2, 3)) == 6
    assert product(()) == 1
    assert str(product((2, n, 3))) == "2 * n * 3"
    assert [ceil_div(a, 4) for a in range(6)] == [0, 1, 1, 1, 1, 2]
    assert str(ceil_div(n, 4)) == "(n + 3) // 4"
    assert ceil_div(as_expr(9), 4) == 3


def test_the_truth_of_an_expression_is_not_known_while_compiling():
    with pytest.raises(CompileError) as caught:
        bool(Var("i") < 3)
    assert str(caught.value) == (
        "the truth of i < 3 is not known while compiling\n"
        "  hint: use select(condition, a, b), or `.equals` for a comparison in the program"
    )


def test_the_value_of_an_expression_is_not_known_while_compiling():
    assert (int(const(-7)), int(as_expr(True)), int(const(2.75, f32))) == (-7, 1, 2)
    with pytest.raises(CompileError) as caught:
        int(Symbol("n") * 2)
    assert str(caught.value) == (
        "n * 2 is not known while compiling\n  hint: fix the dimensions in it"
    )


def test_an_element_by_subscripts_of_which_some_are_in_a_tuple():
    x, i, j = Buffer("x", f32, (4, 5, 6)), Var("i"), Var("j")
    assert x.at(2, *(i, j)) == x[2, i, j]
    with pytest.raises(CompileError) as caught:
        x.at(i, j)
    assert str(caught.value) == "x has 3 dimensions and was read with 2"


def test_types_of_operands_must_agree():
    x = Buffer("x", f32, (4,))
    with pytest.raises(CompileError) as caught:
        _ = x[0] + Var("i")
    assert str(caught.value) == "add of f32 and i64: x[0] and i\n  hint: cast one of them"
    assert (x[0] + 1).b == const(1, f32)


def test_scalar_types_print_compare_and_pickle():
    for name, t in DTYPES.items():
        assert str(t) == repr(t) == name
        assert pickle.loads(pickle.dumps(t)) is t
        assert t == dtype(name)
