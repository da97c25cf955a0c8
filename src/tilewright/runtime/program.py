"""A compiled model as data: what a file holds, and what a Module runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.runtime.plan import Plan, TargetFacts

ENTRY = "tw_entry"  # the function that runs the model; see native/tilewright_runtime.h


@dataclass(frozen=True, slots=True)
class Part:
    """What a device is given before the first call: files by name, which a device of this `kind`
    reads (runtime/devices.py)."""

    device: str
    kind: str
    files: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """`objects` are object files by name; `constants` the bytes of each constants memory; `parts`
    what devices besides the host are given."""

    plan: Plan
    target: TargetFacts
    objects: tuple[tuple[str, bytes], ...]
    constants: tuple[np.ndarray, ...]
    compiler: str  # the version that made it
    entry: str = ENTRY
    parts: tuple[Part, ...] = ()
