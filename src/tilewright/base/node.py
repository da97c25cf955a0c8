"""Immutable records: the one way every IR here is made; and properties that are computed once.

`@node` is the only place that knows how a record is stored; equality is structural and hashes are
cached, so that records can be dictionary keys in rewrites however deep they are. Of `Interned`
records there is one object for each value, so that they are compared and hashed as objects are.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar, overload

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

T = TypeVar("T")
R = TypeVar("R", bound="Interned")


class Node:
    """Base of all records. Fields that are nodes, or tuples holding nodes, are its children."""

    # What is found out once: the hash, a record that this one equals; `mentioned` and `variables`
    # of ir/substitute.py.
    __slots__ = ("_hash", "_mentioned", "_same", "_variables")
    _hash: int
    _mentioned: frozenset[Any]

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

    def map(self: T, function: Callable[[Any], object]) -> T:
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

    def children(self) -> Sequence[Node]:
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

    def with_(self: T, **changes: object) -> T:
        """A copy with some fields replaced."""
        names = _FIELDS[type(self)]
        return type(self)(*[changes[n] if n in changes else getattr(self, n) for n in names])


class Interned(Node):
    """Base of records that are dictionary keys all day: making one that exists gives that object,
    in any thread, so that equal ones are identical. A record that nothing refers to is forgotten.

    Fields must be hashable. A class whose fields compare equal without being the same (1 and True,
    0.0 and -0.0) has a `__new__` of its own, with a key that tells them apart.
    """

    __slots__ = ("__weakref__", "_children")
    _children: tuple[Node, ...]
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __new__(cls: type[R], *values: Any, **named: Any) -> R:
        if named or len(values) != len(_FIELDS[cls]):
            values = _all_values(cls, values, named)
        key = (cls, *values)
        found = known_record(key)
        return enter_record(key, cls, values) if found is None else found

    def __post_init__(self) -> None:
        """Sets what follows from the fields."""

    def children(self) -> tuple[Node, ...]:
        """The direct child nodes, in field order: found once."""
        try:
            return self._children
        except AttributeError:
            found = tuple(Node.children(self))
            object.__setattr__(self, "_children", found)
            return found

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """A copy is the record itself; one that is read back is the one that is here."""
        return type(self), tuple(getattr(self, name) for name in _FIELDS[type(self)])


_RECORDS: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
known_record = _RECORDS.get  # the record with a key, if there is one
_MAKING = threading.RLock()  # held where a record is entered; the collector may enter others
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_MAKING.acquire, after_in_parent=_MAKING.release, after_in_child=_MAKING.release
    )


def enter_record(key: tuple[Any, ...], cls: type[R], values: tuple[Any, ...]) -> R:
    """Enters a record that was not there, unless another thread did so first."""
    made = object.__new__(cls)
    for name, value in zip(_FIELDS[cls], values, strict=True):
        object.__setattr__(made, name, value)
    made.__post_init__()
    with _MAKING:
        found: R = _RECORDS.setdefault(key, made)
    return found


def _all_values(cls: type, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The values of all fields: of those that are not given, the defaults."""
    rest = dataclasses.fields(cls)[len(values) :]
    found = [named.pop(f.name, f.default) for f in rest]
    if named or dataclasses.MISSING in found or len(values) + len(found) != len(_FIELDS[cls]):
        raise TypeError(f"{cls.__name__} takes {', '.join(_FIELDS[cls])}")
    return (*values, *found)


def _map_tuple(values: tuple[object, ...], function: Callable[[Any], object]) -> tuple[Any, ...]:
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


def _collect(values: tuple[object, ...], found: list[Node]) -> None:
    """Adds the nodes in a tuple, and in tuples in it."""
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif type(value) is tuple:
            _collect(value, found)


class _ByClass(dict[type, Any]):
    """Something of each class of records, found when it is first asked for."""

    def __init__(self, find: Callable[[type], object]) -> None:
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
    """Makes a class a frozen, slotted record, compared and hashed as its base says."""
    init = not issubclass(cls, Interned)  # a record that is there already is not made again
    return dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False, init=init)(cls)


@functools.cache
def field_names(cls: type) -> tuple[str, ...]:
    """The record's field names, in order."""
    return tuple(f.name for f in dataclasses.fields(cls))


_FIELDS: dict[type, tuple[str, ...]] = _ByClass(field_names)
_VALUES: dict[type, Callable[[Any], Any]] = _ByClass(_values_of)  # of all fields, to be compared


class cached_property(Generic[T]):
    """A property that is computed once, of instances that have a `__dict__`, where it is kept.

    `functools.cached_property` before Python 3.12 has a lock for all instances. One that another
    thread holds while this process forks (side_by_side.py) is held for ever in the forked process,
    which then waits for it. Without a lock two threads may compute the value, of which one stays.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.func, self.name = function, function.__name__  # func: as the standard library's
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[T] | T:
        if instance is None:
            return self
        found: T = instance.__dict__.setdefault(self.name, self.func(instance))
        return found
