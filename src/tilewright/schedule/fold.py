"""Which loops of a tile a unit's free axes are: hardware loops, and lists of micro-operations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.expr import Var
from tilewright.schedule.state import Loop
from tilewright.schedule.units import Unit

APART = 3  # calls between two accumulations into one element, for a pipeline of adders


@dataclass(frozen=True)
class Around:
    """A loop around a unit's fixed axes: how often it runs, whether it moves the result."""

    loop: Loop
    extent: int
    moves: bool


@dataclass(frozen=True)
class Fold:
    """Loops that stay loops of the program, and those of each free axis, outermost first."""

    software: tuple[Around, ...]
    axes: tuple[tuple[Var, tuple[Around, ...]], ...]

    @property
    def calls(self) -> int:
        """Calls that the loops of the program make."""
        return math.prod(x.extent for x in self.software)

    @property
    def outside(self) -> list[Loop]:
        """The loops of the program in their new order."""
        return [x.loop for x in self.software]

    @property
    def inside(self) -> list[Loop]:
        """Those of the unit in their new order."""
        return [x.loop for _, loops in self.axes for x in loops]

    @property
    def loops(self) -> list[Loop]:
        return [*self.outside, *self.inside]


def fold(unit: Unit, loops: Sequence[Around], entries: int) -> Fold:
    """The assignment with the fewest calls, then with the shortest lists of micro-operations;
    among those, one that keeps accumulations into one element apart. `entries` is how many
    micro-operations there may be in a list."""
    return min(_folds(unit, loops, entries), key=lambda f: _rank(unit, f))


def _folds(unit: Unit, loops: Sequence[Around], entries: int) -> Iterator[Fold]:
    carried = [axis for axis in unit.free if axis != unit.listed]
    loops = sorted(loops, key=lambda x: x.moves)  # sums outside
    for count in range(min(len(carried), len(loops)) + 1):
        for chosen in itertools.combinations(loops, count):
            if any(x.extent > unit.size(axis) for axis, x in zip(carried, chosen, strict=False)):
                continue
            rest = [x for x in loops if x not in chosen]
            software: list[Around] = []
            room = min(entries, unit.size(unit.listed)) if unit.listed is not None else 1
            while math.prod(x.extent for x in rest) > room:
                software.append(rest.pop(0))
            axes = {axis: (x,) for axis, x in zip(carried, chosen, strict=False)}
            if unit.listed is not None:
                axes[unit.listed] = tuple(rest)
            else:
                software += rest
            order = tuple((axis, axes.get(axis, ())) for axis in unit.free)
            yield Fold(tuple(software), order)


def _rank(unit: Unit, f: Fold) -> tuple[int, int, int]:
    listed = math.prod(x.extent for axis, loops in f.axes if axis == unit.listed for x in loops)
    inner = [x for _, loops in f.axes for x in loops] or [*f.software]
    apart = 1
    for x in reversed(inner):
        if not x.moves:
            break
        apart *= x.extent
    near = int(apart < APART and len(inner) > 1)
    return f.calls, near, listed
