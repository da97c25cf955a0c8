"""Scratch memory for calls: a few sets of arenas, each used by one call at a time."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence

from tilewright.runtime import _native


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
    """At most `limit` sets, made when first needed; who comes when all are in use waits."""

    def __init__(self, limit: int, make: Callable[[int], ArenaSet]) -> None:
        self.limit = limit
        self._make = make
        self._free: list[ArenaSet] = []
        self._made = 0
        self._numbers = itertools.count(1)
        self._waiting = 0
        self._renew_locks()

    def take(self) -> ArenaSet:
        """The set used last, whose memory is still in the caches; it is the caller's until put."""
        with self._lock:
            if not self._free and self._made == self.limit:
                self._wait()
            if self._free:
                return self._free.pop()
            self._made += 1
            return self._make(next(self._numbers))

    def put(self, arenas: ArenaSet) -> None:
        with self._lock:
            self._free.append(arenas)
            if self._waiting:
                self._returned.notify()

    def _wait(self) -> None:
        self._waiting += 1
        try:
            while not self._free:
                self._returned.wait()
        finally:
            self._waiting -= 1

    def _renew_locks(self) -> None:
        self._lock = threading.Lock()
        self._returned = threading.Condition(self._lock)

    def after_fork(self) -> None:
        """In a forked process: the threads that hold sets or the lock do not exist here."""
        self._renew_locks()
        self._made = len(self._free)
        self._waiting = 0
