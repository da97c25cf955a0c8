"""The arrays that a kernel is called with: whether they fit its parameters, and what sizes they
give to its symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.base.dtype import DTYPES, DType, Kind
from tilewright.base.errors import CompileError, InputError
from tilewright.ir.bind_symbols import check_size
from tilewright.ir.dims import polynomial
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Buffer, Const, Dim, Expr, Symbol, const
from tilewright.ir.loop import symbols


def number(value: int | float | bool, dtype: DType) -> Const:
    """A Python number as a constant of this type: bools are no numbers, fractions no integers, and
    what is finite stays so; CompileError otherwise."""
    fits = isinstance(value, bool) == (dtype.kind is Kind.BOOL)
    if dtype.is_integer and isinstance(value, float):
        fits = False
    try:
        result = const(value, dtype) if fits else None
    except (CompileError, OverflowError):
        result = None
    if result is None or (math.isfinite(value) and not math.isfinite(result.value)):
        raise CompileError(f"{value} is not a value of {dtype}")
    return result


_NAMES = {t.numpy: t.name for t in DTYPES.values()}


def check_arguments(
    name: str, buffers: Sequence[Buffer], values: Sequence[object]
) -> tuple[list[np.ndarray], dict[str, int]]:
    """The arrays, and the value of each symbol of their shapes; InputError where something does
    not fit. A Python number is taken for an array of one element without dimensions."""
    if len(values) != len(buffers):
        takes = ", ".join(map(str, buffers))
        count = f"{len(buffers)} array{'s' * (len(buffers) != 1)}"
        raise InputError(f"{name} takes {count} and was given {len(values)}", hint=takes)
    arrays = [_as_array(name, b, v) for b, v in zip(buffers, values, strict=True)]
    sizes: dict[str, int] = {}
    for buffer, array in zip(buffers, arrays, strict=True):
        _bind(name, buffer, array, sizes)
    for buffer, array in zip(buffers, arrays, strict=True):
        _check_shape(name, buffer, array, sizes)
    return arrays, sizes


def _as_array(name: str, buffer: Buffer, value: object) -> np.ndarray:
    if isinstance(value, (bool, int, float)) and not buffer.shape:
        try:
            return np.asarray(number(value, buffer.dtype).value, buffer.dtype.numpy)
        except CompileError as error:
            raise InputError(f"{buffer.name} of {name}: {error.what}") from None
    if not isinstance(value, (np.ndarray, np.generic)):
        kind = type(value).__name__
        raise InputError(f"{buffer.name} of {name} is a {kind}", hint="pass a numpy array")
    array = np.asarray(value)
    if array.dtype != buffer.dtype.numpy:
        found = _NAMES.get(array.dtype, str(array.dtype))
        raise InputError(
            f"{buffer.name} of {name} has elements of type {found}, not {buffer.dtype}",
            hint=f"convert it first: .astype({str(buffer.dtype.numpy)!r})",
        )
    return array


def _bind(name: str, buffer: Buffer, array: np.ndarray, sizes: dict[str, int]) -> None:
    """Every dimension with one symbol that is not known yet, such as n or 2*n + 1, tells it."""
    if len(array.shape) != len(buffer.shape):
        raise _misfit(name, buffer, array)
    for dim, n in zip(buffer.shape, array.shape, strict=True):
        unknown = [s for s in _symbols_in(dim) if s.name not in sizes]
        value = _solved(dim, n, unknown[0]) if len(unknown) == 1 else None
        if value is None:
            continue
        try:
            check_size(unknown[0], value)
        except CompileError as error:
            raise InputError(f"{buffer.name} of {name}: {error.what}") from None
        sizes[unknown[0].name] = value


def _solved(dim: Dim, n: int, symbol: Symbol) -> int | None:
    """The symbol's value with dim = n, if dim is a multiple of it plus a constant."""
    terms = polynomial(dim)
    scale = terms.pop((symbol,), 0)
    rest = terms.pop((), 0)
    return None if terms or scale == 0 or (n - rest) % scale else (n - rest) // scale


def _symbols_in(dim: Dim) -> tuple[Symbol, ...]:
    return symbols(dim) if isinstance(dim, Expr) else ()


def _check_shape(name: str, buffer: Buffer, array: np.ndarray, sizes: dict[str, int]) -> None:
    for dim, n in zip(buffer.shape, array.shape, strict=True):
        missing = [s.name for s in _symbols_in(dim) if s.name not in sizes]
        if missing:
            what = f"the arrays of {name} do not tell its dimension {missing[0]}"
            raise InputError(what, hint=f"give it a number first: bind({missing[0]}=…)")
        if evaluate_dim(dim, sizes) != n:
            raise _misfit(name, buffer, array, sizes)


def _misfit(
    name: str, buffer: Buffer, array: np.ndarray, sizes: dict[str, int] | None = None
) -> InputError:
    used = {s.name for d in buffer.shape for s in _symbols_in(d)}
    where = ", ".join(f"{k} = {v}" for k, v in (sizes or {}).items() if k in used)
    what = f"{buffer.name} of {name} has shape {list(array.shape)}"
    return InputError(what, hint=f"it is {buffer}{f' with {where}' if where else ''}")
