"""Packing: where in one arena each slot lies, so that slots which live at the same time do not
overlap and the arena is small.

Slots are placed one after another, in a few orders, each at the lowest place that is free while it
lives; the best order wins (greedy by size: Pisarchyk and Lee, arXiv 2001.03288). Sizes may be
symbolic: a place is then free if that is certain for all values of the symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.ir.dims import canonical
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Dim, Expr, Symbol, as_expr
from tilewright.optimize.compare_sizes import is_at_least, larger_of, round_up

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
GUESSES = (1, 16, 128, 1024)  # values of symbols at which places are tried before they are proved
TYPICAL = 2  # the guess at which sizes are compared


@dataclass(frozen=True)
class Lifetime:
    """Bytes needed from step `first` to step `last`, both included."""

    size: Dim
    first: int
    last: int


@dataclass(frozen=True)
class Packing:
    """Offsets in the order of the lifetimes; `size` of the arena, `least` any arena must have
    (at the symbols' typical values, like `typical`, the size)."""

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
        if not group:
            continue
        packer = _Packer([sizes[i] for i in group], [lifetimes[i] for i in group])
        places, size = packer.best()
        offsets |= {i: _add(base, p) for i, p in zip(group, places, strict=True)}
        base, typical, least = _add(base, size), typical + packer.at(size), least + packer.least
    return Packing(tuple(offsets[i] for i in range(len(sizes))), base, typical, least)


def _add(a: Dim, b: Dim) -> Dim:
    return a + b if isinstance(a, int) and isinstance(b, int) else canonical(as_expr(a) + b)


class _Packer:
    def __init__(self, sizes: Sequence[Dim], lifetimes: Sequence[Lifetime]) -> None:
        self.sizes = list(sizes)
        self.first = np.array([life.first for life in lifetimes])
        self.last = np.array([life.last for life in lifetimes])
        self.samples = _samples(self.sizes)
        self.middle = min(TYPICAL, len(self.samples) - 1)
        self.size_at = np.array([self.values(s) for s in self.sizes], np.int64)
        self.typical = self.size_at[:, self.middle]
        self.least = self._most_alive()

    def values(self, dim: Dim) -> list[int]:
        """The dimension at each sample."""
        return [evaluate_dim(dim, s) for s in self.samples]

    def at(self, dim: Dim) -> int:
        """The dimension at the typical sample."""
        return evaluate_dim(dim, self.samples[self.middle])

    def _most_alive(self) -> int:
        """The most bytes alive in one step."""
        change = np.zeros(int(self.last.max()) + 2, np.int64)
        np.add.at(change, self.first, self.typical)
        np.add.at(change, self.last + 1, -self.typical)
        return int(change.cumsum().max())

    def best(self) -> tuple[list[Dim], Dim]:
        """The packing of the best order; the first that is as small as can be."""
        best: tuple[list[Dim], Dim] | None = None
        for order in ORDERS:
            found = self._place_all(order(self.typical, self.first, self.last))
            if best is None or self.at(found[1]) < self.at(best[1]):
                best = found
            if self.at(best[1]) <= self.least:
                break
        assert best is not None
        return best

    def _place_all(self, order: np.ndarray) -> tuple[list[Dim], Dim]:
        count = len(self.sizes)
        offsets: list[Dim] = [0] * count
        ends: list[Dim] = [0] * count
        low = np.zeros((count, len(self.samples)), np.int64)  # offsets at each sample
        placed = np.zeros(count, bool)
        total: Dim = 0
        for i in order:
            live = placed & (self.first <= self.last[i]) & (self.last >= self.first[i])
            beside = np.flatnonzero(live & (self.size_at.max(axis=1) > 0))
            offsets[i] = self._place(int(i), beside, offsets, ends, low)
            ends[i] = _add(offsets[i], self.sizes[i])
            low[i] = self.values(offsets[i])
            placed[i] = True
            total = larger_of(total, ends[i])
        return offsets, total

    def _place(
        self,
        i: int,
        beside: np.ndarray,
        offsets: list[Dim],
        ends: list[Dim],
        low: np.ndarray,
    ) -> Dim:
        """The lowest free offset for slot i: 0, or the end of a slot that lives beside it."""
        if not len(beside):
            return 0
        start = np.concatenate([np.zeros((1, low.shape[1]), np.int64), self._ends(beside, low)])
        # [place, slot, sample]: the place lies wholly below the slot, or wholly above it.
        below = start[:, None] + self.size_at[i] <= low[beside]
        above = start[:, None] >= self._ends(beside, low)
        free = (below | above).all(axis=(1, 2))
        for place in np.argsort(start[:, self.middle], kind="stable"):
            if free[place]:
                offset: Dim = 0 if place == 0 else ends[beside[place - 1]]
                if self._is_free(i, offset, beside, offsets, ends):
                    return offset
        return _largest([ends[k] for k in beside])

    def _ends(self, slots: np.ndarray, low: np.ndarray) -> np.ndarray:
        return low[slots] + self.size_at[slots]

    def _is_free(
        self, i: int, offset: Dim, beside: np.ndarray, offsets: list[Dim], ends: list[Dim]
    ) -> bool:
        """Whether a place that is free at all samples is free for all values."""
        if isinstance(offset, int) and isinstance(self.sizes[i], int):
            return True
        end = _add(offset, self.sizes[i])
        return all(is_at_least(offset, ends[k]) or is_at_least(offsets[k], end) for k in beside)


def _largest(dims: Sequence[Dim]) -> Dim:
    result: Dim = 0
    for dim in dims:
        result = larger_of(result, dim)
    return result


def _samples(sizes: Sequence[Dim]) -> list[dict[str, int]]:
    """Values of all symbols to try sizes at; one empty sample when there are none."""
    found = {
        s.name: s for d in sizes if isinstance(d, Expr) for s in d.walk() if isinstance(s, Symbol)
    }
    symbols = [found[name] for name in sorted(found)]
    if not symbols:
        return [{}]
    levels = [{s.name: _clip(guess, s) for s in symbols} for guess in GUESSES]
    # One symbol large and the others small: sizes that grow in different directions.
    mixed = [{s.name: _clip(1024 if s is big else 1, s) for s in symbols} for big in symbols[:4]]
    return [*levels, *mixed] if len(symbols) > 1 else levels


def _clip(value: int, symbol: Symbol) -> int:
    value = value if symbol.upper is None else min(value, symbol.upper)
    return max(value, symbol.lower)


Order = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

ORDERS: tuple[Order, ...] = (
    lambda size, first, last: np.lexsort((first, -size)),  # large ones first
    lambda size, first, last: np.lexsort((first, -size * (last - first + 1))),
    lambda size, first, last: np.lexsort((-size, first - last)),  # long-lived ones first
    lambda size, first, last: np.lexsort((-size, first)),  # in the order of the program
)
