"""Arithmetic on dimensions: polynomials over symbols, in one canonical form.

Two dimensions that are equal as polynomials are equal as records once canonical, so shapes can be
compared with `==`. What is not a polynomial (a floor division, a remainder) is an atom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.base.dtype import DType
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Dim,
    Expr,
    Symbol,
    Unary,
    UnaryOp,
    as_dim,
    as_expr,
    binary,
    maximum,
    minimum,
)
from tilewright.ir.tensor_type import TensorType
from tilewright.program.size import OPERATORS, Arithmetic, Size

Monomial = tuple[Expr, ...]  # factors, sorted by their text
Polynomial = dict[Monomial, int]  # monomial to coefficient; none is zero


def polynomial(dim: Dim) -> Polynomial:
    """The dimension as a sum of products."""
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    if isinstance(dim, Const):
        return {(): int(dim.value)} if dim.value else {}
    if isinstance(dim, Binary) and dim.op in _ARITHMETIC:
        return _ARITHMETIC[dim.op](polynomial(dim.a), polynomial(dim.b))
    if isinstance(dim, Binary) and dim.op in (BinaryOp.FLOORDIV, BinaryOp.MOD):
        return _quotient(dim)
    if isinstance(dim, Unary) and dim.op is UnaryOp.NEG:
        return _add({}, polynomial(dim.a), -1)
    if isinstance(dim, Binary):
        folded = binary(dim.op, canonical(dim.a), canonical(dim.b))
        whole = isinstance(folded, Binary) and folded.op is dim.op
        return {(folded,): 1} if whole else polynomial(folded)
    return {(dim,): 1}


def canonical(dim: Dim) -> Dim:
    """The one form of all dimensions equal to this one as polynomials."""
    if isinstance(dim, int):
        return dim
    return _rebuild(polynomial(dim))


def size_of(dim: Dim) -> Size:
    """The dimension as a host program has it; CompileError if it is not arithmetic on symbols."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Const):
        return int(dim.value)
    if isinstance(dim, Symbol):
        return dim.name
    if isinstance(dim, Binary) and dim.op.value in OPERATORS:
        return Arithmetic(dim.op.value, size_of(dim.a), size_of(dim.b))
    raise CompileError(f"{dim} is not arithmetic on symbols, and the host computes nothing else")


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are equal as polynomials."""
    return a == b or canonical(a) == canonical(b)


def divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """q with a == q * b, when b is a single product that divides every term of a; else None."""
    divisor = polynomial(b)
    if len(divisor) != 1:
        return 1 if divisor and canonical(a) == canonical(b) else None
    (factors, scale), terms = next(iter(divisor.items())), {}
    for monomial, coefficient in polynomial(a).items():
        rest = _remove(monomial, factors)
        if rest is None or coefficient % scale:
            return None
        terms[rest] = coefficient // scale
    return _rebuild(terms)


def tensor_type(dtype: DType, shape: Sequence[Dim]) -> TensorType:
    """A row-major type whose dimensions are canonical."""
    return TensorType(dtype, tuple(canonical(d) for d in shape))


def limits(dim: Dim) -> tuple[int | None, int | None]:
    """The least and the greatest value the dimension can have; None where there is no limit."""
    if isinstance(dim, int):
        return dim, dim
    if isinstance(dim, Const):
        return int(dim.value), int(dim.value)
    if isinstance(dim, Symbol):
        return dim.lower, dim.upper
    if isinstance(dim, Binary) and dim.op in _LIMITS:
        return _LIMITS[dim.op](limits(dim.a), limits(dim.b))
    return None, None


def least(a: Dim, b: Dim) -> Dim:
    """The smaller of two dimensions: one of them if that is the same for all symbols."""
    low, high = limits(canonical(as_expr(a) - b))
    if high is not None and high <= 0:
        return a
    return b if low is not None and low >= 0 else canonical(minimum(as_expr(a), b))


def greatest(a: Dim, b: Dim) -> Dim:
    """The greater of two dimensions: one of them if that is the same for all symbols."""
    low, high = limits(canonical(as_expr(a) - b))
    if low is not None and low >= 0:
        return a
    return b if high is not None and high <= 0 else canonical(maximum(as_expr(a), b))


def _add(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    out = dict(a)
    for monomial, coefficient in b.items():
        out[monomial] = out.get(monomial, 0) + sign * coefficient
    return {m: c for m, c in out.items() if c}


def _multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for ma, ca in a.items():
        for mb, cb in b.items():
            out = _add(out, {tuple(sorted(ma + mb, key=str)): ca * cb})
    return out


_ARITHMETIC = {
    BinaryOp.ADD: _add,
    BinaryOp.SUB: lambda a, b: _add(a, b, -1),
    BinaryOp.MUL: _multiply,
}


Limits = tuple["int | None", "int | None"]


def _limits_add(a: Limits, b: Limits) -> Limits:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    return low, None if a[1] is None or b[1] is None else a[1] + b[1]


def _limits_sub(a: Limits, b: Limits) -> Limits:
    low = None if a[0] is None or b[1] is None else a[0] - b[1]
    return low, None if a[1] is None or b[0] is None else a[1] - b[0]


def _limits_mul(a: Limits, b: Limits) -> Limits:
    ends = [x * y if x and y else 0 for x in _endless(a) for y in _endless(b)]
    low, high = min(ends), max(ends)
    return None if low == -math.inf else int(low), None if high == math.inf else int(high)


def _endless(a: Limits) -> tuple[float, float]:
    return -math.inf if a[0] is None else a[0], math.inf if a[1] is None else a[1]


def _limits_floordiv(a: Limits, b: Limits) -> Limits:
    """Known for a positive divisor: the ends divide like any other value."""
    if b[0] is None or b[0] <= 0:
        return None, None
    low = None if a[0] is None else a[0] // (b[0] if a[0] < 0 else b[1]) if b[1] else min(a[0], 0)
    high = None if a[1] is None else max(a[1] // b[0], a[1] // b[1] if b[1] else 0)
    return low, high


def _limits_mod(a: Limits, b: Limits) -> Limits:
    if b[0] is None or b[0] <= 0:
        return None, None
    return 0, None if b[1] is None else b[1] - 1


def _limits_min(a: Limits, b: Limits) -> Limits:
    highs = [x for x in (a[1], b[1]) if x is not None]
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    return low, min(highs, default=None)


def _limits_max(a: Limits, b: Limits) -> Limits:
    lows = [x for x in (a[0], b[0]) if x is not None]
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return max(lows, default=None), high


_LIMITS = {
    BinaryOp.ADD: _limits_add,
    BinaryOp.SUB: _limits_sub,
    BinaryOp.MUL: _limits_mul,
    BinaryOp.FLOORDIV: _limits_floordiv,
    BinaryOp.MOD: _limits_mod,
    BinaryOp.MIN: _limits_min,
    BinaryOp.MAX: _limits_max,
}


def _quotient(dim: Binary) -> Polynomial:
    """Floor division or remainder: terms that the divisor divides come out of it."""
    numerator, divisor = canonical(dim.a), canonical(dim.b)
    if isinstance(divisor, int) and divisor > 0:
        whole, rest = {}, {}
        for m, c in polynomial(numerator).items():
            if c // divisor:
                whole[m] = c // divisor
            if c % divisor:
                rest[m] = c % divisor
        remainder = _rebuild(rest)
        if isinstance(remainder, int):  # always below the divisor: coefficients are c % divisor
            return whole if dim.op is BinaryOp.FLOORDIV else polynomial(remainder)
        atom: Polynomial = {(Binary(dim.op, as_expr(remainder), as_expr(divisor)),): 1}
        return _add(whole, atom) if dim.op is BinaryOp.FLOORDIV else atom
    exact = divide_exactly(numerator, divisor)
    if exact is not None and _is_nonzero(divisor):  # by zero everything is 0
        return polynomial(exact if dim.op is BinaryOp.FLOORDIV else 0)
    result = binary(dim.op, numerator, as_expr(divisor))
    return {(result,): 1} if isinstance(result, Binary) else polynomial(result)


def _is_nonzero(dim: Dim) -> bool:
    low, high = limits(dim)
    return (low is not None and low > 0) or (high is not None and high < 0)


def _remove(monomial: Monomial, factors: Monomial) -> Monomial | None:
    rest = list(monomial)
    for factor in factors:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def _rebuild(terms: Polynomial) -> Dim:
    total: Dim = 0
    for monomial, coefficient in sorted(terms.items(), key=lambda t: (-len(t[0]), str(t[0]))):
        term: Dim = coefficient
        for position, factor in enumerate(monomial):
            term = factor if position == 0 and coefficient == 1 else term * factor
        total = term if isinstance(total, int) and total == 0 else total + term
    return as_dim(total)
