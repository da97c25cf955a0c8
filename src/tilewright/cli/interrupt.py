"""Ctrl-C that is never lost."""

from __future__ import annotations

import os
import signal
import sys
import threading

AGAIN = 0.02  # seconds: the callback has ended by then


def keep_interrupts() -> None:
    """Python drops an exception that is raised in a finalizer or in a weak reference's callback,
    KeyboardInterrupt too. The signal is then sent again."""
    tell = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            tell(unraisable)

    sys.unraisablehook = hook
