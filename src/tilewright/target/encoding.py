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

MOST = 64  # bits of one piece


class Carries(enum.Enum):
    """What the bits of a piece are for."""

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
class Piece:
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
    """The pieces of `width` bits, lowest first, without gaps. `faults` says where they are more
    than that."""

    width: int
    pieces: tuple[Piece, ...]
    faults: tuple[EncodingFault, ...] = ()

    def find(self, carries: Carries, name: str = "") -> Piece | None:
        """The piece that carries this."""
        found = (p for p in self.pieces if p.carries is carries and p.name == name)
        return next(found, None)

    def in_units(self, instruction: Instruction, units: Mapping[str, int]) -> Encoding:
        """The encoding as an instruction has it: addresses count in the units of the memories in
        which its operands lie, where they have none of their own."""
        homes = {o.name: units.get(o.memory, 1) for o in instruction.operands}
        pieces = (replace(p, unit=p.unit or homes.get(p.name, 1)) for p in self.pieces)
        return replace(self, pieces=tuple(pieces))

    @property
    def constants(self) -> tuple[int, int]:
        """(the bits that are constant, their values), as two numbers of `width` bits."""
        mask = value = 0
        for p in self.pieces:
            if p.carries is Carries.CONSTANT:
                mask |= (1 << p.width) - 1 << p.start
                value |= p.value << p.start
        return mask, value


@dataclass(frozen=True)
class _Place:
    """Where the next piece begins."""

    bit: int


Part = Piece | _Place | Sequence["Part"]


# ---------------------------------------------------------------- the language


def bits(width: int, *parts: Part) -> Encoding:
    """An encoding of `width` bits, a multiple of 8: these pieces, and padding behind them."""
    if width < 8 or width % 8:
        raise TargetError(f"an encoding has {width} bits: not whole bytes")
    pieces: list[Piece] = []
    faults: list[EncodingFault] = []
    at_bit = 0
    for part in _flat(parts):
        if isinstance(part, Piece):
            pieces.append(replace(part, start=at_bit))
            at_bit += part.width
        elif part.bit < at_bit:
            what = f"the pieces before bit {part.bit} take {at_bit} bits"
            faults.append(EncodingFault(what, f"they are {_sizes(pieces)}"))
        elif part.bit > at_bit:
            pieces.append(replace(pad(part.bit - at_bit), start=at_bit))
            at_bit = part.bit
    if at_bit > width:
        what = f"its {width} bits have pieces of {at_bit}"
        faults.append(EncodingFault(what, f"they are {_sizes(pieces)}"))
    elif at_bit < width:
        pieces.append(replace(pad(width - at_bit), start=at_bit))
    _check_once(pieces)
    return Encoding(width, tuple(pieces), tuple(faults[:1]))


def constant(value: int, width: int) -> Piece:
    """Bits that say which instruction it is, such as an opcode."""
    _check_piece(width, 1, f"constant({value}, {width})")
    if not 0 <= value < 1 << width:
        raise TargetError(
            f"constant({value}, {width}): {width} bits hold 0 … {(1 << width) - 1}",
            hint=f"give it {max(1, value.bit_length())} bits" if value >= 0 else None,
        )
    return Piece(Carries.CONSTANT, "", width, value)


def field(
    names: str, width: int, *, unit: int = 1, minus: int = 0, signed: bool = False
) -> tuple[Piece, ...]:
    """A field, stored as (value - minus) / unit; if `signed`, in two's complement. Several names
    ("rows cols") are as many fields, one after another."""
    _check_piece(width, unit, f"field({names!r}, {width})")
    return tuple(
        Piece(Carries.FIELD, name, width, 0, unit, minus, signed) for name in names.split()
    )


def address(operands: str, width: int, *, unit: int | None = None) -> tuple[Piece, ...]:
    """Where an operand's first element lies in its memory, in units of so many bytes: by default,
    of the memory's. Of several ("a b"), one after another."""
    _check_piece(width, 1 if unit is None else unit, f"address({operands!r}, {width})")
    return tuple(Piece(Carries.ADDRESS, name, width, 0, unit or 0) for name in operands.split())


def first_entry(width: int) -> Piece:
    """Where the instruction's list of micro-operations begins, in entries."""
    _check_piece(width, 1, f"first_entry({width})")
    return Piece(Carries.FIRST, "", width)


def end_entry(width: int) -> Piece:
    """Where it has ended: first_entry plus as many as the list has."""
    _check_piece(width, 1, f"end_entry({width})")
    return Piece(Carries.END, "", width)


def pop(queue: str | None) -> Piece:
    """A bit: the instruction takes a token from `queue` before it begins. None: the bit is there,
    and is 0."""
    return pad(1) if queue is None else Piece(Carries.POP, queue, 1)


def push(queue: str | None) -> Piece:
    """A bit: the instruction gives a token to `queue` when it is done. None: the bit is there, and
    is 0."""
    return pad(1) if queue is None else Piece(Carries.PUSH, queue, 1)


def awaits(events: int) -> Piece:
    """A bit for each event that the instruction may wait for."""
    _check_piece(events, 1, f"awaits({events})")
    return Piece(Carries.AWAITS, "", events)


def sets(events: int) -> Piece:
    """A bit for each event that the instruction may set."""
    _check_piece(events, 1, f"sets({events})")
    return Piece(Carries.SETS, "", events)


def barrier() -> Piece:
    """A bit: all instructions before this one are done before it begins."""
    return Piece(Carries.BARRIER, "", 1)


def pad(width: int) -> Piece:
    """Bits that are 0, and mean nothing."""
    if width < 1:
        raise TargetError(f"pad({width}): a piece has at least one bit")
    return Piece(Carries.PADDING, "", width)


def at(bit: int) -> _Place:
    """The next piece begins at this bit."""
    return _Place(bit)


_PIECES = (
    "constant, field, address, pop, push, awaits, sets, barrier, first_entry, end_entry, pad, at"
)


def _flat(parts: Sequence[Part]) -> Iterator[Piece | _Place]:
    for part in parts:
        if isinstance(part, (tuple, list)):
            yield from _flat(part)
        elif isinstance(part, (Piece, _Place)):
            yield part
        else:
            raise TargetError(f"{part!r} is no piece of an encoding", hint=f"pieces: {_PIECES}")


def _check_piece(width: int, unit: int, form: str) -> None:
    if not 1 <= width <= MOST:
        raise TargetError(f"{form}: a piece has 1 … {MOST} bits")
    if unit < 1:
        raise TargetError(f"{form}: its unit is {unit}, and must be at least 1")


def _check_once(pieces: Sequence[Piece]) -> None:
    seen: set[tuple[Carries, str]] = set()
    for p in pieces:
        if p.carries in (Carries.CONSTANT, Carries.PADDING):
            continue
        if (p.carries, p.name) in seen:
            raise TargetError(f"an encoding has two pieces for {p.carries.value} {p.name}".rstrip())
        seen.add((p.carries, p.name))


def _sizes(pieces: Sequence[Piece]) -> str:
    return ", ".join(f"{p.what} {p.width}" for p in pieces)


def ambiguous(a: Encoding, b: Encoding) -> bool:
    """Whether some bits are both: no constant tells the two apart."""
    (mask, value), (other_mask, other_value) = a.constants, b.constants
    return not mask & other_mask & (value ^ other_value)
