"""Comparing sizes that depend on symbolic dimensions: which is the larger, whatever the values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeGuard, overload

from tilewright.base.node import Node
from tilewright.ir.dims import Monomial, Polynomial, canonical, limits, polynomial
from tilewright.ir.expr import Binary, BinaryOp, Const, Dim, Expr, Symbol, as_expr, maximum

Terms = dict[Monomial, Fraction]
MAX_NESTED = 4  # maxima in one size; beyond that it is bounded by a sum
MAX_CHOICES = 8  # sides of maxima chosen in one comparison
MAX_STEPS = 200  # of replacing quotients by their bounds
ROUND_COEFFICIENTS = 512  # bytes from which rounding a coefficient up costs little


@functools.lru_cache(maxsize=1 << 16)
def is_at_least(a: Dim, b: Dim) -> bool:
    """Whether a >= b is certain for all values of the symbols; False says nothing."""
    if isinstance(a, int) and isinstance(b, int):
        return a >= b
    return is_never_negative(canonical(as_expr(a) - b))


def is_never_negative(dim: Dim) -> bool:
    """Whether a dimension is certainly 0 or more: one side of a maximum is chosen (where it is
    taken away: both must do), quotients are replaced by bounds, symbols by what they are beyond
    their least value, and then no coefficient may be negative."""
    return _is_never_negative(polynomial(dim), MAX_CHOICES)


def _is_never_negative(terms: Polynomial, choices: int) -> bool:
    found = next(((m, f) for m in terms for f in m if _is_maximum(f)), None)
    if found is None:
        exact = _without_quotients({m: Fraction(c) for m, c in terms.items()})
        return exact is not None and all(c >= 0 for c in _beyond_least(exact).values())
    monomial, factor = found
    if choices == 0 or any(_least(f) < 0 for f in monomial):
        return False
    enough = any if terms[monomial] > 0 else all
    sides = (_with_factor(terms, monomial, factor, side) for side in (factor.a, factor.b))
    return enough(_is_never_negative(side, choices - 1) for side in sides)


def _with_factor(terms: Polynomial, monomial: Monomial, factor: Expr, side: Expr) -> Polynomial:
    """The terms with `side` in the place of a factor of one of them."""
    others = list(monomial)
    others.remove(factor)
    changed: Dim = terms[monomial]
    for f in (*others, side):
        changed = as_expr(changed) * f
    return polynomial(as_expr(_sum({m: c for m, c in terms.items() if m != monomial})) + changed)


def _is_maximum(factor: Node) -> TypeGuard[Binary]:
    return isinstance(factor, Binary) and factor.op is BinaryOp.MAX


def _maxima(e: Expr) -> int:
    """How many maxima a size has as it is written out."""
    inner = sum(_maxima(x) for x in e.children() if isinstance(x, Expr))
    return inner + _is_maximum(e)


def larger_of(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes (0 or more, for all symbols), or one that is at least as large as
    both."""
    if is_at_least(a, b):
        return a
    if is_at_least(b, a):
        return b
    pa, pb = polynomial(a), polynomial(b)
    if _maxima(as_expr(a)) + _maxima(as_expr(b)) < MAX_NESTED:
        first, second = sorted((as_expr(a), as_expr(b)), key=str)
        return canonical(maximum(first, second))
    if all(_least(f) >= 0 for m in (*pa, *pb) for f in m):
        return _sum({m: max(pa.get(m, 0), pb.get(m, 0)) for m in {**pa, **pb}})
    return canonical(as_expr(a) + b)


@overload
def round_up(size: int, unit: int) -> int: ...
@overload
def round_up(size: Dim, unit: int) -> Dim: ...
def round_up(size: Dim, unit: int) -> Dim:
    """A multiple of `unit` that is at least `size`: the next one, or for large coefficients the
    polynomial with each rounded up, which compares better."""
    if isinstance(size, int):
        return -(-size // unit) * unit
    terms = polynomial(size)
    if all(c % unit == 0 or c >= ROUND_COEFFICIENTS for c in terms.values()) and all(
        _least(f) >= 0 for m in terms for f in m
    ):
        return _sum({m: -(-c // unit) * unit for m, c in terms.items()})
    return canonical((as_expr(size) + (unit - 1)) // unit * unit)


def _sum(terms: Polynomial) -> Dim:
    total: Dim = 0
    for monomial, coefficient in terms.items():
        term: Dim = coefficient
        for factor in monomial:
            term = as_expr(term) * factor
        total = as_expr(total) + term
    return canonical(total)


def _least(factor: Expr) -> int:
    if _is_maximum(factor):
        return max(_least(factor.a), _least(factor.b))
    low = limits(factor)[0]
    return -1 if low is None else low


# ---------------------------------------------------------------- bounds


def _without_quotients(terms: Terms) -> Terms | None:
    """Terms that are no more than `terms`, whose factors are symbols only; None if there is no
    telling."""
    for _ in range(MAX_STEPS):
        found = next(
            ((m, f) for m in terms for f in m if not isinstance(f, Symbol)),
            None,
        )
        if found is None:
            return terms
        monomial, factor = found
        if any(_least(f) < 0 for f in monomial):
            return None
        coefficient = terms.pop(monomial)
        bound = _bound(factor, coefficient > 0)
        if bound is None:
            return None
        rest = list(monomial)
        rest.remove(factor)
        for m, c in bound.items():
            key = tuple(sorted([*rest, *m], key=str))
            terms[key] = terms.get(key, Fraction(0)) + coefficient * c
    return None


def _bound(factor: Expr, low: bool) -> Terms | None:
    """A polynomial that is at most (`low`) or at least what a quotient or remainder is."""
    if isinstance(factor, Binary) and isinstance(factor.b, Const) and factor.b.value > 0:
        divisor = int(factor.b.value)
        if factor.op is BinaryOp.MOD:
            return {} if low else {(): Fraction(divisor - 1)}
        if factor.op is BinaryOp.FLOORDIV:
            terms = {m: Fraction(c, divisor) for m, c in polynomial(factor.a).items()}
            if low:
                terms[()] = terms.get((), Fraction(0)) - Fraction(divisor - 1, divisor)
            return terms
    limit = limits(factor)[0 if low else 1]
    return None if limit is None else {(): Fraction(limit)}


def _beyond_least(terms: Terms) -> Terms:
    """The terms with every symbol written as its least value and what it is beyond that."""
    out: Terms = {}
    for monomial, coefficient in terms.items():
        for chosen, factor in _expand(monomial):
            out[chosen] = out.get(chosen, Fraction(0)) + coefficient * factor
    return out


def _expand(monomial: Sequence[Expr]) -> list[tuple[Monomial, int]]:
    """(low + x) * (low + y) * … as a sum."""
    sums: list[tuple[Monomial, int]] = [((), 1)]
    for factor in monomial:
        low = _least(factor)
        sums = [
            part
            for chosen, scale in sums
            for part in (((*chosen, factor), scale), (chosen, scale * low))
        ]
    return sums
