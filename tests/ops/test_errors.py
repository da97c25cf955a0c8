"""What operators refuse, and the whole of what they say."""

import pytest

from tilewright.base.dtype import bool_, f16, f32, i8, i32, i64, u8
from tilewright.base.errors import ModelError
from tilewright.ir.expr import Symbol
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.table import op as find_op

n, m = Symbol("n"), Symbol("m")


def t(*shape, dtype=f32):
    return TensorType(dtype, shape)


WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
POOL = {**WINDOW, "kernel": (5, 5)}

FIT = (
    "\n  hint: they fit for certain sizes only: fix m, n with dims= (--dim m=NUMBER --dim n=NUMBER)"
)
REFUSED = [
    ("add", {}, [t(2), t(2, dtype=i32)], "add: operands differ in type: f32, i32"),
    ("add", {}, [t(2, 3), t(2, 4)], "shapes [2, 3] and [2, 4] do not broadcast: 3 against 4"),
    ("add", {}, [t(n), t(m)], f"shapes [n] and [m] do not broadcast: n against m{FIT}"),
    ("add", {}, [t(3), t(4)], "shapes [3] and [4] do not broadcast: 3 against 4"),
    ("exp", {}, [t(2, dtype=i32)], "exp: takes floats, not i32"),
    ("shl", {}, [t(2), t(2)], "shl: takes integers, not f32"),
    ("bitcast", {"to": f16}, [t(2)], "bitcast: f32 and f16 are not of the same width"),
    (
        "matmul",
        {},
        [t(2, 3), t(4, 5)],
        "matmul: the inner dimensions differ: 3 against 4",
    ),
    (
        "matmul_compact",
        {"bits": 4, "block": 4},
        [t(2, 8), t(4, 3, dtype=i8), t(2, 3)],
        "matmul_compact: f32 times codes of 4 bits in i8",
    ),
    (
        "matmul_compact",
        {"bits": 4, "block": 4},
        [t(2, 8), t(8, 3, dtype=u8), t(2, 3)],
        "matmul_compact: 8 against 16",
    ),
    (
        "matmul_compact",
        {"bits": 8, "block": 4},
        [t(2, 8), t(8, 3, dtype=u8), t(3, 3)],
        "matmul_compact: scales and zeros must be f32[2, 3], not f32[3, 3]",
    ),
    ("matmul", {}, [t(3), t(3, 5)], "matmul: operands of 1 and 2 dimensions"),
    (
        "conv",
        {**WINDOW, "groups": 2},
        [t(1, 3, 8, 8), t(4, 3, 3, 3)],
        "conv: 3 input channels, but the weight has 3 in 2 group(s)",
    ),
    (
        "conv",
        WINDOW,
        [t(1, 3, 2, 2), t(4, 3, 5, 5)],
        "conv: the window [5, 5] is larger than the padded input",
    ),
    (
        "max_pool",
        POOL,
        [t(1, 3, 2, 8)],
        "max_pool: the window [5, 5] is larger than the padded input",
    ),
    ("average_pool", POOL, [t(1, 3, 8, 8, dtype=i32)], "average_pool: takes floats, not i32"),
    ("max_pool", POOL, [t(1, 3)], "max_pool: an input of 2 dimensions has no spatial axis"),
    ("max_pool", POOL, [t(1, 3, 8)], "max_pool: kernel must have 1 elements"),
    (
        "reduce_sum",
        {"axes": (2,)},
        [t(2, 3)],
        "reduce_sum: axis 2 of a tensor with 2 dimensions",
    ),
    (
        "reduce_sum",
        {"axes": (0, -2)},
        [t(2, 3)],
        "reduce_sum: axes (0, -2) name one axis twice",
    ),
    (
        "reduce_sum",
        {"axes": (0,)},
        [t(2, dtype=bool_)],
        "reduce_sum: takes floats and integers, not bool",
    ),
    ("argmax", {"axis": 0}, [t(0, 3)], "argmax: axis 0 has no elements"),
    ("cumsum", {"axis": 0}, [t()], "cumsum: a scalar has no axis"),
    ("softmax", {"axis": 3}, [t(2, 3)], "softmax: axis 3 of a tensor with 2 dimensions"),
    (
        "layer_norm",
        {},
        [t(2, 3), t(2)],
        "shapes [2, 3] and [2] do not broadcast: 3 against 2",
    ),
    (
        "layer_norm",
        {},
        [t(1, 3), t(2, 3)],
        "layer_norm: an operand f32[2, 3] does not broadcast to f32[1, 3]",
    ),
    ("lrn", {"size": 3}, [t(4)], "lrn: a tensor with 1 dimensions has no channels"),
    (
        "transpose",
        {"perm": (0, 0)},
        [t(2, 3)],
        "transpose: (0, 0) is no permutation of the 2 axes",
    ),
    (
        "reshape",
        {"shape": (4, 2)},
        [t(2, 3)],
        "reshape: [2, 3] has 6 elements, [4, 2] has 8",
    ),
    ("reshape", {"shape": (m,)}, [t(n)], f"reshape: [n] has n elements, [m] has m{FIT}"),
    (
        "slice",
        {"starts": (2,), "sizes": (3,), "steps": (1,)},
        [t(4)],
        "slice: axis 0 of extent 4 has no element 4",
    ),
    (
        "concat",
        {"axis": 0},
        [t(2, 3), t(2, 4)],
        "concat: [2, 3] and [2, 4] differ beside axis 0",
    ),
    (
        "pad",
        {"before": (1,), "after": (0,), "mode": "reflect"},
        [t(1)],
        "pad: axis 0 has one element and cannot be mirrored",
    ),
    ("pad", {"before": (-1,), "after": (0,)}, [t(4)], "pad: a negative number of elements"),
    ("expand", {"shape": (2, 4)}, [t(3, 1, 4)], "expand: [3, 1, 4] does not broadcast to [2, 4]"),
    ("tile", {"repeats": (2,)}, [t(2, 3)], "tile: repeats must have 2 elements"),
    (
        "gather",
        {"axis": 0},
        [t(2), t(3)],
        "gather: indices must be integers, not f32",
    ),
    (
        "gather_elements",
        {"axis": 0},
        [t(2, n), t(2, 3, dtype=i64)],
        "gather_elements: 3 indices along axis 1, where data has n elements",
    ),
    (
        "gather_nd",
        {},
        [t(2), t(3, 2, dtype=i64)],
        "gather_nd: indices of 2 subscripts after 0 batch axes into 1 axes",
    ),
    (
        "scatter_nd",
        {},
        [t(4, 2), t(3, 1, dtype=i64), t(3)],
        "scatter_nd: updates are f32[3], which must be f32[3, 2]",
    ),
    ("trilu", {}, [t(4)], "trilu: a tensor with 1 dimensions has no diagonal"),
    ("full", {"shape": (-1,), "dtype": f32}, [], "full: a dimension of -1"),
    (
        "einsum",
        {"terms": ("ij", "jk"), "result": "ik"},
        [t(2, 3), t(4, 5)],
        "einsum: the axis 'j' has 3 and 4 elements",
    ),
    (
        "grid_sample",
        {},
        [t(1, 1, 4, 4), t(1, 3, 3, 3)],
        "grid_sample: a grid f32[1, 3, 3, 3] for the input f32[1, 1, 4, 4]",
    ),
    (
        "lstm",
        {"activations": (), "alphas": (), "betas": ()},
        [t(5, 1, 12), t(4, 12), t(1, 4), t(1, 4)],
        "lstm: xw is f32[5, 1, 12] and rt is f32[4, 12]: there must be 4 gates",
    ),
    ("top_k", {"k": 5}, [t(2, 4)], "top_k: 5 elements of an axis with 4"),
    ("det", {}, [t(2, 4)], "det: f32[2, 4] does not hold square matrices"),
]


@pytest.mark.parametrize("name, attrs, types, text", REFUSED, ids=lambda v: str(v)[:40])
def test_refused(name, attrs, types, text):
    op = find_op(name)
    with pytest.raises(ModelError) as caught:
        op.infer(op.make_attrs(**attrs), types)
    assert str(caught.value) == text


def test_attributes_are_checked():
    with pytest.raises(ModelError) as caught:
        find_op("conv").make_attrs(**{**WINDOW, "strides": (1, 0)})
    assert str(caught.value) == ("conv: attribute strides is (1, 0)\n  hint: it must be in 1 … ∞")
    with pytest.raises(ModelError) as caught:
        find_op("pad").make_attrs(before=(), after=(), mode="mirror")
    assert str(caught.value) == (
        "pad: attribute mode is 'mirror'\n"
        "  hint: it must be one of 'constant', 'reflect', 'edge', 'wrap'"
    )


def test_a_symbolic_reshape_must_not_read_beyond_the_tensor():
    reshape = find_op("reshape")
    for shape in ((n // 4, 4), (2, n // 4, 2)):
        reshape.infer(reshape.make_attrs(shape=shape), [t(n)])
    with pytest.raises(ModelError) as caught:
        reshape.infer(reshape.make_attrs(shape=((n + 3) // 4, 4)), [t(n)])
    assert str(caught.value) == (
        "reshape: [n] has n elements, [(n + 3) // 4, 4] has 4 * ((n + 3) // 4)\n"
        "  hint: they fit for certain sizes only: fix n with dims= (--dim n=NUMBER)"
    )


def test_unknown_operator():
    with pytest.raises(ModelError) as caught:
        find_op("matmull")
    assert str(caught.value) == (
        "there is no operator called 'matmull'\n  hint: did you mean 'matmul' or 'mul'?"
    )
