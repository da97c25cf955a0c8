"""Random scalar expressions: any that is legal (`exprs`), and ones safe to run (`Scope`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from tilewright.base.dtype import DTYPES, DType, Kind, bool_, f16, f32, i8, i16, i32, i64, index, u8
from tilewright.ir.expr import (
    TESTS,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Load,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    all_of,
    as_expr,
    binary,
    cast,
    compare,
    const,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.ir.verify.expr import BINARY_TAKES, UNARY_TAKES

T = TypeVar("T")
ALL_DTYPES = tuple(DTYPES.values())
COMMON_DTYPES = (f32, i32, i64, bool_, u8, i8, f16, i16)  # simplest first: examples shrink there


@functools.cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


class Draws:
    """Draws from one hypothesis example; everything shrinks to the first option."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw

    def int(self, low: int, high: int) -> int:
        return low if low == high else self.draw(_integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.int(0, len(options) - 1)]

    def chance(self, n: int) -> bool:
        """True once in n times."""
        return self.int(0, n - 1) == n - 1

    def times(self, most: int) -> Iterator[int]:
        """Counts up, at least once. It is asked before each further time, so that an example can
        shrink by leaving out any of them."""
        yield 0
        for n in range(1, most):
            if self.int(0, 3) == 0:
                return
            yield n


# ---------------------------------------------------------------- any legal expression

_NAMES = ("i", "n", "and", "f32", "x/1", "", "_x_", "é", "print", "select", "inf", "None_")
_EDGES = (0.0, 1.0, -1.5, -0.0, float("inf"), float("-inf"), float("nan"), 0.1, 1e30, 3.4e-40)


def constants(d: Draws, dtype: DType) -> Expr:
    """A constant of the type, edge values included."""
    if dtype.is_float:
        return const(d.pick(_EDGES), dtype)
    if dtype.kind is Kind.BOOL:
        return const(d.chance(2), bool_)
    return const(d.pick((0, 1, dtype.max, dtype.min, 5)), dtype)


def any_expr(d: Draws, dtype: DType, depth: int) -> Expr:
    """Built without folding, so that every record can occur."""
    makers = _LEAVES if depth == 0 else _MAKERS
    made = d.pick(makers)(d, dtype, depth - 1)
    return constants(d, dtype) if made is None else made


def _load(d: Draws, dtype: DType, depth: int) -> Expr:
    rank = d.int(0, 2)
    name = f"{d.pick(_NAMES)}{dtype}{rank}"  # one buffer for each name
    indices = tuple(any_expr(d, index, max(depth, 0)) for _ in range(rank))
    return Load(Buffer(name, dtype, (4, 3)[:rank]), indices)


def _scalar(d: Draws, dtype: DType, depth: int) -> Expr | None:
    if dtype != index:
        return None
    name = d.pick(_NAMES)
    return d.pick((Var(f"v{name}"), Symbol(f"s{name}", 0, 7)))


def _unary(d: Draws, dtype: DType, depth: int) -> Expr | None:
    if dtype == bool_ and d.chance(2):
        return Unary(d.pick(tuple(TESTS)), any_expr(d, f32, depth))
    ops = [op for op in UnaryOp if dtype.kind in UNARY_TAKES[op] and op not in TESTS]
    return Unary(d.pick(ops), any_expr(d, dtype, depth))


def _binary(d: Draws, dtype: DType, depth: int) -> Expr | None:
    ops = [op for op in BinaryOp if dtype.kind in BINARY_TAKES[op]]
    return Binary(d.pick(ops), any_expr(d, dtype, depth), any_expr(d, dtype, depth))


def _compare(d: Draws, dtype: DType, depth: int) -> Expr | None:
    if dtype != bool_:
        return None
    kind = d.pick(ALL_DTYPES)
    return Compare(d.pick(tuple(CompareOp)), any_expr(d, kind, depth), any_expr(d, kind, depth))


def _select(d: Draws, dtype: DType, depth: int) -> Expr:
    cond = any_expr(d, bool_, depth)
    return Select(cond, any_expr(d, dtype, depth), any_expr(d, dtype, depth))


def _cast(d: Draws, dtype: DType, depth: int) -> Expr:
    return Cast(dtype, any_expr(d, d.pick(ALL_DTYPES), depth))


def _bitcast(d: Draws, dtype: DType, depth: int) -> Expr | None:
    same = [t for t in ALL_DTYPES if t.bits == dtype.bits and bool_ not in (t, dtype)]
    return Bitcast(dtype, any_expr(d, d.pick(same), depth)) if same else None


_LEAVES = (lambda d, dtype, depth: constants(d, dtype), _scalar, _load)
_MAKERS = (_binary, _unary, _load, _compare, _select, _cast, _bitcast, *_LEAVES[:2])


@st.composite
def exprs(draw: Callable[..., Any], dtypes: Sequence[DType] = ALL_DTYPES, depth: int = 4) -> Expr:
    """Any legal expression, with names and constants that are hard to print."""
    d = Draws(draw)
    return any_expr(d, d.pick(dtypes), d.int(0, depth))


# ---------------------------------------------------------------- expressions that are safe to run

# Floats in generated programs hold integers, and none so large that a sum or product would be
# rounded: then the order of a reduction changes nothing.
_EXACT = {64: 1 << 53, 32: 1 << 24}
_EXACT_NARROW = {"f16": 1 << 11, "bf16": 1 << 8, "f8e4m3fn": 16, "f8e4m3fnuz": 16}
INPUT_BOUND = 3  # of inputs' magnitude
SYMBOL_MAX = 5


def exact_limit(dtype: DType) -> int:
    """Integers up to this magnitude are exact in a float type."""
    return _EXACT.get(dtype.bits) or _EXACT_NARROW.get(dtype.name, 8)


def largest(dim: Dim) -> int:
    """The greatest value of a dimension that the strategies make."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Symbol):
        return SYMBOL_MAX
    if isinstance(dim, Const):
        return int(dim.value)
    assert isinstance(dim, Binary)
    both = largest(dim.a), largest(dim.b)
    return sum(both) if dim.op is BinaryOp.ADD else both[0] * both[1]


def smallest(dim: Dim) -> int:
    return dim if isinstance(dim, int) else 1


class Scope:
    """What an expression may use: variables with their extents, and buffers that are written, with
    a bound on the magnitude of what they hold (of floats)."""

    def __init__(self, d: Draws, dtypes: Sequence[DType] = COMMON_DTYPES) -> None:
        self.d, self.dtypes = d, dtypes
        self.vars: dict[Var, Dim] = {}
        self.buffers: dict[Buffer, int] = {}

    def inside(self, vars_: dict[Var, Dim]) -> Scope:
        """The scope with more variables."""
        inner = Scope(self.d, self.dtypes)
        inner.vars = self.vars | vars_
        inner.buffers = self.buffers
        return inner

    # ---------------------------------------------------------- subscripts

    def subscript(self, limit: Dim, depth: int = 1) -> Expr:
        """An index in 0 … limit - 1."""
        fitting = [v for v, extent in self.vars.items() if _fits(extent, limit)]
        choice = self.d.int(0, 7)
        if fitting and choice <= 3:
            return self.d.pick(fitting)
        if fitting and choice == 4:
            return as_expr(limit) - 1 - self.d.pick(fitting)
        if choice == 5 and depth > 0:
            gathered = self.integer_load(depth - 1)
            if gathered is not None:
                return cast(index, gathered) % limit
        if choice >= 5 and self.vars:
            moved = self.affine()
            return moved % limit if choice != 6 else minimum(moved, as_expr(limit) - 1)
        return const(self.d.int(0, smallest(limit) - 1))

    def affine(self) -> Expr:
        """A sum of variables and constants, not negative."""
        e = self.d.pick(tuple(self.vars)) * self.d.int(1, 3) + self.d.int(0, 4)
        return e + self.d.pick(tuple(self.vars)) if self.d.chance(3) else e

    def integer_load(self, depth: int) -> Expr | None:
        candidates = [b for b in self.buffers if b.dtype.is_integer]
        return self.load(self.d.pick(candidates), depth) if candidates else None

    def load(self, buffer: Buffer, depth: int = 1) -> Load:
        return Load(buffer, tuple(self.subscript(n, depth) for n in buffer.shape))

    # ---------------------------------------------------------- values

    def value(self, dtype: DType, depth: int, limit: int | None = None) -> tuple[Expr, int]:
        """A value and a bound on its magnitude (of floats), not above `limit`."""
        if dtype.is_float:
            e, bound = self._float(dtype, depth)
            limit = limit or exact_limit(dtype)
            if bound > limit:
                e, bound = clamp(e, limit), limit
            return e, bound
        return (self.condition(depth) if dtype == bool_ else self._integer(dtype, depth)), 0

    def _leaf(self, dtype: DType) -> tuple[Expr, int]:
        candidates = [b for b in self.buffers if b.dtype == dtype]
        if candidates and not self.d.chance(4):
            buffer = self.d.pick(candidates)
            return self.load(buffer), self.buffers[buffer]
        if dtype != bool_ and self.vars and self.d.chance(3):
            var = self.d.pick(tuple(self.vars))
            bound = largest(self.vars[var])
            if not dtype.is_float or bound <= exact_limit(dtype):
                return cast(dtype, var), bound
        low = -3 if dtype.is_signed else 0
        number = self.d.int(low, 3) if dtype != bool_ else self.d.int(0, 1)
        return const(number, dtype), 3

    def _float(self, dtype: DType, depth: int) -> tuple[Expr, int]:
        if depth == 0:
            return self._leaf(dtype)
        choice, limit = self.d.int(0, 9), exact_limit(dtype)
        a, x = self.value(dtype, depth - 1)
        if choice <= 1:
            return unary(self.d.pick(_FLOAT_UNARY), a), x
        if choice == 2 and self._other_float(dtype):
            return self._converted(dtype, depth)
        b, y = self.value(dtype, depth - 1)
        if choice == 3:
            return select(self.condition(depth - 1), a, b), max(x, y)
        op = self.d.pick(_FLOAT_BINARY)
        bound = {BinaryOp.MUL: x * y, BinaryOp.MIN: max(x, y), BinaryOp.MAX: max(x, y)}
        total = bound.get(op, x + y)
        if total > limit:
            a, b, total = clamp(a, 2), clamp(b, 2), 4
        return binary(op, a, b), total

    def _other_float(self, dtype: DType) -> list[DType]:
        return [t for t in self.dtypes if t.is_float and t != dtype]

    def _converted(self, dtype: DType, depth: int) -> tuple[Expr, int]:
        """Another float type's value, bounded so that it is exact in both."""
        other = self.d.pick(self._other_float(dtype))
        e, bound = self.value(other, depth - 1, min(exact_limit(dtype), exact_limit(other)))
        return cast(dtype, e), bound

    def _integer(self, dtype: DType, depth: int) -> Expr:
        if depth == 0:
            return self._leaf(dtype)[0]
        choice = self.d.int(0, 9)
        a = self._integer(dtype, depth - 1)
        if choice <= 1:
            return unary(self.d.pick(_INTEGER_UNARY), a)
        if choice == 2:
            return cast(dtype, self.value(self.d.pick(self.dtypes), depth - 1)[0])
        if choice == 3:
            same = [t for t in (i8, u8, i16, i32, i64) if t.bits == dtype.bits]
            return a if not same else Bitcast(dtype, self._integer(self.d.pick(same), depth - 1))
        b = self._integer(dtype, depth - 1)
        if choice == 4:
            return select(self.condition(depth - 1), a, b)
        return binary(self.d.pick(_INTEGER_BINARY), a, b)

    def condition(self, depth: int) -> Expr:
        if depth == 0:
            return self._leaf(bool_)[0]
        choice = self.d.int(0, 5)
        if choice <= 3:
            dtype = self.d.pick(self.dtypes)
            a, b = self.value(dtype, depth - 1)[0], self.value(dtype, depth - 1)[0]
            return compare(self.d.pick(tuple(CompareOp)), a, b)
        a = self.condition(depth - 1)
        if choice == 4:
            return unary(UnaryOp.NOT, a)
        return binary(self.d.pick(_BOOL_BINARY), a, self.condition(depth - 1))

    def guarded(self, dtype: DType) -> Expr | None:
        """A read that may be out of range, where a condition says that it is not."""
        candidates = [b for b in self.buffers if b.dtype == dtype and b.shape]
        if not candidates or not self.vars:
            return None
        buffer = self.d.pick(candidates)
        *outer, last = [self.subscript(n) for n in buffer.shape]
        moved = last + self.d.int(-2, 2)
        inside = all_of(moved >= 0, moved < as_expr(buffer.shape[-1]))
        return select(inside, Load(buffer, (*outer, moved)), const(0, dtype))


def _fits(extent: Dim, limit: Dim) -> bool:
    """Whether everything below `extent` is below `limit`."""
    if extent == limit:
        return True
    return isinstance(limit, int) and isinstance(extent, int) and extent <= limit


def clamp(e: Expr, limit: int) -> Expr:
    return minimum(maximum(e, -limit), limit)


_FLOAT_UNARY = (UnaryOp.NEG, UnaryOp.ABS, UnaryOp.SIGN, UnaryOp.FLOOR, UnaryOp.ROUND)
_FLOAT_BINARY = (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX)
_INTEGER_UNARY = (UnaryOp.NEG, UnaryOp.ABS, UnaryOp.NOT, UnaryOp.SIGN, UnaryOp.POPCOUNT)
_INTEGER_BINARY = tuple(op for op in BinaryOp if op is not BinaryOp.ATAN2)
_BOOL_BINARY = (BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR, BinaryOp.MIN, BinaryOp.ADD)
