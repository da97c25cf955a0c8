"""Graphs to try passes on: written as text, built node by node, and random."""

import re
import textwrap
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.base.dtype import DType, f32, from_numpy
from tilewright.ir.evaluate import evaluate_dim, evaluate_graph
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor_type import TensorType
from tilewright.ir.text.graph import parse_graph
from tilewright.ops.table import OPS, op


def read(text: str, **constants: np.ndarray) -> Graph:
    return parse_graph(textwrap.dedent(text).strip(), OPS, constants)


def expect(program: object, text: str) -> None:
    """The program prints as `text`, which may be indented, and break lines behind commas."""
    wanted = re.sub(r",\n +", ", ", textwrap.dedent(text).strip())
    assert str(program).strip() == wanted


class Maker:
    """Builds a graph node by node; types follow from the operators."""

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[GraphNode] = []
        self.constants: dict[Value, np.ndarray] = {}
        self.count = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def input(self, *shape: Any, dtype: DType = f32, name: str = "") -> Value:
        value = Value(name or self.fresh("in"), TensorType(dtype, shape))
        self.inputs.append(value)
        return value

    def constant(self, array: Any, name: str = "") -> Value:
        array = np.asarray(array)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        kind = TensorType(from_numpy(array.dtype), array.shape)
        value = Value(name or self.fresh("k"), kind)
        self.constants[value] = array
        return value

    def op(self, name: str, *inputs: Value, node: str = "", **attrs: Any) -> Value:
        """The (first) result of an operator."""
        return self.ops(name, *inputs, node=node, **attrs)[0]

    def ops(self, name: str, *inputs: Value, node: str = "", **attrs: Any) -> tuple[Value, ...]:
        record = op(name)
        values = record.make_attrs(**attrs)
        types = record.infer(values, [v.type for v in inputs])
        stem = self.fresh("v")
        outputs = tuple(
            Value(stem if len(types) == 1 else f"{stem}_{i}", t) for i, t in enumerate(types)
        )
        node = node or f"{name}_{len(self.nodes)}"
        self.nodes.append(GraphNode(record, values, inputs, outputs, node))
        return outputs

    def graph(self, *outputs: Value) -> Graph:
        return Graph(
            self.name, tuple(self.inputs), outputs, tuple(self.nodes), dict(self.constants)
        )


# ---------------------------------------------------------------- comparing


def random_array(rng: np.random.Generator, kind: TensorType, symbols: dict[str, int]) -> Any:
    shape = tuple(evaluate_dim(d, symbols) for d in kind.shape)
    if kind.dtype.is_float:
        return rng.standard_normal(shape).astype(kind.dtype.numpy)
    return rng.integers(0, 2, shape).astype(kind.dtype.numpy)


def random_inputs(graph: Graph, symbols: dict[str, int] | None = None, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [random_array(rng, v.type, symbols or {}) for v in graph.inputs]


def check_valid(graph: Graph) -> None:
    """Values are defined once, before they are used, with the types that the operators give."""
    known = {*graph.inputs, *graph.constants}
    assert len(known) == len(graph.inputs) + len(graph.constants)
    for v, array in graph.constants.items():
        assert (v.shape, v.dtype) == (array.shape, from_numpy(array.dtype)), v
    for n in graph.nodes:
        assert known.issuperset(n.inputs), n
        assert known.isdisjoint(n.outputs), n
        known.update(n.outputs)
        if n.op.category.name != "OPAQUE" and all(v.type.layout is None for v in n.inputs):
            kinds = [t.with_(layout=None) for t in n.op.infer(n.attrs, [v.type for v in n.inputs])]
            assert len(n.outputs) <= len(kinds)
            assert [v.type.with_(layout=None) for v in n.outputs] == kinds, n
    assert known.issuperset(graph.outputs)
    names = [v.name for v in known]
    assert len(set(names)) == len(names)


def check_same(
    before: Graph, after: Graph, *, symbols: dict[str, int] | None = None, exact: bool = True
) -> None:
    """Both graphs compute the same."""
    check_valid(after)
    inputs = random_inputs(before, symbols)
    with np.errstate(all="ignore"):
        wanted = evaluate_graph(before, inputs, symbols)
        found = evaluate_graph(after, inputs, symbols)
    assert [v.type for v in before.outputs] == [v.type for v in after.outputs]
    for a, b in zip(wanted, found, strict=True):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- random graphs

SHAPES = [(), (3,), (1, 3), (2, 3), (4, 3), (2, 1, 3), (2, 4, 3), (1, 2, 4, 4), (2, 2, 5, 5)]
UNARY = ["relu", "neg", "abs", "sigmoid", "tanh", "floor"]
BINARY = ["add", "sub", "mul", "max", "min", "div"]
NUMBERS = [0.0, -0.0, 1.0, 2.0, 0.5, -3.0]


@st.composite
def graphs(draw: Any, most: int = 12, opaque: bool = False) -> Graph:
    """A graph of floats: arithmetic, movement, reductions, matmul and convolution, with values
    read several times, constants, unused nodes, and inputs that are outputs."""
    m = Maker()
    pick = lambda items: items[draw(st.integers(0, len(items) - 1))]  # noqa: E731
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    values = [m.input(*pick(SHAPES)) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, most))):
        values.append(pick(STEPS)(m, pick(values), values, pick, rng))
    count = draw(st.integers(1, 3))
    return m.graph(*(pick(values) for _ in range(count)), values[-1])


def _unary(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    return m.op(pick(UNARY), x)


def _with_value(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    fits = [v for v in values if _broadcasts(v.shape, x.shape)]
    return m.op(pick(BINARY), *pick([(x, pick(fits)), (pick(fits), x)]))


def _with_constant(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    shape = pick([(), x.shape, (1,) * len(x.shape), _channels(x.shape)])
    array = pick([np.full(shape, pick(NUMBERS)), rng.standard_normal(shape)])
    c = m.constant(array)
    if pick([True, False]):
        c = m.op(pick(UNARY), c)
    return m.op(pick(BINARY), *pick([(x, c), (c, x)]))


def _channels(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[1], *(1 for _ in shape[2:])) if len(shape) > 2 else shape[-1:]


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(p == q or p == 1 or q == 1 for p, q in zip(a[::-1], b[::-1], strict=False))


def _transpose(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    axes = list(range(len(x.shape)))
    return m.op("transpose", x, perm=pick([tuple(axes), tuple(axes[::-1])]))


def _reshape(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    size = int(np.prod(x.shape))
    return m.op("reshape", x, shape=pick([(size,), (1, *x.shape), x.shape[::-1]]))


def _slice(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    starts = tuple(pick(range(d)) for d in x.shape)
    starts = pick([starts, tuple(0 for _ in starts)])
    sizes = tuple(d - s for d, s in zip(x.shape, starts, strict=True))
    return m.op("slice", x, starts=starts, sizes=sizes, steps=(1,) * len(sizes))


def _concat(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    if not x.shape:
        return m.op("reshape", x, shape=(1,))
    axis = pick(range(len(x.shape)))
    fits = [v for v in values if v.shape[:axis] + v.shape[axis + 1 :] == _without(x.shape, axis)]
    fits = [v for v in fits if len(v.shape) == len(x.shape)]
    return m.op("concat", *pick([(x,), (x, pick(fits))]), axis=axis)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _pad(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    return m.op("pad", x, before=tuple(pick([0, 1]) for _ in x.shape), after=(0,) * len(x.shape))


def _expand(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    return m.op("expand", x, shape=pick([x.shape, (2, *x.shape)]))


def _reduce(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    if not x.shape:
        return m.op("relu", x)
    if pick([True, False]):
        return m.op("softmax", x, axis=-1)
    axes = pick([(-1,), (0,), tuple(range(len(x.shape)))])
    return m.op(pick(["reduce_sum", "reduce_max"]), x, axes=axes, keepdims=pick([True, False]))


def _contract(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    if len(x.shape) == 4:
        w = m.constant(rng.standard_normal((3, x.shape[1], 1, 1)))
        edge = {"pads_begin": (0, 0), "pads_end": (0, 0)}
        return m.op("conv", x, w, strides=(1, 1), dilations=(1, 1), **edge)
    if len(x.shape) >= 2:
        fits = [v for v in values if len(v.shape) == 2 and v.shape[0] == x.shape[-1]]
        w = m.constant(rng.standard_normal((x.shape[-1], 3)))
        return m.op("matmul", x, pick([w, *fits]))
    return m.op("relu", x)


def _affine(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    """A contraction with a chain of constants behind it, such as a batch normalisation."""
    y = _contract(m, x, values, pick, rng)
    for name in ("sub", "mul", "add", "relu")[: pick([1, 2, 3, 4])]:
        if name == "relu":
            return m.op("relu", y)
        y = m.op(name, y, m.constant(rng.standard_normal(_channels(y.shape))))
    return y


def _reshaped_affine(m: Maker, x: Value, values: list[Value], pick: Any, rng: Any) -> Value:
    """A contraction, a reshape, and arithmetic behind it."""
    y = _contract(m, x, values, pick, rng)
    if 0 not in y.shape:
        size, last = int(np.prod(y.shape)), int(np.prod(y.shape[-2:]))
        y = m.op("reshape", y, shape=pick([(1, *y.shape), (size,), (*y.shape[:-2], last)]))
    return _with_constant(m, y, values, pick, rng)


STEPS = [_unary, _with_value, _with_constant, _transpose, _reshape, _slice, _concat, _pad]
STEPS += [_reshaped_affine, _expand, _reduce, _contract, _affine, _unary, _with_value]
