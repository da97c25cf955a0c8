"""Reductions (softmax, normalisation, pooling …): computed where their result is used.

The result's loops follow memory; every intermediate is computed at the innermost of them that all
its uses share and that its subscripts depend on, so that nothing is computed twice:

    for i:                                   shared among cores
        m = alloc; for j: m = max(m, x[i, j])            along vectors
        z = alloc; for j: z += exp(x[i, j] - m)
        for j: y[i, j] = exp(x[i, j] - m) / z
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tilewright.analyze.accesses import Access, accesses
from tilewright.analyze.linear import Linear, step_along
from tilewright.analyze.nests import Nest, nest_of, nests, stride
from tilewright.ir.expr import Buffer, Load, Var, product
from tilewright.ir.loop import Alloc, For, LoopKind, Stmt, loads, walk_statements
from tilewright.ir.substitute import variables
from tilewright.lower.lane_values import NEAR
from tilewright.plan.caches import near_cache
from tilewright.plan.contraction import schedule_inner_contraction
from tilewright.plan.elementwise import (
    arrange,
    axis_behind_blocks,
    block_factor,
    collapse,
    cut_axis_for_cores,
    lanes_of,
    vectorize_innermost,
)
from tilewright.plan.parallelize import parallelize
from tilewright.plan.unit_plan import nest_with
from tilewright.schedule.core.state import attempt
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

UNROLLED_WINDOW = 32  # steps, up to which a reduction is unrolled where its result has vectors
FEW_STEPS = 4  # of a reduction, which are read vector by vector of the result
STORED_LATE = 4096  # bytes that wait to be stored at once, at most: 64 vectors of 64
CHAINS = 4  # vectors accumulated independently: about the latency of an addition


def schedule_reductions(s: Schedule, target: Target) -> None:
    """Schedules a kernel with one plain result nest; others keep their stages as they are."""
    if not any(n.update is not None for n in nests(s.kernel.body)):
        return
    masters = [n for n in nests(s.kernel.body) if n.buffer in s.kernel.outputs]
    if len(masters) != 1 or not isinstance(masters[0].stmt, For):
        return
    first = _axis_of_windows(s, masters[0])
    loops = arrange(s, masters[0])
    if first is not None:
        loops = cut_axis_for_cores(s, loops, first, target)
    vector = _vector_loop(s, loops, target)
    for nest in [n for n in nests(s.kernel.body) if n.update is not None]:
        _arrange_blocks(s, nest)
    for buffer in reversed(list(s.allocations())):
        at = place_of(s, buffer, target)
        if at is not None:
            attempt(s.compute_at, buffer, at)
    for stmt in _update_nests(s):
        schedule_update(s, stmt, target)
    outer = [loop for loop in loops if loop not in vector] + vector[:-1]
    parallelize(s, [loop for loop in outer if _exists(s, loop)], target)


def _axis_of_windows(s: Schedule, master: Nest) -> int | None:
    """The axis of the result that cores share first, if it has blocks, and no reduction goes over
    all of that axis, as statistics of a channel do."""
    axis = axis_behind_blocks(master)
    if axis is None:
        return None
    moving = variables(master.store.indices[axis])
    reads = [x for w in master.writes for x in loads(w)]
    for nest in nests(s.kernel.body):
        own = [x for x in reads if x.buffer == nest.buffer]
        along = all(any(moving & variables(i) for i in x.indices) for x in own)
        if nest.update is not None and not (own and along):
            return None
    return axis


def _arrange_blocks(s: Schedule, nest: Nest) -> None:
    """Puts blocks of an axis that one loop of a reduction goes along innermost, the last one whole:
    what is beside the axis is computed as well, and nobody reads it."""
    factors = {x.var: block_factor(nest.store.indices, x.var) for x in nest.axes}
    for var, factor in factors.items():
        if factor is not None:
            attempt(s.pad, Loop(var), factor)
    if any(factors.values()):
        attempt(arrange, s, nest_with(s, nest.buffer))


def _exists(s: Schedule, loop: Loop) -> bool:
    return loop in s.loops()


def _vector_loop(s: Schedule, loops: list[Loop], target: Target) -> list[Loop]:
    """Vectorizes the result's innermost loop where the reductions read along it; returns the
    loops it became (empty: reductions run along vectors themselves)."""
    last = loops[-1]
    lanes = _lanes_along(s, last, target)
    extent = s.for_(last).extent
    reductions = [n for n in nests(s.kernel.body) if n.update is not None]
    along = _along(s, reductions, last, loops, lanes)
    if not along or (isinstance(extent, int) and extent < max(2, lanes // 4)):
        return []
    several = _take_several(s, reductions, last, loops, lanes)
    pieces = vectorize_innermost(s, last, lanes)
    if not several or len(pieces) != 2:
        return pieces
    outer, inner = s.split(pieces[0], CHAINS)
    s.unroll(inner)
    return [outer, inner, pieces[1]]


def _take_several(
    s: Schedule, reductions: list[Nest], last: Loop, loops: list[Loop], lanes: int
) -> bool:
    """Whether to take some vectors at a time: they divide the axis, lie side by side in what a
    reduction of more than a few steps reads, and there is no other one. What lies side by side is
    read side by side then, before steps a page apart push its lines out, and sums do not wait for
    one another."""
    extent, master = s.for_(last).extent, nest_of(s.for_(loops[0]))
    if len(reductions) != 1 or not isinstance(extent, int) or extent % (CHAINS * lanes):
        return False
    (nest,) = reductions
    steps = math.prod(x.extent for x in nest.reduce if isinstance(x.extent, int))
    position = None if master is None else _axis_of(master, nest.buffer, last)
    axis = None if position is None else nest.store.indices[position]
    if steps <= FEW_STEPS or not isinstance(axis, Var):
        return False
    every = [stride(a.buffer, a.indices, axis, s.simplifier) for a in accesses((nest.stmt,))]
    return all(step in (0, 1) for step in every)


def _lanes_along(s: Schedule, loop: Loop, target: Target) -> int:
    """Lanes of a vector along a loop: no more than it has iterations, if these divide a vector, as
    those of a block of bytes do."""
    lanes, extent = lanes_of(s, loop, target), s.for_(loop).extent
    return extent if isinstance(extent, int) and extent > 1 and lanes % extent == 0 else lanes


def _along(s: Schedule, reductions: list[Nest], last: Loop, loops: list[Loop], lanes: int) -> bool:
    """Whether every reduction's own axis that becomes `last` steps by few elements (or none) in
    what it reads, or lies there in blocks of whole vectors."""
    master = nest_of(s.for_(loops[0]))
    assert master is not None
    for nest in reductions:
        if not any(x.buffer == nest.buffer for w in master.writes for x in loads(w)):
            continue  # another reduction reads it
        position = _axis_of(master, nest.buffer, last)
        if position is None:
            return False
        axis = nest.store.indices[position]
        used = variables(axis)
        if len(used) != 1:
            return False
        (var,) = used
        blocked = any(block_factor(a.indices[-1:], var) for a in accesses((nest.stmt,)))
        for access in accesses((nest.stmt,)):
            if blocked and access.buffer == nest.buffer:
                continue  # it becomes as small as a vector
            step = _step_in_lanes(s, access, var, lanes)
            if step not in range(2 if access.writes else NEAR + 1):
                return False
    return True


def _axis_of(master: Nest, buffer: Buffer, loop: Loop) -> int | None:
    """The subscript of `buffer` that follows `loop` where the master reads it."""
    for write in master.writes:
        for x in write.value.walk():
            if isinstance(x, Load) and x.buffer == buffer:
                for position, i in enumerate(x.indices):
                    if loop.var in variables(i):
                        return position
    return None


def place_of(s: Schedule, buffer: Buffer, target: Target) -> Loop | None:
    """The innermost loop around all reads such that the buffer's elements read in different
    iterations of the loops outside of it (and of itself) are different."""
    of_sums = [n for n in nests(s.kernel.body) if n.buffer == buffer and n.update is not None]
    reads = [a for a in accesses(s.kernel.body) if a.buffer == buffer and not a.writes]
    if not reads:
        return None
    common: list[For] | None = None
    for read in reads:
        around = s.loops_around(read.stmt)
        lanes = _loops_of_lanes(around, read)
        if of_sums:
            lanes |= _loop_along(s, of_sums[0], around, read, target)
        chain: list[For] = []
        for depth, loop in enumerate(around):
            inside = {x.var for x in around[depth + 1 :]}
            if loop.var in lanes or not _reads_others(s, read, loop, inside):
                break
            chain.append(loop)
        common = chain if common is None else _shared(common, chain)
    if common and not of_sums:
        common = _outside_of_windows(s, common, reads, target)
    return Loop(common[-1].var) if common else None


def _outside_of_windows(
    s: Schedule, around: list[For], reads: list[Access], target: Target
) -> list[For]:
    """The loops around a reduction that reads a copy with a window along its last axis, as many of
    them as leave a part of the copy that is larger than what a core has still to store, and that
    the near caches hold: loads of what was stored in two parts a moment ago wait until it is there.
    """
    buffer, inside = reads[0].buffer, set[Var]()
    for read in reads:
        own = [x for x in map(nest_of, s.loops_around(read.stmt)) if x and x.update is read.stmt]
        used = variables(read.indices[-1]) if read.indices else set()
        if not own or len(used) < 2 or not used & {x.var for x in own[0].reduce}:
            return around
        inside |= used | {x.var for x in walk_statements((own[0].stmt,)) if isinstance(x, For)}
    before = itertools.takewhile(lambda x: x.var not in inside, around)
    outside = [x for x in before if x.extent != 1]
    size = product((*buffer.shape, buffer.dtype.bytes))
    times = [product(tuple(x.extent for x in outside[:n])) for n in range(len(outside) + 1)]
    if not isinstance(size, int) or not all(isinstance(n, int) for n in times):
        return around
    parts = [size // n if isinstance(n, int) else 0 for n in times]
    fitting = [n for n in range(1, len(parts)) if parts[n] <= near_cache(target)]
    late = [n for n in fitting if parts[n] >= STORED_LATE]
    return outside[: max(late, default=min(fitting))] if fitting else around


def _loops_of_lanes(around: Sequence[For], read: Access) -> set[Var]:
    """The loops inside of which nothing is computed, since vectors run along them or will: a
    reduction's own, and its result's last."""
    found = {loop.var for loop in around if loop.kind in (LoopKind.VECTORIZE, LoopKind.UNROLL)}
    nests_around = (nest_of(loop) for loop in around)
    nest = next((n for n in nests_around if n is not None and n.update is read.stmt), None)
    if nest is not None:
        found |= {x.var for x in (*nest.reduce, *nest.axes[-1:])}
    return found


def _loop_along(
    s: Schedule, sums: Nest, around: Sequence[For], read: Access, target: Target
) -> set[Var]:
    """The last loop around a read of sums, if what they sum lies along it in whole vectors."""
    loops = [loop for loop in around if loop.extent != 1]
    if not loops:
        return set()
    lanes = _lanes_along(s, Loop(loops[-1].var), target)
    for i, axis in zip(read.indices, sums.store.indices, strict=True):
        near = s.simplifier.linear(i).get(loops[-1].var) == 1 and loops[-1].extent == lanes
        if near and isinstance(axis, Var):
            reads = (a for a in accesses((sums.stmt,)) if a.buffer != sums.buffer)
            steps = {_step_in_lanes(s, a, axis, lanes) for a in reads}
            return {loops[-1].var} if 1 in steps and steps <= {0, 1} else set()
    return set()


def _step_in_lanes(s: Schedule, access: Access, var: Var, lanes: int) -> int | None:
    """Elements between neighbours along a loop: 1, too, within blocks of whole vectors."""
    step = stride(access.buffer, access.indices, var, s.simplifier)
    block = block_factor(access.indices[-1:], var) if step is None else None
    return 1 if block is not None and block % lanes == 0 else step


def _reads_others(s: Schedule, read: Access, loop: For, inside: set[Var]) -> bool:
    """Whether a read meets other elements in each iteration of a loop. Windows that slide, as at
    `x[i + k]`, have elements in common, if a step of the loop is shorter than the window."""
    if loop.extent == 1:
        return True
    for i in read.indices:
        form = s.simplifier.linear(i)
        window: Linear = {a: k for a, k in form.items() if a is not None and variables(a) & inside}
        low, high = s.simplifier.range(window)
        step = step_along(form, loop.var) if loop.var in variables(i) else 0
        apart = step is None or (low is not None and high is not None and abs(step) > high - low)
        if step != 0 and (apart or not window):
            return True
    return False


def _shared(a: list[For], b: list[For]) -> list[For]:
    out = []
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        out.append(x)
    return out


def _update_nests(s: Schedule) -> list[Stmt]:
    """The outermost statement of every reduction."""
    found: list[Stmt] = []
    for stmt in walk_statements(s.kernel.body):
        nest = nest_of(stmt) if isinstance(stmt, For) else None
        if nest is None or nest.update is None:
            continue
        inside = {id(x) for outer in found for x in walk_statements((outer,))}
        if id(stmt) not in inside:
            found.append(stmt)
    return found


def schedule_update(s: Schedule, stmt: Stmt, target: Target) -> None:
    """Vectors along an axis of the result where that is contiguous, else along the reduction."""
    nest = nest_of(stmt)
    assert nest is not None
    assert nest.update is not None
    axes = [Loop(x.var) for x in nest.axes if x.extent != 1]
    reduce = [Loop(x.var) for x in nest.reduce if x.extent != 1]
    if schedule_inner_contraction(s, nest, target):
        return
    if axes and _steps_by_one(s, nest, axes[-1]):
        if _vector_by_vector(s, nest, target):
            return
        if nest.reduce:
            init = attempt(s.split_init, nest.buffer)
            if init is None or not attempt(s.reorder, *axes[:-1], *reduce, axes[-1]):
                return
            vectorize_innermost(s, init[-1], lanes_of(s, init[-1], target))
        pieces = vectorize_innermost(s, axes[-1], lanes_of(s, axes[-1], target))
        extents = [s.for_(loop).extent for loop in reduce]
        steps = math.prod(n for n in extents if isinstance(n, int))
        several = len(pieces) == 2 and s.for_(pieces[0]).extent == CHAINS
        unrolled = FEW_STEPS if several else UNROLLED_WINDOW
        if steps <= unrolled and all(isinstance(n, int) for n in extents):
            attempt(s.reorder, *pieces[:-1], *reduce)  # what is combined stays in registers
            for loop in reduce:
                s.unroll(loop)
        elif several:
            s.unroll(pieces[0])
    elif reduce and (block := _block_along(nest, reduce[-1])):
        _vectorize_sum(s, reduce[-1], [block])
    elif reduce and _steps_by_one(s, nest, reduce[-1]):
        reduce = _as_one(s, [Loop(x.var) for x in nest.reduce])
        lanes = lanes_of(s, reduce[-1], target)
        extent = s.for_(reduce[-1]).extent
        sizes = [lanes]
        if isinstance(extent, int) and extent >= CHAINS * lanes:
            sizes = [CHAINS * lanes, lanes]  # one accumulator alone waits for its own last result
        _vectorize_sum(s, reduce[-1], sizes)


def _block_along(nest: Nest, loop: Loop) -> int | None:
    """The size of the blocks that a reduction goes along, within which neighbours are side by side
    in all that it reads."""
    reads = [a for a in accesses((nest.stmt,)) if a.stmt is nest.update and not a.writes]
    moving = [a for a in reads if any(loop.var in variables(i) for i in a.indices)]
    factors = {block_factor(a.indices[-1:], loop.var) for a in moving}
    return factors.pop() if len(factors) == 1 else None


def _vector_by_vector(s: Schedule, nest: Nest, target: Target) -> bool:
    """Where whole vectors do not divide the result, each is computed in a register and copied out,
    the last one again in part: it is never updated under a mask."""
    last = Loop(nest.axes[-1].var)
    extent, lanes = s.for_(last).extent, lanes_of(s, last, target)
    if not nest.reduce or not isinstance(extent, int) or extent < lanes or extent % lanes == 0:
        return False
    if any(isinstance(x, Alloc) for x in walk_statements((nest.stmt,))):
        return False  # what is computed on the way would be computed for each vector
    before = s.moment
    local = attempt(s.cache_write, nest.buffer)
    if local is not None:
        pieces = vectorize_innermost(s, Loop(nest_with(s, nest.buffer).axes[-1].var), lanes)
        local = attempt(s.compute_at, local, pieces[0]) if len(pieces) == 2 else None
    if local is None:
        s.back_to(before)
        return False
    schedule_update(s, nest_with(s, local).stmt, target)
    return True


def _as_one(s: Schedule, loops: list[Loop]) -> list[Loop]:
    """A reduction's loops, with neighbours that step as one loop would made one."""
    before = s.moment
    found = attempt(collapse, s, loops)
    if found is None:
        s.back_to(before)
    return loops if found is None else found


def _vectorize_sum(s: Schedule, loop: Loop, sizes: Sequence[int]) -> None:
    """Runs a reduction along vectors of the first size, then over the rest: with vectors of the
    next size, and with what is left as one. A mask is where it is not known how much is left."""
    extent, lanes = s.for_(loop).extent, sizes[0]
    if isinstance(extent, int) and extent < lanes and sizes[1:]:
        _vectorize_sum(s, loop, sizes[1:])
        return
    if isinstance(extent, int) and (extent < lanes or extent % lanes == 0):
        vectorize_innermost(s, loop, lanes)
        return
    before = {*s.loops()}
    pair = attempt(s.split, loop, lanes, Tail.CUT)
    if pair is None:
        vectorize_innermost(s, loop, lanes)
        return
    outer, *rest = [x for x in s.loops() if x not in before and x != pair[0]]
    vectorize_innermost(s, outer, lanes)
    for made in rest:
        _vectorize_sum(s, made, sizes[1:] or sizes)


def _steps_by_one(s: Schedule, nest: Nest, loop: Loop) -> bool:
    """Whether what the update writes is contiguous along a loop, or the same, and what it reads
    near."""
    assert nest.update is not None
    touched = [a for a in accesses((nest.stmt,)) if a.stmt is nest.update]
    steps = [stride(a.buffer, a.indices, loop.var, s.simplifier) for a in touched]
    near = (range(2 if a.writes else NEAR + 1) for a in touched)
    return all(step in some for step, some in zip(steps, near, strict=True)) and 1 in steps
