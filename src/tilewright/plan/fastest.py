"""The fastest of a few choices, of which a model sees too little to tell: built and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol, TypeVar

from tilewright.base.errors import CompileError, ScheduleError, TargetError

MOST = 4  # times as many as are built are tried, if some cannot be
SAME = 0.0003  # of what is expected: no difference
ALIKE = 0.0006  # of what is expected: no difference worth a build, of choices that are alike


class Ranked(Protocol):
    """What the model chose, with the cycles that it expects."""

    @property
    def cycles(self) -> float: ...


class Timed(Protocol):
    """What was built, with the cycles that it takes."""

    @property
    def cycles(self) -> int: ...


C = TypeVar("C", bound=Ranked)
B = TypeVar("B", bound=Timed)


def build_fastest(
    choices: Iterable[C],
    build: Callable[[C], B],
    *,
    tries: int,
    near: float,
    kind: Callable[[C], object] = lambda _: object(),
) -> B:
    """Of choices, those first that are expected to be fast, the one that is fast once it is built.
    So many are built, or fewer, if one takes at most `near` times what is expected of the next, or
    if the same is expected of several, or nearly so of several of one `kind` (without it, each
    is of its own). Raises the first refusal if none can be built."""
    built: list[B] = []
    expected: list[float] = []  # of those, and of others that are as good
    of_kind: dict[object, float] = {}  # the cycles that are expected of the last that was built
    refusal: Exception | None = None
    for choice in islice(choices, MOST * tries):
        if built and min(b.cycles for b in built) <= near * choice.cycles:
            break
        if len(expected) == tries:
            break
        if choice.cycles <= of_kind.get(kind(choice), 0.0) * (1 + ALIKE):
            continue
        if all(abs(choice.cycles - x) > SAME * x for x in expected):
            try:
                built.append(build(choice))
            except (ScheduleError, TargetError, CompileError) as error:
                refusal = refusal or error
                continue
            of_kind[kind(choice)] = choice.cycles
        expected.append(choice.cycles)
    if refusal is not None and not built:
        raise refusal
    return min(built, key=lambda b: b.cycles)
