"""Calls of instructions that LLVM knows, as calls of its intrinsics.

An instruction's `native` spells the call, operands by name:

    <16 x i32> llvm.x86.avx512.vpdpbusd.512(<16 x i32> c, <64 x i8> a, <64 x i8> b)

Every operand is a piece of contiguous memory. One of fewer bytes than its argument is repeated to
fill it: a broadcast. The result goes to the operand that the instruction writes. Accumulators stay
in registers because LLVM promotes small local buffers.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tilewright.backends.native.expr import ExprEmitter
from tilewright.backends.native.text import Function, memory_type
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Binary, Buffer, Expr, binary, const
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import Call, If, buffers_written, walk_statements
from tilewright.ir.substitute import rewrite

_TYPE = r"<\d+ x \w+>|\w+"
_CALL = re.compile(rf"({_TYPE}) ([\w.]+)\((.*)\)")
_ARGUMENT = re.compile(rf"({_TYPE}) (\w+)")
_BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16}


@dataclass(frozen=True)
class Spelling:
    """An intrinsic: the type of its result, its name, (type, operand) of its arguments."""

    result: str
    name: str
    arguments: tuple[tuple[str, Buffer], ...]
    written: Buffer


@functools.cache
def read_spelling(instruction: Instruction) -> Spelling:
    """The parts of `instruction.native`; CompileError where they do not fit its operands."""
    found = _CALL.fullmatch(instruction.native)
    if found is None:
        raise _bad(instruction, "it is no call of an intrinsic")
    if instruction.fields or instruction.strides:
        raise _bad(instruction, "an intrinsic takes operands as they lie in memory, and no fields")
    if any(isinstance(s, If) for s in walk_statements(instruction.body)):
        raise _bad(instruction, "an intrinsic does all of it, and the meaning has a condition")
    operands = {o.name: o for o in instruction.operands}
    written = [o for o in instruction.operands if o in buffers_written(instruction.body)]
    if len(written) != 1:
        raise _bad(instruction, f"the instruction writes {len(written)} operands, and must write 1")
    arguments = []
    for part in re.split(r",\s*(?![^<]*>)", found[3]):
        one = _ARGUMENT.fullmatch(part.strip())
        if one is None or one[2] not in operands:
            raise _bad(instruction, f"{part.strip()!r} is no type and operand")
        operand = operands[one[2]]
        bits = _bits(one[1])
        if not bits or bits % _size(operand):
            size = f"{operand.name} has {_size(operand)} bits"
            raise _bad(instruction, f"{size}, which do not fill {one[1]}")
        arguments.append((one[1], operand))
    if _bits(found[1]) != _size(written[0]):
        raise _bad(instruction, f"{found[1]} is not as large as {written[0].name}")
    return Spelling(found[1], found[2], tuple(arguments), written[0])


def emit_call(f: Function, e: ExprEmitter, s: Call) -> None:
    """One call."""
    if not s.instruction.native:
        raise CompileError(
            f"{s.instruction.name} is an instruction of another chip: LLVM has no spelling for it",
            program=s,
        )
    spelling = read_spelling(s.instruction)
    regions = dict(zip(s.instruction.operands, s.regions, strict=True))
    arguments = [
        f"{kind} {_argument(f, e, operand, regions[operand], kind)}"
        for kind, operand in spelling.arguments
    ]
    result = f.call(spelling.result, spelling.name, *arguments)
    pointer = _pointer(e, regions[spelling.written], spelling.written)
    align = spelling.written.dtype.bytes
    f.emit(f"store {spelling.result} {result}, ptr {pointer}, align {align}")
    e.written(regions[spelling.written].buffer)


def _argument(f: Function, e: ExprEmitter, operand: Buffer, region: Region, kind: str) -> str:
    """The operand's elements as a value of an LLVM type, repeated to fill it."""
    pointer, align = _pointer(e, region, operand), operand.dtype.bytes
    size, wanted = _size(operand), _bits(kind)
    if size == wanted:
        return f.let(f"load {kind}, ptr {pointer}, align {align}")
    element = memory_type(operand.dtype) if len(_extents(operand)) == 0 else f"i{size}"
    count = wanted // size
    one = f.let(f"load {element}, ptr {pointer}, align {align}")
    first = f.let(f"insertelement <{count} x {element}> poison, {element} {one}, i64 0")
    vector = f"<{count} x {element}>"
    order = f"<{count} x i32> zeroinitializer"
    repeated = f.let(f"shufflevector {vector} {first}, {vector} poison, {order}")
    return repeated if vector == kind else f.let(f"bitcast {vector} {repeated} to {kind}")


def _pointer(e: ExprEmitter, region: Region, operand: Buffer) -> str:
    """Where the operand's first element lies: at 0 along its axes."""
    (at,) = region.indices
    start: dict[Expr, Expr] = {axis(k): const(0) for k in range(len(operand.shape))}

    def folded(x: Expr) -> Expr:
        return binary(x.op, x.a, x.b) if isinstance(x, Binary) else start.get(x, x)

    return e.address(region.buffer, rewrite(at, folded) if start else at)


def _extents(operand: Buffer) -> list[int]:
    """Those of more than one element."""
    return [int(n) for n in operand.shape if n != 1]


def _size(operand: Buffer) -> int:
    """Bits of an operand."""
    total = operand.dtype.bytes * 8
    for n in _extents(operand):
        total *= n
    return total


def _bits(kind: str) -> int:
    """Bits of an LLVM type; 0 of one that has no numbers."""
    count, _, element = kind.strip("<>").rpartition(" x ")
    digits = element.removeprefix("i")
    bits = _BITS.get(element) or (int(digits) if digits.isdecimal() else 0)
    return bits * int(count or 1)


def _bad(instruction: Instruction, why: str) -> CompileError:
    return CompileError(
        f"the LLVM spelling of {instruction.name} does not fit: {why}",
        program=instruction.native,
        hint="<16 x float> llvm.fma.v16f32(<16 x float> a, <16 x float> b, <16 x float> c)",
    )
