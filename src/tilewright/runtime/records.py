"""Records as JSON: frozen dataclasses of numbers, texts, element types, enumerations, lists and
records, by the types that their fields declare.

A record is an object of its fields; where a field may hold records of several classes, the object
has the class's word under "kind". Reading checks every type, and an error names the place.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from typing import Any, TypeVar

from tilewright.base.dtype import DTYPES, DType
from tilewright.base.errors import ArtifactError
from tilewright.program.host_program import STEPS

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """The JSON value of a record, or of what a field of one may hold."""
    cls: type = type(value)
    if dataclasses.is_dataclass(cls) and cls is not DType:
        kind = {"kind": STEPS[cls]} if cls in STEPS else {}
        return kind | {name: to_json(getattr(value, name)) for name, _, _ in _fields(cls)}
    if isinstance(value, tuple):
        return [to_json(v) for v in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value.name if isinstance(value, DType) else value


def from_json(cls: type[T], value: Any, where: str) -> T:
    """The record of class `cls` at the place `where`; ArtifactError if that is not one."""
    if not isinstance(value, dict):
        raise ArtifactError(f"{where} is not an object")
    given = {}
    record: type = cls
    for name, hint, required in _fields(record):
        if name in value:
            given[name] = _read(hint, value[name], f"{where}.{name}")
        elif required:
            raise ArtifactError(f"{where}.{name} is missing")
    return cls(**given)


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name and type of each field, and whether it has to be there."""
    hints = typing.get_type_hints(cls)
    return tuple(
        (f.name, hints[f.name], f.default is dataclasses.MISSING) for f in dataclasses.fields(cls)
    )


def _read(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _read_one(typing.get_args(hint), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ArtifactError(f"{where} is not a list")
        return tuple(
            _read(typing.get_args(hint)[0], v, f"{where}[{i}]") for i, v in enumerate(value)
        )
    if hint is int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ArtifactError(f"{where} is not a whole number")
        return value
    if hint is str:
        if not isinstance(value, str):
            raise ArtifactError(f"{where} is not a text")
        return value
    if hint is DType:
        return _named(DTYPES, value, where, "scalar types")
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _named({m.value: m for m in hint}, value, where, "")
    return from_json(hint, value, where)


def _read_one(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    """A value of one of several types: they differ in JSON, or have a kind."""
    if value is None and type(None) in hints:
        return None
    for plain in (int, str):
        if plain in hints and isinstance(value, plain) and not isinstance(value, bool):
            return value
    records = [h for h in hints if h not in (int, str, type(None))]
    if isinstance(value, dict) and records:
        if len(records) == 1:
            return from_json(records[0], value, where)
        kinds = {STEPS[cls]: cls for cls in records}
        cls = _named(kinds, value.get("kind"), f"{where}.kind", "")
        return from_json(cls, value, where)
    wanted = [_WORDS[h] for h in (int, str, type(None)) if h in hints]
    wanted += ["an object"] if records else []
    raise ArtifactError(f"{where} is not {' or '.join(wanted)}")


_WORDS = {int: "a whole number", str: "a text", type(None): "null"}


def _named(known: dict[str, T], value: Any, where: str, what: str) -> T:
    if not isinstance(value, str) or value not in known:
        names = what or ", ".join(known)
        raise ArtifactError(f"{where} is {value!r} and not one of {names}")
    return known[value]
