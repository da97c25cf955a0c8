"""Ways to lay the loops of a sum of products on a chip's units, for matrix_bounds.py: what the
description says of instructions, read off their meanings and costs alone.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Cast, Expr, Load, Select, Unary, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Accumulate, Alloc, Block, For, If, Store
from tilewright.ir.substitute import substitute
from tilewright.target.target import Target

LONG = 256  # iterations of a field's loop at which a rate is read off, so that set-ups do not count
FEW = 1 << 18  # ways to lay loops that are looked at: those of every kernel here are fewer


@dataclass(frozen=True)
class Term:
    """A statement, and the loops around it with their iterations; of a scalar's those that it is
    declared in are the result's."""

    stmt: Store | Accumulate
    loops: Mapping[Var, int]
    own: frozenset[Var]  # loops along which results lie
    scalars: Mapping[Buffer, frozenset[Var]]  # the loops in which they are declared

    @property
    def times(self) -> int:
        return math.prod(self.loops.values())

    def computed(self) -> Iterator[tuple[object, object, int]]:
        """Each operator of the value, what it computes whatever its loops are called, and for how
        many elements."""
        pending = [self.stmt.value]
        while pending:
            e = pending.pop()
            if isinstance(e, (Binary, Unary)) and any(isinstance(x, Load) for x in e.walk()):
                names = {v: Var(f"v{k}") for k, v in enumerate(self._loops_of(e))}
                yield e.op, str(substitute(e, names)), math.prod(self.loops[v] for v in names)
            if not isinstance(e, Load):
                parts = (e.a, e.b) if isinstance(e, Select) else e.children()
                pending += [x for x in parts if isinstance(x, Expr)]

    def _loops_of(self, e: Expr) -> list[Var]:
        found: dict[Var, None] = {}
        for x in e.walk():
            if isinstance(x, Load):
                found |= dict.fromkeys(sorted(self.scalars.get(x.buffer, ()), key=str))
                found |= {y: None for i in x.indices for y in i.walk() if isinstance(y, Var)}
        return [v for v in found if v in self.loops]

    @property
    def results(self) -> int:
        return math.prod(n for v, n in self.loops.items() if v in self.own)


def terms(
    block: Block, loops: Mapping[Var, int], scalars: dict[Buffer, frozenset[Var]]
) -> list[Term]:
    found: list[Term] = []
    for stmt in block:
        if isinstance(stmt, For):
            found += terms(stmt.body, {**loops, stmt.var: int(_largest(stmt.extent))}, scalars)
        elif isinstance(stmt, If):
            found += terms((*stmt.body, *stmt.orelse), loops, scalars)
        elif isinstance(stmt, Alloc):
            scalars[stmt.buffer] = frozenset(loops)
        elif isinstance(stmt, (Store, Accumulate)):
            own = variables(stmt.indices)
            own |= scalars.get(stmt.buffer, frozenset()) if not stmt.buffer.shape else frozenset()
            found.append(Term(stmt, loops, own, scalars))
    return found


def _largest(extent: object) -> int:
    return extent if isinstance(extent, int) else getattr(extent, "upper", None) or LONG


def variables(parts: Sequence[Expr]) -> frozenset[Var]:
    return frozenset(x for e in parts for x in e.walk() if isinstance(x, Var))


def value_without_guards(e: Expr) -> Expr:
    """A value without conversions, guards and constants that it is compared with."""
    while isinstance(e, (Cast, Select)):
        e = e.a
    return e


def product(t: Term) -> tuple[Load, Load] | None:
    """The two factors of a sum of products."""
    value = value_without_guards(t.stmt.value)
    if not isinstance(t.stmt, Accumulate) or t.stmt.op is not BinaryOp.ADD:
        return None
    if not isinstance(value, Binary) or value.op is not BinaryOp.MUL:
        return None
    a, b = value_without_guards(value.a), value_without_guards(value.b)
    return (a, b) if isinstance(a, Load) and isinstance(b, Load) else None


def operators(e: Expr) -> Iterator[object]:
    """Of what is computed of elements; those in subscripts and of numbers are addresses."""
    if isinstance(e, (Binary, Unary)) and any(isinstance(x, Load) for x in e.walk()):
        yield e.op
    if not isinstance(e, Load):
        for x in (e.a, e.b) if isinstance(e, Select) else e.children():
            if isinstance(x, Expr):
                yield from operators(x)


def steps(e: Expr, op: object) -> int:
    """How many operators there are; of a choice the side that has a certain one is computed."""
    if isinstance(e, Select):
        sides = [x for x in (e.a, e.b) if op in operators(x)] or [e.a, e.b]
        return max(steps(x, op) for x in sides)
    if isinstance(e, Load):
        return 0
    own = isinstance(e, (Binary, Unary)) and any(isinstance(x, Load) for x in e.walk())
    return int(own) + sum(steps(x, op) for x in e.children() if isinstance(x, Expr))


# ---------------------------------------------------------------- instructions


@dataclass(frozen=True)
class Axis:
    """A loop of an instruction: in which of (first factor, second, sum) it stands."""

    var: Var
    parts: tuple[bool, bool, bool]
    size: int | None  # None: a field says
    most: int
    multiple: int


@dataclass(frozen=True)
class Matrix:
    """An instruction that adds up products."""

    instruction: Instruction
    axes: tuple[Axis, ...]
    factors: tuple[Load, Load]
    clears: bool
    slots: int  # that do it at the same time

    def cycles(self, sizes: Mapping[Var, int]) -> float:
        """Of a call, its set-up aside."""
        return _busy(self.instruction, {str(v): n for v, n in sizes.items()}, self) / self.slots


def matrices(target: Target) -> Iterator[Matrix]:
    for i in target.instructions:
        found = terms(i.body, {}, {})
        sums = [t for t in found if (pair := product(t)) and all(_is_operand(i, x) for x in pair)]
        if len(sums) == 1:
            yield _matrix(target, i, sums[0], found)


def _is_operand(i: Instruction, x: Load) -> bool:
    return x.buffer in i.operands


def _matrix(target: Target, i: Instruction, t: Term, every: Sequence[Term]) -> Matrix:
    pair = product(t)
    assert pair is not None
    found, indices = [], [variables(x.indices) for x in pair]
    extents = _extents(i)
    for v in t.loops:
        parts = (v in indices[0], v in indices[1], v in t.own)
        free = all(_has_step(i, x, v) for x in (*pair, Load(t.stmt.buffer, t.stmt.indices)))
        size = extents[v] if isinstance(extents[v], int) else None
        if size == 1 or (free and all(parts)):
            continue  # time: any loop
        f = None if size is not None else i.field(str(extents[v]))
        found.append(Axis(v, parts, size, size or f.high, 1 if f is None else f.multiple))
    clears = any(isinstance(x.stmt, Store) and x.stmt.buffer == t.stmt.buffer for x in every)
    return Matrix(i, tuple(found), pair, clears, _slots(target, i))


def _extents(i: Instruction) -> dict[Var, object]:
    found: dict[Var, object] = {}
    pending = list(i.body)
    while pending:
        stmt = pending.pop()
        pending += [x for part in ("body", "orelse") for x in getattr(stmt, part, ())]
        if isinstance(stmt, For):
            found[stmt.var] = stmt.extent
    return found


def _has_step(i: Instruction, x: Load, v: Var) -> bool:
    """Whether fields or lists say how an operand moves along a loop, if it does."""
    along = [d for d, e in enumerate(x.indices) if v in variables([e])]
    carriers = [(d, i.carrier(x.buffer, d)) for d in along]
    return all(i.listed(x.buffer) == d or (f is not None and f.admits(0)) for d, f in carriers)


def _slots(target: Target, i: Instruction) -> int:
    return dict(target.bundles.slots).get(i.queue, 1) if target.bundles is not None else 1


def _busy(i: Instruction, sizes: Mapping[str, int], m: Matrix | None = None) -> float:
    """Cycles of a call whose loops run so often; of loops in time, for one iteration."""
    env: dict[Expr, object] = {}
    extents = _extents(i)
    named = {str(n): str(v) for v, n in extents.items() if not isinstance(n, int)}
    for f in i.fields:
        env[f.symbol] = np.int64(sizes.get(named.get(f.name, ""), 1 if m else f.low) or 1)
    cycles = float(evaluate_exactly(i.cost.busy, env))
    return cycles if cycles else 1.0  # a bundle's slot


def rows_rate(target: Target, i: Instruction) -> float:
    """Cycles of an instruction for each element that it makes."""
    sizes = {str(v): n if isinstance(n, int) else min(LONG, i.field(str(n)).high)
             for v, n in _extents(i).items()}  # fmt: skip
    return _busy(i, sizes) / math.prod(sizes.values()) / _slots(target, i)


# ---------------------------------------------------------------- sums of products


@dataclass(frozen=True)
class Sum:
    """A sum of products: its loops, the two factors, and the loops of the results."""

    loops: Mapping[Var, int]
    factors: tuple[Load, Load]
    own: frozenset[Var]
    brought: Mapping[Buffer, float]  # bytes of factors that are parameters
    apart: Mapping[Var, set[Var]] = field(default_factory=dict)  # axes that a loop may not go along
    begin: Sequence[Instruction] = ()  # what brings that which the sums begin with, along `apart`
    # Loops along which factors are the same, so often: copies, where those lie along an axis.
    again: Mapping[Var, int] = field(default_factory=dict)

    def parts(self, v: Var) -> tuple[bool, bool, bool]:
        a, b = (v in variables(x.indices) for x in self.factors)
        return a, b, v in self.own


def laid(t: Sum, unit: Matrix, target: Target, more: float = 0.0) -> tuple[float, float]:
    """Cycles of a unit for a sum of products, in the best of all ways to lay its loops, and of the
    memories outside for its factors then. The unit has `more` to do besides."""
    several = {v: n for v, n in t.loops.items() if n > 1}
    places = [
        [(), *(p for p in _places(t.parts(v), unit.axes)
               if not {x.var for x in p} & t.apart.get(v, set()))]
        for v in several
    ]  # fmt: skip
    if math.prod(map(len, places)) > FEW:
        raise ValueError(f"{math.prod(map(len, places)):,} ways to lay loops")
    best = math.inf, 0.0
    for way in itertools.product(*places):
        for time, along in _along(several, way, unit):
            cycles = _cycles(time, along, unit)
            if cycles + more >= max(best[0] + more, best[1]):
                continue
            places_of = dict(zip(several, way, strict=True))
            brought = _brought_by(t, places_of, along, unit)
            moved = max(_moving(brought, target), _queued(t, places_of, brought, target))
            best = min(best, (cycles, moved), key=lambda x: max(x[0] + more, x[1]))
    return best


def _brought_by(
    t: Sum, way: Mapping[Var, tuple[Axis, ...]], along: Mapping[Var, int], unit: Matrix
) -> list[tuple[str, float]]:
    """Bytes of the factors, with the memory to which each comes: with what fills rows up, and once
    for each place of a window where places have to lie side by side."""
    found = []
    for k, (x, operand) in enumerate(zip(t.factors, unit.factors, strict=True)):
        if x.buffer not in t.brought:
            continue
        size, apart = float(x.buffer.dtype.bytes), False
        for e in x.indices:
            used = variables([e])
            axes = [{a.var for a in way.get(v, ()) if a.parts[k]} for v in used]
            apart |= len(used) > 1 and _side_by_side(unit.instruction, operand, axes)
            size *= math.prod(t.loops[v] for v in used)
        size = size if apart else t.brought[x.buffer]
        for v, n in t.again.items():
            size *= n if any(a.parts[k] for a in way.get(v, ())) else 1
        for pair in {place for place in way.values() if len(place) == 2}:
            if all(a.parts[k] for a in pair):  # on the diagonal, beside zeros
                first = pair[0]
                others = math.prod(t.loops[v] for v, place in way.items() if place == (first,))
                size *= along[first.var] / others
        for axis in (a for a in unit.axes if a.size is not None and a.parts[k]):
            size *= -(-along[axis.var] // axis.most) * axis.most / along[axis.var]
        found.append((operand.buffer.memory, size))
    return found


def _moving(brought: Sequence[tuple[str, float]], target: Target) -> float:
    """Cycles of the memories outside for so many bytes to each memory inside, some of which can be
    brought from one alone."""
    times: dict[str, float] = {}
    for memory, size in brought:
        outside = {b.memory for i in target.instructions for t in terms(i.body, {}, {})
                   if t.stmt.buffer.memory == memory for b in i.operands
                   if target.memory(b.memory).size is None}  # fmt: skip
        if len(outside) == 1:
            (name,) = outside
            rate = target.memory(name).bandwidth or math.inf
            times[name] = times.get(name, 0.0) + size / rate
    return max([sum(n for _, n in brought) / links(target), *times.values()])


def _queued(
    t: Sum, way: Mapping[Var, tuple[Axis, ...]], brought: Sequence[tuple[str, float]],
    target: Target,
) -> float:  # fmt: skip
    """Cycles of the queue that has most to bring, of what one queue alone can: set-ups of calls of
    the largest size and bytes; and what sums begin with, a call for each row of lanes at least."""
    busy: dict[str, float] = {}
    for memory, size in brought:
        loads = [i for i in target.instructions if memory in _filled(i, target)]
        if len({i.queue for i in loads}) == 1:
            each = min(_of_largest(i, target) for i in loads)
            busy[loads[0].queue] = busy.get(loads[0].queue, 0.0) + size * each
    if len({i.queue for i in t.begin}) == 1:
        calls = 1.0
        for v in t.apart:
            along = [x for x in way.get(v, ()) if x.size is not None]
            calls *= -(-t.loops[v] // math.prod(x.most for x in along))
        results = math.prod(n for v, n in t.loops.items() if v in t.own)
        queue = t.begin[0].queue
        begun = max(min(_of_smallest(i, target) for i in t.begin) * calls,
                    min(_of_a_result(i, target) for i in t.begin) * results)  # fmt: skip
        busy[queue] = busy.get(queue, 0.0) + begun
    return max(busy.values(), default=0.0)


def _filled(i: Instruction, target: Target) -> set[str]:
    """A chip's own memories that an instruction brings something to from outside."""
    written = {t.stmt.buffer for t in terms(i.body, {}, {})}
    if not any(target.memory(b.memory).size is None for b in i.operands if b not in written):
        return set()
    return {b.memory for b in written if target.memory(b.memory).size is not None}


def _of_largest(i: Instruction, target: Target) -> float:
    """Cycles for each byte of a load of the largest size."""
    high: dict[Expr, object] = {f.symbol: np.int64(f.high) for f in i.fields}
    size = float(evaluate_exactly(i.cost.bytes, high))
    return _call(i, high, target) / size if size else 0.0


def _of_a_result(i: Instruction, target: Target) -> float:
    """Cycles for each element that a load of the largest size makes."""
    high: dict[Expr, object] = {f.symbol: np.int64(f.high) for f in i.fields}
    sizes = [n if isinstance(n, int) else i.field(str(n)).high for n in _extents(i).values()]
    return _call(i, high, target) / math.prod(sizes)


def _of_smallest(i: Instruction, target: Target) -> float:
    return _call(i, {f.symbol: np.int64(f.low) for f in i.fields}, target)


def _call(i: Instruction, fields: Mapping[Expr, object], target: Target) -> float:
    """Cycles of a load: of its queue, or of the memory outside."""
    setup, busy, size = (float(evaluate_exactly(x, fields))
                         for x in (i.cost.setup, i.cost.busy, i.cost.bytes))  # fmt: skip
    outside = [m.bandwidth for b in i.operands if (m := target.memory(b.memory)).size is None]
    return setup + max([busy, *(size / rate for rate in outside if rate)])


def _side_by_side(i: Instruction, operand: Load, axes: Sequence[set[Var]]) -> bool:
    """Whether a window's places are apart in an operand that has loops of a subscript along these
    axes: it has several of them, or one along its rows, or one whose neighbours no field places."""
    along = set().union(*axes)
    own = [variables([e]) for e in operand.indices]
    if not along or any(along <= d and len(d) > 1 for d in own):
        return False  # the instruction has a window itself
    places = [d for d, used in enumerate(own) if used & along]
    packed = any(i.carrier(operand.buffer, d) is None for d in range(min(places)))
    return sum(map(bool, axes)) > 1 or packed or max(places) == len(own) - 1


def _places(parts: tuple[bool, ...], axes: Sequence[Axis]) -> Iterator[tuple[Axis, ...]]:
    for x in axes:
        # An operand that does not follow a loop is there for each iteration again.
        if x.parts[2] == parts[2] and all(a or not b for a, b in zip(x.parts, parts, strict=True)):
            yield (x,)
    if all(parts):
        for x, y in itertools.permutations(axes, 2):
            joined = tuple(a or b for a, b in zip(x.parts, y.parts, strict=True))
            if all(joined) and x.parts[2] and not y.parts[2]:
                yield (x, y)


def _along(
    loops: Mapping[Var, int], way: Sequence[tuple[Axis, ...]], unit: Matrix
) -> Iterator[tuple[int, dict[Var, int]]]:
    """Iterations in time, and along each axis: one way, but where a diagonal has any number of
    blocks; none where two pairs of axes are diagonals."""
    along = {x.var: 1 for x in unit.axes}
    time = diagonal = 1
    pair: tuple[Axis, ...] = ()
    for n, place in zip(loops.values(), way, strict=True):
        if not place:
            time *= n
        elif len(place) == 1:
            along[place[0].var] *= n
        elif pair and pair != place:
            return
        else:
            pair, diagonal = place, diagonal * n
    if not pair:
        yield time, along
        return
    most = min(max(1, x.most // along[x.var]) for x in pair)
    # As many blocks beside each other as both axes hold; fewer where an axis costs what it has.
    fixed = all(x.size is not None for x in pair)
    for each in (most,) if fixed else (n for n in divisors(diagonal) if n <= most):
        sizes = {x.var: along[x.var] * min(each, diagonal) for x in pair}
        yield time * -(-diagonal // each), along | sizes


@functools.cache
def divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]


def _cycles(time: int, along: Mapping[Var, int], unit: Matrix) -> float:
    calls, sizes = time, {}
    for x in unit.axes:
        count = -(-along[x.var] // x.most)
        share = -(-along[x.var] // count)
        sizes[x.var] = x.size or -(-share // x.multiple) * x.multiple
        calls *= count
    return calls * unit.cycles(sizes)


# ---------------------------------------------------------------- memories


def links(target: Target) -> float:
    """Bytes a cycle of the memories outside, together."""
    return sum(m.bandwidth or math.inf for m in target.memories if m.size is None)
