"""Arrays from DLPack capsules whose element types numpy's own import refuses (bf16, 8-bit floats).

The memory is shared and read-only, and goes back to its owner when the last array on it is gone.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

HOST_DEVICES = (1, 3)  # the CPU's memory, plain and pinned

_TYPES = {  # (DLPack's code, bits): the type
    (4, 16): ml_dtypes.bfloat16,
    (10, 8): ml_dtypes.float8_e4m3fn,
    (11, 8): ml_dtypes.float8_e4m3fnuz,
    (12, 8): ml_dtypes.float8_e5m2,
    (13, 8): ml_dtypes.float8_e5m2fnuz,
}


class _Managed(ctypes.Structure):
    """DLManagedTensor."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("rank", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
]

_api = ctypes.pythonapi
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)
_USED = b"used_dltensor"  # kept here: a capsule does not copy its name


class _Owner:
    """Holds a tensor as numpy sees foreign memory, and gives it back at the end."""

    def __init__(self, tensor: Any, integer: str, itemsize: int) -> None:
        self._tensor = tensor
        t = tensor.contents
        shape = tuple(t.shape[i] for i in range(t.rank))
        strides = tuple(t.strides[i] * itemsize for i in range(t.rank)) if t.strides else None
        self.__array_interface__ = {
            "version": 3,
            "typestr": integer,
            "shape": shape,
            "strides": strides,
            "data": ((t.data or 0) + t.byte_offset, True),
        }

    def __del__(self) -> None:
        if self._tensor.contents.deleter:
            self._tensor.contents.deleter(self._tensor)


def import_dlpack(value: Any) -> np.ndarray:
    """An array on the memory of `value`; BufferError if its element type is not one of ours."""
    capsule = value.__dlpack__()
    tensor = ctypes.cast(_get_pointer(capsule, b"dltensor"), ctypes.POINTER(_Managed))
    t = tensor.contents
    found = _TYPES.get((t.code, t.bits))
    if found is None or t.lanes != 1:
        raise BufferError(f"DLPack type {t.code} of {t.bits} bits and {t.lanes} lanes")
    dtype = np.dtype(found)
    _set_name(capsule, _USED)  # from here on the tensor is ours to give back
    return np.asarray(_Owner(tensor, f"<u{dtype.itemsize}", dtype.itemsize)).view(dtype)
