"""Model files without their weights, which stay in the file: they are mapped when they are used.

    ModelProto.graph.initializer.raw_data   becomes   external_data: this file, where in it

Protobuf reads a file as a whole and copies every field. Here its wire format is walked to the
tensors (https://protobuf.dev/programming-guides/encoding), and what is large in them is left out
of what protobuf gets to see.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

OWN_FILE = "\0"  # the location of what lies in the model's own file: no other has such a name
LARGE = 1 << 16  # bytes of a tensor that is left out
MOST_FIELDS, TENSOR_FIELDS = 1 << 19, 64  # of a message that is walked: what has more is none
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
FIXED = {FIXED64: 8, FIXED32: 4}
# Numbers of fields in onnx.proto: ModelProto, GraphProto, TensorProto, StringStringEntryProto.
GRAPH, INITIALIZER = 7, 5
RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 9, 13, 14
KEY, VALUE = 1, 2
EXTERNAL = 1


class NotWalkedError(Exception):
    """The bytes are no message as it is expected here; protobuf says what they are."""


@dataclass(frozen=True)
class Field:
    """A field of a message: from `start`, where its number stands, to `end`; its content, if it has
    bytes, from `inside`."""

    number: int
    wire: int
    start: int
    inside: int
    end: int


def without_weights(data: memoryview) -> bytes | None:
    """The model in `data`, a file's content, with its large tensors as external data in OWN_FILE;
    None if it has none, or is no model whose tensors can be found."""
    try:
        graphs = [f for f in _fields(data, 0, len(data)) if f.number == GRAPH]
        if len(graphs) != 1 or graphs[0].wire != BYTES:
            return None
        parts = list(_graph_parts(data, graphs[0]))
    except NotWalkedError:
        return None
    if len(parts) == 1:
        return None
    graph = b"".join(parts)
    before, after = data[: graphs[0].start], data[graphs[0].end :]
    return b"".join((before, _bytes_field(GRAPH, graph), after))


def _graph_parts(data: memoryview, graph: Field) -> Iterator[bytes]:
    """The graph's content, cut at large tensors."""
    begun = graph.inside
    for f in _fields(data, graph.inside, graph.end):
        if f.number != INITIALIZER or f.wire != BYTES or f.end - f.inside < LARGE:
            continue
        fields = list(_fields(data, f.inside, f.end, TENSOR_FIELDS))
        raw = [x for x in fields if x.number == RAW_DATA and x.wire == BYTES]
        elsewhere = any(x.number in (EXTERNAL_DATA, DATA_LOCATION) for x in fields)
        if len(raw) != 1 or raw[0].end - raw[0].inside < LARGE or elsewhere:
            continue
        yield bytes(data[begun : f.start])
        tensor = b"".join(bytes(data[x.start : x.end]) for x in fields if x != raw[0])
        yield _bytes_field(INITIALIZER, tensor + _place(raw[0]))
        begun = f.end
    yield bytes(data[begun : graph.end])


def _place(raw: Field) -> bytes:
    """The fields of a tensor that say where it is."""
    where = {"location": OWN_FILE, "offset": str(raw.inside), "length": str(raw.end - raw.inside)}
    entries = (
        _bytes_field(KEY, key.encode()) + _bytes_field(VALUE, value.encode())
        for key, value in where.items()
    )
    found = b"".join(_bytes_field(EXTERNAL_DATA, entry) for entry in entries)
    return found + _varint(DATA_LOCATION << 3 | VARINT) + _varint(EXTERNAL)


# ---------------------------------------------------------------- the wire format


def _fields(data: memoryview, at: int, end: int, most: int = MOST_FIELDS) -> Iterator[Field]:
    """The fields of the message from `at` to `end`, in order; NotWalkedError for more than so
    many."""
    for left in itertools.count(most, -1):
        if at == end:
            return
        start = at
        tag, at = _read_varint(data, at, end)
        wire, size = tag & 7, 0
        if wire == VARINT:
            _, at = _read_varint(data, at, end)
        elif wire == BYTES:
            size, at = _read_varint(data, at, end)
        elif wire in FIXED:
            size = FIXED[wire]
        else:
            raise NotWalkedError
        inside, at = at, at + size
        if at > end or not left or not tag >> 3:
            raise NotWalkedError
        yield Field(tag >> 3, wire, start, inside, at)


def _read_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise NotWalkedError


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes((*found, value))


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content
