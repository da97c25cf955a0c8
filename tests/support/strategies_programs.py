"""Random kernels as models have them: a contraction, a reduction or a movement of data, with
element-wise operators before and behind; at sizes at which schedules cut, shift and mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies_expr import Draws

from tilewright.base.dtype import DType, bf16, f16, f32, f64, i8, i32, i64
from tilewright.ir.evaluate import evaluate_dim, evaluate_program, op_program
from tilewright.ir.expr import Buffer, Dim, Symbol
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.function import CALL
from tilewright.ops.table import OPS

SIZES = (4, 1, 3, 8, 16, 17, 7, 31, 33, 64, 5, 2)
MOST = 1 << 16  # elements of a value, and multiply-adds of a contraction
DTYPES = (f32, f32, f16, bf16, f64, i32, i8, i64)
N = Symbol("n", 1, 9)


@dataclass(frozen=True)
class Program:
    """A kernel's tensor expression. `exact` when no operator in it rounds small integers."""

    program: TensorProgram
    exact: bool

    def inputs(self, seed: int, symbols: dict[str, int]) -> list[np.ndarray]:
        """Small integers."""
        rng = np.random.default_rng(seed)
        shapes = [tuple(evaluate_dim(d, symbols) for d in b.shape) for b in self.program.inputs]
        return [
            rng.integers(-2, 3, shape).astype(b.dtype.numpy)
            for b, shape in zip(self.program.inputs, shapes, strict=True)
        ]

    def wanted(self, inputs: Sequence[np.ndarray], symbols: dict[str, int]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return evaluate_program(self.program, inputs, symbols)

    def compare(self, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
        """To the bit (zeros may differ in sign) where exact; else within a few roundings."""
        for a, b in zip(found, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if self.exact or a.dtype.kind not in "fV":
                np.testing.assert_array_equal(_plain(a), _plain(b))
            else:
                short = a.dtype.itemsize < 4
                tolerance = 2e-2 if short else 2e-5
                np.testing.assert_allclose(_plain(a), _plain(b), rtol=tolerance, atol=tolerance)


def _plain(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) if a.dtype.kind not in "biu" else a


class _Maker:
    """Adds nodes to the body of one kernel."""

    def __init__(self, d: Draws, dtypes: Sequence[DType], symbolic: bool) -> None:
        self.d = d
        self.dtype = d.pick(dtypes)
        self.symbolic = symbolic
        self.values: list[Value] = []
        self.nodes: list[GraphNode] = []
        self.exact = True
        self.names = 0

    def size(self, most: int = 64) -> int:
        return self.d.pick([s for s in SIZES if s <= most])

    def batch(self) -> Dim:
        return N if self.symbolic and self.d.chance(4) else self.d.int(1, 3)

    def input(self, *shape: Dim, dtype: DType | None = None) -> Value:
        value = Value(self.fresh("x"), TensorType(dtype or self.dtype, shape))
        self.values.append(value)
        return value

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        op = OPS[name]
        made = op.make_attrs(**attrs)
        types = op.infer(made, [v.type for v in inputs])
        outputs = tuple(Value(self.fresh("v"), t) for t in types)
        self.nodes.append(GraphNode(op, made, inputs, outputs))
        return outputs[0]

    def behind(self, x: Value) -> Value:
        """Up to three element-wise operators."""
        for _ in range(self.d.int(0, 3)):
            x = self.d.pick((_relu, _bias, _scale, _residual, _sigmoid))(self, x)
        return x


@st.composite
def programs(
    draw: Callable[..., Any],
    *,
    dtypes: Sequence[DType] = DTYPES,
    symbolic: bool = True,
    most: int = MOST,
) -> Program:
    """A kernel around one operator that schedules treat specially. Larger ones than `most`
    multiply-adds or elements are cut down."""
    return program(Draws(draw), dtypes, symbolic, most)


def program(d: Draws, dtypes: Sequence[DType], symbolic: bool = True, most: int = MOST) -> Program:
    """The same, from any draws."""
    m = _Maker(d, dtypes, symbolic)
    form = m.d.pick(_FORMS)
    result = m.behind(form(m, most))
    body = Graph("kernel", tuple(m.values), (result,), tuple(m.nodes), {})
    buffers = [Buffer(v.name, v.dtype, v.shape) for v in m.values]
    made = op_program(CALL, CALL.make_attrs(body=body), buffers)
    return Program(made.with_(name=form.__name__.strip("_")), m.exact)


# ---------------------------------------------------------------- element by element


def _relu(m: _Maker, x: Value) -> Value:
    return m.op("relu", x)


def _bias(m: _Maker, x: Value) -> Value:
    """A vector along one axis."""
    if not x.shape:
        return m.op("neg", x)
    axis = m.d.int(0, len(x.shape) - 1)
    shape = [n if a == axis else 1 for a, n in enumerate(x.shape)]
    return m.op("add", x, m.input(*shape, dtype=x.dtype))


def _scale(m: _Maker, x: Value) -> Value:
    """By one number."""
    return m.op("mul", x, m.input(*(1 for _ in x.shape), dtype=x.dtype))


def _residual(m: _Maker, x: Value) -> Value:
    return m.op("add", x, m.input(*x.shape, dtype=x.dtype))


def _sigmoid(m: _Maker, x: Value) -> Value:
    if not x.dtype.is_float:
        return x
    m.exact = False
    return m.op("tanh", x)


# ---------------------------------------------------------------- forms


def _conv(m: _Maker, most: int) -> Value:
    rank = m.d.pick((2, 2, 1))
    groups = m.d.pick((1, 1, 2, 4))
    deep = m.d.chance(3)  # a group for each channel
    per_group = 1 if deep else m.size(17)
    groups = m.size(33) if deep else groups
    out = groups * (1 if deep else m.size(33))
    kernel = tuple(m.d.int(1, 3) for _ in range(rank))
    dilations = tuple(m.d.int(1, 2) for _ in range(rank))
    low = [(k - 1) * q + 1 for k, q in zip(kernel, dilations, strict=True)]
    spatial = [n + m.size(17) - 1 for n in low]
    while out * per_group * math.prod(kernel) * math.prod(spatial) > most and max(spatial) > 3:
        spatial = [max(n, s // 2) for n, s in zip(low, spatial, strict=True)]
        if spatial == low:
            break
    x = m.input(m.batch(), groups * per_group, *spatial)
    w = m.input(out, per_group, *kernel)
    pads = [tuple(m.d.int(0, 1) for _ in range(rank)) for _ in range(2)]
    strides = tuple(m.d.int(1, 2) for _ in range(rank))
    attrs = {"strides": strides, "dilations": dilations, "groups": groups}
    return m.op("conv", x, w, pads_begin=pads[0], pads_end=pads[1], **attrs)


def _matmul(m: _Maker, most: int) -> Value:
    batch = [m.batch() for _ in range(m.d.int(0, 2))]
    rows: Dim = N if m.symbolic and m.d.chance(5) else m.size()
    columns, inner = m.size(), m.size()
    left = m.input(*batch, rows, inner)
    right_batch = batch if m.d.chance(2) else [1 for _ in batch]
    if m.d.chance(3):
        right = m.input(*right_batch, columns, inner)
        perm = (*range(len(batch)), len(batch) + 1, len(batch))
        right = m.op("transpose", right, perm=perm)
    else:
        right = m.input(*right_batch, inner, columns)
    return m.op("matmul", left, right)


def _image(m: _Maker, most: int) -> Value:
    shape = [m.batch(), m.size(17), m.size(17), m.size(17)]
    return m.input(*shape)


def _pool(m: _Maker, most: int) -> Value:
    x = _image(m, most)
    kernel = tuple(min(m.d.int(1, 3), n) for n in x.shape[2:])
    pads = [tuple(m.d.int(0, min(1, k - 1)) for k in kernel) for _ in range(2)]
    attrs = {"kernel": kernel, "pads_begin": pads[0], "pads_end": pads[1], "dilations": (1, 1)}
    name = "average_pool" if x.dtype.is_float and m.d.chance(2) else "max_pool"
    m.exact &= name == "max_pool"
    return m.op(name, x, strides=(m.d.int(1, 2), m.d.int(1, 2)), **attrs)


def _plane(m: _Maker, most: int) -> Value:
    """Two to four axes, the last ones longer."""
    return m.input(*(m.batch() for _ in range(m.d.int(0, 2))), m.size(33), m.size())


def _reduce(m: _Maker, most: int) -> Value:
    x = m.behind(_plane(m, most))
    axes = tuple(a for a in range(len(x.shape)) if m.d.chance(2)) or (m.d.int(-2, -1),)
    name = m.d.pick(("reduce_sum", "reduce_max", "reduce_min"))
    if name == "reduce_sum" and x.dtype.bits < 32:
        m.exact = not x.dtype.is_float and m.exact  # short floats: many sums round
    return m.op(name, x, axes=axes, keepdims=m.d.chance(2))


def _softmax(m: _Maker, most: int) -> Value:
    x = _float_plane(m, most)
    m.exact = False
    return m.op(m.d.pick(("softmax", "log_softmax")), x, axis=m.d.int(-2, -1))


def _float_plane(m: _Maker, most: int) -> Value:
    if not m.dtype.is_float:
        m.dtype = f32
    return _plane(m, most)


def _norm(m: _Maker, most: int) -> Value:
    x = _float_plane(m, most)
    m.exact = False
    axis = m.d.int(-2, -1)
    scale = m.input(*x.shape[axis:])
    return m.op(m.d.pick(("layer_norm", "rms_norm")), x, scale, axis=axis)


def _arg(m: _Maker, most: int) -> Value:
    x = _plane(m, most)
    axis = m.d.int(-2, -1)
    return m.op(m.d.pick(("argmax", "argmin")), x, axis=axis, last=m.d.chance(2))


def _elementwise(m: _Maker, most: int) -> Value:
    return m.behind(m.behind(_plane(m, most)))


def _transpose(m: _Maker, most: int) -> Value:
    x = m.behind(_plane(m, most))
    perm = list(range(len(x.shape)))
    for last in range(len(perm) - 1, 0, -1):
        other = last - m.d.int(0, last)
        perm[last], perm[other] = perm[other], perm[last]
    return m.op("transpose", x, perm=tuple(perm))


def _concat(m: _Maker, most: int) -> Value:
    x = m.behind(_plane(m, most))
    axis = m.d.int(0, len(x.shape) - 1)
    other = m.input(*x.shape[:axis], m.size(17), *x.shape[axis + 1 :], dtype=x.dtype)
    return m.op("concat", x, other, axis=axis)


def _pad(m: _Maker, most: int) -> Value:
    x = _plane(m, most)
    before, after = (tuple(m.d.int(0, 2) for _ in x.shape) for _ in "ba")
    return m.op("pad", x, before=before, after=after)


def _slice(m: _Maker, most: int) -> Value:
    x = m.input(m.size(17), m.size(), m.size(17))
    starts = tuple(m.d.int(0, n - 1) for n in x.shape)
    sizes = tuple(n - s for n, s in zip(x.shape, starts, strict=True))
    return m.op("slice", x, starts=starts, sizes=sizes, steps=(1, 1, 1))


def _reshape(m: _Maker, most: int) -> Value:
    a, b, c = m.size(17), m.size(17), m.size(17)
    x = m.behind(m.input(a, b, c))
    return m.op("reshape", x, shape=m.d.pick(((a * b, c), (a, b * c), (a * b * c,), (c, a, b))))


def _gather(m: _Maker, most: int) -> Value:
    x = m.input(m.size(17), m.size(33), m.size(17))
    axis = m.d.int(0, 2)
    count = m.size(17)
    places = m.input(count, dtype=i64)
    least = m.input(1, dtype=i64)  # indices from -2 to 2, brought into range
    inside = m.op("min", m.op("max", places, m.op("sub", least, least)), m.op("abs", least))
    if min(x.shape) < 3:
        inside = m.op("sub", inside, inside)
    return m.op("gather", x, inside, axis=axis)


def _cumulative(m: _Maker, most: int) -> Value:
    x = m.input(m.size(7), m.size(17))
    m.exact &= x.dtype.bits >= 32 or not x.dtype.is_float
    return m.op("cumsum", x, axis=m.d.int(0, 1), reverse=m.d.chance(2))


def _attention(m: _Maker, most: int) -> Value:
    """Scores, softmax, and what they weigh."""
    m.dtype, m.exact = f32, False
    n, k = m.size(17), m.size(17)
    q, keys, v = m.input(2, n, k), m.input(2, k, n), m.input(2, n, m.size(17))
    return m.op("matmul", m.op("softmax", m.op("matmul", q, keys), axis=-1), v)


_FORMS: tuple[Callable[[_Maker, int], Value], ...] = (
    _matmul,
    _conv,
    _elementwise,
    _reduce,
    _softmax,
    _norm,
    _pool,
    _transpose,
    _arg,
    _concat,
    _pad,
    _slice,
    _reshape,
    _gather,
    _cumulative,
    _conv,
    _matmul,
    _attention,
)
