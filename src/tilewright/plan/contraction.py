"""Contractions (matrix multiplication, convolution …): the default schedule.

    for batch …, columns_o, rows …, row_o:                       shared among cores
        acc = registers [rows, vectors, lanes]; acc = 0
        for reduction …:
            for row: for vector: for lane: acc += data * weight     unrolled, vectorized
        for row: for vector: for lane: out = epilogue(acc)

What is called what follows from the accesses: plan/contraction_roles.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.analyze.nests import Nest, is_cheap_operator, nest_of, nests, stride
from tilewright.base.errors import ScheduleError
from tilewright.ir.dims import limits, same_dim
from tilewright.ir.expr import Buffer, Const, Load, Var
from tilewright.ir.loop import Accumulate, For, LoopKind, Store, loads, walk_statements
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.caches import near_cache
from tilewright.plan.contraction_roles import (
    Contraction,
    few_terms,
    on_vectors,
    reads_of,
    static_size,
    tile_of,
    variables_of,
    window_rows,
)
from tilewright.plan.decoding import decoded_parts, split_parts
from tilewright.plan.dot_products import DotProduct
from tilewright.plan.elementwise import block_factor, schedule_nest
from tilewright.plan.parallelize import parallelize
from tilewright.plan.prefetch_weights import prefetch_weights
from tilewright.plan.register_tile import RegisterTile
from tilewright.plan.share_rows import are_shared_evenly, share_rows, tiles_for_cores
from tilewright.plan.unit_plan import nest_with
from tilewright.schedule.core.state import attempt
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

LONG = 40  # operations behind a sum, above which they are not unrolled
EXPANDED = 16  # operations that a function or a division counts for
UNROLLED_WINDOW = 32  # a reduction of up to this many steps is unrolled when it is all there is
UNROLLED = 400  # and of up to so many products of vectors
PACKED_TILES = 3  # of rows, from which it pays to copy the columns that all of them read
FAR = 1024  # bytes from one row of weights to the next, which are found late
DEEP = 64  # of so many rows or more
ACROSS = 4  # tiles beside one another, from which columns may go innermost


def schedule_contraction(s: Schedule, c: Contraction, target: Target) -> None:
    """Applies the schedule in the module's docstring."""
    blocks, c = (None, c) if c.total is None else (c, _of_total(c, c.total))
    acc, out = accumulator(s, c.buffer)
    axes = result_loops(s, acc, out)
    lanes = c.lanes(target)
    vector, row = axes[c.vector], None if c.row is None else axes[c.row]
    assert vector is not None
    tile = tile_of(c, target)
    others = [x for x in loops_of(s, out) if x not in (vector, row)]
    shared = share_rows(s, c, axes, others, tile, target)
    if shared is not None:
        others, row = [shared.pieces, *shared.others], shared.row
    if c.overlaps(target):
        outer, inner = _tile_row_of_data(s, vector, row, others, tile, lanes)
    else:
        outer, inner = _tile_result_loops(s, vector, row, others, tile, lanes)
    pieces, cut = [] if shared is None else [shared.pieces], outer
    outer = [x for x in outer if x not in pieces]
    columns = outer[0]
    if _is_written_by_rows(s, c, outer, out, tile, target):
        outer = [*outer[1:], columns]
    if cut != [*pieces, *outer]:
        s.reorder(*pieces, *outer)
    local = s.compute_at(acc, outer[-1])
    if columns == outer[0] and row is not None:
        _pack_columns(s, c, outer, tile, target)
    local = _schedule_tile(s, local, c, tile, lanes, blocks)
    if columns == outer[0] and not c.overlaps(target):
        _pad_by_blocks(s, c, pieces, outer, target)
    long = _is_long(s, inner)
    if long:
        inner = _set_tile_down(s, local, inner, lanes)
    _finish_lanes(s, inner[-1:] if long else inner, tile, lanes)
    for loops in _separate_last_tile(s, outer, columns, c, tile, target):
        if loops[0] == columns:
            prefetch_weights(s, c, loops, target)
        if not pieces:
            in_order = columns == outer[0] and not c.overlaps(target)
            around = loops[:-1] or loops
            divided = tiles_for_cores(s, c, loops, tile, target) if in_order else around
            parallelize(s, divided, target)
    if shared is not None:
        parallelize(s, [shared.pieces, *outer[:-1]], target)
    _schedule_copy(s, c, None if shared is None else shared.axis, target)


def _pad_by_blocks(
    s: Schedule, c: Contraction, pieces: list[Loop], outer: list[Loop], target: Target
) -> None:
    """Makes the padded copy of data of whose channels a block of columns, as in depthwise
    convolutions, or a group reads its own for one of these after the other: it stays in the nearest
    caches, and cores that share them, if each has enough of them, join once."""
    buffer = c.data.buffer
    if buffer not in set(s.allocations()):
        return
    along = any(c.axis_var(c.vector) in variables(i) for i in c.data.indices)
    block = outer[0] if along else _loop_of_groups(s, c, outer)
    blocks = None if block is None else s.for_(block).extent
    if block is None or not isinstance(blocks, int) or blocks == 1:
        return
    if not pieces and blocks % target.cores and blocks < target.tasks:
        return
    if not along:
        attempt(s.compute_at, buffer, block)
        return
    nest = nest_with(s, buffer)
    for loop in nest.axes:
        factor = block_factor(nest.store.indices, loop.var)
        if factor is None or not isinstance(loop.extent, int) or loop.extent % (blocks * factor):
            continue  # of the last block there may be fewer
        before = s.moment
        try:
            s.split(Loop(loop.var), factor)
            s.compute_at(buffer, block)
        except ScheduleError:
            s.back_to(before)
        return


def _loop_of_groups(s: Schedule, c: Contraction, outer: list[Loop]) -> Loop | None:
    """The innermost loop over the result that goes from a group to the next: both operands are read
    by it."""
    axes = {i for i in c.nest.store.indices if isinstance(i, Var)} if c.grouped else set[Var]()
    both = variables_of(c.data) & variables_of(c.weight) & axes
    groups = [d for d, i in enumerate(c.data.indices) if both & variables(i)]
    reads = [r for x in s.kernel.body for r in loads(x) if r.buffer == c.data.buffer]
    used = {v for r in reads for d in groups for v in variables(r.indices[d])}
    return next((x for x in reversed(outer) if x.var in used), None)


def _schedule_copy(s: Schedule, c: Contraction, axis: int | None, target: Target) -> None:
    """Shares a padded copy of the data among the cores as those who read it share its rows; in the
    order of memory, by channels, where they share columns."""
    stmt = nest_with(s, c.data.buffer).stmt if c.data.buffer in set(s.allocations()) else None
    if isinstance(stmt, For) and any(stmt is x for x in s.kernel.body):
        schedule_nest(s, stmt, target, share=True, first=axis)


def _pack_columns(
    s: Schedule, c: Contraction, outer: list[Loop], tile: RegisterTile, target: Target
) -> None:
    """Copies the columns of a tile of weights that are no constants, if several tiles of rows read
    them: far apart, they are in many pages and in few sets of a cache (Goto and van de Geijn,
    "Anatomy of high-performance matrix multiplication", ACM TOMS 34, 2008)."""
    weight, rows = c.weight.buffer, static_size(c.rows)
    if c.dot is not None or c.grouped or weight not in s.kernel.inputs:
        return
    if rows is None or rows < PACKED_TILES * tile.rows or static_size(weight.shape[-1]) is None:
        return
    depth = math.prod(static_size(x.extent) or 0 for x in c.nest.reduce)
    size = depth * tile.vectors * c.lanes(target) * weight.dtype.bytes
    every = (
        stride(weight, c.weight.indices, x.var, s.simplifier) or 0
        for x in c.nest.reduce
        if x.extent != 1
    )
    step = min(every, default=0) * weight.dtype.bytes
    if depth < DEEP or (step < FAR and depth * step < near_cache(target)):
        return
    if size <= near_cache(target) // 2:
        reads = (r for x in s.kernel.body for r in loads(x) if r.buffer == weight)
        used = set().union(*map(variables, reads))
        around = [loop for loop in outer[:-1] if loop.var in used]
        if around:
            attempt(s.cache_read, weight, around[-1])


def schedule_inner_contraction(
    s: Schedule, nest: Nest, target: Target, *, in_block: bool = False
) -> bool:
    """The same inside of a loop, as a step of a recurrence, if it is a contraction of long sums:
    what it adds to would be loaded and stored for each product otherwise. `in_block`: of a block of
    rows, which is one core's, with sums of any length."""
    c = on_vectors(s, nest, target)
    if c is None or not suits_tiles(c, target, 0 if in_block else UNROLLED_WINDOW):
        return False
    packed = block_factor(c.weight.indices, c.axis_var(c.vector)) is not None
    c = replace(c, in_rows=not packed)
    lanes, before, tile = c.lanes(target), s.moment, tile_of(c, target)
    cut = _tile_result_loops if packed else _tile_row_of_data
    try:
        local = s.cache_write(c.buffer)
        axes = result_loops(s, local, c.buffer)
        vector, row = axes[c.vector], None if c.row is None else axes[c.row]
        assert vector is not None
        others = [x for x in axes if x is not None and x not in (vector, row)]
        outer, inner = cut(s, vector, row, others, tile, lanes)
        _schedule_tile(s, s.compute_at(local, outer[-1]), c, tile, lanes)
        _finish_lanes(s, inner, tile, lanes)
        whole = (static_size(c.extent(c.vector)) or 0) % (tile.vectors * lanes) == 0
        apart = packed or whole
        if not in_block:  # tiles that overlap are one core's
            parallelize(s, outer if apart else outer[:-1], target)
    except ScheduleError:
        s.back_to(before)
        return False
    return True


def suits_tiles(c: Contraction, target: Target, short: int = UNROLLED_WINDOW) -> bool:
    """Whether a contraction in a loop is worth a tile in registers: its sums have more than a
    `short` number of terms, it has columns for a vector, and how many rows there are is known."""
    depth = math.prod(static_size(x.extent) or 0 for x in c.nest.reduce)
    columns = static_size(c.extent(c.vector)) or 0
    return depth > short and columns >= c.lanes(target) and isinstance(c.rows, int)


def _separate_last_tile(
    s: Schedule,
    outer: list[Loop],
    vector: Loop,
    c: Contraction,
    tile: RegisterTile,
    target: Target,
) -> list[list[Loop]]:
    """A last tile of fewer vectors is done on its own, where those that it lacks are sums that
    nobody reads, and LLVM leaves them out. Returns the loops over tiles of each part. Where there
    is one tile for all rows, weights are what takes time, and come fastest without a gap."""
    columns = static_size(c.extent(c.vector))
    vectors = 0 if columns is None else -(-columns // c.lanes(target))
    once = all(s.for_(loop).extent == 1 for loop in outer if loop != vector)
    if c.overlaps(target) or once or vectors < tile.vectors or vectors % tile.vectors == 0:
        return [outer]
    if vector == outer[0] and are_shared_evenly(s, outer, target):
        return [outer]
    last = s.peel(vector, -1)
    if vector != outer[0]:
        return [outer]
    inside = [Loop(x.var) for x in walk_statements(s.for_(last).body) if isinstance(x, For)]
    return [outer, [last, *inside[: len(outer) - 1]]]


def _of_total(c: Contraction, total: Nest) -> Contraction:
    """The roles of the result's axes, of sums of blocks."""
    (read,) = reads_of(total, c.buffer)
    axes = list(total.store.indices)
    row = None if c.row is None else read.indices[c.row]
    return replace(
        c,
        nest=total,
        vector=axes.index(read.indices[c.vector]),
        row=None if row is None else axes.index(row),
    )


def accumulator(s: Schedule, buffer: Buffer) -> tuple[Buffer, Buffer]:
    """(the buffer that is accumulated, the result that one element-wise nest makes of it)."""
    readers = [
        n
        for n in nests(s.kernel.body)
        if any(isinstance(x, Load) and x.buffer == buffer for w in n.writes for x in w.walk())
    ]
    if buffer not in s.kernel.outputs and len(readers) == 1 and _follows(readers[0], buffer):
        return buffer, readers[0].buffer
    local = s.cache_write(buffer)
    return local, buffer


def _follows(reader: Nest, buffer: Buffer) -> bool:
    """Whether a nest reads a buffer element by element, in its own loops' order."""
    if reader.update is not None or not isinstance(reader.stmt, For):
        return False
    reads = {
        x.indices
        for w in reader.writes
        for x in w.walk()
        if isinstance(x, Load) and x.buffer == buffer
    }
    if len(reads) != 1:
        return False
    (indices,) = reads
    extents = {loop.var: loop.extent for loop in reader.axes}
    return all(
        n == 1 or (isinstance(i, Var) and i in extents and same_dim(extents[i], n))
        for i, n in zip(indices, buffer.shape, strict=True)
    )


def loops_of(s: Schedule, buffer: Buffer) -> list[Loop]:
    nest = next(n for n in nests(s.kernel.body) if n.buffer == buffer)
    return [Loop(x.var) for x in walk_statements((nest.stmt,)) if isinstance(x, For)]


def result_loops(s: Schedule, acc: Buffer, out: Buffer) -> list[Loop | None]:
    """The result nest's loop for each axis of the accumulator; None for axes of one element."""
    nest = nest_with(s, out)
    read = next(x for w in nest.writes for x in w.walk() if isinstance(x, Load) and x.buffer == acc)
    return [Loop(i) if isinstance(i, Var) else None for i in read.indices]


def _tile_result_loops(
    s: Schedule, vector: Loop, row: Loop | None, others: list[Loop], tile: RegisterTile, lanes: int
) -> tuple[list[Loop], list[Loop]]:
    """Tiles the result's loops: (outer loops, tile's loops). The vector axis is split while it
    is innermost, so that a condition for its last tile stands inside a perfect nest."""
    rows = [] if row is None else [row]
    s.reorder(*others, *rows, vector)
    vector_o, vector_i = s.split(vector, tile.vectors * lanes)
    if row is None:
        s.reorder(vector_o, *others, vector_i)
        return [vector_o, *others], [vector_i]
    s.reorder(vector_o, *others, row, vector_i)
    row_o, row_i = _split_rows(s, row, tile)
    return [vector_o, *others, row_o], [row_i, vector_i]


def _is_written_by_rows(
    s: Schedule, c: Contraction, outer: list[Loop], out: Buffer, tile: RegisterTile, target: Target
) -> bool:
    """Whether columns should go innermost: a sum of few terms takes no longer than its store, and
    lines one behind the other are stored fastest."""
    columns, rows = static_size(c.extent(c.vector)), static_size(c.rows)
    if c.row is None or c.grouped or not columns or not rows:
        return False
    if not few_terms(c, target, near_cache(target)):
        return False
    if columns < ACROSS * tile.vectors * c.lanes(target):
        return False
    if rows % tile.rows and target.cores > 1:  # some rows are done twice: by one core
        return False
    (store,) = (n.store for n in nests(s.kernel.body) if n.buffer == out)
    across, down = (stride(out, store.indices, x.var, s.simplifier) for x in (outer[0], outer[-1]))
    return across is not None and down is not None and across < down


def _split_rows(s: Schedule, row: Loop, tile: RegisterTile) -> tuple[Loop, Loop]:
    extent = s.for_(row).extent
    whole = isinstance(extent, int) or (limits(extent)[0] or 0) >= tile.rows
    return s.split(row, tile.rows, Tail.SHIFT if whole else Tail.GUARD)


def _tile_row_of_data(
    s: Schedule, vector: Loop, row: Loop | None, others: list[Loop], tile: RegisterTile, lanes: int
) -> tuple[list[Loop], list[Loop]]:
    """As _tile_result_loops, with a last tile of vectors that begins earlier. What lies around it
    is shared among cores, for no two of them may store an element."""
    rows = [] if row is None else list(_split_rows(s, row, tile))
    vector_o, vector_i = s.split(vector, tile.vectors * lanes, Tail.SHIFT)
    s.reorder(*others, *rows[:1], vector_o, *rows[1:], vector_i)
    return [*others, *rows[:1], vector_o], [*rows[1:], vector_i]


def _schedule_tile(
    s: Schedule,
    local: Buffer,
    c: Contraction,
    tile: RegisterTile,
    lanes: int,
    blocks: Contraction | None = None,
) -> Buffer:
    """The accumulation in registers: reduction loops outside, rows and vectors unrolled. Returns
    the sums. Those of `blocks`, which it adds up, are computed in registers as well, one block
    after another."""
    order = [a for a in range(len(local.shape)) if a not in (c.row, c.vector)]
    order += [a for a in (c.row, c.vector) if a is not None]
    local = s.set_memory(s.pack_layout(local, Layout(tuple(order))), "register")
    init = s.split_init(local)
    local = _whole_vectors(s, [*init, Loop(c.axis_var(c.vector))], local, lanes)
    for loop in init:
        _by_role(s, loop, local, tile, lanes)
    reduce, axes = update_loops(s, local)
    row = Loop(c.axis_var(c.row)) if c.row is not None else None
    vector = Loop(c.axis_var(c.vector))
    other_axes = [x for x in axes if x not in (row, vector)]
    reduce = _order_reduction(s, reduce, c)
    if c.dot is not None:
        _schedule_dot_product(s, c.dot, reduce, other_axes, row, vector, tile, lanes)
        return local
    inner = [x for x in (row, vector) if x is not None]
    s.reorder(*reduce, *other_axes, *inner)
    if blocks is not None:
        _schedule_tile(s, s.compute_at(blocks.buffer, reduce[-1]), blocks, tile, lanes)
    elif c.total is None:  # a window; a block is no shorter than it looks
        if not c.grouped or _is_window(c):
            _unroll_window(s, reduce, tile)
        _skip_borders(s, reduce)
    if row is not None:
        s.unroll(row)
    _lanes(s, vector, lanes)
    return local


def _whole_vectors(s: Schedule, loops: list[Loop], local: Buffer, lanes: int) -> Buffer:
    """Sums for all lanes of the last vector, of which a part would not stay in a register."""
    columns = static_size(local.shape[-1])
    if columns is None or columns == 1 or columns % lanes == 0:
        return local
    before = s.moment
    for loop in loops:
        inside = walk_statements(s.for_(loop).body)
        (store,) = (x for x in inside if isinstance(x, (Store, Accumulate)))
        if loop.var in variables(store.indices[-1]) and attempt(s.pad, loop, lanes) is None:
            s.back_to(before)
            return local
    return s.buffer(local.name)


def _schedule_dot_product(
    s: Schedule,
    dot: DotProduct,
    reduce: list[Loop],
    other_axes: list[Loop],
    row: Loop | None,
    vector: Loop,
    tile: RegisterTile,
    lanes: int,
) -> None:
    """Rows and vectors unrolled, each one instruction."""
    whole = vector
    if s.for_(vector).extent != lanes:
        whole, vector = s.split(vector, lanes)
    rows = [] if row is None else [row]
    *outer, within = reduce
    wholes = [] if whole == vector else [whole]
    s.reorder(*outer, *other_axes, *rows, *wholes, vector, within)
    _skip_borders(s, outer)
    s.tensorize(vector, dot.instruction)
    _unroll_window(s, outer, tile)
    for loop in (*rows, *wholes):
        s.unroll(loop)


def update_loops(s: Schedule, local: Buffer) -> tuple[list[Loop], list[Loop]]:
    nest = next(
        n
        for stmt in walk_statements(s.kernel.body)
        if isinstance(stmt, For)
        and (n := nest_of(stmt)) is not None
        and n.buffer == local
        and n.update is not None
    )
    return [Loop(x.var) for x in nest.reduce], [Loop(x.var) for x in nest.axes]


def _order_reduction(s: Schedule, reduce: list[Loop], c: Contraction) -> list[Loop]:
    """A reduction axis that lies in blocks is split, its blocks outermost, within them innermost:
    then both operands are read in order."""
    if c.dot is not None:
        return _order_for_dot_product(s, reduce, c, c.dot)
    for loop in reduce:
        factor = next(
            (f for read in (c.data, c.weight) if (f := block_factor(read.indices, loop.var))), None
        )
        extent = s.for_(loop).extent
        if factor is not None and isinstance(extent, int) and extent % factor == 0:
            outer, inner = s.split(loop, factor)
            around = window_rows(c)
            rows = [x for x in reduce if x.var in around]
            return [*rows, outer, *(x for x in reduce if x != loop and x not in rows), inner]
        if isinstance(extent, int) and (parts := decoded_parts(c.update, loop.var, extent)):
            return split_parts(s, loop, parts, reduce)
    return reduce


def _order_for_dot_product(
    s: Schedule, reduce: list[Loop], c: Contraction, dot: DotProduct
) -> list[Loop]:
    """Blocks of the data outermost, within them in steps of what a lane adds up, then these."""
    along = Loop(dot.along)
    around = window_rows(c)
    rows = [x for x in reduce if x.var in around]
    others = [x for x in reduce if x != along and x not in rows]
    extent, block = s.for_(along).extent, block_factor(c.data.indices, dot.along) or 0
    blocks = []
    if isinstance(extent, int) and block > dot.depth and extent % block == 0:
        outer, along = s.split(along, block)
        blocks = [outer]
    step, within = s.split(along, dot.depth)
    rest = [*blocks, *others, step] if blocks else [step, *others]
    return [*rows, *rest, within]


def _unroll_window(s: Schedule, reduce: list[Loop], tile: RegisterTile) -> None:
    """A short reduction (a depthwise window) is unrolled whole: neighbours share their reads. Of
    long straight code LLVM would have more reads at once than there are registers."""
    total = 1
    for loop in reduce:
        total *= static_size(s.for_(loop).extent) or UNROLLED_WINDOW + 1
    if total <= UNROLLED_WINDOW and total * tile.rows * tile.vectors <= UNROLLED:
        for loop in reduce:
            s.unroll(loop)


def _is_window(c: Contraction) -> bool:
    """Whether neighbours in the result read the same elements, which they share where a reduction
    is unrolled; of a product LLVM would only have more reads to keep for the next vectors."""
    reduced = {x.var for x in c.nest.reduce if x.extent != 1}
    tile = {c.axis_var(a) for a in (c.row, c.vector) if a is not None}
    return any(variables(i) & reduced and variables(i) & tile for i in c.data.indices)


def _skip_borders(s: Schedule, reduce: list[Loop]) -> None:
    """Rows and columns of windows that lie in padding are left out, where loops go over them."""
    for loop in reduce:
        if s.for_(loop).kind is LoopKind.SERIAL:
            attempt(s.skip_zeros, loop)


def _by_role(s: Schedule, loop: Loop, local: Buffer, tile: RegisterTile, lanes: int) -> None:
    """Vectorizes the initialisation along the last axis and unrolls its rows."""
    extent = s.for_(loop).extent
    inside = walk_statements(s.for_(loop).body)
    store = next(x for x in inside if isinstance(x, Store) and x.buffer == local)
    if loop.var in variables(store.indices[-1]) and extent == tile.vectors * lanes:
        _lanes(s, loop, lanes)
    elif isinstance(extent, int) and extent > 1:
        s.unroll(loop)


def _lanes(s: Schedule, loop: Loop, lanes: int) -> None:
    """Unrolled vectors of `lanes`."""
    if s.for_(loop).extent == lanes:
        s.vectorize(loop)
        return
    outer, inner = s.split(loop, lanes)
    s.unroll(outer)
    s.vectorize(inner)


def _is_long(s: Schedule, inner: list[Loop]) -> bool:
    """Whether what follows the sums takes so many operations that a copy of it for each vector of
    the tile is more code than it is worth."""
    if not all(isinstance(s.for_(loop).extent, int) for loop in inner):
        return False
    writes = [x for x in walk_statements((s.for_(inner[0]),)) if isinstance(x, Store)]
    found = [x for w in writes for x in w.value.walk() if not isinstance(x, (Load, Const))]
    return sum(1 if is_cheap_operator(x) else EXPANDED for x in found) > LONG


def _set_tile_down(s: Schedule, local: Buffer, inner: list[Loop], lanes: int) -> list[Loop]:
    """Copies the sums out of their registers, so that loops can go over them."""
    first, *rest = inner
    extent = s.for_(first).extent
    assert isinstance(extent, int)
    whole, first = s.split(first, extent)
    s.cache_read(local, whole)
    (_, nest, *_) = s.for_(whole).body  # behind the allocation
    for loop in [Loop(x.var) for x in walk_statements((nest,)) if isinstance(x, For)]:
        extent = s.for_(loop).extent
        if isinstance(extent, int) and extent % lanes == 0:
            _lanes(s, loop, lanes)
        elif extent != 1:
            s.unroll(loop)
    return [first, *rest]


def _finish_lanes(s: Schedule, inner: list[Loop], tile: RegisterTile, lanes: int) -> None:
    """Unrolls and vectorizes the epilogue's tile loops."""
    *rows, vector = inner
    for row in rows:
        s.unroll(row)
    if s.for_(vector).extent == lanes:
        attempt(s.vectorize, vector)
        return
    outer, lane = s.split(vector, lanes)
    s.unroll(outer)
    attempt(s.vectorize, lane)
