"""Mistakes in text: the error says which line, shows it, points, and says what was expected."""

import textwrap

import pytest

from tilewright.base.errors import CompileError
from tilewright.ir.text.graph import parse_graph
from tilewright.ir.text.host import parse_host
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.text.tensor import parse_program
from tilewright.ops.table import OPS

FEW = {name: OPS[name] for name in ("add", "cast", "leaky_relu", "sigmoid")}  # for near misses


def block(text: str) -> str:
    return textwrap.dedent(text).strip()


def error_of(parse, text: str) -> str:
    with pytest.raises(CompileError) as caught:
        parse(block(text))
    return str(caught.value)


KERNELS = [
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in range(4)
                y[i] = x[i]
        """,
        """
        line 2: this is not Python syntax
          in: for i in range(4)
                               ^
          hint: expected ':'
        """,
    ),
    (
        "",
        """
        the text is empty
          hint: expected one function: def name(...):
        """,
    ),
    (
        """
        x = 1
        """,
        """
        line 1: there is more here than one function
          in: x = 1
              ^
          hint: expected def name(...):
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in range(4):
                y[i] = x[j] + f32(1.0)
        """,
        """
        line 3: there is no variable called 'j' here
          in: y[i] = x[j] + f32(1.0)
                       ^
          hint: known: worker, i
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in range(4):
                y[i] = x[i] + 1
        """,
        """
        line 3: the operands are f32 and i64
          in: y[i] = x[i] + 1
                     ^
          hint: expected operands of one type
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            y[0] = x[0] + 0.5
        """,
        """
        line 2: a number has no type
          in: y[0] = x[0] + 0.5
                            ^
          hint: expected its type in front, such as f32(0.5)
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            y[0] = sqrd(x[0])
        """,
        """
        line 2: there is no function called 'sqrd' here
          in: y[0] = sqrd(x[0])
                     ^
          hint: did you mean 'sqrt'?
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            y[0] = max(x[0])
        """,
        """
        line 2: 1 arguments do not fit
          in: y[0] = max(x[0])
                     ^
          hint: expected max(a, b)
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            y[0] = x[0, 0]
        """,
        """
        line 2: 2 subscripts for a buffer of 1 dimensions
          in: y[0] = x[0, 0]
                     ^
          hint: expected an element of x: f32[4]
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            if x[0] > f32(0.0) and x[1] > f32(0.0):
                y[0] = x[0]
        """,
        """
        line 2: this is not an expression of the text form
          in: if x[0] > f32(0.0) and x[1] > f32(0.0):
                 ^
          hint: expected & for `and`, | for `or`
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in ragne(4):
                y[i] = x[i]
        """,
        """
        line 2: this is not a loop
          in: for i in ragne(4):
                       ^
          hint: expected for i in range(n), parallel(n), vectorize(n), unroll(n) or bind(n, "axis")
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in range(4):
                t = alloc(f32[4])
                t[i] = x[i]
            y[0] = t[0]
        """,
        """
        line 5: there is no buffer called 't' here
          in: y[0] = t[0]
                     ^
          hint: known: x, y
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            for i in range(4):
                for i in range(4):
                    y[i] = x[i]
        """,
        """
        line 3: 'i' is defined already
          in: for i in range(4):
                  ^
          hint: expected another name
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            y[0] -= x[0]
        """,
        """
        line 2: this is not a statement of the text form
          in: y[0] -= x[0]
              ^
          hint: expected += or accumulate(…)
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            accumulate(mix, y[0], x[0])
        """,
        """
        line 2: there is no operator called 'mix' here
          in: accumulate(mix, y[0], x[0])
                         ^
          hint: did you mean 'min' or 'max'?
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            prefetch(x[0], y)
        """,
        """
        line 2: this is not the number of a cache
          in: prefetch(x[0], y)
                             ^
          hint: expected prefetch(element, level)
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            nontemporal(y[0])
        """,
        """
        line 2: 1 arguments do not fit
          in: nontemporal(y[0])
              ^
          hint: expected nontemporal(element, value)
        """,
    ),
    (
        """
        def k(x: float32[4], y: out(f32[4])):
            y[0] = x[0]
        """,
        """
        line 1: there is no scalar type called 'float32' here
          in: def k(x: float32[4], y: out(f32[4])):
                       ^
          hint: did you mean 'f32'?
        """,
    ),
    (
        """
        def k(y: out(f32[4]), x: f32[4]):
            y[0] = x[0]
        """,
        """
        line 1: a parameter is out of order
          in: def k(y: out(f32[4]), x: f32[4]):
                                    ^
          hint: expected inputs, outputs, scratch
        """,
    ),
    (
        """
        def k(x, y: out(f32[4])):
            y[0] = x[0]
        """,
        """
        line 1: a parameter has no type
          in: def k(x, y: out(f32[4])):
                    ^
          hint: expected name: type or finite(type) or out(type) or scratch(type)
        """,
    ),
    (
        """
        def k(y: out(i8[4])):
            y[0] = i8(300)
        """,
        """
        line 2: 300 does not fit i8 (-128 … 127)
          in: y[0] = i8(300)
                     ^
        """,
    ),
    (
        """
        def k(y: out(f32[n])):
            n = symbol(one)
            y[0] = f32(0.0)
        """,
        """
        line 2: this is not a bound
          in: n = symbol(one)
                         ^
          hint: expected a bound, an integer
        """,
    ),
    (
        """
        def k(x: f32[4], y: out(f32[4])):
            "naïve" "x"
            y[0] = x
        """,
        """
        line 2: this is not a call
          in: "naïve" "x"
              ^
          hint: expected a loop, if, alloc, =, +=, accumulate(…), barrier(…) or an instruction
        """,
    ),
    (
        """
        def k(x: f32[4] @ "é", y: out(f32[j])):
            y[0] = x[0]
        """,
        """
        line 1: there is no variable called 'j' here
          in: def k(x: f32[4] @ "é", y: out(f32[j])):
                                                ^
          hint: known: worker
        """,
    ),
]


@pytest.mark.parametrize("text, error", KERNELS)
def test_kernel_errors(text, error):
    assert error_of(parse_kernel, text) == block(error)


PROGRAMS = [
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[4])
            define(y[i], x[i] * x[k], i=4)
            return y
        """,
        """
        line 3: there is no variable called 'k' here
          in: define(y[i], x[i] * x[k], i=4)
                                    ^
          hint: known: i
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[4])
            define(y[i], x[i], i=4)
        """,
        """
        line 3: the function does not end here
          in: define(y[i], x[i], i=4)
              ^
          hint: expected return x, …
        """,
    ),
    (
        """
        def p(x: f32[4]):
            y = tensor(f32[()])
            define(y[()], reduce(add, x[i], i=4))
            return y
        """,
        """
        line 3: 2 arguments do not fit
          in: define(y[()], reduce(add, x[i], i=4))
                            ^
          hint: expected reduce(operator, init, value, k=extent, …)
        """,
    ),
    (
        """
        def p(x: f32[4]):
            define(y[i], x[i], i=4)
            return x
        """,
        """
        line 2: there is no buffer called 'y' here
          in: define(y[i], x[i], i=4)
                     ^
          hint: known: x
        """,
    ),
]


@pytest.mark.parametrize("text, error", PROGRAMS)
def test_program_errors(text, error):
    assert error_of(parse_program, text) == block(error)


GRAPHS = [
    (
        """
        def g(x: f32[4]):
            y: f32[4] = sigmoyd(x)
            return y
        """,
        """
        line 2: there is no operator called 'sigmoyd' here
          in: y: f32[4] = sigmoyd(x)
                          ^
          hint: did you mean 'sigmoid'?
        """,
    ),
    (
        """
        def g(x: f32[4]):
            y: f32[4] = sigmoid(z)
            return y
        """,
        """
        line 2: there is no value called 'z' here
          in: y: f32[4] = sigmoid(z)
                                  ^
          hint: known: x
        """,
    ),
    (
        """
        def g(x: f32[4]):
            y: f32[4] = leaky_relu(x, slope=0.1)
            return y
        """,
        """
        line 2: leaky_relu has no attribute 'slope'
          in: y: f32[4] = leaky_relu(x, slope=0.1)
                          ^
          hint: expected leaky_relu with alpha
        """,
    ),
    (
        """
        def g(x: f32[4]):
            y: i32[4] = cast(x)
            return y
        """,
        """
        line 2: cast lacks attribute 'to'
          in: y: i32[4] = cast(x)
                          ^
          hint: expected cast with to
        """,
    ),
    (
        """
        def g(x: f32[4]):
            w: f32[4] = constant()
            y: f32[4] = add(x, w)
            return y
        """,
        """
        line 2: the constant 'w' was not given with the text
          in: w: f32[4] = constant()
                          ^
          hint: there are none
        """,
    ),
    (
        """
        def g(x: f32[4]):
            a, b = sigmoid(x)
            return a
        """,
        """
        line 2: the values' types are missing
          in: a, b = sigmoid(x)
              ^
          hint: expected y, z = operator(x, …, attribute=value, types=(type, type))
        """,
    ),
    (
        """
        def g(x: f32[4]):
            y: f32[4] = sigmoid(x, types=(f32[4],))
            return y
        """,
        """
        line 2: sigmoid has no attribute 'types'
          in: y: f32[4] = sigmoid(x, types=(f32[4],))
                          ^
          hint: expected sigmoid with no attributes
        """,
    ),
    (
        """
        def g(x: f32[4] @ layout[0, 1:]):
            return x
        """,
        """
        line 1: this is not a layout
          in: def g(x: f32[4] @ layout[0, 1:]):
                                          ^
          hint: expected layout[axes in order, axis:factor, …]
        """,
    ),
    (
        """
        def g(x: f32[4]):
            w: f32[2] = constant([1.0, two])
            return x
        """,
        """
        line 2: this is not a number
          in: w: f32[2] = constant([1.0, two])
                                         ^
          hint: expected a number, inf or nan
        """,
    ),
    (
        """
        def g(x: f32[4]):
            x: f32[4] = sigmoid(x)
            return x
        """,
        """
        line 2: 'x' is defined already
          in: x: f32[4] = sigmoid(x)
              ^
          hint: expected another name
        """,
    ),
]


@pytest.mark.parametrize("text, error", GRAPHS)
def test_graph_errors(text, error):
    assert error_of(lambda t: parse_graph(t, FEW, {}), text) == block(error)


HOSTS = [
    (
        """
        def h(x):
            x: f32[4] = args[0]
            cal(k(x), "cpu")
            return x
        """,
        """
        line 3: there is no step called 'cal' here
          in: cal(k(x), "cpu")
              ^
          hint: did you mean 'call'?
        """,
    ),
    (
        """
        def h(x):
            args = memory("heap", "cpu", 16)
            return x
        """,
        """
        line 2: this is not a memory; the kinds are constants, arena, input, output
          in: args = memory("heap", "cpu", 16)
                     ^
          hint: expected m = memory("arena", "device", bytes)
        """,
    ),
    (
        """
        def h(x):
            call(k(x, n=4), "cpu")
            return x
        """,
        """
        line 2: this is not a symbol
          in: call(k(x, n=4), "cpu")
                          ^
          hint: expected call(kernel(slots, …, n=n), "device", nodes=[…])
        """,
    ),
]


@pytest.mark.parametrize("text, error", HOSTS)
def test_host_errors(text, error):
    assert error_of(parse_host, text) == block(error)


def test_an_expression_that_is_too_deep_is_an_error_of_ours():
    text = "def k(y: out(i64[()])):\n    y[()] = " + "(" * 300 + "1" + ")" * 300
    assert error_of(parse_kernel, text).startswith("line 2: this is not Python syntax\n")
    deep = "def k(y: out(i64[()])):\n    y[()] = " + "-" * 5000 + "1"
    parsed = "def k(y: out(i64[()])):\n    y[()] = " + "1 + " * 600 + "1"
    assert error_of(parse_kernel, parsed) == error_of(parse_kernel, deep)
    assert error_of(parse_kernel, deep) == (
        "an expression or block of the text is nested too deeply\n"
        "  hint: split it into several statements"
    )
