"""Arrays as a layout puts them in memory."""

import itertools

import numpy as np
import pytest

from tilewright.base.dtype import f32
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import const
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.optimize.arrange import arrange, read_arranged
from tilewright.schedule.primitives.memory import physical_indices

LAYOUTS = [
    ((2, 6, 3, 2), Layout((0, 1, 2, 3), ((1, 4),))),
    ((2, 6, 3, 2), Layout((0, 2, 3, 1), ())),
    ((5, 7), Layout((1, 0), ((0, 4), (1, 2)))),
    ((5, 16), Layout((0, 1), ((1, 8), (0, 2), (1, 2)))),
    ((4,), Layout((0,), ((0, 2), (0, 2)))),
    ((), Layout((), ())),
    ((0, 3), Layout((1, 0), ((1, 2),))),
]


@pytest.mark.parametrize("shape, layout", LAYOUTS, ids=str)
def test_layouts(shape, layout):
    """Every element is where the loops look for it, padding is 0, and it can be read back."""
    array = np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    kind = TensorType(f32, shape, layout)
    memory = arrange(array, kind)
    assert memory.shape == kind.physical_shape
    assert memory.flags["C_CONTIGUOUS"]
    wanted = np.zeros_like(memory)
    for at in itertools.product(*map(range, shape)):
        place = physical_indices(layout, tuple(const(i) for i in at))
        wanted[tuple(int(evaluate_expr(i, {}, {})) for i in place)] = array[at]
    np.testing.assert_array_equal(memory, wanted)
    np.testing.assert_array_equal(read_arranged(memory.reshape(-1), kind, shape), array)


def test_rows():
    turned = np.arange(6.0).reshape(2, 3).T
    kind = TensorType(f32, (3, 2))
    assert arrange(turned, kind).flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(arrange(turned, kind), turned)
    assert arrange(np.float32(1).reshape(()), TensorType(f32, ())).shape == ()
