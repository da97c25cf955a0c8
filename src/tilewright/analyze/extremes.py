"""The least and the greatest of several index expressions, written in few terms."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.analyze.linear import to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Binary, BinaryOp, Expr, binary, const


def least(s: Simplifier, parts: Iterable[Expr]) -> Expr:
    """min(a, min(b, c) + 1) as min(a, b + 1, c + 1), without what another is always below."""
    return _extreme(s, parts, BinaryOp.MIN)


def most(s: Simplifier, parts: Iterable[Expr]) -> Expr:
    """Likewise the greatest."""
    return _extreme(s, parts, BinaryOp.MAX)


_OTHER = {BinaryOp.MIN: BinaryOp.MAX, BinaryOp.MAX: BinaryOp.MIN}


def _extreme(s: Simplifier, parts: Iterable[Expr], op: BinaryOp) -> Expr:
    kept: list[Expr] = []
    for e in dict.fromkeys(x for part in parts for x in _flat(s, s(part), op)):
        if not any(_below(s, x, e, op) for x in kept):
            kept = [x for x in kept if not _below(s, e, x, op)] + [e]
    found = kept[0]
    for e in kept[1:]:
        found = binary(op, found, e)
    return s(found)


def _below(s: Simplifier, a: Expr, b: Expr, op: BinaryOp) -> bool:
    """Whether a is never beyond b, so that b changes nothing."""
    low, high = s.difference(a, b)
    return high is not None and high <= 0 if op is BinaryOp.MIN else low is not None and low >= 0


def _flat(s: Simplifier, e: Expr, op: BinaryOp) -> list[Expr]:
    """The parts of an extreme to which a number is added."""
    form = s.linear(e)
    atoms = [atom for atom in form if atom is not None]
    if len(atoms) != 1:
        return [e]
    (atom,) = atoms
    k = form[atom]
    if not isinstance(atom, Binary) or (k, atom.op) not in ((1, op), (-1, _OTHER[op])):
        return [e]
    offset = to_expr({None: form[None]}) if None in form else const(0)
    sides = (atom.a * k + offset, atom.b * k + offset)
    return [x for side in sides for x in _flat(s, s(side), op)]
