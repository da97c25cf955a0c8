"""The native functions on streams (runtime/native/stream.c, waits.c, events.c) and what they take:
structures of numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime import _native

_library = ctypes.CDLL(_native.__file__)


class Struct(ctypes.Structure):
    """A structure made of its members' values, in order. Arrays must be of the type that C expects,
    contiguous; they live as long as the structure."""

    def __init__(self, *values: Any) -> None:
        self.kept = values
        super().__init__(*(pointer(v) if isinstance(v, np.ndarray) else v for v in values))


def pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    """The address of an array; None is NULL."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def _struct(name: str, **members: Any) -> type[Struct]:
    return type(name, (Struct,), {"_fields_": list(members.items()), "__doc__": f"tw_{name}"})


_LONG, _INT, _ARRAY = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p

BoxArrays = _struct(
    "boxes", count=_LONG, axes=_LONG, row=_ARRAY, memory=_ARRAY, start=_ARRAY, extents=_ARRAY,
    steps=_ARRAY, reads=_ARRAY, writes=_ARRAY,
)  # fmt: skip
Cells = _struct("cells", count=_LONG, granule=_LONG, writer=_ARRAY, readers=_ARRAY)
Shadow = _struct("shadow", count=_LONG, granule=_LONG, writer=_ARRAY)
Sync = _struct(
    "sync", n=_LONG, queues=_INT, events=_INT, queue=_ARRAY, depth=_ARRAY, pops=_ARRAY,
    pushes=_ARRAY, awaits=_ARRAY, sets=_ARRAY, barrier=_ARRAY,
)  # fmt: skip
Links = _struct(
    "links", n=_LONG, queues=_INT, queue=_ARRAY, tokens=_ARRAY, idle=_ARRAY, events=_INT,
    barriers=_INT,
)  # fmt: skip
Placed = _struct(
    "placed", need=_ARRAY, clock=_ARRAY, pops=_ARRAY, pushes=_ARRAY, events=_ARRAY,
    barrier=_ARRAY, relay=_ARRAY,
)  # fmt: skip
Times = _struct(
    "times", issue=_LONG, serial=_INT, channels=_INT, setup=_ARRAY, busy=_ARRAY, latency=_ARRAY,
    transfer=_ARRAY, banks=_ARRAY, need=_ARRAY,
)  # fmt: skip
Cycles = _struct(
    "timeline", begin=_ARRAY, leave=_ARRAY, end=_ARRAY, issue=_ARRAY, wait=_ARRAY, bank=_ARRAY,
    bandwidth=_ARRAY, cause=_ARRAY, given=_ARRAY,
)  # fmt: skip

Code = _struct(
    "code", fields=_LONG, operands=_LONG, site=_ARRAY, values=_ARRAY, addresses=_ARRAY,
    memory=_ARRAY, functions=_ARRAY, lists=_ARRAY,
)  # fmt: skip


def array(kind: type[Struct], items: Sequence[Struct]) -> ctypes.Array:
    """Structures one after another; their arrays live as long as it does."""
    found = (kind * len(items))(*items)
    found.kept = tuple(items)
    return found


class Function:
    """One native function: called with numbers, arrays, structures and None for NULL. It gives a
    64-bit number."""

    def __init__(self, name: str) -> None:
        self.function = getattr(_library, f"tw_{name}")
        self.function.restype = ctypes.c_int64

    def __call__(self, *arguments: Any) -> int:
        return self.function(*map(_argument, arguments))


def _argument(value: Any) -> Any:
    if isinstance(value, ctypes.Structure):
        return ctypes.byref(value)
    if isinstance(value, int):
        return ctypes.c_int64(value)
    return value if isinstance(value, ctypes.Array) else pointer(value)


normalize = Function("normalize")
dependences = Function("dependences")
shadow_run = Function("shadow_run")
writers = Function("writers")
place_waits = Function("place_waits")
number_events = Function("number_events")
interleave = Function("interleave")
clocks = Function("clocks")
events = Function("events")
run = Function("run_stream")
