"""Chains of products (attention), a block of rows at a time: what lies between two products stays
in the near caches, and is never whole.

    for batch …, rows_o:                                       shared among cores
        scores = alloc [rows, keys]; scores = data * keys      a contraction in a loop
        for row: largest …; exps …; total …; shares …          along vectors
        sums = alloc [rows, columns]; sums = shares * values   a contraction in a loop
        out = epilogue(sums)

The blockwise order is that of Rabe and Staats, "Self-attention does not need O(n²) memory" (2021),
with whole rows of scores, as a block of these fits a second cache.
"""

from __future__ import annotations

import math

from tilewright.analyze.nests import Nest, nests
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Dim
from tilewright.ir.loop import Kernel, loads
from tilewright.plan.caches import near_cache
from tilewright.plan.contraction import (
    accumulator,
    loops_of,
    result_loops,
    schedule_inner_contraction,
)
from tilewright.plan.contraction_roles import (
    Contraction,
    factors,
    on_vectors,
    static_size,
    tile_of,
)
from tilewright.plan.parallelize import parallelize
from tilewright.plan.reduction import place_of
from tilewright.plan.register_tile import waste
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

LARGE = 1 << 15  # scores of one product of matrices, from which they are not kept whole
LEAST_ROWS = 24  # in two blocks or more
NARROW, WIDE = 16, 128  # columns of values: for fewer there are no tiles; of more, and of longer
# sums, products take so long that passes over scores hardly count, and factors leave near caches
CLOSE = 1.02  # what twice as many rows in a block may cost in rows that are done twice


def are_large(rows: Dim, columns: Dim) -> bool:
    """Whether a product's result of known size is better not kept whole between two products."""
    if not isinstance(rows, int) or not isinstance(columns, int):
        return False
    return rows >= LEAST_ROWS and rows * columns >= LARGE


def suit_blocks(terms: Dim, columns: Dim) -> bool:
    """Whether the sums of a chain's first product are short, and its last result narrow enough."""
    if not isinstance(terms, int) or not isinstance(columns, int):
        return False
    return terms <= WIDE and NARROW <= columns <= WIDE


def is_chain(kernel: Kernel) -> bool:
    """Whether a kernel multiplies what it makes of another product's large result."""
    products = _products(kernel)
    if len(products) < 2 or len(kernel.outputs) != 1 or len(products[0].buffer.shape) < 2:
        return False
    made = {n.buffer for n in products}
    read = {x.buffer for w in products[-1].writes for x in loads(w.value)} - {products[-1].buffer}
    return not made & read and are_large(*products[0].buffer.shape[-2:])


def find_chain(s: Schedule, target: Target) -> Contraction | None:
    """The last product of a chain, if its rows are known and it reads what was made of another."""
    if not is_chain(s.kernel):
        return None
    c = on_vectors(s, _products(s.kernel)[-1], target)
    if c is None or c.row is None or not isinstance(c.rows, int):
        return None
    return c if c.data.buffer in set(s.allocations()) else None


def schedule_chain(s: Schedule, c: Contraction, target: Target) -> bool:
    """Applies the schedule in the module's docstring; false, and nothing, where a block of rows
    needs more of what lies between than its own rows."""
    before = s.moment
    try:
        _schedule_blocks(s, c, target)
    except ScheduleError:
        s.back_to(before)
        return False
    return True


def _schedule_blocks(s: Schedule, c: Contraction, target: Target) -> None:
    assert c.row is not None
    acc, out = accumulator(s, c.buffer)
    row = result_loops(s, acc, out)[c.row]
    assert row is not None
    loops, rows = loops_of(s, out), s.for_(row).extent
    batch = loops[: loops.index(row)]
    count = _rows_of_block(s, target)
    whole = rows % count == 0
    block, _ = s.split(row, count, Tail.GUARD if whole else Tail.SHIFT)
    names = [n.buffer.name for n in _products(s.kernel)]
    between = {c.data.buffer, *(s.buffer(name) for name in names)}
    for buffer in reversed(list(s.allocations())):
        at = None if buffer in between else place_of(s, buffer, target)
        local = s.compute_at(buffer, block if at is None else at)
        if _known_elements(local) * rows > _known_elements(buffer) * count:
            raise ScheduleError(f"a block of {count} rows needs {local}")
    for name in names:
        for nest in [n for n in nests(s.for_(block).body) if n.buffer.name == name]:
            schedule_inner_contraction(s, nest, target, in_block=True)
    parallelize(s, [*batch, block] if whole else batch, target)


def _rows_of_block(s: Schedule, target: Target) -> int:
    """One or two tiles of rows of the first product: two, where few rows are done twice for that,
    and both what it makes and what the next reads are a part of the near caches."""
    first = _products(s.kernel)[0]
    c = on_vectors(s, first, target)
    rows, columns = (static_size(n) or 1 for n in first.buffer.shape[-2:])
    tile = 1 if c is None else tile_of(c, target).rows
    fits = 4 * tile * columns * first.buffer.dtype.bytes <= near_cache(target) // 4
    close = waste(rows, 2 * tile) <= CLOSE * waste(rows, tile)
    return 2 * tile if fits and close and 2 * tile <= rows else tile


def _known_elements(buffer: Buffer) -> int:
    """Along the axes whose sizes are known: how many batches there are is the same before."""
    return math.prod(n for n in buffer.shape if isinstance(n, int))


def _products(kernel: Kernel) -> list[Nest]:
    """Sums of products, in their order."""
    return [n for n in nests(kernel.body) if factors(n) is not None]
