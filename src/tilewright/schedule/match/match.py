"""Matching a piece of program with an instruction's meaning.

Statements and values are paired (unify.py), the instruction's axes get loops (assign_axes.py), its
fields values (solve_fields.py). Then every operand must turn out to be a region: each of its axes
moves along one subscript of the buffer, as far in memory as the operand says.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator

from tilewright.analyze.accesses import accesses
from tilewright.analyze.dependence import Path, meeting, violation
from tilewright.analyze.linear import add, step_along, to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import (
    DRAM,
    Buffer,
    Expr,
    Symbol,
    Var,
    all_of,
    as_expr,
    const,
    constant_value,
)
from tilewright.ir.instruction import Field, Instruction, Region, axis
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    If,
    Stmt,
    Store,
    buffers_written,
    symbols,
    walk_statements,
)
from tilewright.ir.substitute import substitute, variables
from tilewright.schedule.match.assign_axes import Assigner
from tilewright.schedule.match.binding import Binding, MatchStage, outside
from tilewright.schedule.match.fields import Fields, Subscript
from tilewright.schedule.match.solve_fields import solve_fields
from tilewright.schedule.match.unify import Unifier


class Matcher(Unifier):
    """One attempt; `obstacles` is why it failed."""

    def __init__(self, instruction: Instruction, simplifier: Simplifier) -> None:
        super().__init__(instruction, simplifier)
        self.assigner = Assigner(instruction, self.obstacles)
        self._written = buffers_written(instruction.body)
        self._fitted = 0  # operands whose regions are found

    def calls(self, block: Block) -> Iterator[Stmt]:
        """Every way to write `block` as one call of the instruction, if need be under a condition.
        An operand that it leaves out is an element of a buffer of its own (unused_buffers)."""
        own = {s.buffer for s in walk_statements(block) if isinstance(s, Alloc)}
        shared = {x for s in block for x in symbols(s)} & self._symbols
        if shared:
            names = ", ".join(sorted(x.name for x in shared))
            self.no(
                MatchStage.VALUES, Binding(), f"the program has a size of a field's name: {names}"
            )
            return
        for structure in self.structures(block):
            for b in self.assigner.assign(structure):
                call = self._call(b, own)
                if call is not None:
                    yield call

    # ---------------------------------------------------------- the call

    def _call(self, b: Binding, own: set[Buffer]) -> Stmt | None:
        """The call that a complete binding stands for; None if an operand is no region."""
        solved = solve_fields(self.instruction, self.simplifier, b, self.obstacles)
        if solved is None:
            return None
        regions: dict[Buffer, Region] = {}
        for operand, ours, buffer, theirs in b.elements:
            self._fitted = len(regions)
            region = self._region(operand, ours, buffer, theirs, solved)
            if region is None:
                return None
            if regions.setdefault(operand, region) != region:
                self._apart(f"{_what(self, operand)} would be in two places")
                return None
            if operand in self._operands and buffer in own:
                self._apart(f"{buffer.name} is gone behind the call")
                return None
        values = []
        for f in self.instruction.fields:
            value = solved.value(f)
            if not self._admitted(f, value, solved):
                return None
            values.append(value)
        if not self._within_limits(solved) or self._overlaps(b, regions):
            return None
        if not all(self._may_permute(b, k) for k in range(len(b.nests))):
            return None
        ordered = tuple(regions.get(o) or _unused(o) for o in self.instruction.operands)
        call = Call(self.instruction, ordered, tuple(values))
        return If(self.simplifier(all_of(*solved.when)), (call,)) if solved.when else call

    def _admitted(self, f: Field, value: Expr, solved: Fields) -> bool:
        """Whether a field can have a value, whatever the loops around the call do."""
        inside = variables(value) & {x.var for _, x in solved.binding.loops if x is not None}
        low, high = self.simplifier.bounds(value)
        if f.symbol in solved.positive and low is not None:
            low = max(low, 1)
        within = low is not None and high is not None and f.low <= low and high <= f.high
        whole = f.multiple == 1 or self.simplifier(value % f.multiple) == const(0)
        if inside:
            reason = f"{f.name} would be {value}, which changes within the call"
        elif within and whole:
            return True
        else:
            reason = outside(f, value)
        causes = frozenset(solved.causes.get(f.symbol, ()))
        self.obstacles.add(MatchStage.LIMITS, 0, reason, causes)
        return False

    def _within_limits(self, solved: Fields) -> bool:
        """Whether the instruction's limits hold for the fields' values."""
        for limit in (*self.instruction.limits, *solved.binding.limits):
            if not self.simplifier.proves(substitute(limit, dict(solved.values))):
                used = [x for x in symbols(limit) if x in solved.values]
                values = ", ".join(f"{x} is {solved.values[x]}" for x in used)
                causes = frozenset(v for x in used for v in solved.causes.get(x, ()))
                reason = f"the limit {limit} does not hold: {values}"
                self.obstacles.add(MatchStage.LIMITS, 1, reason, causes)
                return False
        return True

    def _overlaps(self, b: Binding, regions: dict[Buffer, Region]) -> bool:
        """Whether what the instruction writes is something else that it reads: an instruction reads
        before it writes, a loop as it goes. The very same elements may be both, and others of the
        same buffer that it never writes may be read."""
        places: dict[Buffer, set[tuple[Expr, ...]]] = {}
        for operand, ours, _, _ in b.elements:
            places.setdefault(operand, set()).add(ours)
        for one in self._written & set(regions):
            for other in set(regions) - {one}:
                if regions[one].buffer != regions[other].buffer:
                    continue
                same = regions[one] == regions[other] and places[one] == places[other]
                if not same and not self._disjoint(b, one, other):
                    self._apart(f"operands {one.name} and {other.name} would overlap")
                    return True
        return False

    def _disjoint(self, b: Binding, one: Buffer, other: Buffer) -> bool:
        """Whether two operands of an instruction of one nest are never the same element."""
        if len(b.nests) > 1:
            return False
        theirs = {x: [i for operand, _, _, i in b.elements if operand == x] for x in (one, other)}
        buffer = next(held for operand, _, held, _ in b.elements if operand == one)
        body: Block = tuple(
            Store(buffer, at, const(0, buffer.dtype)) for x in (one, other) for at in theirs[x]
        )
        for loop in reversed(b.nests[0].loops):
            body = (loop.with_(body=body),)
        found = [a for a in accesses(body) if a.writes]  # subscripts may read
        count = len(theirs[one])
        pairs = itertools.product(found[:count], found[count:])
        return all(meeting(*pair, self.simplifier) is None for pair in pairs)

    def _may_permute(self, b: Binding, k: int) -> bool:
        """Whether a nest may run in the order of the instruction's axes."""
        nest, chosen = b.nests[k], dict(b.loops)
        order = [x for x in (chosen[axis.var] for axis in nest.axes) if x is not None]
        place = {loop.var: i for i, loop in enumerate(order)}
        moved = [a.var for a, b in zip(nest.loops, order, strict=True) if a is not b]
        if not moved:
            return True

        def permuted(path: Path) -> Path:
            ours = [x for x in path if isinstance(x, For) and x.var in place]
            new = iter(sorted(ours, key=lambda x: place[x.var]))
            return tuple(next(new) if x in ours else x for x in path)

        pair = violation((nest.loops[0],), moved, permuted, self.simplifier)
        if pair is not None:
            self.obstacles.add(
                MatchStage.LIMITS, 2, f"the order of the loops matters: {pair}", frozenset()
            )
        return pair is None

    # ---------------------------------------------------------- regions

    def _region(
        self,
        operand: Buffer,
        ours: tuple[Expr, ...],
        buffer: Buffer,
        theirs: tuple[Expr, ...],
        solved: Fields,
    ) -> Region | None:
        """The elements that an operand, or a buffer of the instruction's own, stands for."""
        mine = _what(self, operand)
        if operand.dtype != buffer.dtype:
            self._apart(f"{mine} is {operand.dtype}, {buffer.name} {buffer.dtype}")
            return None
        in_place = operand not in self._operands or operand.memory in ("", buffer.memory)
        if not in_place:
            where = f"{buffer.name} is in {buffer.memory}"
            self._apart(f"{mine} must be in {operand.memory}, and {where}")
            return None
        wanted = [solved.ours(i) for i in ours]
        theirs = tuple(solved.theirs(i) for i in theirs)
        along = self._axes_of(operand, wanted, theirs)
        theirs = tuple(self.simplifier(substitute(i, along)) for i in theirs)
        indices = []
        used = {d for d, w in enumerate(wanted) if w is not None and set(w.steps) & set(along)}
        for i in theirs:
            moving, base = solved.split(i)
            if moving is None:
                self._apart(f"{buffer.name} is not indexed linearly: {i}", variables(i))
                return None
            if not moving:
                indices.append(to_expr(base))
                continue
            same = next(
                (
                    (d, w.rest)
                    for d, w in enumerate(wanted)
                    if d not in used and w is not None and w.moving == moving
                ),
                None,
            )
            if same is None:
                self._apart(f"subscript {i} of {buffer.name} moves otherwise than {mine}")
                return None
            d, rest = same
            used.add(d)
            start = to_expr(add(base, rest, -1))
            indices.append(self.simplifier(start + axis(d)))
        left = [d for d, w in enumerate(wanted) if (w is None or w.steps) and d not in used]
        if left and not all(self._may_stay(operand, d, solved.values) for d in left):
            self._apart(f"{mine} moves along an axis where {buffer.name} does not")
            return None
        region = Region(buffer, tuple(indices))
        if operand in self._operands and not self._strides_fit(operand, region, used, solved):
            return None
        return region

    def _apart(self, reason: str, culprits: Iterable[Var] | None = ()) -> None:
        loops = None if culprits is None else frozenset(culprits)
        self.obstacles.add(MatchStage.MEMORY, self._fitted, reason, loops)

    def _axes_of(
        self, operand: Buffer, wanted: list[Subscript | None], theirs: tuple[Expr, ...]
    ) -> dict[Expr, Expr]:
        """The operand's axes that are loops of the program, by those loops: it may move along
        several subscripts, as long as its steps in memory are what they have to be."""
        moving = set().union(*map(variables, theirs))
        found: dict[Expr, Expr] = {}
        several = Counter(v for w in wanted if w is not None for v in w.steps)
        for d, moves in enumerate(wanted if operand in self._operands else ()):
            if moves is not None and list((moves.moving or {}).values()) == [1]:
                start = self.simplifier(axis(d) - to_expr(moves.rest))
                found |= {v: start for v in moves.steps if v in moving and several[v] == 1}
        return found

    def _may_stay(self, operand: Buffer, d: int, fields: dict[Symbol, Expr]) -> bool:
        """Whether an operand can be the same all along an axis: its step is then 0, or a list has
        the same place again and again."""
        if self.instruction.listed(operand) == d:
            return True
        carrier = self.instruction.carrier(operand, d)
        if carrier is None or not carrier.admits(0):
            return False
        return fields.setdefault(carrier.symbol, const(0)) == const(0)

    def _strides_fit(self, operand: Buffer, region: Region, axes: set[int], solved: Fields) -> bool:
        """Whether a step along each axis is as far in memory as the instruction takes it to be;
        where a field carries the stride, its value."""
        position = self.simplifier.position(region.indices, region.buffer.shape)
        for d in sorted(axes - {self.instruction.listed(operand)}, reverse=True):
            step = step_along(position, axis(d))
            if step is None:
                what = f"the steps of operand {operand.name} in {region} are not fixed"
                self._apart(what, culprits=None)
                return False
            carrier = self.instruction.carrier(operand, d)
            if carrier is not None:
                known = solved.values.get(carrier.symbol, const(step))
                if not carrier.admits(step):
                    what = f"the step of operand {operand.name}"
                    self._apart(f"{outside(carrier, step)} ({what})")
                    return False
                if known != const(step):
                    self._apart(f"{carrier.name} would be {known} and {step}")
                    return False
                solved.values[carrier.symbol] = known
                continue
            wanted = self._contiguous(operand, d, step, solved)
            if wanted != const(step):
                what = f"a step along axis {d} of operand {operand.name} is {wanted} in memory"
                self._apart(f"{what}, and {step} in {region}")
                return False
        return True

    def _contiguous(self, operand: Buffer, d: int, step: int, solved: Fields) -> Expr:
        """How far a step along an axis is if an operand lies in one piece. An extent that nothing
        has said yet is made to fit."""
        known: Expr = const(1)
        unknown: list[Field] = []
        for n in map(as_expr, operand.shape[:d:-1]):
            if isinstance(n, Symbol) and n in self._symbols and n not in solved.values:
                unknown.append(self.instruction.field(n.name))
            else:
                known = known * substitute(n, dict(solved.values))
        number = constant_value(self.simplifier(known))
        if unknown and number:
            rest, odd = divmod(step, math.prod(f.low for f in unknown[1:]) * int(number))
            if odd == 0 and unknown[0].admits(rest):
                solved.values |= {f.symbol: const(f.low) for f in unknown[1:]}
                solved.values[unknown[0].symbol] = const(rest)
                return const(step)
        for f in unknown:
            known = known * f.symbol
        return self.simplifier(known)


def _what(matcher: Unifier, operand: Buffer) -> str:
    own = operand not in matcher.instruction.operands
    return f"{operand.name} of {matcher.instruction}" if own else f"operand {operand.name}"


def _unused(operand: Buffer) -> Region:
    """What stands for an operand that a call neither reads nor writes."""
    shape = (1,) * len(operand.shape)
    buffer = Buffer(f"{operand.name}_unused", operand.dtype, shape, operand.memory or DRAM)
    return Region(buffer, (const(0),) * len(shape))
