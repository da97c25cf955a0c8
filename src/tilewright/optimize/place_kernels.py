"""Giving kernels to the devices that can run them.

    k = call(x, w, b; body = conv, add, shr, cast, add)    ->    s = call(…; conv, add, shr, cast)
                                                                   @npu
                                                                 k = call(s, …; add)      @host

Devices are asked in order. The first that can run the kernel, or its first part, takes it, even if
a later one could run all of it. First parts end at a value of small elements, the last first, then
at the contraction or reduction; what follows is placed as a kernel of its own. What the caller
assigned or pinned to a device has to fit there; a node's pin is its kernel's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import CompileError, did_you_mean
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.op import Category
from tilewright.ops.function import CALL, CallAttrs
from tilewright.optimize.edit import fresh_names, rebuild
from tilewright.optimize.fuse import make_call
from tilewright.optimize.group_nodes import Group

ANCHORS = (Category.COMPLEX, Category.REDUCTION)
Obstacle = Callable[[GraphNode, str], "str | None"]  # why a device cannot run a call


@dataclass
class Placement:
    """Where kernels run. `obstacles` has, for each call that stays on the host, what every other
    device said."""

    graph: Graph
    obstacles: dict[GraphNode, dict[str, str]] = field(default_factory=dict)


def place_kernels(
    graph: Graph,
    host: str,
    others: Sequence[str],
    obstacle: Obstacle,
    pins: Mapping[str, str],
    only: str | None = None,
) -> Placement:
    """The graph of calls with their devices; `others` come before the host, in this order. `pins`
    has devices of nodes by the nodes' names; `only` one device runs all. CompileError for what
    cannot be."""
    devices = [host, *others]
    if only is not None and only not in devices:
        raise CompileError(
            f"only {only!r} is to run kernels, and there is no such device",
            hint=did_you_mean(only, devices),
        )
    _check_pins(graph, pins, devices)
    asked = [d for d in others if only in (None, d)]
    placement = _Placer(graph, host, asked, obstacle, pins).run()
    if only is not None:
        _check_only(placement, only)
    return placement


def _check_pins(graph: Graph, pins: Mapping[str, str], devices: Sequence[str]) -> None:
    """CompileError for pins to devices that there are not, and of nodes that no kernel has."""
    computed = [o for n in graph.nodes if n.op is CALL for o in n.attrs_of(CallAttrs).origins]
    for name, device in pins.items():
        if device not in devices:
            raise CompileError(
                f"{name!r} is pinned to {device!r}, and there is no such device",
                hint=did_you_mean(device, devices),
            )
        if name not in computed:
            raise CompileError(
                f"{name!r} is pinned to {device!r}, but no kernel of {graph.name} computes a node"
                " of that name: there is none, or it became part of others",
                hint=did_you_mean(name, computed),
            )


def _check_only(placement: Placement, device: str) -> None:
    """CompileError if a device does not run every kernel, with what it does not run and why."""
    calls = [n for n in placement.graph.nodes if n.op is CALL]
    left = [n for n in calls if n.device != device]
    if not left:
        return
    lines = []
    for n in left:
        why = placement.obstacles.get(n, {}).get(device, f"{n.device} runs it")
        lines.append(f"\n  {', '.join(n.attrs_of(CallAttrs).origins)}: {why.splitlines()[0]}")
    of = f"{len(left)} of {len(calls)} kernel{'s' if len(calls) != 1 else ''}"
    raise CompileError(
        f"{device} cannot run {of} of {placement.graph.name}:{''.join(lines)}",
        hint="without only (--only), the host runs them",
    )


@dataclass(frozen=True)
class _Placer:
    graph: Graph
    host: str
    others: Sequence[str]
    obstacle: Obstacle
    pins: Mapping[str, str]

    def run(self) -> Placement:
        placement = Placement(self.graph)
        nodes: list[GraphNode] = []
        fresh = fresh_names(self.graph)
        for n in self.graph.nodes:
            if n.op is not CALL:
                nodes.append(n)
            elif n.device != self.host:
                nodes.append(self._assigned(n))
            else:
                for part, why in self._placed(n, fresh):
                    nodes.append(part)
                    if why:
                        placement.obstacles[part] = why
        placement.graph = rebuild(self.graph, nodes)
        return placement

    def _assigned(self, n: GraphNode) -> GraphNode:
        if n.device in self.others:
            why = self.obstacle(n, n.device)
            if why is not None:
                raise CompileError(
                    f"{n.name} was assigned to {n.device!r}, which cannot run it: {why}",
                    hint="leave it out of assign: what a device cannot run, the host does",
                )
        return n

    def _pin(self, n: GraphNode) -> str | None:
        """The device that a call is pinned to."""
        names = [o for o in n.attrs_of(CallAttrs).origins if o in self.pins]
        for name in names:
            if self.pins[name] != self.pins[names[0]]:
                raise CompileError(
                    f"{names[0]!r} is pinned to {self.pins[names[0]]!r} and {name!r} to"
                    f" {self.pins[name]!r}, but they are one kernel",
                    hint="pin one of them",
                )
        return self.pins[names[0]] if names else None

    def _placed(
        self, n: GraphNode, fresh: Callable[[str], str], whole: bool = True
    ) -> Iterator[tuple[GraphNode, dict[str, str]]]:
        """The call, or its parts, on their devices; of what stays on the host, why. What is left
        of a call that is not `whole` is pinned nowhere."""
        pin = self._pin(n) if whole else None
        why: dict[str, str] = {}
        if pin == self.host:
            yield n, dict.fromkeys(self.others, "it is pinned to the host")
            return
        for device in self.others if pin is None else [pin]:
            refusals: list[tuple[bool, str]] = []
            for first, *rest in _ways(n, fresh):
                found = self.obstacle(replace(first, device=device), device)
                if found is None:
                    yield replace(first, device=device), {}
                    for part in rest:
                        yield from self._placed(part, fresh, whole=False)
                    return
                refusals.append((first.outputs[0].dtype.is_integer, found))
            # What makes floats is no chip's: the first part that makes integers says more.
            why[device] = next((text for integer, text in refusals if integer), refusals[0][1])
        if pin is not None:
            raise CompileError(
                f"{n.name} was pinned to {pin!r}, which cannot run it: {why[pin]}",
                hint="leave the pin out: what a device cannot run, the host does",
            )
        yield n, why


def _ways(n: GraphNode, fresh: Callable[[str], str]) -> Iterator[list[GraphNode]]:
    """Yields the call, then its splits in two at each legal cut."""
    yield [n]
    for value in _cuts(n.attrs_of(CallAttrs).body):
        yield _cut(n, value, fresh)


def _cuts(body: Graph) -> Iterator[Value]:
    """Yields the values at which a body may be cut: integers of at most 8 bits, the last first,
    then the anchor's result."""
    anchors = [m for m in body.nodes if m.op.category in ANCHORS]
    alone = [m.outputs[0] for m in body.nodes if _is_alone(body, m, anchors[-1:])]
    inner = [v for v in alone if v not in body.outputs]
    small = [v for v in inner if v.dtype.is_integer and v.dtype.bits <= 8]
    results = {v for m in anchors[-1:] for v in m.outputs}
    yield from dict.fromkeys((*small[::-1], *(v for v in inner if v in results)))


def _is_alone(body: Graph, m: GraphNode, anchors: Sequence[GraphNode]) -> bool:
    """Returns whether a node's result is the only value that crosses from it and its ancestors, the
    anchors among them, to the other nodes and the body's outputs."""
    before = _ancestors(body, m)
    leaving = {v for x in body.nodes if x not in before for v in x.inputs} | set(body.outputs)
    crossing = {v for x in before for v in x.outputs} & leaving
    return all(a in before for a in anchors) and crossing == set(m.outputs)


def _ancestors(body: Graph, m: GraphNode) -> set[GraphNode]:
    makers = body.producers()
    found, todo = {m}, [m]
    while todo:
        for v in todo.pop().inputs:
            maker = makers.get(v)
            if maker is not None and maker not in found:
                found.add(maker)
                todo.append(maker)
    return found


def _cut(n: GraphNode, value: Value, fresh: Callable[[str], str]) -> list[GraphNode]:
    """Splits a call in two: what `value` is computed from, and the rest."""
    attrs = n.attrs_of(CallAttrs)
    body = attrs.body
    maker = body.producers()[value]
    inside = _ancestors(body, maker)
    first = [m for m in body.nodes if m in inside]
    rest = [m for m in body.nodes if m not in inside]
    names = dict(zip(body.inputs, n.inputs, strict=True))
    names[value] = Value(fresh(n.outputs[0].name), value.type)
    calls = []
    for nodes, outputs in ((first, (value,)), (rest, body.outputs)):
        call = make_call(body, Group(nodes, nodes[-1]), outputs)
        results = (names[value],) if outputs == (value,) else n.outputs
        made = replace(call.attrs_of(CallAttrs), origins=attrs.origins)
        inputs = tuple(names[v] for v in call.inputs)
        calls.append(replace(n, attrs=made, inputs=inputs, outputs=results))
    return calls
