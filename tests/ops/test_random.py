"""Operators on random shapes and attributes, against numpy."""

import numpy as np
import op_cases as oc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from op_cases import case, run

import tilewright
from tilewright.base.dtype import f32, i32
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Symbol, as_expr
from tilewright.ops.movement import reshape_groups

SIZES = st.integers(1, 4)
SHAPES = st.lists(SIZES, min_size=1, max_size=4).map(tuple)


def numbers(shape, dtype=np.int32):
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


def only(c):
    (result,) = run(c, False)
    return result


@given(SHAPES, st.data())
def test_transpose(shape, data):
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    x = numbers(shape)
    np.testing.assert_array_equal(
        only(case("transpose", x, perm=perm, expected=None)), x.transpose(perm)
    )


@st.composite
def factored(draw):
    """Two shapes of the same elements."""
    primes = draw(st.lists(st.sampled_from([1, 2, 2, 3]), max_size=5))

    def grouped():
        order, shape = draw(st.permutations(primes)), [1] * draw(st.integers(1, 4))
        for p in order:
            shape[draw(st.integers(0, len(shape) - 1))] *= p
        return tuple(shape)

    return grouped(), grouped()


@given(factored())
def test_reshape(shapes):
    old, new = shapes
    x = numbers(old)
    np.testing.assert_array_equal(
        only(case("reshape", x, shape=new, expected=None)), x.reshape(new)
    )


def test_reshape_only_divides_where_axes_meet():
    n, m = Symbol("n"), Symbol("m")
    assert reshape_groups((2, n, 6), (2, n, 2, 3)) == [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3))]
    merged = canonical(as_expr(n) * m)
    assert reshape_groups((n, 1, m, 5), (1, merged, 5)) == [((0, 2), (1,)), ((3,), (2,))]
    assert reshape_groups((4, 6), (6, 4)) == [((0, 1), (0, 1))]


@given(SHAPES, st.data())
def test_slice(shape, data):
    starts, sizes, steps, cut = [], [], [], []
    for extent in shape:
        part = slice(
            data.draw(st.integers(-5, 5)),
            data.draw(st.integers(-5, 5)),
            data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3])),
        )
        places = range(extent)[part]
        starts.append(places[0] if len(places) else 0)
        sizes.append(len(places))
        steps.append(part.step)
        cut.append(part)
    x = numbers(shape)
    attrs = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
    np.testing.assert_array_equal(only(case("slice", x, **attrs, expected=None)), x[tuple(cut)])


@given(SHAPES, st.sampled_from(["constant", "reflect", "edge", "wrap"]), st.data())
def test_pad(shape, mode, data):
    widths = []
    for extent in shape:
        most = 0 if mode == "reflect" and extent == 1 else 5
        widths.append((data.draw(st.integers(0, most)), data.draw(st.integers(0, most))))
    x = numbers(shape)
    before, after = zip(*widths, strict=True)
    result = only(case("pad", x, before=before, after=after, mode=mode, expected=None))
    np.testing.assert_array_equal(result, np.pad(x, widths, mode=mode))


@given(SHAPES, st.data())
def test_concat(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = []
    for extent in data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)):
        parts.append(numbers((*shape[:axis], extent, *shape[axis + 1 :])))
    result = only(case("concat", *parts, axis=axis, expected=None))
    np.testing.assert_array_equal(result, np.concatenate(parts, axis))


@pytest.mark.parametrize("count", [16, 17, 33, 400])
def test_a_concat_of_many(count):
    """By halves: one side of a choice behind another would be too deep for recursion."""
    parts = [numbers((2, i % 3 + 1)) for i in range(count)]
    result = only(case("concat", *parts, axis=1, expected=None))
    np.testing.assert_array_equal(result, np.concatenate(parts, 1))
    names = [f"x{i}" for i in range(count)]
    concat = helper.make_node("Concat", names, ["y"], axis=1)
    ends = zip(names, parts, strict=True)
    model = helper.make_model(
        helper.make_graph(
            [concat],
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, p.shape) for n, p in ends],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )
    )
    given = {n: p.astype(np.float32) for n, p in zip(names, parts, strict=True)}
    y = tilewright.compile(model, target="host")(**given)
    np.testing.assert_array_equal(y, np.concatenate(parts, 1).astype(np.float32))


@given(SHAPES, st.sampled_from(["sum", "prod", "max", "min"]), st.booleans(), st.data())
def test_reductions(shape, name, keepdims, data):
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    x = numbers(shape) % 5 - 2
    result = only(case(f"reduce_{name}", x, axes=axes, keepdims=keepdims, expected=None))
    wanted = getattr(np, name)(x, axis=axes, keepdims=keepdims)
    np.testing.assert_array_equal(result, wanted.astype(np.int32))


@given(SHAPES, st.booleans(), st.booleans(), st.data())
def test_running_sums(shape, exclusive, reverse, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = numbers(shape)
    turned = np.flip(x, axis) if reverse else x
    wanted = turned.cumsum(axis) - (turned if exclusive else 0)
    wanted = np.flip(wanted, axis) if reverse else wanted
    c = case("cumsum", x, axis=axis, exclusive=exclusive, reverse=reverse, expected=None)
    np.testing.assert_array_equal(only(c), wanted)


@given(SHAPES, SHAPES, st.data())
def test_gather(shape, places_shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    seed = data.draw(st.integers(0, 99))
    places = np.random.default_rng(seed).integers(-shape[axis], shape[axis], places_shape)
    x = numbers(shape)
    result = only(case("gather", x, places, axis=axis, expected=None))
    np.testing.assert_array_equal(result, np.take(x, places, axis))


@given(
    st.tuples(SIZES, st.integers(1, 2), st.integers(1, 3)),
    st.tuples(st.integers(3, 7), st.integers(1, 3), st.integers(1, 2)),
    st.integers(0, 2),
    st.integers(1, 2),
)
def test_convolution(channels, window, pad, groups):
    (per_group, outer, batch), (size, kernel, stride) = channels, window
    x = numbers((batch, per_group * groups, size, size + 1)) % 7 - 3
    w = numbers((outer * groups, per_group, kernel, kernel)) % 5 - 2
    attrs = {"strides": (stride,) * 2, "pads_begin": (pad,) * 2, "pads_end": (pad,) * 2}
    result = only(case("conv", x, w, **attrs, dilations=(1, 1), groups=groups, expected=None))
    np.testing.assert_array_equal(result, oc.conv2d(x, w, stride, pad, 1, groups))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(4, 7), st.booleans())
def test_pooling(kernel, stride, size, mean):
    x = numbers((2, 1, size, size + 1), np.float32)
    attrs = {"kernel": (kernel,) * 2, "strides": (stride,) * 2, "dilations": (1, 1)}
    attrs |= {"pads_begin": (0, 0), "pads_end": (0, 0)}
    name, combine = ("average_pool", np.mean) if mean else ("max_pool", np.max)
    result = only(case(name, x, **attrs, expected=None))
    wanted = oc.pool2d(x, kernel, stride, lambda block: combine(block, -1))
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


@given(SHAPES, SHAPES)
def test_broadcasting(a, b):
    x, y = numbers(a, np.float32), numbers(b, np.float32)
    try:
        shape = np.broadcast_shapes(a, b)
    except ValueError:
        return
    result = only(case("add", x, y, expected=None))
    np.testing.assert_array_equal(result, x + y)
    expanded = only(case("expand", x, shape=shape, expected=None))
    np.testing.assert_array_equal(expanded, np.broadcast_to(x, shape))


def test_dtypes_are_kept():
    for dtype in (f32, i32):
        x = np.ones((2, 2), dtype.numpy)
        for c in (
            case("matmul", x, x, expected=None),
            case("reduce_mean", x, axes=(0,), expected=None),
            case("cumsum", x, axis=0, expected=None),
        ):
            assert only(c).dtype == dtype.numpy
