"""Which elements of its operand an access of an instruction touches, for many values of its fields
at once: the image of a box of iterations.

Conditions on fields decide whether an access happens; those on loops cut off what is outside:
`0 <= 2 * y + r - pad` leaves the rows that a window has in common with the picture. What is neither
is left out, and the footprint is then not exact: larger than what is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.analyze.accesses import Access
from tilewright.analyze.linear import linear
from tilewright.base.dtype import index
from tilewright.ir.evaluate import Env, evaluate_expr
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Dim,
    Expr,
    Load,
    Unary,
    UnaryOp,
    Var,
    as_expr,
)
from tilewright.ir.substitute import variables

ENDLESS = np.iinfo(np.int64).max // 4  # a bound that never cuts


@dataclass(frozen=True, eq=False)
class Axis:
    """`count` [n] places along a direction: each moves subscript d by `moves[d]` [n]."""

    count: np.ndarray
    moves: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Footprint:
    """What an access touches with each of n sets of values of the fields: the element at the
    subscripts `first`, and from there along all `axes`. `active` [n] where it happens at all;
    `exact` [n] where every element is touched for certain."""

    active: np.ndarray
    exact: np.ndarray
    first: tuple[np.ndarray, ...]
    axes: tuple[Axis, ...]


def footprint(access: Access, fields: Env, n: int) -> Footprint:
    """The footprint of an access; `fields` gives columns [n] of values."""
    return _Reader(access, fields, n).read()


class _Reader:
    """Reads one access. Every number is a column [n]."""

    def __init__(self, access: Access, fields: Env, n: int) -> None:
        self.access, self.n = access, n
        self.fields = fields
        self.loops = {loop.var: loop for loop in access.loops}
        self.origin: Env = {**fields, **dict.fromkeys(self.loops, 0)}
        self.active = np.ones(n, bool)
        self.exact = np.ones(n, bool)
        self.low = {v: self.column(0) for v in self.loops}
        self.high = {v: self.extent(v) - 1 for v in self.loops}
        # subscripts that conditions bound: least and greatest value
        self.bounds: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def column(self, e: Dim, at: Env | None = None) -> np.ndarray:
        value = evaluate_expr(as_expr(e), self.origin | (at or {}), {})
        return np.broadcast_to(value, (self.n,))

    def extent(self, v: Var) -> np.ndarray:
        """Of a loop; the greatest one where it depends on loops around it."""
        extent = self.loops[v].extent
        around = variables(extent)
        if not around:
            return self.column(extent)
        self.exact = self.exact & False
        ends = {u: self.high[u] for u in around}
        return np.maximum(self.column(extent), self.column(extent, ends))

    def slope(self, e: Expr, v: Var) -> np.ndarray:
        """How much `e` grows with one iteration of `v`."""
        return self.column(e, {v: 1}) - self.column(e)

    def is_linear(self, e: Expr) -> bool:
        """Whether `e` is a sum of loops' variables, each times something of the fields."""
        return all(
            atom is None or _factors_of_loops(atom, self.loops.keys()) <= 1 for atom in linear(e)
        )

    def read(self) -> Footprint:
        for condition in self.access.conditions:
            for part in _conjuncts(condition):
                self.restrict(part)
        for v in self.loops:
            self.active = self.active & (self.low[v] <= self.high[v])
        indices = self.access.indices
        plain = [self.is_linear(i) for i in indices]
        first = [self.column(i if ok else 0) for i, ok in zip(indices, plain, strict=True)]
        axes: list[Axis] = []
        for d, ok in enumerate(plain):
            if not ok:  # any element along this axis
                self.exact = self.exact & False
                axes.append(self.axis(self.column(self.access.buffer.shape[d]), {d: 1}))
        linear_ones = [d for d, ok in enumerate(plain) if ok]
        used = {v for d in linear_ones for v in variables(indices[d]) if v in self.loops}
        for d in self.bounds:
            inside = {v for v in variables(indices[d]) if v in self.loops}
            cut = self.cut(d, inside)
            if cut is None:
                continue
            first[d], count, step = cut
            axes.append(self.axis(count, {d: step}))
            used -= inside
        for v in sorted(used, key=lambda v: v.name):
            slopes = {d: self.slope(indices[d], v) for d in linear_ones}
            for d, slope in slopes.items():
                first[d] = first[d] + slope * self.low[v]
            axes.append(self.axis(self.high[v] - self.low[v] + 1, slopes))
        return Footprint(self.active, self.exact, tuple(first), tuple(axes))

    def axis(self, count: np.ndarray, moves: dict[int, np.ndarray | int]) -> Axis:
        zero = self.column(0)
        rank = len(self.access.indices)
        return Axis(count, tuple(zero + moves.get(d, 0) for d in range(rank)))

    # ---------------------------------------------------------- conditions

    def restrict(self, condition: Expr) -> None:
        """Takes one condition into account."""
        loops = [v for v in variables(condition) if v in self.loops]
        if any(isinstance(x, Load) for x in condition.walk()):
            self.exact = self.exact & False
        elif not loops:
            self.active = self.active & self.column(condition)
        elif isinstance(condition, Compare) and condition.op in _BOUNDS and _counts(condition):
            for sign, offset in _BOUNDS[condition.op]:
                form = condition.b - condition.a if sign < 0 else condition.a - condition.b
                self.at_least_zero(form - offset, loops)
        else:
            self.exact = self.exact & False

    def at_least_zero(self, e: Expr, loops: Sequence[Var]) -> None:
        """Takes e >= 0 into account."""
        if self.is_linear(e) and len(loops) == 1:
            (v,) = loops
            slope, base = self.slope(e, v), self.column(e)
            steep = np.maximum(np.abs(slope), 1)
            low = np.where(slope > 0, -(base // steep), -ENDLESS)
            high = np.where(slope < 0, base // steep, ENDLESS)
            self.low[v] = np.maximum(self.low[v], low)
            self.high[v] = np.minimum(self.high[v], high)
            self.active = self.active & ((slope != 0) | (base >= 0))
            return
        for d, i in enumerate(self.access.indices):
            for sign in (1, -1):  # e = sign * i + rest
                rest = e - i if sign > 0 else e + i
                if self.is_linear(i) and not self.depends_on_loops(rest):
                    low, high = self.bounds.get(d, (self.column(-ENDLESS), self.column(ENDLESS)))
                    if sign > 0:
                        low = np.maximum(low, -self.column(rest))
                    else:
                        high = np.minimum(high, self.column(rest))
                    self.bounds[d] = low, high
                    return
        self.exact = self.exact & False

    def depends_on_loops(self, e: Expr) -> bool:
        return any(
            atom is not None and _factors_of_loops(atom, self.loops.keys()) for atom in linear(e)
        )

    def cut(self, d: int, inside: set[Var]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The values of subscript d within its bounds: first one, how many, how far apart. None,
        and no longer exact, where its loops leave gaps or move other subscripts too."""
        indices = self.access.indices
        others = {v for k, i in enumerate(indices) if k != d for v in variables(i)}
        start = self.column(indices[d])
        steps = []
        for v in inside:
            slope = self.slope(indices[d], v)
            start = start + slope * np.where(slope >= 0, self.low[v], self.high[v])
            steps.append((np.abs(slope), self.high[v] - self.low[v] + 1))
        merged = _one_axis(steps, self.n)
        if merged is None or inside & others:
            self.exact = self.exact & False
            return None
        step, count = merged
        low, high = self.bounds[d]
        before = np.maximum(0, -((start - low) // step))
        after = np.minimum(count - 1, (high - start) // step)
        self.active = self.active & (before <= after)
        return start + before * step, after - before + 1, step


def _counts(condition: Compare) -> bool:
    return condition.a.dtype == index


def _one_axis(
    steps: Sequence[tuple[np.ndarray, np.ndarray]], n: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Axes of a lattice that are one together, for all of n: (step, count), else None."""
    step, count = np.ones(n, np.int64), np.ones(n, np.int64)
    ordered = sorted(steps, key=lambda axis: int(axis[0].max(initial=0)))
    for k, (s, c) in enumerate(ordered):
        if k == 0:
            step, count = np.maximum(s, 1), np.where(s == 0, 1, c)
            continue
        fits = (s % step == 0) & (count * step >= s)
        if not np.all(fits | (c == 1)):
            return None
        count = np.where(c == 1, count, count + (c - 1) * (s // step))
    return step, count


_BOUNDS = {  # a OP b, as sign * (a - b) - offset >= 0, all of them
    CompareOp.GE: ((1, 0),),
    CompareOp.GT: ((1, 1),),
    CompareOp.LE: ((-1, 0),),
    CompareOp.LT: ((-1, 1),),
    CompareOp.EQ: ((1, 0), (-1, 0)),
}
_NEGATED = {
    CompareOp.GE: CompareOp.LT,
    CompareOp.GT: CompareOp.LE,
    CompareOp.LE: CompareOp.GT,
    CompareOp.LT: CompareOp.GE,
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
}


def _conjuncts(e: Expr, negated: bool = False) -> Iterator[Expr]:
    """Conditions that hold together where `e` does (or where it does not)."""
    if isinstance(e, Unary) and e.op is UnaryOp.NOT:
        yield from _conjuncts(e.a, not negated)
    elif isinstance(e, Binary) and e.op is (BinaryOp.OR if negated else BinaryOp.AND):
        yield from _conjuncts(e.a, negated)
        yield from _conjuncts(e.b, negated)
    elif isinstance(e, Compare) and negated:
        yield Compare(_NEGATED[e.op], e.a, e.b)
    else:
        yield ~e if negated else e


def _factors_of_loops(atom: Expr, loops: Collection[Var]) -> int:
    """How many loops' variables are factors of a product; 2 where one is in anything else."""
    if isinstance(atom, Var):
        return int(atom in loops)
    if isinstance(atom, Binary) and atom.op is BinaryOp.MUL:
        return _factors_of_loops(atom.a, loops) + _factors_of_loops(atom.b, loops)
    inside = any(v in loops for v in variables(atom))
    reads = any(isinstance(x, Load) for x in atom.walk())
    return 2 * (inside or reads)
