"""Memory for calls: a few sets of arenas for scratch, each used by one call at a time, and the
memory of large outputs."""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.runtime import _native

PATIENCE = 1.0  # seconds, after which a waiting call looks for lost sets
LARGE = 32 << 20  # bytes; what is smaller glibc keeps itself (M_MMAP_THRESHOLD, mallopt(3))
LINE = 64  # bytes at whose multiples arrays begin: kernels write whole lines past the caches there


class ArenaSet:
    """One block of memory for each arena of a plan, and the number that calls go by.

    A block that is too small is given back before a larger one is asked for, so that a set never
    holds more than its largest call needed.
    """

    def __init__(self, number: int, arenas: int) -> None:
        self.number = number
        self.fitted: object = None  # what it is known to be large enough for
        self.addresses = [0] * arenas
        self._sizes = [0] * arenas
        self._release = weakref.finalize(self, _release, self.addresses, self._sizes)
        self._release.atexit = False  # other threads may still use it then

    def growth(self, sizes: Sequence[int]) -> int:
        """Bytes that `ensure` would ask the system for, beyond what the set holds."""
        return sum(max(0, new - old) for new, old in zip(sizes, self._sizes, strict=True))

    def ensure(self, sizes: Sequence[int]) -> None:
        """Makes every block at least so large."""
        for i, size in enumerate(sizes):
            if size > self._sizes[i]:
                _native.release(self.addresses[i], self._sizes[i])
                self.addresses[i] = self._sizes[i] = 0
                self.addresses[i] = _native.allocate(size)
                self._sizes[i] = size


def _release(addresses: list[int], sizes: list[int]) -> None:
    for address, size in zip(addresses, sizes, strict=True):
        _native.release(address, size)


class ArenaPool:
    """At most `limit` sets, made when first needed; who comes when all are in use waits.

    A set that got lost (Ctrl-C can come between any two steps of a call) is made again: only
    those that somebody still holds count.
    """

    def __init__(self, limit: int, make: Callable[[int], ArenaSet]) -> None:
        self.limit = limit
        self._make = make
        self._numbers = itertools.count(1)
        self._free: list[ArenaSet] = []
        self._waiting = 0
        self._begin()

    def take(self) -> ArenaSet:
        """The set used last, whose memory is still in the caches; it is the caller's until put."""
        with self._lock:
            while not self._free:
                if len(self._all) < self.limit:
                    arenas = self._make(next(self._numbers))
                    self._all.add(arenas)
                    return arenas
                self._wait()
            return self._free.pop()

    def put(self, arenas: ArenaSet) -> None:
        with self._lock:
            self._free.append(arenas)
            if self._waiting:
                self._returned.notify()

    def _wait(self) -> None:
        self._waiting += 1
        try:
            self._returned.wait(PATIENCE)
        finally:
            self._waiting -= 1

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._returned = threading.Condition(self._lock)
        self._all = weakref.WeakSet(self._free)

    def after_fork(self) -> None:
        """In a forked process: the threads that hold sets or the lock do not exist here."""
        self._waiting = 0
        self._begin()


# ---------------------------------------------------------------- outputs


class OutputPool:
    """Makes arrays for outputs, and keeps the memory of as many large ones as a call has outputs
    for the next call, once nobody holds the arrays.

    A C library gives so much back to the system at once, and the system clears the pages of the
    next output: filling 33 MB took three times as long. Any number of threads may use a pool: lists
    and their methods are atomic.
    """

    def __init__(self, outputs: int) -> None:
        self._free: list[np.ndarray] = []  # bytes, [n]
        self._most = outputs

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A new array of undefined elements. Its memory is free again once no array and no view
        of it is left."""
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE:
            return np.empty(shape, dtype)
        memory = self._take(size + LINE)
        start = -memory.__array_interface__["data"][0] % LINE
        # Views of an array refer to what it lies on; another array they would pass over.
        whole: Any = memory  # numpy says that arrays are buffers, but not before Python 3.12
        block: Any = (ctypes.c_char * size).from_buffer(whole, start)
        weakref.finalize(block, _give, self._free, self._most, memory).atexit = False
        array: np.ndarray = np.ndarray(shape, dtype, block)
        return array

    def _take(self, size: int) -> np.ndarray:
        """Free memory of this size, or new memory. Free memory of other sizes belonged to calls of
        other shapes, and goes."""
        left = []
        found = None
        while self._free and found is None:
            try:
                memory = self._free.pop()
            except IndexError:  # another thread took it
                break
            if memory.size == size:
                found = memory
            else:
                left.append(memory)
        if found is None:
            return np.empty(size, np.uint8)
        self._free.extend(left)
        return found


def _give(free: list[np.ndarray], most: int, memory: np.ndarray) -> None:
    if len(free) < most:
        free.append(memory)
