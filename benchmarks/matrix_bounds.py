"""Cycles that a kernel takes at least on a chip, counted once more: from the costs and bandwidths
in the description and the kernel's loops alone, by code that shares nothing with the planner.

A sum of products is laid on each unit in all ways: every loop along an axis of the unit that means
the same for the factors and the sum (several one after another, rounded up to whole axes), along
two at once (a diagonal), or in time. To the unit that takes least comes what the description lets
nobody but its queue do: operators of rows, sums that are cleared, what rows are brought. All bytes
that are touched go through the memory outside once; and something has to come before, and to leave
behind.

Not counted are ways that compute with other numbers than the kernel's: several places of a window
at once (Toeplitz, Winograd), a matrix by parts of products (Strassen).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from matrix_ways import (
    Matrix,
    Sum,
    Term,
    laid,
    links,
    matrices,
    operators,
    product,
    rows_rate,
    steps,
    terms,
    value_without_guards,
    variables,
)  # fmt: skip

from tilewright.ir.exact import evaluate_exactly
from tilewright.ir.expr import DRAM, Binary, BinaryOp, Buffer, Const, Expr, Load, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Accumulate, Kernel, Store
from tilewright.ir.substitute import substitute
from tilewright.target.target import Target

LINEAR = {BinaryOp.ADD, BinaryOp.SUB}
AFTER = {BinaryOp.SHR, BinaryOp.MIN, BinaryOp.MAX}  # what may follow a sum where it is stored


# ---------------------------------------------------------------- the kernel


def independent_bound(kernel: Kernel, target: Target) -> float | None:
    """Cycles that a kernel takes at least; None where the description has nothing for it."""
    found = terms(kernel.body, {}, {})
    moved = sum(_touched(b, found) * b.dtype.bytes for b in kernel.params) / links(target)
    work = _work(found, kernel, target)
    queue = _only_queue(found, kernel, target)
    return None if work is None else max(work, moved, queue) + _ends(target)


def _only_queue(found: Sequence[Term], kernel: Kernel, target: Target) -> float:
    """Cycles of the queue that brings everything, where there is one: every byte, as many set-ups
    as calls of the largest size take, and rows of what sums begin with."""
    units = list(matrices(target))
    memories = {b.memory for u in units for b in u.instruction.operands}
    loads = [i for i in target.instructions if _brings(i, memories, target)]
    queues = {i.queue for i in loads}
    if len(queues) != 1 or not units or any(u.instruction.queue in queues for u in units):
        return 0.0
    size = sum(_touched(b, found) * b.dtype.bytes for b in kernel.inputs)
    setup = min(_setup_of_byte(i) for i in loads if not _addends([i], target))
    rows = sum(
        t.results * min(rows_rate(target, i) for i in _addends(loads, target))
        for t in found
        if _added(t) and _addends(loads, target) and _rate(BinaryOp.ADD, target) is None
    )
    return size / links(target) + size * setup + rows


def _brings(i: Instruction, memories: Collection[str], target: Target) -> bool:
    written = {t.stmt.buffer for t in terms(i.body, {}, {})}
    outside = any(target.memory(b.memory).size is None for b in i.operands if b not in written)
    return outside and any(b.memory in memories for b in written)


def _setup_of_byte(i: Instruction) -> float:
    """Set-up cycles of a load of the largest size, for each byte that it brings."""
    high = {f.symbol: np.int64(f.high) for f in i.fields}
    low = {f.symbol: np.int64(f.low) for f in i.fields}
    setup, size = evaluate_exactly(i.cost.setup, low), evaluate_exactly(i.cost.bytes, high)
    return float(setup) / float(size) if size else 0.0


def _addends(loads: Sequence[Instruction], target: Target) -> list[Instruction]:
    """Those that bring what sums begin with, row by row."""
    held = {t.stmt.buffer.memory for u in matrices(target)
            for t in terms(u.instruction.body, {}, {})}  # fmt: skip
    return [
        i for i in loads for t in terms(i.body, {}, {})
        if t.stmt.buffer.memory in held and t.stmt.buffer.dtype.bits > 8
    ]  # fmt: skip


def _beginning(unit: Matrix, target: Target) -> list[Instruction]:
    """Those that bring what a unit's sums begin with."""
    memories = {b.memory for b in unit.instruction.operands}
    return _addends([i for i in target.instructions if _brings(i, memories, target)], target)


def _added(t: Term) -> bool:
    """Whether a parameter of many bits is added to a sum."""
    read = [x.buffer for x in t.stmt.value.walk() if isinstance(x, Load)]
    return any(b.dtype.bits > 8 and b.memory == DRAM for b in read) and len(read) > 1


def _ends(target: Target) -> float:
    """Until the first operand is there, and from the last call until the result is."""

    def late(i: Instruction) -> float:
        low = {f.symbol: np.int64(f.low) for f in i.fields}
        own = sum(float(evaluate_exactly(x, low)) for x in (i.cost.setup, i.cost.latency))
        return own + max((target.memory(b.memory).latency for b in i.operands), default=0)

    first, last = [], []
    for i in target.instructions:
        written = {t.stmt.buffer for t in terms(i.body, {}, {})}
        inside = [target.memory(b.memory).size is not None for b in i.operands]
        if not all(inside) and i.operands:
            to = all(target.memory(b.memory).size is not None for b in i.operands if b in written)
            (first if to else last).append(late(i))
    return min(first, default=0.0) + min(last, default=0.0)


def _touched(buffer: Buffer, found: Sequence[Term]) -> int:
    """Elements of an array that are read or written: along each axis, all that is reached."""
    most = 0
    for t in found:
        reads = [x for x in t.stmt.walk() if isinstance(x, Load) and x.buffer == buffer]
        reads += [Load(buffer, t.stmt.indices)] if t.stmt.buffer == buffer else []
        for x in reads:
            along = zip(x.indices, buffer.shape, strict=True)
            most = max(most, math.prod(_reached(e, t, int(n)) for e, n in along))
    return most


def _reached(e: Expr, t: Term, n: int) -> int:
    used = sorted(variables([e]), key=str)
    grids = np.meshgrid(*(np.arange(t.loops[v]) for v in used), indexing="ij", sparse=True)
    values = np.unique(evaluate_exactly(e, dict(zip(used, grids, strict=True))))
    return int(((values >= 0) & (values < n)).sum())


def _work(found: Sequence[Term], kernel: Kernel, target: Target) -> float | None:
    """Cycles of units: as sums of products, or by operators of rows, whichever is less."""
    sums = [t for t in found if product(t)]
    ways = [_by_rows(found, kernel, target), _as_products(found, target)]
    if sums:
        ways = [_by_units(sums, found, target)]
    return min((w for w in ways if w is not None), default=None)


def _by_units(sums: Sequence[Term], found: Sequence[Term], target: Target) -> float | None:
    """Sums of products on units; what else their queue has to do, if one does them all."""
    units = list(matrices(target))
    queues = {u.instruction.queue for u in units}
    rest = _besides(sums, found, units, target) if len(queues) == 1 else 0.0
    by_queue = dict.fromkeys(queues, rest)
    moved = 0.0
    written = {t.stmt.buffer for t in found}
    for t in sums:
        pair = product(t)
        assert pair is not None
        arrays = [x.buffer for x in pair if x.buffer not in written]
        brought = {b: float(_touched(b, found) * b.dtype.bytes) for b in arrays}
        ways = dict.fromkeys(queues, (math.inf, math.inf))
        for unit, factors in itertools.product(units, (pair, pair[::-1])):
            queue = unit.instruction.queue
            apart = _apart(t, found, unit, target)
            begin = _beginning(unit, target) if apart else ()
            way = laid(Sum(t.loops, factors, t.own, brought, apart, begin), unit, target, rest)
            ways[queue] = min(ways[queue], way, key=lambda x: max(x[0] + rest, x[1]))
        rate = sum(1 / work for work, _ in ways.values())
        if not rate:
            return None
        moved += min(m for _, m in ways.values())
        for queue, (work, _) in ways.items():  # they share it
            by_queue[queue] += 1 / rate if work < math.inf else 0.0
    return max(moved, *by_queue.values())


def _apart(t: Term, found: Sequence[Term], unit: Matrix, target: Target) -> dict[Var, set[Var]]:
    """The loops of a sum along which a parameter is added that sums can only begin with, each with
    the axes of the unit along which all rows begin with the same."""
    brings = _beginning(unit, target)
    if not brings or _rate(BinaryOp.ADD, target) is not None:
        return {}
    (result,) = (x.stmt for x in terms(unit.instruction.body, {}, {})
                 if isinstance(x.stmt, Accumulate))  # fmt: skip
    same: set[Var] = set()
    for d, e in enumerate(result.indices):
        varies = [_varies(i, d) for i in brings]
        same |= set() if any(varies) else {x for x in e.walk() if isinstance(x, Var)}
    loops: set[Var] = set()
    for x in (x for x in found if _added(x)):
        reads = [y for y in x.stmt.value.walk() if isinstance(y, Load)]
        sums = [y for y in reads if y.buffer == t.stmt.buffer]
        along = variables([i for y in reads if y not in sums and y.buffer.dtype.bits > 8
                           for i in y.indices])  # fmt: skip
        for y in sums:
            loops |= {v for v, i in zip(t.stmt.indices, y.indices, strict=True)
                      if isinstance(v, Var) and i in along}  # fmt: skip
    return dict.fromkeys(loops, same)


def _varies(i: Instruction, d: int) -> bool:
    """Whether what an instruction brings varies along an axis of what it is brought to."""
    for t in terms(i.body, {}, {}):
        used = variables([t.stmt.indices[d]])
        read = variables([e for x in t.stmt.value.walk() if isinstance(x, Load) for e in x.indices])
        return bool(used & read)
    return False


def _besides(
    sums: Sequence[Term], found: Sequence[Term], units: Sequence[Matrix], target: Target
) -> float:
    """Cycles that the units' queue has for what begins and follows the sums."""
    queue = units[0].instruction.queue
    clears = any(u.clears for u in units)
    total = 0.0 if clears else sum(_clearing(t, queue, target) for t in sums)
    for t in found:
        if t not in sums and not isinstance(t.stmt.value, Const):
            ops = list(operators(t.stmt.value))
            if _added(t) and BinaryOp.ADD in ops and _begun_by_others(queue, target):
                ops.remove(BinaryOp.ADD)
            total += t.times * sum(_rate(op, target, queue) or 0.0 for op in ops)
    return total


def _begun_by_others(queue: str, target: Target) -> bool:
    """Whether another queue than the units' brings numbers of many bits to where sums are: these
    can begin with what is added to them."""
    held = {(x.stmt.buffer.dtype, x.stmt.buffer.memory)
            for m in matrices(target) for x in terms(m.instruction.body, {}, {})}  # fmt: skip
    return any(
        (x.stmt.buffer.dtype, x.stmt.buffer.memory) in held
        for i in target.instructions if i.queue != queue
        for x in terms(i.body, {}, {}) if isinstance(value_without_guards(x.stmt.value), Load)
    )  # fmt: skip


def _clearing(t: Term, queue: str, target: Target) -> float:
    """Cycles of a unit's queue to begin sums, where nothing brings what they begin with."""
    rates = []
    units = [m.instruction for m in matrices(target)]
    held = {(x.stmt.buffer.dtype, x.stmt.buffer.memory)
            for i in units for x in terms(i.body, {}, {})}  # fmt: skip
    for i in target.instructions:
        for x in terms(i.body, {}, {}):
            sums = (x.stmt.buffer.dtype, x.stmt.buffer.memory) in held
            if isinstance(x.stmt, Store) and sums and not list(operators(x.stmt.value)):
                if i.queue != queue:
                    return 0.0
                if isinstance(x.stmt.value, Const):
                    rates.append(rows_rate(target, i))
    return t.results * min(rates, default=0.0)


def _rate(op: object, target: Target, queue: str | None = None) -> float | None:
    """Cycles of a queue for an operator of an element: none where another queue does it, or what
    carries the element anyway; None where nothing does."""
    best: float | None = None
    units = [m.instruction for m in matrices(target)]
    for i in target.instructions:
        for t in terms(i.body, {}, {}):
            if i in units and isinstance(t.stmt, Accumulate):
                continue  # the sum itself
            known = [*operators(t.stmt.value)]
            known += [t.stmt.op] if isinstance(t.stmt, Accumulate) else []
            if op in known:
                count = steps(t.stmt.value, op) + isinstance(t.stmt, Accumulate)
                free = i in units or any(target.memory(b.memory).size is None for b in i.operands)
                free |= queue is not None and i.queue != queue
                cycles = 0.0 if free else rows_rate(target, i) / count
                best = cycles if best is None else min(best, cycles)
    return best


# ---------------------------------------------------------------- without products


def _row_instructions(target: Target) -> list[Instruction]:
    return [
        i
        for i in target.instructions
        if i.operands
        and all(target.memory(b.memory).size is not None for b in i.operands)
        and i not in [m.instruction for m in matrices(target)]
    ]


def _by_rows(found: Sequence[Term], kernel: Kernel, target: Target) -> float | None:
    """Operators one by one, and what their queue itself brings into its memory."""
    rows = _row_instructions(target)
    if not rows:
        return None
    work: dict[object, tuple[object, float]] = {}  # what is computed: how, and how often
    for t in found:
        for op, what, times in t.computed():  # the same is computed once
            work[what] = op, times
        if isinstance(t.stmt, Accumulate):
            window = not list(operators(t.stmt.value))
            work[id(t)] = t.stmt.op, t.results * _combined(t) if window else t.times
    total = 0.0
    for op, many in work.values():
        rate = _rate(op, target)
        if rate is None:
            return None
        total += rate * many
    queues = {i.queue for i in rows}
    total /= len(queues)
    if len(queues) == 1:
        total += _brought(found, kernel, target, next(iter(queues)))
    return total


def _combined(t: Term) -> float:
    """Operations for each result of a reduction. Windows share work: one side of all of them is
    done after the other, the first for every row that any of them reads."""
    over = [v for v in t.loops if v not in t.own]
    reads = [e for x in t.stmt.walk() if isinstance(x, Load) for e in x.indices]
    rows = {}  # that each side has, for each result
    for v in over:
        e = next((e for e in reads if v in variables([e])), v)
        results = math.prod(t.loops[x] for x in variables([e]) if x in t.own)
        rows[v] = max(1.0, _reached(e, t, 1 << 30) / results)
    each = [
        sum(
            (t.loops[v] - 1) * math.prod(rows[x] for x in order[k + 1 :])
            for k, v in enumerate(order)
        )
        for order in itertools.permutations(over)
    ]
    return min([math.prod(t.loops[v] for v in over) - 1.0, *each])


def _brought(found: Sequence[Term], kernel: Kernel, target: Target, queue: str) -> float:
    """Cycles of the units' queue for operands, if nothing else brings them."""
    rows = {b.memory for i in _row_instructions(target) for b in i.operands}
    loads = [
        i
        for i in target.instructions
        if any(target.memory(b.memory).size is None for b in i.operands)
        and any(t.stmt.buffer.memory in rows for t in terms(i.body, {}, {}))
    ]
    if not loads or any(i.queue != queue for i in loads):
        return 0.0
    return sum(_touched(b, found) * b.dtype.bytes for b in kernel.inputs) / links(target)


def _as_products(found: Sequence[Term], target: Target) -> float | None:
    """A sum of elements as a product with constants: one of the result's loops is a diagonal, or
    each lane has its own constant along all of them, or those are one column."""
    stored = [t for t in found if not isinstance(t.stmt.value, Const)]
    if not stored:
        return None
    others = {t.stmt.op for t in stored if isinstance(t.stmt, Accumulate)} - {BinaryOp.ADD}
    if others or not all(_is_linear(t.stmt.value) for t in stored):
        return None
    over = {v: n for t in stored for v, n in t.loops.items() if v not in t.own}
    last = stored[-1]
    reads = [[x for x in t.stmt.value.walk() if isinstance(x, Load)] for t in stored]
    reads = [[x for x in each if x.buffer.shape] for each in reads]
    # Arrays that are added are one more loop, and an element has one constant for all results.
    # A number that an element of the unit's does not hold is several of those.
    most = max((m.factors[1].buffer.dtype.max for m in matrices(target)), default=1)
    scales = len(stored) > 1 and _rate(BinaryOp.MUL, target) is not None  # what follows a sum
    inner = stored[:-1] if scales else stored
    numbers = [abs(n) for t in inner for n in _numbers(t.stmt.value)]
    count, read = max(map(len, reads)), reads[0][0]
    parts = math.ceil(max(numbers, default=1) / most)
    count *= parts
    taps, own, units = Var("taps"), frozenset(last.loops), list(matrices(target))
    loops = {**last.loops, **over, taps: count}
    first = Load(read.buffer, (*read.indices, taps))
    arrays = {x.buffer for x in reads[0]}  # each comes once, however many its factors are
    bytes_ = sum(_touched(b, found) * b.dtype.bytes for b in arrays)
    queues = {u.instruction.queue for u in units}
    queue = next(iter(queues), "")
    after = AFTER | ({BinaryOp.MUL} if scales else set())
    rates = [_rate(op, target, queue) for op in operators(last.stmt.value) if op in after]
    if not units or any(r is None for r in rates):
        return None
    rest = last.times * sum(r for r in rates if r is not None)
    rest += 0.0 if any(u.clears for u in units) else _clearing(last, queue, target)
    best = math.inf
    along = [*((v,) for v in last.loops), tuple(last.loops), ()]  # all of a matrix, or a column
    for unit, lanes in itertools.product(units, along):
        second = Load(read.buffer.with_(name="numbers"), (*lanes, *over, taps))
        ways = [(loops, own, first, second)]
        if len(lanes) == 1:  # numbers are the same in every block of a loop's iterations
            sizes = {x.size for x in unit.axes if x.size is not None and x.size < loops[lanes[0]]}
            ways += [_in_blocks(loops, own, first, second, lanes[0], n) for n in sorted(sizes)]
        for each, results, one, other in ways:
            for pair in ((one, other), (other, one)):
                t = Sum(each, pair, results, {read.buffer: float(bytes_)}, again={taps: parts})
                work, moved = laid(t, unit, target, rest)
                best = min(best, max(work / len(queues) + rest, moved))
    return best if best < math.inf else None


def _in_blocks(
    loops: Mapping[Var, int], own: frozenset[Var], data: Load, numbers: Load, v: Var, size: int
) -> tuple[Mapping[Var, int], frozenset[Var], Load, Load]:
    """Loops with one of them in blocks of so many iterations, which all have the same numbers."""
    block, lane = Var("block"), Var("lane")
    cut = {x: n for x, n in loops.items() if x != v}
    cut |= {block: -(-loops[v] // size), lane: size}
    names = {v: block * size + lane}
    place = tuple(substitute(i, names) for i in data.indices)
    other = tuple(lane if i == v else i for i in numbers.indices)
    results = own - {v} | {block, lane}
    return cut, results, Load(data.buffer, place), Load(numbers.buffer, other)


def _numbers(e: Expr) -> Iterator[float]:
    """What elements are multiplied by."""
    for x in e.walk():
        if isinstance(x, Binary) and x.op is BinaryOp.MUL and isinstance(x.b, Const):
            yield float(x.b.value)


def _is_linear(e: Expr) -> bool:
    """Whether a value is sums of elements times numbers, then what may follow."""
    e = value_without_guards(e)
    while isinstance(e, Binary) and e.op in AFTER and isinstance(e.b, Const):
        e = value_without_guards(e.a)
    if isinstance(e, Binary) and e.op in LINEAR:
        return _is_linear(e.a) and _is_linear(e.b) and not _follows(e)
    if isinstance(e, Binary) and e.op is BinaryOp.MUL:
        return isinstance(value_without_guards(e.b), Const) and _is_linear(e.a) and not _follows(e)
    return isinstance(e, (Load, Const))


def _follows(e: Expr) -> bool:
    """Whether something is limited or cut off inside of a sum."""
    return any(op in AFTER for op in operators(e))
