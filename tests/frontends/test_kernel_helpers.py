"""Helpers of kernels: Python functions of one expression, read where they are called."""

import numpy as np
import pytest

from tilewright import cast, grid, i32, kernel
from tilewright.base.errors import CompileError
from tilewright.ir.python.words import out
from tilewright.target.describe import read_instruction
from tilewright.targets import cpu

LIMIT = 20


def shift(a, b):
    """To the right, or to the left by a negative amount."""
    return a >> b if b >= 0 else a << -b


def limited(a):
    return min(shift(a, 2), LIMIT)


def test_a_helper_is_its_expression():
    @kernel
    def k(X: i32[4], Y: i32[4], Z: i32[4]):
        for i in grid(4):
            Z[i] = limited(X[i]) + shift(Y[i], -1)

    line = str(k.kernel).splitlines()[2].strip()
    assert line == "Z[i] = min(X[i] >> i32(2), i32(20)) + (Y[i] << i32(1))"
    x, y = np.array([8, 400, -9, 0], np.int32), np.array([1, 2, 3, -4], np.int32)
    wanted = np.minimum(x >> 2, 20) + (y << 1)
    np.testing.assert_array_equal(k.build(cpu.host(threads=1))(x, y, np.zeros(4, np.int32)), wanted)


def two_statements(a):
    b = a + 1
    return b


def with_default(a, b=1):
    return a + b


REFUSED = {
    two_statements: (
        "two_statements is Python's, which runs no part of a kernel",
        "write it out; a helper is one expression: def name(a, b): return …",
    ),
    with_default: (
        "with_default has parameters that are not plain",
        "a helper is one expression: def name(a, b): return …",
    ),
}


@pytest.mark.parametrize("helper", REFUSED, ids=lambda f: f.__name__)
def test_what_is_refused(helper):
    def copy(x: i32[4], y: out(i32[4])):
        for i in grid(4):
            y[i] = helper(x[i])

    with pytest.raises(CompileError) as error:
        read_instruction(copy)
    what, hint = REFUSED[helper]
    text = str(error.value)
    assert what in text.splitlines()[0]
    assert text.endswith(f"hint: {hint}")


def test_a_helper_with_too_few_arguments():
    def copy(x: i32[4], y: out(i32[4])):
        for i in grid(4):
            y[i] = cast(i32, shift(x[i]))

    with pytest.raises(CompileError) as error:
        read_instruction(copy)
    assert "shift(a, b)" in str(error.value)
