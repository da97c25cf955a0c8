"""What devices say of a model's kernels, and which of them get which."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from tilewright.backends.devices import Devices
from tilewright.backends.table import Member, Option, best
from tilewright.backends.table import options as options_of
from tilewright.base.passes import Watch, counted
from tilewright.ir.graph import Graph, GraphNode
from tilewright.ir.tensor import TensorProgram
from tilewright.ops.function import CALL, CallAttrs
from tilewright.optimize.call_program import call_program
from tilewright.optimize.edit import is_view
from tilewright.optimize.merge_subgraphs import joined_axis, merge_subgraphs
from tilewright.optimize.place_kernels import Placement, place_kernels
from tilewright.options import Options

Offered = dict[tuple[TensorProgram, str], Option]
Find = Callable[[str], Option]
InProcesses = Callable[[Find, Sequence[str], int], Generator[tuple[str, Option], None, None]]
UNKNOWN = Option()


class Offers:
    """The answers of a model's devices, which are asked once for equal kernels. With
    `options.subgraphs`, neighbouring kernels of a device are offered to it as one. `in_processes`
    has devices asked side by side (runtime/processes.py); `watch` is told how far they are."""

    def __init__(
        self, devices: Devices, options: Options, in_processes: InProcesses, watch: Watch
    ) -> None:
        self.devices, self.subgraphs = devices, options.subgraphs
        self.pins, self.only = options.pins, options.only
        self.in_processes, self.watch = in_processes, watch
        self.made: Offered = {}
        self.expected: Offered = {}
        self.known: dict[str, dict[Any, Any]] = {}  # what devices have built for subgraphs
        self.apart: set[str] = set()  # concatenations that no subgraph takes, by their results

    def place(self, graph: Graph) -> Placement:
        """The graph with each call on a device that runs it: asked again, where a device turns out
        not to do what it was expected to."""
        others = self.devices.others
        self._ask_ahead(graph)
        while True:
            placement = place_kernels(
                graph, self.devices.host, others, self._obstacle, self.pins, self.only
            )
            merged = self._merged(placement.graph)
            given = [n for n in merged.nodes if n.op is CALL and n.device in others]
            alone = {n.outputs[0].name for n in given if joined_axis(n) is not None}
            self.apart |= alone
            if not alone:
                self._offer_ahead(given)
            if not alone and not any(self.offer(n, n.device).obstacle for n in given):
                return replace(placement, graph=merged)

    def offer(self, n: GraphNode, device: str) -> Option:
        """The best way to run a call on a device."""
        program, _ = call_program(n, {})
        key = (program, device)
        if key not in self.made:
            self.made[key] = best(options_of(program, self.devices.specs[device]))
        return self.made[key]

    def _offer_ahead(self, calls: Sequence[GraphNode]) -> None:
        """Has kernels made that calls need, many at a time."""
        keys = ((call_program(n, {})[0], n.device) for n in calls)
        names = {str(k): key for k, key in enumerate(dict.fromkeys(keys)) if key not in self.made}

        def find(name: str) -> Option:
            program, device = names[name]
            return best(options_of(program, self.devices.specs[device]))

        with closing(self.in_processes(find, list(names), 1)) as found:
            for name, option in counted(found, "kernels built", len(names), self.watch):
                self.made[names[name]] = option

    def _obstacle(self, n: GraphNode, device: str) -> str | None:
        """Why a device cannot run a call."""
        return self._outlook(n, device).obstacle or None

    def _outlook(self, n: GraphNode, device: str) -> Option:
        """What a device will offer for a call, as far as that is known without making its kernel,
        which may be made as a part of a subgraph."""
        is_join = joined_axis(n) is not None and n.outputs[0].name not in self.apart
        if is_join and self._joins(device):
            return Option()
        program, _ = call_program(n, {})
        key = (program, device)
        if key in self.made:
            return self.made[key]
        kept, ask = self._answers(device)
        if key not in kept:
            kept[key] = ask(program)
        return kept[key]

    def _answers(self, device: str) -> tuple[Offered, Callable[[TensorProgram], Option]]:
        """Where the answers of a device about kernels alone are kept, and what gives them."""
        spec = self.devices.specs[device]
        outlook = spec.backend.outlook
        if outlook is None or not self._joins(device):
            return self.made, lambda program: best(options_of(program, spec))
        return self.expected, lambda program: outlook(program, spec.target)

    def _ask_ahead(self, graph: Graph) -> None:
        """Asks devices about kernels alone, many at a time: each about those that the devices
        before it refuse."""
        calls = [n for n in graph.nodes if n.op is CALL and joined_axis(n) is None]
        programs = dict.fromkeys(
            call_program(n, {})[0]
            for n in calls
            if not any(o in self.pins for o in n.attrs_of(CallAttrs).origins)
        )
        for device in self.devices.others:
            if self.only in (None, device):
                self._ask(device, list(programs))
                kept, _ = self._answers(device)
                programs = {p: None for p in programs if kept.get((p, device), UNKNOWN).obstacle}

    def _ask(self, device: str, programs: Sequence[TensorProgram]) -> None:
        kept, ask = self._answers(device)
        names = {str(k): p for k, p in enumerate(programs) if (p, device) not in kept}
        what = f"kernels shown to {device}"
        with closing(self.in_processes(lambda n: ask(names[n]), list(names), 1)) as found:
            for name, option in counted(found, what, len(names), self.watch):
                kept[names[name], device] = option

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

        def watch(what: str, done: int, total: int) -> None:
            self.watch(f"{what} for {subgraph.device}", done, total)

        return spec.backend.subgraph(found, inputs, spec.target, known, watch)
