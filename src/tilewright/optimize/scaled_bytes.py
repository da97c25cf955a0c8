"""Floats that are bytes with a scale and a zero point, as dequantisation makes them.

(cast(q) - zero) * scale        q: u8 or i8
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.dtype import DType, i8, u8
from tilewright.ir.evaluate import evaluate_program, op_program
from tilewright.ir.expr import Buffer
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.movement import TransposeAttrs
from tilewright.optimize.edit import fixed_values

BYTES = (u8, i8)
MOVES = ("reshape", "transpose")
LEAST, MOST = 1e-30, 1e30  # scales with which f32 is as exact as it can be
SMALL = 1 << 18  # elements of what is computed while looking: scales of all channels


@dataclass(frozen=True)
class ScaledBytes:
    """What a value is: (whole - zero) * scale, moved. Zero point and scale are one number each; 0
    and 1 where they are None."""

    whole: Value
    zero: Value | None
    scale: Value | None
    moves: tuple[GraphNode, ...] = ()


@dataclass(frozen=True)
class ScaledNumbers:
    """What a constant is: whole numbers times scales, which broadcast to them."""

    numbers: np.ndarray
    scale: np.ndarray | None


class BytesReader:
    """Which values of a graph are such floats."""

    def __init__(self, graph: Graph) -> None:
        self.constants = graph.constants
        self.producers = graph.producers()
        self._numbers: dict[Value, np.ndarray | None] = {}
        self._fixed = fixed_values(graph)

    def data(self, v: Value) -> ScaledBytes | None:
        """A value as bytes with one zero point and one scale, which may be computed."""
        n = self.producers.get(v)
        if n is None or not n.inputs:
            return None
        if n.op.name in MOVES:
            inner = self.data(n.inputs[0])
            return None if inner is None else replace(inner, moves=(*inner.moves, n))
        if n.op.name != "mul":
            return self._bytes(v)
        for x, scale in (n.inputs, n.inputs[::-1]):
            found = self._bytes(x)
            one = is_number(scale) and (self.known(scale) is not None or scale.type.rank <= 1)
            if found is not None and one and x.shape == v.shape:
                return replace(found, scale=scale)
        return None

    def _bytes(self, v: Value) -> ScaledBytes | None:
        """cast(bytes), or cast(bytes) - zero."""
        zero: Value | None = None
        n = self.producers.get(v)
        if n is not None and n.op.name == "sub" and n.inputs[0].shape == v.shape:
            zero = n.inputs[1]
            n = self.producers.get(n.inputs[0])
        if n is None or n.op.name != "cast" or n.inputs[0].dtype not in BYTES:
            return None
        whole = n.inputs[0]
        fits = zero is None or self._is_zero_point(zero, whole.dtype)
        return ScaledBytes(whole, zero, None) if fits else None

    def _is_zero_point(self, v: Value, kind: DType) -> bool:
        """Whether a value is one number that bytes of a type hold: a constant, or made of such."""
        if not is_number(v):
            return False
        known = self.known(v)
        if known is not None:
            return bool((np.isin(known, range(int(kind.min), int(kind.max) + 1))).all())
        n = self.producers.get(v)
        computed = n is not None and n.op.name == "cast" and n.inputs[0].dtype == kind
        return computed and v.type.rank <= 1

    def weight(self, v: Value) -> ScaledNumbers | None:
        """A constant as whole numbers with scales, whatever zero points they had."""
        n = self.producers.get(v)
        if n is None or not n.inputs:
            return None
        if n.op.name in MOVES:
            return self._moved_weight(n)
        if n.op.name == "mul":
            for x, scale in (n.inputs, n.inputs[::-1]):
                found, factors = self.weight(x), self.known(scale)
                if found is None or found.scale is not None or x.shape != v.shape:
                    continue
                if factors is not None:
                    shape = (1,) * (found.numbers.ndim - factors.ndim) + factors.shape
                    return replace(found, scale=factors.reshape(shape))
            return None
        if n.op.name == "sub":
            found, zero = self.weight(n.inputs[0]), self.known(n.inputs[1])
            if found is None or found.scale is not None or zero is None:
                return None
            if n.inputs[0].shape != v.shape or (zero != np.floor(zero)).any():
                return None
            return ScaledNumbers(found.numbers - zero.astype(np.int64), None)
        if n.op.name != "cast" or n.inputs[0].dtype not in BYTES:
            return None
        whole = self.constants.get(n.inputs[0])
        return None if whole is None else ScaledNumbers(whole.astype(np.int64), None)

    def _moved_weight(self, n: GraphNode) -> ScaledNumbers | None:
        found = self.weight(n.inputs[0])
        if found is None:
            return None
        single = found.scale is None or found.scale.size == 1
        if n.op.name == "transpose":
            perm = n.attrs_of(TransposeAttrs).perm
            scale = found.scale if found.scale is None else found.scale.transpose(perm)
            return ScaledNumbers(found.numbers.transpose(perm), scale)
        shape = n.outputs[0].shape
        if not single or not all(isinstance(d, int) for d in shape):
            return None
        scale = found.scale if found.scale is None else found.scale.reshape(())
        return ScaledNumbers(found.numbers.reshape(shape), scale)

    def known(self, v: Value) -> np.ndarray | None:
        """What a small value is that depends on constants alone."""
        if v in self.constants:
            return self.constants[v]
        if v not in self._numbers:
            self._numbers[v] = self._computed(v)
        return self._numbers[v]

    def _computed(self, v: Value) -> np.ndarray | None:
        n = self.producers.get(v)
        if n is None or v not in self._fixed or len(n.outputs) != 1:
            return None
        types = [x.type for x in (v, *n.inputs)]
        if any(not isinstance(d, int) for t in types for d in t.shape):
            return None
        arrays = {x: self.known(x) for x in n.inputs}
        if any(a is None or a.size > SMALL for a in arrays.values()):
            return None
        names = {x: Buffer(f"x{i}", x.dtype, x.shape) for i, x in enumerate(arrays)}
        program = op_program(n.op, n.attrs, [names[x] for x in n.inputs])
        (result,) = evaluate_program(program, [a for a in arrays.values() if a is not None])
        return result.reshape(v.shape)

    def number(self, v: Value | None) -> int | None:
        """The zero point, if it is a constant."""
        found = np.zeros((), np.int64) if v is None else self.known(v)
        return None if found is None else int(found.reshape(()))


def is_number(v: Value) -> bool:
    """Whether a value has one element."""
    return all(d == 1 for d in v.shape)
