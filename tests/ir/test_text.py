"""What prints parses, and is the same again."""

import keyword
import textwrap

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import exprs, kernels, tensor_programs

from tilewright.base.dtype import DTYPES, bf16, bool_, f16, f32, i4, index, u8
from tilewright.base.identifiers import RESERVED, format_number, identifier, name_of, quote
from tilewright.base.node import Node
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    Load,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_expr,
    const,
    select,
)
from tilewright.ir.loop import WORKER, Accumulate, Alloc, For, If, Kernel, LoopKind, Store, loads
from tilewright.ir.tensor import Axis, Builder, Scan, Stage, TensorProgram
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.text.tensor import parse_program
from tilewright.ir.verify.loop import verify_kernel
from tilewright.ir.verify.tensor import verify_program


def block(text: str) -> str:
    return textwrap.dedent(text).strip()


def kernel_of(e: Expr) -> Kernel:
    """A kernel around an expression: its buffers are parameters, its variables loops."""
    out = Buffer("out", e.dtype, ())
    inputs = tuple(dict.fromkeys(load.buffer for load in loads(e)))
    body = (Store(out, (), e),)
    for var in dict.fromkeys(v for v in e.walk() if isinstance(v, Var)):
        body = (For(var, 3, body),)
    return Kernel("k", inputs, (out,), body)


# ---------------------------------------------------------------- properties


@given(exprs())
def test_every_expression_parses_back(e):
    k = kernel_of(e)
    verify_kernel(k)
    assert parse_kernel(str(k)) == k


@given(kernels())
def test_every_kernel_parses_back(k):
    assert parse_kernel(str(k)) == k


@given(tensor_programs())
def test_every_tensor_program_parses_back(p):
    assert parse_program(str(p)) == p


NAMES = st.text(min_size=0, max_size=8) | st.text("_x2fand012", max_size=12)


@given(NAMES)
@example("_x_")
@example("and")
@example("_x/")
@example("")
def test_names_become_identifiers_and_come_back(name):
    text = identifier(name)
    assert text.isascii()
    assert text.isidentifier()
    assert not keyword.iskeyword(text)
    assert text not in RESERVED
    assert name_of(text) == name


@given(NAMES, NAMES)
def test_different_names_are_different_identifiers(a, b):
    assert (identifier(a) == identifier(b)) == (a == b)


@given(st.text())
def test_strings_are_quoted_as_python_literals(text):
    literal = quote(text)
    assert eval(literal) == text
    assert "\n" not in literal


@given(st.floats(), st.sampled_from([t for t in DTYPES.values() if t.is_float]))
def test_numbers_are_short_and_exact(value, t):
    rounded = t.round(value)
    text = format_number(rounded, t)
    assert repr(t.round(float(text))) == repr(rounded)
    assert len(text) <= len(repr(rounded))


# ---------------------------------------------------------------- plain examples

ROUND_TRIPS = [
    """
    def scaled(x: f32[n, 64], y: out(f32[n, 64])):
        n = symbol(1, 128)
        for i in parallel(n):
            for j in vectorize(64):
                y[i, j] = x[i, j] * f32(0.1)
    """,
    """
    def matmul(a: f32[m, 512], b: f32[512, 256] @ "sram", c: out(f32[m, 256])):
        m = symbol(1)
        for i in range(m):
            tile = alloc(f32[256] @ "registers")
            for j in range(256):
                tile[j] = f32(0.0)
            for k in range(512):
                for j_1 in range(256):
                    tile[j_1] += a[i, k] * b[k, j_1]
            for j_2 in unroll(256):
                c[i, j_2] = tile[j_2]
    """,
    """
    def largest(x: i8[10], at: i64[4], y: out(i8[()]), z: out(bool[4]), t: scratch(f16[8, 4])):
        y[()] = i8(-128)
        for i in range(10):
            accumulate(max, y[()], x[i])
        for j in range(4):
            if (at[j] >= 0) & (at[j] < 10):
                z[j] = x[at[j]] == y[()]
                t[worker, j] = f16(nan)
            else:
                if ~(at[j] == -1):
                    z[j] = False
                else:
                    z[j] = isnan(t[0, j]) | isinf(cast(f32, x[0]))
    """,
    """
    def copy(x: f32[8, 64], y: out(f32[8, 64])):
        for i in range(8):
            for j in range(4):
                prefetch(x[i + 1, j * 16], 2)
                for k in vectorize(16):
                    nontemporal(y[i, j * 16 + k], x[i, j * 16 + k])
    """,
    """
    def nothing(x: f32[4]):
        pass
    """,
]


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_kernel_text(text):
    assert str(parse_kernel(block(text))) == block(text)


PROGRAMS = [
    """
    def softmax(x: f32[n, 1000]):
        n = symbol(1)
        largest = tensor(f32[n])
        define(largest[i], reduce(max, f32(-inf), x[i, r], r=1000), i=n)
        e = tensor(f32[n, 1000])
        define(e[i_1, j], exp(x[i_1, j] - largest[i_1]), i_1=n, j=1000)
        total = tensor(f32[n])
        define(total[i_2], reduce(add, f32(0.0), e[i_2, r_1], r_1=1000), i_2=n)
        y = tensor(f32[n, 1000])
        define(y[i_3, j_1], e[i_3, j_1] / total[i_3], i_3=n, j_1=1000)
        return y
    """,
    """
    def running(x: f32[8, 4]):
        s = tensor(f32[4])
        y = tensor(f32[8, 4])
        for t in scan(8):
            define(s[j], select(t == 0, x[t, j], s[j] + x[t, j]), j=4)
            define(y[t, j_1], s[j_1], j_1=4)
        return y, s
    """,
    """
    def scalar(x: f32[()]):
        and_ = tensor(f32[()])
        define(and_[()], x[()])
        return and_
    """,
]


@pytest.mark.parametrize("text", PROGRAMS)
def test_program_text(text):
    program = parse_program(block(text))
    assert str(program) == block(text)
    verify_program(program)


# ---------------------------------------------------------------- what is easy to get wrong

i, n = Var("i"), Symbol("n", 0, 8)
x = Buffer("x", f32, (n,))
EXPRESSIONS: list[tuple[Expr, str]] = [
    (const(-5), "-5"),
    (Unary(UnaryOp.NEG, const(5)), "neg(5)"),
    (Unary(UnaryOp.NEG, const(-5)), "neg(-5)"),
    (Unary(UnaryOp.NEG, const(5, f32)), "-f32(5.0)"),
    (const(-5, f32), "f32(-5.0)"),
    (Unary(UnaryOp.NEG, Unary(UnaryOp.NEG, i)), "--i"),
    (Unary(UnaryOp.NOT, const(True, bool_)), "~True"),
    (Binary(BinaryOp.SUB, i, Binary(BinaryOp.SUB, i, n)), "i - (i - n)"),
    (Binary(BinaryOp.SUB, Binary(BinaryOp.SUB, i, i), n), "i - i - n"),
    (Binary(BinaryOp.MUL, const(-1), n), "-1 * n"),
    (Binary(BinaryOp.SUB, i, const(-1)), "i - -1"),
    (Unary(UnaryOp.NEG, Binary(BinaryOp.MUL, i, n)), "-(i * n)"),
    (Binary(BinaryOp.MUL, Unary(UnaryOp.NEG, i), n), "-i * n"),
    (Binary(BinaryOp.ADD, i, const(0)), "i + 0"),
    (Binary(BinaryOp.ADD, const(2), const(3)), "2 + 3"),
    (Binary(BinaryOp.SHL, i, Binary(BinaryOp.ADD, i, n)), "i << i + n"),
    (Binary(BinaryOp.REM, i, n), "rem(i, n)"),
    (Compare(CompareOp.LT, Compare(CompareOp.EQ, i, n), const(True, bool_)), "(i == n) < True"),
    (Compare(CompareOp.NE, i, n) & Compare(CompareOp.GE, i, n), "(i != n) & (i >= n)"),
    (Bitcast(u8, Cast(DTYPES["i8"], i)), "bitcast(u8, cast(i8, i))"),
    (select(i < n, x[i], const(0.1, f32)), "select(i < n, x[i], f32(0.1))"),
    (const(0.1, f16), "f16(0.1)"),
    (const(0.1, bf16), "bf16(0.1)"),
    (const(-0.0, f32), "f32(-0.0)"),
    (const(float("-inf"), f32), "f32(-inf)"),
    (const(float("nan"), f32), "f32(nan)"),
    (const(-8, i4), "i4(-8)"),
    (const(index.min), str(-(2**63))),
    (const(2**64 - 1, DTYPES["u64"]), f"u64({2**64 - 1})"),
    (Var("and") + Var("f32") + Var("x/1"), "and_ + f32_ + x_x2f_1"),
    (Load(Buffer("lambda", f32, ()), ()), "lambda_[()]"),
    (Load(Buffer("exp", f32, (4,)), (i,)), "exp[i]"),
]


@pytest.mark.parametrize("e, text", EXPRESSIONS, ids=[t for _, t in EXPRESSIONS])
def test_expression_text(e, text):
    assert str(e) == text
    k = kernel_of(e)
    assert parse_kernel(str(k)) == k


def test_names_of_all_kinds():
    """Kernels, buffers, loops, symbols and memories, called what a model file may call them."""
    s = Symbol("batch size", 2, 4)
    given_, out = Buffer("", f32, (s,), "on chip"), Buffer("_x_", f32, (s,))
    local = Buffer("None", f32, (3, s), 'a "b" \\')
    v = Var("for")
    body = (Alloc(local), For(v, s, (Store(out, (v,), given_[v]),), LoopKind.PARALLEL))
    k = Kernel("import/1", (given_,), (out,), body)
    assert str(k) == block(
        r"""
        def import_x2f_1(_x_: f32[batch_x20_size] @ "on chip", _x5f_x_: out(f32[batch_x20_size])):
            batch_x20_size = symbol(2, 4)
            None_ = alloc(f32[3, batch_x20_size] @ "a \"b\" \\")
            for for_ in parallel(batch_x20_size):
                _x5f_x_[for_] = _x_[for_]
        """
    )
    assert parse_kernel(str(k)) == k


def test_every_statement_keeps_its_parts():
    y = Buffer("y", f32, (4,))
    place = (as_expr(1),)
    parts = (
        If(const(True, bool_), (Store(y, place, const(1, f32)),), ()),
        If(i.equals(0), (), (Accumulate(y, place, BinaryOp.MIN, const(1, f32)),)),
        For(Var("k"), 0, (), LoopKind.UNROLL),
        Store(y, (WORKER,), const(1, f32)),
    )
    for op in (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MAX):
        parts += (Accumulate(y, place, op, const(1, f32)),)
    k = Kernel("k", (), (y,), (For(i, 4, parts),))
    again = parse_kernel(str(k))
    assert again == k
    assert [type(p) for p in again.body[0].body] == [type(p) for p in parts]


def test_scans_nest_and_reductions_keep_their_start():
    b = Builder({"x"})
    given_ = Buffer("x", f32, (3, 4))
    out = b.state("out", (4,), f32)

    def step(t: Expr) -> None:
        b.compute("first", (4,), lambda j: given_[t, j], into=(out, lambda j: (j,)))
        b.scan(2, lambda u: b.compute("more", (), lambda: out[u], into=(out, lambda: (u + 1,))))

    b.scan(3, step)
    total = b.reduce("total", (), BinaryOp.MUL, (4,), lambda k: out[k], init=const(2, f32))
    p = TensorProgram("p", (given_,), b.items, (total,))
    verify_program(p)
    assert parse_program(str(p)) == p
    bare = p.with_(items=tuple(s.with_(init=None) if _reduces(s) else s for s in p.items))
    assert "reduce(mul, None, out[r], r=4)" in str(bare)
    assert parse_program(str(bare)) == bare
    empty = p.with_(items=(*p.items, Scan(Axis(Var("z"), 1), ())))
    assert parse_program(str(empty)) == empty


def _reduces(item: Node) -> bool:
    return isinstance(item, Stage) and item.op is not None


def test_numpy_is_not_needed_to_read_numbers():
    assert str(Const(float(np.float32(0.1)), f32)) == "f32(0.1)"
    assert str(Const(16777216.0, f32)) == "f32(16777216.0)"
    assert str(Const(1e30, DTYPES["f64"])) == "f64(1e+30)"
