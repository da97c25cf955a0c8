"""Reading records from JSON, field by field, with errors that say which one is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tilewright.base.errors import ArtifactError

T = TypeVar("T")


class Fields:
    """A JSON object whose place in the file is `where`."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise ArtifactError(f"{where} is not an object")
        self.where = where
        self._values = value

    def place(self, name: str) -> str:
        return f"{self.where}.{name}"

    def raw(self, name: str) -> Any:
        if name not in self._values:
            raise ArtifactError(f"{self.place(name)} is missing")
        return self._values[name]

    def text(self, name: str) -> str:
        return as_text(self.raw(name), self.place(name))

    def optional_text(self, name: str) -> str:
        """Empty where older formats do not have it."""
        return self.text(name) if name in self._values else ""

    def number(self, name: str, low: int = 0) -> int:
        """A whole number that is not below `low`."""
        value = self.raw(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ArtifactError(f"{self.place(name)} is not a whole number from {low} on")
        return value

    def optional_number(self, name: str) -> int | None:
        """None if it is that, or older formats do not have it."""
        return None if self._values.get(name) is None else self.number(name)

    def items(self, name: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
        """A list, each item read by read(value, place)."""
        return tuple(read(item, place) for item, place in self._items(name))

    def optional_items(self, name: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
        """A list that older formats do not have."""
        return self.items(name, read) if name in self._values else ()

    def texts(self, name: str) -> tuple[str, ...]:
        return self.items(name, as_text)

    def _items(self, name: str) -> Iterator[tuple[Any, str]]:
        value = self.raw(name)
        if not isinstance(value, list):
            raise ArtifactError(f"{self.place(name)} is not a list")
        for i, item in enumerate(value):
            yield item, f"{self.place(name)}[{i}]"


def as_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ArtifactError(f"{where} is not a text")
    return value
