"""What a kernel must not do, and what the error says; kernels are text where text can say them."""

import textwrap

import pytest
from hypothesis import given
from strategies import kernels

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
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel


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
            t = alloc(f32[4])
            prefetch(t[0], 1)
            y[0] = x[0]
        """,
        """
        t is no parameter, and is prefetched
          in: def k(x: f32[4], y: out(f32[4])):
                  ...
                  prefetch(t[0], 1)
                  ...
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            prefetch(x[0], 4)
            y[0] = x[0]
        """,
        """
        there is no cache 4
          in: def k(x: f32[4], y: out(f32[4])):
                  prefetch(x[0], 4)
                  ...
          hint: 1 … 3
        """,
    ),
    (
        """
        def k(x: f32[4], n: i64[4], y: out(f32[4])):
            prefetch(x[n[0]], 1)
            y[0] = x[0]
        """,
        """
        where x is prefetched is read from memory: prefetch(x[n[0]], 1)
          in: def k(x: f32[4], n: i64[4], y: out(f32[4])):
                  prefetch(x[n[0]], 1)
                  ...
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
