"""How instructions become bits: encodings, written from the lowest bit up.

    def head(opcode):
        return constant(opcode, 3), pop(load), pop(store), push(load), push(store)

    @t.instruction(compute, encoding=bits(128, head(2), address("a", 11, unit=16),
                                          at(64), field("rows", 6, minus=1)))
    def gemm(a: …, rows: Range(1, 64)): …

Bits are numbered as in a C bit field on a little-endian machine. What is left of the width is
padding, which is 0. A field or an address is stored as (value - minus) / unit; a value that does
not fit is refused (codegen/encode.py), and an encoding that is too narrow for what the description
allows is refused with the description. Micro-operations and other records have encodings of fields
alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import TargetError
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Field, Instruction

MOST = 64  # bits of one piece


class Carries(enum.Enum):
    """What the bits of a piece are for."""

    CONSTANT = "constant"
    PADDING = "padding"
    POP = "pop"  # a token is taken from a queue before the instruction begins
    PUSH = "push"  # a token is given to a queue when it is done
    FIELD = "field"
    ADDRESS = "address"  # of an operand's first element


@dataclass(frozen=True)
class Piece:
    """Bits start … start + width - 1 of an encoding. `name` is the queue's, the field's or the
    operand's; `value` is a constant's."""

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
        return f"the address of {self.name}" if self.carries is Carries.ADDRESS else self.name


@dataclass(frozen=True)
class Encoding:
    """The pieces of `width` bits, lowest first, without gaps."""

    width: int
    pieces: tuple[Piece, ...]

    def find(self, carries: Carries, name: str) -> Piece | None:
        """The piece that carries this."""
        found = (p for p in self.pieces if p.carries is carries and p.name == name)
        return next(found, None)

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
    at_bit = 0
    for part in _flat(parts):
        end = part.bit if isinstance(part, _Place) else at_bit + part.width
        if isinstance(part, _Place) and end < at_bit:
            raise TargetError(
                f"at({end}): the pieces before it take {at_bit} bits",
                hint=f"they are {_sizes(pieces)}",
            )
        if isinstance(part, Piece):
            pieces.append(replace(part, start=at_bit))
        elif end > at_bit:
            pieces.append(replace(pad(end - at_bit), start=at_bit))
        at_bit = end
    if at_bit > width:
        raise TargetError(
            f"an encoding of {width} bits has pieces of {at_bit}",
            hint=f"they are {_sizes(pieces)}",
        )
    if at_bit < width:
        pieces.append(replace(pad(width - at_bit), start=at_bit))
    _check_once(pieces)
    return Encoding(width, tuple(pieces))


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


def address(operands: str, width: int, *, unit: int = 1) -> tuple[Piece, ...]:
    """Where an operand's first element lies in its memory, in units of so many bytes; of several
    ("a b"), one after another."""
    _check_piece(width, unit, f"address({operands!r}, {width})")
    return tuple(Piece(Carries.ADDRESS, name, width, 0, unit) for name in operands.split())


def pop(queue: str | None) -> Piece:
    """A bit: the instruction takes a token from `queue` before it begins. None: the bit is there,
    and is 0."""
    return pad(1) if queue is None else Piece(Carries.POP, queue, 1)


def push(queue: str | None) -> Piece:
    """A bit: the instruction gives a token to `queue` when it is done. None: the bit is there, and
    is 0."""
    return pad(1) if queue is None else Piece(Carries.PUSH, queue, 1)


def pad(width: int) -> Piece:
    """Bits that are 0, and mean nothing."""
    if width < 1:
        raise TargetError(f"pad({width}): a piece has at least one bit")
    return Piece(Carries.PADDING, "", width)


def at(bit: int) -> _Place:
    """The next piece begins at this bit."""
    return _Place(bit)


def _flat(parts: Sequence[Part]) -> Iterator[Piece | _Place]:
    for part in parts:
        if isinstance(part, (tuple, list)):
            yield from _flat(part)
        elif isinstance(part, (Piece, _Place)):
            yield part
        else:
            known = "constant, field, address, pop, push, pad, at"
            raise TargetError(f"{part!r} is no piece of an encoding", hint=f"pieces: {known}")


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
            raise TargetError(f"an encoding has two pieces for {p.carries.value} {p.name}")
        seen.add((p.carries, p.name))


def _sizes(pieces: Sequence[Piece]) -> str:
    return ", ".join(f"{p.what or p.carries.value} {p.width}" for p in pieces)


# ---------------------------------------------------------------- against the description


@dataclass(frozen=True)
class EncodingFault:
    """What is wrong with an instruction's encoding, and what to do."""

    what: str
    hint: str


def encoding_faults(
    instruction: Instruction, encoding: Encoding, queues: Sequence[str], sizes: Mapping[str, int]
) -> list[EncodingFault]:
    """Where an encoding does not fit its instruction: unknown names, and what the description
    allows but the bits do not hold. `sizes` has the bytes of memories that are limited."""
    found = list(_unknown(instruction, encoding, queues))
    for f in instruction.fields:
        piece = encoding.find(Carries.FIELD, f.name)
        if piece is not None:
            found += _field_faults(f, piece)
        elif f.low != f.high:
            need = _bits_for(f.low, f.high)
            what = f"field {f.name} ({f.low} … {f.high}) has no bits"
            found.append(EncodingFault(what, f'add field("{f.name}", {need})'))
    for operand in instruction.operands:
        piece = encoding.find(Carries.ADDRESS, operand.name)
        if piece is not None and operand.memory in sizes:
            found += _address_faults(operand, piece, sizes[operand.memory])
    return found


def _unknown(
    instruction: Instruction, encoding: Encoding, queues: Sequence[str]
) -> Iterator[EncodingFault]:
    known = {
        Carries.FIELD: ("field", [f.name for f in instruction.fields]),
        Carries.ADDRESS: ("operand", [o.name for o in instruction.operands]),
        Carries.POP: ("queue", list(queues)),
        Carries.PUSH: ("queue", list(queues)),
    }
    for p in encoding.pieces:
        kind, names = known.get(p.carries, ("", []))
        if kind and p.name not in names:
            what = f"it has no {kind} called {p.name!r}"
            yield EncodingFault(what, f"known: {', '.join(names) or 'none'}")


def _field_faults(f: Field, piece: Piece) -> Iterator[EncodingFault]:
    if f.multiple % piece.unit or piece.minus % piece.unit:
        steps = f"multiples of {f.multiple}" if f.multiple > 1 else "any number"
        yield EncodingFault(
            f"field {f.name} is stored in units of {piece.unit}, and may be {steps}",
            f"limit it: Range({f.low}, {f.high}, multiple={piece.unit})",
        )
    elif f.low < piece.low or f.high > piece.high:
        need = _bits_for((f.low - piece.minus) // piece.unit, (f.high - piece.minus) // piece.unit)
        hint = f"give it {need} bits" + (", signed" if f.low < piece.minus else "")
        if not piece.signed and (f.high - f.low) // piece.unit < 1 << piece.width:
            hint += f", or store it with minus={f.low}"
        what = f"field {f.name} goes from {f.low} to {f.high}, and its {piece.holds}"
        yield EncodingFault(what, f"{hint}, or limit it to what fits")


def _address_faults(operand: Buffer, piece: Piece, size: int) -> Iterator[EncodingFault]:
    last = (size - 1) // piece.unit
    if last * piece.unit > piece.high:
        what = f"{piece.what} in {operand.memory} ({size} bytes) needs {last.bit_length()} bits"
        hint = f"widen it, or limit {operand.memory} to {piece.high + piece.unit} bytes"
        yield EncodingFault(f"{what}, and its {piece.holds}", hint)


def _bits_for(low: int, high: int) -> int:
    """Bits that hold low … high, in two's complement if low is negative."""
    if low >= 0:
        return max(1, high.bit_length())
    return 1 + max((-low - 1).bit_length(), high.bit_length() if high > 0 else 0)


def ambiguous(a: Encoding, b: Encoding) -> bool:
    """Whether some bits are both: no constant tells the two apart."""
    (mask, value), (other_mask, other_value) = a.constants, b.constants
    return not mask & other_mask & (value ^ other_value)
