"""Shapes and arrangements of a few operators, counted by hand."""

import pytest

from tilewright.base.dtype import f32, i64
from tilewright.base.errors import ModelError
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.table import op

NONE = "indices into an axis without elements"


@pytest.mark.parametrize(
    "axis, data, places, refused",
    [
        (0, (0, 3), (2, 3), True),
        (1, (3, 0), (3, 2), True),
        (1, (3, 0), (3, 0), False),
        (0, (3, 0), (2, 0), False),
        (-1, (3, 0), (3, 2), True),
        (0, (3, 4, 0), (2, 4, 0), False),
    ],
)
def test_elements_of_an_axis_without_any(axis, data, places, refused):
    o = op("gather_elements")
    types = [TensorType(f32, data), TensorType(i64, places)]
    if refused:
        with pytest.raises(ModelError) as error:
            o.infer(o.make_attrs(axis=axis), types)
        assert str(error.value) == f"gather_elements: {NONE}"
    else:
        assert list(o.infer(o.make_attrs(axis=axis), types)) == [TensorType(f32, places)]


# Size, kernel, stride, padding before and after: windows, and elements of the padded input.
REACHES = [
    (7, 2, 2, 0, 0, 4, 8),  # the last window begins at 6 and has one element
    (7, 3, 2, 0, 0, 3, 7),
    (8, 3, 2, 0, 0, 4, 9),
    (8, 3, 3, 0, 0, 3, 9),
    (8, 3, 4, 0, 0, 2, 8),  # one at 8 would begin behind the last element
    (5, 2, 3, 1, 0, 2, 6),
    (5, 1, 1, 0, 0, 5, 5),
    (6, 3, 2, 1, 1, 4, 9),
]


@pytest.mark.parametrize("size, kernel, stride, before, after, windows, padded", REACHES)
def test_a_last_window_that_reaches_beyond(size, kernel, stride, before, after, windows, padded):
    o = op("max_pool")
    attrs = o.make_attrs(
        kernel=(kernel,), strides=(stride,), pads_begin=(before,), pads_end=(after,),
        dilations=(1,), ceil=True,
    )  # fmt: skip
    x = Buffer("x", f32, (1, 1, size))
    starts = [k * stride for k in range(99) if k * stride < size + before]
    wanted = [s for s in starts if s - stride + kernel < size + before + after or s == 0]
    program = op_program(o, attrs, [x])
    assert program.outputs[0].shape == (1, 1, len(wanted)) == (1, 1, windows)
    pads = [s.buffer.shape for s in program.items if s.buffer.name.startswith("pad")]
    assert (pads or [x.shape]) == [(1, 1, padded)]


def test_sizes_without_a_number_have_room_for_any_last_window():
    """As far as a stride reaches, less the one element that it begins with."""
    o = op("max_pool")
    attrs = o.make_attrs(
        kernel=(2,), strides=(3,), pads_begin=(0,), pads_end=(0,), dilations=(1,), ceil=True
    )
    n = Symbol("n", 2)
    program = op_program(o, attrs, [Buffer("x", f32, (1, 1, n))])
    pad = next(s.buffer for s in program.items if s.buffer.name.startswith("pad"))
    assert [str(d) for d in pad.shape] == ["1", "1", "n + 2"]


def test_names_of_axes_that_are_summed_over():
    o = op("einsum")
    attrs = o.make_attrs(terms=("abc", "cb"), result="a")
    program = op_program(o, attrs, [Buffer("x", f32, (2, 3, 4)), Buffer("w", f32, (4, 3))])
    assert "reduce(add, f32(0.0), x[a, b, c] * w[c, b], b=3, c=4)" in str(program)
