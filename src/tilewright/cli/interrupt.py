"""Ctrl-C that is never lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SOON = 0.02  # seconds: a callback has ended by then
AGAIN = 2.0  # seconds: what is open has been closed by then


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raises KeyboardInterrupt within for Ctrl-C, again and again until it is seen here: Python
    drops exceptions that are raised in a finalizer or in a weak reference's callback, and a library
    may drop one as well. Where Ctrl-C is ignored, as behind nohup, it stays so; to other threads
    than the main one it never comes."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if before is not signal.default_int_handler or not is_main:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    alarm = signal.signal(signal.SIGALRM, _interrupt)
    tell = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, SOON)
        else:
            tell(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = tell
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, before)


def _interrupt(*_: object) -> None:
    signal.setitimer(signal.ITIMER_REAL, AGAIN)
    raise KeyboardInterrupt
