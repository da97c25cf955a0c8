"""Arithmetic that ends in smaller elements, in front of what only moves them.

    r = cast(clip(round(concat(x, y) / 0.1)), i8)      a = cast(clip(round(x / 0.1)), i8)
                                                  ->   b = cast(clip(round(y / 0.1)), i8)
                                                       r = concat(a, b)

Each element is computed as before, so that results are the same to the bit, and fewer bytes are
moved. What the arithmetic follows then may do it, or may have done it: of bytes that were
dequantised with the same numbers nothing is left. The greatest of a window of dequantised bytes, of
which none is NaN, stays the greatest where no step makes less of more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs
from tilewright.ops.pool import PoolAttrs, windows_have_elements
from tilewright.optimize.edit import fresh_names, new_node, rebuild, remove_dead
from tilewright.optimize.fixed_point import computed
from tilewright.optimize.grids import limits_of
from tilewright.optimize.scaled_bytes import BYTES, BytesReader

MOVES = frozenset({"concat", "transpose", "reshape"})  # as many elements as their operands have
RISING = frozenset({"add", "clip", "relu", "floor", "ceil", "round", "min", "max"})
DEPTH = 64  # moves behind each other


def narrow_moves(graph: Graph) -> Graph:
    """The graph with such arithmetic, where it reads one array and constants of one element, in
    front of moves whose result it alone reads."""
    mover = _Mover(graph)
    return remove_dead(mover.run()) if mover.ends else graph


@dataclass
class _Mover:
    graph: Graph
    nodes: list[GraphNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.makers, self.consumers = self.graph.producers(), self.graph.consumers()
        self.outputs = set(self.graph.outputs)
        self.fresh = fresh_names(self.graph)
        self.reader = BytesReader(self.graph)
        self.made: dict[tuple[Value, GraphNode], Value] = {}  # of a value by arithmetic, by its end
        self.known: dict[object, bool] = {}  # whether arithmetic makes bytes of themselves
        chains = {n.outputs[0]: c for n in self.graph.nodes if (c := self._chain(n))}
        self.ends = {v: c for v, c in chains.items() if self._is_moved(self._data(c[0]), c)}

    def run(self) -> Graph:
        replaced: dict[Value, Value] = {}
        for n in self.graph.nodes:
            chain = self.ends.get(n.outputs[0]) if n.outputs else None
            if chain is None:
                self.nodes.append(n)
            else:
                replaced[n.outputs[0]] = self._narrow(self._data(chain[0]), chain)
        return rebuild(self.graph, self.nodes, replaced=replaced)

    def _chain(self, n: GraphNode) -> list[GraphNode]:
        """The arithmetic that ends in a conversion to smaller elements, the first step first."""
        if n.op.name != "cast" or n.outputs[0].dtype.bits >= n.inputs[0].dtype.bits:
            return []
        chain = [n]
        while True:
            before = self.makers.get(self._data(chain[0]))
            if before is None or not self._is_step(before) or not self._is_alone(before):
                break
            chain.insert(0, before)
        return chain if chain[0].inputs[0].dtype.bits > n.outputs[0].dtype.bits else []

    def _is_step(self, n: GraphNode) -> bool:
        """Whether a node computes each element from one, and from constants of one element."""
        if not n.op.elementwise or len(n.outputs) != 1:
            return False
        data = [v for v in n.inputs if not self._is_number(v)]
        return len(data) == 1 and data[0].shape == n.outputs[0].shape

    def _is_number(self, v: Value) -> bool:
        return v.shape in ((), (1,)) and self.reader.known(v) is not None

    def _is_alone(self, n: GraphNode) -> bool:
        """Whether one node reads what another makes."""
        (result,) = n.outputs
        return len(self.consumers.get(result, ())) == 1 and result not in self.outputs

    def _is_moved(self, v: Value, chain: Sequence[GraphNode]) -> bool:
        """Whether a value is one that arithmetic can move in front of."""
        n = self.makers.get(v)
        if n is None or len(n.outputs) != 1 or not self._is_alone(n):
            return False
        if n.op.name == "max_pool":
            rises = all(self._rises(step) for step in chain) and self._is_bytes(n.inputs[0])
            return rises and windows_have_elements(n.attrs_of(PoolAttrs))
        return n.op.name in MOVES and all(x.type.rank > 0 for x in n.inputs)

    def _is_bytes(self, v: Value) -> bool:
        """Whether all elements are made of bytes, through moves or not."""
        todo, seen = [v], {v}
        while todo:
            x = todo.pop()
            if x.dtype in BYTES:
                continue
            n = self.makers.get(x)
            if n is None or not (self._is_step(n) or n.op.name in (*MOVES, "max_pool")):
                return False
            before = n.inputs if n.op.name == "concat" else (self._data(n),)
            todo += [i for i in before if i not in seen]
            seen.update(before)
        return True

    def _rises(self, step: GraphNode) -> bool:
        """Whether a step never makes less of more. A conversion does not where it cuts off bits."""
        if step.op.name == "cast":
            limits = self.makers.get(step.inputs[0])
            to = step.outputs[0].dtype
            known = None if limits is None or limits.op.name != "clip" else limits_of(limits)
            low, high = known or (None, None)
            fits = low is not None and high is not None and to.min <= low <= high <= to.max
            return to in BYTES and fits
        if not step.outputs[0].dtype.is_float:
            return False
        if step.op.name not in ("mul", "div", "sub"):
            return step.op.name in RISING
        a, b = step.inputs
        if step.op.name != "mul" and a is not self._data(step):
            return False
        other = self.reader.known(b if a is self._data(step) else a)
        return step.op.name == "sub" or (other is not None and other.item() > 0)

    def _data(self, n: GraphNode) -> Value:
        """What a step of arithmetic reads beside constants."""
        return next((v for v in n.inputs if not self._is_number(v)), n.inputs[0])

    def _narrow(self, v: Value, chain: Sequence[GraphNode], depth: int = 0) -> Value:
        """What the arithmetic makes of a value, in front of all that moves it."""
        key = (v, chain[-1])
        if key not in self.made:
            self.made[key] = self._narrowed(v, chain, depth)
        return self.made[key]

    def _narrowed(self, v: Value, chain: Sequence[GraphNode], depth: int) -> Value:
        same = self._same_bytes(v, chain)
        if same is not None:
            return same
        if depth == DEPTH or not self._is_moved(v, chain):
            for step in chain:
                inputs = [v if i is self._data(step) else i for i in step.inputs]
                v = self._emit(step, step.op.name, step.attrs, inputs)
            return v
        move = self.makers[v]
        count = len(move.inputs) if move.op.name == "concat" else 1
        parts = [self._narrow(x, chain, depth + 1) for x in move.inputs[:count]]
        return self._emit(move, move.op.name, move.attrs, [*parts, *move.inputs[count:]])

    def _same_bytes(self, v: Value, chain: Sequence[GraphNode]) -> Value | None:
        """The bytes that a value is made of, if arithmetic makes them of it again: all there can be
        are tried."""
        wanted, steps = chain[-1].outputs[0].dtype, list(chain)
        if wanted not in BYTES:
            return None
        while v.dtype != wanted:
            n = self.makers.get(v)
            if n is None or not self._is_step(n):
                return None
            steps.insert(0, n)
            v = self._data(n)
        key = (wanted, *((s.op, s.attrs, *map(self._number, s.inputs)) for s in steps))
        if key not in self.known:
            numbers = np.arange(wanted.min, wanted.max + 1).astype(wanted.numpy)
            self.known[key] = np.array_equal(computed(steps, self.reader.known, numbers), numbers)
        return v if self.known[key] else None

    def _number(self, v: Value) -> object:
        array = self.reader.known(v) if self._is_number(v) else None
        return None if array is None else (v.dtype, array.tobytes())

    def _emit(self, like: GraphNode, name: str, attrs: Attrs, inputs: Sequence[Value]) -> Value:
        made = new_node(like, name, attrs, tuple(inputs), self.fresh)
        self.nodes.append(made)
        return made.outputs[0]
