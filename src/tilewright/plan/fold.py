"""Which loops of a tile a unit's free axes are: hardware loops, and lists of micro-operations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.ir.expr import Var
from tilewright.plan.units import Unit
from tilewright.schedule.trace.steps import Loop


@dataclass(frozen=True)
class Around:
    """A loop around a unit's fixed axes: how often it runs, whether the result depends on it."""

    loop: Loop
    extent: int
    spatial: bool


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
    """The assignment with the fewest calls, then with the shortest lists of micro-operations, of
    those that keep accumulations into one element as far apart as the instruction wants them.
    `entries` is how many micro-operations there may be in a list."""
    loops = sorted(loops, key=lambda x: x.spatial)  # sums outside
    sums = [x for x in loops if not x.spatial]
    found = [f for f in _folds(unit, loops, [], entries) if _keeps_apart(unit, f)]
    # Where sums come too soon after each other, each sum is a call of its own.
    found += _folds(unit, [x for x in loops if x.spatial], sums, entries)
    return min(found, key=lambda f: _rank(unit, f))


def _folds(
    unit: Unit, loops: Sequence[Around], outside: Sequence[Around], entries: int
) -> Iterator[Fold]:
    """All assignments that leave the loops `outside` to the program."""
    carried = [axis for axis in unit.free if axis != unit.listed]
    for count in range(min(len(carried), len(loops)) + 1):
        for chosen in itertools.combinations(loops, count):
            if any(x.extent > unit.size(axis) for axis, x in zip(carried, chosen, strict=False)):
                continue
            rest = [x for x in loops if x not in chosen]
            software = [*outside]
            room = min(entries, unit.size(unit.listed)) if unit.listed is not None else 1
            while math.prod(x.extent for x in rest) > room:
                software.append(rest.pop(0))
            axes: dict[Var, tuple[Around, ...]] = {
                axis: (x,) for axis, x in zip(carried, chosen, strict=False)
            }
            if unit.listed is not None:
                axes[unit.listed] = tuple(rest)
            else:
                software += rest
            order = tuple((axis, axes.get(axis, ())) for axis in unit.free)
            yield Fold(tuple(software), order)


def _rank(unit: Unit, f: Fold) -> tuple[int, int]:
    listed = math.prod(x.extent for axis, loops in f.axes if axis == unit.listed for x in loops)
    return f.calls, listed


def _keeps_apart(unit: Unit, f: Fold) -> bool:
    """Whether iterations of one call that add to the same element are as far apart as they must."""
    wanted = dict(unit.instruction.distances).get(unit.result.buffer.name, 1)
    inner = [x for _, loops in f.axes for x in loops]
    apart = 1
    while inner and inner[-1].spatial:
        apart *= inner.pop().extent
    return not inner or apart >= wanted
