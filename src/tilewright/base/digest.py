"""Digests of what programs and descriptions say: equal for equal ones, in every process."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.node import Node


class NoDigestError(TypeError):
    """What was given holds something that is not data, such as a function."""


def digest(value: object) -> bytes:
    """SHA-256 of a record, a program, numbers, texts, arrays, or of collections of such.

    Records are told apart by their class and fields (those that take part in comparison), floats by
    their bits. Parts that a program shares are visited once. Raises NoDigestError for anything
    else.
    """
    return _Digester().of(value)


class _Digester:
    """Digests of nodes by their identity: all of them live as long as what holds them."""

    def __init__(self) -> None:
        self.known: dict[int, bytes] = {}

    def of(self, value: Any) -> bytes:
        if isinstance(value, Node):
            return self.known.get(id(value)) or self.of_node(value)
        for kind, make in _PLAIN.items():
            if isinstance(value, kind):
                return _hash(kind.__name__, make(value))
        if isinstance(value, (tuple, list)):
            return _hash("sequence", *map(self.of, value))
        if isinstance(value, (set, frozenset)):
            return _hash("set", *sorted(map(self.of, value)))
        if isinstance(value, Mapping):
            pairs = ((self.of(k), self.of(v)) for k, v in value.items())
            return _hash("mapping", *(part for pair in sorted(pairs) for part in pair))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self.of_record(value)
        raise NoDigestError(f"{value!r} has no digest")

    def of_node(self, root: Node) -> bytes:
        """Parts before what they are parts of: programs may be deeper than Python's stack."""
        pending = [root]
        while pending:
            node = pending[-1]
            missing = [c for c in node.children() if id(c) not in self.known]
            if id(node) in self.known or not missing:
                pending.pop()
                if id(node) not in self.known:
                    self.known[id(node)] = self.of_record(node)
            pending += missing
        return self.known[id(root)]

    def of_record(self, value: Any) -> bytes:
        fields = (getattr(value, f.name) for f in dataclasses.fields(value) if f.compare)
        return _hash(f"{type(value).__module__}.{type(value).__qualname__}", *map(self.of, fields))


def _of_array(array: np.ndarray) -> bytes:
    return f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()


_PLAIN: dict[type, Callable[[Any], bytes]] = {  # the first that fits: True is an int as well
    type(None): lambda _: b"",
    bool: lambda v: b"1" if v else b"0",
    DType: lambda v: v.name.encode(),
    enum.Enum: lambda v: f"{type(v).__qualname__}.{v.name}".encode(),
    int: lambda v: str(v).encode(),
    float: lambda v: struct.pack("<d", v),
    str: lambda v: v.encode("utf-8", "surrogatepass"),
    bytes: bytes,
    np.ndarray: _of_array,
    np.generic: lambda v: _of_array(np.asarray(v)),
}


def _hash(kind: str, *parts: bytes) -> bytes:
    """Each part with its size before it, so that none runs into the next."""
    found = hashlib.sha256(kind.encode())
    found.update(_sizes(parts))
    for part in parts:
        found.update(part)
    return found.digest()


def _sizes(parts: Iterable[bytes]) -> bytes:
    sizes = [len(p) for p in parts]
    return struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes)
