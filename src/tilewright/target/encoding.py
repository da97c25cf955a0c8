"""How instructions become bits: encodings, written from the lowest bit up.

    def head(opcode):
        return constant(opcode, 3), pop(load), pop(store), push(load), push(store)

    @t.instruction(compute, encoding=bits(128, head(2), address("a b", 11), at(64),
                                          field("rows", 6, minus=1)))
    def gemm(a: …, b: …, rows: Range(1, 64)): …

Bits are numbered as in a C bit field on a little-endian machine. What is left of the width is
padding, which is 0. A field or an address is stored as (value - minus) / unit. An encoding that is
too narrow for what the description allows (encoding_faults.py) is no harm to a chip that is only
simulated, for a family of chips may outgrow its encoding; encoding a stream refuses it. An entry
of a list of micro-operations is encoded in the same way, with the addresses of the operands that
it leads to.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import TargetError
from tilewright.ir.instruction import Instruction

MOST = 64  # bits of one part


class Carries(enum.Enum):
    """What the bits of a part are for."""

    CONSTANT = "constant"
    PADDING = "padding"
    POP = "pop"  # a token is taken from a queue before the instruction begins
    PUSH = "push"  # a token is given to a queue when it is done
    AWAITS = "awaits"  # bit e: event e is waited for
    SETS = "sets"  # bit e: event e is set when the instruction is done
    BARRIER = "barrier"  # all that stands before it is done first
    FIELD = "field"
    ADDRESS = "address"  # of an operand's first element
    FIRST = "first_entry"  # where the list of micro-operations begins, in entries
    END = "end_entry"  # and where it has ended


@dataclass(frozen=True)
class EncodingPart:
    """Bits start … start + width - 1 of an encoding. `name` is the queue's, the field's or the
    operand's; `value` is a constant's; the unit of an address may be left to the memory (0)."""

    carries: Carries
    name: str
    width: int
    value: int = 0
    unit: int = 1
    minus: int = 0
    signed: bool = False
    start: int = 0

    @property
    def low(self) -> int:
        """The least value that the bits hold."""
        return (-(1 << self.width - 1) if self.signed else 0) * self.unit + self.minus

    @property
    def high(self) -> int:
        """The greatest one."""
        return ((1 << self.width - self.signed) - 1) * self.unit + self.minus

    @property
    def holds(self) -> str:
        """ "6 bits hold 1 … 64"."""
        steps = f" in steps of {self.unit}" if self.unit > 1 else ""
        count = f"{self.width} bits hold" if self.width > 1 else "one bit holds"
        return f"{count} {self.low} … {self.high}{steps}"

    @property
    def what(self) -> str:
        """ "rows", "the address of dst"."""
        return _WORDS.get(self.carries, "{}").format(self.name)


_WORDS = {
    Carries.CONSTANT: "constant",
    Carries.PADDING: "padding",
    Carries.POP: "pop {}",
    Carries.PUSH: "push {}",
    Carries.AWAITS: "awaits",
    Carries.SETS: "sets",
    Carries.BARRIER: "barrier",
    Carries.ADDRESS: "the address of {}",
    Carries.FIRST: "the first entry of the list",
    Carries.END: "the end of the list",
}


@dataclass(frozen=True)
class EncodingFault:
    """What is wrong with an encoding, and what to do."""

    what: str
    hint: str


@dataclass(frozen=True)
class Encoding:
    """The parts of `width` bits, lowest first, without gaps. `faults` says where they are more
    than that."""

    width: int
    parts: tuple[EncodingPart, ...]
    faults: tuple[EncodingFault, ...] = ()

    def find(self, carries: Carries, name: str = "") -> EncodingPart | None:
        """The part that carries this."""
        found = (p for p in self.parts if p.carries is carries and p.name == name)
        return next(found, None)

    def in_units(self, instruction: Instruction, units: Mapping[str, int]) -> Encoding:
        """The encoding as an instruction has it: addresses count in the units of the memories in
        which its operands lie, where they have none of their own."""
        homes = {o.name: units.get(o.memory, 1) for o in instruction.operands}
        parts = (replace(p, unit=p.unit or homes.get(p.name, 1)) for p in self.parts)
        return replace(self, parts=tuple(parts))

    @property
    def constants(self) -> tuple[int, int]:
        """(the bits that are constant, their values), as two numbers of `width` bits."""
        mask = value = 0
        for p in self.parts:
            if p.carries is Carries.CONSTANT:
                mask |= (1 << p.width) - 1 << p.start
                value |= p.value << p.start
        return mask, value


@dataclass(frozen=True)
class _Place:
    """Where the next part begins."""

    bit: int


Layout = EncodingPart | _Place | Sequence["Layout"]


# ---------------------------------------------------------------- the language


def bits(width: int, *layout: Layout) -> Encoding:
    """An encoding of `width` bits, a multiple of 8: these parts, and padding behind them."""
    if width < 8 or width % 8:
        raise TargetError(f"an encoding has {width} bits: not whole bytes")
    parts: list[EncodingPart] = []
    faults: list[EncodingFault] = []
    at_bit = 0
    for item in _flat(layout):
        if isinstance(item, EncodingPart):
            parts.append(replace(item, start=at_bit))
            at_bit += item.width
        elif item.bit < at_bit:
            what = f"the parts before bit {item.bit} take {at_bit} bits"
            faults.append(EncodingFault(what, f"they are {_sizes(parts)}"))
        elif item.bit > at_bit:
            parts.append(replace(pad(item.bit - at_bit), start=at_bit))
            at_bit = item.bit
    if at_bit > width:
        what = f"its {width} bits have parts of {at_bit}"
        faults.append(EncodingFault(what, f"they are {_sizes(parts)}"))
    elif at_bit < width:
        parts.append(replace(pad(width - at_bit), start=at_bit))
    _check_once(parts)
    return Encoding(width, tuple(parts), tuple(faults[:1]))


def constant(value: int, width: int) -> EncodingPart:
    """Bits that say which instruction it is, such as an opcode."""
    _check_part(width, 1, f"constant({value}, {width})")
    if not 0 <= value < 1 << width:
        raise TargetError(
            f"constant({value}, {width}): {width} bits hold 0 … {(1 << width) - 1}",
            hint=f"give it {max(1, value.bit_length())} bits" if value >= 0 else None,
        )
    return EncodingPart(Carries.CONSTANT, "", width, value)


def field(
    names: str, width: int, *, unit: int = 1, minus: int = 0, signed: bool = False
) -> tuple[EncodingPart, ...]:
    """A field, stored as (value - minus) / unit; if `signed`, in two's complement. Several names
    ("rows cols") are as many fields, one after another."""
    _check_part(width, unit, f"field({names!r}, {width})")
    return tuple(
        EncodingPart(Carries.FIELD, name, width, 0, unit, minus, signed) for name in names.split()
    )


def address(operands: str, width: int, *, unit: int | None = None) -> tuple[EncodingPart, ...]:
    """Where an operand's first element lies in its memory, in units of so many bytes: by default,
    of the memory's. Of several ("a b"), one after another."""
    _check_part(width, 1 if unit is None else unit, f"address({operands!r}, {width})")
    return tuple(
        EncodingPart(Carries.ADDRESS, name, width, 0, unit or 0) for name in operands.split()
    )


def first_entry(width: int) -> EncodingPart:
    """Where the instruction's list of micro-operations begins, in entries."""
    _check_part(width, 1, f"first_entry({width})")
    return EncodingPart(Carries.FIRST, "", width)


def end_entry(width: int) -> EncodingPart:
    """Where it has ended: first_entry plus as many as the list has."""
    _check_part(width, 1, f"end_entry({width})")
    return EncodingPart(Carries.END, "", width)


def pop(queue: str | None) -> EncodingPart:
    """A bit: the instruction takes a token from `queue` before it begins. None: the bit is there,
    and is 0."""
    return pad(1) if queue is None else EncodingPart(Carries.POP, queue, 1)


def push(queue: str | None) -> EncodingPart:
    """A bit: the instruction gives a token to `queue` when it is done. None: the bit is there, and
    is 0."""
    return pad(1) if queue is None else EncodingPart(Carries.PUSH, queue, 1)


def awaits(events: int) -> EncodingPart:
    """A bit for each event that the instruction may wait for."""
    _check_part(events, 1, f"awaits({events})")
    return EncodingPart(Carries.AWAITS, "", events)


def sets(events: int) -> EncodingPart:
    """A bit for each event that the instruction may set."""
    _check_part(events, 1, f"sets({events})")
    return EncodingPart(Carries.SETS, "", events)


def barrier() -> EncodingPart:
    """A bit: all instructions before this one are done before it begins."""
    return EncodingPart(Carries.BARRIER, "", 1)


def pad(width: int) -> EncodingPart:
    """Bits that are 0, and mean nothing."""
    if width < 1:
        raise TargetError(f"pad({width}): a part has at least one bit")
    return EncodingPart(Carries.PADDING, "", width)


def at(bit: int) -> _Place:
    """The next part begins at this bit."""
    return _Place(bit)


_PARTS = (
    "constant, field, address, pop, push, awaits, sets, barrier, first_entry, end_entry, pad, at"
)


def _flat(layout: Sequence[Layout]) -> Iterator[EncodingPart | _Place]:
    for item in layout:
        if isinstance(item, (tuple, list)):
            yield from _flat(item)
        elif isinstance(item, (EncodingPart, _Place)):
            yield item
        else:
            raise TargetError(f"{item!r} is no part of an encoding", hint=f"parts: {_PARTS}")


def _check_part(width: int, unit: int, form: str) -> None:
    if not 1 <= width <= MOST:
        raise TargetError(f"{form}: a part has 1 … {MOST} bits")
    if unit < 1:
        raise TargetError(f"{form}: its unit is {unit}, and must be at least 1")


def _check_once(parts: Sequence[EncodingPart]) -> None:
    seen: set[tuple[Carries, str]] = set()
    for p in parts:
        if p.carries in (Carries.CONSTANT, Carries.PADDING):
            continue
        if (p.carries, p.name) in seen:
            raise TargetError(f"an encoding has two parts for {p.carries.value} {p.name}".rstrip())
        seen.add((p.carries, p.name))


def _sizes(parts: Sequence[EncodingPart]) -> str:
    return ", ".join(f"{p.what} {p.width}" for p in parts)


def ambiguous(a: Encoding, b: Encoding) -> bool:
    """Whether some bits are both: no constant tells the two apart, and neither is the other with a
    field at a constant value (of which decoders take the one with the constant)."""
    (mask, value), (other_mask, other_value) = a.constants, b.constants
    if mask & other_mask & (value ^ other_value):
        return False
    more, fewer = (mask & ~other_mask, b), (other_mask & ~mask, a)
    (extra, general), (none, _) = (more, fewer) if more[0] else (fewer, more)
    return bool(none) or not extra or bool(extra & ~_fields(general))


def _fields(e: Encoding) -> int:
    """The bits that fields have, as a number of `width` bits."""
    parts = (p for p in e.parts if p.carries is Carries.FIELD)
    return sum((1 << p.width) - 1 << p.start for p in parts)
