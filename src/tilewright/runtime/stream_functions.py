"""The native functions on streams (native/stream.c, waits.c, events.c) and what they take:
numbers, numpy arrays of the type that C expects, and structures of both."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.runtime import _native

_library = ctypes.CDLL(_native.__file__)

NUMBER, SMALL = ctypes.c_int64, ctypes.c_int32
I4, I8, U1, U4, U8 = (np.dtype(name) for name in ("i4", "i8", "u1", "u4", "u8"))


class Struct(ctypes.Structure):
    """A structure made of its members' values, in order. Arrays live as long as the structure."""

    kinds: tuple[Any, ...] = ()

    def __init__(self, *values: Any) -> None:
        self.kept = values
        pairs = zip(self.kinds, values, strict=False)
        super().__init__(*[_pointer(k, v) if isinstance(k, np.dtype) else v for k, v in pairs])


def _struct(name: str, **kinds: Any) -> type[Struct]:
    fields = [(k, ctypes.c_void_p if isinstance(v, np.dtype) else v) for k, v in kinds.items()]
    members = {"_fields_": fields, "kinds": tuple(kinds.values()), "__doc__": f"tw_{name}"}
    return type(name, (Struct,), members)


def _pointer(kind: np.dtype, array: np.ndarray | None) -> ctypes.c_void_p | None:
    """The address of an array of a type; None is NULL."""
    if array is None:
        return None
    assert array.dtype == kind, (kind, array.dtype)
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


BoxArrays = _struct(
    "boxes", count=NUMBER, axes=NUMBER, row=I8, memory=I8, start=I8, extents=I8, steps=I8,
    reads=U1, writes=U1,
)  # fmt: skip
CUT = {"count": NUMBER, "granule": NUMBER, "bounds": I8}
Cells = _struct("cells", **CUT, writer=I4, readers=I4)
Needs = _struct("needs", others=I4, own=I4, hazard=U1)
Uses = _struct("uses", use=I4, limit=I4)
Shadow = _struct("shadow", **CUT, writer=I4)
Sync = _struct(
    "sync", n=NUMBER, queues=SMALL, events=SMALL, room=SMALL, queue=I4, depth=I4, pops=U4,
    pushes=U4, awaits=U8, sets=U8, barrier=U1,
)  # fmt: skip
Links = _struct(
    "links", n=NUMBER, queues=SMALL, queue=I4, tokens=U4, idle=U1, events=SMALL, barriers=SMALL
)
Placed = _struct("placed", need=I4, clock=I4, pops=U4, pushes=U4, events=U4, barrier=U1, relay=I4)
Times = _struct(
    "times", issue=NUMBER, ahead=NUMBER, burst=NUMBER, source=SMALL, fetch=NUMBER, rest=NUMBER,
    arrival=NUMBER, serial=SMALL, channels=SMALL, setup=I8, busy=I8, latency=I8, transfer=I8,
    banks=U8, need=I4, own=I4, forward=I8,
)  # fmt: skip
Cycles = _struct(
    "timeline", begin=I8, leave=I8, end=I8, issue=I8, wait=I8, result=I8, bank=I8, bandwidth=I8,
    cause=I8, given=I4, usable=I8, entry=I8,
)  # fmt: skip
Code = _struct(
    "code", fields=NUMBER, operands=NUMBER, site=I4, values=I8, addresses=I8, memory=I8,
    functions=I8, lists=I8,
)  # fmt: skip


def array(kind: type[Struct], items: Sequence[Struct]) -> ctypes.Array[Struct]:
    """Structures one after another; their arrays live as long as it does."""
    found: Any = (kind * len(items))(*items)
    found.kept = tuple(items)
    same: ctypes.Array[Struct] = found
    return same


class NativeFunction:
    """One native function: called with numbers, arrays, structures and None for NULL, of these
    kinds. It gives a 64-bit number."""

    def __init__(self, name: str, *kinds: Any) -> None:
        self.name, self.kinds = name, kinds
        self.function = getattr(_library, f"tw_{name}")
        self.function.restype = ctypes.c_int64

    def __call__(self, *arguments: Any) -> int:
        pairs = zip(self.kinds, arguments, strict=True)
        return int(self.function(*(_argument(k, v) for k, v in pairs)))


def _argument(kind: Any, value: Any) -> Any:
    if isinstance(kind, np.dtype):
        return _pointer(kind, value)
    if isinstance(value, ctypes.Structure):
        assert isinstance(value, kind)
        return ctypes.byref(value)
    return value if isinstance(value, ctypes.Array) else ctypes.c_int64(value)


normalize = NativeFunction("normalize", BoxArrays, I8)
dependences = NativeFunction("dependences", NUMBER, NUMBER, I4, BoxArrays, Cells, Needs)
first_uses = NativeFunction("first_uses", NUMBER, BoxArrays, I8, Cells, Uses)
shadow_run = NativeFunction("shadow_run", BoxArrays, Shadow, NUMBER, I8, I8, U1, NUMBER, U8, U8, I8)
writers = NativeFunction("writers", BoxArrays, Shadow, I8, I8, NUMBER, I4, I8)
place_waits = NativeFunction("place_waits", Links, Placed, I4)
number_events = NativeFunction("number_events", Links, I4, I4, NUMBER, I8, I8, I4)
interleave = NativeFunction("interleave", Sync, I8, I8, I4, I8, I8, I8, I8, I8, I8, I8)
clocks = NativeFunction("clocks", Sync, I8, I4, I4, I4, I8, I8, I8)
events = NativeFunction("events", Sync, Times, Cycles, I8, I8, NUMBER, NUMBER)
streams = NativeFunction("streams", Sync, Times, Cycles, I8, I8, NUMBER, I8, I8, I8)
run = NativeFunction("run_stream", Code, NUMBER, I8, I8)
