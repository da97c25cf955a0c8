"""Random small networks over images: convolutions, poolings, residual sums and concatenations in
chains and branches, with as many channels as fill, overfill and miss blocks of channels; so that
layouts are chosen, copied and met by operators that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies_expr import Draws

from tilewright.base.dtype import f32
from tilewright.ir.expr import Dim, Symbol
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.table import OPS

CHANNELS = (8, 16, 3, 1, 4, 17, 32, 24, 33)
N = Symbol("n", 1, 5)


class _Maker:
    """Adds layer after layer; `last` holds the values that layers may read."""

    def __init__(self, d: Draws) -> None:
        self.d = d
        self.rng = np.random.default_rng(d.int(0, 99))
        self.nodes: list[GraphNode] = []
        self.constants: dict[Value, np.ndarray] = {}
        batch: Dim = N if d.chance(4) else d.int(1, 2)
        side = d.int(1, 12)
        shape = (batch, d.pick(CHANNELS), side, d.pick((side, 7)))
        self.input = Value("image", TensorType(f32, shape))
        self.last = [self.input]

    def weight(self, *shape: int, scale: float = 1.0) -> Value:
        array = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        value = Value(f"w{len(self.constants)}", TensorType(f32, shape))
        self.constants[value] = array
        return value

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        op = OPS[name]
        made = op.make_attrs(**attrs)
        (kind,) = op.infer(made, [v.type for v in inputs])
        out = Value(f"v{len(self.nodes)}", kind)
        self.nodes.append(GraphNode(op, made, inputs, (out,)))
        return out

    def image(self) -> Value:
        """One of the latest values."""
        return self.last[-1 - self.d.int(0, min(2, len(self.last) - 1))]


@st.composite
def networks(draw: Callable[..., Any], layers: int = 8) -> Graph:
    """A network of up to `layers` layers over one image, perhaps with a classifier behind it."""
    return network(Draws(draw), layers)


def network(d: Draws, layers: int = 8) -> Graph:
    """The same, from any draws."""
    m = _Maker(d)
    for _ in range(m.d.int(1, layers)):
        m.last.append(m.d.pick(_LAYERS)(m, m.image()))
    outputs = [m.last[-1]]
    if m.d.chance(3):
        outputs.append(_classifier(m, m.image()))
    if m.d.chance(4):
        outputs.append(m.image())  # read by others as well
    distinct = tuple(v for v in dict.fromkeys(outputs) if v is not m.input)
    if not distinct:
        distinct = (m.op("relu", m.input),)
    return Graph("network", (m.input,), distinct, tuple(m.nodes), m.constants)


def _conv(m: _Maker, x: Value) -> Value:
    channels, height, width = x.shape[1:]
    assert isinstance(channels, int)
    groups = m.d.pick([g for g in (1, 1, channels, 2, 4) if channels % g == 0])
    out = m.d.pick((channels, *CHANNELS)) if groups == 1 else channels * m.d.int(1, 2)
    size = m.d.pick([k for k in (3, 1, 5) if k <= min(height, width) + 2 * (k // 2)])
    stride, pad = m.d.pick((1, 1, 2)), size // 2
    fan = channels // groups * size * size
    w = m.weight(out, channels // groups, size, size, scale=fan**-0.5)
    edges = {"pads_begin": (pad, pad), "pads_end": (pad, pad)}
    y = m.op("conv", x, w, strides=(stride, stride), dilations=(1, 1), groups=groups, **edges)
    return _behind(m, y)


def _behind(m: _Maker, y: Value) -> Value:
    """Scale, bias, activation: each or not."""
    channels = y.shape[1]
    if m.d.chance(3):
        y = m.op("mul", y, m.weight(channels, 1, 1))
    if m.d.chance(2):
        y = m.op("add", y, m.weight(channels, 1, 1))
    return m.op(m.d.pick(("relu", "relu", "sigmoid", "tanh")), y) if m.d.chance(2) else y


def _add(m: _Maker, x: Value) -> Value:
    fits = [v for v in m.last if v.shape == x.shape]
    return m.op("relu", m.op("add", x, m.d.pick(fits)))


def _concat(m: _Maker, x: Value) -> Value:
    fits = [v for v in m.last if (v.shape[0], *v.shape[2:]) == (x.shape[0], *x.shape[2:])]
    y = m.d.pick(fits)
    return x if x.shape[1] + y.shape[1] > 80 else m.op("concat", x, y, axis=1)


def _pool(m: _Maker, x: Value) -> Value:
    if min(x.shape[2:]) < 3:
        return m.op("relu", x)
    edges = {"pads_begin": (1, 1), "pads_end": (1, 1), "strides": (2, 2), "dilations": (1, 1)}
    return m.op(m.d.pick(("max_pool", "average_pool")), x, kernel=(3, 3), **edges)


def _gate(m: _Maker, x: Value) -> Value:
    """Squeeze and excite: a factor for each channel from the mean over its plane."""
    mean = m.op("reduce_mean", x, axes=(2, 3), keepdims=True)
    channels = x.shape[1]
    w = m.weight(channels, channels, 1, 1, scale=channels**-0.5)
    edges = {"pads_begin": (0, 0), "pads_end": (0, 0)}
    gate = m.op("conv", mean, w, strides=(1, 1), dilations=(1, 1), **edges)
    return m.op("mul", x, m.op("sigmoid", gate))


def _halves(m: _Maker, x: Value) -> Value:
    """The channels' halves exchanged."""
    half, channels = x.shape[1] // 2, x.shape[1]
    if not half:
        return x
    rest = tuple(x.shape[2:])

    def part(start: int, count: int) -> Value:
        starts, sizes = (0, start, 0, 0), (x.shape[0], count, *rest)
        return m.op("slice", x, starts=starts, sizes=sizes, steps=(1, 1, 1, 1))

    return m.op("concat", part(half, channels - half), part(0, half), axis=1)


def _classifier(m: _Maker, x: Value) -> Value:
    mean = m.op("reduce_mean", x, axes=(2, 3), keepdims=False)
    y = m.op("matmul", mean, m.weight(x.shape[1], m.d.pick((10, 17, 1))))
    return m.op("softmax", y, axis=-1) if m.d.chance(2) else y


_LAYERS = (_conv, _conv, _conv, _add, _pool, _concat, _gate, _halves)
