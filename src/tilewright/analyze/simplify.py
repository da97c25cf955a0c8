"""Simplifying index expressions and conditions, given the extents of the loops around them.

Every index expression gets one canonical form, so two equal subscripts compare equal. What is
used: linear arithmetic, the ranges of variables, and these facts (c, d > 0):

    (c*q + r) // c -> q            when 0 <= r < c
    (c*q + r) % c  -> r            when 0 <= r < c
    (x // c) // d  -> x // (c*d)
    (x % (c*d)) // c -> (x // c) % d
    c*(x // c) + x % c -> x
    c*((q + x // c) % d) + x % c -> (c*q + x) % (c*d)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from tilewright.analyze.linear import (
    Linear,
    add,
    constant,
    is_constant,
    is_limited,
    linear,
    multiply,
    scaled,
    to_expr,
)
from tilewright.analyze.quotients import digits, divide
from tilewright.base.dtype import bool_, index
from tilewright.base.node import Node
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Select,
    Symbol,
    Unary,
    Var,
    as_dim,
    as_expr,
    binary,
    compare,
    const,
    select,
    unary,
)

Bound = int | None  # None: unbounded
_FLIP = {
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}


class Simplifier:
    """Simplifies under fixed loop extents; remembers what it has done. The variable of a loop of
    one iteration is 0, unless `keep_units` says that such loops stay visible in subscripts."""

    def __init__(
        self, extents: Mapping[Var, Dim] | None = None, *, keep_units: bool = False
    ) -> None:
        self.extents: dict[Var, Dim] = dict(extents or {})
        self.keep_units = keep_units
        self.unknown: set[Var] = set()  # variables met that were no loops of known extent
        self.simple: set[Node] = set()  # statements of which all is in canonical form
        self._memo: dict[Expr, Expr] = {}
        self._linear: dict[Expr, Linear] = {}
        self._data: dict[Expr, bool] = {}

    def with_loops(self, extents: Mapping[Var, Dim]) -> Simplifier:
        """A simplifier that knows these loops as well."""
        return Simplifier({**self.extents, **extents}, keep_units=self.keep_units)

    def learn(self, extents: Mapping[Var, Dim]) -> bool:
        """Takes in more loops, and keeps what it remembers; False if that would have been otherwise
        with them."""
        same = all(self.extents.get(v, n) == n for v, n in extents.items())
        if not same or not self.unknown.isdisjoint(extents):
            return False
        self.extents.update(extents)
        return True

    # ---------------------------------------------------------- expressions

    def __call__(self, e: Expr) -> Expr:
        """The canonical form of `e`: equal values for all indices in range."""
        found = self._memo.get(e)
        if found is None:
            found = self._simplify(e)
            found = e if found == e else found  # what is simple stays the same object
            self._memo[e] = found
        return found

    def _extent(self, var: Var) -> Dim | None:
        found = self.extents.get(var)
        if found is None:
            self.unknown.add(var)
        return found

    def dim(self, dim: Dim) -> Dim:
        return as_dim(self(dim)) if isinstance(dim, Expr) else dim

    def _simplify(self, e: Expr) -> Expr:
        if isinstance(e, Var):
            return const(0) if self._extent(e) == 1 and not self.keep_units else e
        if isinstance(e, (Const, Symbol)):
            return e
        if e.dtype == index and isinstance(e, Binary) and e.op in _LINEAR_OPS:
            return to_expr(self.linear(e))
        return _BY_TYPE.get(type(e), _simplify_children)(self, e)

    # ---------------------------------------------------------- linear forms

    def linear(self, e: Expr) -> Linear:
        """The canonical linear form of an index expression."""
        found = self._linear.get(e)
        if found is None:
            found = self._linear[e] = self.recombine(_wrapped(self._linear_of(e)))
        return found

    def _linear_of(self, e: Expr) -> Linear:
        if isinstance(e, Const):
            return constant(int(e.value))
        if isinstance(e, Var) and self._extent(e) == 1 and not self.keep_units:
            return {}
        if not isinstance(e, Binary) or e.op not in _LINEAR_OPS:
            return {e: 1} if isinstance(e, (Var, Symbol)) else linear(self._opaque(e))
        if e.op is BinaryOp.ADD:
            return add(self.linear(e.a), self.linear(e.b))
        if e.op is BinaryOp.SUB:
            return add(self.linear(e.a), self.linear(e.b), -1)
        if e.op is BinaryOp.MUL:
            return multiply(self.linear(e.a), self.linear(e.b))
        dividend, divisor = self.linear(e.a), self.linear(e.b)
        if not divisor:  # by zero everything is 0
            return {}
        if self._may_wrap(dividend) or self._may_wrap(divisor):
            return {Binary(e.op, to_expr(dividend), to_expr(divisor)): 1}
        if is_constant(divisor) and divisor[None] > 0:
            divide = self._floordiv if e.op is BinaryOp.FLOORDIV else self._mod
            return divide(dividend, divisor[None])
        return self._symbolic_quotient(e.op, dividend, divisor)

    def position(self, indices: Sequence[Expr], shape: Sequence[Dim]) -> Linear:
        """How many elements of a row-major array lie before the one at these subscripts."""
        at: Linear = {}
        for i, n in zip(indices, shape, strict=True):
            rows = scaled(at, n) if isinstance(n, int) else multiply(at, self.linear(n))
            at = self.recombine(_wrapped(add(rows, self.linear(i))))
        return at

    def _opaque(self, e: Expr) -> Expr:
        """An index expression that is no linear arithmetic (min, max, select, a read …)."""
        return _BY_TYPE.get(type(e), _simplify_children)(self, e)

    def _floordiv(self, a: Linear, c: int) -> Linear:
        whole, rest = divide(a, c)
        low, high = self.range(rest)
        if low is not None and high is not None and low // c == high // c:
            return add(whole, constant(low // c))
        return add(whole, self._floordiv_atom(rest, c))

    def _floordiv_atom(self, rest: Linear, c: int) -> Linear:
        g = math.gcd(c, *(k for atom, k in rest.items() if atom is not None))
        if g > 1:  # (g*x + r) // (g*d) = (x + r//g) // d
            rest = {atom: k // g for atom, k in rest.items()}
            return self._floordiv(rest, c // g)
        parts = digits(rest, c, self.linear, self.range)
        if parts is not None:  # (g*x + r) // (g*d) = x // d  for 0 <= r < g
            g, high, _ = parts
            return self._floordiv(high, c // g)
        (atom, k), *more = rest.items()
        if not more and k == 1 and atom is not None and _is_by(atom, BinaryOp.FLOORDIV):
            inner = int(atom.b.value)
            return self._floordiv(self.linear(atom.a), inner * c)
        if not more and k == 1 and atom is not None and _is_by(atom, BinaryOp.MOD):
            inner = int(atom.b.value)
            if inner % c == 0:  # (x % (c*d)) // c = (x // c) % d
                return self._mod(self._floordiv(self.linear(atom.a), c), inner // c)
        return {Binary(BinaryOp.FLOORDIV, to_expr(rest), const(c)): 1}

    def _mod(self, a: Linear, c: int) -> Linear:
        _, rest = divide(a, c)
        low, high = self.range(rest)
        if low is not None and high is not None and low // c == high // c:
            return add(rest, constant(-(low // c) * c))
        g = math.gcd(c, *(k for atom, k in rest.items() if atom is not None))
        if g > 1:  # (g*x + r) % (g*d) = g*(x % d) + r  for 0 <= r < g
            offset = rest.get(None, 0)
            inner = add(
                {atom: k // g for atom, k in rest.items() if atom is not None},
                constant(offset // g),
            )
            return add(scaled(self._mod(inner, c // g), g), constant(offset % g))
        parts = digits(rest, c, self.linear, self.range)
        if parts is not None:
            g, upper, lower = parts
            return add(scaled(self._mod(upper, c // g), g), lower)
        (atom, k), *more = rest.items()
        if (
            not more
            and k == 1
            and atom is not None
            and _is_by(atom, BinaryOp.MOD)
            and atom.b.value % c == 0
        ):
            return self._mod(self.linear(atom.a), c)
        return {Binary(BinaryOp.MOD, to_expr(rest), const(c)): 1}

    def _symbolic_quotient(self, op: BinaryOp, a: Linear, b: Linear) -> Linear:
        """Division by a symbolic extent: exact terms come out, the rest is below it or an atom."""
        divisor = to_expr(b)
        whole: Linear = {}
        rest: Linear = {}
        if len(b) == 1 and None not in b and next(iter(b.values())) == 1:
            (factor,) = b
            for atom, k in a.items():
                quotient = _without_factor(atom, factor)
                if quotient is not None:
                    whole = add(whole, {quotient if quotient != const(1) else None: k})
                else:
                    rest = add(rest, {atom: k})
        else:
            rest = a
        if self._is_within(rest, divisor):
            return whole if op is BinaryOp.FLOORDIV else rest
        if whole and not self._is_nonzero(b):
            return {Binary(op, to_expr(a), divisor): 1}
        if not rest:
            return whole if op is BinaryOp.FLOORDIV else {}
        if op is BinaryOp.FLOORDIV:
            return add(whole, {Binary(op, to_expr(rest), divisor): 1})
        return {Binary(op, to_expr(rest), divisor): 1}

    def _is_nonzero(self, a: Linear) -> bool:
        low, high = self.range(a)
        return (low is not None and low > 0) or (high is not None and high < 0)

    def _is_within(self, rest: Linear, divisor: Expr) -> bool:
        """Whether 0 <= rest < divisor for certain."""
        low = self.range(rest)[0]
        gap = self.range(add(self.linear(divisor), rest, -1))[0]
        return low is not None and low >= 0 and gap is not None and gap >= 1

    def recombine(self, a: Linear) -> Linear:
        """c*(x//c) + x%c -> x, and c*((q + x//c)%d) + x%c -> (c*q + x)%(c*d)."""
        for atom, k in a.items():
            if atom is None or not _is_by(atom, BinaryOp.MOD):
                continue
            c = int(atom.b.value)
            for other, m in a.items():
                if other is None or m != k * c:
                    continue
                rest = {x: v for x, v in a.items() if x is not atom and x is not other}
                if other == _quotient(self, atom.a, c):
                    return self.recombine(add(rest, self.linear(atom.a), k))
                if _is_by(other, BinaryOp.MOD):
                    turns = self.linear(other.a)
                    quotient = self.linear(_quotient(self, atom.a, c))
                    if quotient.items() <= turns.items():  # q + x//c
                        whole = add(self.linear(atom.a), add(turns, quotient, -1), c)
                        both = self._mod(whole, c * int(other.b.value))
                        return self.recombine(add(rest, both, k))
        return a

    # ---------------------------------------------------------- ranges

    def bounds(self, e: Expr) -> tuple[Bound, Bound]:
        """The least and greatest value of an index expression, where known."""
        return self.range(self.linear(e))

    def range(self, a: Linear) -> tuple[Bound, Bound]:
        """The least and greatest value of a linear form."""
        low = self._extreme(a, -1)
        high = self._extreme(a, 1)
        return (None, None) if self._wraps(a, low, high) else (low, high)

    def difference(self, a: Expr, b: Expr) -> tuple[Bound, Bound]:
        """The least and greatest value of a - b."""
        x, y = self.linear(a), self.linear(b)
        if self._may_wrap(x) or self._may_wrap(y):
            return None, None
        return self.range(add(x, y, -1))

    def _may_wrap(self, a: Linear) -> bool:
        """Whether the sum may overflow, so that nothing follows from the order of its parts."""
        return self._wraps(a, self._extreme(a, -1), self._extreme(a, 1))

    def _wraps(self, a: Linear, low: Bound, high: Bound) -> bool:
        """Variables and dimensions are never so large that index arithmetic overflows; data are."""
        if low is not None and high is not None:
            return low < index.min or high > index.max
        if len(a) == 1 and 1 in a.values():
            return False  # nothing is added or multiplied
        return any(
            atom is not None and self._is_data(atom) and None in self._atom_range(atom)
            for atom in a
        )

    def _is_data(self, e: Expr) -> bool:
        """Whether an atom is computed of more than variables and dimensions."""
        if isinstance(e, (Var, Symbol)):
            return False
        found = self._data.get(e)
        if found is None:
            found = self._data[e] = not all(_is_index_arithmetic(x) for x in e.walk())
        return found

    def _extreme(self, a: Linear, side: int, depth: int = 8) -> Bound:
        """The greatest (side 1) or least (-1) value; symbolic loop extents are substituted."""
        for atom, k in a.items():
            if atom is None or not depth:
                continue
            limits: tuple[Linear, ...] = ()  # any of them limits what the atom adds
            if isinstance(atom, Var):
                extent = self._extent(atom)
                if isinstance(extent, Expr) and k * side > 0:
                    limits = (add(linear(extent), constant(-1)),)
            elif isinstance(atom, Binary) and is_limited(atom, k * side):
                limits = (linear(atom.a), linear(atom.b))
            if limits:
                rest = {x: v for x, v in a.items() if x is not atom}
                found = (self._extreme(add(rest, x, k), side, depth - 1) for x in limits)
                tightest = min if side > 0 else max
                return tightest((x for x in found if x is not None), default=None)
        total = a.get(None, 0)
        for atom, k in a.items():
            if atom is None:
                continue
            low, high = self._atom_range(atom)
            bound = high if k * side > 0 else low
            if bound is None:
                return None
            total += k * bound
        return total

    def _atom_range(self, atom: Expr) -> tuple[Bound, Bound]:
        if isinstance(atom, Var):
            extent = self._extent(atom)
            return (
                (0, extent - 1 if isinstance(extent, int) else None)
                if extent is not None
                else (None, None)
            )
        if isinstance(atom, Symbol):
            return atom.lower, atom.upper
        if isinstance(atom, Binary) and atom.op in _RANGES:
            return _RANGES[atom.op](self, atom)
        if isinstance(atom, Select):
            (al, ah), (bl, bh) = self.bounds(atom.a), self.bounds(atom.b)
            return _least(al, bl), _greatest(ah, bh)
        if isinstance(atom, Cast) and not atom.a.dtype.is_float and atom.a.dtype.max < index.max:
            return int(atom.a.dtype.min), int(atom.a.dtype.max)
        return None, None

    # ---------------------------------------------------------- conditions

    def proves(self, condition: Expr) -> bool:
        """Whether a condition holds for all indices in range."""
        result = self(condition)
        return isinstance(result, Const) and bool(result.value)

    def in_bounds(self, buffer: Buffer, indices: Sequence[Expr]) -> bool:
        """Whether an element is inside its buffer for all indices in range."""
        return all(
            self.proves(i >= 0) and self.proves(i < as_expr(n))
            for i, n in zip(indices, buffer.shape, strict=True)
        )


_LINEAR_OPS = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOORDIV, BinaryOp.MOD})


if TYPE_CHECKING:

    class _ByConstant(Binary):  # whose second operand is a constant
        b: Const


_INDEX_OPS = _LINEAR_OPS | {BinaryOp.MIN, BinaryOp.MAX, BinaryOp.DIV, BinaryOp.REM}
_INDEX_NODES = (Var, Symbol, Const, Select, Compare, Unary)


def _is_index_arithmetic(e: Node) -> bool:
    return isinstance(e, _INDEX_NODES) or (isinstance(e, Binary) and e.op in _INDEX_OPS)


def _wrapped(a: Linear) -> Linear:
    """Coefficients brought into 64 bits: what arithmetic that wraps around makes of them."""
    if not a or (min(a.values()) >= index.min and max(a.values()) <= index.max):
        return a
    half = 1 << (index.bits - 1)
    small = {atom: (k + half) % (2 * half) - half for atom, k in a.items()}
    return {atom: k for atom, k in small.items() if k}


def _is_by(e: Expr, op: BinaryOp) -> TypeGuard[_ByConstant]:
    """Whether e is a division or remainder by a positive constant."""
    return isinstance(e, Binary) and e.op is op and isinstance(e.b, Const) and e.b.value > 0


def _quotient(s: Simplifier, x: Expr, c: int) -> Expr:
    """x // c in canonical form."""
    return s(Binary(BinaryOp.FLOORDIV, x, const(c)))


def _without_factor(atom: Expr | None, factor: Expr | None) -> Expr | None:
    """atom / factor if `factor` is one of its factors."""
    if atom is None:
        return None
    if atom == factor:
        return const(1)
    if isinstance(atom, Binary) and atom.op is BinaryOp.MUL:
        left = _without_factor(atom.a, factor)
        if left is not None:
            return left * atom.b
        right = _without_factor(atom.b, factor)
        return None if right is None else atom.a * right
    return None


def _least(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else min(a, b)


def _greatest(a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else max(a, b)


def _range_floordiv(s: Simplifier, e: Binary) -> tuple[Bound, Bound]:
    (low, high), by = s.bounds(e.a), s.bounds(e.b)[0]
    if by is None or by < 0:
        return None, None
    if isinstance(e.b, Const):
        return None if low is None else low // by, None if high is None else high // by
    # By more than one it is nearer to 0 (from above) or -1; by zero it is 0.
    return None if low is None else min(low, 0), None if high is None else max(high, 0)


def _range_mod(s: Simplifier, e: Binary) -> tuple[Bound, Bound]:
    """From 0 to below the divisor, or from above it to 0; by zero it is 0."""
    low, high = s.bounds(e.b)
    least = None if low is None else min(low + 1, 0)
    return least, None if high is None else max(high - 1, 0)


def _range_product(s: Simplifier, e: Binary) -> tuple[Bound, Bound]:
    (al, ah), (bl, bh) = s.bounds(e.a), s.bounds(e.b)
    if al is None or bl is None or al < 0 or bl < 0:
        return None, None
    return al * bl, None if ah is None or bh is None else ah * bh


def _range_min(s: Simplifier, e: Binary) -> tuple[Bound, Bound]:
    (al, ah), (bl, bh) = s.bounds(e.a), s.bounds(e.b)
    highs = [h for h in (ah, bh) if h is not None]
    return _least(al, bl), min(highs) if highs else None


def _range_max(s: Simplifier, e: Binary) -> tuple[Bound, Bound]:
    (al, ah), (bl, bh) = s.bounds(e.a), s.bounds(e.b)
    lows = [x for x in (al, bl) if x is not None]
    return max(lows) if lows else None, _greatest(ah, bh)


_RANGES = {
    BinaryOp.FLOORDIV: _range_floordiv,
    BinaryOp.MOD: _range_mod,
    BinaryOp.MUL: _range_product,
    BinaryOp.MIN: _range_min,
    BinaryOp.MAX: _range_max,
}


def _simplify_children(s: Simplifier, e: Expr) -> Expr:
    return e.map(lambda child: child if isinstance(child, Buffer) else s(child))


def _simplify_binary(s: Simplifier, e: Binary) -> Expr:
    a, b = s(e.a), s(e.b)
    if e.dtype == index and e.op in (BinaryOp.MIN, BinaryOp.MAX):
        low, high = s.difference(a, b)
        smaller, greater = (a, b) if e.op is BinaryOp.MIN else (b, a)
        if high is not None and high <= 0:
            return smaller
        if low is not None and low >= 0:
            return greater
    return e if a is e.a and b is e.b else binary(e.op, a, b)


def _simplify_compare(s: Simplifier, e: Compare) -> Expr:
    if e.a.dtype != index:
        return _simplify_children(s, e)
    if e.op in _FLIP:
        return s(Compare(_FLIP[e.op], e.b, e.a))
    low, high = s.difference(e.a, e.b)
    for known, value in _DECIDE[e.op](low, high):
        if known:
            return const(value, bool_)
    coarse = _of_blocks(s, e)
    return compare(e.op, s(e.a), s(e.b)) if coarse is None else coarse


def _of_blocks(s: Simplifier, e: Compare) -> Expr | None:
    """A comparison that is the same for all places in a block, without them: `i * 16 + j < 80` is
    `i < 5`, if j is in 0 … 15."""
    if e.op not in (CompareOp.LT, CompareOp.LE):
        return None
    a, b = s.linear(e.a), s.linear(e.b)
    if s._may_wrap(a) or s._may_wrap(b):
        return None
    form = add(a, b, -1)
    for size in sorted({abs(k) for x, k in form.items() if x is not None}, reverse=True):
        blocks: Linear = {x: k // size for x, k in form.items() if x is not None and k % size == 0}
        within = {x: k for x, k in form.items() if x not in blocks}
        if size == 1 or not set(within) - {None}:
            continue
        low, high = s.range(within)
        before = e.op is CompareOp.LE  # a <= 0 is a - 1 < 0
        if low is None or high is None or (low - before) // size != (high - before) // size:
            continue
        return compare(CompareOp.LT, to_expr(blocks), const(-((low - before) // size)))
    return None


_DECIDE: dict[CompareOp, Callable[[Bound, Bound], tuple[tuple[bool, bool], ...]]] = {
    CompareOp.LT: lambda lo, hi: (
        (hi is not None and hi < 0, True),
        (lo is not None and lo >= 0, False),
    ),
    CompareOp.LE: lambda lo, hi: (
        (hi is not None and hi <= 0, True),
        (lo is not None and lo > 0, False),
    ),
    CompareOp.EQ: lambda lo, hi: (
        (lo == 0 and hi == 0, True),
        ((lo is not None and lo > 0) or (hi is not None and hi < 0), False),
    ),
    CompareOp.NE: lambda lo, hi: (
        (lo == 0 and hi == 0, False),
        ((lo is not None and lo > 0) or (hi is not None and hi < 0), True),
    ),
}


def _simplify_select(s: Simplifier, e: Select) -> Expr:
    cond = s(e.cond)
    if isinstance(cond, Const):
        return s(e.a if cond.value else e.b)
    a, b = s(e.a), s(e.b)
    return e if cond is e.cond and a is e.a and b is e.b else select(cond, a, b)


def _simplify_unary(s: Simplifier, e: Unary) -> Expr:
    a = s(e.a)
    return e if a is e.a else unary(e.op, a)


_BY_TYPE: dict[type[Expr], Callable[[Simplifier, Any], Expr]] = {
    Binary: _simplify_binary,
    Compare: _simplify_compare,
    Select: _simplify_select,
    Unary: _simplify_unary,
}
