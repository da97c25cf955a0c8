"""Running passes: in order, timed, recorded; an error names its pass and the last change."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tilewright.base.errors import TilewrightError

Pass = Callable[[Any], Any]
Watch = Callable[[str, int, int], None]  # what is done, how many of how many are
T = TypeVar("T")


def unwatched(what: str, done: int, total: int) -> None:
    """A Watch that nobody looks at."""


def counted(found: Iterable[T], what: str, total: int, watch: Watch) -> Iterator[T]:
    """Yields what is found; `watch` is told how many of them there are."""
    watch(what, 0, total)
    for done, one in enumerate(found, 1):
        watch(what, done, total)
        yield one


@dataclass(frozen=True)
class PassRun:
    """One pass that ran on one program. `program` is what it left behind; `text` prints it."""

    stage: str
    subject: str
    name: str
    micros: float
    changed: bool
    program: Any

    @property
    def text(self) -> str:
        return str(self.program)


@dataclass
class Recorder:
    """Collects the steps of a compilation. `listener` is told of each; `watch` what is being done
    ("kernels compiled"), how many of these are done, and of how many (progress bars), from any
    thread. One that `keeps` nothing is told of what is done, which leaves out what was found in the
    cache (docs/cache.md); the others see it all."""

    steps: list[PassRun] = field(default_factory=list)
    listener: Callable[[PassRun], None] | None = None
    watch: Watch | None = None
    keeps: bool = True

    def add(self, step: PassRun) -> None:
        """Keeps one step, and tells the listener."""
        if self.keeps:
            self.steps.append(step)
        if self.listener is not None:
            self.listener(step)

    def tell(self, what: str, done: int, total: int) -> None:
        """Tells who watches that `done` of `total` are done. A watch's own TilewrightError becomes
        a RuntimeError: passes would take it for a refusal, and go on."""
        if self.watch is not None and total:
            try:
                self.watch(what, done, total)
            except TilewrightError as error:
                name = type(error).__name__
                raise RuntimeError(f"the watch of a compilation raised {name}: {error}") from error

    def of(self, stage: str, subject: str | None = None) -> list[PassRun]:
        """The steps of a stage, in order; of one subject (kernel) where given."""
        return [s for s in self.steps if s.stage == stage and subject in (None, s.subject)]


def pass_name(function: Pass) -> str:
    """The name of a pass, partial or not."""
    while isinstance(function, functools.partial):
        function = function.func
    return function.__name__


def run_passes(
    program: T,
    passes: Sequence[Callable[[T], T]],
    *,
    stage: str,
    subject: str = "",
    recorder: Recorder | None = None,
    check: Callable[[T], None] | None = None,
) -> T:
    """Applies `passes` in order; `check` (a verifier) runs after each that changed something."""
    last = "none"
    for function in passes:
        name = pass_name(function)
        start = time.perf_counter()
        try:
            new = function(program)
            if check is not None and new is not program:
                check(new)
        except TilewrightError as error:
            error.add_context(f"running '{name}' (last pass that changed the program: '{last}')")
            raise
        changed = new is not program
        if recorder is not None:
            micros = (time.perf_counter() - start) * 1e6
            recorder.add(PassRun(stage, subject, name, micros, changed, new))
        if changed:
            program, last = new, name
    return program
