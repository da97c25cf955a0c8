"""Records as bits, by their encoding, and back: all records at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.base.errors import CompileError, TargetError
from tilewright.target.encoding import Carries, Encoding, EncodingPart

Key = tuple[Carries, str]  # what a part carries, and whose it is
Columns = Mapping[Key, np.ndarray]

MASKS = (Carries.AWAITS, Carries.SETS)  # bits of their own, of as many events as there are
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def pack(encoding: Encoding, columns: Columns, what: str, rows: np.ndarray) -> np.ndarray:
    """One record for each of n rows, as bytes [n, width / 8]. `columns` has the values [n] of the
    parts; those left out are 0. TargetError where bits do not hold a value: it calls the record
    `what`, with its number in `rows` [n]."""
    lanes = np.zeros((len(rows), -(-encoding.width // 64)), np.uint64)
    for p in encoding.parts:
        values = columns.get((p.carries, p.name))
        if p.carries is Carries.CONSTANT:
            stored = np.full(len(rows), p.value, np.uint64)
        elif values is not None:
            stored = _stored(p, values, what, rows)
        else:
            continue
        lane, shift = divmod(p.start, 64)
        lanes[:, lane] |= stored << np.uint64(shift)
        if shift + p.width > 64:
            lanes[:, lane + 1] |= stored >> np.uint64(64 - shift)
    octets = lanes.astype("<u8").view(np.uint8)
    return np.ascontiguousarray(octets[:, : encoding.width // 8])


def _stored(p: EncodingPart, values: np.ndarray, what: str, rows: np.ndarray) -> np.ndarray:
    """The bits of these values."""
    if p.carries in MASKS:
        return values.astype(np.uint64)
    wrong = (values < max(p.low, LEAST)) | (values > min(p.high, MOST))
    if p.unit > 1:
        wrong |= (values - p.minus) % p.unit != 0
    if wrong.any():
        first = int(np.argmax(wrong))
        raise _misfit(p, f"{what} {rows[first]}", int(values[first]))
    stored = ((values - p.minus) // p.unit).astype(np.int64).view(np.uint64)
    bits: np.ndarray = stored & np.uint64((1 << p.width) - 1)
    return bits


def _misfit(p: EncodingPart, what: str, value: int) -> TargetError:
    if p.low <= value <= p.high:
        hint = f"it is stored in units of {p.unit} bytes"
        hint = hint if p.carries is Carries.ADDRESS else f"it is stored in units of {p.unit}"
    elif p.carries is Carries.ADDRESS:
        hint = "give it more bits or a larger unit, or make the memory smaller"
    else:
        hint = "give it more bits, or limit it in the description"
    return TargetError(f"{what}: {p.what} is {value}, and its {p.holds}", hint=hint)


def unpack(encoding: Encoding, records: np.ndarray) -> dict[Key, np.ndarray]:
    """The values [n] of every part of n records, bytes [n, width / 8]; constants and padding left
    out. CompileError for a value beyond 64 bits."""
    octets = np.zeros((len(records), 8 * -(-encoding.width // 64)), np.uint8)
    octets[:, : encoding.width // 8] = records
    lanes = octets.view("<u8").astype(np.uint64)
    columns: dict[Key, np.ndarray] = {}
    for p in encoding.parts:
        if p.carries in (Carries.PADDING, Carries.CONSTANT):
            continue
        lane, shift = divmod(p.start, 64)
        stored = lanes[:, lane] >> np.uint64(shift)
        if shift + p.width > 64:
            stored = stored | lanes[:, lane + 1] << np.uint64(64 - shift)
        stored &= np.uint64((1 << p.width) - 1)
        columns[p.carries, p.name] = stored if p.carries in MASKS else _values(p, stored)
    return columns


def _values(p: EncodingPart, stored: np.ndarray) -> np.ndarray:
    numbers = stored.view(np.int64)
    if p.signed:
        unused = np.uint64(64 - p.width)
        numbers = (stored << unused).view(np.int64) >> unused.astype(np.int64)
    most = (MOST - max(p.minus, 0)) // p.unit
    least = -((MOST + min(p.minus, 0)) // p.unit) - 1 if p.signed else 0
    if len(numbers) and not least <= numbers.min() <= numbers.max() <= most:
        raise CompileError(f"{p.what} is beyond 64 bits")
    return numbers * p.unit + p.minus
