"""What division by a constant takes out of a linear form.

`linear` gives an expression's canonical linear form, and `range_of` the least and the greatest
value of one, as far as they are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeGuard

from tilewright.analyze.linear import Linear, add, constant, scaled, to_expr
from tilewright.ir.expr import Binary, BinaryOp, Expr

Forms = Callable[[Expr], Linear]
Ranges = Callable[[Linear], tuple[int | None, int | None]]


def divide(a: Linear, c: int) -> tuple[Linear, Linear]:
    """a = c * whole + rest; a coefficient in rest is in (-c, c), and negative only where a's is."""
    whole, rest = {}, {}
    for atom, k in a.items():
        q = k // c if atom is None or k > 0 else -(-k // c)
        if q:
            whole[atom] = q
        if k - q * c:
            rest[atom] = k - q * c
    return whole, rest


def digits(a: Linear, c: int, linear: Forms, range_of: Ranges) -> tuple[int, Linear, Linear] | None:
    """(g, x, r) with a = g*x + r and 0 <= r < g, for a divisor g of c; None without one."""
    found = (math.gcd(c, _factor(x, k, linear)) for x, k in a.items() if x is not None)
    for g in sorted({k for k in found if k > 1}, reverse=True):
        high: Linear = {}
        rest: Linear = {}
        for atom, k in a.items():
            if atom is not None and _factor(atom, k, linear) % g == 0:
                high = add(high, _divided(atom, k, g, linear))
            elif atom is not None:
                rest[atom] = k
        offset = a.get(None, 0)
        rest, high = add(rest, constant(offset % g)), add(high, constant(offset // g))
        least, most = range_of(rest)
        if least is not None and least >= 0 and most is not None and most < g:
            return g, high, rest
    return None


def _factor(atom: Expr, k: int, linear: Forms) -> int:
    """What divides k times an atom; of a minimum, also what divides both of its sides."""
    if not _is_extreme(atom):
        return abs(k)
    sides = (linear(atom.a), linear(atom.b))
    return abs(k) * max(1, math.gcd(*(n for side in sides for n in side.values())))


def _divided(atom: Expr, k: int, g: int, linear: Forms) -> Linear:
    """k times an atom, divided by what divides it: min(16 * x, 8) / 8 is min(2 * x, 1)."""
    if k % g == 0 or not _is_extreme(atom):
        return {atom: k // g}
    inside = g // math.gcd(k, g)
    a, b = (to_expr({x: n // inside for x, n in linear(side).items()}) for side in (atom.a, atom.b))
    return scaled(linear(Binary(atom.op, a, b)), k * inside // g)


def _is_extreme(e: Expr) -> TypeGuard[Binary]:
    return isinstance(e, Binary) and e.op in (BinaryOp.MIN, BinaryOp.MAX)
