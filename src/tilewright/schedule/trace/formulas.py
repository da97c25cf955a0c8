"""Integer formulas over decisions: extents of loops and buffers, for all factors at once.

A formula is a number in a straight-line program, so that one pass over a short list evaluates all
of them, for numbers or for numpy arrays of them. Beside each stands its value for the factors that
it was derived with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Formula = int  # a position in the program


def _larger(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def _quotient(a: Any, b: Any) -> Any:
    return 0 if isinstance(b, int) and b == 0 else a // b  # by 0 it is refused elsewhere


_ADD, _SUB, _MUL, _DIV = operator.add, operator.sub, operator.mul, _quotient


class Formulas:
    """A straight-line program, and the decisions that each line depends on."""

    def __init__(self, decided: Sequence[int]) -> None:
        """Lines 0 … are the decisions themselves, with the values they have now."""
        self.now: list[int] = list(decided)
        self.lines: list[tuple[Callable[[Any, Any], Any], int, int] | int | None]
        self.lines = [None] * len(self.now)
        self.depends: list[frozenset[int]] = [frozenset((i,)) for i in range(len(self.now))]
        self._known: dict[Any, Formula] = {}

    def const(self, value: int) -> Formula:
        return self._line(value, value, frozenset())

    def add(self, a: Formula, b: Formula) -> Formula:
        return self._apply(_ADD, a, b)

    def sub(self, a: Formula, b: Formula) -> Formula:
        return self._apply(_SUB, a, b)

    def mul(self, a: Formula, b: Formula) -> Formula:
        return self._apply(_MUL, a, b)

    def div(self, a: Formula, b: Formula) -> Formula:
        """Rounded down; the divisor is positive wherever the formula is used."""
        return self._apply(_DIV, a, b)

    def largest(self, items: Iterable[Formula]) -> Formula:
        return self._fold(_larger, items)

    def smallest(self, items: Iterable[Formula]) -> Formula:
        return self._fold(_smaller, items)

    def product(self, items: Iterable[Formula]) -> Formula:
        total = self.const(1)
        for item in items:
            total = self.mul(total, item)
        return total

    def evaluate(self, decided: Sequence[object]) -> list[Any]:
        """The value of every line, for other values of the decisions."""
        values = list(decided)
        for line in self.lines[len(values) :]:
            if type(line) is tuple:
                function, a, b = line
                values.append(function(values[a], values[b]))
            else:
                values.append(line)
        return values

    def _fold(self, function: Callable[[Any, Any], object], items: Iterable[Formula]) -> Formula:
        first, *rest = items
        for item in rest:
            first = self._apply(function, first, item)
        return first

    def _apply(self, function: Callable[[Any, Any], Any], a: Formula, b: Formula) -> Formula:
        value = function(self.now[a], self.now[b])
        depends = self.depends[a] | self.depends[b]
        if not depends:
            return self.const(value)
        if self._is(b, 1) and function in (_MUL, _DIV):
            return a
        if self._is(a, 1) and function is _MUL:
            return b
        if self._is(b, 0) and function in (_ADD, _SUB):
            return a
        if self._is(a, 0) and function is _ADD:
            return b
        return self._line((function, a, b), value, depends)

    def _is(self, a: Formula, value: int) -> bool:
        return not self.depends[a] and self.now[a] == value

    def _line(self, line: Any, value: int, depends: frozenset[int]) -> Formula:
        if line not in self._known:
            self._known[line] = len(self.lines)
            self.lines.append(line)
            self.now.append(value)
            self.depends.append(depends)
        return self._known[line]
