"""Matching a piece of program with an instruction's meaning.

The instruction's loops are mapped one to one to the program's (perfectly nested loops in any
order; a loop that runs once may stand for an axis that can be 1), values are unified up to
commutativity, and then every operand must turn out to be a region: each of its axes moves along one
subscript of the buffer, as far in memory as the operand says.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilewright.analyze.dependence import Path, violation
from tilewright.analyze.linear import Linear, add, linear, to_expr
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import (
    COMMUTATIVE,
    Binary,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Load,
    Symbol,
    Var,
    as_expr,
    const,
    constant_value,
    select,
)
from tilewright.ir.instruction import Field, Instruction, Region, axis
from tilewright.ir.loop import Accumulate, Block, Call, For, If, Stmt, Store, Write, buffers_written
from tilewright.ir.substitute import substitute, variables

Pairs = tuple[tuple[Buffer, tuple[Expr, ...], Buffer, tuple[Expr, ...]], ...]


class Stage(enum.IntEnum):
    """How far a mapping got."""

    LOOPS = 0
    VALUES = 1
    MEMORY = 2


@dataclass(frozen=True)
class Binding:
    """What is known so far: loops of the instruction to loops of the program (or to nothing, for
    an axis of one), operands' elements to the buffers' elements, fields to values."""

    loops: tuple[tuple[Var, For | None], ...] = ()
    elements: Pairs = ()
    parts: tuple[tuple[Buffer, Expr], ...] = ()  # operands that are values, where those are allowed
    fields: tuple[tuple[Symbol, Expr], ...] = ()

    def with_part(self, operand: Buffer, part: Expr) -> Binding:
        return replace(self, parts=(*self.parts, (operand, part)))

    def bind_field(self, var: Symbol, value: Expr) -> Binding | None:
        known = dict(self.fields)
        if var in known:
            return self if known[var] == value else None
        return replace(self, fields=(*self.fields, (var, value)))


@dataclass
class Matcher:
    """One attempt. Mappings fail early, at their loops, or late, at values or places in memory:
    `obstacle` is why the one that got farthest failed."""

    instruction: Instruction
    simplifier: Simplifier
    stage: Stage = Stage.LOOPS
    _reasons: list[tuple[Stage, str]] = field(default_factory=list)

    @property
    def obstacle(self) -> tuple[Stage, str]:
        """How far the nearest mapping got, and what stopped it."""
        if not self._reasons:
            return Stage.LOOPS, "nothing fits"
        farthest = max(stage for stage, _ in self._reasons)
        return farthest, "; ".join(
            dict.fromkeys(reason for stage, reason in self._reasons if stage == farthest)
        )

    def calls(self, block: Block) -> Iterator[Call]:
        """Every way to write `block` as one call of the instruction."""
        self.stage = Stage.LOOPS
        for binding in self._block(self.instruction.body, block, Binding()):
            self.stage = Stage.MEMORY
            call = self._call(binding)
            self.stage = Stage.LOOPS
            if call is not None:
                yield call

    def pairs(self, pattern: Write, stmt: Stmt) -> Iterator[Pairs]:
        """The ways to make two statements the same, whatever their loops: which element of which
        operand is which element of which buffer."""
        if isinstance(stmt, (Store, Accumulate)) and type(stmt) is type(pattern):
            for binding in self._write(pattern, stmt, Binding()):
                yield binding.elements

    def no(self, reason: str) -> None:
        if (self.stage, reason) not in self._reasons:
            self._reasons.append((self.stage, reason))

    # ---------------------------------------------------------- statements

    def _block(self, pattern: Block, block: Block, b: Binding) -> Iterator[Binding]:
        if not pattern:
            if block:
                self.no(f"the program does more: {_first_line(block[0])}")
            else:
                yield b
            return
        head, *rest = pattern
        if isinstance(head, If):
            yield from self._condition(head, tuple(rest), block, b)
            return
        if not block:
            self.no(f"the instruction does more: {_first_line(head)}")
            return
        for found in self._stmt(head, block[0], b):
            yield from self._block(tuple(rest), block[1:], found)

    def _condition(self, head: If, rest: Block, block: Block, b: Binding) -> Iterator[Binding]:
        """A part that a flag switches: done always, never, or under the program's condition."""
        flag, when = _flag(head.cond)
        if flag is None:
            self.no(f"the instruction's condition {head.cond} is not a flag")
            return
        always, never = b.bind_field(flag, const(when)), b.bind_field(flag, const(1 - when))
        if block and isinstance(block[0], If) and not block[0].orelse and not head.orelse:
            value = select(block[0].cond, const(when), const(1 - when))
            under = b.bind_field(flag, value)
            if under is not None:
                for found in self._block(head.body, block[0].body, under):
                    yield from self._block(rest, block[1:], found)
        if always is not None and block:
            for found in self._block(head.body, block[: len(head.body)], always):
                yield from self._block(rest, block[len(head.body) :], found)
        if never is not None:
            yield from self._block((*head.orelse, *rest), block, never)

    def _stmt(self, pattern: Stmt, stmt: Stmt, b: Binding) -> Iterator[Binding]:
        if isinstance(pattern, For):
            yield from self._nest(pattern, stmt, b)
        elif type(pattern) is not type(stmt):
            self.no(f"{_first_line(stmt)} stands where the instruction has {_first_line(pattern)}")
        elif isinstance(pattern, (Store, Accumulate)):
            assert isinstance(stmt, (Store, Accumulate))
            yield from self._write(pattern, stmt, b)

    def _nest(self, pattern: For, stmt: Stmt, b: Binding) -> Iterator[Binding]:
        """All ways to map one perfect nest to another."""
        axes, body = perfect_nest(pattern)
        loops, inner = perfect_nest(stmt)
        loops = [x for x in loops if x.extent != 1]
        missing = len(axes) - len(loops)
        if missing < 0:
            self.no(f"{len(loops)} nested loops, and the instruction has {len(axes)}")
            return
        slots: list[For | None] = [*loops, *([None] * missing)]
        for chosen in dict.fromkeys(itertools.permutations(slots)):
            found: Binding | None = b
            for one, loop in zip(axes, chosen, strict=True):
                found = self._axis(one, loop, found) if found is not None else None
            if found is not None and self._may_permute(loops, [x for x in chosen if x is not None]):
                yield from self._block(body, inner, found)

    def _may_permute(self, loops: list[For], order: list[For]) -> bool:
        """Whether a nest may run in the order of the instruction's axes."""
        place = {loop.var: i for i, loop in enumerate(order)}
        moved = [a.var for a, b in zip(loops, order, strict=True) if a is not b]
        if not moved:
            return True

        def permuted(path: Path) -> Path:
            ours = [x for x in path if isinstance(x, For) and x.var in place]
            new = iter(sorted(ours, key=lambda x: place[x.var]))
            return tuple(next(new) if x in ours else x for x in path)

        pair = violation((loops[0],), moved, permuted, self.simplifier)
        if pair is not None:
            self.no(f"the order of the loops matters: {pair}")
        return pair is None

    def _axis(self, pattern: For, loop: For | None, b: Binding) -> Binding | None:
        extent: Dim = 1 if loop is None else loop.extent
        known = constant_value(extent)
        name = "a single step" if loop is None else f"loop {loop.var.name}"
        if isinstance(pattern.extent, int):
            if known != pattern.extent:
                return self.no(f"axis {pattern.var.name} is {pattern.extent}, {name} is {extent}")
        else:
            if not isinstance(pattern.extent, Symbol):
                return self.no(f"axis {pattern.var.name} has the extent {pattern.extent}")
            limits = self.instruction.field(pattern.extent.name)
            if known is None or not limits.admits(int(known)):
                return self.no(f"{limits.name} cannot be {extent} (for {name})")
            bound = b.bind_field(pattern.extent, const(int(known)))
            if bound is None:
                return self.no(f"{limits.name} would have two values")
            b = bound
        return replace(b, loops=(*b.loops, (pattern.var, loop)))

    def _write(
        self, pattern: Store | Accumulate, stmt: Store | Accumulate, b: Binding
    ) -> Iterator[Binding]:
        if isinstance(pattern, Accumulate) and pattern.op is not getattr(stmt, "op", None):
            self.no(f"the program accumulates otherwise than with {pattern.op.value}")
            return
        element = (pattern.buffer, pattern.indices, stmt.buffer, stmt.indices)
        self.stage = Stage.VALUES
        yield from self._value(pattern.value, stmt.value, self._element(b, element))
        self.stage = Stage.LOOPS

    def _element(self, b: Binding, element: tuple) -> Binding:
        return b if element in b.elements else replace(b, elements=(*b.elements, element))

    # ---------------------------------------------------------- values

    def _value(self, pattern: Expr, e: Expr, b: Binding) -> Iterator[Binding]:
        if isinstance(pattern, Load) and pattern.buffer in self.instruction.operands:
            yield from self._operand(pattern, e, b)
        elif self._is_field(pattern):
            assert isinstance(pattern, Symbol)
            found = b.bind_field(pattern, e)
            if found is not None:
                yield found
        elif isinstance(pattern, Cast) and self._is_field(pattern.a) and isinstance(e, Const):
            assert isinstance(pattern.a, Symbol)
            fits = pattern.dtype == e.dtype and e.dtype.is_integer
            found = b.bind_field(pattern.a, const(int(e.value))) if fits else None
            if found is not None:
                yield found
        elif type(pattern) is not type(e) or pattern.dtype != e.dtype:
            self.no(f"the program computes {e} where the instruction has {pattern}")
        elif isinstance(pattern, Const):
            if pattern == e:
                yield b
            else:
                self.no(f"the instruction has the constant {pattern}, the program {e}")
        else:
            yield from self._children(pattern, e, b)

    def _is_field(self, e: Expr) -> bool:
        return isinstance(e, Symbol) and any(e == f.symbol for f in self.instruction.fields)

    def _operand(self, pattern: Load, e: Expr, b: Binding) -> Iterator[Binding]:
        if not isinstance(e, Load):
            self.no(f"operand {pattern.buffer.name} would be {e}, which is not in memory")
        else:
            yield self._element(b, (pattern.buffer, pattern.indices, e.buffer, e.indices))

    def _children(self, pattern: Expr, e: Expr, b: Binding) -> Iterator[Binding]:
        if getattr(pattern, "op", None) is not getattr(e, "op", None):
            self.no(f"the program computes {e} where the instruction has {pattern}")
            return
        ours = [c for c in pattern.children() if isinstance(c, Expr)]
        theirs = [c for c in e.children() if isinstance(c, Expr)]
        orders = [theirs]
        if isinstance(pattern, Binary) and pattern.op in COMMUTATIVE:
            orders.append(theirs[::-1])
        for order in orders:
            yield from self._all(ours, order, b)

    def _all(self, ours: Sequence[Expr], theirs: Sequence[Expr], b: Binding) -> Iterator[Binding]:
        if not ours:
            yield b
            return
        for found in self._value(ours[0], theirs[0], b):
            yield from self._all(ours[1:], theirs[1:], found)

    # ---------------------------------------------------------- regions

    def _call(self, b: Binding) -> Call | None:
        """The call that a complete binding stands for; None if an operand is no region."""
        fields = dict(b.fields)
        regions: dict[Buffer, Region] = {}
        for operand, ours, buffer, theirs in b.elements:
            region = self._region(operand, ours, buffer, theirs, b, fields)
            if region is None:
                return None
            if regions.setdefault(operand, region) != region:
                return self.no(f"operand {operand.name} would be in two places")
        missing = [o.name for o in self.instruction.operands if o not in regions]
        if missing:
            return self.no(f"operand {missing[0]} has no counterpart")
        values = []
        for f in self.instruction.fields:
            value = fields.get(f.symbol, const(f.low))
            if not self._admitted(f, value, b):
                return None
            values.append(value)
        if self._overlaps(b, regions):
            return None
        ordered = tuple(regions[o] for o in self.instruction.operands)
        return Call(self.instruction, ordered, tuple(values))

    def _admitted(self, f: Field, value: Expr, b: Binding) -> bool:
        """Whether a field can have a value, whatever the loops around the call do."""
        inside = variables(value) & {loop.var for _, loop in b.loops if loop is not None}
        if inside:
            self.no(f"{f.name} would be {value}, which changes within the call")
            return False
        low, high = self.simplifier.bounds(value)
        known = constant_value(value)
        within = low is not None and high is not None and f.low <= low and high <= f.high
        whole = f.multiple == 1 or (known is not None and f.admits(int(known)))
        if not (within and whole):
            self.no(f"{f.name} cannot be {value}: it goes from {f.low} to {f.high}")
        return within and whole

    def _overlaps(self, b: Binding, regions: dict[Buffer, Region]) -> bool:
        """Whether what the instruction writes is something else that it reads: an instruction reads
        before it writes, a loop as it goes. The very same elements may be both."""
        places: dict[Buffer, set[tuple[Expr, ...]]] = {}
        for operand, ours, _, _ in b.elements:
            places.setdefault(operand, set()).add(ours)
        written = buffers_written(self.instruction.body)
        for one in written & set(regions):
            for other in set(regions) - {one}:
                if regions[one].buffer != regions[other].buffer:
                    continue
                if regions[one] != regions[other] or places[one] != places[other]:
                    self.no(f"operands {one.name} and {other.name} would overlap")
                    return True
        return False

    def _region(
        self,
        operand: Buffer,
        ours: tuple[Expr, ...],
        buffer: Buffer,
        theirs: tuple[Expr, ...],
        b: Binding,
        fields: dict[Symbol, Expr],
    ) -> Region | None:
        if operand.dtype != buffer.dtype:
            return self.no(
                f"operand {operand.name} is {operand.dtype}, {buffer.name} {buffer.dtype}"
            )
        if operand.memory and operand.memory != buffer.memory:
            where = f"{buffer.name} is in {buffer.memory}"
            return self.no(f"operand {operand.name} must be in {operand.memory}, and {where}")
        loops = {loop.var for _, loop in b.loops if loop is not None}
        wanted = [self._moves(i, b, fields) for i in ours]
        along = self._axes_of(wanted, theirs)
        theirs = tuple(self.simplifier(substitute(i, along)) for i in theirs)
        loops -= set(along)
        indices, used = [], {d for d, w in enumerate(wanted) if set(w) & set(along)}
        for i in theirs:
            moving, base = self._split(i, loops)
            if moving is None:
                return self.no(f"{buffer.name} is not indexed linearly: {i}")
            if not moving:
                indices.append(to_expr(base))
                continue
            d = next((d for d, w in enumerate(wanted) if d not in used and w == moving), None)
            if d is None:
                what = f"subscript {i} of {buffer.name}"
                return self.no(f"{what} moves otherwise than operand {operand.name}")
            used.add(d)
            indices.append(self.simplifier(to_expr(base) + axis(d)))
        left = [d for d, w in enumerate(wanted) if w and d not in used]
        if left and not all(self._may_stay(operand, d, fields) for d in left):
            return self.no(
                f"operand {operand.name} moves along an axis where {buffer.name} does not"
            )
        region = Region(buffer, tuple(indices))
        return region if self._strides_fit(operand, region, used, fields) else None

    def _axes_of(self, wanted: list[Linear], theirs: tuple[Expr, ...]) -> dict[Expr, Expr]:
        """The operand's axes that are loops of the program, by those loops: it may move along
        several subscripts, as long as its steps in memory are what they have to be."""
        moving = set().union(*map(variables, theirs))
        found: dict[Expr, Expr] = {}
        for d, moves in enumerate(wanted):
            if list(moves.values()) == [1]:
                found |= {v: axis(d) for v in moves if v in moving}
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

    def _moves(self, i: Expr, b: Binding, fields: dict[Symbol, Expr]) -> Linear:
        """An operand's subscript in terms of the program's loops (axes of one left out)."""
        values: dict[Expr, Expr] = {v: loop.var if loop else const(0) for v, loop in b.loops}
        values |= dict(fields)
        form = linear(self.simplifier(substitute(i, values)))
        return {atom: k for atom, k in form.items() if atom is not None}

    def _split(self, i: Expr, loops: set[Var]) -> tuple[Linear | None, Linear]:
        """(the part that moves with the mapped loops, the rest); None if not linear in them."""
        moving: Linear = {}
        base: Linear = {}
        for atom, k in self.simplifier.linear(i).items():
            if atom in loops:
                moving = add(moving, {atom: k})
            elif atom is not None and variables(atom) & loops:
                return None, {}
            else:
                base = add(base, {atom: k})
        return moving, base

    def _strides_fit(
        self, operand: Buffer, region: Region, axes: set[int], fields: dict[Symbol, Expr]
    ) -> bool:
        """Whether a step along each axis is as far in memory as the instruction takes it to be;
        where a field carries the stride, its value."""
        carried = {a: f for name, a, f in self.instruction.strides if name == operand.name}
        for d in sorted(axes - {self.instruction.listed(operand)}):
            step = self._step(region, d)
            if step is None:
                self.no(f"the steps of operand {operand.name} in {region} are not fixed")
                return False
            if d in carried:
                f = self.instruction.field(carried[d])
                if not f.admits(step):
                    self.no(f"{f.name} cannot be {step}, the step of operand {operand.name}")
                    return False
                if fields.setdefault(f.symbol, const(step)) != const(step):
                    self.no(f"{f.name} would be {fields[f.symbol]} and {step}")
                    return False
                continue
            wanted = 1
            for n in operand.shape[d + 1 :]:
                extent = self.simplifier(substitute(as_expr(n), dict(fields)))
                wanted *= constant_value(extent) or 0
            if step != wanted:
                self.no(
                    f"axis {d} of operand {operand.name} steps by {wanted} elements of memory, "
                    f"in {region} by {step}"
                )
                return False
        return True

    def _step(self, region: Region, d: int) -> int | None:
        """Elements of memory from one to the next along an axis; None if that is not one number."""
        at: Expr = const(0)
        for i, n in zip(region.indices, region.buffer.shape, strict=True):
            at = at * n + i
        form = self.simplifier.linear(at)
        if any(x is not None and x != axis(d) and axis(d) in variables(x) for x in form):
            return None
        return form.get(axis(d), 0)


def perfect_nest(stmt: Stmt) -> tuple[list[For], Block]:
    """Loops that stand alone in each other, outermost first, and what is in the last."""
    loops: list[For] = []
    block: Block = (stmt,)
    while len(block) == 1 and isinstance(block[0], For):
        loops.append(block[0])
        block = block[0].body
    return loops, block


def _flag(cond: Expr) -> tuple[Symbol | None, int]:
    """(field, value) for a condition `field == value` with value 0 or 1."""
    if not isinstance(cond, Compare) or cond.op is not CompareOp.EQ:
        return None, 0
    a, b = cond.a, cond.b
    if isinstance(a, Symbol) and isinstance(b, Const) and b.value in (0, 1):
        return a, int(b.value)
    return None, 0


def _first_line(stmt: Stmt) -> str:
    return str(stmt).split("\n", 1)[0]
