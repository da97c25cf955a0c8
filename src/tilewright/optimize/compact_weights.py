"""Weights of few bits stay as they are where they are read once for each call.

    w = (cast(codes) - zero) * scale          constants; scales for columns, or for blocks along k
    y = matmul(x, w)
->  y = matmul_compact(x, codes, scale)       codes of 4 bits two to a byte

A product of a few rows takes as long as its weights take to come from memory: codes of 8 bits are a
fourth of floats, those of 4 bits an eighth. Where there are many rows the weights become floats
while compiling, as other constants do, since decoding them takes longer than reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

import numpy as np

from tilewright.base.dtype import DType, f32, i4, i8, u4, u8
from tilewright.ir.dims import tensor_type
from tilewright.ir.expr import product
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.compact import CompactAttrs
from tilewright.ops.movement import TransposeAttrs
from tilewright.optimize.edit import fresh_names, new_node, rebuild, remove_dead

CODES = (i8, u8, i4, u4)
FEW = 8  # rows, up to which reading the weights takes longer than decoding them
LEAST_BLOCK = 8  # codes that share a scale
SMALLEST = 1 << 14  # weights: fewer are read from a near cache


@dataclass(frozen=True)
class Codes:
    """(codes - zero) * scale, as whole numbers and floats of one shape, which may be views."""

    dtype: DType
    codes: np.ndarray
    zero: np.ndarray
    scale: np.ndarray

    def map(self, change: Callable[[np.ndarray], np.ndarray]) -> Codes:
        return Codes(self.dtype, *map(change, (self.codes, self.zero, self.scale)))


def compact_weights(graph: Graph) -> Graph:
    """The graph with products of compact weights."""
    return remove_dead(_Rewriter(graph).run())


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.constants, self.fresh = dict(graph.constants), fresh_names(graph)

    def run(self) -> Graph:
        nodes = [self._product(n) or n for n in self.graph.nodes]
        replaced = {
            old.outputs[0]: new.outputs[0]
            for old, new in zip(self.graph.nodes, nodes, strict=True)
            if old is not new
        }
        return rebuild(self.graph, nodes, replaced=replaced, constants=self.constants)

    def _product(self, n: GraphNode) -> GraphNode | None:
        """A product by weights that are worth keeping as they are."""
        if n.op.name != "matmul" or n.outputs[0].dtype != f32 or n.inputs[1].type.rank != 2:
            return None
        rows = product(n.outputs[0].shape[:-1])
        if isinstance(rows, int) and rows > FEW:
            return None
        found = self._codes(n.inputs[1])
        if found is None or found.codes.size < SMALLEST:
            return None
        block = _block(found)
        if block < LEAST_BLOCK:
            return None
        return self._compact(n, found, block)

    def _codes(self, v: Value) -> Codes | None:
        """What a value is, if it is made of constants alone."""
        n = self.producers.get(v)
        if n is None or not n.inputs or not all(isinstance(d, int) for d in v.shape):
            return None
        if n.op.name == "cast":
            whole = self.graph.constants.get(n.inputs[0])
            if whole is None or n.inputs[0].dtype not in CODES or v.dtype != f32:
                return None
            zero, one = (np.broadcast_to(np.float32(x), whole.shape) for x in (0, 1))
            return Codes(n.inputs[0].dtype, whole, zero, one)
        found = self._codes(n.inputs[0])
        if found is None:
            return None
        if n.op.name == "transpose":
            return found.map(lambda a: a.transpose(n.attrs_of(TransposeAttrs).perm))
        if n.op.name == "reshape":
            shape = tuple(int(d) for d in v.shape if isinstance(d, int))
            return found.map(lambda a: a.reshape(shape))
        other = self._known(n.inputs[1]) if len(n.inputs) == 2 else None
        if other is None or n.inputs[0].shape != v.shape or (found.scale != 1).any():
            return None
        spread = np.broadcast_to(other, found.codes.shape)
        if n.op.name == "mul":
            return Codes(found.dtype, found.codes, found.zero, spread)
        if n.op.name == "sub" and not found.zero.any():
            return Codes(found.dtype, found.codes, spread, found.scale)
        return None

    def _known(self, v: Value) -> np.ndarray | None:
        """A constant, or one that is converted."""
        n = self.producers.get(v)
        if v in self.graph.constants:
            return self.graph.constants[v]
        if n is None or n.op.name not in ("cast", "reshape") or len(n.inputs) != 1:
            return None
        inner = self._known(n.inputs[0])
        if inner is None or not all(isinstance(d, int) for d in v.shape):
            return None
        return inner.astype(v.dtype.numpy).reshape(v.shape)

    def _compact(self, n: GraphNode, found: Codes, block: int) -> GraphNode:
        codes = found.codes.astype(np.int16)
        shift = 8 if -8 <= codes.min() < 0 and codes.max() < 8 else 0
        codes += shift  # those of which a byte has several are not negative
        bits = _bits(codes, block)
        each, kind = 8 // bits, u8 if codes.min() >= 0 else i8
        packed = codes[::each].copy()
        for k in range(1, each):
            packed |= codes[k::each] << k * bits
        zeros = (found.zero[::block] + np.float32(shift)).astype(np.float32)
        single = bool((zeros == zeros.flat[0]).all()) and float(zeros.flat[0]).is_integer()
        name = n.inputs[1].name
        inputs = [n.inputs[0], self._constant(f"{name}_codes", packed, kind)]
        inputs.append(self._constant(f"{name}_scale", found.scale[::block], f32))
        if not single:
            inputs.append(self._constant(f"{name}_zero", zeros, f32))
        attrs = CompactAttrs(bits, block, int(zeros.flat[0]) if single else 0)
        return new_node(n, "matmul_compact", attrs, tuple(inputs), self.fresh)

    def _constant(self, name: str, numbers: np.ndarray, kind: DType) -> Value:
        made = Value(self.fresh(name), tensor_type(kind, numbers.shape))
        self.constants[made] = np.ascontiguousarray(numbers, kind.numpy)
        return made


def _bits(codes: np.ndarray, block: int) -> int:
    """The fewest bits in which codes can be kept, of each block in whole bytes."""
    if codes.min() < 0:
        return 8
    return next(b for b in (2, 4, 8) if codes.max() >> b == 0 and block * b % 8 == 0)


def _block(found: Codes) -> int:
    """How many codes along the first axis share scales and zero points."""
    depth, edges = found.codes.shape[0], [0]
    for a in (found.zero, found.scale):
        if a.strides[0]:
            edges += (1 + np.flatnonzero((a[1:] != a[:-1]).any(1))).tolist()
    return gcd(*edges, depth) if any(edges) else depth
