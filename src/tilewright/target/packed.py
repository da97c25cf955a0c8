"""Encodings that follow from a description: an opcode, tokens, then every field and address in as
few bits as hold it. For chips whose layout is still open; the manual shows what came of it."""

from __future__ import annotations

from tilewright.ir.instruction import Instruction
from tilewright.target.encoding import (
    Encoding,
    Layout,
    address,
    awaits,
    barrier,
    bits,
    constant,
    end_entry,
    field,
    first_entry,
    pop,
    push,
    sets,
)
from tilewright.target.target import Target


def packed_encoding(target: Target, instruction: Instruction, wide: int) -> Encoding:
    """The encoding of one of a target's instructions, in whole bytes. Addresses in memories without
    an end have `wide` bits."""
    names = [i.name for i in target.instructions]
    layout: list[Layout] = [constant(names.index(instruction.name), _bits(len(names) - 1))]
    mine = instruction.queue
    linked = [b if a == mine else a for a, b in target.tokens if mine in (a, b)]
    layout += [token(q) for token in (pop, push) for q in linked]
    layout += [awaits(target.events), sets(target.events)] if target.events else []
    layout += [barrier()] if target.barriers else []
    listed: list[str] = []
    if instruction.micro_ops is not None:
        kind = instruction.micro_ops
        listed = [name for name, _ in kind.axes]
        entries = (target.memory(kind.memory).size or 1 << wide) // kind.bytes
        layout += [first_entry(_bits(entries - 1)), end_entry(_bits(entries))]
    for f in instruction.fields:
        if f.register is None and f.low != f.high:
            unit = f.multiple if f.low % f.multiple == 0 else 1
            steps = (f.high - f.low) // unit
            layout.append(field(f.name, _bits(steps), unit=unit, minus=f.low))
    for operand in instruction.operands:
        if operand.name not in listed:
            memory = target.memory(operand.memory)
            width = wide if memory.size is None else _bits((memory.size - 1) // memory.unit)
            layout.append(address(operand.name, width))
    width = sum(p.width for p in bits(1 << 16, layout).parts[:-1])
    return bits(-(-width // 8) * 8, layout)


def _bits(most: int) -> int:
    """Bits that hold 0 … most."""
    return max(1, most.bit_length())
