"""Random expressions, programs and graphs, and arrays to run them on: for every test.

All programs are well-defined, and exact: integers wrap, and floats hold integers so small that no
operator rounds. Two ways to run a program must therefore agree to the bit (zeros may differ in
sign). Examples shrink to few, small, plain statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies_expr import COMMON_DTYPES, INPUT_BOUND, SYMBOL_MAX, exprs
from strategies_graph import graphs
from strategies_loop import kernels
from strategies_tensor import tensor_programs

from tilewright.base.dtype import DType
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Symbol

__all__ = [
    "COMMON_DTYPES",
    "array",
    "arrays",
    "exprs",
    "graphs",
    "kernels",
    "same",
    "symbol_values",
    "tensor_programs",
]


def array(seed: int, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """Numbers that depend on `seed` alone: floats are small integers, integers any."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.integers(-INPUT_BOUND, INPUT_BOUND + 1, shape).astype(dtype.numpy)
    if not dtype.is_integer:
        return rng.integers(0, 2, shape).astype(np.bool_)
    low, high = (dtype.min, dtype.max) if seed % 2 else (0, 7)  # large ones every other time
    kind = np.int64 if dtype.is_signed else np.uint64
    return rng.integers(low, high, shape, dtype=kind, endpoint=True).astype(dtype.numpy)


@st.composite
def arrays(
    draw: Callable[..., Any], typed: Iterable[Any], symbols: dict[str, int] | None = None
) -> list[np.ndarray]:
    """One array for each buffer (or value: anything with dtype and shape)."""
    seed = draw(st.integers(0, 255))
    return [
        array(seed + i, t.dtype, [evaluate_dim(d, symbols or {}) for d in t.shape])
        for i, t in enumerate(typed)
    ]


@st.composite
def symbol_values(draw: Callable[..., Any], symbols: Iterable[Symbol]) -> dict[str, int]:
    """A number for each symbol, within its bounds and small."""
    return {s.name: draw(st.integers(s.lower, s.upper or SYMBOL_MAX)) for s in symbols}


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal in type, shape and elements (NaN equals itself)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.all((a == b) | ((a != a) & (b != b))))
