"""Values that are found as far as somebody asks for them, and kept for others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from tilewright.base.errors import TilewrightError

T = TypeVar("T")


class Remembered(Generic[T]):
    """What an iterator yields, for several to go through; each value is computed once, when it is
    first asked for. An error at its end is raised for each of them, after the same values."""

    def __init__(self, values: Iterator[T]) -> None:
        self._left: Iterator[T] | None = values
        self._found: list[T] = []
        self._error: TilewrightError | None = None
        self._lock = threading.Lock()  # two threads may not run a generator at once

    def __iter__(self) -> Iterator[T]:
        k = 0
        while self._has(k):
            yield self._found[k]
            k += 1

    def _has(self, k: int) -> bool:
        with self._lock:
            while self._left is not None and len(self._found) <= k:
                try:
                    self._found.append(next(self._left))
                except StopIteration:
                    self._left = None
                except TilewrightError as error:
                    self._left, self._error = None, error
        if k < len(self._found):
            return True
        if self._error is not None:
            raise self._error.with_traceback(None)
        return False
