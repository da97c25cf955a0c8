"""Work that forked processes do side by side: Python's threads take turns, LLVM's calls too.

A forked process has all that was made here, so that only a name goes to it and its result comes
back. What is lost (there is no fork, no memory, a process was killed, the work has an error) is
left out of the results: whoever asked does it where its error is seen.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.reduction import ForkingPickler
from types import MappingProxyType
from typing import Any, TypeVar, cast

from tilewright.runtime.system import available_cpus, available_memory

COMPILE_BYTES = 160 << 20  # what a process takes that compiles kernels
KERNELS = 2  # for each process at least: to start it takes half as long as to compile one

_DIE_WITH_PARENT = 1  # prctl(2): PR_SET_PDEATHSIG
_forking = threading.Lock()  # one of several threads that compile forks, the others go on alone
_work: Callable[[str], object] | None = None  # of this process, where it was forked for it
T = TypeVar("T")


def in_processes(
    work: Callable[[str], T], names: Sequence[str], each: int = KERNELS
) -> Generator[tuple[str, T], None, None]:
    """What `work` makes of each name, as it comes, in other processes that do so many of them
    `each` at least; results are pickled on their way. Not of all names. Who may stop before the
    end closes it, so that the processes end and others may fork."""
    processes = processes_for(len(names), each)
    if processes < 2 or not _forking.acquire(blocking=False):
        return
    try:
        yield from _results(work, names, processes)
    finally:
        _forking.release()


def processes_for(kernels: int, each: int = KERNELS) -> int:
    """How many processes there is work and room for; 0 where none can be forked."""
    if sys.platform != "linux":  # elsewhere libraries of the system do not survive it
        return 0
    if multiprocessing.current_process().daemon:  # which may have no children: of somebody's pool
        return 0
    room = available_memory()
    most = min(available_cpus(), kernels // each)
    return most if room is None else min(most, room // COMPILE_BYTES)


def _results(
    work: Callable[[str], T], names: Sequence[str], processes: int
) -> Iterator[tuple[str, T]]:
    """What `work` makes of each name, in other processes."""
    forks = _Forks()
    try:
        pool = ProcessPoolExecutor(processes, forks, _begin, (work, os.getpid()))
    except (OSError, ImportError, NotImplementedError):  # the system has no semaphores
        return
    try:
        asked = _ask(pool, names)
        for done in as_completed(asked):
            if done.exception() is not None:
                return  # what cannot be sent, or no process is left: the next would be no better
            found = done.result()
            if found is not None:
                yield asked[done], cast("tuple[T]", found)[0]
    except (OSError, BrokenProcessPool):  # one could not be started, or was killed
        return
    except BaseException:  # Ctrl-C: nobody waits for what has begun
        for process in forks.started:
            if process.is_alive():
                process.kill()
        raise
    finally:
        with suppress(OSError):  # what it would tell may be closed, where processes were killed
            pool.shutdown(wait=False, cancel_futures=True)


class _Forks(ForkContext):
    """The way to start processes that fork, with those that it started."""

    def __init__(self) -> None:
        self.started: list[ForkProcess] = []

    def Process(self, *given: Any, **named: Any) -> ForkProcess:  # type: ignore[override]
        self.started.append(ForkProcess(*given, **named))
        return self.started[-1]


def _ask(
    pool: ProcessPoolExecutor, names: Sequence[str]
) -> dict[Future[tuple[object] | None], str]:
    with warnings.catch_warnings():
        # Python warns of locks that nobody releases in a forked process, where the threads that
        # hold them are not. Ours are held while it is forked (`os.register_at_fork`).
        warnings.simplefilter("ignore", DeprecationWarning)
        return {pool.submit(_do, name): name for name in names}


def _begin(work: Callable[[str], object], parent: int) -> None:
    """In the forked process: Ctrl-C is the parent's to handle, whose end is the end of this one."""
    global _work  # noqa: PLW0603 (what the process is for)
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    gc.freeze()  # what the parent made is not looked through again, nor copied for that


def _do(name: str) -> tuple[object] | None:
    assert _work is not None
    try:
        return (_work(name),)
    except Exception:  # noqa: BLE001 (told where it is done again)
        return None


def _proxy(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


ForkingPickler.register(MappingProxyType, lambda found: (_proxy, (dict(found),)))
