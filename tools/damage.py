"""Ways to damage an ONNX model: bytes of the file, or fields of the message.

A way takes a source of random numbers and changes what it is given. What `damage` makes is a
function of the seed, so that a case can be made again.
"""

import contextlib
from collections.abc import Callable

from damage_common import Random
from damage_growth import ON_GROWTH
from damage_nodes import ON_NODES
from damage_values import ON_VALUES
from onnx import ModelProto

OnBytes = Callable[[Random, bytearray], None]

EDGE = 2000  # bytes at either end of a file, where the structure is; most of the rest is weights


def damage(seed: int, model: ModelProto) -> bytes:
    """The file after one to three changes; those of the message come first."""
    source = Random(seed)
    changed = ModelProto()
    changed.CopyFrom(model)
    count = source.choice((1, 1, 1, 2, 3))
    in_bytes = sum(source.random() < 0.2 for _ in range(count))
    for _ in range(count - in_bytes):
        ways = source.choice((ON_VALUES, ON_NODES, ON_GROWTH))
        if changed.graph.output:
            with contextlib.suppress(ValueError, TypeError):  # what no message can hold
                source.choice(ways)(source, changed)
    data = bytearray(changed.SerializeToString())
    for _ in range(in_bytes):
        source.choice(ON_BYTES)(source, data)
    return bytes(data)


# ---------------------------------------------------------------- bytes


def flip_bits(source: Random, data: bytearray) -> None:
    for _ in range(source.randint(1, 20)):
        if data:
            data[_place(source, data)] ^= 1 << source.randrange(8)


def cut_short(source: Random, data: bytearray) -> None:
    del data[source.randrange(len(data) + 1) :]


def cut_out(source: Random, data: bytearray) -> None:
    start = _place(source, data)
    del data[start : start + source.randint(1, 64)]


def repeat_part(source: Random, data: bytearray) -> None:
    start = _place(source, data)
    part = data[start : start + source.randint(1, 256)]
    data[start:start] = part


def insert_noise(source: Random, data: bytearray) -> None:
    start = _place(source, data)
    data[start:start] = source.randbytes(source.randint(1, 64))


def overwrite(source: Random, data: bytearray) -> None:
    start, byte = _place(source, data), source.choice((0, 0x7F, 0x80, 0xFF))
    for i in range(start, min(len(data), start + source.randint(1, 16))):
        data[i] = byte


def _place(source: Random, data: bytearray) -> int:
    """Anywhere, or near an end."""
    size = len(data)
    if size == 0:
        return 0
    if source.random() < 0.5:
        return source.randrange(size)
    inward = source.randrange(min(size, EDGE))
    return source.choice((inward, size - 1 - inward))


ON_BYTES: tuple[OnBytes, ...] = (
    *(flip_bits, flip_bits, cut_short, cut_out),
    *(repeat_part, insert_noise, overwrite),
)
