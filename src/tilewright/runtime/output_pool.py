"""Memory of large outputs, which is kept for the next call once nobody holds the arrays.

A C library gives so much back to the system at once, and the system clears the pages of the next
output: 33 MB took three times as long to fill so, a simple kernel as long again as it computes.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

import numpy as np

LARGE = 32 << 20  # bytes; what is smaller glibc keeps itself (M_MMAP_THRESHOLD, mallopt(3))
LINE = 64  # bytes at whose multiples arrays begin: kernels write whole lines past the caches there


class OutputPool:
    """Makes arrays for outputs, and keeps the memory of as many large ones as a call has outputs.
    Any number of threads may use it: lists and their methods are atomic."""

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
