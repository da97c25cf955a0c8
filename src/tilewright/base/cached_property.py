"""A property that is computed once.

`functools.cached_property` before Python 3.12 has a lock for all instances. One that another thread
holds while this process forks (side_by_side.py) is held for ever in the forked process, which then
waits for it. Without a lock two threads may compute the same value, of which one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """Of instances that have a `__dict__`, where the value is kept."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function, self.name = function, function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        if instance is None:
            return self
        found: T = instance.__dict__.setdefault(self.name, self.function(instance))
        return found
