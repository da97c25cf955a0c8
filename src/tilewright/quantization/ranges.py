"""The range of a value that its integers stand for, chosen from what was observed.

minmax       all that occurred
percentile   without the rarest at either end
entropy      the limit at which the histogram, in 128 levels, is nearest to itself by the
             Kullback-Leibler divergence
mse          the limit with the least mean square error, of rounding and of clipping
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.quantization.observer import SIDE, Observer

Range = tuple[float, float]

LEVELS = 128  # of a magnitude in 8 bits
CANDIDATES = 64  # limits that are tried


def find_range(observer: Observer, method: str, percentile: float) -> Range:
    """The lowest and highest number to be told from others, with 0 between them."""
    low, high = min(observer.low, 0.0), max(observer.high, 0.0)
    if observer.is_empty or observer.limit == 0:
        return 0.0, 0.0
    limit_low, limit_high = _METHODS[method](observer, percentile)
    return max(low, min(limit_low, 0.0)), min(high, max(limit_high, 0.0))


def _minmax(observer: Observer, percentile: float) -> Range:
    return observer.low, observer.high


def _percentile(observer: Observer, percentile: float) -> Range:
    counts = observer.counts.copy()
    counts[SIDE] += observer.zeros
    below = np.cumsum(counts)
    rare = (1 - percentile / 100) * below[-1]
    width = observer.limit / SIDE
    first = int(np.searchsorted(below, rare, side="right"))
    last = int(np.searchsorted(below, below[-1] - rare))
    return min((first - SIDE) * width, 0.0), max((last + 1 - SIDE) * width, 0.0)


def _limits(observer: Observer) -> np.ndarray:
    """Numbers of bins from 0 that the range may end after, the greatest last."""
    most = max(-observer.low, observer.high) / observer.limit * SIDE
    last = min(SIDE, int(np.ceil(most)))
    return np.unique(np.linspace(min(LEVELS, last), last, CANDIDATES).astype(int))


def _entropy(observer: Observer, percentile: float) -> Range:
    magnitudes = observer.magnitudes.astype(np.float64)
    limits = _limits(observer)
    costs = [_divergence(magnitudes, end) for end in limits]
    limit = float(limits[int(np.argmin(costs))]) * observer.limit / SIDE
    return -limit, limit


def _divergence(magnitudes: np.ndarray, end: int) -> float:
    """How much is lost by LEVELS levels for the first `end` bins; what lies beyond is in the last.

    A level's count is spread evenly over those of its bins in which something occurred."""
    kept = magnitudes[:end].copy()
    inside = kept.copy()
    kept[-1] += magnitudes[end:].sum()
    edges = np.unique(np.linspace(0, end, LEVELS + 1).astype(int))[:-1]
    level = np.repeat(np.arange(len(edges)), np.diff([*edges, end]))
    occurs = kept > 0
    sums = np.add.reduceat(inside, edges)
    filled = np.maximum(np.add.reduceat(occurs.astype(np.float64), edges), 1)
    spread = np.where(occurs, (sums / filled)[level], 0.0)
    total, spread_total = kept.sum(), spread.sum()
    if total == 0 or spread_total == 0:
        return np.inf
    p, q = kept[occurs] / total, np.maximum(spread[occurs] / spread_total, 1e-12)
    return float((p * np.log(p / q)).sum())


def _mse(observer: Observer, percentile: float) -> Range:
    low, high = min(observer.low, 0.0), max(observer.high, 0.0)
    steps = np.linspace(0.2, 1.0, CANDIDATES)
    costs = [square_error(observer, low * f, high * f, (high - low) * f / 255) for f in steps]
    best = float(steps[int(np.argmin(costs))])
    return low * best, high * best


def square_error(observer: Observer, low: float, high: float, step: float) -> float:
    """The sum of squares by which numbers change that are limited and rounded to steps. 0 stays."""
    x, counts = observer.centres, observer.counts
    kept = np.clip(x, low, high)
    # A bin's numbers lie anywhere in it: where steps are wide beside bins, rounding is seen in the
    # middles; where they are not, it is the same everywhere.
    found = np.clip(np.round(kept / step) * step, low, high)
    return float((counts * (found - x) ** 2).sum())


_METHODS: dict[str, Callable[[Observer, float], Range]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
}
METHODS = tuple(_METHODS)
