"""What a kernel or tensor program must not do, and what the error says. Programs are written as
text where text can say them."""

import textwrap

import pytest
from hypothesis import given
from strategies import kernels, tensor_programs

from tilewright.base.dtype import f32, i32, index
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Bitcast,
    Buffer,
    Const,
    Load,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_expr,
    const,
)
from tilewright.ir.loop import Alloc, For, If, Kernel, Store
from tilewright.ir.tensor import Axis, Scan, Stage, TensorProgram
from tilewright.ir.text import parse_kernel, parse_program
from tilewright.ir.verify import verify_kernel, verify_program
from tilewright.schedule.create_loops import create_loops


def block(text: str) -> str:
    return textwrap.dedent(text).strip()


def error_of(verify, program) -> str:
    with pytest.raises(CompileError) as caught:
        verify(program)
    return str(caught.value)


# ---------------------------------------------------------------- what is right


@given(kernels())
def test_random_kernels_are_legal(k):
    verify_kernel(k)


@given(tensor_programs())
def test_random_tensor_programs_are_legal_and_so_are_their_loops(p):
    verify_program(p)
    verify_kernel(create_loops(p))


# ---------------------------------------------------------------- kernels, as text

KERNELS = [
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in range(4):
                y[i] = x[i]
            for i in range(4):
                y[i] = x[i]
        """,
        """
        variable 'i' has the name of another variable
          in: def k(x: f32[4], y: out(f32[4])):
                  ...
                  for i in range(4):
                      ...
          hint: names are unique within a program; rename one of them
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for x in range(4):
                y[x] = f32(0.0)
        """,
        """
        variable 'x' has the name of another buffer
          in: def k(x: f32[4], y: out(f32[4])):
                  for x in range(4):
                      ...
          hint: names are unique within a program; rename one of them
        """,
    ),
    (
        """
        def k(x: f32[n], y: out(f32[4])):
            n = symbol(1)
            y = alloc(f32[n])
        """,
        None,  # the text form refuses it first
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in range(4):
                x[i] = y[i]
        """,
        """
        input x is written
          in: def k(x: f32[4], y: out(f32[4])):
                  for i in range(4):
                      x[i] = y[i]
          hint: write an output, or a buffer of the kernel's own
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(i32[4])):
            for i in range(4):
                y[i] = x[i]
        """,
        """
        a value of f32 is stored in y: i32[4]
          in: def k(x: f32[4], y: out(i32[4])):
                  for i in range(4):
                      y[i] = x[i]
          hint: cast(i32, …)
        """,
    ),
    (
        """
        def k(x: i32[4], y: out(f32[4])):
            for i in range(4):
                if x[i] == i32(0):
                    y[i] = f32(0.0)
                else:
                    y[x[i]] = f32(1.0)
        """,
        """
        subscript 0 of y is x[i], of type i32, not i64
          in: def k(x: i32[4], y: out(f32[4])):
                  for i in range(4):
                      if x[i] == i32(0):
                          ...
                      else:
                          y[x[i]] = f32(1.0)
          hint: cast(i64, …)
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            if x[0]:
                y[0] = x[0]
        """,
        """
        the condition x[0] is f32, not bool
          in: def k(x: f32[4], y: out(f32[4])):
                  if x[0]:
                      ...
          hint: compare it with 0
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            y[0] = x[0]
            accumulate(sub, y[0], x[1])
        """,
        """
        accumulate with sub, which is not commutative
          in: def k(x: f32[4], y: out(f32[4])):
                  ...
                  accumulate(sub, y[0], x[1])
          hint: the operators are add, and, max, min, mul, or, xor
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            accumulate(xor, y[0], x[1])
        """,
        """
        accumulate with xor of f32
          in: def k(x: f32[4], y: out(f32[4])):
                  accumulate(xor, y[0], x[1])
        """,
    ),
    (
        """
        def k(x: f32[n], y: out(f32[n])):
            n = symbol(1)
            for i in vectorize(n):
                y[i] = x[i]
        """,
        """
        vectorize loop i runs n times, which is not a constant
          in: def k(x: f32[n], y: out(f32[n])):
                  n = symbol(1)
                  for i in vectorize(n):
                      ...
          hint: split it by a constant first
        """,
    ),
    (
        """
        def k(x: f32[4, 4], y: out(f32[4, 4])):
            for i in parallel(4):
                for j in parallel(4):
                    y[i, j] = x[i, j]
        """,
        """
        parallel loop j stands in another one
          in: def k(x: f32[4, 4], y: out(f32[4, 4])):
                  for i in parallel(4):
                      for j in parallel(4):
                          ...
          hint: workers are shared out once; fuse the loops
        """,
    ),
    (
        """
        def k(y: out(f32[4])):
            for i in range(-1):
                y[i] = f32(0.0)
        """,
        """
        the extent of loop i is -1
          in: def k(y: out(f32[4])):
                  for i in range(-1):
                      ...
          hint: it must not be negative
        """,
    ),
    (
        """
        def k(x: i64[4], y: out(f32[4])):
            for i in range(x[0]):
                y[i] = f32(0.0)
        """,
        """
        the extent of loop i is x[0], which reads memory
          in: def k(x: i64[4], y: out(f32[4])):
                  for i in range(x[0]):
                      ...
        """,
    ),
    (
        """
        def k(y: out(f32[4])):
            for i in range(4):
                t = alloc(f32[i + 1])
                t[i] = f32(0.0)
                y[i] = t[i]
        """,
        """
        a dimension of buffer t is i + 1, which depends on a loop variable
          in: def k(y: out(f32[4])):
                  for i in range(4):
                      t = alloc(f32[i + 1])
                      ...
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
            for i in range(4):
                y[i] = x[i]
        """,
        """
        output z is never written
          in: def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
                  ...
        """,
    ),
    (
        """
        def k(x: i32[4], y: out(i32[4])):
            for i in range(4):
                y[i] = sqrt(x[i])
        """,
        """
        sqrt of i32: sqrt(x[i])
          in: def k(x: i32[4], y: out(i32[4])):
                  for i in range(4):
                      y[i] = sqrt(x[i])
          hint: it takes float
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            y[0] = x[0] << x[1]
        """,
        """
        shl of f32: x[0] << x[1]
          in: def k(x: f32[4], y: out(f32[4])):
                  y[0] = x[0] << x[1]
          hint: it takes int, uint
        """,
    ),
    (
        """
        def k(x: f32[n], y: out(f32[n])):
            n = symbol(5, 3)
            y[0] = x[0]
        """,
        """
        symbol n lies between 5 and 3
          in: def k(x: f32[n], y: out(f32[n])):
                  n = symbol(5, 3)
                  ...
        """,
    ),
    (
        """
        def k(x: f32[4] @ "", y: out(f32[4])):
            y[0] = x[0]
        """,
        """
        buffer x has no memory
          in: def k(x: f32[4] @ "", y: out(f32[4])):
                  ...
        """,
    ),
]


@pytest.mark.parametrize("text, error", KERNELS)
def test_kernel_errors(text, error):
    if error is None:
        assert error_of(parse_kernel, block(text)).startswith("line 3: 'y' is defined already")
    else:
        assert error_of(verify_kernel, parse_kernel(block(text))) == block(error)


# ---------------------------------------------------------------- kernels that text cannot say

i, n = Var("i"), Symbol("n", 1, 8)
x, y = Buffer("x", f32, (4,)), Buffer("y", f32, (4,))
SHOWN = "\n  in: def k(x: f32[4], y: out(f32[4])):\n"


def kernel(*body) -> Kernel:
    return Kernel("k", (x,), (y,), body)


STORE = Store(y, (i,), x[i])
ODD = [
    (kernel(STORE), "variable 'i' is not bound by any loop here" + SHOWN),
    (
        kernel(For(i, const(4), (STORE,))),
        "the extent of loop i is the constant 4, not a number" + SHOWN,
    ),
    (kernel(For(i, 4.0, (STORE,))), "the extent of loop i is 4.0, which is no dimension" + SHOWN),
    (kernel(For(Var("i", i32), 4, ())), "loop variable i is i32, not i64" + SHOWN),
    (
        kernel(For(i, 4, (STORE,)), Store(y, (i,), x[0])),
        "variable 'i' is not bound by any loop here" + SHOWN,
    ),
    (
        kernel(Store(y, (as_expr(0),), Load(Buffer("z", f32, (4,)), (as_expr(0),)))),
        "buffer 'z' is not declared here" + SHOWN,
    ),
    (
        kernel(Store(y, (as_expr(0),), Load(Buffer("x", f32, (5,)), (as_expr(0),)))),
        "x: f32[5] @ dram was declared as x: f32[4] @ dram" + SHOWN,
    ),
    (
        kernel(
            If(as_expr(True), (Alloc(Buffer("t", f32, ())),)),
            Store(y, (as_expr(0),), Load(Buffer("t", f32, ()), ())),
        ),
        "buffer 't' is not declared here" + SHOWN,
    ),
    (kernel(Store(y, (), x[0])), "0 subscripts for y: f32[4]" + SHOWN),
    (kernel(Store(y, (0,), x[0])), "subscript 0 of y is 0, of type int, not i64" + SHOWN),
    (kernel(Store(y, (as_expr(0),), Const(1, f32))), "the constant 1 is not a value of f32"),
    (
        kernel(Store(y, (as_expr(0),), Const(0.1, f32))),
        "the constant 0.1 is not a value of f32" + SHOWN,
    ),
    (
        kernel(Store(y, (Const(True, index),), x[0])),
        "the constant True is not a value of i64" + SHOWN,
    ),
    (
        kernel(Store(y, (n, n.with_(upper=9))[:1], Load(x, (n.with_(upper=9),)))),
        "symbol n has two bounds: 1 … 8 and 1 … 9",
    ),
    (
        kernel(Store(y, (as_expr(0),), Select(as_expr(1), x[0], x[1]))),
        "the condition of select(1, x[0], x[1]) is i64, not bool" + SHOWN,
    ),
    (
        kernel(Store(y, (as_expr(0),), Bitcast(f32, as_expr(1)))),
        "bitcast of i64 to f32: bitcast(f32, 1)" + SHOWN,
    ),
    (
        kernel(For(i, 4, (STORE,)), Store(y, (Unary(UnaryOp.FLOOR, const(1)),), x[0])),
        "floor of i64: floor(1)" + SHOWN,
    ),
    (kernel(const(1)), "Const is not a statement" + SHOWN),
    (
        Kernel("k", (x, x), (y,), ()),
        "buffer 'x' has the name of another buffer\n  in: def k(x: f32[4], x: f32[4], y: out(",
    ),
]


@pytest.mark.parametrize("k, start", ODD, ids=[s.split("\n")[0] for _, s in ODD])
def test_odd_kernels(k, start):
    assert error_of(verify_kernel, k).startswith(start)


def test_an_excerpt_leaves_out_what_is_beside_the_place():
    bad = Store(y, (as_expr(0),), as_expr(1))
    k = kernel(For(i, 4, (STORE,)), For(Var("j"), 4, (If(as_expr(True), (bad, bad)), STORE)), STORE)
    assert error_of(verify_kernel, k) == block(
        """
        a value of i64 is stored in y: f32[4]
          in: def k(x: f32[4], y: out(f32[4])):
                  ...
                  for j in range(4):
                      if True:
                          y[0] = 1
                          ...
                      ...
                  ...
          hint: cast(f32, …)
        """
    )


def test_shared_parts_are_checked_once():
    """An expression in which each part stands twice is checked in no time."""
    e = x[0]
    for _ in range(60):
        e = e + e
    verify_kernel(kernel(Store(y, (as_expr(0),), e)))


# ---------------------------------------------------------------- tensor programs

PROGRAMS = [
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[8])
            define(y[i], x[i], i=4)
            return y
        """,
        """
        the stage does not define all of y: f32[8] by its axes
          in: def p(x: f32[4]):
                  define(y[i], x[i], i=4)
          hint: only in a scan may a stage write a part of a buffer
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[4])
            define(y[3 - i], x[i], i=4)
            return y
        """,
        """
        the stage does not define all of y: f32[4] by its axes
          in: def p(x: f32[4]):
                  define(y[3 - i], x[i], i=4)
          hint: only in a scan may a stage write a part of a buffer
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[4])
            define(y[i], x[i], i=4)
            define(y[j], x[j], j=4)
            return y
        """,
        """
        y is defined by another stage too
          in: def p(x: f32[4]):
                  define(y[j], x[j], j=4)
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[4])
            z = tensor(f32[4])
            define(y[i], z[i], i=4)
            define(z[j], x[j], j=4)
            return y
        """,
        """
        buffer 'z' is not declared here
          in: def p(x: f32[4]):
                  define(y[i], z[i], i=4)
          hint: known: x, y
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[4])
            define(y[i], y[i] + x[i], i=4)
            return y
        """,
        """
        y is read before it is defined
          in: def p(x: f32[4]):
                  define(y[i], y[i] + x[i], i=4)
          hint: a stage reads inputs and what stages before it define
        """,
    ),
    (
        """
        def p(x: f32[4]):
            define(x[i], f32(0.0), i=4)
            return x
        """,
        """
        input x is defined by a stage
          in: def p(x: f32[4]):
                  define(x[i], f32(0.0), i=4)
        """,
    ),
    (
        """
        def p(x: f32[4]):
            return x
        """,
        """
        output 0, x, is not the result of a stage of its own
          in: def p(x: f32[4]):
                  ...
          hint: an input, or another output, must be copied by a stage
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[()])
            define(y[()], reduce(sub, f32(0.0), x[k], k=4))
            return y
        """,
        """
        sub cannot combine a reduction: it is not commutative
          in: def p(x: f32[4]):
                  define(y[()], reduce(sub, f32(0.0), x[k], k=4))
          hint: the operators are add, and, max, min, mul, or, xor
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[()])
            define(y[()], reduce(add, None, x[k], k=4))
            return y
        """,
        """
        the reduction of y has no first value
          in: def p(x: f32[4]):
                  define(y[()], reduce(add, None, x[k], k=4))
          hint: neutral(add, f32) changes nothing
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[()])
            define(y[()], reduce(add, 0, x[k], k=4))
            return y
        """,
        """
        the first value is i64, the others are f32
          in: def p(x: f32[4]):
                  define(y[()], reduce(add, 0, x[k], k=4))
        """,
    ),
    (
        """
        def p(x: f32[8, 4]):
            s = tensor(f32[4])
            for t in scan(8):
                define(s[j], select(t == 0, x[t, j], s[3 - j]), j=4)
            return s
        """,
        """
        s[3 - j] is read while s is being written
          in: def p(x: f32[8, 4]):
                  for t in scan(8):
                      define(s[j], select(t == 0, x[t, j], s[3 - j]), j=4)
          hint: read a copy, or an element that this step does not write
        """,
    ),
    (
        """
        def p(x: f32[8, 4]):
            s = tensor(f32[4])
            for t in scan(8):
                define(s[j], reduce(add, f32(0.0), s[j], k=4), j=4)
            return s
        """,
        """
        s[j] is read while s is being written
          in: def p(x: f32[8, 4]):
                  for t in scan(8):
                      define(s[j], reduce(add, f32(0.0), s[j], k=4), j=4)
          hint: read a copy, or an element that this step does not write
        """,
    ),
    (
        """
        def p(x: f32[8, 4]):
            s = tensor(f32[4])
            for t in scan(8):
                define(s[j // 2], x[t, j], j=4)
            return s
        """,
        """
        axis j is not a subscript of s by itself
          in: def p(x: f32[8, 4]):
                  for t in scan(8):
                      define(s[j // 2], x[t, j], j=4)
          hint: two of its iterations may write one element; make it the step of a scan
        """,
    ),
    (
        """
        def p(x: f32[4]):
            s = tensor(f32[4])
            define(s[i], x[i], i=4)
            for t in scan(4):
                define(s[t], x[t])
            return s
        """,
        """
        s is defined by another stage too
          in: def p(x: f32[4]):
                  for t in scan(4):
                      ...
          hint: all stages that define it must stand in one scan
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(i32[4])
            define(y[i], x[i], i=4)
            return y
        """,
        """
        a value of f32 is stored in y: i32[4]
          in: def p(x: f32[4]):
                  define(y[i], x[i], i=4)
          hint: cast(i32, …)
        """,
    ),
]


@pytest.mark.parametrize("text, error", PROGRAMS)
def test_program_errors(text, error):
    assert error_of(verify_program, parse_program(block(text))) == block(error)


def test_programs_that_text_cannot_say():
    a = Axis(i, 4)
    stage = Stage(y, (a,), (i,), x[i])
    cases = [
        ((stage.with_(reduce=(Axis(Var("k"), 4),)),), "y is reduced without an operator"),
        ((stage.with_(init=const(0, f32)),), "y has a first value but no operator"),
        ((stage.with_(axes=(a, a)),), "variable 'i' has the name of another variable"),
        ((stage.with_(axes=()),), "variable 'i' is not bound by any loop here"),
        ((Scan(Axis(Var("t"), 4), (stage.with_(buffer=x),)),), "input x is defined by a stage"),
        ((const(1),), "Const is not an item of a program"),
    ]
    for items, start in cases:
        program = TensorProgram("p", (x,), items, (y,))
        assert error_of(verify_program, program).startswith(start + "\n")
