"""Packing: where in one arena each slot lies, so that slots which live at the same time do not
overlap and the arena is small.

Slots are placed one after another, in a few orders, each at the lowest place that is free while it
lives; the best order wins (greedy by size: Pisarchyk and Lee, arXiv 2001.03288). Slots of symbolic
size are packed like that for typical values of the symbols; then each slot's offset becomes the
largest end of those below it that live beside it, whatever the symbols' values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.dims import canonical
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Dim, Expr, Symbol, as_expr
from tilewright.optimize.compare_sizes import larger_of, round_up

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
TYPICAL = 128  # what a symbolic dimension is taken to be, where its bounds allow
TRIES = 100  # random orders, where the plain ones waste something
SLOTS_TRIED = 40_000  # in all these orders: some tenths of a second
NOISE = 0.3  # by which a random order changes sizes, as a power of e


@dataclass(frozen=True)
class Lifetime:
    """Bytes needed from step `first` to step `last`, both included."""

    size: Dim
    first: int
    last: int


@dataclass(frozen=True)
class Packing:
    """Offsets in the order of the lifetimes, and the arena's size. At typical values of the
    symbols that is `typical`, and `least` is alive at once: no arena can be smaller."""

    offsets: tuple[Dim, ...]
    size: Dim
    typical: int
    least: int


def pack_slots(lifetimes: Sequence[Lifetime]) -> Packing:
    """Fixed sizes first, at fixed offsets; symbolic ones behind them."""
    sizes = [round_up(life.size, ALIGNMENT) for life in lifetimes]
    fixed = [i for i, size in enumerate(sizes) if isinstance(size, int)]
    symbolic = [i for i, size in enumerate(sizes) if not isinstance(size, int)]
    offsets: dict[int, Dim] = {}
    base: Dim = 0
    typical = least = 0
    for group in (fixed, symbolic):
        packer = _Packer([sizes[i] for i in group], [lifetimes[i] for i in group])
        places, size = packer.pack()
        offsets |= {i: _add(base, p) for i, p in zip(group, places, strict=True)}
        base, typical, least = _add(base, size), typical + packer.at(size), least + packer.least
    return Packing(tuple(offsets[i] for i in range(len(sizes))), base, typical, least)


def _add(a: Dim, b: Dim) -> Dim:
    return a + b if isinstance(a, int) and isinstance(b, int) else canonical(as_expr(a) + b)


class _Packer:
    def __init__(self, sizes: Sequence[Dim], lifetimes: Sequence[Lifetime]) -> None:
        self.sizes = list(sizes)
        self.first = np.array([life.first for life in lifetimes], np.int64)
        self.last = np.array([life.last for life in lifetimes], np.int64)
        self.symbols = _typical_symbols(self.sizes)
        self.typical = np.array([self.at(s) for s in self.sizes], np.int64)
        self.least = self._most_alive()

    def at(self, dim: Dim) -> int:
        """The dimension at typical values of the symbols."""
        return evaluate_dim(dim, self.symbols)

    def _most_alive(self) -> int:
        """The most bytes alive in one step."""
        change = np.zeros(int(self.last.max(initial=0)) + 2, np.int64)
        np.add.at(change, self.first, self.typical)
        np.add.at(change, self.last + 1, -self.typical)
        return int(change.cumsum().max())

    def pack(self) -> tuple[list[Dim], Dim]:
        """Offsets and size of the best packing found."""
        low = self._best()
        if not self.symbols:
            return low.tolist(), int((low + self.typical).max(initial=0))
        return self._for_all_values(low)

    def _beside(self, i: int) -> np.ndarray:
        """Which slots live at the same time as slot i."""
        found: np.ndarray = (self.first <= self.last[i]) & (self.last >= self.first[i])
        return found

    # ---------------------------------------------------------- at typical values

    def _best(self) -> np.ndarray:
        """The offsets of the best order found; the first with which nothing is wasted."""
        best, least = np.zeros(len(self.sizes), np.int64), None
        for order in self._orders():
            low = self._place_all(order)
            size = int((low + self.typical).max(initial=0))
            if least is None or size < least:
                best, least = low, size
            if least <= self.least:
                break
        return best

    def _orders(self) -> Iterator[np.ndarray]:
        """Large ones first, large and long-lived ones first, long-lived ones first, as the program
        goes; then large ones roughly first, at random, always the same."""
        size, length = self.typical, self.last - self.first + 1
        yield np.lexsort((self.first, -size))
        yield np.lexsort((self.first, -size * length))
        yield np.lexsort((-size, -length))
        yield np.lexsort((-size, self.first))
        random = np.random.default_rng(0)
        for _ in range(min(TRIES, SLOTS_TRIED // max(1, len(size)))):
            yield np.argsort(random.normal(0, NOISE, len(size)) - np.log(size + 1), kind="stable")

    def _place_all(self, order: np.ndarray) -> np.ndarray:
        low = np.zeros(len(self.sizes), np.int64)
        placed = np.zeros(len(self.sizes), bool)
        for i in order:
            beside = np.flatnonzero(placed & self._beside(i) & (self.typical > 0))
            starts = low[beside]
            ends = starts + self.typical[beside]
            by_start = np.argsort(starts, kind="stable")
            # The gap below each slot in turn begins at the largest end so far.
            floors = np.maximum.accumulate(np.concatenate([[0], ends[by_start]]))
            fits = floors[:-1] + self.typical[i] <= starts[by_start]
            low[i] = floors[int(np.argmax(fits)) if fits.any() else -1]
            placed[i] = True
        return low

    # ---------------------------------------------------------- for all values

    def _for_all_values(self, low: np.ndarray) -> tuple[list[Dim], Dim]:
        """The same arrangement with symbolic offsets: who lies above whom stays."""
        offsets: list[Dim] = [0] * len(self.sizes)
        ends: list[Dim] = [0] * len(self.sizes)
        rank = np.empty(len(self.sizes), np.int64)
        rank[np.lexsort((self.typical, low))] = np.arange(len(self.sizes))
        for i in np.argsort(rank):
            below = np.flatnonzero(self._beside(i) & (rank < rank[i]))
            highest_first = below[np.argsort(-(low + self.typical)[below], kind="stable")]
            offsets[i] = _largest([ends[k] for k in highest_first])
            ends[i] = _add(offsets[i], self.sizes[i])
        tallest_first = np.argsort(-(low + self.typical), kind="stable")
        return offsets, _largest([ends[k] for k in tallest_first])


def _largest(dims: Sequence[Dim]) -> Dim:
    result: Dim = 0
    for dim in dict.fromkeys(dims):
        result = larger_of(result, dim)
    return result


def _typical_symbols(sizes: Sequence[Dim]) -> dict[str, int]:
    found = {s for d in sizes if isinstance(d, Expr) for s in d.walk() if isinstance(s, Symbol)}
    return {
        s.name: max(s.lower, TYPICAL if s.upper is None else min(TYPICAL, s.upper)) for s in found
    }
