"""Expressions in LLVM IR, scalar or in the lanes of one vectorized loop.

`Lanes` is the loop whose iterations run side by side: an expression that depends on its variable
becomes a vector, the others stay scalars. Subscripts are flattened here, and only here: the
element's position is a linear form, whose coefficient of the lane variable says whether a read is
contiguous (1), the same for all lanes (0), or a gather.

Evaluation is lazy: the sides of a select are evaluated under its condition where they read memory
that might not be there (a branch for scalars, masked reads for lanes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.analyze.linear import Linear, add, linear, multiply, scaled
from tilewright.analyze.simplify import Simplifier
from tilewright.backends.native.convert import (
    broadcast,
    constant,
    convert,
    suffix,
    wrap_narrow,
)
from tilewright.backends.native.operators import emit_binary, emit_compare, emit_unary
from tilewright.backends.native.text import Function, LLVMValue, memory_type, splat, type_name
from tilewright.base.dtype import Kind, bool_, index
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
    UnaryOp,
    Var,
)
from tilewright.ir.substitute import variables

DEAR = 40  # operations, from which on a side of a select is skipped where no lane wants it


@dataclass(frozen=True)
class Lanes:
    """The vectorized loop: its variable and number of iterations."""

    var: Var
    count: int


class ExprEmitter:
    """Emits expressions into one function. Scopes follow the blocks of code: what was computed in
    an enclosing block is reused."""

    def __init__(self, function: Function, simplifier: Simplifier) -> None:
        self.f = function
        self.simplifier = simplifier
        self.pointers: dict[Buffer, str] = {}
        self.lanes: Lanes | None = None
        self.mask: LLVMValue | None = None  # the lanes that run, where not all do
        self.columns: dict[Load, LLVMValue] = {}  # reads of the vector loop that are done
        self.depth: dict[Var, int] = {}  # how deep each loop variable's loop is
        self._values: list[dict[Expr, LLVMValue]] = [{}]  # by enclosing block; no reads in them
        self._reads: list[dict[Expr, LLVMValue]] = [{}]  # of the current statement
        self._addresses: list[dict[tuple[object, ...], str]] = [{}]
        self._pure: dict[Expr, bool] = {}
        self._dear: dict[tuple[Expr, Expr], bool] = {}
        self._counts_up: dict[tuple[Expr, int], bool] = {}
        self._variables: dict[Expr, frozenset[Var]] = {}
        self._positions: dict[tuple[Buffer, tuple[Expr, ...]], Linear] = {}

    # ---------------------------------------------------------- scopes

    def push(self) -> None:
        """Enters a block of code."""
        self._values.append({})
        self._reads.append({})
        self._addresses.append({})

    def pop(self) -> None:
        self._values.pop()
        self._reads.pop()
        self._addresses.pop()

    def end_statement(self) -> None:
        """Memory may have changed: reads are forgotten."""
        self._reads = [{} for _ in self._reads]

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
        """The value of an expression: a vector if it depends on the lane variable."""
        if isinstance(e, Const):
            return constant(e.value, e.dtype)
        tables = self._values if self.is_pure(e) else self._reads
        for table in reversed(tables):
            if e in table:
                return table[e]
        value = self._emit_index(e) if e.dtype == index else _EMIT[type(e)](self, e)
        tables[-1][e] = value
        return value

    def is_pure(self, e: Expr) -> bool:
        """Whether an expression reads no memory."""
        found = self._pure.get(e)
        if found is None:
            found = not isinstance(e, Load) and all(
                self.is_pure(c) for c in e.children() if isinstance(c, Expr)
            )
            self._pure[e] = found
        return found

    def uniform(self, e: Expr) -> bool:
        """Whether an expression is the same for all lanes."""
        return self.lanes is None or self.lanes.var not in self.variables(e)

    def _emit_index(self, e: Expr) -> LLVMValue:
        e = self.simplifier(e)
        if isinstance(e, Const):
            return constant(e.value, index)
        if isinstance(e, Binary) and e.op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL):
            return self._emit_linear(self.simplifier.linear(e))
        if isinstance(e, Var) and self.lanes is not None and e == self.lanes.var:
            steps = ", ".join(f"i64 {i}" for i in range(self.lanes.count))
            return LLVMValue(f"<{steps}>" if self.lanes.count > 1 else "0", index, self.lanes.count)
        if isinstance(e, (Var, Symbol)):
            raise CompileError(f"{e} has no value here")
        return _EMIT[type(e)](self, e)

    def _emit_linear(self, form: Linear) -> LLVMValue:
        """Sum of products; a non-linear product is an atom and is emitted as such."""
        total: LLVMValue | None = None
        for atom, k in sorted(form.items(), key=lambda t: self._depth(t[0])):
            term = constant(k, index) if atom is None else self._scaled(atom, k)
            total = term if total is None else self._pair(BinaryOp.ADD, total, term)
        return total if total is not None else constant(0, index)

    def _scaled(self, atom: Expr, k: int) -> LLVMValue:
        if isinstance(atom, Binary) and atom.op is BinaryOp.MUL:
            value = self._pair(BinaryOp.MUL, self(atom.a), self(atom.b))
        else:
            value = self(atom)
        return value if k == 1 else self._pair(BinaryOp.MUL, value, constant(k, index))

    def _depth(self, atom: Expr | None) -> int:
        """Loop depth of the innermost variable in an atom; constants last."""
        if atom is None:
            return 1 << 20
        return max((self.depth.get(v, 0) for v in self.variables(atom)), default=-1)

    def _pair(self, op: BinaryOp, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        a, b = self.same_lanes(a, b)
        return emit_binary(self.f, op, a, b)

    def same_lanes(self, *values: LLVMValue) -> list[LLVMValue]:
        """All operands with as many lanes as the widest."""
        count = max(v.lanes for v in values)
        return [broadcast(self.f, v, count) for v in values]

    # ---------------------------------------------------------- kinds of expression

    def emit_unary(self, e: Unary) -> LLVMValue:
        return emit_unary(self.f, e.op, self(e.a))

    def emit_binary(self, e: Binary) -> LLVMValue:
        if e.dtype == index and e.op in (BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.DIV):
            return self._index_division(e)
        return self._pair(e.op, self(e.a), self(e.b))

    def _index_division(self, e: Binary) -> LLVMValue:
        """Division of what is known not to be negative, by what is known to be positive, is one
        unsigned instruction."""
        low, below = self.simplifier.bounds(e.a)[0], self.simplifier.bounds(e.b)[0]
        if low is None or low < 0 or below is None or below < 1:
            return emit_binary(self.f, e.op, *self.same_lanes(self(e.a), self(e.b)))
        a, b = self.same_lanes(self(e.a), self(e.b))
        op = "urem" if e.op is BinaryOp.MOD else "udiv"
        return LLVMValue(self.f.let(f"{op} {a}, {b.ref}"), index, a.lanes)

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
        cond = self(e.cond)
        dear_a, dear_b = self._is_dear(e.a, e.b), self._is_dear(e.b, e.a)
        speculates = self.can_speculate(e.a) and self.can_speculate(e.b)
        if cond.lanes == 1 and (dear_a or dear_b or not speculates):
            return self._branch(cond, e)
        if cond.lanes == 1:
            a, b = self.same_lanes(self(e.a), self(e.b))
            return LLVMValue(self.f.let(f"select {cond}, {a}, {b}"), e.dtype, a.lanes)
        a = self._under(cond, e.a, dear=dear_a)
        b = self._under(emit_unary(self.f, _NOT, cond), e.b, dear=dear_b)
        a, b = broadcast(self.f, a, cond.lanes), broadcast(self.f, b, cond.lanes)
        return LLVMValue(self.f.let(f"select {cond}, {a}, {b}"), e.dtype, cond.lanes)

    def _is_dear(self, side: Expr, other: Expr) -> bool:
        """Whether a side of a select takes so many operations, beside those that the other takes as
        well, that it pays to ask first whether it is wanted."""
        key = (side, other)
        if key not in self._dear:
            shared = set(other.walk())
            own = {x for x in side.walk() if x not in shared and not isinstance(x, (Const, Load))}
            self._dear[key] = len(own) >= DEAR
        return self._dear[key]

    def can_speculate(self, e: Expr) -> bool:
        """Whether an expression may be evaluated though its value is not wanted: every read in it
        is certainly inside its buffer."""
        return all(self.in_bounds(x) for x in e.walk() if isinstance(x, Load))

    def in_bounds(self, load: Load) -> bool:
        return self.simplifier.in_bounds(load.buffer, load.indices)

    def _branch(self, cond: LLVMValue, e: Select) -> LLVMValue:
        f = self.f
        yes, no, join = f.label("yes"), f.label("no"), f.label("join")
        f.emit(f"br {cond}, label %{yes}, label %{no}")
        sides = []
        for label, side in ((yes, e.a), (no, e.b)):
            f.start(label)
            self.push()
            value = self(side)
            if self.lanes is not None and not self.uniform(e):
                value = broadcast(f, value, self.lanes.count)
            sides.append((value, f.block))
            self.pop()
            f.branch(join)
        f.start(join)
        arms = ", ".join(f"[ {v.ref}, %{block} ]" for v, block in sides)
        first = sides[0][0]
        return LLVMValue(f.let(f"phi {first.type} {arms}"), e.dtype, first.lanes)

    def _under(self, cond: LLVMValue, e: Expr, *, dear: bool) -> LLVMValue:
        """Evaluates `e` in the lanes where cond holds; a dear one only if there are any."""
        if dear:
            return self._if_any(cond, e)
        if self.can_speculate(e):
            return self(e)
        before, self.mask = self.mask, self.and_mask(cond)
        self.push()
        value = self(e)
        self.pop()
        self.mask = before
        return value

    def _if_any(self, cond: LLVMValue, e: Expr) -> LLVMValue:
        """The value under a condition that holds in some lane; otherwise zeros."""
        f, before = self.f, self.f.block
        some = f.call("i1", f"llvm.vector.reduce.or.{suffix(cond)}", cond)
        yes, join = f.label("some"), f.label("join")
        f.emit(f"br i1 {some}, label %{yes}, label %{join}")
        f.start(yes)
        self.push()
        value = broadcast(f, self._under(cond, e, dear=False), cond.lanes)
        self.pop()
        block = f.block
        f.branch(join)
        f.start(join)
        none = constant(0, e.dtype, cond.lanes)
        arms = f"[ {value.ref}, %{block} ], [ {none.ref}, %{before} ]"
        return LLVMValue(f.let(f"phi {value.type} {arms}"), e.dtype, cond.lanes)

    def and_mask(self, cond: LLVMValue) -> LLVMValue:
        """The current mask and cond."""
        if self.mask is None:
            return cond
        return emit_binary(self.f, BinaryOp.AND, self.mask, cond)

    # ---------------------------------------------------------- memory

    def address(self, buffer: Buffer, form: Linear, *, surely: bool = True) -> str:
        """A pointer to the element at a (scalar) linear position, if `surely` there is one. Outer
        loops' terms are added first, so that they can be hoisted; the constant last, so that it
        becomes an offset."""
        pointer = self.pointers[buffer]
        key: tuple[object, ...] = (buffer.name,)
        kind = memory_type(buffer.dtype)
        step = f"getelementptr {self._inbounds(form) if surely else ''}{kind}"
        for atom, k in sorted(form.items(), key=lambda t: (self._depth(t[0]), str(t[0]))):
            key = (*key, atom, k)
            known = next((t[key] for t in reversed(self._addresses) if key in t), None)
            if known is None:
                offset = str(k) if atom is None else self._scaled(atom, k).ref
                known = self.f.let(f"{step}, ptr {pointer}, i64 {offset}")
                self._addresses[-1][key] = known
            pointer = known
        return pointer

    def _inbounds(self, form: Linear) -> str:
        """What LLVM may know of the pointers on the way to an element: they lie in its buffer, if
        the element is there for certain and every term counts up."""
        if self.mask is not None:
            return ""
        for atom, k in form.items():
            if atom is None:
                up = k >= 0
            elif (atom, k) in self._counts_up:
                up = self._counts_up[atom, k]
            else:
                low = self.simplifier.range({atom: k})[0]
                up = self._counts_up[atom, k] = low is not None and low >= 0
            if not up:
                return ""
        return "inbounds "

    def position(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear:
        """The row-major position of an element."""
        key = (buffer, indices)
        found = self._positions.get(key)
        if found is None:
            found = {}
            for i, n in zip(indices, buffer.shape, strict=True):
                found = scaled(found, n) if isinstance(n, int) else multiply(found, linear(n))
                found = add(found, self.simplifier.linear(i))
            self._positions[key] = found = self.simplifier.recombine(found)
        return found

    def split_lanes(self, at: Linear) -> tuple[int, Linear] | None:
        """(k, rest) with at = k * lane + rest; None when it depends on the lane otherwise."""
        if self.lanes is None:
            return 0, at
        lane = self.lanes.var
        rest = {atom: k for atom, k in at.items() if atom != lane}
        if any(atom is not None and lane in self.variables(atom) for atom in rest):
            return None
        return at.get(lane, 0), rest

    def variables(self, e: Expr) -> frozenset[Var]:
        """The variables in an expression."""
        found = self._variables.get(e)
        if found is None:
            found = self._variables[e] = frozenset(variables(e))
        return found

    def emit_load(self, e: Load) -> LLVMValue:
        """A read: one element, consecutive ones, or a gather."""
        if e in self.columns:
            return self.columns[e]
        at = self.position(e.buffer, e.indices)
        parts = None if self.reads_lanes(at) else self.split_lanes(at)
        if parts is None:
            return self._gather(e.buffer, at)
        step, rest = parts
        if step == 0 and self.mask is not None and not self.in_bounds(e):
            return self._guarded_scalar(e.buffer, rest)
        if step == 0:
            return self.read(e.buffer, self.address(e.buffer, rest), 1)
        if step == 1 and self.lanes is not None:
            return self.read(e.buffer, self.address(e.buffer, rest), self.lanes.count)
        return self._gather(e.buffer, at)

    def emit_load_at(self, buffer: Buffer, indices: tuple[Expr, ...]) -> LLVMValue:
        """The present content of an element (never remembered: it is about to change)."""
        return self.emit_load(Load(buffer, indices))

    def reads_lanes(self, at: Linear) -> bool:
        """Whether the position depends on a vector that was read from memory."""
        return any(
            atom is not None and not self.is_pure(atom) and not self.uniform(atom) for atom in at
        )

    def read(self, buffer: Buffer, pointer: str, lanes: int) -> LLVMValue:
        """Consecutive elements from a pointer on."""
        kind = memory_type(buffer.dtype)
        full = f"<{lanes} x {kind}>" if lanes > 1 else kind
        align = _alignment(buffer)
        if lanes > 1 and self.mask is not None:
            zero = f"{full} zeroinitializer"
            name = f"llvm.masked.load.v{lanes}{_letter(kind)}.p0"
            ref = self.f.call(full, name, f"ptr {pointer}", *_aligned(align, self.mask, zero))
        else:
            ref = self.f.let(f"load {full}, ptr {pointer}, align {align}")
        return self.from_memory(LLVMValue(ref, buffer.dtype, lanes))

    def from_memory(self, v: LLVMValue) -> LLVMValue:
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

    def _guarded_scalar(self, buffer: Buffer, rest: Linear) -> LLVMValue:
        """One element for all lanes, read only if some lane runs."""
        assert self.mask is not None
        f = self.f
        pointer = self.address(buffer, rest)
        before, yes, join = f.block, f.label("yes"), f.label("join")
        f.emit(f"br i1 {self.any_lane()}, label %{yes}, label %{join}")
        f.start(yes)
        value = self.read(buffer, pointer, 1)
        end = f.block
        f.branch(join)
        f.start(join)
        zero = constant(0, buffer.dtype).ref
        ref = f.let(f"phi {value.type} [ {value.ref}, %{end} ], [ {zero}, %{before} ]")
        return LLVMValue(ref, buffer.dtype)

    def any_lane(self) -> str:
        """Whether some lane runs."""
        assert self.mask is not None
        return self.f.call("i1", f"llvm.vector.reduce.or.{suffix(self.mask)}", self.mask)

    def lane_pointers(self, buffer: Buffer, at: Linear) -> str:
        """A vector of pointers, one for each lane's element."""
        assert self.lanes is not None
        kind = memory_type(buffer.dtype)
        offsets = broadcast(self.f, self._emit_linear(at), self.lanes.count)
        inbounds = "" if self.mask is not None else "inbounds "
        base = self.pointers[buffer]
        return self.f.let(f"getelementptr {inbounds}{kind}, ptr {base}, {offsets}")

    def _gather(self, buffer: Buffer, at: Linear) -> LLVMValue:
        assert self.lanes is not None
        count, kind = self.lanes.count, memory_type(buffer.dtype)
        full = f"<{count} x {kind}>"
        pointers = self.lane_pointers(buffer, at)
        mask = self.mask or LLVMValue(splat("true", bool_, count), bool_, count)
        name = f"llvm.masked.gather.v{count}{_letter(kind)}.v{count}p0"
        zero = f"{full} zeroinitializer"
        arguments = _aligned(_alignment(buffer), mask, zero)
        ref = self.f.call(full, name, f"<{count} x ptr> {pointers}", *arguments)
        return self.from_memory(LLVMValue(ref, buffer.dtype, count))


def _aligned(align: int, mask: LLVMValue, passthru: str) -> tuple[str, ...]:
    """The trailing arguments of masked reads."""
    return (f"i32 {align}", str(mask), passthru)


def _alignment(buffer: Buffer) -> int:
    return buffer.dtype.bytes


def _letter(kind: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)


_NOT = UnaryOp.NOT

_EMIT: dict[type[Expr], Callable[[ExprEmitter, Any], LLVMValue]] = {
    Unary: ExprEmitter.emit_unary,
    Binary: ExprEmitter.emit_binary,
    Compare: ExprEmitter.emit_compare,
    Select: ExprEmitter.emit_select,
    Cast: ExprEmitter.emit_cast,
    Bitcast: ExprEmitter.emit_bitcast,
    Load: ExprEmitter.emit_load,
    Opaque: lambda e, x: refuse_opaque(x),
}
