"""Maxima and minima over windows that begin with one of the window's elements, not with a number.

    Y[w] = -128;      for s in 3: Y[w] max= X[2 * w + s]
->  Y[w] = X[2 * w + 1]; for s in 2: Y[w] max= X[2 * w + 2 * s]

is one operation less for each result. The element in the middle is in no other window here, so
that Y may take its place: then there is nothing to copy, either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.linear import linear
from tilewright.ir.expr import Expr, Load, Var, const
from tilewright.ir.substitute import substitute, variables
from tilewright.ir.tensor import Axis, Stage


@dataclass(frozen=True)
class Window:
    """A reduction of which result number w reads the elements `step * w + dilation * s` along one
    axis of an array, for all s < size."""

    stage: Stage
    load: Load
    side: Axis  # s
    step: int
    dilation: int

    @property
    def size(self) -> int:
        assert isinstance(self.side.extent, int)
        return self.side.extent

    def own(self) -> Iterator[int]:
        """The elements that no other result reads, of those that it may begin with."""
        for n in self._firsts():
            others = (m for m in range(self.size) if m != n)
            if all(self.dilation * (m - n) % self.step for m in others):
                yield n

    def begins_with(self, n: int) -> Stage:
        """The reduction that begins with element n, and goes on with the others."""
        rest = self._firsts()[n]
        fewer = Axis(self.side.var, self.size - 1)
        return self.stage.with_(init=self._at(const(n)), value=self._at(rest), reduce=(fewer,))

    def _firsts(self) -> dict[int, Expr]:
        """By what may come first: the others, which are evenly apart."""
        s = self.side.var
        found: dict[int, Expr] = {0: s + 1, self.size - 1: s}
        return found | {1: 2 * s} if self.size == 3 else found

    def _at(self, s: Expr) -> Load:
        moved = substitute(self.load, {self.side.var: s})
        assert isinstance(moved, Load)
        return moved


def window_of(stage: Stage) -> Window | None:
    """The windows of a reduction along one axis; None if it is none, or goes over each element
    once for all results."""
    load, (side, *more) = stage.value, stage.reduce or (None,)
    if side is None or more or not isinstance(load, Load) or load.buffer == stage.buffer:
        return None
    along = [i for i in load.indices if side.var in variables(i)]
    if len(along) != 1 or not isinstance(side.extent, int) or side.extent < 2:
        return None
    found = {v: k for v, k in linear(along[0]).items() if isinstance(v, Var)}
    dilation = found.pop(side.var, 0)
    steps = list(found.values())
    if len(steps) != 1 or not isinstance(steps[0], int) or not isinstance(dilation, int):
        return None
    return Window(stage, load, side, steps[0], dilation)
