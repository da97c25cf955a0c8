"""Primitives that may be refused: the schedule stays what it was, then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.errors import ScheduleError


def attempt(primitive: Callable[..., Any], *arguments: Any) -> Any:
    """Applies a primitive if it is legal: its result (True if it has none); None if refused."""
    try:
        result = primitive(*arguments)
    except ScheduleError:
        return None
    return True if result is None else result
