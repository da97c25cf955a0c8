"""Scalar types: one frozen record each, with its numpy counterpart."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tilewright.base.errors import CompileError, did_you_mean
from tilewright.base.node import cached_property

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Kind(enum.Enum):
    """What family a scalar type belongs to."""

    FLOAT = "float"
    INT = "int"
    UINT = "uint"
    BOOL = "bool"


@dataclass(frozen=True, eq=False)
class DType:
    """A scalar type. `bits` is its width as a value; in memory it takes `bytes` whole bytes
    (sub-byte types are stored one to a byte, as ml_dtypes does). There is one object for each."""

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype

    @cached_property
    def bytes(self) -> int:
        return self.numpy.itemsize

    @cached_property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @cached_property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; bool is neither."""
        return self.kind in (Kind.INT, Kind.UINT)

    @property
    def is_signed(self) -> bool:
        return self.kind in (Kind.INT, Kind.FLOAT)

    @cached_property
    def min(self) -> int | float:
        """The smallest value (-inf for types that have it)."""
        if self.kind is Kind.BOOL:
            return 0
        if self.is_integer:
            return -(1 << (self.bits - 1)) if self.kind is Kind.INT else 0
        return float("-inf") if self._has_infinity else float(ml_dtypes.finfo(self.numpy).min)

    @cached_property
    def max(self) -> int | float:
        """The largest value (inf for types that have it)."""
        if self.kind is Kind.BOOL:
            return 1
        if self.is_integer:
            return (1 << (self.bits - (self.kind is Kind.INT))) - 1
        return float("inf") if self._has_infinity else float(ml_dtypes.finfo(self.numpy).max)

    def round(self, value: float) -> float:
        """The value of this float type that is nearest to `value`."""
        with np.errstate(all="ignore"):
            return float(self.numpy.type(value))

    def holds(self, value: int | float | bool) -> bool:
        """Whether a number is one of this type's, as it is."""
        if self.is_float:
            return self.round(float(value)) == value
        return bool(self.min <= value <= self.max) and int(value) == value

    @property
    def _has_infinity(self) -> bool:
        with np.errstate(all="ignore"):
            return bool(np.isinf(np.array(np.inf).astype(self.numpy)))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return dtype, (self.name,)

    def __getitem__(self, shape: object) -> BufferType:
        """f32[M, 16]: how kernels name the type of an array."""
        return BufferType(self, shape if isinstance(shape, tuple) else (shape,))

    __iter__ = None  # a type is no sequence, though it takes subscripts


@dataclass(frozen=True)
class BufferType:
    """An array of `dtype`, as Python writes it: f32[M, 16], or f32[M, 16] @ "sram" for one in the
    memory of that name. Dimensions are numbers or symbolic (ir/expr.py)."""

    dtype: DType
    shape: tuple[Any, ...]
    memory: str | None = None

    def __matmul__(self, memory: str) -> BufferType:
        return BufferType(self.dtype, self.shape, memory)

    def __str__(self) -> str:
        where = "" if self.memory is None else f' @ "{self.memory}"'
        return f"{self.dtype}[{', '.join(map(str, self.shape)) or '()'}]{where}"

    __repr__ = __str__


def _make(name: str, kind: Kind, bits: int, numpy_type: DTypeLike) -> DType:
    return DType(name, kind, bits, np.dtype(numpy_type))


f64 = _make("f64", Kind.FLOAT, 64, np.float64)
f32 = _make("f32", Kind.FLOAT, 32, np.float32)
f16 = _make("f16", Kind.FLOAT, 16, np.float16)
bf16 = _make("bf16", Kind.FLOAT, 16, ml_dtypes.bfloat16)
f8e4m3fn = _make("f8e4m3fn", Kind.FLOAT, 8, ml_dtypes.float8_e4m3fn)
f8e4m3fnuz = _make("f8e4m3fnuz", Kind.FLOAT, 8, ml_dtypes.float8_e4m3fnuz)
f8e5m2 = _make("f8e5m2", Kind.FLOAT, 8, ml_dtypes.float8_e5m2)
f8e5m2fnuz = _make("f8e5m2fnuz", Kind.FLOAT, 8, ml_dtypes.float8_e5m2fnuz)
i64 = _make("i64", Kind.INT, 64, np.int64)
i32 = _make("i32", Kind.INT, 32, np.int32)
i16 = _make("i16", Kind.INT, 16, np.int16)
i8 = _make("i8", Kind.INT, 8, np.int8)
i4 = _make("i4", Kind.INT, 4, ml_dtypes.int4)
u64 = _make("u64", Kind.UINT, 64, np.uint64)
u32 = _make("u32", Kind.UINT, 32, np.uint32)
u16 = _make("u16", Kind.UINT, 16, np.uint16)
u8 = _make("u8", Kind.UINT, 8, np.uint8)
u4 = _make("u4", Kind.UINT, 4, ml_dtypes.uint4)
bool_ = _make("bool", Kind.BOOL, 8, np.bool_)

index = i64  # loop variables, extents and subscripts

DTYPES: dict[str, DType] = {
    t.name: t
    for t in (
        *(f64, f32, f16, bf16, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz),
        *(i64, i32, i16, i8, i4, u64, u32, u16, u8, u4, bool_),
    )
}
_BY_NUMPY = {t.numpy: t for t in DTYPES.values()}


def dtype(name: str) -> DType:
    """The scalar type called `name`."""
    if name not in DTYPES:
        hint = did_you_mean(name, list(DTYPES))
        raise CompileError(f"there is no scalar type called {name!r}", hint=hint)
    return DTYPES[name]


def from_numpy(numpy_type: DTypeLike) -> DType:
    """The scalar type that numpy calls `numpy_type`."""
    found = _BY_NUMPY.get(np.dtype(numpy_type))
    if found is None:
        raise CompileError(
            f"numpy type {np.dtype(numpy_type)} has no counterpart here",
            hint="supported: " + ", ".join(DTYPES),
        )
    return found
