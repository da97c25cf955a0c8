"""Numbers at which operators change what they do, and how two results are compared."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tilewright.base.dtype import DType, Kind, dtype

_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.25, 0.1, 100.0, 127.5, 1e-3, 1e-30, 3.4e-40, 1e30)


def edges(t: DType) -> np.ndarray:
    """Distinct edge values of a type, NaN and infinities included."""
    if t.kind is Kind.BOOL:
        return np.array([False, True])
    if t.is_integer:
        near = {t.min, t.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, t.bits - 1, t.bits, t.max // 2}
        kept = sorted(v for v in near | {t.max - 1, t.max} if t.min <= v <= t.max)
        return np.array(kept, t.numpy)
    largest = _largest(t)
    with np.errstate(all="ignore"):
        sizes = np.array([*_SIZES, largest, largest / 3, np.inf, np.nan], np.float64)
        values = np.concatenate([sizes, -sizes]).astype(t.numpy)
    bits = values.view(_unsigned(t))
    return bits[np.sort(np.unique(bits, return_index=True)[1])].view(t.numpy)


def _largest(t: DType) -> float:
    return t.max if np.isfinite(t.max) else float(np.asarray(_greatest_bits(t)).view(t.numpy))


def _greatest_bits(t: DType) -> np.ndarray:
    """The bits below those of infinity."""
    infinity = np.array(np.inf).astype(t.numpy).view(_unsigned(t))
    return (infinity - 1).astype(_unsigned(t))


def _unsigned(t: DType) -> np.dtype:
    return dtype(f"u{t.numpy.itemsize * 8}").numpy


def wide(a: np.ndarray) -> np.ndarray:
    """Floats as f64, exactly; others as they are."""
    return a.astype(np.float64) if _is_float(a) else a


def _is_float(a: np.ndarray) -> bool:
    return a.dtype.kind == "f" or "float" in a.dtype.name


def identical(a: np.ndarray, b: np.ndarray, *, zeros: bool = True) -> np.ndarray:
    """Where two arrays are equal: NaN equals NaN, and with `zeros` -0 differs from 0."""
    if not _is_float(a):
        return np.asarray(a == b)
    x, y = wide(a), wide(b)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return same & ((np.signbit(x) == np.signbit(y)) | (x != 0)) if zeros else same


def units_apart(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How far results are from the exact ones (f64), in units of the last place of their type; 0
    where both are NaN or the same infinity."""
    info = ml_dtypes.finfo(found.dtype)
    digits, least = int(info.nmant), int(info.minexp)
    with np.errstate(all="ignore"):
        x = found.astype(np.float64)
        rounded = exact.astype(found.dtype).astype(np.float64)
        exponent = np.maximum(np.frexp(rounded)[1] - 1, least)
        unit = np.ldexp(1.0, (exponent - digits).astype(int))
        far = np.abs(x - np.where(np.isinf(rounded), rounded, exact)) / unit
    same = (x == rounded) | (np.isnan(x) & np.isnan(rounded))
    return np.where(same, 0.0, np.where(np.isnan(far), np.inf, far))
