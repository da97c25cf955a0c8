"""Random quantised networks: contractions of bytes with what is put between them, in which nothing
is rounded but by QuantizeLinear.

Scales are powers of two and sums have fewer than 24 bits, so that f32 holds every number exactly,
products of bf16 and sums in any order too: two ways to run a network must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto
from onnx_models import model, node
from strategies_expr import Draws

from tilewright.frontends.onnx.load import import_model
from tilewright.ir.graph import Graph

CHANNELS = (8, 4, 16, 3, 1, 17, 32)
KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


class _Maker:
    """Adds layer after layer; `name` is the latest value: floats that are bytes times 2**-step,
    of `shape`, whose first dimension may be symbolic."""

    def __init__(self, d: Draws) -> None:
        self.d = d
        self.rng = np.random.default_rng(d.int(0, 99))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.batch: int | str = "n" if d.chance(3) else d.int(1, 2)
        side = d.int(1, 8)
        self.shape = [d.pick(CHANNELS), side, d.pick((side, 5))]
        self.kind = d.pick(list(KINDS))
        self.kept: list[tuple[str, list[int]]] = []
        self.name = "image"
        self.dequantise(d.int(0, 4))

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(kind, inputs, [name], **attrs))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def dequantise(self, step: int) -> None:
        """The latest value, bytes, as floats."""
        zero = self.constant(self.kind(self.d.pick((0, 3, 100))))
        scale = self.constant(np.float32(2.0**-step))
        self.name = self.op("DequantizeLinear", self.name, scale, zero)
        self.kept.append((self.name, list(self.shape)))

    def quantise(self) -> None:
        """To bytes, at a step that uses many of them, and back."""
        self.kind, step = self.d.pick(list(KINDS)), self.d.int(0, 4)
        zero = self.constant(self.kind(self.d.pick((0, 3, 100))))
        scale = self.constant(np.float32(2.0**-step))
        self.name = self.op("QuantizeLinear", self.name, scale, zero)
        if self.d.chance(4) and len(self.shape) == 3 and min(self.shape[1:]) >= 2:
            self.name = self.op("MaxPool", self.name, kernel_shape=[2, 2], strides=[2, 2])
            self.shape[1:] = [n // 2 for n in self.shape[1:]]
        self.dequantise(step)

    def weight(self, *shape: int, axis: int) -> str:
        """Bytes with one scale for each channel, or for all."""
        numbers = self.rng.integers(-127, 128, shape).astype(np.int8)
        count = shape[axis] if self.d.chance(2) else 1
        scales = 2.0 ** -self.rng.integers(5, 9, count).astype(np.float32)
        zeros = np.full(count, 0 if self.d.int(0, 3) else 1, np.int8)
        if count == 1:
            scales, zeros = scales.reshape(()), zeros.reshape(())
        numbers = np.maximum(numbers, -126)
        names = (self.constant(a) for a in (numbers, scales, zeros))
        return self.op("DequantizeLinear", *names, axis=axis)

    def behind(self, channels: tuple[int, ...]) -> None:
        """A bias, an activation, a sum with what was there before: each or not; then bytes."""
        if self.d.chance(2):
            bias = self.rng.integers(-99, 99, channels).astype(np.float32) / 8
            self.name = self.op("Add", self.name, self.constant(bias))
        fits = [name for name, shape in self.kept if shape == self.shape]
        if fits and self.d.chance(2):
            self.name = self.op("Add", self.name, self.d.pick(fits))
        if self.d.chance(2):
            self.name = self.op("Relu", self.name)
        self.quantise()


@st.composite
def quantised_networks(draw: Callable[..., Any], layers: int = 4) -> Graph:
    """A network of up to `layers` contractions over an image of bytes."""
    return import_model(quantised_network(Draws(draw), layers))


def quantised_network(d: Draws, layers: int = 4) -> onnx.ModelProto:
    """The same, as a model, from any draws."""
    m = _Maker(d)
    first = (KINDS[m.kind], (m.batch, *m.shape))
    for _ in range(d.int(1, layers)):
        _convolution(m)
    if d.chance(2):
        _rows(m)
    return model(
        m.nodes, {"image": first}, [m.name], constants=m.constants, opset=21,
        domains={"com.microsoft": 1},
    )  # fmt: skip


def _convolution(m: _Maker) -> None:
    channels, height, width = m.shape
    groups = m.d.pick([g for g in (1, 1, channels, 2, 4) if channels % g == 0])
    out = m.d.pick((channels, *CHANNELS)) if groups == 1 else channels * m.d.int(1, 2)
    size = m.d.pick([k for k in (3, 1) if k <= min(height, width) + 2 * (k // 2)])
    stride, pad = m.d.pick((1, 1, 2)), m.d.int(0, size // 2)
    if min(height, width) + 2 * pad < size:
        pad = size // 2
    w = m.weight(out, channels // groups, size, size, axis=0)
    attrs = {"pads": [pad] * 4, "strides": [stride] * 2, "group": groups}
    m.name = m.op("Conv", m.name, w, **attrs)
    m.shape = [out, *((n + 2 * pad - size) // stride + 1 for n in (height, width))]
    m.behind((out, 1, 1))


def _rows(m: _Maker) -> None:
    """Products of the picture's points by matrices, of bytes or of a few bits."""
    channels, height, width = m.shape
    target = m.constant(np.array([0, channels, height * width], np.int64))
    m.name = m.op("Reshape", m.name, target)
    m.name = m.op("Transpose", m.name, perm=[0, 2, 1])
    m.shape = [height * width, channels]
    for _ in range(m.d.int(1, 2)):
        out = m.d.pick((16, 10, 33))
        if m.d.chance(2):
            m.name = m.op("MatMul", m.name, m.weight(m.shape[1], out, axis=1))
        else:
            _few_bits(m, out)
        m.shape[1] = out
        m.behind((out,))


def _few_bits(m: _Maker, out: int) -> None:
    """MatMulNBits with blocks of 16 weights."""
    rows = m.shape[1]
    bits = m.d.pick((4, 8))
    blocks = -(-rows // 16)
    packed = m.rng.integers(0, 256, (out, blocks, 16 * bits // 8)).astype(np.uint8)
    scales = 2.0 ** -m.rng.integers(1, 5, out * blocks).astype(np.float32)
    attrs = {"K": rows, "N": out, "bits": bits, "block_size": 16, "domain": "com.microsoft"}
    m.name = m.op("MatMulNBits", m.name, m.constant(packed), m.constant(scales), **attrs)
