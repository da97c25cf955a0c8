"""Loop programs in the language of integer sets (isl; Verdoolaege, ICMS 2010).

`Writer` turns expressions into isl's text. What is not affine (a read, a product of variables)
has no text: the caller leaves the constraint out, which makes a set larger, never smaller.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import islpy as isl

from tilewright.base.dtype import index
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Load,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_expr,
)
from tilewright.ir.substitute import variables

_SIGNS = {BinaryOp.ADD: "+", BinaryOp.SUB: "-"}
_COMPARE = {
    CompareOp.EQ: "=",
    CompareOp.NE: "!=",
    CompareOp.LT: "<",
    CompareOp.LE: "<=",
    CompareOp.GT: ">",
    CompareOp.GE: ">=",
}
_NEGATED = {
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
    CompareOp.LT: CompareOp.GE,
    CompareOp.LE: CompareOp.GT,
    CompareOp.GT: CompareOp.LE,
    CompareOp.GE: CompareOp.LT,
}


class SetWriter:
    """Writes expressions; variables not in `names` are parameters of the set, and so are symbols
    and products of symbols."""

    def __init__(self) -> None:
        self.parameters: dict[Expr, str] = {}

    def affine(self, e: Dim, names: Mapping[Var, str]) -> str | None:
        """An index expression; None if it is not affine."""
        e = as_expr(e)
        if isinstance(e, Const):
            return str(e.value)
        if isinstance(e, Var) and e in names:
            return names[e]
        if isinstance(e, Binary):
            text = self._binary(e, names)
            if text is not None:
                return text
        return self._parameter(e, names)

    def _parameter(self, e: Expr, names: Mapping[Var, str]) -> str | None:
        """Anything that is fixed here: symbols, and variables of loops further out."""
        if any(isinstance(x, Load) for x in e.walk()) or any(v in names for v in variables(e)):
            return None
        return self.parameters.setdefault(e, f"p{len(self.parameters)}")

    def _binary(self, e: Binary, names: Mapping[Var, str]) -> str | None:
        a, b = self.affine(e.a, names), self.affine(e.b, names)
        if a is None or b is None:
            return None
        if e.op in _SIGNS:
            return f"({a} {_SIGNS[e.op]} {b})"
        if e.op in (BinaryOp.MIN, BinaryOp.MAX):
            return f"{e.op.value}({a}, {b})"
        by = e.b.value if isinstance(e.b, Const) else None
        if e.op is BinaryOp.MUL:
            factor = by if by is not None else e.a.value if isinstance(e.a, Const) else None
            return None if factor is None else f"({b if by is None else a} * {factor})"
        if by is None or by <= 0:
            return None
        if e.op is BinaryOp.FLOORDIV:
            return f"floor(({a}) / {by})"
        return f"(({a}) mod {by})" if e.op is BinaryOp.MOD else None

    def condition(self, e: Expr, names: Mapping[Var, str], *, negate: bool = False) -> str | None:
        """A condition on indices; None if it is not affine (leave it out)."""
        if isinstance(e, Unary) and e.op is UnaryOp.NOT:
            return self.condition(e.a, names, negate=not negate)
        if isinstance(e, Binary) and e.op in (BinaryOp.AND, BinaryOp.OR):
            return self._connective(e, names, negate)
        if not isinstance(e, Compare) or e.a.dtype != index:
            return None
        a, b = self.affine(e.a, names), self.affine(e.b, names)
        op = _NEGATED[e.op] if negate else e.op
        return None if a is None or b is None else f"{a} {_COMPARE[op]} {b}"

    def _connective(self, e: Binary, names: Mapping[Var, str], negate: bool) -> str | None:
        parts = [self.condition(x, names, negate=negate) for x in (e.a, e.b)]
        known = [p for p in parts if p is not None]
        if (e.op is BinaryOp.AND) != negate:
            return " and ".join(f"({p})" for p in known) or None
        return " or ".join(f"({p})" for p in known) if len(known) == 2 else None

    def bounds(self, var: str, extent: Dim, names: Mapping[Var, str]) -> Iterator[str]:
        """0 <= var < extent, as far as the extent is affine."""
        yield f"0 <= {var}"
        limit = self.affine(extent, names)
        if limit is not None:
            yield f"{var} < {limit}"

    def parameter_bounds(self, extents: Mapping[Var, Dim]) -> Iterator[str]:
        """What is known of the parameters: symbols' bounds, outer loops' ranges."""
        for e, name in list(self.parameters.items()):
            if isinstance(e, Symbol):
                yield f"{name} >= {e.lower}"
                if e.upper is not None:
                    yield f"{name} <= {e.upper}"
            elif isinstance(e, Var) and e in extents:
                yield from self.bounds(name, extents[e], {})


def sample(text: str, names: list[str]) -> dict[str, int] | None:
    """One point of a set, by the names of its dimensions; None if the set is empty."""
    point = _point(text, len(names))
    return None if point is None else dict(zip(names, point, strict=True))


@functools.lru_cache(maxsize=1 << 12)
def _point(text: str, dims: int) -> tuple[int, ...] | None:
    """Schedules that are tried with many factors ask for the same sets again and again."""
    found = isl.Set(text)
    if found.is_empty():
        return None
    point = found.sample_point()
    values = (point.get_coordinate_val(isl.dim_type.set, i) for i in range(dims))
    return tuple(int(v.to_python()) for v in values)
