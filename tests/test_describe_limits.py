"""limit(…) in descriptions: read, refused where it is no condition on fields, kept to by calls."""

import pytest

from tilewright import grid, i8
from tilewright.base.errors import CompileError
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.target.describe import Range, limit, read_instruction

R, N = dims("R N", max=64)


@read_instruction
def move(x: i8[R, N], y: out(i8[R, N]), skip: Range(0, 8)):
    limit(R * N <= 256, skip < R)
    for i, j in grid(R, N):
        y[i, j] = x[i, j]
    limit(N <= 2 * R or N < 8)


def test_limits_are_conditions_on_fields():
    assert [str(e) for e in move.limits] == ["R * N <= 256", "skip < R", "(N <= 2 * R) | (N < 8)"]


def of_elements(x: i8[R, N], y: out(i8[R, N])):
    limit(R < 9, x[0, 0] > 1)
    for i, j in grid(R, N):
        y[i, j] = x[i, j]


def always(x: i8[R, N], y: out(i8[R, N])):
    limit(64 <= 65)
    for i, j in grid(R, N):
        y[i, j] = x[i, j]


def nothing(x: i8[R, N], y: out(i8[R, N])):
    limit()
    for i, j in grid(R, N):
        y[i, j] = x[i, j]


def number(x: i8[R, N], y: out(i8[R, N])):
    limit(R * N)
    for i, j in grid(R, N):
        y[i, j] = x[i, j]


def inside(x: i8[R, N], y: out(i8[R, N])):
    for i, j in grid(R, N):
        limit(R < 9)
        y[i, j] = x[i, j]


REFUSED = {
    of_elements: (
        "the limit x[0, 0] > i8(1) is not about fields alone",
        "it must be known before the instruction runs",
    ),
    always: ("this limit always holds", "a condition on fields"),
    nothing: ("0 arguments do not fit", "expected limit(rows * columns <= 4096)"),
    number: ("a condition is true or false, and this is of type i64", "compare it: … != 0"),
    inside: (
        "an expression by itself does nothing in a kernel",
        "write an assignment, a loop or an `if`",
    ),
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_refused(function):
    with pytest.raises(CompileError) as error:
        read_instruction(function)
    what, hint = REFUSED[function]
    assert error.value.what.split(": ", 1)[1] == what
    assert error.value.hint == hint


TEXT = """
def k(x: i8[8, 8], y: out(i8[8, 8])):
    move(x[_0, _1], y[_0, _1], skip=2, R=4, N=8)
"""


def test_calls_keep_to_them():
    verify_kernel(parse_kernel(TEXT.strip(), [move]))
    with pytest.raises(CompileError) as error:
        verify_kernel(parse_kernel(TEXT.replace("R=4", "R=2").strip(), [move]))
    assert error.value.what == "the limit skip < R of move does not hold"
