"""Which dimensions of a kernel must not be 0, because it would touch an element of an empty array,
or leave elements of its results without a value.

Loops that do not run touch nothing, so most kernels do right on empty arrays. Those that look
elements up do not, where what they look up may lie anywhere: a gather, a border that repeats the
nearest element. Nor does the last of no states.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilewright.analyze.accesses import accesses
from tilewright.analyze.bounds import may_happen, unwritten
from tilewright.ir.bind_symbols import bind_symbols
from tilewright.ir.loop import Kernel, symbols

MOST = 4  # symbols of which all combinations are tried


def never_empty(kernel: Kernel) -> frozenset[str]:
    """The symbols, of those whose bounds allow 0, that must not be 0."""
    found: set[str] = set()
    for zeros in _combinations([s.name for s in symbols(kernel) if s.lower == 0]):
        if found.isdisjoint(zeros) and _goes_wrong(kernel, zeros):
            found.update(zeros)
    return frozenset(found)


def _combinations(names: list[str]) -> Iterator[tuple[str, ...]]:
    """Sets of symbols that may be 0 at the same time, small ones first."""
    sizes = range(1, len(names) + 1) if len(names) <= MOST else (1, len(names))
    for size in sizes:
        yield from itertools.combinations(names, size)


def _goes_wrong(kernel: Kernel, zeros: tuple[str, ...]) -> bool:
    bound = bind_symbols(kernel, dict.fromkeys(zeros, 0))
    found = list(accesses(bound.body))
    touched = any(0 in a.buffer.shape and may_happen(a) for a in found)
    return touched or any(True for _ in unwritten(found, bound.outputs))
