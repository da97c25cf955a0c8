"""Immutable records: the one way every IR here is made.

`@node` is the only place that knows how a record is stored; equality is structural and hashes are
cached, so that records can be dictionary keys in rewrites however deep they are.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

T = TypeVar("T")


class Node:
    """Base of all records. Fields that are nodes, or tuples holding nodes, are its children."""

    # What is found out once: the hash, a record that this one equals, substitute.variables.
    __slots__ = ("_hash", "_same", "_variables")

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            cls = type(self)
            object.__setattr__(self, "_hash", hash((cls.__name__, _VALUES[cls](self))))
            return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        same = getattr(other, "_same", other)  # one for all that were found equal to it
        if getattr(self, "_same", self) is same:
            return True
        values = _VALUES[type(self)]
        if values(self) != values(other):
            return False
        for found in (self, other):  # descriptions made anew are compared with kept ones often
            object.__setattr__(found, "_same", same)
        return True

    def map(self: T, function: Callable[[Any], Any]) -> T:
        """Rebuilds with `function` applied to each direct child; self when nothing changed."""
        changed = False
        values = []
        for name in _FIELDS[type(self)]:
            old = new = getattr(self, name)
            if isinstance(old, Node):
                new = function(old)
            elif type(old) is tuple and old:
                new = _map_tuple(old, function)
            changed = changed or new is not old
            values.append(new)
        return type(self)(*values) if changed else self

    def children(self) -> list[Node]:
        """The direct child nodes, in field order."""
        found: list[Node] = []
        for name in _FIELDS[type(self)]:
            value = getattr(self, name)
            if isinstance(value, Node):
                found.append(value)
            elif type(value) is tuple and value:
                _collect(value, found)
        return found

    def walk(self) -> Iterator[Node]:
        """Every node below and including this one, parents first, in the order of the fields. Each
        object comes once: parts may be shared, and written out as a tree they may be exponentially
        many."""
        seen: set[int] = set()
        order: list[Node] = []
        pending: list[Node] = [self]
        while pending:
            node = pending.pop()
            if id(node) not in seen:
                seen.add(id(node))
                order.append(node)
                pending += node.children()[::-1]
        return iter(order)

    def with_(self: T, **changes: Any) -> T:
        """A copy with some fields replaced."""
        names = _FIELDS[type(self)]
        return type(self)(*[changes[n] if n in changes else getattr(self, n) for n in names])


def _map_tuple(values: tuple[Any, ...], function: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The tuple with `function` applied to the nodes in it; itself when nothing changed."""
    changed = False
    out = []
    for old in values:
        new = old
        if isinstance(old, Node):
            new = function(old)
        elif type(old) is tuple and old:
            new = _map_tuple(old, function)
        changed = changed or new is not old
        out.append(new)
    return tuple(out) if changed else values


def _collect(values: tuple[Any, ...], found: list[Node]) -> None:
    """Adds the nodes in a tuple, and in tuples in it."""
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif type(value) is tuple:
            _collect(value, found)


class _ByClass(dict[type, Any]):
    """Something of each class of records, found when it is first asked for."""

    def __init__(self, find: Callable[[type], Any]) -> None:
        super().__init__()
        self.find = find

    def __missing__(self, cls: type) -> Any:
        self[cls] = self.find(cls)
        return self[cls]


def _values_of(cls: type) -> Callable[[Any], Any]:
    names = field_names(cls)
    return attrgetter(*names) if names else lambda record: ()


@dataclass_transform(frozen_default=True)
def node(cls: type[T]) -> type[T]:
    """Makes a class a frozen, slotted record with structural equality and a cached hash."""
    return dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


@functools.cache
def field_names(cls: type) -> tuple[str, ...]:
    """The record's field names, in order."""
    return tuple(f.name for f in dataclasses.fields(cls))


_FIELDS: dict[type, tuple[str, ...]] = _ByClass(field_names)
_VALUES: dict[type, Callable[[Any], Any]] = _ByClass(_values_of)  # of all fields, to be compared
