"""Neighbouring calls of one device as one: what passes between them stays there.

    a = k1(x, w1) @npu;  b = k2(a, w2) @npu;  y = k3(a, b) @npu    ->    y = k(x, w1, w2) @npu

A subgraph has one result, and views of what passes in it are a part of it. It grows as far as it
can. Where a device does not take it as one, it ends before the call that is in the way; where that
is not known, the two halves of it are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ops.common import normalize_axis
from tilewright.ops.function import CALL, CallAttrs
from tilewright.ops.movement import AxisAttrs
from tilewright.optimize.edit import is_view, rebuild

JOINED = frozenset({"concat"})  # operators that devices need not compute: results lie side by side

# How many calls, from the first on, a device may take as one; None where that is not known.
Take = Callable[[Sequence[GraphNode], GraphNode], "int | None"]


def merge_subgraphs(graph: Graph, devices: Collection[str], take: Take) -> Graph:
    """The graph with subgraphs of these devices as calls."""
    nodes: list[GraphNode] = []
    for run in _runs(_others_first(graph, devices), devices):
        nodes += _Subgraphs(graph, take).of(run)
    return rebuild(graph, nodes)


def members(n: GraphNode) -> tuple[GraphNode, ...]:
    """The calls of which a call is made; itself, if it is no subgraph."""
    return tuple(m for m in n.attrs_of(CallAttrs).body.nodes if m.op is CALL) or (n,)


def joined_axis(n: GraphNode) -> int | None:
    """The axis along which a call lays different arrays side by side, if that is all it does."""
    if n.op is not CALL or len(set(n.inputs)) < len(n.inputs):
        return None
    body = n.attrs_of(CallAttrs).body
    if len(body.nodes) != 1 or body.nodes[0].op.name not in JOINED:
        return None
    (concat,) = body.nodes
    if concat.inputs != body.inputs or any(v.type.layout is not None for v in n.inputs):
        return None
    return normalize_axis("concat", concat.attrs_of(AxisAttrs).axis, n.outputs[0].type.rank)


def _others_first(graph: Graph, devices: Collection[str]) -> Iterator[GraphNode]:
    """The nodes in order, but those of no device as soon as what they read is made, so that they do
    not stand between calls of a device that do not need them."""
    waiting: list[GraphNode] = []  # calls of devices, and views
    made: set[Value] = {*graph.inputs, *graph.constants}

    def needed(n: GraphNode) -> Iterator[GraphNode]:
        """What waits and a node depends on, and the node."""
        wanted = {v for v in n.inputs if v not in made}
        last = [k for k, w in enumerate(waiting) if wanted.intersection(w.outputs)]
        count = last[-1] + 1 if last else 0
        ready, waiting[:] = waiting[:count], waiting[count:]
        for each in (*ready, n):
            made.update(each.outputs)
            yield each

    for n in graph.nodes:
        if is_view(n) or (n.op is CALL and n.device in devices):
            waiting.append(n)
        else:
            yield from needed(n)
    yield from waiting


def _runs(nodes: Iterable[GraphNode], devices: Collection[str]) -> Iterator[list[GraphNode]]:
    """The nodes in order: calls of one device that follow each other together, with views between
    them; others alone."""
    run: list[GraphNode] = []
    for n in nodes:
        joins = n.op is CALL and n.device in devices and len(n.outputs) == 1
        if run and not is_view(n) and (not joins or run[0].device != n.device):
            yield run
            run = []
        if joins or (run and is_view(n)):
            run.append(n)
        else:
            yield [n]
    if run:
        yield run


class _Subgraphs:
    def __init__(self, graph: Graph, take: Take) -> None:
        self.take = take
        self.results = set(graph.outputs)
        self.users: dict[Value, list[GraphNode]] = {}
        for n in graph.nodes:
            for v in n.inputs:
                self.users.setdefault(v, []).append(n)

    def of(self, run: Sequence[GraphNode]) -> list[GraphNode]:
        """A run of calls as subgraphs, and what is in none. Views of what is made elsewhere come
        first."""
        made: set[Value] = set()
        outside = []
        for n in run:
            if is_view(n) and n.inputs[0] not in made:
                outside.append(n)
            else:
                made |= set(n.outputs)
        if outside:
            return [*outside, *self.of([n for n in run if n not in outside])]
        if len(run) < 2:
            return list(run)
        calls = [k for k in range(1, len(run)) if run[k].op is CALL]
        ends = [k for k in calls if self._has_one_result(run[: k + 1])]
        if not ends:
            return [run[0], *self.of(run[1:])]
        members, rest = run[: ends[-1] + 1], run[ends[-1] + 1 :]
        after = self.of(rest)
        subgraph = _subgraph(members)
        fits = self.take(members, subgraph)
        if fits is not None and fits > sum(k <= ends[-1] for k in calls):
            return [subgraph, *after]
        middle = (ends[len(ends) // 2 - 1] if len(ends) > 1 else 0) + 1
        if fits is not None:
            first = [k for k in ends if sum(c <= k for c in calls) < fits]
            middle = first[-1] + 1 if first else 1
        return [*self.of(members[:middle]), *self.of(members[middle:]), *after]

    def _has_one_result(self, nodes: Sequence[GraphNode]) -> bool:
        """Whether only the last one's result is needed elsewhere."""
        inside = set(nodes)
        for n in nodes[:-1]:
            (value,) = n.outputs
            users = self.users.get(value, [])
            if value in self.results or any(u not in inside for u in users):
                return False
        return True


def _subgraph(members: Sequence[GraphNode]) -> GraphNode:
    """Calls as one."""
    made = {v for n in members for v in n.outputs}
    operands = list(dict.fromkeys(v for n in members for v in n.inputs if v not in made))
    names = {v: Value(f"x{k}", v.type) for k, v in enumerate(operands)}
    names |= {
        v: Value(f"v{k}", v.type) for k, v in enumerate(v for n in members for v in n.outputs)
    }
    nodes = tuple(
        GraphNode(
            n.op, n.attrs, tuple(names[v] for v in n.inputs), tuple(names[v] for v in n.outputs)
        )
        for n in members
    )
    last = members[-1]
    inputs = tuple(names[v] for v in operands)
    body = Graph("body", inputs, tuple(names[v] for v in last.outputs), nodes, {})
    origins = tuple(
        dict.fromkeys(o for n in members if n.op is CALL for o in n.attrs_of(CallAttrs).origins)
    )
    attrs = CallAttrs(body, origins)
    return replace(last, attrs=attrs, inputs=tuple(operands), name=f"{members[0].name}_subgraph")
