"""Whether the iterations of a loop may run in another order. Conservative: "no" needs no reason.

Two iterations conflict when one writes what the other reads or writes. Accumulations with one
operator commute, so they conflict with each other only if they must not happen at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.analyze.linear import Linear, add, scaled, variables
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Var, as_expr
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    Stmt,
    Store,
    expressions,
    loads,
    walk_statements,
)


@dataclass(frozen=True)
class Access:
    """One place in a program that touches a buffer. `op` is set for accumulations."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    op: BinaryOp | None
    stmt: Stmt

    def __str__(self) -> str:
        what = "read" if not self.writes else "write" if self.op is None else "accumulation"
        place = f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"
        return f"{what} of {place}"


def accesses(block: Block) -> Iterator[Access]:
    """Every access in program order."""
    for stmt in walk_statements(block):
        for e in expressions(stmt):
            for load in loads(e):
                yield Access(load.buffer, load.indices, False, None, stmt)
        if isinstance(stmt, (Store, Accumulate)):
            op = stmt.op if isinstance(stmt, Accumulate) else None
            yield Access(stmt.buffer, stmt.indices, True, op, stmt)


def conflict(
    body: Block, var: Var, simplifier: Simplifier, *, concurrent: bool = False
) -> tuple[Access, Access] | None:
    """Two accesses that may touch one element in different iterations of the loop over `var`
    with this body; None when its iterations may run in any order (or, with `concurrent`, at the
    same time)."""
    if simplifier.extents.get(var) == 1:
        return None
    inner = {s.var for s in walk_statements(body) if isinstance(s, For)}
    private = {s.buffer for s in walk_statements(body) if isinstance(s, Alloc)}
    by_buffer: dict[Buffer, list[Access]] = {}
    for access in accesses(body):
        if access.buffer not in private:
            by_buffer.setdefault(access.buffer, []).append(access)
    for found in by_buffer.values():
        pair = _conflict_on(found, var, inner, simplifier, concurrent)
        if pair is not None:
            return pair
    return None


def _conflict_on(
    found: Sequence[Access], var: Var, inner: set[Var], s: Simplifier, concurrent: bool
) -> tuple[Access, Access] | None:
    if not any(a.writes for a in found):
        return None
    if not concurrent and all(a.op is not None and a.op is found[0].op for a in found):
        return None  # only accumulations with one operator
    first = next(a for a in found if a.writes)
    for other in found:
        if not _separated(first, other, var, inner, s):
            return first, other
    return None if _all_alike(found, first) else _pairwise(found, var, inner, s)


def _all_alike(found: Sequence[Access], first: Access) -> bool:
    return all(a.indices == first.indices for a in found)


def _pairwise(
    found: Sequence[Access], var: Var, inner: set[Var], s: Simplifier
) -> tuple[Access, Access] | None:
    for a in found:
        for b in found:
            if (a.writes or b.writes) and not _separated(a, b, var, inner, s):
                return a, b
    return None


def _separated(a: Access, b: Access, var: Var, inner: set[Var], s: Simplifier) -> bool:
    """Whether different values of `var` always give different elements."""
    pairs = list(zip(a.indices, b.indices, strict=True))
    if any(_apart(s.linear(i), s.linear(j), var, inner, s) for i, j in pairs):
        return True
    for one, other, factor in _recombinations(a):
        forms = [s.linear(x.indices[one] * factor + x.indices[other]) for x in (a, b)]
        if _apart(forms[0], forms[1], var, inner, s):
            return True
    return _apart(_flatten(a, s), _flatten(b, s), var, inner, s)


def _recombinations(a: Access) -> Iterator[tuple[int, int, int]]:
    """Pairs of subscripts (x // c, y % c): together they may say what x is (a blocked axis)."""
    for other, i in enumerate(a.indices):
        for atom in i.walk():
            if isinstance(atom, Binary) and atom.op is BinaryOp.MOD and isinstance(atom.b, Const):
                for one in range(len(a.indices)):
                    if one != other:
                        yield one, other, int(atom.b.value)


def _flatten(a: Access, s: Simplifier) -> Linear:
    """The row-major position of the accessed element."""
    position: Expr = as_expr(0)
    for i, n in zip(a.indices, a.buffer.shape, strict=True):
        position = position * n + i
    return s.linear(position)


def _apart(a: Linear, b: Linear, var: Var, inner: set[Var], s: Simplifier) -> bool:
    """Whether k*var + r differs for different values of `var`: |r - r'| < |k| for all inner
    iterations."""
    step = a.get(var, 0)
    if step == 0 or b.get(var, 0) != step:
        return False
    outside: Linear = {}
    low, high = 0, 0
    for form, sign in ((a, 1), (b, -1)):
        for atom, k in form.items():
            if atom == var:
                continue
            used = set() if atom is None else variables(atom)
            if var in used:
                return False
            if used & inner:
                least, most = s.range(scaled({atom: k}, sign))
                if least is None or most is None:
                    return False
                low, high = low + least, high + most
            else:
                outside = add(outside, {atom: k}, sign)
    if any(atom is not None for atom in outside):
        return False
    offset = outside.get(None, 0)
    return abs(step) > max(abs(low + offset), abs(high + offset))


def invariant(e: Expr, names: set[Var]) -> bool:
    """Whether an expression uses none of these variables."""
    return not variables(e) & names


def linear_in(e: Expr, var: Var, s: Simplifier) -> tuple[int, Linear] | None:
    """(k, rest) with e = k*var + rest and rest free of `var`; None when e is not of that form."""
    form = s.linear(e)
    rest = {atom: k for atom, k in form.items() if atom != var}
    if any(atom is not None and var in variables(atom) for atom in rest):
        return None
    return form.get(var, 0), rest
