"""Weights of the next columns, which come while those of these are multiplied.

All tiles of rows read the same columns of weights, the first of them from far away. A processor's
own prefetchers follow the loads by a few lines, and begin anew where the next columns begin.
"""

from __future__ import annotations

import math

from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import For, LoopKind, loads
from tilewright.plan.caches import near_cache
from tilewright.plan.contraction_roles import Contraction, size_of, static_size
from tilewright.plan.parallelize import inner_loops
from tilewright.schedule.primitives.hints import LINE
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

SOON = 1024  # rows: where more of them are users of a weight, it may come late
AT_ONCE = 8  # lines: of more some would wait for others
SPREAD = 4  # lines for which there is one place in the code, where there are steps enough


def prefetch_weights(s: Schedule, c: Contraction, outer: list[Loop], target: Target) -> None:
    """Brings what the next tile of columns, the first of the `outer` loops, reads of weights that
    the near caches do not hold: some lines in each of the steps of this one."""
    columns, *rows = (s.for_(loop) for loop in outer)
    weight, near = c.weight.buffer, near_cache(target)
    if c.grouped or weight not in s.kernel.inputs or size_of(weight) <= near // 2:
        return
    count = static_size(columns.extent) or 1
    tiles = math.prod(static_size(loop.extent) or 0 for loop in rows)
    elements = size_of(c.buffer) // c.buffer.dtype.bytes
    users = elements // (static_size(c.extent(c.vector)) or 1)
    if count < 2 or tiles < 2 or not 0 < users <= SOON:
        return
    lines = max(1, size_of(weight) // count // LINE)
    found = _place(columns, weight, lines)
    if found is None:
        return
    at, steps = found
    before = s.moment
    try:
        loop = Loop(at.var)
        if (every := _every(at, steps * SPREAD // lines)) > 1:
            loop, _ = s.split(loop, every)
        s.prefetch(weight, outer[0], loop, 2 if 2 * lines * LINE <= near else 3)
    except ScheduleError:
        s.back_to(before)


def _place(columns: For, weight: Buffer, lines: int) -> tuple[For, int] | None:
    """The outermost loop of a tile of columns with few enough lines in each iteration, and how many
    iterations all loops around make of it."""
    steps, block = 1, columns.body
    while True:
        inside = [x for x in inner_loops(block) if any(r.buffer == weight for r in loads(x))]
        if len(inside) != 1 or inside[0].kind is not LoopKind.SERIAL:
            return None
        (loop,) = inside
        if not isinstance(loop.extent, int):
            return None
        steps *= loop.extent
        if lines <= steps * AT_ONCE:
            return loop, steps
        block = loop.body


def _every(loop: For, most: int) -> int:
    """The largest divisor of a loop's extent, up to so many."""
    assert isinstance(loop.extent, int)
    return max((n for n in range(1, most + 1) if loop.extent % n == 0), default=1)
