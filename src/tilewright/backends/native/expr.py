"""Expressions in LLVM IR, as `lower/vectorize.py` left them: what has lanes becomes a vector.

What was computed in a block of code, or around it, is used again: reads until their buffer is
written. A position is spelled as a chain of pointers, one for each of its terms, so that pointers
have beginnings in common.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.backends.native.convert import broadcast, constant, convert, wrap_narrow
from tilewright.backends.native.operators import (
    emit_binary,
    emit_compare,
    emit_lanes_reduction,
    emit_unary,
)
from tilewright.backends.native.text import Function, LLVMValue, memory_type, type_name
from tilewright.base.dtype import Kind, bool_, f32, i32, index
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import refuse_opaque
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Opaque,
    Select,
    Symbol,
    Unary,
    Var,
    const,
)
from tilewright.ir.lanes import (
    Across,
    Branch,
    Lane,
    Lookup,
    Masked,
    Shuffle,
    consecutive,
    lanes_of,
    one_lane,
)
from tilewright.ir.loop import Block, buffers_written
from tilewright.target.target import Target

NOTHING: frozenset[Buffer] = frozenset()


class ExprEmitter:
    """Emits expressions into one function. Scopes follow the blocks of code."""

    def __init__(self, function: Function, target: Target) -> None:
        self.f = function
        self.target = target
        self.pointers: dict[Buffer, str] = {}
        self._values: list[dict[Expr, LLVMValue]] = [{}]  # by enclosing block
        self._readers: list[dict[Buffer, list[Expr]]] = [{}]  # those of them that read a buffer
        self._addresses: list[dict[tuple[Buffer, Expr], str]] = [{}]
        self._paths: list[dict[Buffer, list[tuple[Buffer, Expr]]]] = [{}]  # whose place reads one
        self._buffers: dict[Expr, frozenset[Buffer]] = {}  # that an expression reads
        self._counts_up: dict[Expr, bool] = {}

    # ---------------------------------------------------------- scopes

    def push(self) -> None:
        """Enters a block of code."""
        self._values.append({})
        self._readers.append({})
        self._addresses.append({})
        self._paths.append({})

    def pop(self) -> None:
        self._values.pop()
        self._readers.pop()
        self._addresses.pop()
        self._paths.pop()

    def written(self, buffer: Buffer) -> None:
        """What was read of a buffer is forgotten, and the addresses of places that it says."""
        for values, readers in zip(self._values, self._readers, strict=True):
            for e in readers.pop(buffer, ()):
                values.pop(e, None)
        for addresses, paths in zip(self._addresses, self._paths, strict=True):
            for key in paths.pop(buffer, ()):
                addresses.pop(key, None)

    def repeat(self, body: Block) -> None:
        """Enters a loop: what an iteration writes has changed when the next one reads it."""
        for buffer in buffers_written(body):
            self.written(buffer)

    def bind(self, e: Expr, value: LLVMValue) -> None:
        """Gives a variable or symbol its value, in the current block."""
        self._values[-1][e] = value

    def bound(self) -> dict[Expr, LLVMValue]:
        """All variables and symbols that have a value here."""
        merged: dict[Expr, LLVMValue] = {}
        for scope in self._values:
            merged |= {e: v for e, v in scope.items() if isinstance(e, (Var, Symbol))}
        return merged

    # ---------------------------------------------------------- expressions

    def __call__(self, e: Expr) -> LLVMValue:
        """The value of an expression: a vector if it has lanes."""
        if isinstance(e, Const):
            return constant(e.value, e.dtype)
        for table in reversed(self._values):
            if e in table:
                return table[e]
        value = self._values[-1][e] = _EMIT[type(e)](self, e)
        for buffer in self.buffers(e):
            self._readers[-1].setdefault(buffer, []).append(e)
        return value

    def buffers(self, e: Expr) -> frozenset[Buffer]:
        """The buffers that an expression reads."""
        found = self._buffers.get(e)
        if found is None:
            parts = [self.buffers(c) for c in e.children() if isinstance(c, Expr)]
            own = frozenset((e.buffer,)) if isinstance(e, Load) else NOTHING
            found = self._buffers[e] = own.union(*parts) if any(parts) else own
        return found

    def same_lanes(self, *values: LLVMValue) -> list[LLVMValue]:
        """All operands with as many lanes as the widest."""
        count = max(v.lanes for v in values)
        return [broadcast(self.f, v, count) for v in values]

    def emit_unary(self, e: Unary) -> LLVMValue:
        return emit_unary(self.f, e.op, self(e.a))

    def emit_binary(self, e: Binary) -> LLVMValue:
        return emit_binary(self.f, e.op, *self.same_lanes(self(e.a), self(e.b)))

    def emit_compare(self, e: Compare) -> LLVMValue:
        return emit_compare(self.f, e.op, *self.same_lanes(self(e.a), self(e.b)))

    def emit_cast(self, e: Cast) -> LLVMValue:
        return convert(self.f, self(e.a), e.dtype)

    def emit_bitcast(self, e: Bitcast) -> LLVMValue:
        v = self(e.a)
        to = type_name(e.dtype, v.lanes)
        if to == v.type:  # a type below 8 bits lies sign- or zero-extended in a byte
            return wrap_narrow(self.f, LLVMValue(v.ref, e.dtype, v.lanes))
        return LLVMValue(self.f.let(f"bitcast {v} to {to}"), e.dtype, v.lanes)

    def emit_select(self, e: Select) -> LLVMValue:
        cond, lanes = self(e.cond), lanes_of(e)
        a, b = (broadcast(self.f, self(side), lanes) for side in (e.a, e.b))
        return LLVMValue(self.f.let(f"select {cond}, {a}, {b}"), e.dtype, lanes)

    def emit_branch(self, e: Branch) -> LLVMValue:
        f, cond = self.f, self(e.cond)
        yes, no, join = f.label("yes"), f.label("no"), f.label("join")
        f.emit(f"br {cond}, label %{yes}, label %{no}")
        arms = []
        for label, side in ((yes, e.a), (no, e.b)):
            f.start(label)
            self.push()
            value = broadcast(f, self(side), lanes_of(e))
            arms.append(f"[ {value.ref}, %{f.block} ]")
            self.pop()
            f.branch(join)
        f.start(join)
        ref = f.let(f"phi {type_name(e.dtype, lanes_of(e))} {', '.join(arms)}")
        return LLVMValue(ref, e.dtype, lanes_of(e))

    def emit_shuffle(self, e: Shuffle) -> LLVMValue:
        f, values, lanes = self.f, [self(x) for x in e.operands], len(e.places)
        if lanes == 1 and len(values) == 1:
            return LLVMValue(f.let(f"extractelement {values[0]}, i64 {e.places[0]}"), e.dtype)
        if values[0].lanes == 1:
            return broadcast(f, values[0], lanes)
        second = str(values[1]) if len(values) > 1 else f"{values[0].type} poison"
        places = ", ".join(f"i32 {p}" for p in e.places)
        text = f"shufflevector {values[0]}, {second}, <{lanes} x i32> <{places}>"
        return LLVMValue(f.let(text), e.dtype, lanes)

    def emit_lookup(self, e: Lookup) -> LLVMValue:
        """By the instruction that looks up all lanes of a register, if there is one, which looks at
        the low bits of places; else lane by lane."""
        f, lanes, count = self.f, lanes_of(e), len(e.entries)
        kind = type_name(e.dtype, count)
        table = ", ".join(str(constant(x, e.dtype)) for x in e.entries)
        unit = self.target.vectors.table if e.dtype == f32 else 0
        if self.target.llvm.lookup and lanes == count == unit:
            name, places = self.target.llvm.lookup, self(e.at)
            return LLVMValue(f.call(kind, name, f"{kind} <{table}>", places), e.dtype, lanes)
        entry = f"extractelement {kind} <{table}>"
        place = Binary(BinaryOp.AND, e.at, const(count - 1, i32))
        found = [f.let(f"{entry}, {self(one_lane(place, i))}") for i in range(lanes)]
        if lanes == 1:
            return LLVMValue(found[0], e.dtype)
        ref = "poison"
        for i, one in enumerate(found):
            vector = f"{type_name(e.dtype, lanes)} {ref}"
            ref = f.let(f"insertelement {vector}, {LLVMValue(one, e.dtype)}, i64 {i}")
        return LLVMValue(ref, e.dtype, lanes)

    # ---------------------------------------------------------- memory

    def address(self, buffer: Buffer, at: Expr, *, surely: bool = True) -> str:
        """A pointer to the element at a position, if `surely` there is one."""
        inside = "inbounds " if surely and self._is_up(at) else ""
        return self._pointer(buffer, at, f"getelementptr {inside}{memory_type(buffer.dtype)}")

    def _pointer(self, buffer: Buffer, at: Expr, step: str) -> str:
        if isinstance(at, Const) and at.value == 0:
            return self.pointers[buffer]
        key = (buffer, at)
        for table in reversed(self._addresses):
            if key in table:
                return table[key]
        start, last = self.pointers[buffer], at
        if isinstance(at, Binary) and at.op is BinaryOp.ADD:
            start, last = self._pointer(buffer, at.a, step), at.b
        offset = self(last)
        found = self._addresses[-1][key] = self.f.let(f"{step}, ptr {start}, i64 {offset.ref}")
        for read in self.buffers(at):
            self._paths[-1].setdefault(read, []).append(key)
        return found

    def _is_up(self, e: Expr) -> bool:
        """Whether no part of a sum is negative, so that pointers on the way to an element lie in
        its buffer."""
        found = self._counts_up.get(e)
        if found is None:
            found = self._counts_up[e] = _counts_up(e, self._is_up)
        return found

    def emit_load(self, e: Load) -> LLVMValue:
        """A read: one element, consecutive ones, or a gather."""
        (at,) = e.indices
        first, kind, align = consecutive(at), memory_type(e.dtype), e.dtype.bytes
        if first is None and lanes_of(at) > 1:
            return self._gather(e, constant(True, bool_, lanes_of(at)))
        pointer = self.address(e.buffer, at if first is None else first)
        full = kind if first is None else f"<{lanes_of(at)} x {kind}>"
        ref = self.f.let(f"load {full}, ptr {pointer}, align {align}")
        return self._from_memory(LLVMValue(ref, e.dtype, lanes_of(at)))

    def emit_masked(self, e: Masked) -> LLVMValue:
        at, mask = e.load.indices[0], broadcast(self.f, self(e.mask), lanes_of(e))
        first, kind = consecutive(at), memory_type(e.dtype)
        if first is None:
            return self._gather(e.load, mask, surely=False)
        pointer = self.address(e.load.buffer, first, surely=False)
        full = f"<{lanes_of(e)} x {kind}>"
        name = f"llvm.masked.load.v{lanes_of(e)}{_letter(kind)}.p0"
        arguments = (f"i32 {e.dtype.bytes}", mask, f"{full} zeroinitializer")
        ref = self.f.call(full, name, f"ptr {pointer}", *arguments)
        return self._from_memory(LLVMValue(ref, e.dtype, lanes_of(e)))

    def _gather(self, e: Load, mask: LLVMValue, *, surely: bool = True) -> LLVMValue:
        count, kind = mask.lanes, memory_type(e.dtype)
        full = f"<{count} x {kind}>"
        pointers = self.lane_pointers(e.buffer, e.indices[0], count, surely=surely)
        name = f"llvm.masked.gather.v{count}{_letter(kind)}.v{count}p0"
        arguments = (f"i32 {e.dtype.bytes}", mask, f"{full} zeroinitializer")
        ref = self.f.call(full, name, f"<{count} x ptr> {pointers}", *arguments)
        return self._from_memory(LLVMValue(ref, e.dtype, count))

    def lane_pointers(self, buffer: Buffer, at: Expr, count: int, *, surely: bool) -> str:
        """A vector of pointers, one for each lane's element."""
        offsets = broadcast(self.f, self(at), count)
        step = f"getelementptr {'inbounds ' if surely else ''}{memory_type(buffer.dtype)}"
        return self.f.let(f"{step}, ptr {self.pointers[buffer]}, {offsets}")

    def _from_memory(self, v: LLVMValue) -> LLVMValue:
        """bool is a byte in memory and a bit in registers; of a byte that holds a type of fewer
        bits, the upper ones may be anything."""
        if v.dtype.kind is not Kind.BOOL:
            return wrap_narrow(self.f, v)
        kind = f"<{v.lanes} x i8>" if v.lanes > 1 else "i8"
        zero = "zeroinitializer" if v.lanes > 1 else "0"
        return LLVMValue(self.f.let(f"icmp ne {kind} {v.ref}, {zero}"), bool_, v.lanes)

    def to_memory(self, v: LLVMValue) -> str:
        """`type value` as it is stored."""
        if v.dtype.kind is not Kind.BOOL:
            return str(v)
        kind = f"<{v.lanes} x i8>" if v.lanes > 1 else "i8"
        return f"{kind} {self.f.let(f'zext {v} to {kind}')}"


_UP = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.FLOORDIV, BinaryOp.DIV, BinaryOp.MOD, BinaryOp.MIN)


def _counts_up(e: Expr, is_up: Callable[[Expr], bool]) -> bool:
    """Whether an index is never negative, if its operands of which `is_up` says so are not: loops
    count from 0, and what is computed of data may be anything."""
    if isinstance(e, Const):
        return e.value >= 0
    if isinstance(e, Symbol):
        return e.lower >= 0
    if isinstance(e, Binary) and e.op is BinaryOp.MAX:
        return is_up(e.a) or is_up(e.b)
    if isinstance(e, Binary):
        return e.op in _UP and is_up(e.a) and is_up(e.b)
    if isinstance(e, Select):
        return is_up(e.a) and is_up(e.b)
    if isinstance(e, Cast):  # a quotient of what is not negative
        return e.a.dtype.kind is Kind.UINT
    return isinstance(e, (Var, Lane))


def _emit_lane(emitter: ExprEmitter, e: Lane) -> LLVMValue:
    return LLVMValue(f"<{', '.join(f'i64 {i}' for i in range(e.count))}>", index, e.count)


def _emit_unbound(emitter: ExprEmitter, e: Expr) -> LLVMValue:
    raise CompileError(f"{e} has no value here")


def _letter(kind: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)


_EMIT: dict[type[Expr], Callable[[ExprEmitter, Any], LLVMValue]] = {
    Var: _emit_unbound,
    Symbol: _emit_unbound,
    Unary: ExprEmitter.emit_unary,
    Binary: ExprEmitter.emit_binary,
    Compare: ExprEmitter.emit_compare,
    Select: ExprEmitter.emit_select,
    Cast: ExprEmitter.emit_cast,
    Bitcast: ExprEmitter.emit_bitcast,
    Load: ExprEmitter.emit_load,
    Opaque: lambda e, x: refuse_opaque(x),
    Lane: _emit_lane,
    Masked: ExprEmitter.emit_masked,
    Branch: ExprEmitter.emit_branch,
    Across: lambda e, x: emit_lanes_reduction(e.f, x.op, e(x.a)),
    Shuffle: ExprEmitter.emit_shuffle,
    Lookup: ExprEmitter.emit_lookup,
}
