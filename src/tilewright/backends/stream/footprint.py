"""Which elements of its operand an access of an instruction touches, for many values of its fields
at once: the image of a box of iterations.

Conditions on fields decide whether an access happens; those on loops bound its iterations:
`0 <= 2 * y + r - pad` masks the padding, so that only window rows inside the input are read, and
only outputs that such a row contributes to. Other conditions are ignored, and the footprint is then
not exact: larger than what is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
class StridedAxis:
    """`count` [n] steps; each adds `strides[d]` [n] to subscript d."""

    count: np.ndarray
    strides: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Footprint:
    """What an access touches with each of n sets of values of the fields: the element at the
    subscripts `first`, and from there along all `axes`. `active` [n] where it happens at all;
    `exact` [n] where every element is touched for certain."""

    active: np.ndarray
    exact: np.ndarray
    first: tuple[np.ndarray, ...]
    axes: tuple[StridedAxis, ...]


def footprint(access: Access, fields: Env, n: int) -> Footprint:
    """The footprint of an access; `fields` gives columns [n] of values."""
    return _Reader(access, fields, n).read()


@dataclass(eq=False)
class _Form:
    """A linear form of several loops that conditions keep between two bounds."""

    value: Expr
    low: np.ndarray
    high: np.ndarray


class _Reader:
    """Reads one access. Every number is a column [n]."""

    def __init__(self, access: Access, fields: Env, n: int) -> None:
        self.access, self.n = access, n
        self.indices = access.indices
        self.loops = {loop.var: loop for loop in access.loops}
        self.origin: Env = {**fields, **dict.fromkeys(self.loops, 0)}
        self.active = np.ones(n, bool)
        self.exact = np.ones(n, bool)
        self.low = {v: self.column(0) for v in self.loops}
        self.high: dict[Var, np.ndarray] = {}
        for v in self.loops:
            self.high[v] = self.extent(v) - 1
        self.plain = [self.is_linear(i) for i in self.indices]
        self.forms = [self.form(i) for i in self.indices]  # and others that conditions bound
        self.pending: list[Expr] = []  # conditions e >= 0 on several loops
        self.relaxed: set[Var] = set()

    def column(self, e: Dim, at: Env | None = None) -> np.ndarray:
        value = evaluate_expr(as_expr(e), {**self.origin, **(at or {})}, {})
        return np.broadcast_to(value, (self.n,))

    def form(self, e: Expr) -> _Form:
        return _Form(e, self.column(-ENDLESS), self.column(ENDLESS))

    def extent(self, v: Var) -> np.ndarray:
        """Of a loop; the greatest one where it depends on loops around it."""
        extent = self.loops[v].extent
        around = variables(extent)
        if not around:
            return self.column(extent)
        self.exact = self.exact & False
        ends = {u: self.high[u] for u in around}
        return np.asarray(np.maximum(self.column(extent), self.column(extent, ends)))

    def slope(self, e: Expr, v: Var) -> np.ndarray:
        """Returns how much `e` grows with one iteration of `v`."""
        return np.asarray(self.column(e, {v: 1}) - self.column(e))

    def is_linear(self, e: Expr) -> bool:
        """Whether `e` is a sum of loops' variables, each times something of the fields."""
        return all(
            atom is None or _factors_of_loops(atom, self.loops.keys()) <= 1 for atom in linear(e)
        )

    def depends_on_loops(self, e: Expr) -> bool:
        return any(
            atom is not None and _factors_of_loops(atom, self.loops.keys()) for atom in linear(e)
        )

    def loops_in(self, e: Expr) -> set[Var]:
        """The loops that `e` depends on."""
        return {v for v in variables(e) if v in self.loops}

    def read(self) -> Footprint:
        for condition in self.access.conditions:
            for part in _conjuncts(condition):
                self.restrict(part)
        for e in self.pending:
            self.bound(e)
        for form in self.forms[len(self.indices) :]:
            self.relax(form)
        first, axes = self.places()
        for v in self.loops:
            self.active = self.active & (self.low[v] <= self.high[v])
        return Footprint(self.active, self.exact, first, axes)

    def places(self) -> tuple[tuple[np.ndarray, ...], tuple[StridedAxis, ...]]:
        """Returns the first subscripts, and the axes along which they go on."""
        first = [
            self.column(i if ok else 0) for i, ok in zip(self.indices, self.plain, strict=True)
        ]
        axes: list[StridedAxis] = []
        for d, ok in enumerate(self.plain):
            if not ok:  # any element along this axis
                self.exact = self.exact & False
                axes.append(self.axis(self.column(self.access.buffer.shape[d]), {d: 1}))
        straight = [d for d, ok in enumerate(self.plain) if ok]
        used = {v for d in straight for v in self.loops_in(self.indices[d])}
        for d in straight:
            cut = self.cut(d) if self.is_bounded(d) else None
            if cut is not None:
                first[d], count, step = cut
                axes.append(self.axis(count, {d: step}))
                used -= self.loops_in(self.indices[d])
        for v in sorted(used, key=lambda v: v.name):
            slopes = {d: self.slope(self.indices[d], v) for d in straight}
            for d, slope in slopes.items():
                first[d] = first[d] + slope * self.low[v]
            axes.append(self.axis(self.high[v] - self.low[v] + 1, slopes))
        return tuple(first), tuple(axes)

    def axis(self, count: np.ndarray, strides: Mapping[int, np.ndarray | int]) -> StridedAxis:
        zero = self.column(0)
        return StridedAxis(count, tuple(zero + strides.get(d, 0) for d in range(len(self.indices))))

    # ---------------------------------------------------------- conditions

    def restrict(self, condition: Expr) -> None:
        """Takes one condition into account, or leaves it for later if it is on several loops."""
        loops = self.loops_in(condition)
        if any(isinstance(x, Load) for x in condition.walk()):
            self.exact = self.exact & False
        elif not loops:
            self.active = self.active & self.column(condition)
        elif (
            isinstance(condition, Compare)
            and condition.op in _BOUNDS
            and _compares_indices(condition)
        ):
            for sign, offset in _BOUNDS[condition.op]:
                form = condition.b - condition.a if sign < 0 else condition.a - condition.b
                e = form - offset
                if not self.is_linear(e):
                    self.exact = self.exact & False
                elif len(loops) == 1:
                    (v,) = loops
                    self.clip(v, self.slope(e, v), self.column(e))
                else:
                    self.pending.append(e)
        else:
            self.exact = self.exact & False

    def clip(self, v: Var, slope: np.ndarray, base: np.ndarray) -> None:
        """Takes slope * v + base >= 0 into account."""
        steep = np.maximum(np.abs(slope), 1)
        low = np.where(slope > 0, -(base // steep), -ENDLESS)
        high = np.where(slope < 0, base // steep, ENDLESS)
        self.low[v] = np.maximum(self.low[v], low)
        self.high[v] = np.minimum(self.high[v], high)
        self.active = self.active & ((slope != 0) | (base >= 0))

    def bound(self, e: Expr) -> None:
        """Applies e >= 0 as a bound on a known form that differs from e or -e by what no loop
        changes; else records a new form."""
        for form in self.forms:
            if not self.depends_on_loops(e - form.value):
                form.low = np.maximum(form.low, -self.column(e - form.value))
                return
            if not self.depends_on_loops(e + form.value):
                form.high = np.minimum(form.high, self.column(e + form.value))
                return
        self.forms.append(self.form(e))
        self.forms[-1].low = self.column(0)

    def relax(self, form: _Form) -> None:
        """Applies bounds on a linear form that is no subscript: loops in no subscript are
        eliminated, which relaxes the bound for the others."""
        choosing = {v for i in self.indices for v in self.loops_in(i)}
        loops = self.loops_in(form.value)
        free, rest = loops - choosing, loops & choosing
        slopes = {v: self.slope(form.value, v) for v in loops}
        merged = _one_axis(
            [(np.abs(slopes[v]), self.high[v] - self.low[v] + 1) for v in free], self.n
        )
        if len(rest) > 1 or free & self.relaxed:
            self.exact = self.exact & False
            return
        self.relaxed |= free
        self.exact = self.exact & merged[2] & (form.high - form.low + 1 >= merged[0])
        least = most = self.column(form.value)
        for v in free:
            ends = slopes[v] * self.low[v], slopes[v] * self.high[v]
            least, most = least + np.minimum(*ends), most + np.maximum(*ends)
        above, below = most - form.low, form.high - least
        if rest:
            (v,) = rest
            self.clip(v, slopes[v], above)
            self.clip(v, -slopes[v], below)
        else:
            self.active = self.active & (above >= 0) & (below >= 0)

    def is_bounded(self, d: int) -> bool:
        form = self.forms[d]
        return bool(np.any((form.low > -ENDLESS) | (form.high < ENDLESS)))

    def cut(self, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Returns the values of subscript d within its bounds: the first, their count, and their
        stride. None, and the footprint is inexact, if other subscripts depend on its loops too."""
        index, loops = self.indices[d], self.loops_in(self.indices[d])
        others = {v for k, i in enumerate(self.indices) if k != d for v in self.loops_in(i)}
        start = self.column(index)
        steps = []
        for v in loops:
            slope = self.slope(index, v)
            start = start + slope * np.where(slope >= 0, self.low[v], self.high[v])
            steps.append((np.abs(slope), self.high[v] - self.low[v] + 1))
        if loops & others:
            self.exact = self.exact & False
            return None
        step, count, exact = _one_axis(steps, self.n)
        self.exact = self.exact & exact
        form = self.forms[d]
        before = np.maximum(0, -((start - form.low) // step))
        after = np.minimum(count - 1, (form.high - start) // step)
        self.active = self.active & (before <= after)
        return start + before * step, after - before + 1, step


def _compares_indices(condition: Compare) -> bool:
    return condition.a.dtype == index


def _one_axis(
    steps: Sequence[tuple[np.ndarray, np.ndarray]], n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Axes (step, count) of a lattice as one: its step, its count, and where that is exact.
    Elsewhere it has every place from the first to the last."""
    step, count, span = np.ones(n, np.int64), np.ones(n, np.int64), np.zeros(n, np.int64)
    exact = np.ones(n, bool)
    for s, c in sorted(steps, key=lambda axis: int(axis[0].max(initial=0))):
        span = span + s * (c - 1)
        alone, moves = count == 1, (c > 1) & (s > 0)
        fits = (s % step == 0) & (count * step >= s)
        exact &= fits | alone | ~moves
        longer = np.where(alone, c, count + (c - 1) * (s // step))
        step, count = np.where(alone & moves, s, step), np.where(moves, longer, count)
    return np.where(exact, step, 1), np.where(exact, count, span + 1), exact


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
