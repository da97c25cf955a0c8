"""How a contraction's operands and result should lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.analyze.accesses import accesses
from tilewright.analyze.nests import nests, stride
from tilewright.ir.expr import Load, Var
from tilewright.ir.loop import Kernel
from tilewright.ir.substitute import variables
from tilewright.ir.tensor_type import Layout
from tilewright.plan.caches import PAGE, first_cache, lines_apart
from tilewright.plan.contraction import suits_tiles
from tilewright.plan.contraction_roles import (
    Contraction,
    contractions,
    find_contraction,
    inner_contractions,
    roles,
    rows_are_better,
    static_size,
    tile_of,
    variables_of,
    window_rows,
)
from tilewright.plan.default import inline_stages
from tilewright.plan.dot_products import DotProduct, position_of
from tilewright.plan.fused_axes import FusedKernel, fuse_rows
from tilewright.plan.row_blocks import is_chain
from tilewright.plan.split_groups import split_groups
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

NEAR_PAGES = 128  # more than the first TLB of a core has places for: 72 of a Zen 4, 96 of Intel's


@dataclass(frozen=True)
class Preference:
    """The layouts with which schedule_contraction reads and writes in order, by the names of a
    kernel's parameters. `weight` is worth packing when it is constant. With `rows`, the data is
    wanted row by row."""

    data: tuple[str, Layout | None]
    weight: tuple[str, Layout | None]
    result: tuple[str, Layout | None]
    rows: bool = False


def preferred_layouts(
    kernel: Kernel, target: Target, known: Mapping[str, Layout]
) -> Preference | None:
    """Returns the layouts with unit-stride access for the schedule of a kernel with row-major
    buffers; `known` gives layouts already decided. None if it has no contraction."""
    fused = fuse_rows(kernel, known)
    if fused is not None:
        found = _preferred(fused.kernel, target, fused.fuse_layouts(known))
        split = None if found is None else _split_axes(found, fused)
        if found is None or split is not None:
            return split
    return _preferred(kernel, target, known)


def _split_axes(found: Preference, fused: FusedKernel) -> Preference | None:
    """The layouts of the parameters before axes were one."""
    named = (found.data, found.weight, found.result)
    split = [None if x is None else fused.split_layout(name, x) for name, x in named]
    if any(new is None and x is not None for new, (_, x) in zip(split, named, strict=True)):
        return None
    data, weight, result = ((name, x) for x, (name, _) in zip(split, named, strict=True))
    return Preference(data, weight, result, found.rows)


def _preferred(kernel: Kernel, target: Target, known: Mapping[str, Layout]) -> Preference | None:
    if is_chain(kernel):  # one block of rows after the other, as they lie
        return None
    s = Schedule(kernel)
    inline_stages(s)
    c = next(contractions(s, split_groups(s), target, packed=True), None)
    if c is None or (c.row is None and _source(s, c.weight) in known):
        found = _of_one_column(s, target)
        if found is not None or c is None:
            return found or _of_inner_contraction(s, target)
    if len(s.kernel.outputs) != 1:
        return None
    if c.dot is None and _rows_are_better(s, c, target):
        made = s.kernel.outputs[0].name
        return Preference(
            (_source(s, c.data), None), (c.weight.buffer.name, None), (made, None), rows=True
        )
    lanes = target.vectors.lanes(c.buffer.dtype)
    if _is_sum_of_rows(s, c, lanes):
        return None
    width = tile_of(c, target).vectors * c.lanes(target)
    if c.overlaps(target):  # vectors begin anywhere
        width = static_size(c.extent(c.vector)) or width
    if width == 1:  # a group of an odd number of channels: there is nothing to pack
        return None
    result = s.kernel.outputs[0]
    rank = len(result.shape)
    channel = c.channel()
    runs_last = all(result.shape[a] == 1 for a in range(channel + 1, rank))
    same_rank = rank == len(c.buffer.shape) - c.grouped
    blocked = same_rank and not runs_last
    result_layout = Layout(tuple(range(rank)), ((channel, lanes),)) if blocked else None
    source = _source(s, c.data)
    vector = c.axis_var(c.vector)
    data_axis = position_of(c.data, vector, None)
    data_layout = None
    if data_axis is not None:  # both operands run along vectors
        data_layout = Layout(tuple(range(len(c.data.indices))), ((data_axis, lanes),))
    now = known.get(source)
    if c.dot is not None and not c.dot.in_rows:
        data_layout = _in_depth(c, c.dot, now, lanes)
        now = data_layout or now
    elif data_layout is None and now is None:
        data_layout = now = _in_blocks(s, c, width, target)
    weight_layout = _weight_layout(c, vector, width, now)
    return Preference(
        (source, data_layout), (c.weight.buffer.name, weight_layout), (result.name, result_layout)
    )


def _is_sum_of_rows(s: Schedule, c: Contraction, lanes: int) -> bool:
    """Whether both operands have one column for each place of a batch, and lie along what is added
    up: vectors go along that, and a block of places would be mostly empty."""
    if c.dot is not None or c.axis_var(c.vector) not in variables_of(c.data):
        return False
    return any(
        all(_lies_along(s, read, loop.var) for read in (c.data, c.weight))
        for loop in c.nest.reduce
        if (static_size(loop.extent) or lanes) >= lanes
    )


def _lies_along(s: Schedule, read: Load, var: Var) -> bool:
    """Whether a loop stands for an axis, and its iterations read neighbours."""
    runs = stride(read.buffer, read.indices, var, s.simplifier) == 1
    return runs and position_of(read, var, None) is not None


def _of_one_column(s: Schedule, target: Target) -> Preference | None:
    """Of a product whose weights have one column: vectors run along rows of the data as it is."""
    c = find_contraction(s, frozenset(), target)
    if c is None or len(s.kernel.outputs) != 1:
        return None
    made = s.kernel.outputs[0].name
    return Preference((_source(s, c.weight), None), (c.data.buffer.name, None), (made, None), True)


def _of_inner_contraction(s: Schedule, target: Target) -> Preference | None:
    """Of weights that a contraction in a loop reads all of, and nothing else any."""
    for c in inner_contractions(s, target, packed=True):
        reads = [a for a in accesses(s.kernel.body) if a.buffer == c.weight.buffer]
        if len(reads) == 1 and c.weight.buffer in s.kernel.inputs and suits_tiles(c, target):
            vector = c.axis_var(c.vector)
            layout = _weight_layout(c, vector, tile_of(c, target).vectors * c.lanes(target), None)
            made = s.kernel.outputs[0].name
            return Preference(
                (c.data.buffer.name, None), (c.weight.buffer.name, layout), (made, None)
            )
    return None


def _rows_are_better(s: Schedule, c: Contraction, target: Target) -> bool:
    """Whether vectors along rows of the data are better than those along packed columns."""
    other = roles(s, c.nest, c.weight, c.data, packed=False)
    # Its vectors do not reach beyond a row of a group either.
    return other is not None and rows_are_better(c, replace(other, grouped=c.grouped), target)


def _source(s: Schedule, data: Load) -> str:
    """The parameter behind a read of a padded copy; the buffer itself otherwise."""
    for nest in nests(s.kernel.body):
        if nest.buffer == data.buffer:
            reads = {x.buffer for w in nest.writes for x in w.value.walk() if isinstance(x, Load)}
            if len(reads) == 1:
                return next(iter(reads)).name
    return data.buffer.name


def _in_depth(c: Contraction, dot: DotProduct, now: Layout | None, lanes: int) -> Layout | None:
    """A layout of the data in which what a lane adds up are neighbours; None if they are now."""
    axis = position_of(c.data, dot.along, dot.extent)
    assert axis is not None
    rank = len(c.data.indices)
    if now is None and axis == rank - 1:
        return None
    block, factor = now.blocks[-1] if now is not None and now.blocks else (None, 0)
    if block == axis and factor % dot.depth == 0:
        return None
    extent = static_size(c.data.buffer.shape[axis])
    whole = extent is not None and extent % lanes == 0
    return Layout(tuple(range(rank)), ((axis, lanes if whole else dot.depth),))


def _in_blocks(s: Schedule, c: Contraction, width: int, target: Target) -> Layout | None:
    """A layout of the data by blocks of what is added up, if several tiles of columns read it and a
    step along that drives out of the first cache what the steps before it brought, or goes through
    more pages than addresses are translated for at once."""
    columns = static_size(c.extent(c.vector))
    if columns is None or columns <= width or c.data.buffer not in s.kernel.inputs:
        return None
    for loop in c.nest.reduce:
        axis, terms = position_of(c.data, loop.var, None), static_size(loop.extent)
        step = stride(c.data.buffer, c.data.indices, loop.var, s.simplifier)
        if axis is None or terms is None or step is None:
            continue
        lanes = target.vectors.lanes(c.data.buffer.dtype)
        size = step * c.data.buffer.dtype.bytes
        if size < first_cache(target)[1]:
            continue  # steps share lines
        apart = terms > lines_apart(size, target) or terms * min(size, PAGE) > NEAR_PAGES * PAGE
        if terms % lanes == 0 and apart:
            return Layout(tuple(range(len(c.data.indices))), ((axis, lanes),))
    return None


def _weight_layout(c: Contraction, vector: Var, width: int, data: Layout | None) -> Layout:
    """Columns in tiles; within a tile in the order of the reduction's loops; a tile's row last."""
    order: list[int] = []
    reduced = {x.var for x in c.nest.reduce}
    for p, i in enumerate(c.weight.indices):  # batches and tiles first, reductions behind
        if not variables(i) & reduced:
            order.append(p)
    rest = [p for p in range(len(c.weight.indices)) if p not in order]
    order += sorted(rest, key=lambda p: not variables(c.weight.indices[p]) & window_rows(c))
    blocks: list[tuple[int, int]] = []
    if data is not None and data.blocks:
        axis, factor = data.blocks[-1]
        read = c.data.indices[axis] if axis < len(c.data.indices) else None
        found = None
        if isinstance(read, Var) and read in reduced:
            found = position_of(c.weight, read, None)
        extent = None if found is None else static_size(c.weight.buffer.shape[found])
        if found is not None and extent is not None and extent % factor == 0:
            blocks.append((found, factor))
    at = position_of(c.weight, vector, c.extent(c.vector))
    assert at is not None
    if c.dot is not None:
        along, depth = position_of(c.weight, c.dot.along, c.dot.extent), c.dot.depth
        assert along is not None
        outer = [(a, f // depth) for a, f in blocks if f > depth]
        return Layout(tuple(order), (*outer, (at, width), (along, depth)))
    return Layout(tuple(order), (*blocks, (at, width)))
