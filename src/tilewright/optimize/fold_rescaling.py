"""What follows sums of integers, up to their quantisation, as one multiplication and one addition.

    x = cast(sums) * s + b; y = round(clip(x, 0, 6) / d)
->  x = cast(sums) * (s / d) + b / d; y = round(clip(x, 0, 6 / d))        s, b for each channel

This reassociates constants, as fold_scales does behind contractions of floats: results differ by
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.dtype import f32, i32
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Attrs
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import NoAttrs
from tilewright.ops.elementwise import ClipAttrs
from tilewright.ops.table import op as op_named
from tilewright.optimize.edit import fresh_names, rebuild
from tilewright.optimize.fold_scales import ANCHORS, Anchor, Array, follow
from tilewright.optimize.grids import limits_of


@dataclass(frozen=True)
class Rescaling:
    """min(max(x * scale + shift, low), high), and the nodes that it takes the place of."""

    nodes: tuple[GraphNode, ...]
    scale: Array
    shift: Array
    low: float | None = None
    high: float | None = None

    @property
    def steps(self) -> int:
        """The nodes that it becomes."""
        limited = self.low is not None or self.high is not None
        return int((self.scale != 1).any()) + int(self.shift.any()) + limited


def fold_rescaling(graph: Graph) -> Graph:
    """Chains of per-channel arithmetic behind contractions of integers, as few nodes as do it."""
    folder = _Folder(graph)
    new: dict[GraphNode, tuple[GraphNode, ...]] = {}
    for n in graph.nodes:
        anchor = folder.anchor(n)
        found = None if anchor is None else folder.rescaling(n, anchor)
        if anchor is None or found is None or found.steps >= len(found.nodes):
            continue
        new |= dict.fromkeys(found.nodes, ())
        if found.steps:
            new[found.nodes[-1]] = folder.build(n, anchor, found)
        else:  # they cancel out: the conversion gives the result
            new[n] = (replace(n, outputs=found.nodes[-1].outputs),)
    nodes = [m for n in graph.nodes for m in new.get(n, (n,))]
    return rebuild(graph, nodes, constants=folder.constants)


class _Folder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers, self.consumers = graph.producers(), graph.consumers()
        self.outputs = set(graph.outputs)
        self.constants = dict(graph.constants)
        self.fresh: Callable[[str], str] = fresh_names(graph)

    def anchor(self, n: GraphNode) -> Anchor | None:
        """The contraction whose sums, with constants added, a node converts to f32."""
        if n.op.name != "cast" or n.outputs[0].dtype != f32 or n.inputs[0].dtype != i32:
            return None
        source = self.producers.get(n.inputs[0])
        while source is not None and source.op.name in ("add", "sub"):
            computed = [v for v in source.inputs if v not in self.constants]
            source = self.producers.get(computed[0]) if len(computed) == 1 else None
        return None if source is None else ANCHORS.get(source.op.name)

    def rescaling(self, n: GraphNode, anchor: Anchor) -> Rescaling | None:
        """What the nodes behind a conversion come to, with at most one limitation among them."""
        chain, scale, shift = follow(n, anchor, self.graph, self.consumers, self.outputs)
        last = chain[-1] if chain else n
        found = Rescaling(tuple(chain), scale, shift)
        limit = self._only_user(last.outputs[0])
        if limit is None or limit.op.name not in ("relu", "clip"):
            return found
        low, high = limits_of(limit)
        limited = replace(found, nodes=(*chain, limit), low=low, high=high)
        behind, more, added = follow(limit, anchor, self.graph, self.consumers, self.outputs)
        if not behind or added.any() or not (more == more[0]).all() or more[0] <= 0:
            return found
        factor = float(more[0])
        return Rescaling(
            (*limited.nodes, *behind),
            scale * factor,
            shift * factor,
            None if low is None else low * factor,
            None if high is None else high * factor,
        )

    def _only_user(self, v: Value) -> GraphNode | None:
        users = self.consumers.get(v, ())
        return users[0] if len(users) == 1 and v not in self.outputs else None

    def build(self, n: GraphNode, anchor: Anchor, found: Rescaling) -> tuple[GraphNode, ...]:
        """The nodes that do it, of which the last has the result of those before."""
        result = found.nodes[-1].outputs[0]
        steps: list[tuple[str, Array | None]] = []
        if (found.scale != 1).any():
            steps.append(("mul", found.scale))
        if found.shift.any():
            steps.append(("add", found.shift))
        if found.low is not None or found.high is not None:
            steps.append(("clip", None))
        nodes: list[GraphNode] = []
        value = n.outputs[0]
        for k, (name, numbers) in enumerate(steps):
            out = result
            if k < len(steps) - 1:
                out = Value(self.fresh(result.name), result.type)
            inputs: tuple[Value, ...] = (value,)
            attrs: Attrs = ClipAttrs(found.low, found.high)
            if numbers is not None:
                inputs, attrs = (value, self._constant(result, anchor, numbers)), NoAttrs()
            like = found.nodes[-1]
            nodes.append(
                replace(like, op=op_named(name), attrs=attrs, inputs=inputs, outputs=(out,))
            )
            value = out
        return tuple(nodes)

    def _constant(self, like: Value, anchor: Anchor, numbers: Array) -> Value:
        behind = like.type.rank - 1 - anchor.output_axis % like.type.rank
        array = numbers.astype(np.float32).reshape([-1] + [1] * behind)
        made = Value(self.fresh(f"{like.name}_scale"), TensorType(f32, array.shape))
        self.constants[made] = array
        return made
