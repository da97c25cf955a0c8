"""The native functions on streams (runtime/native/stream.c), called with numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.codegen.stream import Stream
from tilewright.codegen.touched import AXES, Touched, touched
from tilewright.runtime import _native

_library = ctypes.CDLL(_native.__file__)


class _Boxes(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int64)] + [
        (name, ctypes.c_void_p)
        for name in ("row", "memory", "start", "extents", "steps", "width", "reads", "writes")
    ]


class _Cells(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int64),
        ("writer", ctypes.c_void_p),
        ("readers", ctypes.c_void_p),
    ]


def _function(name: str, result: type) -> ctypes._CFuncPtr:
    function = getattr(_library, name)
    function.restype = result
    return function


_dependences = _function("tw_dependences", ctypes.c_int64)
_place_waits = _function("tw_place_waits", ctypes.c_int64)
_check_waits = _function("tw_check_waits", ctypes.c_int32)
_events = _function("tw_events", ctypes.c_int64)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def queue_numbers(stream: Stream) -> np.ndarray:
    """The queue of every instruction, by its number in the target."""
    names = [q.name for q in stream.target.queues]
    of_site = np.array([names.index(s.instruction.queue) for s in stream.sites], np.int32)
    return np.ascontiguousarray(of_site[stream.site])


def dependences(stream: Stream) -> np.ndarray:
    """need[i, p]: the last instruction of queue p that must be done before instruction i begins;
    -1 for none. Found by following every byte through the stream."""
    boxes = touched(stream)
    queue = queue_numbers(stream)
    queues = len(stream.target.queues)
    granule = _granule(boxes)
    names = [m.name for m in stream.target.memories]
    keep, cells = [], (_Cells * len(names))()
    for k, name in enumerate(names):
        count = -(-stream.sizes.get(name, 0) // granule)
        writer = np.full(count, -1, np.int32)
        readers = np.full((count, queues), -1, np.int32)
        keep += [writer, readers]
        cells[k] = _Cells(count, _pointer(writer), _pointer(readers))
    columns = _columns(boxes)
    arguments = _Boxes(len(boxes.row), *(_pointer(c) for c in columns))
    need = np.empty((len(stream), queues), np.int32)
    outside = _dependences(
        ctypes.c_int64(len(stream)),
        ctypes.c_int32(queues),
        _pointer(queue),
        ctypes.byref(arguments),
        ctypes.c_int64(granule),
        cells,
        _pointer(need),
    )
    if outside:
        raise CompileError(f"instruction {outside - 1} touches bytes outside of its memory")
    return need


def _columns(b: Touched) -> Sequence[np.ndarray]:
    wide = (b.row, b.memory, b.start, b.extents, b.steps, b.width)
    flags = (b.reads, b.writes)
    return [np.ascontiguousarray(c, np.int64) for c in wide] + [
        np.ascontiguousarray(c, np.uint8) for c in flags
    ]


def _granule(b: Touched) -> int:
    """The largest piece of memory that every instruction touches wholly or not at all."""
    lengths = b.extents[:, AXES - 1] * b.width
    contiguous = b.steps[:, AXES - 1] == b.width
    pieces = np.where(contiguous, lengths, b.width)
    every = [b.start, pieces, b.steps[:, 0], b.steps[:, 1]]
    every.append(np.where(contiguous, 0, b.steps[:, 2]))
    return int(np.gcd.reduce(np.concatenate([np.unique(e) for e in every]))) or 1


# ---------------------------------------------------------------- waits


@dataclass(frozen=True, eq=False)
class Waits:
    """Tokens: bit p of pops[i] says that instruction i takes one from queue p before it begins,
    bit q of pushes[j] that instruction j gives one to queue q when it is done."""

    pops: np.ndarray
    pushes: np.ndarray

    @property
    def count(self) -> int:
        return int(np.bitwise_count(self.pops).sum())


def place_waits(stream: Stream, need: np.ndarray) -> Waits:
    """The fewest waits that imply all needs."""
    queue = queue_numbers(stream)
    n, queues = need.shape
    pops, pushes = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
    clock = np.empty((n, queues), np.int32)
    _place_waits(
        ctypes.c_int64(n),
        ctypes.c_int32(queues),
        *(_pointer(a) for a in (queue, np.ascontiguousarray(need), clock, pops, pushes)),
    )
    waits = Waits(pops, pushes)
    _check_linked(stream, queue, waits)
    return waits


def _check_linked(stream: Stream, queue: np.ndarray, waits: Waits) -> None:
    """Only queues that the target links can wait for each other."""
    names = [q.name for q in stream.target.queues]
    linked = {frozenset(pair) for pair in stream.target.tokens}
    for p, name in enumerate(names):
        rows = np.flatnonzero(waits.pops >> p & 1)
        for q in np.unique(queue[rows]):
            if frozenset((name, names[q])) not in linked:
                row = rows[queue[rows] == q][0]
                raise CompileError(
                    f"instruction {row} of {names[q]} must wait for {name}, and "
                    f"{stream.target.name} has no tokens between the two",
                    hint="put an instruction of a queue that is linked to both in between",
                )


@dataclass(frozen=True)
class WaitFault:
    """A stream whose waits do not suffice."""

    instruction: int
    queue: str
    should_wait_for: int | None  # None: a token is taken that is never given

    def __str__(self) -> str:
        if self.should_wait_for is None:
            return (
                f"instruction {self.instruction} takes a token from {self.queue} that is not given"
            )
        return (
            f"instruction {self.instruction} may begin before instruction {self.should_wait_for} "
            f"of {self.queue} is done, and both touch the same memory"
        )


def check_waits(stream: Stream, need: np.ndarray, waits: Waits) -> WaitFault | None:
    """The first place where the waits do not suffice; None if they imply every need."""
    queue = queue_numbers(stream)
    n, queues = need.shape
    pairs = queues * queues
    found = np.zeros(3, np.int64)
    scratch = (
        np.empty((n, queues), np.int32),
        np.empty((pairs, max(n, 1)), np.int32),
        np.empty(pairs, np.int64),
        np.empty(pairs, np.int64),
    )
    arrays = (queue, np.ascontiguousarray(need), waits.pops, waits.pushes, *scratch, found)
    result = _check_waits(ctypes.c_int64(n), ctypes.c_int32(queues), *(_pointer(a) for a in arrays))
    if result == 0:
        return None
    name = stream.target.queues[found[1]].name
    return WaitFault(int(found[0]), name, int(found[2]) if result == 1 else None)
