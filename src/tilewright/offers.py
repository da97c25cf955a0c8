"""What devices say of a model's kernels, and which of them get which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.backends.devices import Devices
from tilewright.backends.table import Member, Option, best
from tilewright.backends.table import options as options_of
from tilewright.ir.graph import Graph, GraphNode
from tilewright.ir.tensor import TensorProgram
from tilewright.ops.function import CALL
from tilewright.optimize.call_program import call_program
from tilewright.optimize.edit import is_view
from tilewright.optimize.merge_subgraphs import joined_axis, merge_subgraphs
from tilewright.optimize.place_kernels import Placement, place_kernels


class Offers:
    """The answers of a model's devices, which are asked once for equal kernels. With `subgraphs`,
    neighbouring kernels of a device are offered to it as one. `pins` and `only` are the caller's
    (Options)."""

    def __init__(
        self, devices: Devices, subgraphs: bool, pins: Mapping[str, str], only: str | None
    ) -> None:
        self.devices, self.subgraphs, self.pins, self.only = devices, subgraphs, pins, only
        self.made: dict[tuple[TensorProgram, str], Option] = {}
        self.expected: dict[tuple[TensorProgram, str], Option] = {}
        self.known: dict[str, dict[Any, Any]] = {}  # what devices have built for subgraphs
        self.apart: set[str] = set()  # concatenations that no subgraph takes, by their results

    def place(self, graph: Graph) -> Placement:
        """The graph with each call on a device that runs it: asked again, where a device turns out
        not to do what it was expected to."""
        others = self.devices.others
        while True:
            placement = place_kernels(
                graph, self.devices.host, others, self._obstacle, self.pins, self.only
            )
            merged = self._merged(placement.graph)
            given = [n for n in merged.nodes if n.op is CALL and n.device in others]
            alone = {n.outputs[0].name for n in given if joined_axis(n) is not None}
            self.apart |= alone
            if not alone and not any(self.offer(n, n.device).obstacle for n in given):
                return replace(placement, graph=merged)

    def offer(self, n: GraphNode, device: str) -> Option:
        """The best way to run a call on a device."""
        program, _ = call_program(n, {})
        key = (program, device)
        if key not in self.made:
            self.made[key] = best(options_of(program, self.devices.specs[device]))
        return self.made[key]

    def _obstacle(self, n: GraphNode, device: str) -> str | None:
        """Why a device cannot run a call."""
        return self._outlook(n, device).obstacle or None

    def _outlook(self, n: GraphNode, device: str) -> Option:
        """What a device will offer for a call, as far as that is known without making its kernel,
        which may be made as a part of a subgraph."""
        spec = self.devices.specs[device]
        is_join = joined_axis(n) is not None and n.outputs[0].name not in self.apart
        if is_join and self._joins(device):
            return Option()
        program, _ = call_program(n, {})
        key = (program, device)
        if key in self.made or spec.backend.outlook is None or not self._joins(device):
            return self.offer(n, device)
        if key not in self.expected:
            self.expected[key] = spec.backend.outlook(program, spec.target)
        return self.expected[key]

    def _merged(self, graph: Graph) -> Graph:
        """Neighbouring kernels of a device as one, where it does that."""
        if not self.subgraphs:
            return graph
        able = [d for d in self.devices.others if self._joins(d)]
        return merge_subgraphs(graph, able, self._takes)

    def _joins(self, device: str) -> bool:
        """Whether a device runs neighbouring kernels as one: several cores share each kernel."""
        spec = self.devices.specs[device]
        return self.subgraphs and spec.backend.subgraph is not None and spec.target.cores == 1

    def _takes(self, members: Sequence[GraphNode], subgraph: GraphNode) -> int | None:
        """How many calls, from the first on, a device may run as one; None if that is not known.
        If that is all, it is its offer."""
        program, _ = call_program(subgraph, {})
        key = (program, subgraph.device)
        if key not in self.made:
            self.made[key] = self._subgraph(members, subgraph)
        option = self.made[key]
        return option.fits if option.obstacle else sum(not is_view(n) for n in members)

    def _subgraph(self, members: Sequence[GraphNode], subgraph: GraphNode) -> Option:
        """What a device offers for calls as one."""
        spec = self.devices.specs[subgraph.device]
        assert spec.backend.subgraph is not None
        names = {v: f"value{k}" for k, v in enumerate(subgraph.inputs)}
        found: list[Member] = []
        for n in members:
            if is_view(n):  # the same elements
                names[n.outputs[0]] = names[n.inputs[0]]
                continue
            names[n.outputs[0]] = f"made{len(found)}"
            program, _ = call_program(n, {})
            operands = tuple(names[v] for v in dict.fromkeys(n.inputs))
            option = self._outlook(n, n.device)
            found.append(Member(program, option, operands, names[n.outputs[0]], joined_axis(n)))
        known = self.known.setdefault(subgraph.device, {})
        inputs = [names[v] for v in subgraph.inputs]
        return spec.backend.subgraph(found, inputs, spec.target, known)
