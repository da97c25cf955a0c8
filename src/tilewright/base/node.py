"""Immutable records: the one way every IR here is made.

`@node` is the only place that knows how a record is stored; equality is structural and hashes are
cached, so that records can be dictionary keys in rewrites however deep they are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


class Node:
    """Base of all records. Fields that are nodes, or tuples holding nodes, are its children."""

    # What is found out once: the hash, a record that this one equals, substitute.variables.
    __slots__ = ("_hash", "_same", "_variables")

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            parts = (
                type(self).__name__,
                *(getattr(self, name) for name in field_names(type(self))),
            )
            object.__setattr__(self, "_hash", hash(parts))
            return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        same = getattr(other, "_same", other)  # one for all that were found equal to it
        if getattr(self, "_same", self) is same:
            return True
        if not all(getattr(self, n) == getattr(other, n) for n in field_names(type(self))):
            return False
        for found in (self, other):  # descriptions made anew are compared with kept ones often
            object.__setattr__(found, "_same", same)
        return True

    def map(self: T, function: Callable[[Any], Any]) -> T:
        """Rebuilds with `function` applied to each direct child; self when nothing changed."""
        changed = False
        values = []
        for name in field_names(type(self)):
            old = getattr(self, name)
            new = _map_value(old, function)
            changed = changed or new is not old
            values.append(new)
        return type(self)(*values) if changed else self

    def children(self) -> Iterator[Node]:
        """The direct child nodes, in field order."""
        for name in field_names(type(self)):
            yield from _nodes_of(getattr(self, name))

    def walk(self) -> Iterator[Node]:
        """Every node below and including this one, parents first, in the order of the fields. Each
        object comes once: parts may be shared, and written out as a tree they may be exponentially
        many."""
        seen: set[int] = set()
        pending: list[Node] = [self]
        while pending:
            node = pending.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                pending.extend(reversed(list(node.children())))

    def with_(self: T, **changes: Any) -> T:
        """A copy with some fields replaced."""
        names = field_names(type(self))
        return type(self)(*(changes[n] if n in changes else getattr(self, n) for n in names))


def _map_value(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, Node):
        return function(value)
    if type(value) is tuple and value:
        new = tuple(_map_value(item, function) for item in value)
        return value if all(a is b for a, b in zip(value, new, strict=True)) else new
    return value


def _nodes_of(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif type(value) is tuple:
        for item in value:
            yield from _nodes_of(item)


@dataclass_transform(frozen_default=True)
def node(cls: type[T]) -> type[T]:
    """Makes a class a frozen, slotted record with structural equality and a cached hash."""
    return dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


@functools.cache
def field_names(cls: type) -> tuple[str, ...]:
    """The record's field names, in order."""
    return tuple(f.name for f in dataclasses.fields(cls))
