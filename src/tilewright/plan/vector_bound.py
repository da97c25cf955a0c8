"""What the reductions of a kernel without a contraction take at least, whatever their order.

Operations of two operands make m results of n elements. Each of them joins two groups of values
that depend on each other at most, and in the end there are no more groups than results: so there
are n - m operations, or more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from tilewright.analyze.linear import linear
from tilewright.analyze.nests import Nest
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.loop import loads
from tilewright.ir.substitute import variables
from tilewright.plan.rates import most_a_cycle
from tilewright.plan.vector_form import find_accumulation
from tilewright.target.target import Target


def least_of_reductions(every: Sequence[Nest], target: Target) -> dict[str, float]:
    """Cycles at least, by queue."""
    found: dict[str, float] = {}
    begun = _started_with(every) & {n.buffer.name for n in every if not reads_of(n)}
    for nest in every:
        if nest.update is None:
            continue
        op, dtype = nest.update.op, nest.buffer.dtype
        ways = [find_accumulation(target, op, dtype, along_rows=x) for x in (False, True)]
        instruction = max((x.instruction for x in ways if x is not None), key=most_a_cycle)
        results = math.prod(int(n) for n in nest.buffer.shape)
        cycles = max(0, _elements_read(nest, begun) - results) / most_a_cycle(instruction)
        found[instruction.queue] = found.get(instruction.queue, 0.0) + cycles
    return found


def reduction_buffers(every: Sequence[Nest]) -> set[str]:
    """The names of what reductions compute, and of what they alone begin with."""
    return {n.buffer.name for n in every if n.update is not None} | _started_with(every)


def reads_of(nest: Nest) -> dict[Buffer, list[tuple[Expr, ...]]]:
    """Where a nest reads each buffer."""
    found: dict[Buffer, list[tuple[Expr, ...]]] = {}
    for read in (x for w in nest.writes for x in loads(w.value)):
        found.setdefault(read.buffer, []).append(read.indices)
    return found


def _started_with(every: Sequence[Nest]) -> set[str]:
    """The names of buffers that are read only where reductions begin."""
    first: set[str] = set()
    others: set[str] = set()
    for nest in every:
        for write in nest.writes:
            starts = nest.update is not None and write is nest.store
            (first if starts else others).update(x.buffer.name for x in loads(write.value))
    return first - others


def _elements_read(nest: Nest, begun: set[str]) -> int:
    """How many elements of arrays a reduction combines, at least; not of those of numbers that it
    begins with."""
    reads = reads_of(nest).items()
    return sum(elements_touched(nest, places) for b, places in reads if b.name not in begun)


def elements_touched(nest: Nest, places: Sequence[Sequence[Expr]]) -> int:
    """How many elements of one buffer a nest touches at these places, at least."""
    return _distinct(places, {x.var: int(x.extent) for x in (*nest.axes, *nest.reduce)})


def elements_of_nests(reads: Sequence[tuple[Nest, Sequence[Sequence[Expr]]]]) -> int:
    """How many elements of one buffer nests touch, each at such places, at least: of those of which
    no two have an element in common, all."""
    most = max((elements_touched(nest, places) for nest, places in reads), default=0)
    apart: list[list[frozenset[int]]] = []
    for nest, places in reads:
        sizes = {x.var: int(x.extent) for x in (*nest.axes, *nest.reduce)}
        for place in places:
            used = [v for i in place for v in variables(i)]
            along = [_values(i, sizes) for i in place]
            others = (any(a.isdisjoint(b) for a, b in zip(along, x, strict=True)) for x in apart)
            if len(used) == len(set(used)) and all(others):
                apart.append(along)
    return max(most, sum(math.prod(map(len, x)) for x in apart))


def _distinct(places: Sequence[Sequence[Expr]], sizes: Mapping[Var, int]) -> int:
    """How many elements accesses to one buffer touch, at least: loops of different subscripts are
    independent, and accesses that differ along one axis alone are seen together."""
    along = [[_values(i, sizes) for i in axis] for axis in zip(*places, strict=True)]
    shared = any(
        len(used := [v for i in place for v in variables(i)]) > len(set(used)) for place in places
    )
    if shared:
        return 0
    counts = [math.prod(len(axis[k]) for axis in along) for k in range(len(places))]
    differing = [axis for axis in along if any(x != axis[0] for x in axis)]
    if len(differing) == 1:
        rest = [len(axis[0]) for axis in along if axis is not differing[0]]
        return len(frozenset().union(*differing[0])) * math.prod(rest)
    return max(counts)


def _values(subscript: Expr, sizes: Mapping[Var, int]) -> frozenset[int]:
    """What a subscript is in all iterations; nothing for one that is not linear in these loops."""
    form = linear(subscript)
    first = form.pop(None, 0)
    if not set(form) <= set(sizes):
        return frozenset()
    steps = [range(0, k * sizes[v], k) for v, k in form.items() if isinstance(v, Var)]
    return frozenset(first + sum(x) for x in itertools.product(*steps))
