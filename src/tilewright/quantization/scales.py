"""Scales and zero points: how 8-bit integers stand for a range, and weights for their numbers.

A scheme says what kind of scales there are. `int8`: any, weights with one for each output channel.
`pow2`: powers of two, one for each tensor, no zero points, so that a chip shifts where others
multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.quantization.observer import Observer
from tilewright.quantization.ranges import Range, find_range, square_error

LARGEST = 127  # magnitude of symmetric integers
SMALLEST = 1e-20  # of ranges that are not taken for 0
BIAS = 1 << 30  # magnitude of integers that biases are to keep within
EXACT = 1 << 24  # whole numbers up to which f32 has all
COARSER = 8  # powers of two at most by which weights are coarsened for sums that are exact

INT8, POW2 = "int8", "pow2"
SCHEMES = (INT8, POW2)
I8, U8, SYMMETRIC = "i8", "u8", "symmetric"
ACTIVATIONS = (I8, U8, SYMMETRIC)


@dataclass(frozen=True)
class Scheme:
    """What is asked for."""

    name: str
    method: str
    activations: str
    per_tensor: bool
    percentile: float

    @property
    def shifts(self) -> bool:
        return self.name == POW2


@dataclass(frozen=True)
class Scale:
    """(integer - zero) * step; the type of the integers is that of `zero`."""

    step: float
    zero: np.int8 | np.uint8

    @property
    def low(self) -> float:
        """The lowest number there is."""
        return float((int(np.iinfo(self.zero.dtype).min) - int(self.zero)) * self.step)

    @property
    def high(self) -> float:
        return float((int(np.iinfo(self.zero.dtype).max) - int(self.zero)) * self.step)


@dataclass(frozen=True)
class Weights:
    """Symmetric integers; `step` is one number, or one for each place on `axis`."""

    numbers: np.ndarray
    step: np.ndarray
    axis: int

    @property
    def floats(self) -> np.ndarray:
        """What they stand for."""
        steps = spread(self.step, self.axis, self.numbers.ndim)
        return np.asarray(self.numbers * steps, np.float32)


def spread(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A number, or one for each place on an axis, in a shape that broadcasts."""
    if np.ndim(vector) == 0:
        return vector
    found: np.ndarray = vector.reshape([-1 if a == axis else 1 for a in range(rank)])
    return found


# ---------------------------------------------------------------- activations


def choose_scale(observers: Sequence[Observer], scheme: Scheme) -> Scale:
    """One scale for all that these values hold."""
    ranges = [find_range(o, scheme.method, scheme.percentile) for o in observers]
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    if scheme.shifts:
        return Scale(_power_of_two(observers, (low, high), scheme.method), np.int8(0))
    if high - low < SMALLEST:
        return Scale(1.0, np.uint8(0) if scheme.activations == U8 else np.int8(0))
    if scheme.activations == SYMMETRIC:
        return Scale(_rounded(max(-low, high) / LARGEST), np.int8(0))
    step = _rounded((high - low) / 255)
    lowest = 0 if scheme.activations == U8 else -128
    zero = int(np.clip(np.round(lowest - low / step), lowest, lowest + 255))
    return Scale(step, np.uint8(zero) if scheme.activations == U8 else np.int8(zero))


def _rounded(step: float) -> float:
    """As f32 holds it, in which it is written."""
    return float(np.float32(step))


def _power_of_two(observers: Sequence[Observer], wanted: Range, method: str) -> float:
    """The least power of two that covers the range, or the next lower one if numbers then change
    less; all of the range is covered where that is asked for."""
    most = max(-wanted[0], wanted[1])
    if most < SMALLEST:
        return 1.0
    above = float(2.0 ** np.ceil(np.log2(most / LARGEST)))
    if method == "minmax":
        return above
    steps = [above, above / 2]
    costs = [
        sum(square_error(o, -LARGEST * s, LARGEST * s, s) for o in observers if not o.is_empty)
        for s in steps
    ]
    return steps[int(np.argmin(costs))]


# ---------------------------------------------------------------- weights


def quantise_weights(
    weight: np.ndarray, axis: int | None, scheme: Scheme, bias: np.ndarray | None = None
) -> Weights:
    """A weight in integers, whose output channels are on `axis`, if there are any. `bias` are the
    magnitudes of what is added, a number for each channel, in steps of the other operand: in steps
    of both, they have to fit i32 as well."""
    others = tuple(a for a in range(weight.ndim) if a != axis)
    if scheme.shifts:
        return _shifted_weights(weight, axis, others, 0.0 if bias is None else bias)
    is_one = scheme.per_tensor or axis is None
    most = np.abs(weight).max(axis=None if is_one else others, initial=0.0)
    step = np.where(most < SMALLEST, 1.0, most / LARGEST)
    if bias is not None:
        least = _for_groups(bias, step.size) / BIAS
        step = np.maximum(step, least.max() if is_one else least)
    return _in_steps(weight, step.astype(np.float32), axis or 0)


def _for_groups(bias: np.ndarray, count: int) -> np.ndarray:
    """The largest bias for each of `count` steps: groups of a transposed convolution share."""
    if count == 1 or bias.size == count:
        return bias
    found: np.ndarray = bias.reshape(-1, count).max(axis=0)
    return found


def _in_steps(weight: np.ndarray, step: np.ndarray, axis: int) -> Weights:
    numbers = np.round(weight / spread(step, axis, weight.ndim))
    return Weights(np.clip(numbers, -LARGEST, LARGEST).astype(np.int8), step, axis)


def _shifted_weights(
    weight: np.ndarray, axis: int | None, others: tuple[int, ...], bias: np.ndarray | float
) -> Weights:
    """By a power of two: the one that changes them least, of those whose sums f32 holds exactly,
    for products with integers of 8 bits."""
    most = float(np.abs(weight).max(initial=0.0))
    above = float(2.0 ** np.ceil(np.log2(most / LARGEST))) if most >= SMALLEST else 1.0
    if (largest := float(np.max(bias))) > 0:  # which has to fit i32
        above = max(above, float(2.0 ** np.ceil(np.log2(largest / BIAS))))

    def is_exact(w: Weights) -> bool:
        sums = np.abs(w.numbers.astype(np.int64)).sum(axis=others).max(initial=0)
        return bool(sums * 128 + np.max(bias) / w.step < EXACT)

    steps = (np.asarray(above * 2.0**k, np.float32) for k in range(-1, COARSER))
    tried = [_in_steps(weight, step, axis or 0) for step in steps]
    exact = [w for w in tried if is_exact(w)] or tried[-1:]
    best: Weights = min(exact, key=lambda w: float(((w.floats - weight) ** 2).sum()))
    return best
