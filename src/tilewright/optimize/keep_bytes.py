"""Operators that only choose or move elements, done on bytes instead of the floats they stand for.

    y = max_pool((cast(q) - 3) * 0.1)                        ->  y = (cast(max_pool(q)) - 3) * 0.1
    r = cast(clip(round((cast(q) - 3) * 0.1 / 0.1) + 3))     ->  r = q

Dequantisation is monotone, and the same for all elements: the greatest float is that of the
greatest byte. What is dequantised and quantised again with the same numbers is what it was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.base.dtype import f32
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs
from tilewright.ops.common import NoAttrs
from tilewright.ops.elementwise import CastAttrs
from tilewright.ops.pool import PoolAttrs, windows_have_elements
from tilewright.ops.table import op as op_named
from tilewright.optimize.edit import fresh_names, new_node, rebuild, remove_dead, with_inputs
from tilewright.optimize.grids import limits_of
from tilewright.optimize.scaled_bytes import BYTES, LEAST, MOST, BytesReader, ScaledBytes

CHOOSING = ("max_pool",)
MOVING = ("reshape", "transpose", "slice")


def keep_bytes(graph: Graph) -> Graph:
    """The graph with such operators on bytes, and without quantisation of what was dequantised."""
    return remove_dead(_Keeper(graph).run())


class _Keeper:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.reader = BytesReader(graph)
        self.fresh = fresh_names(graph)
        self.nodes: list[GraphNode] = []
        self.replaced: dict[Value, Value] = {}

    def run(self) -> Graph:
        for original in self.graph.nodes:
            n = with_inputs(original, [self.replaced.get(v, v) for v in original.inputs])
            bytes_ = self._dequantised(n.inputs[0]) if n.inputs else None
            kept = self._quantised_again(n)
            if kept is not None:
                self.replaced[n.outputs[0]] = kept
            elif bytes_ is not None and self._is_for_bytes(n, bytes_):
                self._on_bytes(n, bytes_)
            else:
                self._add(n)
        return rebuild(self.graph, self.nodes, replaced=self.replaced)

    def _add(self, n: GraphNode) -> None:
        self.nodes.append(n)
        self.reader.producers |= dict.fromkeys(n.outputs, n)

    def _dequantised(self, v: Value) -> ScaledBytes | None:
        """The bytes that a float is made of, with a known scale."""
        found = self.reader.data(v) if v.dtype == f32 else None
        if found is None or found.moves or found.scale is None:
            return None
        return found if self.reader.known(found.scale) is not None else None

    def _scale(self, bytes_: ScaledBytes) -> float:
        assert bytes_.scale is not None
        known = self.reader.known(bytes_.scale)
        assert known is not None
        return float(known.reshape(()))

    # ---------------------------------------------------------- operators on bytes

    def _is_for_bytes(self, n: GraphNode, bytes_: ScaledBytes) -> bool:
        if n.op.name not in (*CHOOSING, *MOVING) or len(n.outputs) != 1:
            return False
        parts = [v for v in (bytes_.zero, bytes_.scale) if v is not None]
        if any(v.type.rank > n.outputs[0].type.rank for v in parts):
            return False
        if n.op.name in MOVING:
            return True
        # Padding is the least byte, which would not be the least float.
        return self._scale(bytes_) > 0 and windows_have_elements(n.attrs_of(PoolAttrs))

    def _on_bytes(self, n: GraphNode, bytes_: ScaledBytes) -> None:
        """The operator in front of the conversion to floats."""
        assert bytes_.scale is not None
        whole = self._emit(n, n.op.name, n.attrs, bytes_.whole, *n.inputs[1:])
        value = self._emit(n, "cast", CastAttrs(f32), whole)
        if bytes_.zero is not None:
            value = self._emit(n, "sub", NoAttrs(), value, bytes_.zero)
        scaled = replace(n, op=op_named("mul"), attrs=NoAttrs(), inputs=(value, bytes_.scale))
        self._add(scaled)

    def _emit(self, like: GraphNode, name: str, attrs: Attrs, *inputs: Value) -> Value:
        made = new_node(like, name, attrs, inputs, self.fresh)
        self._add(made)
        return made.outputs[0]

    # ---------------------------------------------------------- quantised again

    def _quantised_again(self, n: GraphNode) -> Value | None:
        """q, of a node that makes it again of its float: cast(clip(round(x / scale) + zero))."""
        to = n.outputs[0].dtype if n.outputs else None
        if n.op.name != "cast" or to not in BYTES:
            return None
        clip = self._made_by(n.inputs[0], "clip")
        if clip is None or limits_of(clip) != (float(to.min), float(to.max)):
            return None
        zero: Value | None = None
        total = self._made_by(clip.inputs[0], "add")
        rounded = self._made_by(clip.inputs[0], "round")
        if total is not None:
            zero, rounded = total.inputs[1], self._made_by(total.inputs[0], "round")
        quotient = None if rounded is None else self._made_by(rounded.inputs[0], "div")
        found = None if quotient is None else self._dequantised(quotient.inputs[0])
        if quotient is None or found is None or found.whole.type != n.outputs[0].type:
            return None
        divisor, scale = self.reader.known(quotient.inputs[1]), self._scale(found)
        if divisor is None or not LEAST < scale < MOST or not (divisor == scale).all():
            return None
        numbers = [np.zeros(()) if v is None else self.reader.known(v) for v in (zero, found.zero)]
        first, second = numbers
        if first is None or second is None or not (first == second.reshape(())).all():
            return None
        return found.whole

    def _made_by(self, v: Value, op: str) -> GraphNode | None:
        n = self.reader.producers.get(v)
        return n if n is not None and n.op.name == op else None
