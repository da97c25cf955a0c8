"""Deciding on which device each node runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tilewright.base.errors import CompileError, did_you_mean
from tilewright.ir.graph import Graph, GraphNode
from tilewright.ir.op import Category
from tilewright.target.target import Target

HOST = ""  # the machine that calls the model
Assign = Callable[[GraphNode], "str | None"] | Mapping[str, str]


def place(
    graph: Graph, devices: Mapping[str, Target], assign: Assign | None, default: str
) -> Graph:
    """Every node with its device: what `assign` says (by node, or by node name), else `default`.

    Opaque nodes run on the host, where their functions are.
    """
    if default not in devices:
        raise _no_device(default, devices, "by default")
    if isinstance(assign, Mapping):
        _check_names(graph, assign)
    nodes = []
    for n in graph.nodes:
        device = HOST if n.op.category is Category.OPAQUE else _ask(n, assign) or default
        if device != HOST and device not in devices:
            raise _no_device(device, devices, f"for {n.name or n.op.name}")
        nodes.append(n if n.device == device else replace(n, device=device))
    same = all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    return graph if same else graph.with_(nodes=tuple(nodes))


def _ask(n: GraphNode, assign: Assign | None) -> str | None:
    if assign is None:
        return None
    return assign.get(n.name) if isinstance(assign, Mapping) else assign(n)


def _check_names(graph: Graph, assign: Mapping[str, str]) -> None:
    by_name = {n.name: n for n in graph.nodes}
    for name, device in assign.items():
        if name not in by_name:
            raise CompileError(
                f"{name!r} is assigned to {device!r}, but {graph.name} has no node of that name",
                hint=did_you_mean(name, [n for n in by_name if n]),
            )
        n = by_name[name]
        if n.op.category is Category.OPAQUE and device != HOST:
            raise CompileError(
                f"{name!r} is assigned to {device!r}, but {n.op.name} is a function of the host",
                hint="leave it out: it is placed on the host",
            )


def _no_device(device: str, devices: Mapping[str, Target], where: str) -> CompileError:
    return CompileError(
        f"{device!r} was chosen {where}, but there is no such device",
        hint=did_you_mean(device, list(devices)),
    )
