"""Arrays to try a kernel on, and where two results differ.

Elements are small integers, also in floats: sums and products of them are exact, so that two
programs which do the same arithmetic in another order must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Buffer, Dim, Expr, Load
from tilewright.ir.loop import (
    Accumulate,
    Block,
    For,
    If,
    Kernel,
    Store,
    expressions,
    symbols,
    walk_statements,
)

BOUND = 3  # no sampled number is greater
SPREAD = 17  # sampled sizes lie this far above the least


def sample_sizes(kernel: Kernel, given: Mapping[str, int], seed: int) -> dict[str, int]:
    """A value for each symbol: the one given, or a small one."""
    rng = np.random.default_rng(seed)
    sizes = dict(given)
    for s in symbols(kernel):
        top = s.lower + SPREAD if s.upper is None else min(s.upper, s.lower + SPREAD)
        sizes.setdefault(s.name, int(rng.integers(s.lower, top, endpoint=True)))
    return sizes


def sample_arrays(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> list[np.ndarray]:
    """An array for each input; those that subscripts are read from hold subscripts."""
    rng = np.random.default_rng(seed)
    limits = _subscript_limits(kernel, sizes)
    arrays = []
    for buffer in kernel.inputs:
        shape = tuple(evaluate_dim(d, sizes) for d in buffer.shape)
        low, high = _limits(buffer.dtype)
        if buffer in limits:
            low, high = 0, max(0, min(limits[buffer] - 1, int(buffer.dtype.max)))
        arrays.append(rng.integers(low, high, shape, endpoint=True).astype(buffer.dtype.numpy))
    return arrays


def _limits(dtype: DType) -> tuple[int, int]:
    least = -BOUND if dtype.is_signed else 0
    most = BOUND if dtype.is_float or dtype.is_integer else 1
    return (least, most) if dtype.is_float else (max(least, int(dtype.min)), most)


def _subscript_limits(kernel: Kernel, sizes: Mapping[str, int]) -> dict[Buffer, int]:
    """The smallest axis that each buffer's elements choose a place of."""
    found: dict[Buffer, int] = {}

    def note(indices: tuple[Expr, ...], shape: tuple[Dim, ...]) -> None:
        for i, n in zip(indices, shape, strict=True):
            for x in i.walk():
                if isinstance(x, Load):
                    size = evaluate_dim(n, sizes)
                    found[x.buffer] = min(found.get(x.buffer, size), size)

    for stmt in walk_statements(kernel.body):
        if isinstance(stmt, (Store, Accumulate)):
            note(stmt.indices, stmt.buffer.shape)
        for e in expressions(stmt):
            for x in e.walk():
                if isinstance(x, Load):
                    note(x.indices, x.buffer.shape)
    return found


def has_gathers(kernel: Kernel) -> bool:
    """Whether places in memory are read from memory."""
    return bool(_subscript_limits(kernel, {s.name: s.lower for s in symbols(kernel)}))


def count_statements(block: Block, sizes: Mapping[str, int]) -> int:
    """About how many stores and accumulations run, extents that vary counted as 1."""
    total = 0
    for stmt in block:
        if isinstance(stmt, For):
            total += _known_extent(stmt.extent, sizes) * count_statements(stmt.body, sizes)
        elif isinstance(stmt, If):
            total += count_statements(stmt.body, sizes) + count_statements(stmt.orelse, sizes)
        else:
            total += 1
    return total


def _known_extent(extent: Dim, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate_dim(extent, sizes)
    except KeyError:  # it depends on another loop
        return 1


def first_difference(expected: np.ndarray, found: np.ndarray) -> tuple[int, ...] | None:
    """The first place where two arrays differ by more than rounding; None if there is none."""
    a, b = np.asarray(expected), np.asarray(found)
    with np.errstate(all="ignore"):
        alike = (a == b) | ((a != a) & (b != b))
        if a.dtype.kind not in "biu" and not alike.all():
            x, y = a.astype(np.float64), b.astype(np.float64)
            finite = x[np.isfinite(x)]
            if finite.size and not np.array_equal(finite, np.round(finite)):
                slack = 64 * _epsilon(a.dtype) * max(1.0, float(np.abs(finite).max()))
                alike |= np.abs(x - y) <= slack
    places = np.argwhere(~alike)
    return tuple(int(i) for i in places[0]) if len(places) else None


def _epsilon(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).eps)
