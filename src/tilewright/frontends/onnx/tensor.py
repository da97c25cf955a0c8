"""TensorProto to numpy, with every size checked before it is believed, and external data only from
the model's own folder."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.frontends.builder import HIGHEST_RANK
from tilewright.frontends.names import shown
from tilewright.frontends.onnx.split_weights import OWN_FILE
from tilewright.frontends.onnx.types import element_type
from tilewright.ir.scalar import apply_cast

LARGEST = 1 << 40  # bytes
MAPPED = 1 << 16  # bytes from which external data is mapped


@dataclass(frozen=True, eq=False)
class Files:
    """Where tensors lie that are not in the model's message: the folder of the model, and the
    content of its own file, mapped (split_weights.py)."""

    folder: Path | None = None
    own: memoryview | None = None


# Where TensorProto keeps the elements of each type when they are not in raw_data, and the type of
# the integers there when they are bit patterns.
_FIELDS: dict[str, str] = {
    "f32": "float_data",
    "f64": "double_data",
    "i64": "int64_data",
    "u64": "uint64_data",
    "u32": "uint64_data",
}
_PATTERNS: dict[str, type[np.generic]] = {
    "f16": np.uint16,
    "bf16": np.uint16,
    "f8e4m3fn": np.uint8,
    "f8e4m3fnuz": np.uint8,
    "f8e5m2": np.uint8,
    "f8e5m2fnuz": np.uint8,
}


def to_array(tensor: TensorProto, files: Files, what: str) -> np.ndarray:
    """The tensor's elements; `what` names it in errors."""
    try:
        dtype = element_type(tensor.data_type)
    except ModelError as error:
        raise ModelError(f"{what}: {error.what}", hint=error.hint) from None
    shape = checked_shape(tensor.dims, dtype, what)
    size = int(np.prod(shape, dtype=np.int64)) if shape else 1
    if tensor.HasField("segment"):
        raise ModelError(f"{what} comes in segments, which are not supported")
    if tensor.data_location == TensorProto.EXTERNAL:
        there = stored_bytes(dtype, size)
        raw: bytes | memoryview | None = _read_external(tensor, files, there, what)
    else:
        raw = tensor.raw_data if tensor.HasField("raw_data") else None
    if raw is None:
        return _from_field(tensor, dtype, size, what).reshape(shape)
    wanted = stored_bytes(dtype, size)
    if len(raw) != wanted:
        raise ModelError(
            f"{what} is {dtype}{list(shape)}, which takes {wanted} bytes, but has {len(raw)}",
            hint="the file is damaged or was cut short",
        )
    return _from_raw(raw, dtype, size).reshape(shape)


def checked_shape(dims: Any, dtype: DType, what: str) -> tuple[int, ...]:
    """The declared dimensions, if a tensor of them can exist."""
    total = dtype.bytes
    if len(dims) > HIGHEST_RANK:
        raise ModelError(f"{what} has {len(dims)} dimensions: at most {HIGHEST_RANK}")
    for dim in dims:
        if dim < 0:
            raise ModelError(f"{what} has a negative dimension: {list(dims)}")
        total *= dim
    if total > LARGEST or any(d > LARGEST for d in dims):
        raise ModelError(f"{what} is declared as {dtype}{list(dims)}: more than 1 TiB")
    return tuple(dims)


def stored_bytes(dtype: DType, size: int) -> int:
    """Bytes in a file: types narrower than a byte are packed."""
    return (size * dtype.bits + 7) // 8 if dtype.bits < 8 else size * dtype.bytes


def _from_raw(raw: bytes | memoryview, dtype: DType, size: int) -> np.ndarray:
    if dtype.bits < 8:
        return _unpack(np.frombuffer(raw, np.uint8), dtype, size)
    if dtype.name == "bool":
        truth: np.ndarray = np.frombuffer(raw, np.uint8) != 0
        return truth
    array = np.frombuffer(raw, dtype.numpy.newbyteorder("<") if dtype.bytes > 1 else dtype.numpy)
    return array.astype(dtype.numpy, copy=False)


def _unpack(packed: np.ndarray, dtype: DType, size: int) -> np.ndarray:
    """Elements of fewer than 8 bits, the first in the lowest bits."""
    per_byte = 8 // dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * dtype.bits
    patterns = (packed[:, None] >> shifts) & ((1 << dtype.bits) - 1)
    flat = patterns.reshape(-1)[:size]
    if dtype.is_float:
        return flat.astype(np.uint8).view(dtype.numpy)
    return np.asarray(apply_cast(flat.astype(np.int64), dtype))


def _from_field(tensor: TensorProto, dtype: DType, size: int, what: str) -> np.ndarray:
    """Elements from the typed fields; float16 and the like are bit patterns in int32_data."""
    field = getattr(tensor, _FIELDS.get(dtype.name, "int32_data"))
    packed = dtype.bits < 8
    wanted = stored_bytes(dtype, size) if packed else size
    if len(field) != wanted:
        raise ModelError(
            f"{what} is {dtype}{list(tensor.dims)}, which is {size} elements, "
            f"but the file has {len(field)}",
            hint="the file is damaged or was cut short",
        )
    if packed:
        return _unpack(np.array(field, np.int64).astype(np.uint8), dtype, size)
    if dtype.name in _PATTERNS:
        pattern = _PATTERNS[dtype.name]
        return np.array(field, np.int64).astype(pattern).view(dtype.numpy)
    if dtype.name in _FIELDS:
        return np.array(field, dtype.numpy if dtype.name != "u32" else np.uint64).astype(
            dtype.numpy
        )
    return np.array(field, np.int64).astype(dtype.numpy)


# ---------------------------------------------------------------- external data


def _read_external(tensor: TensorProto, files: Files, wanted: int, what: str) -> memoryview:
    """The bytes of a tensor that lie in a file beside the model, or in the model's own; large ones
    are mapped, which takes no memory of the process."""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    offset = _whole_number(entries.get("offset", "0"), "offset", what)
    length = _whole_number(entries.get("length", str(wanted)), "length", what)
    if location == OWN_FILE and files.own is not None:
        return files.own[offset : offset + length]
    path = _external_path(location, files.folder, what)
    if length != wanted:
        raise ModelError(f"{what} takes {wanted} bytes, but its external data has {length}")
    try:
        size = path.stat().st_size
        if offset + length > size:
            raise ModelError(
                f"{what} lies at bytes {offset} … {offset + length} of {shown(location)!r}, "
                f"which has {size}",
                hint="the data file is damaged, cut short, or belongs to another model",
            )
        with path.open("rb") as file:
            if length < MAPPED:
                file.seek(offset)
                return memoryview(file.read(length))
            begun = offset - offset % mmap.ALLOCATIONGRANULARITY
            size = offset - begun + length
            mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=begun)
            return memoryview(mapped)[offset - begun :]
    except OSError as error:
        raise ModelError(
            f"{what} lies in {shown(location)!r}, which cannot be read: {error.strerror}",
            hint="put the data file beside the model file",
        ) from None


def _external_path(location: str, folder: Path | None, what: str) -> Path:
    """The file, if it is one inside the model's folder, also after following links."""
    if folder is None:
        raise ModelError(
            f"{what} lies in the file {shown(location)!r}, "
            "but the model was given in memory, without a folder to look in",
            hint="give the path of the model file instead",
        )
    parts = Path(location).parts
    windows = "\\" in location or ":" in location
    if not parts or Path(location).is_absolute() or ".." in parts or windows or "\0" in location:
        raise ModelError(
            f"{what} lies in {shown(location)!r}, which is not inside the model's folder",
            hint="external data must be a relative path without '..'",
        )
    path = folder / location
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ModelError(
            f"{what} lies in {shown(location)!r}, a link that leads out of the model's folder",
            hint="copy the data file beside the model file",
        )
    try:
        strange = path.exists() and not path.is_file()
    except OSError as error:  # a name that no file can have
        raise ModelError(f"{what} lies in {shown(location)!r}: {error.strerror}") from None
    if strange:
        raise ModelError(f"{what} lies in {shown(location)!r}, which is not a file")
    return path


def _whole_number(text: str, name: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ModelError(f"{what}: the external data's {name} is {shown(text)!r}, not a number")
    return int(text)


# ---------------------------------------------------------------- sparse


def sparse_to_array(sparse: onnx.SparseTensorProto, files: Files, what: str) -> np.ndarray:
    """The dense form of a sparse tensor: indices are flat, or one row of subscripts each."""
    values = to_array(sparse.values, files, f"the values of {what}")
    places = to_array(sparse.indices, files, f"the indices of {what}")
    dtype = element_type(sparse.values.data_type)
    shape = checked_shape(sparse.dims, dtype, what)
    if np.prod(shape, dtype=np.int64) > 1 << 26:
        raise ModelError(f"{what} has {list(shape)} elements, too many to be made dense")
    fits = values.ndim == 1 and places.dtype == np.int64 and places.shape[:1] == values.shape
    if (
        not fits
        or places.ndim not in (1, 2)
        or (places.ndim == 2 and places.shape[1] != len(shape))
    ):
        raise ModelError(
            f"{what}: values {list(values.shape)} and indices {list(places.shape)} do not fit"
        )
    out = np.zeros(shape, values.dtype)
    limits = np.array([out.size] if places.ndim == 1 else shape, np.int64)
    rows = places.reshape(len(values), -1)
    if np.any(rows < 0) or np.any(rows >= limits):
        raise ModelError(f"{what}: an index is outside its shape {list(shape)}")
    if places.ndim == 1:
        out.reshape(-1)[places] = values
    else:
        out[tuple(places.T)] = values
    return out
