"""What must be true of every expression: operands of the right types, names in scope.

A checker belongs to one program. Its `scope` says what may be used where it stands; `fail` makes
the error, with the place in the program that the checker is at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.base.dtype import Kind, bool_, i32, index
from tilewright.base.errors import CompileError, did_you_mean
from tilewright.ir.expr import (
    COMBINERS,
    COMMUTATIVE,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    Const,
    Dim,
    Expr,
    Load,
    Opaque,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
)
from tilewright.ir.lanes import Across, Branch, Lane, Lookup, Masked, Shuffle, lanes_of

_FLOATS = frozenset({Kind.FLOAT})
_INTEGERS = frozenset({Kind.INT, Kind.UINT})
_NUMBERS = _FLOATS | _INTEGERS
_BITS = _INTEGERS | {Kind.BOOL}
_ALL = frozenset(Kind)
Parts = Iterable[Any]  # of an expression, which are checked next

# The kinds of type each operator takes; docs/semantics.md has the same table.
UNARY_TAKES: dict[UnaryOp, frozenset[Kind]] = {
    **dict.fromkeys(UnaryOp, _FLOATS),
    **dict.fromkeys((UnaryOp.NEG, UnaryOp.ABS, UnaryOp.SIGN), _NUMBERS),
    UnaryOp.NOT: _BITS,
    UnaryOp.POPCOUNT: _INTEGERS,
}
BINARY_TAKES: dict[BinaryOp, frozenset[Kind]] = {
    **dict.fromkeys(BinaryOp, _NUMBERS),
    **dict.fromkeys(COMMUTATIVE, _ALL),
    **dict.fromkeys((BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR), _BITS),
    **dict.fromkeys((BinaryOp.SHL, BinaryOp.SHR), _INTEGERS),
    BinaryOp.ATAN2: _FLOATS,
}


class ExprChecker:
    """Checks expressions in a scope of scalars and buffers that its owner keeps up to date."""

    def __init__(self) -> None:
        self.scalars: dict[str, Expr] = {}  # loop variables in scope
        self.symbols: dict[str, Symbol] = {}  # as first seen
        self.buffers: dict[str, Buffer] = {}
        self.taken: dict[str, str] = {}  # every name of the program, to what it names

    def fail(self, what: str, hint: str | None = None) -> CompileError:
        """The error to raise; checkers of programs add the place they are at."""
        return CompileError(what, hint=hint)

    def require(self, condition: bool, what: str, hint: str | None = None) -> None:
        if not condition:
            raise self.fail(what, hint)

    def finite(self, inputs: Sequence[Buffer], names: Sequence[str]) -> None:
        """Inputs that are said to be finite."""
        known = {b.name: b.dtype for b in inputs}
        for name in names:
            self.require(name in known, f"{name} is said to be finite, and is no input")
            is_float = name not in known or known[name].is_float
            self.require(is_float, f"{name} is said to be finite, as all of {known.get(name)} is")

    # ---------------------------------------------------------- names

    def take(self, name: str, kind: str) -> None:
        """Records a name; each stands for one thing in the whole program."""
        if name in self.taken:
            what = f"{kind} {name!r} has the name of {self.taken[name]}"
            raise self.fail(what, "names are unique within a program; rename one of them")
        self.taken[name] = f"another {kind}" if kind != "symbol" else "a symbol"

    def bind(self, var: Var) -> None:
        """Brings a loop variable into scope."""
        self.require(var.dtype == index, f"loop variable {var} is {var.dtype}, not {index}")
        self.take(var.name, "variable")
        self.scalars[var.name] = var

    def declare(self, buffer: Buffer) -> None:
        """Brings a buffer into scope."""
        self.take(buffer.name, "buffer")
        for d in buffer.shape:
            self.dim(d, f"a dimension of buffer {buffer.name}", constant=True)
        self.require(bool(buffer.memory), f"buffer {buffer.name} has no memory")
        self.buffers[buffer.name] = buffer

    # ---------------------------------------------------------- expressions

    def expr(self, root: Expr) -> None:
        """Checks an expression; each distinct part once."""
        seen: set[int] = set()
        todo = [root]
        while todo:
            e = todo.pop()
            if id(e) in seen:
                continue
            seen.add(id(e))
            check = _CHECKS.get(type(e))
            if check is None:
                raise self.fail(f"{e!r} is not an expression")
            parts = check(self, e)
            todo.extend(parts)
            if lanes_of(e) > 1 and not isinstance(e, Shuffle):
                self.lanes(e, parts)

    def lanes(self, e: Expr, parts: Parts) -> None:
        """Operands have one lane, or as many as the others."""
        counts = sorted({lanes_of(x) for x in parts} - {1})
        if len(counts) > 1:
            raise self.fail(f"the operands of {e} have {counts[0]} and {counts[1]} lanes")

    def condition(self, e: Expr, what: str) -> None:
        self.expr(e)
        self.require(e.dtype == bool_, f"{what} {e} is {e.dtype}, not bool", "compare it with 0")

    def dim(self, dim: Dim, what: str, *, constant: bool = False) -> None:
        """A dimension or extent: a number, or an expression that is no number and reads no
        memory; with `constant` only symbols vary in it."""
        if type(dim) is int:
            self.require(dim >= 0, f"{what} is {dim}", "it must not be negative")
            return
        if not isinstance(dim, Expr):
            raise self.fail(f"{what} is {dim!r}, which is no dimension")
        if isinstance(dim, Const):
            raise self.fail(f"{what} is the constant {dim}, not a number", "use as_dim")
        self.expr(dim)
        self.require(dim.dtype == index, f"{what} is {dim.dtype}, not {index}")
        for e in dim.walk():
            self.require(not isinstance(e, Load), f"{what} is {dim}, which reads memory")
            if constant:
                inside = isinstance(e, Var)
                self.require(not inside, f"{what} is {dim}, which depends on a loop variable")

    def element(self, buffer: Buffer, indices: Iterable[Expr]) -> None:
        """One element of a buffer, its subscripts checked as whole expressions."""
        for e in self.subscripts(buffer, tuple(indices)):
            self.expr(e)

    def subscripts(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Checks that the buffer is in scope and that number and type of the subscripts fit."""
        known = self.buffers.get(buffer.name)
        if known is None:
            hint = did_you_mean(buffer.name, list(self.buffers))
            raise self.fail(f"buffer {buffer.name!r} is not declared here", hint)
        if known is not buffer and known != buffer:
            raise self.fail(f"{buffer} @ {buffer.memory} was declared as {known} @ {known.memory}")
        if len(indices) != len(buffer.shape):
            raise self.fail(f"{len(indices)} subscripts for {buffer}")
        for axis, i in enumerate(indices):
            if not isinstance(i, Expr) or i.dtype != index:
                kind = i.dtype if isinstance(i, Expr) else type(i).__name__
                what = f"subscript {axis} of {buffer.name} is {i}, of type {kind}, not {index}"
                raise self.fail(what, f"cast({index}, …)")
        return indices


# ---------------------------------------------------------------- one kind of expression each


def _check_const(c: ExprChecker, e: Const) -> Parts:
    value, dtype = e.value, e.dtype
    if dtype.is_float:
        exact = type(value) is float and (value != value or dtype.round(value) == value)
    elif dtype.is_integer:
        exact = type(value) is int and dtype.min <= value <= dtype.max
    else:
        exact = type(value) is bool
    c.require(exact, f"the constant {value!r} is not a value of {dtype}", "make it by const()")
    return ()


def _check_var(c: ExprChecker, e: Var) -> Parts:
    if c.scalars.get(e.name) != e:
        hint = did_you_mean(e.name, list(c.scalars))
        raise c.fail(f"variable {e.name!r} is not bound by any loop here", hint)
    return ()


def _check_symbol(c: ExprChecker, e: Symbol) -> Parts:
    known = c.symbols.get(e.name)
    if known is None:
        c.take(e.name, "symbol")
        known = c.symbols[e.name] = e
        upper = e.lower if e.upper is None else e.upper
        c.require(0 <= e.lower <= upper, f"symbol {e.name} lies between {e.lower} and {e.upper}")
    if known != e:
        bounds = f"{known.lower} … {known.upper} and {e.lower} … {e.upper}"
        raise c.fail(f"symbol {e.name} has two bounds: {bounds}")
    return ()


def _check_unary(c: ExprChecker, e: Unary) -> Parts:
    if e.a.dtype.kind not in UNARY_TAKES[e.op]:
        raise c.fail(f"{e.op.value} of {e.a.dtype}: {e}", _takes(UNARY_TAKES[e.op]))
    return (e.a,)


def _check_binary(c: ExprChecker, e: Binary) -> Parts:
    _same(c, e.op.value, e, e.a, e.b)
    if e.a.dtype.kind not in BINARY_TAKES[e.op]:
        raise c.fail(f"{e.op.value} of {e.a.dtype}: {e}", _takes(BINARY_TAKES[e.op]))
    return e.a, e.b


def _takes(kinds: frozenset[Kind]) -> str:
    return "it takes " + ", ".join(k.value for k in Kind if k in kinds)


def _same(c: ExprChecker, what: str, e: Expr, a: Expr, b: Expr) -> None:
    if a.dtype != b.dtype:
        raise c.fail(f"{what} of {a.dtype} and {b.dtype}: {e}", "cast one of them")


def _check_compare(c: ExprChecker, e: Compare) -> Parts:
    _same(c, e.op.value, e, e.a, e.b)
    return e.a, e.b


def _check_select(c: ExprChecker, e: Select) -> Parts:
    _same(c, "select", e, e.a, e.b)
    if e.cond.dtype != bool_:
        raise c.fail(f"the condition of {e} is {e.cond.dtype}, not bool", "compare it with 0")
    return e.cond, e.a, e.b


def _check_bitcast(c: ExprChecker, e: Bitcast) -> Parts:
    to, source = e.dtype, e.a.dtype
    if to.bits != source.bits or bool_ in (to, source):
        raise c.fail(f"bitcast of {source} to {to}: {e}", "both must have one width; bool has none")
    return (e.a,)


def _check_lane(c: ExprChecker, e: Lane) -> Parts:
    if e.count < 2:
        raise c.fail(f"{e} has {e.count} lanes", "a vector has two or more")
    return ()


def _check_masked(c: ExprChecker, e: Masked) -> Parts:
    if e.mask.dtype != bool_:
        raise c.fail(f"the mask of {e} is {e.mask.dtype}, not bool")
    return e.mask, e.load


def _check_branch(c: ExprChecker, e: Branch) -> Parts:
    _same(c, "branch", e, e.a, e.b)
    if e.cond.dtype != bool_ or lanes_of(e.cond) > 1:
        raise c.fail(f"the condition of {e} is no bool of one lane", "select chooses lane by lane")
    return e.cond, e.a, e.b


def _check_across(c: ExprChecker, e: Across) -> Parts:
    if e.op not in COMBINERS:
        raise c.fail(f"{e} combines lanes by {e.op.value}, which is not commutative")
    return (e.a,)


def _check_shuffle(c: ExprChecker, e: Shuffle) -> Parts:
    if len({(x.dtype, lanes_of(x)) for x in e.operands}) != 1:
        raise c.fail(f"the operands of {e} differ in type or lanes")
    there = lanes_of(e.operands[0]) * len(e.operands)
    if not e.places or not all(0 <= p < there for p in e.places):
        raise c.fail(f"{e} takes lanes that are not among the {there} of its operands")
    return e.operands


def _check_lookup(c: ExprChecker, e: Lookup) -> Parts:
    count = len(e.entries)
    if count < 2 or count & (count - 1):
        raise c.fail(f"{e} has a table of {count} entries", "tables have 2, 4, 8, 16 … entries")
    if not e.dtype.is_float or any(e.dtype.round(x) != x for x in e.entries if x == x):
        raise c.fail(f"{e} has entries that are no {e.dtype}", "round them to a type of floats")
    if e.at.dtype != i32:
        raise c.fail(f"the place of {e} is {e.at.dtype}, not i32")
    return (e.at,)


_CHECKS: dict[type, Callable[[ExprChecker, Any], Parts]] = {
    Const: _check_const,
    Var: _check_var,
    Symbol: _check_symbol,
    Unary: _check_unary,
    Binary: _check_binary,
    Compare: _check_compare,
    Select: _check_select,
    Cast: lambda c, e: (e.a,),
    Bitcast: _check_bitcast,
    Load: lambda c, e: c.subscripts(e.buffer, e.indices),
    Opaque: lambda c, e: e.args,
    Lane: _check_lane,
    Masked: _check_masked,
    Branch: _check_branch,
    Across: _check_across,
    Shuffle: _check_shuffle,
    Lookup: _check_lookup,
}
