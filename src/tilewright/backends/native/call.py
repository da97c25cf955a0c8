"""Calls of instructions that LLVM knows, as calls of its intrinsics.

An instruction's `native` spells the call, operands by name:

    <16 x i32> llvm.x86.avx512.vpdpbusd.512(<16 x i32> c, <64 x i8> a, <64 x i8> b)

An argument may be such a term again, and a name without a dot is one of LLVM's operators; so an
instruction can be what several do together:

    <8 x i32> add(<8 x i32> c, <8 x i32> llvm.x86.avx2.pmadd.wd(<16 x i16> a, <16 x i16> b))

`asm.v` is its argument in a register of that class (LLVM's letter for it), about which LLVM knows
nothing: it adds up the terms of a sum in the order in which they are written. `interleave.4` takes
its argument for four rows, and puts the elements of each column side by side: how a processor does
that is LLVM's to choose.

Every operand is a piece of contiguous memory. One of fewer bytes than its argument is repeated to
fill it: a broadcast. The result goes to the operand that the instruction writes. Accumulators stay
in registers because LLVM promotes small local buffers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.backends.native.expr import ExprEmitter
from tilewright.backends.native.text import Function, memory_type
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Binary, Buffer, Expr, binary, const
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import Call, If, buffers_written, walk_statements
from tilewright.ir.substitute import rewrite

_TYPE = r"<\d+ x \w+>|\w+"
_TERM = re.compile(rf"({_TYPE}) ([\w.]+)(?:\((.*)\))?")
# Of LLVM, and what they take: operators of two values, and conversions.
OPERATORS = dict.fromkeys(("add", "sub", "mul", "fadd", "fsub", "fmul"), 2)
OPERATORS |= dict.fromkeys(("sext", "zext", "trunc", "fpext", "fptrunc", "bitcast"), 1)
_BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16}


@dataclass(frozen=True)
class Term:
    """A value of an LLVM type: what an intrinsic or an operator of that name makes of `arguments`;
    an operand of that name if they are None."""

    kind: str
    name: str
    arguments: tuple[Term, ...] | None

    def operands(self) -> Iterator[Term]:
        """The operands in it, as they are read."""
        if self.arguments is None:
            yield self
        for a in self.arguments or ():
            yield from a.operands()


@dataclass(frozen=True)
class Spelling:
    """What an instruction is called in LLVM, its operands by name, and the one that the result goes
    to."""

    term: Term
    operands: dict[str, Buffer]
    written: Buffer


def parse_term(text: str) -> Term:
    """What a spelling means. Text that means nothing is an operand without a type."""
    found = _TERM.fullmatch(text)
    if found is None:
        return Term("", text, None)
    inside = found[3]
    parts = None if inside is None else tuple(parse_term(x) for x in _top_level(inside))
    return Term(found[1], found[2], parts)


@functools.cache
def read_spelling(instruction: Instruction) -> Spelling:
    """The parts of `instruction.native`; CompileError where they do not fit its operands."""
    term = parse_term(instruction.native)
    if term.arguments is None:
        raise _bad(instruction, "it is no call of an intrinsic")
    if instruction.fields or instruction.strides:
        raise _bad(instruction, "an intrinsic takes operands as they lie in memory, and no fields")
    if any(isinstance(s, If) for s in walk_statements(instruction.body)):
        raise _bad(instruction, "an intrinsic does all of it, and the meaning has a condition")
    written = [o for o in instruction.operands if o in buffers_written(instruction.body)]
    if len(written) != 1:
        raise _bad(instruction, f"the instruction writes {len(written)} operands, and must write 1")
    operands = {o.name: o for o in instruction.operands}
    _check_term(instruction, term, operands)
    if _bits(term.kind) != _size(written[0]):
        raise _bad(instruction, f"{term.kind} is not as large as {written[0].name}")
    return Spelling(term, operands, written[0])


def _check_term(instruction: Instruction, x: Term, operands: Mapping[str, Buffer]) -> None:
    if x.arguments is not None:
        wanted = 1 if x.name.startswith(("asm.", "interleave.")) else OPERATORS.get(x.name)
        if wanted is None and "." not in x.name:
            raise _bad(instruction, f"{x.name} is none of {', '.join(OPERATORS)}, nor an intrinsic")
        if wanted not in (None, len(x.arguments)):
            raise _bad(instruction, f"{x.name} takes {wanted}, and is given {len(x.arguments)}")
        if x.name.startswith("interleave.") and not _rows_of(x):
            raise _bad(instruction, f"{x.name} does not divide {x.kind} into equal rows")
        for argument in x.arguments:
            _check_term(instruction, argument, operands)
        return
    if x.name not in operands:
        shown = f"{x.kind} {x.name}".strip()
        raise _bad(instruction, f"{shown!r} is no type and operand")
    bits, size = _bits(x.kind), _size(operands[x.name])
    if not bits or bits % size:
        raise _bad(instruction, f"{x.name} has {size} bits, which do not fill {x.kind}")


def _lanes(kind: str) -> int:
    """Those of a vector type; 1 of others."""
    return int(kind.strip("<>").rpartition(" x ")[0] or 1)


def _rows_of(x: Term) -> int:
    """The number of rows that are interleaved; 0 if a vector has none so many."""
    digits = x.name.removeprefix("interleave.")
    rows = int(digits) if digits.isdecimal() else 0
    same = x.arguments is not None and all(a.kind == x.kind for a in x.arguments)
    return rows if same and rows and _lanes(x.kind) % rows == 0 else 0


def _top_level(text: str) -> list[str]:
    """The parts between commas that stand in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "(<") - (c in ")>")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def emit_call(f: Function, e: ExprEmitter, s: Call) -> None:
    """One call."""
    if not s.instruction.native:
        raise CompileError(
            f"{s.instruction.name} is an instruction of another chip: LLVM has no spelling for it",
            program=s,
        )
    spelling = read_spelling(s.instruction)
    regions = dict(zip(s.instruction.operands, s.regions, strict=True))

    def value(x: Term) -> str:
        if x.arguments is None:
            operand = spelling.operands[x.name]
            return _argument(f, e, operand, regions[operand], x.kind)
        return emit_term(f, x, [f"{a.kind} {value(a)}" for a in x.arguments])

    result = value(spelling.term)
    pointer = _pointer(e, regions[spelling.written], spelling.written)
    align = spelling.written.dtype.bytes
    f.emit(f"store {spelling.term.kind} {result}, ptr {pointer}, align {align}")
    e.written(regions[spelling.written].buffer)


def emit_term(f: Function, x: Term, typed: Sequence[str]) -> str:
    """What a term makes of arguments, with their types. An operator of one converts it."""
    if x.name.startswith("asm."):
        register = x.name.removeprefix("asm.")
        return f.let(f'call {x.kind} asm "", "={register},0"({typed[0]})')
    if x.name.startswith("interleave."):
        rows, lanes = _rows_of(x), _lanes(x.kind)
        places = (k * (lanes // rows) + i for i in range(lanes // rows) for k in range(rows))
        order = f"<{lanes} x i32> <{', '.join(f'i32 {p}' for p in places)}>"
        return f.let(f"shufflevector {typed[0]}, {x.kind} poison, {order}")
    if "." in x.name:
        return f.call(x.kind, x.name, *typed)
    if len(typed) == 1:
        return f.let(f"{x.name} {typed[0]} to {x.kind}")
    kind = f"{x.kind} "
    return f.let(f"{x.name} {kind}{', '.join(a.removeprefix(kind) for a in typed)}")


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
    rank = len(operand.shape)
    return e.address(region.buffer, _at_first(at, rank) if rank else at)


@functools.lru_cache(maxsize=1 << 12)  # unrolled calls share operands
def _at_first(at: Expr, rank: int) -> Expr:
    """A position with 0 for the operand's axes."""
    start: dict[Expr, Expr] = {axis(k): const(0) for k in range(rank)}

    def folded(x: Expr) -> Expr:
        return binary(x.op, x.a, x.b) if isinstance(x, Binary) else start.get(x, x)

    return rewrite(at, folded)


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
