"""Threads that run the parallel regions of compiled models."""

import os
import threading
import weakref

from tilewright.base.errors import MemoryShortage
from tilewright.runtime import _native
from tilewright.runtime.system import require_memory

MAX_THREADS = 1024  # see native/tilewright_runtime.h
THREAD_BYTES = 10 << 20  # a stack, and what libraries keep for each thread


class ThreadPool:
    """Threads for parallel regions; the thread that calls a model is one of them.

    Any number of threads may call models on one pool: one of them gets the workers, the others run
    their regions alone. Idle workers sleep. In a forked process the pool works, without workers.
    """

    def __init__(self, threads: int) -> None:
        if 1 < threads <= MAX_THREADS:
            require_memory((threads - 1) * THREAD_BYTES, f"starting {threads} threads")
        try:
            handle = _native.pool_create(threads)
        except MemoryError as error:
            raise MemoryShortage(str(error), hint="use fewer threads") from None
        self.threads = threads
        self._handle = handle
        self._destroy = weakref.finalize(self, _native.pool_destroy, handle)
        self._destroy.atexit = False  # other threads may still use it then

    @property
    def handle(self) -> int:
        """What `_native.call` takes; an error once the pool is closed."""
        if self.closed:
            raise ValueError("this thread pool is closed: make a new one, or keep it open")
        return self._handle

    @property
    def closed(self) -> bool:
        return not self._destroy.alive

    def close(self) -> None:
        """Stop the threads, when the calls that use them now are done. Closing twice is fine."""
        self._destroy()

    def __enter__(self) -> "ThreadPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ThreadPool({self.threads}{', closed' if self.closed else ''})"


_shared: dict[int, ThreadPool] = {}
_shared_lock = threading.Lock()


def shared_pool(threads: int) -> ThreadPool:
    """This process's pool of so many threads, started when it is first asked for."""
    with _shared_lock:
        pool = _shared.get(threads)
        if pool is None or pool.closed:
            pool = _shared[threads] = ThreadPool(threads)
        return pool


def _forget_shared_pools() -> None:
    """A forked process starts its own: these have no workers there, and the lock may be held."""
    global _shared_lock  # noqa: PLW0603 (a lock held by a thread that is gone cannot be released)
    _shared_lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_shared_pools)
