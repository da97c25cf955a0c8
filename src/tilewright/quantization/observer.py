"""What values hold while a model is calibrated: their least and greatest, and how often which
numbers occur, in as much memory however many there are."""

from __future__ import annotations

import numpy as np

SIDE = 2048  # bins on either side of 0


class Observer:
    """A histogram of [-limit, limit] in bins of equal width. A larger number doubles the limit
    until it fits: neighbouring bins are joined, and no count is lost."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.limit = 0.0
        self.counts = np.zeros(2 * SIDE, np.int64)
        self.zeros = 0  # numbers that are 0 exactly, which no bin has
        self.is_finite = True

    def add(self, array: np.ndarray) -> None:
        """More numbers."""
        flat = array.reshape(-1)
        if flat.size == 0:
            return
        low, high = float(flat.min()), float(flat.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            self.is_finite = False
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._grow(max(-low, high))
        filled = flat[flat != 0]
        self.zeros += flat.size - filled.size
        if self.limit:
            width = np.float32(self.limit / SIDE)
            bins = np.floor(filled / width).astype(np.int64) + SIDE
            self.counts += np.bincount(np.clip(bins, 0, 2 * SIDE - 1), minlength=2 * SIDE)

    def _grow(self, most: float) -> None:
        if most == 0:
            return
        if self.limit == 0:
            self.limit = most
        while self.limit < most:
            joined = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros(2 * SIDE, np.int64)
            self.counts[SIDE // 2 : SIDE // 2 + SIDE] = joined
            self.limit *= 2

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin."""
        width = self.limit / SIDE
        return (np.arange(2 * SIDE) - SIDE + 0.5) * width

    @property
    def magnitudes(self) -> np.ndarray:
        """The counts of magnitudes, from 0 on; exact zeros are not among them."""
        found: np.ndarray = self.counts[SIDE:] + self.counts[:SIDE][::-1]
        return found
