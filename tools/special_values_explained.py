"""Where results on special values may differ from ONNX's reference evaluator, and why.

Each row names operators, types of the result, and a condition on one element; docs/semantics.md has
the same list in words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Difference:
    """One element: what we found, what the reference has, the operands that broadcast to it, and
    all inputs whole."""

    op: str
    dtype: str
    found: Any
    wanted: Any
    operands: tuple[Any, ...]
    inputs: tuple[np.ndarray, ...]

    def text(self) -> str:
        shown = ", ".join(str(x) for x in self.operands)
        return f"{self.op}({shown}) = {self.found}, not {self.wanted}"


@dataclass(frozen=True)
class Explained:
    reason: str
    ops: frozenset[str]
    when: Callable[[Difference], bool]

    def applies(self, d: Difference) -> bool:
        return d.op in self.ops and bool(self.when(d))


def _ops(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _zeros(d: Difference) -> bool:
    return d.found == 0 and d.wanted == 0


def _number(value: Any) -> float:
    return float(np.float64(value))


def _outside(d: Difference) -> bool:
    """Whether a float does not fit the integer type that it was converted to."""
    x, info = _number(d.operands[0]), np.iinfo(d.dtype)
    return not info.min <= np.trunc(x) <= info.max if np.isfinite(x) else True


def _near(d: Difference, relative: float, absolute: float = 0.0) -> bool:
    a, b = _number(d.found), _number(d.wanted)
    return abs(a - b) <= max(absolute, relative * max(abs(a), abs(b)))


def _is_mean(d: Difference) -> bool:
    """Whether the element is the mean of its operands."""
    mean = float(np.mean([_number(x) for x in d.operands]))
    return abs(_number(d.found) - mean) <= 8e-3 * abs(mean)


def _not_finite(d: Difference) -> bool:
    """Whether an input that the element may depend on has an infinity or NaN."""
    floats = [a.astype(np.float64) for a in d.inputs if a.dtype.kind in "fV"]
    return any(not np.isfinite(a).all() for a in floats)


def _nan(value: Any) -> bool:
    return bool(np.isnan(_number(value)))


EXPLAINED: tuple[Explained, ...] = (
    Explained(
        "which zero is the smaller is left open",
        _ops("Max Min Relu Clip HardSwish"),
        _zeros,
    ),
    Explained(
        "sign keeps a zero's sign; numpy's gives 0",
        _ops("Sign"),
        _zeros,
    ),
    Explained(
        "a sum of -0 and -0 is -0, as in IEEE 754; the reference begins with 0",
        _ops("Sum"),
        _zeros,
    ),
    Explained(
        "a float that does not fit an integer: ours saturates, C and numpy leave it undefined",
        _ops("Cast"),
        lambda d: d.dtype.startswith(("int", "uint")) and _outside(d),
    ),
    Explained(
        "16-bit floats: ours rounds once, the reference after every step",
        _ops("Gelu ReduceLogSumExp"),
        lambda d: d.dtype in ("float16", "bfloat16") and _near(d, 0.07, 8e-3),
    ),
    Explained(
        "GELU of -inf is its limit; the reference multiplies infinity by 0",
        _ops("Gelu"),
        lambda d: d.found == 0 and np.isneginf(float(d.operands[0])),
    ),
    Explained(
        "16-bit floats: ours keeps the sum in f32, the reference's overflows",
        _ops("Mean"),
        lambda d: d.dtype in ("float16", "bfloat16") and _is_mean(d) and np.isinf(d.wanted),
    ),
    Explained(
        "a default of 0.01 is the decimal; the reference takes the nearest f32",
        _ops("LeakyRelu"),
        lambda d: d.dtype == "float64" and _near(d, 3e-8),
    ),
    Explained(
        "PRelu multiplies below 0 alone, as its definition says; the reference at 0 too",
        _ops("PRelu"),
        lambda d: d.found == 0 and d.operands[0] == 0,
    ),
    Explained(
        "integers of 64 bits are exact; the reference computes them as f64",
        _ops("ReduceMean Shrink"),
        lambda d: d.dtype in ("int64", "uint64"),
    ),
    Explained(
        "the order of a product is left open: 0 times an overflow, or not",
        _ops("ReduceProd"),
        lambda d: _nan(d.found) != _nan(d.wanted) or not np.isfinite(_number(d.found)),
    ),
    Explained(
        "an element that only padding or a factor of 0 keeps out: 0 times infinity is NaN",
        _ops("ConvTranspose DFT STFT"),
        lambda d: not (np.isfinite(d.found) and np.isfinite(d.wanted)) and _not_finite(d),
    ),
    Explained(
        "the reference interpolates the nearest element too, with factors of 0",
        _ops("Resize"),
        lambda d: not (np.isfinite(d.found) and np.isfinite(d.wanted)) and _not_finite(d),
    ),
    Explained(
        "the reference takes NaN for padding, and leaves it out",
        _ops("LpPool"),
        lambda d: _nan(d.found) and _not_finite(d),
    ),
    Explained(
        "a scale that is no number: infinite, NaN or 0",
        _ops("DynamicQuantizeLinear QuantizeLinear"),
        _not_finite,
    ),
)
