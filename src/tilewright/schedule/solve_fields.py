"""Matching, third step: the values of fields, from the program's subscripts and conditions.

    the instruction                               the program            so
    x[i*step + k]                                 X[2*h + r + t]         step = 2
    x[…] if i*step + k - pad >= 0 else 0          … 2*h + r >= 3 - t     pad = 3 - t, at least 0
    for i in n                                    for h in 8: if h < m   n = min(m, 8)

Values are expressions of the loops around the call. A condition on a read only says which reads are
inside: beyond the least and the greatest place that there is, every bound does the same, and the
nearest is taken (a pad of 0 where nothing lies outside).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analyze.conditions import at_least_zero
from tilewright.analyze.linear import Linear, add, linear, to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Expr,
    Symbol,
    Var,
    as_expr,
    const,
    constant_value,
    maximum,
    minimum,
)
from tilewright.ir.instruction import Instruction
from tilewright.ir.substitute import substitute, variables
from tilewright.schedule.binding import Binding, NestPair, Obstacles, Stage, outside


@dataclass(frozen=True)
class Subscript:
    """An index of the instruction in terms of the program's loops: the coefficient of each loop,
    and the rest, both linear in fields."""

    steps: dict[Var, Linear]
    rest: Linear

    @property
    def moving(self) -> Linear | None:
        """The part that moves with the loops; None if it is not known yet."""
        if any(set(k) - {None} for k in self.steps.values()):
            return None
        return {var: k[None] for var, k in self.steps.items() if k}


class Fields:
    """Finds the values of fields for one assignment of loops to axes.

    `values` are those found, `starts` where loops begin under their conditions, `extents` how many
    iterations they have then, `when` the conditions under which there is anything to do."""

    def __init__(
        self, instruction: Instruction, simplifier: Simplifier, b: Binding, obstacles: Obstacles
    ) -> None:
        self.instruction, self.simplifier = instruction, simplifier
        self.binding, self.obstacles = b, obstacles
        self.values: dict[Symbol, Expr] = dict(b.fields)
        self.starts: dict[Expr, Expr] = {}
        self.extents: dict[Var, Expr] = {}
        self.when: list[Expr] = []
        self.positive: set[Symbol] = set()  # extents that are 1 or more where there is a call
        self._loops = {v: x.var if x is not None else const(0) for v, x in b.loops}
        self._moving = {x.var for _, x in b.loops if x is not None}
        self._symbols = {f.symbol for f in instruction.fields}

    def solve(self) -> bool:
        """Whether all fields that the program says something of have a value."""
        b = self.binding
        return (
            all(self._ranges(nest, k == 0) for k, nest in enumerate(b.nests))
            and all(self._steps(ours, theirs) for _, ours, _, theirs in b.elements)
            and all(self._guard(ours, theirs) for ours, theirs in b.guards)
            and all(self._equal(ours, theirs) for ours, theirs in b.equal)
            and all(self._settle(ours) for _, ours, _, _ in b.elements)
        )

    def no(self, reason: str) -> bool:
        self.obstacles.add(Stage.FIELDS, len(self.values), reason)
        return False

    def bind(self, symbol: Symbol, value: Expr) -> bool:
        known = self.values.setdefault(symbol, value)
        if known == value:
            return True
        return self.no(f"{symbol} would be {known} and {value}")

    # ---------------------------------------------------------- subscripts

    def theirs(self, i: Expr) -> Expr:
        """An index of the program, with loops that count from where they begin."""
        return self.simplifier(substitute(i, self.starts))

    def ours(self, i: Expr) -> Subscript | None:
        """An index of the instruction, with the fields that are known; None if it is not linear in
        its loops."""
        values: dict[Expr, Expr] = {**self._loops, **self.values}
        steps: dict[Var, Linear] = {}
        rest: Linear = {}
        for atom, k in linear(self.simplifier(substitute(i, values))).items():
            inside = variables(atom) & self._moving if atom is not None else set()
            if not inside:
                rest = add(rest, {atom: k})
                continue
            var, factor = _factor(atom, inside)
            if var is None:
                return None
            steps[var] = add(steps.get(var, {}), factor, k)
        return Subscript(steps, rest)

    def split(self, i: Expr) -> tuple[Linear | None, Linear]:
        """An index of the program: (the part that moves with the loops, the rest); None if it is
        not linear in them."""
        moving: Linear = {}
        base: Linear = {}
        for atom, k in self.simplifier.linear(i).items():
            if atom in self._moving:
                moving = add(moving, {atom: k})
            elif atom is not None and variables(atom) & self._moving:
                return None, {}
            else:
                base = add(base, {atom: k})
        return moving, base

    def _steps(self, ours: tuple[Expr, ...], theirs: tuple[Expr, ...]) -> bool:
        """Finds the fields by which an operand's subscripts multiply loops."""
        for i in ours:
            index = self.ours(i)
            if index is None or index.moving is not None:
                continue
            forms = (self.split(self.theirs(x))[0] for x in theirs)
            wanted = next((f for f in forms if f is not None and set(f) == set(index.steps)), None)
            if wanted is not None:
                for var, factor in index.steps.items():
                    if not self._step(factor, wanted[var]):
                        return False
        return True

    def _step(self, factor: Linear, wanted: int) -> bool:
        """factor = wanted, for the one field in it."""
        unknown = [(atom, k) for atom, k in factor.items() if isinstance(atom, Symbol)]
        if len(unknown) != 1 or len(set(factor) - {None}) != 1:
            return True  # what this leaves open, the operands' regions show
        (symbol, k), rest = unknown[0], wanted - factor.get(None, 0)
        if rest % k:
            return self.no(f"{symbol} would have to be {rest} / {k}")
        field = self.instruction.field(symbol.name)
        if not field.admits(rest // k):
            return self.no(outside(field, rest // k))
        return self.bind(symbol, const(rest // k))

    def _settle(self, ours: tuple[Expr, ...]) -> bool:
        """Where an operand begins may be anything: the call says where that is."""
        for i in ours:
            index = self.ours(i)
            for atom in () if index is None else index.rest:
                for x in () if atom is None else atom.walk():
                    if x in self._symbols:
                        assert isinstance(x, Symbol)
                        self.values.setdefault(x, const(self.instruction.field(x.name).low))
        return True

    # ---------------------------------------------------------- ranges of loops

    def _ranges(self, nest: NestPair, outermost: bool) -> bool:
        """What conditions around a nest's block leave of its loops."""
        ends: dict[Var, tuple[list[Expr], list[Expr]]] = {
            x.var: ([const(0)], [as_expr(x.extent)]) for x in nest.loops
        }
        for condition in nest.conditions:
            forms = at_least_zero(condition)
            if forms is None or not all(self._end(e, ends, outermost) for e in forms):
                return self.no(f"the condition {condition} bounds no loop of the instruction's")
        axes = {loop.var: axis for axis, loop in self._pairs(nest)}
        for var, (lows, highs) in ends.items():
            start, end = lows[0], highs[0]
            for low in lows[1:]:
                start = maximum(low, start)
            for high in highs[1:]:
                end = minimum(high, end)
            start = self.simplifier(start)
            if start != const(0):
                self.starts[var] = var + start
            if not self._extent(axes[var].extent, var, self.simplifier(end - start), outermost):
                return False
        return True

    def _pairs(self, nest: NestPair) -> list:
        loops = dict(self.binding.loops)
        return [(axis, loops[axis.var]) for axis in nest.axes if loops[axis.var] is not None]

    def _end(
        self, e: Expr, ends: dict[Var, tuple[list[Expr], list[Expr]]], outermost: bool
    ) -> bool:
        """Takes e >= 0 as a bound of one loop, or as a condition on the whole call."""
        moving, base = self.split(e)
        if moving is None or len(moving) > 1 or not set(moving) <= set(ends):
            return False
        if not moving:
            self.when.append(self.simplifier(e >= 0))
            return self._alone(outermost)
        ((var, k),) = moving.items()
        if k > 0:  # var >= -base / k, rounded up
            ends[var][0].append(self.simplifier(const(0) - to_expr(base) // k))
        else:
            ends[var][1].append(self.simplifier(to_expr(base) // -k + 1))
        return True

    def _alone(self, outermost: bool) -> bool:
        """Whether a nest is all that the instruction does: where it does nothing there is no
        call."""
        return outermost and len(self.instruction.body) == 1

    def _extent(self, wanted: object, var: Var, found: Expr, outermost: bool) -> bool:
        """Binds how often a loop runs."""
        self.extents[var] = found
        if isinstance(wanted, int):
            same = constant_value(found) == wanted
            return same or self.no(f"loop {var} runs {found} times, not {wanted}")
        assert isinstance(wanted, Symbol)
        field = self.instruction.field(wanted.name)
        low, _ = self.simplifier.bounds(found)
        if (low is None or low < max(field.low, 0)) and field.low <= 1 and self._alone(outermost):
            self.when.append(self.simplifier(found >= 1))
            self.positive.add(wanted)
        return self.bind(wanted, found)

    # ---------------------------------------------------------- conditions on reads

    def _guard(self, ours: Expr, theirs: Expr | None) -> bool:
        """Makes the instruction's condition hold where the program's does."""
        mine = at_least_zero(ours)
        given = [] if theirs is None else at_least_zero(theirs)
        if mine is None or given is None:
            return self.no(f"the condition {theirs} is not {ours}")
        known = self._by_moving(given)
        if known is None:
            return self.no(f"the condition {theirs} is not linear in the loops")
        todo = mine
        while todo:
            ready = next((e for e in todo if len(self._unknown(e)) <= 1), None)
            if ready is None:
                return self.no(f"{ours} does not say what each field in it is")
            todo = [e for e in todo if e is not ready]
            if not self._inequality(ready, known):
                return False
        for moving, base in known.items():
            if not self.simplifier.proves(to_expr(add(dict(moving), self._linear(base))) >= 0):
                what = f"{theirs}, which {self.instruction} cannot"
                return self.no(f"the program reads only where {what}")
        return True

    def _by_moving(self, given: list[Expr]) -> dict[tuple, Expr] | None:
        """The program's bounds: what is constant in the loops, by what moves."""
        found: dict[tuple, Expr] = {}
        for e in given:
            moving, base = self.split(self.theirs(e))
            if moving is None:
                return None
            key = _key(moving)
            found[key] = minimum(found[key], to_expr(base)) if key in found else to_expr(base)
        return found

    def _unknown(self, e: Expr) -> set[Symbol]:
        form = self.ours(e)
        atoms = set() if form is None else set(form.rest)
        return {x for a in atoms if a is not None for x in a.walk() if x in self._symbols}  # type: ignore[misc]

    def _inequality(self, e: Expr, known: dict[tuple, Expr]) -> bool:
        """P + ours >= 0 and P + theirs >= 0 are the same for all iterations if `ours` is `theirs`,
        brought between the least value that is never enough and the one that always is."""
        form = self.ours(e)
        moving = None if form is None else form.moving
        if form is None or moving is None:
            return self.no(f"{e} >= 0 is not linear in the loops of {self.instruction}")
        least, most = self._extremes(moving)
        never, always = const(-1) - most, const(0) - least
        theirs = known.pop(_key(moving), None)
        unknown = [(x, k) for x, k in form.rest.items() if x in self._symbols]
        if not unknown:
            here = self._between(never, to_expr(form.rest), always)
            there = always if theirs is None else self._between(never, theirs, always)
            same = self.simplifier(here) == self.simplifier(there)
            return same or self.no(f"{self.instruction} reads only where {e} >= 0, the program not")
        ((symbol, k),) = unknown
        if abs(k) != 1 or self._unknown(e) != {symbol}:
            return self.no(f"{symbol} cannot be found from {e} >= 0")
        rest = {x: n for x, n in form.rest.items() if x is not symbol}
        offset, fixed = const(rest.pop(None, 0)), to_expr(rest)
        ends = [x if x is None else x - offset for x in (never, theirs, always)]
        if k < 0:
            ends = [x if x is None else const(0) - x for x in ends[::-1]]
            fixed = const(0) - fixed
        low, value, high = (x if x is None else self.simplifier(x) for x in ends)
        if value is None:
            value = high if k > 0 else low
        else:
            value = self._between(low, value, high)
        return self.bind(symbol, self.simplifier(value - fixed))

    def _between(self, low: Expr, value: Expr, high: Expr) -> Expr:
        return self.simplifier(minimum(self.simplifier(maximum(value, low)), high))

    def _extremes(self, moving: Linear) -> tuple[Expr, Expr]:
        """The least and the greatest value of a linear form of the loops."""
        least, most = const(0), const(0)
        for var, k in moving.items():
            assert isinstance(var, Var)
            far = (self.extents[var] - 1) * k
            least, most = (least, most + far) if k > 0 else (least + far, most)
        return self.simplifier(least), self.simplifier(most)

    # ---------------------------------------------------------- indices as values

    def _equal(self, ours: Expr, theirs: Expr) -> bool:
        form = self.ours(ours)
        moving, base = self.split(self.theirs(theirs))
        if form is None or form.moving is None or form.moving != moving:
            return self.no(f"the program has the index {theirs}, the instruction {ours}")
        rest = add(base, form.rest, -1)
        unknown = [(x, k) for x, k in form.rest.items() if x in self._symbols]
        if len(unknown) == 1 and abs(unknown[0][1]) == 1:
            ((symbol, k),) = unknown
            assert isinstance(symbol, Symbol)
            return self.bind(symbol, self.simplifier(to_expr(add(rest, {symbol: k})) * k))
        if self.simplifier(to_expr(rest)) == const(0):
            return True
        return self.no(f"the program has the index {theirs}, the instruction {ours}")

    def _linear(self, e: Expr) -> Linear:
        return self.simplifier.linear(e)


def _key(moving: Linear) -> tuple:
    return tuple(sorted(moving.items(), key=str))


def _factor(atom: Expr, inside: set[Var]) -> tuple[Var | None, Linear]:
    """(the loop, what it is multiplied by) of a product of one loop and other things; (None, …) for
    what is not linear in the loops."""
    if isinstance(atom, Var):
        return atom, {None: 1}
    if isinstance(atom, Binary) and atom.op is BinaryOp.MUL and len(inside) == 1:
        (var,) = inside
        for side, other in ((atom.a, atom.b), (atom.b, atom.a)):
            if side == var and var not in variables(other):
                return var, {other: 1}
    return None, {}
