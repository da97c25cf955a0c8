"""Names for parts that an expression has several times, for its text.

Expressions share their parts, and written out as trees they may be exponentially long: an expanded
sine has 10,000 nodes as a tree, and 200 as it is. In the text of a statement that would be long,
shared parts get a line each, before the statement:

    e0 = let(x[i] * f32(1.442695))
    y[i] = e0 * e0 + e0
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.identifiers import identifier
from tilewright.ir.expr import Buffer, Const, Expr, Load, Symbol, Var

LONG = 150  # nodes of a tree, from which on its shared parts are named
_ATOMS = (Const, Load, Symbol, Var)
_NAMED = (Var, Symbol, Buffer)


def name_parts(*expressions: Expr) -> tuple[list[tuple[str, Expr]], list[Expr]]:
    """(name, part) in the order of definition, and the expressions with the names for the parts;
    no names where the text is short enough."""
    order = list(_once(expressions))
    if sum(_tree_sizes(order)[e] for e in expressions) < LONG:
        return [], list(expressions)
    shared = _shared(order, expressions)
    taken = {identifier(x.name) for e in expressions for x in e.walk() if isinstance(x, _NAMED)}
    named: dict[Expr, Expr] = {}
    lines: list[tuple[str, Expr]] = []
    for e in order:  # operands come before what they are operands of
        short = e.map(lambda x: named.get(x, x))
        if e in shared:
            name = _fresh(len(lines), taken)
            lines.append((name, short))
            short = Var(name, e.dtype)
        named[e] = short
    return lines, [named[e] for e in expressions]


def _fresh(number: int, taken: set[str]) -> str:
    name = f"e{number}"
    while name in taken:
        name += "_"
    return name


def _once(expressions: tuple[Expr, ...]) -> Iterator[Expr]:
    """Every expression once, operands first. Equal ones count as one."""
    seen: set[Expr] = set()
    pending = [(e, False) for e in reversed(expressions)]
    while pending:
        e, done = pending.pop()
        if done:
            yield e
        elif e not in seen:
            seen.add(e)
            pending.append((e, True))
            pending.extend((c, False) for c in reversed(_operands(e)))


def _operands(e: Expr) -> list[Expr]:
    return [c for c in e.children() if isinstance(c, Expr)]


def _tree_sizes(order: list[Expr]) -> dict[Expr, int]:
    """How many nodes each expression has, written out."""
    sizes: dict[Expr, int] = {}
    for e in order:
        sizes[e] = 1 + sum(sizes[c] for c in _operands(e))
    return sizes


def _shared(order: list[Expr], expressions: tuple[Expr, ...]) -> set[Expr]:
    """Compound parts that are an operand more than once; subscripts stay where they are."""
    uses: dict[Expr, int] = dict.fromkeys(order, 0)
    for e in expressions:
        uses[e] += 1
    for e in order:
        if not isinstance(e, Load):
            for c in _operands(e):
                uses[c] += 1
    return {e for e in order if uses[e] > 1 and not isinstance(e, _ATOMS)}
