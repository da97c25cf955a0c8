"""Streams as the words that a chip fetches, and back: all rows of an instruction at a time.

    words = encode(stream, waits)               a flat array; VTA's has two words an instruction
    rows = decode(target, words)                the same stream and its tokens

Encodings are target/encoding.py's. What the bits do not hold is refused, never cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.base.errors import CompileError, TargetError
from tilewright.codegen.rows import stream_of_rows
from tilewright.codegen.stream import Stream
from tilewright.ir.instruction import Instruction
from tilewright.target.encoding import Carries, Encoding, Piece, ambiguous
from tilewright.target.target import Target

Key = tuple[Carries, str]
Columns = Mapping[Key, np.ndarray]
WAITS = {Carries.POP: "waits for {}", Carries.PUSH: "gives {} a token"}


class Tokens(Protocol):
    """Bit q of pops[i]: instruction i takes a token from queue q; of pushes[i]: it gives one."""

    @property
    def pops(self) -> np.ndarray: ...

    @property
    def pushes(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Decoded:
    """A stream as it was encoded, and its tokens."""

    stream: Stream
    pops: np.ndarray
    pushes: np.ndarray


# ---------------------------------------------------------------- streams


def encode(
    stream: Stream, waits: Tokens | None = None, bases: Mapping[str, int] | None = None
) -> np.ndarray:
    """The instructions one after another, as little-endian words of the target's `word_bits`.
    `bases` says at which address a memory begins for the chip. TargetError where something does
    not fit, or an instruction has no encoding."""
    target = stream.target
    word = word_bits(target)
    kinds = _kinds(stream)
    lengths = np.array([_width(target, i) // word for i in target.instructions])
    starts = np.concatenate([[0], np.cumsum(lengths[kinds])])
    words = np.zeros(starts[-1], f"<u{word // 8}")
    for k in np.unique(kinds):
        instruction = target.instructions[k]
        encoding = _encoding(target, instruction)
        rows = np.flatnonzero(kinds == k)
        columns = _columns(stream, waits, instruction, rows)
        for o in instruction.operands:
            if encoding.find(Carries.ADDRESS, o.name) is not None:
                columns[Carries.ADDRESS, o.name] += (bases or {}).get(o.memory, 0)
        _check_carried(target, instruction, encoding, columns, rows)
        packed = pack(encoding, columns, instruction.name, rows).view(words.dtype)
        words[starts[rows][:, None] + np.arange(lengths[k])] = packed
    return words


def word_bits(target: Target) -> int:
    """Bits of a word of the target's streams: the largest that all its instructions are whole
    numbers of; TargetError where an instruction has no encoding."""
    widths = [_width(target, i) for i in target.instructions]
    return math.gcd(64, *widths)


def _width(target: Target, instruction: Instruction) -> int:
    return _encoding(target, instruction).width


def _encoding(target: Target, instruction: Instruction) -> Encoding:
    encoding = target.encoding(instruction.name)
    if encoding is None:
        raise TargetError(
            f"{instruction.name} of {target.name} has no encoding",
            hint="say its bits: @t.instruction(…, encoding=bits(128, …))",
        )
    return encoding


def _kinds(stream: Stream) -> np.ndarray:
    """The position of each row's instruction in the target."""
    numbers = {i: k for k, i in enumerate(stream.target.instructions)}
    of_site = np.array([numbers[s.instruction] for s in stream.sites], np.int64)
    return of_site[stream.site] if len(of_site) else np.zeros(0, np.int64)


def _columns(
    stream: Stream,
    waits: Tokens | None,
    instruction: Instruction,
    rows: np.ndarray,
) -> dict[Key, np.ndarray]:
    """Everything that can be said of these rows, by what carries it."""
    columns: dict[Key, np.ndarray] = {}
    for c, f in enumerate(instruction.fields):
        columns[Carries.FIELD, f.name] = stream.fields[rows, c]
    for o, operand in enumerate(instruction.operands):
        columns[Carries.ADDRESS, operand.name] = stream.addresses[rows, o]
    for q, queue in enumerate(stream.target.queues):
        for carries, masks in ((Carries.POP, "pops"), (Carries.PUSH, "pushes")):
            bits = np.zeros(len(rows), np.int64)
            if waits is not None:
                bits = getattr(waits, masks)[rows].astype(np.int64) >> q & 1
            columns[carries, queue.name] = bits
    return columns


def _check_carried(
    target: Target,
    instruction: Instruction,
    encoding: Encoding,
    columns: Columns,
    rows: np.ndarray,
) -> None:
    """What has no bits must be what a decoder takes it to be: tokens and addresses 0, fields the
    only value that they may have."""
    for (carries, name), values in columns.items():
        if encoding.find(carries, name) is not None:
            continue
        implied = instruction.field(name).low if carries is Carries.FIELD else 0
        wrong = np.flatnonzero(values != implied)
        if len(wrong):
            says = {
                Carries.FIELD: f"{name} is {values[wrong[0]]}",
                Carries.ADDRESS: f"operand {name} lies at {values[wrong[0]]}",
            }.get(carries, WAITS[carries].format(name) if carries in WAITS else "")
            raise TargetError(
                f"instruction {rows[wrong[0]]}, {instruction.name}: {says}, and the encoding has "
                "no bits for that",
                hint=f'add {carries.value}("{name}"{"" if carries in WAITS else ", …"}) to it',
            )


# ---------------------------------------------------------------- bits


def pack(encoding: Encoding, columns: Columns, what: str, rows: np.ndarray) -> np.ndarray:
    """One record for each of n rows, as bytes [n, width / 8]. `columns` has the values [n] of every
    piece; errors call the record `what`, and it by its number in `rows` [n]."""
    lanes = np.zeros((len(rows), -(-encoding.width // 64)), np.uint64)
    for p in encoding.pieces:
        if p.carries is Carries.PADDING:
            continue
        if p.carries is Carries.CONSTANT:
            stored = np.full(len(rows), p.value, np.uint64)
        else:
            stored = _stored(p, columns[p.carries, p.name], what, rows)
        lane, shift = divmod(p.start, 64)
        lanes[:, lane] |= stored << np.uint64(shift)
        if shift + p.width > 64:
            lanes[:, lane + 1] |= stored >> np.uint64(64 - shift)
    octets = lanes.astype("<u8").view(np.uint8)
    return np.ascontiguousarray(octets[:, : encoding.width // 8])


def _stored(p: Piece, values: np.ndarray, what: str, rows: np.ndarray) -> np.ndarray:
    """The bits of these values; TargetError at the first that has none."""
    if len(values):
        wrong = (values < max(p.low, -(2**63))) | (values > min(p.high, 2**63 - 1))
        if p.unit > 1:
            wrong |= (values - p.minus) % p.unit != 0
        if wrong.any():
            _refuse(p, what, int(rows[np.argmax(wrong)]), int(values[np.argmax(wrong)]))
    stored = ((values - p.minus) // p.unit).astype(np.int64).view(np.uint64)
    return stored & np.uint64((1 << p.width) - 1)


def _refuse(p: Piece, what: str, row: int, value: int) -> None:
    if p.low <= value <= p.high:
        hint = f"it is stored in units of {p.unit}"
    elif p.carries is Carries.ADDRESS:
        hint = "give the address more bits, or a larger unit"
    else:
        hint = f"give {p.name} more bits, or limit it in the description"
    raise TargetError(
        f"instruction {row}, {what}: {p.what} is {value}, and its {p.holds}", hint=hint
    )


def unpack(encoding: Encoding, records: np.ndarray) -> Columns:
    """The values [n] of every piece of n records, bytes [n, width / 8]; constants and padding left
    out. TargetError for values beyond 64 bits."""
    lanes = np.zeros((len(records), 8 * -(-encoding.width // 64)), np.uint8)
    lanes[:, : encoding.width // 8] = records
    lanes = lanes.view("<u8").astype(np.uint64)
    columns: dict[Key, np.ndarray] = {}
    for p in encoding.pieces:
        if p.carries in (Carries.PADDING, Carries.CONSTANT):
            continue
        lane, shift = divmod(p.start, 64)
        stored = lanes[:, lane] >> np.uint64(shift)
        if shift + p.width > 64:
            stored = stored | lanes[:, lane + 1] << np.uint64(64 - shift)
        columns[p.carries, p.name] = _values(p, stored & np.uint64((1 << p.width) - 1))
    return columns


def _values(p: Piece, stored: np.ndarray) -> np.ndarray:
    unused = np.uint64(64 - p.width)
    if p.signed:
        numbers = (stored << unused).view(np.int64) >> unused.astype(np.int64)
    else:
        numbers = stored.view(np.int64)
    most = (2**63 - 1 - max(p.minus, 0)) // p.unit
    least = -((2**63 + min(p.minus, 0)) // p.unit) if p.signed else 0
    if len(numbers) and not least <= numbers.min() <= numbers.max() <= most:
        raise TargetError(f"{p.what} is beyond 64 bits")
    return numbers * p.unit + p.minus


# ---------------------------------------------------------------- back


def decode(
    target: Target,
    words: np.ndarray,
    bases: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Decoded:
    """The stream that `encode` makes these words of. `sizes` are the bytes of the memories that it
    runs in; by default, up to the last that it touches. CompileError for words that are no
    instruction, or give a field a value that it cannot have."""
    _check_distinct(target)
    word = word_bits(target)
    words = np.ascontiguousarray(words, f"<u{word // 8}").reshape(-1)
    starts, kinds = _instructions(target, words, word)
    n = len(starts)
    fields = np.zeros((n, max((len(i.fields) for i in target.instructions), default=0)), np.int64)
    most = max((len(i.operands) for i in target.instructions), default=0)
    addresses = np.zeros((n, most), np.int64)
    pops, pushes = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
    for k in np.unique(kinds):
        instruction = target.instructions[k]
        encoding = _encoding(target, instruction)
        rows = np.flatnonzero(kinds == k)
        record = words[starts[rows][:, None] + np.arange(encoding.width // word)]
        columns = unpack(encoding, record.view(np.uint8))
        for c, f in enumerate(instruction.fields):
            fields[rows, c] = columns.get((Carries.FIELD, f.name), f.low)
        for o, operand in enumerate(instruction.operands):
            base = (bases or {}).get(operand.memory, 0)
            found = columns.get((Carries.ADDRESS, operand.name))
            addresses[rows, o] = 0 if found is None else found - base
        for q, queue in enumerate(target.queues):
            for carries, masks in ((Carries.POP, pops), (Carries.PUSH, pushes)):
                bit = columns.get((carries, queue.name), np.zeros(len(rows), np.int64))
                masks[rows] |= (bit << q).astype(np.uint32)
    return Decoded(stream_of_rows(target, kinds, fields, addresses, sizes), pops, pushes)


def _check_distinct(target: Target) -> None:
    for a, b in ambiguous_pairs(target):
        raise TargetError(
            f"{a} and {b} of {target.name} cannot be told apart",
            hint="give them constants that differ, at the same bits",
        )


def ambiguous_pairs(target: Target) -> Iterator[tuple[str, str]]:
    """Instructions that no constant of their encodings tells apart."""
    for k, (a, x) in enumerate(target.encodings):
        for b, y in target.encodings[k + 1 :]:
            if ambiguous(x, y):
                yield a, b


def _instructions(target: Target, words: np.ndarray, word: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, kinds) of the instructions in words: every place is compared with the constants of
    every instruction, and then the lengths lead from one to the next."""
    kinds_at = np.full(len(words), -1, np.int64)
    lengths = [_width(target, i) // word for i in target.instructions]
    for k, instruction in enumerate(target.instructions):
        mask, value = _encoding(target, instruction).constants
        count = len(words) - lengths[k] + 1
        fits = np.ones(max(count, 0), bool)
        for w in range(lengths[k]):
            part = mask >> w * word & (1 << word) - 1
            if part and count > 0:
                wanted = words.dtype.type(value >> w * word & part)
                fits &= words[w : w + count] & words.dtype.type(part) == wanted
        kinds_at[np.flatnonzero(fits)] = k
    starts = _chain(kinds_at, lengths)
    wrong = kinds_at[starts] < 0
    if wrong.any():
        at = int(starts[np.argmax(wrong)])
        shown = f"0x{int(words[at]):0{word // 4}x}"
        raise CompileError(
            f"instruction {np.argmax(wrong)}: word {at}, {shown}, is none of {target.name}'s"
        )
    return starts, kinds_at[starts]


def _chain(kinds_at: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Where instructions begin, up to the first word that is none."""
    if len(set(lengths)) == 1:
        return np.arange(0, len(kinds_at), lengths[0])
    starts, at = [], 0
    kinds = kinds_at.tolist()
    while at < len(kinds):
        starts.append(at)
        at += lengths[kinds[at]] if kinds[at] >= 0 else len(kinds)
    return np.array(starts, np.int64)
