"""What the cores divide among them of a contraction: columns, or rows.

Cores that share columns read a part of the weights each, and all of the data, most of which other
cores have just written. Cores that share rows read a part of the data, and of a neighbour's the
halo alone, since layers before and behind are shared alike; they read all weights, which nobody
writes. The larger operand is divided; bytes that another core has written count for more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.analyze.nests import nests
from tilewright.ir.expr import const
from tilewright.ir.substitute import substitute, variables
from tilewright.plan.caches import first_cache, near_cache
from tilewright.plan.contraction_roles import Contraction, size_of, static_size, variables_of
from tilewright.plan.elementwise import block_factor
from tilewright.plan.register_tile import RegisterTile, waste
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

# Bytes of weights that come in the time of one that another core has written, as measured on two
# cores of a Zen 5 with four networks: 4 to 16 are equally good, with 1 much of the gain is gone.
WRITTEN_ELSEWHERE = 4
MANY_LINES = 8  # that a core writes alone, from which the one at their end does not count
UNEVEN = 1.05  # times the mean, which the core with most pieces may take


@dataclass(frozen=True)
class SharedRows:
    """The loops of a contraction's result, one of them cut into pieces that cores share."""

    pieces: Loop
    others: list[Loop]  # those that are neither columns nor rows of a tile
    row: Loop
    axis: int | None  # of the data, which is cut alike; None where it is no axis of its own


def share_rows(
    s: Schedule,
    c: Contraction,
    axes: list[Loop | None],
    others: list[Loop],
    tile: RegisterTile,
    target: Target,
) -> SharedRows | None:
    """Cuts a loop of a contraction's result, one of the `others` or the row, into equal pieces for
    the cores; None where they share columns instead. `axes` are the loops over the axes of the
    sums."""
    row = None if c.row is None else axes[c.row]
    columns = static_size(c.extent(c.vector))
    if target.cores == 1 or row is None or columns is None:
        return None
    sizes = {x: static_size(s.for_(x).extent) or 0 for x in (*others, row)}
    if 0 in sizes.values():
        return None
    blocks = -(-columns // (tile.vectors * c.lanes(target)))
    divided = [x for x in sizes if sizes[x] != 1 and _is_divided(c, axes, x)]
    divided = [x for x in divided if not _meet_in_lines(s, x, sizes[x], target)]
    counts = {x: _counts(sizes[x], blocks, c, tile if x == row else None, target) for x in divided}
    axis = next((x for x in divided if counts[x]), None)
    if axis is None:
        around = blocks * math.prod(sizes[x] for x in others)
        if around >= target.cores:
            return None
        axis, counts = row, {row: _counts(sizes[row], around, c, tile, target)}
    if not counts[axis]:
        return None
    read = _axis_of_data(c, axes, axis)
    pieces, inside = s.split(axis, sizes[axis] // counts[axis][0])
    rest = [inside if x == axis else x for x in others]
    return SharedRows(pieces, rest, inside if axis == row else row, read)


def _counts(
    extent: int, blocks: int, c: Contraction, tile: RegisterTile | None, target: Target
) -> list[int]:
    """The numbers of equal pieces that give all cores as much to do, if `blocks` of columns go with
    each piece; the best first. Rows of a `tile` are whole ones, for tiles of a piece may overlap,
    those of two may not; where weights stay near, there may be more pieces than cores, for there is
    nothing else that one core could take from another. Windows of columns copy a halo for each."""
    windows = c.axis_var(c.vector) in variables_of(c.data)
    near = 2 * size_of(c.weight.buffer) <= near_cache(target)
    most = target.tasks if tile is not None and near and not windows else target.cores
    least = 1 if tile is None else tile.rows
    found = [
        n for n in range(2, min(most, extent // least) + 1)
        if extent % n == 0 and _is_even(n * blocks, target)
    ]  # fmt: skip
    if tile is None:
        return found[::-1]

    def order(n: int) -> tuple[float, bool, int]:
        return waste(extent // n, tile.rows), n % target.cores != 0, abs(n * blocks - target.tasks)

    return sorted(found, key=order)


def _is_divided(c: Contraction, axes: list[Loop | None], axis: Loop) -> bool:
    """Whether pieces of a loop are rather shared than columns: those of both operands, or of the
    one that takes longer to come. Weights that are packed are constants, others were written."""
    var = c.axis_var(axes.index(axis)) if axis in axes else None
    if var is None or var not in variables_of(c.data):
        return False
    if var in variables_of(c.weight):
        return True
    packed = block_factor(c.weight.indices, c.axis_var(c.vector)) is not None
    return size_of(c.data.buffer) * (WRITTEN_ELSEWHERE if packed else 1) >= size_of(c.weight.buffer)


def _meet_in_lines(s: Schedule, axis: Loop, extent: int, target: Target) -> bool:
    """Whether cores with pieces of a loop would write the same lines again and again, as those with
    groups of channels that are neighbours in memory."""
    nest = next(n for n in nests(s.kernel.body) if any(x.var == axis.var for x in n.axes))
    piece, (_, line) = extent // target.cores, first_cache(target)

    def place(iteration: int) -> int:
        at = {x.var: const(iteration if x.var == axis.var else 0) for x in nest.axes}
        indices = tuple(substitute(i, at) for i in nest.store.indices)
        return s.simplifier.position(indices, nest.buffer.shape).get(None, 0)

    if not 0 < piece < extent:
        return False
    step = abs(place(piece) - place(piece - 1)) * nest.buffer.dtype.bytes
    return step < line and step * piece < MANY_LINES * line


def _axis_of_data(c: Contraction, axes: list[Loop | None], axis: Loop) -> int | None:
    """The subscript of the data that follows a loop of the result."""
    var = c.axis_var(axes.index(axis))
    return next((p for p, i in enumerate(c.data.indices) if var in variables(i)), None)


def _is_even(pieces: int, target: Target) -> bool:
    """Whether no core gets much more of so many pieces than the others."""
    return -(-pieces // target.cores) * target.cores <= UNEVEN * pieces


def tiles_for_cores(
    s: Schedule, c: Contraction, loops: list[Loop], tile: RegisterTile, target: Target
) -> list[Loop]:
    """The loops over tiles that cores share: those around rows, and tiles of rows where there are
    fewer of the others than cores. Of one tile of columns the last tile of rows, which begins
    earlier, comes behind them."""
    around, rows = loops[:-1], static_size(c.rows)
    tiles = math.prod(static_size(s.for_(loop).extent) or 0 for loop in around)
    if c.row is None or rows is None or rows < 2 * tile.rows or not 0 < tiles < target.cores:
        return around or loops
    if rows % tile.rows == 0:
        return loops
    if tiles == 1:
        s.peel(loops[-1], -1)
        return loops[-1:]
    return around


def are_shared_evenly(s: Schedule, outer: list[Loop], target: Target) -> bool:
    """Whether cores have as many tiles of columns each, and nothing else to share: a last tile on
    its own would be one core's."""
    sizes = [static_size(s.for_(loop).extent) for loop in outer[:-1]]
    if target.cores == 1 or not sizes or None in sizes:
        return False
    tiles, *others = (n or 0 for n in sizes)
    return tiles % target.cores == 0 and math.prod(others) < target.cores
