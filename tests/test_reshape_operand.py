"""Kernels that read an array in the shape in which another kernel makes it."""

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.ir.interpret import interpret
from tilewright.ir.text.loop import parse_kernel
from tilewright.plan.reshape_operand import with_operand_shape

DOUBLE = parse_kernel(
    """
def double(x: i8[16, 4], y: out(i8[16, 4])):
    for c in range(16):
        for p in range(4):
            y[c, p] = x[c, p] + x[c, p]
""".strip()
)


@pytest.mark.parametrize("shape", [(1, 16, 4), (16, 1, 4), (16, 4, 1), (1, 1, 16, 1, 4)])
def test_axes_of_one_element_beside_its_own(shape):
    """Its result keeps its axes: only the input has more."""
    found = with_operand_shape(DOUBLE, "x", shape)
    assert [b.shape for b in found.params] == [shape, (16, 4)]
    x = np.arange(-32, 32, dtype=np.int8)
    np.testing.assert_array_equal(
        interpret(found, [x.reshape(shape)]), interpret(DOUBLE, [x.reshape(16, 4)])
    )


def test_loops_of_a_result_are_not_cut():
    with pytest.raises(ScheduleError) as error:
        with_operand_shape(DOUBLE, "x", (4, 4, 4))
    assert error.value.what == (
        "x is made as [4, 4, 4], and double reads it as [16, 4], in loops that cannot be cut alike"
    )
