"""An instruction's fields while it is matched: from how often loops run and how subscripts step."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.analyze.conditions import at_least_zero
from tilewright.analyze.extremes import least, most
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
)
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import For
from tilewright.ir.substitute import Values, substitute, variables
from tilewright.schedule.match.binding import Binding, MatchStage, NestPair, Obstacles, outside

Moving = dict[Var, int]  # the part of a linear form that moves with loops: their coefficients


@dataclass(frozen=True)
class Subscript:
    """An index of the instruction in terms of the program's loops: the coefficient of each loop,
    and the rest, both linear in fields."""

    steps: dict[Var, Linear]
    rest: Linear

    @property
    def moving(self) -> Moving | None:
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
        self.causes: dict[Symbol, set[Var]] = {}  # loops whose extents a field's value follows from
        self._loops = {v: x.var if x is not None else const(0) for v, x in b.loops}
        self._moving = {x.var for _, x in b.loops if x is not None}
        self._symbols = {f.symbol for f in instruction.fields}
        self._subscripts: dict[Expr, tuple[int, Subscript | None]] = {}  # with the values then

    def no(self, reason: str, culprits: Iterable[Var] = ()) -> bool:
        self.obstacles.add(MatchStage.FIELDS, len(self.values), reason, frozenset(culprits))
        return False

    def bind(self, symbol: Symbol, value: Expr, causes: Iterable[Var] = ()) -> bool:
        """Gives a field a value, which follows from how often some loops run."""
        known = self.values.setdefault(symbol, value)
        if known == value:
            self.causes.setdefault(symbol, set()).update(causes)
            return True
        causes = {*causes, *self.causes.get(symbol, ())}
        return self.no(f"{symbol} would be {known} and {value}", causes)

    def field(self, atom: object) -> Symbol | None:
        """A field without a value."""
        return atom if isinstance(atom, Symbol) and atom in self._symbols else None

    def unknown(self, form: Linear) -> set[Symbol]:
        """The fields in a linear form that have no value."""
        parts = (x for atom in form if atom is not None for x in atom.walk())
        return {x for x in parts if isinstance(x, Symbol) and x in self._symbols}

    # ---------------------------------------------------------- subscripts

    def theirs(self, i: Expr) -> Expr:
        """An index of the program, with loops that count from where they begin."""
        return self.simplifier(substitute(i, self.starts))

    def ours(self, i: Expr) -> Subscript | None:
        """An index of the instruction, with the fields that are known; None if it is not linear in
        its loops."""
        known = self._subscripts.get(i)
        if known is None or known[0] != len(self.values):
            known = self._subscripts[i] = len(self.values), self._ours(i)
        return known[1]

    def _ours(self, i: Expr) -> Subscript | None:
        values: Values = {**self._loops, **self.values}
        steps: dict[Var, Linear] = {}
        rest: Linear = {}
        for atom, k in linear(self.simplifier(substitute(i, values))).items():
            inside = variables(atom) & self._moving if atom is not None else frozenset()
            if atom is None or not inside:
                rest = add(rest, {atom: k})
                continue
            var, factor = _factor(atom, inside)
            if var is None:
                return None
            steps[var] = add(steps.get(var, {}), factor, k)
        return Subscript(steps, rest)

    def split(self, i: Expr) -> tuple[Moving | None, Linear]:
        """An index of the program: (the part that moves with the loops, the rest); None if it is
        not linear in them."""
        moving: Moving = {}
        base: Linear = {}
        for atom, k in self.simplifier.linear(i).items():
            if isinstance(atom, Var) and atom in self._moving:
                moving[atom] = k
            elif atom is not None and variables(atom) & self._moving:
                return None, {}
            else:
                base = add(base, {atom: k})
        return moving, base

    def steps(self, ours: tuple[Expr, ...], theirs: tuple[Expr, ...]) -> bool:
        """Finds the fields by which an operand's subscripts multiply loops."""
        for i in ours:
            index = self.ours(i)
            if index is None or index.moving is not None:
                continue
            forms = (self.split(self.theirs(x))[0] for x in theirs)
            wanted = next((f for f in forms if f is not None and set(f) == set(index.steps)), None)
            if wanted is not None:
                for var, factor in index.steps.items():
                    if not self._step(var, factor, wanted[var]):
                        return False
        return True

    def _step(self, var: Var, factor: Linear, wanted: int) -> bool:
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

    def settle(self) -> None:
        """Where an operand begins may be anything: the call says where that is."""
        for i in (i for _, ours, _, _ in self.binding.elements for i in ours):
            index = self.ours(i)
            for symbol in set() if index is None else self.unknown(index.rest):
                self.values[symbol] = const(self.instruction.field(symbol.name).low)

    def value(self, f: Field) -> Expr:
        """A field's value; of one that may be anything the least within the limits."""
        if f.symbol not in self.values:
            known = dict(self.values)
            forms = [
                self.simplifier.linear(substitute(e, known))
                for limit in self.instruction.limits
                for e in at_least_zero(limit) or ()
            ]
            ends: list[Expr] = [const(f.low)]
            for form in forms:
                rest = {x: k for x, k in form.items() if x != f.symbol}
                if form.get(f.symbol) == 1 and not self.unknown(rest):
                    ends.append(const(0) - to_expr(rest))
            self.values[f.symbol] = most(self.simplifier, ends)
        return self.values[f.symbol]

    # ---------------------------------------------------------- ranges of loops

    def ranges(self, nest: NestPair, outermost: bool) -> bool:
        """What conditions around a nest's block leave of its loops."""
        ends: dict[Var, tuple[list[Expr], list[Expr]]] = {
            x.var: ([const(0)], [as_expr(x.extent)]) for x in nest.loops
        }
        for condition in nest.conditions:
            forms = at_least_zero(condition)
            whole = not variables(condition) & self._moving
            if whole and self._alone(outermost):
                self.when.append(condition)
            elif whole or forms is None or not all(self._end(e, ends) for e in forms):
                return self.no(f"the condition {condition} bounds no loop of the instruction's")
        axes = {loop.var: axis for axis, loop in self._pairs(nest)}
        for var, (lows, highs) in ends.items():
            start, end = most(self.simplifier, lows), least(self.simplifier, highs)
            if start != const(0):
                self.starts[var] = var + start
            if not self._extent(axes[var].extent, var, self.simplifier(end - start), outermost):
                return False
        return True

    def _pairs(self, nest: NestPair) -> list[tuple[For, For]]:
        loops = dict(self.binding.loops)
        pairs = ((axis, loops[axis.var]) for axis in nest.axes)
        return [(axis, loop) for axis, loop in pairs if loop is not None]

    def _end(self, e: Expr, ends: dict[Var, tuple[list[Expr], list[Expr]]]) -> bool:
        """Takes e >= 0 as a bound of one loop."""
        moving, base = self.split(e)
        if moving is None or len(moving) != 1 or not set(moving) <= set(ends):
            return False
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
            return same or self.no(f"loop {var} runs {found} times, not {wanted}", [var])
        assert isinstance(wanted, Symbol)
        field = self.instruction.field(wanted.name)
        low, _ = self.simplifier.bounds(found)
        if (low is None or low < max(field.low, 0)) and field.low <= 1 and self._alone(outermost):
            self.when.append(self.simplifier(found >= 1))
            self.positive.add(wanted)
        return self.bind(wanted, found, [var])

    # ---------------------------------------------------------- indices as values

    def equal(self, ours: Expr, theirs: Expr) -> bool:
        form = self.ours(ours)
        moving, base = self.split(self.theirs(theirs))
        if form is None or form.moving is None or form.moving != moving:
            return self.no(f"the program has the index {theirs}, the instruction {ours}")
        rest = add(base, form.rest, -1)
        unknown = [x for x in map(self.field, form.rest) if x is not None]
        if len(unknown) == 1 and abs(form.rest[unknown[0]]) == 1:
            (symbol,) = unknown
            k = form.rest[symbol]
            return self.bind(symbol, self.simplifier(to_expr(add(rest, {symbol: k})) * k))
        if self.simplifier(to_expr(rest)) == const(0):
            return True
        return self.no(f"the program has the index {theirs}, the instruction {ours}")


def _factor(atom: Expr, inside: frozenset[Var]) -> tuple[Var | None, Linear]:
    """(the loop, what it is multiplied by) of a product of one loop and other things; (None, …) for
    what is not linear in the loops."""
    if len(inside) > 1:
        return None, {}
    (var,) = inside
    others = _factors(atom)
    if var in others:
        others.remove(var)
    else:
        return None, {}
    if any(var in variables(x) for x in others):
        return None, {}
    return var, linear(functools.reduce(operator.mul, others, const(1)))


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op is BinaryOp.MUL:
        return [*_factors(e.a), *_factors(e.b)]
    return [e]
