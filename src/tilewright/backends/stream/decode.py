"""The words that a chip fetches, back to a stream: what encode.py made them of.

    found = decode(target, words)      found.stream runs on the simulators, with found's tokens

A decoded stream is one of rows (rows.py): it has no program. Where instructions take lists of
micro-operations, these are read from the memory that the stream itself loads them from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.backends.stream.bits import Columns, unpack
from tilewright.backends.stream.encode import encodings_of, listed_operands, word_bits
from tilewright.backends.stream.micro_ops import list_loader
from tilewright.backends.stream.rows import Rows, stream_of_rows
from tilewright.backends.stream.stream import Stream
from tilewright.base.errors import CompileError, TargetError
from tilewright.ir.instruction import Instruction, MicroOps
from tilewright.target.encoding import Carries, Encoding, ambiguous
from tilewright.target.iterations import list_count, list_extent
from tilewright.target.target import Target


@dataclass(frozen=True, eq=False)
class Decoded:
    """A stream as it was encoded, and its waits: columns [n] as in backends/stream/waits.py."""

    stream: Stream
    pops: np.ndarray
    pushes: np.ndarray
    awaits: np.ndarray
    sets: np.ndarray
    barriers: np.ndarray


def decode(
    target: Target,
    words: np.ndarray,
    *,
    bases: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
    memories: Mapping[str, np.ndarray] | None = None,
) -> Decoded:
    """The stream that `encode` made these words of, with the same `bases`. `sizes` are the bytes of
    the memories that it runs in: by default, up to the last that it touches. `memories` (bytes, by
    name) hold the micro-operations. CompileError for words that are no instruction, or give a field
    a value that it cannot have."""
    for a, b in ambiguous_pairs(target):
        raise TargetError(
            f"{a} and {b} of {target.name} cannot be told apart",
            hint="give them constants that differ, at the same bits",
        )
    encodings = encodings_of(target)
    word = word_bits(encodings)
    words = np.ascontiguousarray(words, f"<u{word // 8}").reshape(-1)
    starts, kinds = _instructions(target, encodings, words, word)
    rows = Rows.empty(target, kinds)
    waits = {name: np.zeros(len(kinds), kind) for name, kind in _WAITS.items()}
    counts = np.zeros(len(kinds), np.int64)
    for k in np.unique(kinds):
        instruction = target.instructions[k]
        encoding = encodings[k]
        ours = np.flatnonzero(kinds == k)
        record = words[starts[ours][:, None] + np.arange(encoding.width // word)]
        columns = unpack(encoding, record.view(np.uint8))
        _fill(rows, instruction, ours, columns, bases or {})
        if instruction.micro_ops is not None:
            counts[ours] = _list_lengths(instruction, rows, ours, columns)
        _fill_waits(waits, target, ours, columns)
    _fill_registers(target, rows)
    _read_lists(target, rows, counts, memories)
    return Decoded(stream_of_rows(target, rows, sizes), **waits)


def ambiguous_pairs(target: Target) -> Iterator[tuple[str, str]]:
    """Instructions that no constant of their encodings tells apart."""
    for k, (a, x) in enumerate(target.encodings):
        for b, y in target.encodings[k + 1 :]:
            if ambiguous(x, y):
                yield a, b


# ---------------------------------------------------------------- instructions


def _instructions(
    target: Target, encodings: Sequence[Encoding], words: np.ndarray, word: int
) -> tuple[np.ndarray, np.ndarray]:
    """(starts, kinds) of the instructions in words: every place is compared with the constants of
    every instruction, those with most of them last, and then the lengths lead from one to the
    next."""
    kinds_at = np.full(len(words), -1, np.int64)
    lengths = [e.width // word for e in encodings]
    for k in sorted(range(len(encodings)), key=lambda k: encodings[k].constants[0].bit_count()):
        mask, value = encodings[k].constants
        count = max(0, len(words) - lengths[k] + 1)
        fits = np.ones(count, bool)
        for w in range(lengths[k]):
            part = mask >> w * word & (1 << word) - 1
            if part:
                wanted = words.dtype.type(value >> w * word & part)
                fits &= words[w : w + count] & words.dtype.type(part) == wanted
        kinds_at[np.flatnonzero(fits)] = k
    starts = _starts(kinds_at, lengths)
    wrong = kinds_at[starts] < 0
    if wrong.any():
        at = int(starts[np.argmax(wrong)])
        shown = f"0x{int(words[at]):0{word // 4}x}"
        raise CompileError(f"word {at}, {shown}, begins no instruction of {target.name}")
    return starts, kinds_at[starts]


def _starts(kinds_at: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Where instructions begin, up to the first word that begins none."""
    if len(set(lengths)) == 1:
        return np.arange(0, len(kinds_at), lengths[0])
    starts, at = [], 0
    kinds = kinds_at.tolist()
    while at < len(kinds):
        starts.append(at)
        at += lengths[kinds[at]] if kinds[at] >= 0 else len(kinds)
    return np.array(starts, np.int64)


def _fill(
    rows: Rows,
    instruction: Instruction,
    ours: np.ndarray,
    columns: Columns,
    bases: Mapping[str, int],
) -> None:
    """Fields and addresses of an instruction's rows; what has no bits has its only value."""
    for c, f in enumerate(instruction.fields):
        rows.fields[ours, c] = columns.get((Carries.FIELD, f.name), f.low)
    for o, operand in enumerate(instruction.operands):
        found = columns.get((Carries.ADDRESS, operand.name))
        if found is not None:
            rows.addresses[ours, o] = found - bases.get(operand.memory, 0)


_WAITS = {
    "pops": np.uint32, "pushes": np.uint32, "awaits": np.uint64, "sets": np.uint64,
    "barriers": np.uint8,
}  # fmt: skip


def _fill_waits(
    waits: Mapping[str, np.ndarray], target: Target, ours: np.ndarray, columns: Columns
) -> None:
    for q, queue in enumerate(target.queues):
        for carries, name in ((Carries.POP, "pops"), (Carries.PUSH, "pushes")):
            if (carries, queue.name) in columns:
                waits[name][ours] |= (columns[carries, queue.name] << q).astype(np.uint32)
    plain = ((Carries.AWAITS, "awaits"), (Carries.SETS, "sets"), (Carries.BARRIER, "barriers"))
    for carries, name in plain:
        if (carries, "") in columns:
            waits[name][ours] = columns[carries, ""].astype(waits[name].dtype)


def _fill_registers(target: Target, rows: Rows) -> None:
    """Fields that are in registers: what the instruction that sets them said last."""
    for k in np.unique(rows.kinds):
        instruction = target.instructions[k]
        ours = np.flatnonzero(rows.kinds == k)
        for c, f in enumerate(instruction.fields):
            if f.register is None:
                continue
            setter = target.instruction(f.register[0])
            settings = np.flatnonzero(rows.kinds == target.instructions.index(setter))
            last = np.searchsorted(settings, ours) - 1
            if (last < 0).any():
                raise CompileError(
                    f"{instruction.name}, instruction {ours[np.argmax(last < 0)]}: nothing has set "
                    f"{f.name}",
                    hint=f"{setter.name} must come before it",
                )
            column = [x.name for x in setter.fields].index(f.register[1])
            rows.fields[ours, c] = rows.fields[settings[last], column]


# ---------------------------------------------------------------- lists of micro-operations


def _list_lengths(
    instruction: Instruction, rows: Rows, ours: np.ndarray, columns: Columns
) -> np.ndarray:
    """How many entries the lists of these rows have; also notes where they begin, and the field
    that says how many."""
    rows.lists[ours] = columns[Carries.FIRST, ""]
    field = list_count(instruction)
    if field is None:
        return np.full(len(ours), list_extent(instruction))
    c = instruction.fields.index(field)
    if (Carries.END, "") in columns:
        rows.fields[ours, c] = columns[Carries.END, ""] - columns[Carries.FIRST, ""]
    return np.asarray(rows.fields[ours, c])


def _read_lists(
    target: Target, rows: Rows, counts: np.ndarray, memories: Mapping[str, np.ndarray] | None
) -> None:
    """Follows the loads of lists through the stream, and reads each where it is used."""
    used = {int(k): target.instructions[k].micro_ops for k in np.unique(rows.kinds)}
    for kind in {m.with_(axes=()) for m in used.values() if m is not None}:
        _read_kind(target, kind, rows, counts, memories)


def _read_kind(
    target: Target,
    kind: MicroOps,
    rows: Rows,
    counts: np.ndarray,
    memories: Mapping[str, np.ndarray] | None,
) -> None:
    loader = list_loader(target, kind)
    source, _ = loader.operands
    if memories is None or source.memory not in memories:
        raise CompileError(
            f"the micro-operations of {target.name} are data in {source.memory}",
            hint=f'give what is in it: decode(…, memories={{"{source.memory}": bytes}})',
        )
    held = memories[source.memory]
    there = np.zeros(target.memory(kind.memory).size or len(held), np.uint8)
    loads = rows.kinds == target.instructions.index(loader)
    takes = [i.micro_ops is not None and i.micro_ops.memory == kind.memory
             for i in target.instructions]  # fmt: skip
    for row in np.flatnonzero(loads | np.array(takes)[rows.kinds]):
        if loads[row]:
            size = int(rows.fields[row, 0]) * source.dtype.bytes
            begin, at = rows.addresses[row, :2]
            there[at : at + size] = held[begin : begin + size]
            continue
        instruction = target.instructions[rows.kinds[row]]
        first, count = rows.lists[row] * kind.bytes, int(counts[row])
        records = there[first : first + count * kind.bytes].reshape(-1, kind.bytes)
        if len(records) < count or count < 1:
            raise CompileError(
                f"{instruction.name}, instruction {row}: its list of {count} micro-operations "
                f"is not within {kind.memory}"
            )
        rows.entries[int(row)] = _entries(target, instruction, records)


def _entries(target: Target, instruction: Instruction, records: np.ndarray) -> np.ndarray:
    """Where the operands of an instruction are, by its list [n, operands with a list]."""
    entry = target.entry(instruction)
    if entry is None:
        raise TargetError(f"the micro-operations of {instruction.name} have no encoding")
    columns = unpack(entry, records)
    names = listed_operands(instruction)
    return np.stack([columns[Carries.ADDRESS, name] for name in names], axis=1)
