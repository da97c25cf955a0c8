"""Grouped contractions: a channel is a group and a place within it, which are two loops.

    Y[o] += X[o // m * k + c] * W[o, c]      ->      Y[g, i] += X[g * k + c] * W[g * m + i, c]

The groups g stand in both operands, as a batch does; the places i in the weights alone, so that
they can run along vectors as the columns of any contraction.
"""

from __future__ import annotations

from tilewright.analyze.nests import Nest, factors, nests
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Var
from tilewright.ir.loop import loads
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop


def split_groups(s: Schedule) -> frozenset[str]:
    """Splits the loops over channels that an operand reads by group, and the sums they are of.
    Returns the names of these, whose last axis then has the places in a group."""
    split = set()
    for nest in list(nests(s.kernel.body)):
        found = _groups(nest)
        if found is not None:
            before = s.moment
            sums = attempt(_split, s, nest.buffer, *found)
            if sums is None:
                s.back_to(before)
            else:
                split.add(sums.name)
    return frozenset(split)


def _groups(nest: Nest) -> tuple[int, int] | None:
    """(the result's subscript, the size of a group) of a product by groups."""
    pair = factors(nest.update.value) if nest.update is not None else None
    for p, i in enumerate(nest.store.indices if pair is not None else ()):
        extent = nest.buffer.shape[p]
        if not isinstance(i, Var) or not isinstance(extent, int) or pair is None:
            continue
        sizes = {
            int(x.b.value)
            for read in pair
            for e in read.indices
            for x in e.walk()
            if isinstance(x, Binary) and x.op is BinaryOp.FLOORDIV and x.a == i
            if isinstance(x.b, Const)
        }
        if len(sizes) == 1 and 1 < min(sizes) < extent and extent % min(sizes) == 0:
            return p, min(sizes)
    return None


def _split(s: Schedule, buffer: Buffer, position: int, size: int) -> Buffer:
    sums = s.cache_write(buffer) if buffer in s.kernel.outputs else buffer
    rank = len(sums.shape)
    packed = s.pack_layout(sums, Layout(tuple(range(rank)), ((position, size),)))
    for nest in list(nests(s.kernel.body)):
        subscripts = [nest.store.indices] if nest.buffer == packed else []
        reads = (x for w in nest.writes for x in loads(w) if x.buffer == packed)
        subscripts += [x.indices for x in reads]
        for var in {_whole(i[position]) for i in subscripts}:
            if var is not None:
                s.split(Loop(var), size)
    return packed


def _whole(e: object) -> Var | None:
    """The variable of which a subscript is the group."""
    return e.a if isinstance(e, Binary) and isinstance(e.a, Var) else None
