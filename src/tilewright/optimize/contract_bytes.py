"""Contractions of bytes that are read as floats, as a processor's products of bytes.

    x = (cast(q) - 3) * 0.1; w = cast(p) * s           q: u8, p: i8, s: a scale for each channel
    y = conv(x, w)
->  sums = conv(q, p, wide, fill=3) - 3 * (p summed for each channel)                       i32
    y = cast(sums) * (0.1 * s)

That is the same real number, rounded once where the products are rounded one by one. Integers
(QLinearConv, MatMulInteger) are treated likewise, and are equal to the bit. The weights have to be
constants, for a zero point of theirs is subtracted while compiling; the data may have any, and one
that is computed (DynamicQuantizeLinear). Which types can be multiplied follows from the target's
instructions: what is i8 where they take u8 is kept as u8, larger by 128 as its zero point is, and
the other way round; where they take no bytes at all, both and the weights are kept as i16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.dtype import DType, f32, i8, i16, i32, u8
from tilewright.ir.dims import tensor_type
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs
from tilewright.ops.common import NoAttrs
from tilewright.ops.contract import ConvAttrs, MatmulAttrs
from tilewright.ops.elementwise import CastAttrs
from tilewright.ops.extend import PadAttrs
from tilewright.optimize.edit import fresh_names, new_node, rebuild, remove_dead, with_inputs
from tilewright.optimize.scaled_bytes import LEAST, MOST, BytesReader, ScaledBytes
from tilewright.plan.dot_products import takes_rows
from tilewright.plan.units import Unit, units
from tilewright.target.target import Target

WEIGHTS = {u8: i8, i8: i8, i16: i16}  # their type by that of the data
CHANNEL = {"conv": 0, "matmul": -1}  # of the weights' axes, the one with the result's channels
CHANNELS = {"conv": 1, "matmul": -1}  # of the data's axes, the one with what is summed
SUMMED = {"conv": 1, "matmul": -2}  # of the weights' axes, likewise
# What bytes can be kept as instead, and how much larger they are then; what comes first is best.
INSTEAD = {u8: ((i8, -128), (i16, 0)), i8: ((u8, 128), (i16, 0))}
LARGEST = (1 << 31) - 1
MERGED = 2  # times what a lane adds up: groups that are taken as one, with as much work in vain


@dataclass(frozen=True)
class ByteContraction:
    """What a contraction multiplies; `scale` is that of the weights, for each channel or all."""

    data: ScaledBytes
    weight: np.ndarray
    scale: np.ndarray | None


def contract_bytes(graph: Graph, target: Target) -> Graph:
    """The graph with contractions of bytes where `target` has instructions for them."""
    products: dict[DType, Unit] = {}
    windows: dict[DType, Unit] = {}
    for u in units(target):
        kinds = (u.left.buffer.dtype, u.right.buffer.dtype)
        if kinds not in WEIGHTS.items():
            continue
        (windows if takes_rows(u) else products)[kinds[0]] = u
    return remove_dead(_Rewriter(graph, products, windows).run()) if products else graph


class _Rewriter:
    def __init__(
        self, graph: Graph, products: Mapping[DType, Unit], windows: Mapping[DType, Unit]
    ) -> None:
        self.graph = graph
        self.products = products  # what multiplies and adds, by the data's type
        self.windows = windows  # the same, for channels of their own
        self.reader = BytesReader(graph)
        self.constants, self.fresh = dict(graph.constants), fresh_names(graph)
        self.nodes: list[GraphNode] = []
        self.now: dict[Value, Value] = {}  # what is to be read instead of a value
        self.kept: dict[Value, tuple[Value, int]] = {}  # as another type, and how much larger

    def run(self) -> Graph:
        found = {n: c for n in self.graph.nodes if (c := self._contraction(n)) is not None}
        if not found:
            return self.graph
        others = {c.data.whole for c in found.values() if c.data.whole.dtype not in self.products}
        for v in self.graph.inputs:
            if v in others:
                self._keep(v, self.graph.nodes[0])
        for n in self.graph.nodes:
            if n in found:
                self.now[n.outputs[0]] = self._contract(n, found[n])
                continue
            self.nodes.append(with_inputs(n, [self._now(v) for v in n.inputs]))
            for v in n.outputs:
                if v in others:
                    self._keep(v, n)
        results = {n.outputs[0]: self.now[n.outputs[0]] for n in found}
        return rebuild(self.graph, self.nodes, replaced=results, constants=self.constants)

    # ---------------------------------------------------------- what is there

    def _contraction(self, n: GraphNode) -> ByteContraction | None:
        """What a node multiplies, if that can be done with bytes."""
        if n.op.name not in CHANNEL or n.outputs[0].dtype not in (f32, i32):
            return None
        data, weight = self.reader.data(n.inputs[0]), self.reader.weight(n.inputs[1])
        if data is not None and data.whole in self.graph.constants:
            return None
        if (
            data is None
            or weight is None
            or n.outputs[0].dtype.is_float != (data.scale is not None)
        ):
            return None
        numbers, axis = weight.numbers, CHANNEL[n.op.name] % weight.numbers.ndim
        if n.op.name == "conv" and self.reader.number(data.zero) is None and _pads(n):
            return None
        if numbers.size == 0 or numbers.min() < i8.min or numbers.max() > i8.max:
            return None
        others = tuple(a for a in range(numbers.ndim) if a != axis)
        if np.abs(numbers).sum(others).max() * u8.max > LARGEST:
            return None
        scale = weight.scale
        if scale is not None and data.scale is None:
            return None
        if scale is not None and scale.size > 1:
            if scale.shape[axis] != scale.size:
                return None
            scale = scale.reshape(-1)
        if not self._are_moderate(data, scale):
            return None
        return ByteContraction(data, numbers.astype(np.int8), scale)

    def _are_moderate(self, data: ScaledBytes, scale: np.ndarray | None) -> bool:
        """Whether the scales, as far as they are known, have a product that f32 holds as exactly as
        the factors."""
        step = None if data.scale is None else self.reader.known(data.scale)
        factors = [np.float64(1) if a is None else a.astype(np.float64) for a in (step, scale)]
        sizes = [np.abs(a) for a in (*factors, factors[0] * factors[1])]
        return all(((a == 0) | ((a > LEAST) & (a < MOST))).all() for a in sizes)

    # ---------------------------------------------------------- what takes its place

    def _contract(self, n: GraphNode, c: ByteContraction) -> Value:
        """sums of bytes, less what the zero point adds to them, scaled."""
        data = c.data
        whole, shift = self.kept.get(data.whole, (self._now(data.whole), 0))
        for move in data.moves:
            whole = self._emit(n, move.op.name, move.attrs, whole)
        zero = self.reader.number(data.zero)
        fill = 0 if zero is None else zero + shift
        attrs, numbers = _wide(n, fill), c.weight
        product, window = self.products[whole.dtype], self.windows.get(whole.dtype)
        if window is not None and _fits_depthwise(n, window):
            more = -numbers.shape[-1] % window.depth
            attrs, numbers = _widened(attrs, more), _lengthened(numbers, -1, more)
        elif isinstance(attrs, ConvAttrs):
            attrs, numbers = _with_wider_groups(attrs, numbers, product)
        more = -numbers.shape[SUMMED[n.op.name]] % product.depth
        if more and not (isinstance(attrs, ConvAttrs) and attrs.groups > 1):
            whole = self._lengthened(n, whole, CHANNELS[n.op.name], more)
            numbers = _lengthened(numbers, SUMMED[n.op.name], more)
        weight = self._constant(n.inputs[1].name, numbers, WEIGHTS[whole.dtype])
        sums = self._emit(n, n.op.name, attrs, whole, weight)
        sums = self._without_zero(n, sums, c, zero, shift)
        if data.scale is None:
            return sums
        return self._scaled(n, sums, c)

    def _lengthened(self, n: GraphNode, x: Value, axis: int, more: int) -> Value:
        """With so many elements behind an axis, which weights of 0 multiply."""
        before = [0] * x.type.rank
        after = list(before)
        after[axis] = more
        return self._emit(n, "pad", PadAttrs(tuple(before), tuple(after)), x)

    def _without_zero(
        self, n: GraphNode, sums: Value, c: ByteContraction, zero: int | None, shift: int
    ) -> Value:
        """The sums less the zero point times those of the weights."""
        axis = CHANNEL[n.op.name] % c.weight.ndim
        if n.op.name == "matmul":
            added = c.weight.sum(-2, keepdims=c.weight.ndim > 2, dtype=np.int64)
        else:
            others = tuple(a for a in range(c.weight.ndim) if a != axis)
            added = c.weight.sum(others, dtype=np.int64)
        known = added * (shift + (zero or 0))
        if known.any():
            sums = self._emit(n, "sub", NoAttrs(), sums, self._spread(n, "sums", known, i32))
        if zero is None and c.data.zero is not None:
            computed = self._cast(n, self._now(c.data.zero), i32)
            factor = self._spread(n, "sums", added, i32)
            product = self._emit(n, "mul", NoAttrs(), computed, factor)
            sums = self._emit(n, "sub", NoAttrs(), sums, product)
        return sums

    def _scaled(self, n: GraphNode, sums: Value, c: ByteContraction) -> Value:
        assert c.data.scale is not None
        step = self.reader.known(c.data.scale)
        own = np.ones((), np.float32) if c.scale is None else c.scale
        if step is not None:
            scale = self._spread(n, "scale", np.float32(step.reshape(())) * own, f32)
        else:
            factor = self._spread(n, "scale", own, f32)
            scale = self._emit(n, "mul", NoAttrs(), self._now(c.data.scale), factor)
        return self._emit(n, "mul", NoAttrs(), self._cast(n, sums, f32), scale)

    def _spread(self, n: GraphNode, name: str, numbers: np.ndarray, kind: DType) -> Value:
        """A constant with a number for each channel, which broadcasts to the result."""
        if n.op.name == "conv" and numbers.ndim == 1:
            numbers = numbers.reshape(-1, *[1] * (n.outputs[0].type.rank - 2))
        return self._constant(name, numbers, kind)

    def _keep(self, v: Value, like: GraphNode) -> None:
        """Keeps bytes as a type that can be multiplied, of which all that read them make them
        again."""
        kind, shift = next((k, n) for k, n in INSTEAD[v.dtype] if k in self.products)
        kept = self._cast(like, self._shifted(like, "add", v, shift), kind)
        self.kept[v] = kept, shift
        self.now[v] = self._cast(like, self._shifted(like, "sub", kept, shift), v.dtype)

    def _shifted(self, like: GraphNode, name: str, v: Value, shift: int) -> Value:
        if not shift:
            return v
        number = self._constant("shift", np.asarray(shift), i32)
        return self._emit(like, name, NoAttrs(), self._cast(like, v, i32), number)

    # ---------------------------------------------------------- nodes and constants

    def _now(self, v: Value) -> Value:
        return self.now.get(v, v)

    def _cast(self, like: GraphNode, v: Value, to: DType) -> Value:
        return v if v.dtype == to else self._emit(like, "cast", CastAttrs(to), v)

    def _emit(self, like: GraphNode, name: str, attrs: Attrs, *inputs: Value) -> Value:
        made = new_node(like, name, attrs, inputs, self.fresh)
        self.nodes.append(made)
        return made.outputs[0]

    def _constant(self, name: str, numbers: np.ndarray, kind: DType) -> Value:
        made = Value(self.fresh(name), tensor_type(kind, numbers.shape))
        self.constants[made] = np.ascontiguousarray(numbers.astype(kind.numpy)).reshape(
            numbers.shape
        )
        return made


def _with_wider_groups(
    attrs: ConvAttrs, numbers: np.ndarray, unit: Unit
) -> tuple[ConvAttrs, np.ndarray]:
    """Some groups taken as one, with weights of 0 between them, where that fills the lanes and
    steps of an instruction; if they are not too many, for most products are in vain."""
    filters, channels = numbers.shape[0] // attrs.groups, numbers.shape[1]
    for n in range(1, min(attrs.groups, MERGED * unit.depth) + 1):
        if attrs.groups % n == 0 and filters * n % unit.lanes == 0 == channels * n % unit.depth:
            break
    else:
        return attrs, numbers
    wide = np.zeros((numbers.shape[0], n * channels, *numbers.shape[2:]), numbers.dtype)
    for o, filter_ in enumerate(numbers):
        first = o // filters % n * channels
        wide[o, first : first + channels] = filter_
    return replace(attrs, groups=attrs.groups // n), wide


def _fits_depthwise(n: GraphNode, unit: Unit) -> bool:
    """Whether every channel has windows of its own, of neighbours, and all lanes have a channel."""
    if n.op.name != "conv":
        return False
    attrs = n.attrs_of(ConvAttrs)
    filters, channels, *_, width = map(int, n.inputs[1].type.shape)  # of a constant
    is_depthwise = channels == 1 and filters == attrs.groups
    return is_depthwise and filters % unit.lanes == 0 and width > 1 and attrs.dilations[-1] == 1


def _widened(attrs: Attrs, more: int) -> Attrs:
    """Windows that reach so many places further, and as many results as before."""
    assert isinstance(attrs, ConvAttrs)
    *others, last = attrs.pads_end
    return replace(attrs, pads_end=(*others, last + more))


def _lengthened(numbers: np.ndarray, axis: int, more: int) -> np.ndarray:
    after = [(0, 0)] * numbers.ndim
    after[axis] = (0, more)
    return np.pad(numbers, after)


def _pads(n: GraphNode) -> bool:
    attrs = n.attrs_of(ConvAttrs)
    return any((*attrs.pads_begin, *attrs.pads_end))


def _wide(n: GraphNode, fill: int) -> Attrs:
    if n.op.name == "conv":
        return replace(n.attrs_of(ConvAttrs), wide=True, fill=fill)
    return replace(n.attrs_of(MatmulAttrs), wide=True)
