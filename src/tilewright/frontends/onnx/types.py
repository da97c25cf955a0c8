"""ONNX element types and dimensions in our terms."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto

from tilewright.base.dtype import (
    DType,
    bf16,
    bool_,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f16,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    i64,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from tilewright.base.errors import ModelError, did_you_mean
from tilewright.frontends.names import Names, identifier, shown
from tilewright.ir.expr import Dim, Symbol
from tilewright.ir.tensor_type import TensorType

LARGEST_DIM = (1 << 31) - 1

DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: f32,
    TensorProto.UINT8: u8,
    TensorProto.INT8: i8,
    TensorProto.UINT16: u16,
    TensorProto.INT16: i16,
    TensorProto.INT32: i32,
    TensorProto.INT64: i64,
    TensorProto.BOOL: bool_,
    TensorProto.FLOAT16: f16,
    TensorProto.DOUBLE: f64,
    TensorProto.UINT32: u32,
    TensorProto.UINT64: u64,
    TensorProto.BFLOAT16: bf16,
    TensorProto.FLOAT8E4M3FN: f8e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: f8e4m3fnuz,
    TensorProto.FLOAT8E5M2: f8e5m2,
    TensorProto.FLOAT8E5M2FNUZ: f8e5m2fnuz,
    TensorProto.UINT4: u4,
    TensorProto.INT4: i4,
}
ONNX_DTYPES: dict[DType, int] = {t: number for number, t in DTYPES.items()}


def element_type(number: int) -> DType:
    """The element type that ONNX numbers so."""
    found = DTYPES.get(number)
    if found is not None:
        return found
    known = TensorProto.DataType.items()
    name = next((name for name, n in known if n == number), None)
    if name is None or number == TensorProto.UNDEFINED:
        raise ModelError(f"there is no element type number {number}", hint="is the file damaged?")
    raise ModelError(
        f"tensors of {name} are not supported",
        hint="supported: " + ", ".join(TensorProto.DataType.Name(n) for n in DTYPES),
    )


def type_proto(t: TensorType) -> onnx.TypeProto:
    """The type as ONNX writes it; symbols by name, other symbolic dimensions left out."""
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = ONNX_DTYPES[t.dtype]
    proto.tensor_type.shape.SetInParent()
    for dim in t.shape:
        item = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            item.dim_value = dim
        else:
            item.dim_param = str(dim)
    return proto


class Dimensions:
    """The model's symbolic dimensions: each name is one symbol, of `least` or more, or the number
    that `fixed` gives it."""

    def __init__(self, fixed: Mapping[str, int], names: Names, least: int = 0) -> None:
        self._fixed = dict(fixed)
        self._least = least
        self._names = names
        self._symbols: dict[str, Symbol] = {}
        self._used: set[str] = set()
        for name, size in self._fixed.items():
            if not 0 <= size <= LARGEST_DIM:
                raise ModelError(
                    f"the dimension {shown(name)!r} was given as {size}",
                    hint=f"it must be 0 … {LARGEST_DIM}",
                )

    def named(self, name: str) -> Dim:
        """The dimension that the model calls so; `fixed` may name it as the graph would."""
        for known in (name, identifier(name, "dim")):
            self._used.add(known)
            if known in self._fixed:
                return self._fixed[known]
        if name not in self._symbols:
            self._symbols[name] = Symbol(self._names.fresh(identifier(name, "dim")), self._least)
        return self._symbols[name]

    def of(self, dim: onnx.TensorShapeProto.Dimension, value: str, axis: int) -> Dim:
        """A dimension of the value called so. One without name or number is named after it."""
        kind = dim.WhichOneof("value")
        if kind == "dim_value":
            if not 0 <= dim.dim_value <= LARGEST_DIM:
                raise ModelError(
                    f"input {shown(value)!r} has the dimension {dim.dim_value} on axis {axis}",
                    hint=f"dimensions are 0 … {LARGEST_DIM}",
                )
            return dim.dim_value
        name = dim.dim_param if kind == "dim_param" and dim.dim_param else f"{value}_{axis}"
        return self.named(name)

    def check_all_used(self) -> None:
        """A name that was fixed must be a dimension of the model."""
        for name in self._fixed:
            if name not in self._used:
                raise ModelError(
                    f"the model has no dimension called {shown(name)!r}",
                    hint=did_you_mean(name, sorted(self._used)),
                )
