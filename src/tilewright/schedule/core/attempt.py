"""Primitives that may be refused: the schedule stays what it was, then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar, overload

from tilewright.base.errors import ScheduleError

P = ParamSpec("P")
R = TypeVar("R")


@overload
def attempt(
    primitive: Callable[P, None], *arguments: P.args, **named: P.kwargs
) -> Literal[True] | None: ...
@overload
def attempt(primitive: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R | None: ...
def attempt(
    primitive: Callable[P, R], *arguments: P.args, **named: P.kwargs
) -> R | Literal[True] | None:
    """Applies a primitive if it is legal: its result (True if it has none); None if refused."""
    try:
        result = primitive(*arguments, **named)
    except ScheduleError:
        return None
    return True if result is None else result
