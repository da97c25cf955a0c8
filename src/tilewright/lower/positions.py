"""Where elements lie: subscripts become positions in flat buffers, and sums get an order.

A position is added up from what changes least to what changes most: the terms of outer loops first,
so that they are computed outside, and the constant last, so that it becomes an offset.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

from tilewright.analyze.linear import Linear, linear, short_text
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Select,
    Var,
    as_expr,
    const,
)
from tilewright.ir.loop import Kernel
from tilewright.ir.substitute import variables

LAST = 1 << 20  # deeper than any loop

Term = tuple[Expr | None, int]  # of a linear form: an atom, or the constant, and its factor


class Positions:
    """Flat buffers, and sums in the order of the loops around: `depth` says how deep each is."""

    def __init__(self, simplifier: Simplifier) -> None:
        self.simplifier = simplifier
        self.depth: dict[Var, int] = {}
        self._found: dict[tuple[Buffer, tuple[Expr, ...]], Linear] = {}

    def of(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear:
        """The row-major position of an element."""
        key = (buffer, indices)
        if key not in self._found:
            self._found[key] = self.simplifier.position(indices, buffer.shape)
        return self._found[key]

    def address(self, form: Linear, value: Callable[[Expr], Expr]) -> Expr:
        """A position as a sum: of equally deep terms, one order for all positions."""
        return _sum(sorted(form.items(), key=self._order), value)

    def sum(self, form: Linear, value: Callable[[Expr], Expr]) -> Expr:
        """A linear form as a sum; `value` gives what an atom becomes."""
        return _sum(sorted(form.items(), key=lambda t: self._depth(t[0])), value)

    def _order(self, term: Term) -> tuple[int, str]:
        atom = term[0]
        return self._depth(atom), "" if atom is None else short_text(atom)

    def _depth(self, atom: Expr | None) -> int:
        """Loop depth of the innermost variable in an atom; constants last."""
        if atom is None:
            return LAST
        return max((self.depth.get(v, 0) for v in variables(atom)), default=-1)


def _sum(terms: Iterable[Term], value: Callable[[Expr], Expr]) -> Expr:
    total: Expr | None = None
    for atom, k in terms:
        term: Expr = const(k) if atom is None else _scaled(atom, k, value)
        total = term if total is None else Binary(BinaryOp.ADD, total, term)
    return const(0) if total is None else total


def _scaled(atom: Expr, k: int, value: Callable[[Expr], Expr]) -> Expr:
    if isinstance(atom, Binary) and atom.op is BinaryOp.MUL:  # of two atoms: no linear form
        term: Expr = Binary(BinaryOp.MUL, value(atom.a), value(atom.b))
    else:
        term = value(atom)
    return term if k == 1 else Binary(BinaryOp.MUL, term, const(k))


# ---------------------------------------------------------------- buffers


@functools.lru_cache(maxsize=1 << 12)
def flat(buffer: Buffer) -> Buffer:
    """The buffer with one dimension. Its size names every symbol that the shape does."""
    size: Dim = 1
    if all(isinstance(n, int) for n in buffer.shape):
        size = math.prod(int(n) for n in buffer.shape)
    else:
        first, *others = map(as_expr, buffer.shape)
        size = functools.reduce(lambda a, b: Binary(BinaryOp.MUL, a, b), others, first)
    return buffer.with_(shape=(size,))


def flat_kernel(kernel: Kernel) -> Kernel:
    """The kernel's parameters as flat buffers; its body is left as it is."""
    inputs, outputs, scratch = (
        tuple(map(flat, buffers)) for buffers in (kernel.inputs, kernel.outputs, kernel.scratch)
    )
    return kernel.with_(inputs=inputs, outputs=outputs, scratch=scratch)


# ---------------------------------------------------------------- divisibility


def divides(n: int, at: Linear) -> bool:
    """Whether a position is a multiple of n for certain."""
    return all(_divides_atom(n // math.gcd(n, k), atom) for atom, k in at.items())


def _divides_atom(n: int, atom: Expr | None) -> bool:
    if n == 1 or atom is None:
        return n == 1
    if isinstance(atom, Select):
        return divides(n, linear(atom.a)) and divides(n, linear(atom.b))
    if isinstance(atom, Binary) and atom.op in (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MOD):
        return divides(n, linear(atom.a)) and divides(n, linear(atom.b))
    return False
