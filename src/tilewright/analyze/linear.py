"""Index expressions as linear forms: a constant plus integer multiples of atoms.

An atom is a variable, a symbol, or what is not linear (a floor division, a remainder, a product,
a read). Linear forms are how expressions are compared, bounded, divided and turned into addresses.
"""

from __future__ import annotations

from tilewright.base.dtype import index
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    const,
)
from tilewright.ir.shared_parts import name_parts
from tilewright.ir.substitute import variables

FEW = 12  # nodes, of which no tree is long

Linear = dict[Expr | None, int]  # coefficient of each atom; None is the constant term


def constant(value: int) -> Linear:
    return {None: value} if value else {}


def add(a: Linear, b: Linear, scale: int = 1) -> Linear:
    """a + scale * b."""
    out = dict(a)
    for atom, coefficient in b.items():
        total = out.get(atom, 0) + scale * coefficient
        if total:
            out[atom] = total
        else:
            out.pop(atom, None)
    return out


def scaled(a: Linear, scale: int) -> Linear:
    return {atom: c * scale for atom, c in a.items()} if scale else {}


def is_constant(a: Linear) -> bool:
    return not a or (len(a) == 1 and None in a)


def linear(e: Expr) -> Linear:
    """The linear form of an index expression, as it stands (no knowledge of ranges)."""
    if isinstance(e, Const):
        return constant(int(e.value))
    if isinstance(e, Unary) and e.op is UnaryOp.NEG:
        return scaled(linear(e.a), -1)
    if isinstance(e, Binary):
        if e.op is BinaryOp.ADD:
            return add(linear(e.a), linear(e.b))
        if e.op is BinaryOp.SUB:
            return add(linear(e.a), linear(e.b), -1)
        if e.op is BinaryOp.MUL:
            a, b = linear(e.a), linear(e.b)
            if is_constant(b):
                return scaled(a, b.get(None, 0))
            if is_constant(a):
                return scaled(b, a.get(None, 0))
            return multiply(a, b)
    return {e: 1}


def multiply(a: Linear, b: Linear) -> Linear:
    """The product, distributed; products of atoms are atoms with their factors in text order."""
    out: Linear = {}
    for x, p in a.items():
        for y, q in b.items():
            if x is None or y is None:
                out = add(out, {y if x is None else x: p * q})
            else:
                out = add(out, {_product(x, y): p * q})
    return out


def _factors(atom: Expr) -> list[Expr]:
    if isinstance(atom, Binary) and atom.op is BinaryOp.MUL:
        return _factors(atom.a) + _factors(atom.b)
    return [atom]


def _product(x: Expr, y: Expr) -> Expr:
    factors = sorted(_factors(x) + _factors(y), key=str)
    result = factors[0]
    for factor in factors[1:]:
        result = Binary(BinaryOp.MUL, result, factor)
    return result


def step_along(a: Linear, var: Var) -> int | None:
    """How much a form grows when a variable goes up by one; None if that is not one number."""
    for atom in a:
        if atom is not None and not isinstance(atom, Var) and var in variables(atom):
            return None
    return a.get(var, 0)


def to_expr(a: Linear) -> Expr:
    """The expression a linear form stands for, in one order of terms."""
    terms = [(c, atom) for atom, c in a.items() if atom is not None]
    if len(terms) > 1:
        terms.sort(key=_order)
    offset = a.get(None, 0)
    total: Expr | None = None
    for c, atom in terms:
        if not _LEAST < c < 0:
            term = _times(atom, c)
            total = term if total is None else Binary(BinaryOp.ADD, total, term)
    if total is None:
        total, offset = const(offset), 0
    for c, atom in terms:
        if _LEAST < c < 0:
            total = Binary(BinaryOp.SUB, total, _times(atom, -c))
    if _LEAST < offset < 0:
        return Binary(BinaryOp.SUB, total, const(-offset))
    return Binary(BinaryOp.ADD, total, const(offset)) if offset else total


_LEAST = index.min  # which cannot be negated, and is added


def _times(atom: Expr, c: int) -> Expr:
    return atom if c == 1 else Binary(BinaryOp.MUL, atom, const(c))


def _order(term: tuple[int, Expr]) -> tuple[int, str]:
    return (-abs(term[0]), short_text(term[1]))


def short_text(e: Expr) -> str:
    """The expression's text, in which shared parts of a long one stand once: as a tree it may be
    exponentially long."""
    if len(list(e.walk())) <= FEW:
        return str(e)
    parts, (short,) = name_parts(e)
    return "\n".join([str(short), *(str(part) for _, part in parts)])


def is_limited(atom: Binary, sign: int) -> bool:
    """Whether an atom is the lesser of two symbolic values where a sum grows with it, or the
    greater where it falls: either operand then limits what it adds."""
    op = BinaryOp.MIN if sign > 0 else BinaryOp.MAX
    return atom.op is op and any(isinstance(x, Symbol) for x in atom.walk())
