"""What a command says on stderr while it works: what it does, how far it is, and how long it will
still take. Only a terminal sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.cli.layout import make_console, wrap


class Progress:
    """A command's words on stderr about what it is doing."""

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = make_console(stderr=True)
        self.quiet = quiet
        self._clock = clock
        self._what = ""
        self._begun: float | None = None
        self._status: Callable[[str], object] | None = None

    def say(self, text: str) -> None:
        """A sentence, unless nothing is to be said."""
        if not self.quiet:
            self.console.print(wrap(text, self.console.width), soft_wrap=True)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Says what is being done while it is, where somebody can see it."""
        self._what, self._begun = what, None
        if self.quiet or not self.console.is_terminal:
            yield
            return
        with self.console.status(f"{what} …") as status:
            self._status = status.update
            yield
            self._status = None

    def tell(self, what: str) -> None:
        """What is being done just now."""
        if self._status is not None:
            self._status(f"{self._what}: {what} …")

    def count(self, what: str, done: int, total: int) -> None:
        """So many of `total` are done (base/passes.py:Watch); the first call says when the first
        began, as does every one of none, with which others begin."""
        if self._begun is None or not done:
            self._begun = self._clock()
        spent = self._clock() - self._begun
        left = f", {_about(spent / done * (total - done))} left" if done else ""
        self.tell(f"{done} of {total} {what}{left}")


def _about(seconds: float) -> str:
    """ "12 s", "3 min": nobody can do more with less than a second."""
    if seconds < 1:
        return "less than 1 s"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
