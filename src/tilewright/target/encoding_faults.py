"""Encodings against the description: names that nothing has, and what the description allows but
the bits do not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.ir.instruction import Field, Instruction, MicroOps
from tilewright.target.encoding import Carries, Encoding, EncodingFault
from tilewright.target.iterations import list_count
from tilewright.target.target import Target


def name_faults(target: Target, instruction: Instruction) -> list[EncodingFault]:
    """What an instruction's encoding names that is not there, or not in the instruction."""
    encoding = target.encoding(instruction)
    return [] if encoding is None else list(_unknown(target, instruction, encoding))


def fit_faults(target: Target, instruction: Instruction) -> list[EncodingFault]:
    """What the description allows but the bits of an instruction, or of an entry of its list, do
    not hold."""
    encoding, entry = target.encoding(instruction), target.entry(instruction)
    sizes = {m.name: m.size for m in target.memories if m.size is not None}
    found: list[EncodingFault] = []
    if encoding is not None:
        found += [*encoding.faults, *_event_faults(encoding, target.events)]
        for f in instruction.fields:
            found += _field_faults(instruction, f, encoding)
        found += _address_faults(instruction, encoding, sizes)
        if instruction.micro_ops is not None:
            found += _list_faults(instruction.micro_ops, encoding, sizes)
    if entry is not None and instruction.micro_ops is not None:
        found += [EncodingFault(f"of a micro-operation, {f.what}", f.hint) for f in entry.faults]
        for name, _ in instruction.micro_ops.axes:
            if entry.find(Carries.ADDRESS, name) is None:
                what = f"a micro-operation has no bits for the address of {name}"
                found.append(EncodingFault(what, f'add address("{name}", …)'))
        found += _address_faults(instruction, entry, sizes)
    return found


def _unknown(
    target: Target, instruction: Instruction, encoding: Encoding
) -> Iterator[EncodingFault]:
    queues = [q.name for q in target.queues]
    listed = [name for name, _ in instruction.micro_ops.axes] if instruction.micro_ops else []
    known = {
        Carries.FIELD: ("field", [f.name for f in instruction.fields]),
        Carries.ADDRESS: ("operand", [o.name for o in instruction.operands]),
        Carries.POP: ("queue", queues),
        Carries.PUSH: ("queue", queues),
    }
    for p in encoding.parts:
        kind, names = known.get(p.carries, ("", []))
        if kind and p.name not in names:
            what = f"it has no {kind} called {p.name!r}"
            yield EncodingFault(what, f"known: {', '.join(names) or 'none'}")
        if p.carries is Carries.ADDRESS and p.name in listed:
            what = f"{p.what} comes from a list"
            yield EncodingFault(what, "leave it out: it stands in the micro-operations")
        if p.carries in (Carries.FIRST, Carries.END) and instruction.micro_ops is None:
            yield EncodingFault("it has no list of micro-operations", f"leave out {p.what}")
    for f in instruction.fields:
        if f.register is not None and encoding.find(Carries.FIELD, f.name) is not None:
            what = f"field {f.name} is in a register that {f.register[0]} sets"
            yield EncodingFault(what, "leave it out")


def _event_faults(encoding: Encoding, events: int) -> Iterator[EncodingFault]:
    for carries in (Carries.AWAITS, Carries.SETS):
        part = encoding.find(carries)
        if part is not None and part.width != events:
            what = f"{part.what} has bits for {part.width} events, and there are {events}"
            yield EncodingFault(what, f"{carries.value}({events})" if events else "leave it out")


def _field_faults(i: Instruction, f: Field, encoding: Encoding) -> Iterator[EncodingFault]:
    part = encoding.find(Carries.FIELD, f.name)
    if f.register is not None:
        return
    if part is None:
        follows = f == list_count(i) and encoding.find(Carries.END) is not None
        if f.low != f.high and not follows:
            need, signed = _bits_for(f.low, f.high, f.low < 0), ", signed=True" * (f.low < 0)
            what = f"field {f.name} ({f.low} … {f.high}) has no bits"
            yield EncodingFault(what, f'add field("{f.name}", {need}{signed})')
        return
    if f.multiple % part.unit or part.minus % part.unit:
        steps = f"multiples of {f.multiple}" if f.multiple > 1 else "any number"
        yield EncodingFault(
            f"field {f.name} is stored in units of {part.unit}, and may be {steps}",
            f"limit it: Range({f.low}, {f.high}, multiple={part.unit})",
        )
    elif f.low < part.low or f.high // part.unit * part.unit > part.high:
        low, high = ((x - part.minus) // part.unit for x in (f.low, f.high))
        negative = part.signed or f.low < part.minus
        hint = f"give it {_bits_for(low, high, negative)} bits" + (", signed" if negative else "")
        if not part.signed and (f.high - f.low) // part.unit < 1 << part.width:
            hint += f", or store it with minus={f.low}"
        what = f"field {f.name} goes from {f.low} to {f.high}, and its {part.holds}"
        yield EncodingFault(what, f"{hint}, or limit it to what fits")


def _address_faults(
    instruction: Instruction, encoding: Encoding, sizes: Mapping[str, int]
) -> Iterator[EncodingFault]:
    for operand in instruction.operands:
        part = encoding.find(Carries.ADDRESS, operand.name)
        if part is None or operand.memory not in sizes:
            continue
        size = sizes[operand.memory]
        last = (size - 1) // part.unit
        if last * part.unit > part.high:
            what = f"{part.what} in {operand.memory} ({size} bytes) needs {last.bit_length()} bits"
            hint = f"widen it, or limit {operand.memory} to {part.high + part.unit} bytes"
            yield EncodingFault(f"{what}, and its {part.holds}", hint)


def _list_faults(
    kind: MicroOps, encoding: Encoding, sizes: Mapping[str, int]
) -> Iterator[EncodingFault]:
    for carries, beyond in ((Carries.FIRST, 1), (Carries.END, 0)):
        part = encoding.find(carries)
        if part is None:
            if carries is Carries.FIRST:
                what = "it does not say where its list of micro-operations begins"
                yield EncodingFault(what, "add first_entry(…)")
            continue
        last = sizes.get(kind.memory, 0) // kind.bytes - beyond
        if last > part.high:
            what = f"{part.what} in {kind.memory} ({sizes[kind.memory]} bytes) goes to {last}"
            hint = f"widen it to {last.bit_length()} bits, or make {kind.memory} smaller"
            yield EncodingFault(f"{what}, and its {part.holds}", hint)


def _bits_for(low: int, high: int, signed: bool) -> int:
    """Bits that hold low … high, in two's complement if signed."""
    if signed:
        return 1 + max(low.bit_length() if low >= 0 else (-low - 1).bit_length(), high.bit_length())
    return max(1, high.bit_length())
