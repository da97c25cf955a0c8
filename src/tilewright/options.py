"""What a compilation depends on beside the model and its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewright.ir.graph import GraphNode


@dataclass(frozen=True)
class Options:
    """`assign` says where nodes run when there are several devices: a mapping from node names to
    device names, or a function of the node; others run on the first device. Devices named in
    `separate` have a memory of their own: values are copied there and back. `dims` fixes symbolic
    dimensions of the model. `verify` checks every intermediate program."""

    assign: Mapping[str, str] | Callable[[GraphNode], str] | None = None
    separate: frozenset[str] = frozenset()
    dims: Mapping[str, int] = field(default_factory=dict)
    verify: bool = False
