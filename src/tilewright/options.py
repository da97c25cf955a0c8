"""What a compilation depends on beside the model and its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.ir.graph import GraphNode


@dataclass(frozen=True)
class Options:
    """`assign` says where nodes run when there are several devices: a mapping from node names to
    device names, or a function of the node; others run on the first device. Devices named in
    `separate` have a memory of their own: values are copied there and back. `dims` fixes symbolic
    dimensions of the model; `values` fixes what inputs hold, by name, such as the target shape of a
    reshape: the compiled model does not take these. `verify` checks every intermediate program.
    With `checks`, the compiled model raises a CheckError where an index is out of range or an
    integer is divided by zero; without it, it goes on with the nearest index, or a defined result
    (docs/semantics.md)."""

    assign: Mapping[str, str] | Callable[[GraphNode], str] | None = None
    separate: frozenset[str] = frozenset()
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    verify: bool = False
    checks: bool = False
