"""Ways to run a kernel: what fusion, layouts and placement ask of every kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.tensor_type import TensorType
from tilewright.optimize.move_arrays import Held


@dataclass(frozen=True, eq=False)
class Option:
    """One way to run a kernel on a target: how its operands and results lie in memory, the time it
    takes (seconds; of a chip also cycles), energy where it is described (joules), bytes to and from
    the outermost memory, and the decisions that get there. A device that is given arrays has them
    as `held`, operands first. With an `obstacle` the target cannot run it, and the obstacle says
    why. `built` is what the backend has made of it already."""

    operands: tuple[TensorType, ...] = ()
    results: tuple[TensorType, ...] = ()
    seconds: float = 0.0
    cycles: int | None = None
    joules: float | None = None
    bytes: int = 0
    trace: str = ""
    held: tuple[Held, ...] = ()
    obstacle: str = ""
    built: Any = None


def best(options: Sequence[Option]) -> Option:
    """The fastest of those that can be had; the first obstacle if none can."""
    can = [o for o in options if not o.obstacle]
    return min(can, key=lambda o: o.seconds) if can else options[0]
