"""What a tensor program must not do, and what the error says."""

import textwrap

import pytest
from hypothesis import given
from strategies import tensor_programs

from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Buffer,
    Var,
    const,
)
from tilewright.ir.tensor import Axis, Scan, Stage, TensorProgram
from tilewright.ir.text.tensor import parse_program
from tilewright.ir.verify.loop import verify_kernel
from tilewright.ir.verify.tensor import verify_program
from tilewright.plan.create_loops import create_loops


def block(text: str) -> str:
    return textwrap.dedent(text).strip()


def error_of(verify, program) -> str:
    with pytest.raises(CompileError) as caught:
        verify(program)
    return str(caught.value)


@given(tensor_programs())
def test_random_tensor_programs_are_legal_and_so_are_their_loops(p):
    verify_program(p)
    verify_kernel(create_loops(p))


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


i = Var("i")
x, y = Buffer("x", f32, (4,)), Buffer("y", f32, (4,))


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
