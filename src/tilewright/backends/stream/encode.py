"""Streams as the words that a chip fetches: all rows of an instruction at a time.

    words = encode(stream, waits)      a flat array; VTA's has two words of 64 bits an instruction

Encodings are target/encoding.py's. What the bits do not hold is refused, never cut off. The other
way is backends/stream/decode.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from tilewright.backends.stream.bits import Columns, Key, pack
from tilewright.backends.stream.stream import Stream
from tilewright.base.errors import TargetError
from tilewright.ir.instruction import Instruction
from tilewright.target.encoding import Carries, Encoding
from tilewright.target.encoding_faults import fit_faults
from tilewright.target.iterations import list_count
from tilewright.target.target import Target


class Tokens(Protocol):
    """How n instructions wait: waits.py says what the bits of each column [n] mean."""

    @property
    def pops(self) -> np.ndarray: ...

    @property
    def pushes(self) -> np.ndarray: ...

    @property
    def awaits(self) -> np.ndarray: ...

    @property
    def sets(self) -> np.ndarray: ...

    @property
    def barriers(self) -> np.ndarray: ...


def encode(
    stream: Stream, waits: Tokens | None = None, bases: Mapping[str, int] | None = None
) -> np.ndarray:
    """The instructions one after another, as little-endian words of the target's `word_bits`.
    `bases` says at which address a memory begins for the chip. TargetError where something does
    not fit, or an instruction has no encoding."""
    target = stream.target
    encodings = encodings_of(target)
    word = word_bits(encodings)
    kinds = instruction_numbers(stream)
    lengths = np.array([e.width // word for e in encodings], int)
    starts = np.concatenate([[0], np.cumsum(lengths[kinds])])
    words = np.zeros(starts[-1], f"<u{word // 8}")
    for k in np.unique(kinds):
        instruction, encoding = target.instructions[k], encodings[k]
        rows = np.flatnonzero(kinds == k)
        columns = _columns(stream, waits, instruction, rows)
        _check_carried(instruction, encoding, columns, rows, target.events)
        for o in instruction.operands:
            place = (Carries.ADDRESS, o.name)
            if bases and place in columns:
                columns[place] = columns[place] + bases.get(o.memory, 0)
        packed = pack(encoding, columns, f"{instruction.name}, instruction", rows)
        words[starts[rows][:, None] + np.arange(lengths[k])] = packed.view(words.dtype)
    return words


def encode_entries(target: Target, instruction: Instruction, places: np.ndarray) -> np.ndarray:
    """Entries of a list of micro-operations as bytes [n, bytes of one]. places [n, operands with a
    list] says where each leads, in bytes from the start of the operand's memory."""
    entry = target.entry(instruction)
    if entry is None:
        raise TargetError(
            f"the micro-operations of {instruction.name} have no encoding",
            hint="say their bits: t.micro_ops(memory, encoding=bits(32, …))",
        )
    names = listed_operands(instruction)
    columns = {(Carries.ADDRESS, name): places[:, c] for c, name in enumerate(names)}
    return pack(entry, columns, f"{instruction.name}, micro-operation", np.arange(len(places)))


def word_bits(encodings: Sequence[Encoding]) -> int:
    """Bits of a word of a stream: the most, up to 64, that all instructions are whole numbers
    of."""
    return math.gcd(64, *(e.width for e in encodings))


def encodings_of(target: Target) -> list[Encoding]:
    """The encodings of all instructions, in order; TargetError where one is missing or does not
    fit."""
    return [_encoding_of(target, i) for i in target.instructions]


def _encoding_of(target: Target, instruction: Instruction) -> Encoding:
    """The instruction's encoding; TargetError if it has none, or that does not fit it."""
    encoding = target.encoding(instruction)
    if encoding is None:
        raise TargetError(
            f"{instruction.name} of {target.name} has no encoding",
            hint="say its bits: @t.instruction(…, encoding=bits(128, …))",
        )
    faults = fit_faults(target, instruction)
    if faults:
        raise TargetError(
            f"the encoding of {instruction.name} of {target.name} does not fit: "
            + "; ".join(f.what for f in faults),
            hint="; ".join(f.hint for f in faults),
        )
    return encoding


def listed_operands(instruction: Instruction) -> list[str]:
    """The operands that micro-operations lead to, in order."""
    return [o.name for o in instruction.operands if instruction.listed(o) is not None]


def instruction_numbers(stream: Stream) -> np.ndarray:
    """The position of each row's instruction in the target [n]."""
    numbers = {i.name: k for k, i in enumerate(stream.target.instructions)}
    of_site = np.array([numbers[s.instruction.name] for s in stream.sites], np.int64)
    return np.asarray(of_site[stream.site])


def _columns(
    stream: Stream, waits: Tokens | None, instruction: Instruction, rows: np.ndarray
) -> dict[Key, np.ndarray]:
    """Everything that can be said of these rows, by what carries it."""
    columns: dict[Key, np.ndarray] = {}
    for c, f in enumerate(instruction.fields):
        if f.register is None:
            columns[Carries.FIELD, f.name] = stream.fields[rows, c]
    for o, operand in enumerate(instruction.operands):
        if instruction.listed(operand) is None:
            columns[Carries.ADDRESS, operand.name] = stream.addresses[rows, o]
    if instruction.micro_ops is not None:
        entries = np.array([s.entries for s in stream.sites], np.int64)
        columns[Carries.FIRST, ""] = stream.lists[rows]
        columns[Carries.END, ""] = stream.lists[rows] + entries[stream.site[rows]]
    if waits is not None:
        columns |= _waits(stream.target, waits, rows)
    return columns


def _waits(target: Target, waits: Tokens, rows: np.ndarray) -> Iterator[tuple[Key, np.ndarray]]:
    for q, queue in enumerate(target.queues):
        for carries, masks in ((Carries.POP, waits.pops), (Carries.PUSH, waits.pushes)):
            yield (carries, queue.name), masks[rows].astype(np.int64) >> q & 1
    for carries, masks in ((Carries.AWAITS, waits.awaits), (Carries.SETS, waits.sets)):
        yield (carries, ""), masks[rows]
    yield (Carries.BARRIER, ""), waits.barriers[rows].astype(np.int64)


_SAYS = {
    Carries.FIELD: "{name} is {value}",
    Carries.ADDRESS: "operand {name} lies at {value}",
    Carries.POP: "it waits for {name}",
    Carries.PUSH: "it gives {name} a token",
    Carries.AWAITS: "it waits for events",
    Carries.SETS: "it sets events",
    Carries.BARRIER: "it stands behind a barrier",
}
_FORMS = {
    Carries.FIELD: 'field("{name}", …)',
    Carries.ADDRESS: 'address("{name}", …)',
    Carries.AWAITS: "awaits({events})",
    Carries.SETS: "sets({events})",
    Carries.BARRIER: "barrier()",
}


def _check_carried(
    instruction: Instruction, encoding: Encoding, columns: Columns, rows: np.ndarray, events: int
) -> None:
    """What has no bits must be what a decoder takes it to be: waits and addresses 0, fields the
    only value that they may have. How long a list is follows from where it ends."""
    count = list_count(instruction) if encoding.find(Carries.END) else None
    for (carries, name), values in columns.items():
        if carries not in _SAYS or encoding.find(carries, name) is not None:
            continue
        limits = instruction.field(name) if carries is Carries.FIELD else None
        if limits is not None and limits == count:
            continue
        wrong = np.flatnonzero(values != (0 if limits is None else limits.low))
        if len(wrong):
            says = _SAYS[carries].format(name=name, value=values[wrong[0]])
            form = _FORMS.get(carries, f'{carries.value}("{name}")')
            form = form.format(name=name, events=events)
            raise TargetError(
                f"{instruction.name}, instruction {rows[wrong[0]]}: {says}, and the encoding has "
                "no bits for that",
                hint=f"add {form} to it",
            )
