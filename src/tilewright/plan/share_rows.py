"""What the cores divide among them of a contraction: columns, or rows.

Cores that share columns read a part of the weights each, and all of the data, most of which other
cores have just written. Cores that share rows read a part of the data, and of a neighbour's the
halo alone, since layers before and behind are shared alike; they read all weights, which nobody
writes. The larger operand is divided; bytes that another core has written count for more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.expr import Buffer
from tilewright.ir.substitute import variables
from tilewright.plan.contraction_roles import Contraction, near_cache, static_size, variables_of
from tilewright.plan.elementwise import block_factor
from tilewright.plan.register_tile import RegisterTile, waste
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

# Bytes of weights that come in the time of one that another core has written, as measured on two
# cores of a Zen 5 with four networks: 4 to 16 are equally good, with 1 much of the gain is gone.
WRITTEN_ELSEWHERE = 4
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
    """Cuts a loop of a contraction's result, the outermost of the `others` or the row, into equal
    pieces for the cores; None where they share columns instead. `axes` are the loops over the
    axes of the sums."""
    row = None if c.row is None else axes[c.row]
    columns = static_size(c.extent(c.vector))
    if target.cores == 1 or row is None or columns is None:
        return None
    sizes = {x: static_size(s.for_(x).extent) for x in (row, *others)}
    if None in sizes.values():
        return None
    axis = next((x for x in others if sizes[x] != 1), row)
    blocks = -(-columns // (tile.vectors * c.lanes(target)))
    if _is_divided(c, axes, axis):
        most = target.cores if axis != row or not _stays_near(c, target) else target.tasks
    else:
        axis, blocks = row, blocks * math.prod(sizes[x] or 0 for x in others)
        most = target.tasks // blocks if 0 < blocks < target.cores else 1
    extent = sizes[axis] or 1
    if axis == row:  # tiles of a piece may overlap, those of two may not
        most = min(most, extent // tile.rows)
    counts = [n for n in range(2, most + 1) if extent % n == 0 and _is_even(n * blocks, target)]
    if not counts:
        return None
    if axis == row:
        count = min(counts, key=lambda n: (waste(extent // n, tile.rows), n < target.cores, -n))
    else:
        count = max(counts)
    read = _axis_of_data(c, axes, axis)
    pieces, inside = s.split(axis, extent // count)
    rest = [inside if x == axis else x for x in others]
    return SharedRows(pieces, rest, inside if axis == row else row, read)


def _stays_near(c: Contraction, target: Target) -> bool:
    """Whether the weights stay in the near caches from one piece of the rows to the next."""
    return 2 * _bytes(c.weight.buffer) <= near_cache(target)


def _is_divided(c: Contraction, axes: list[Loop | None], axis: Loop) -> bool:
    """Whether pieces of a loop are rather shared than columns: those of both operands, or of the
    one that takes longer to come. Weights that are packed are constants, others were written."""
    var = c.axis_var(axes.index(axis)) if axis in axes else None
    if var is None or var not in variables_of(c.data):
        return False
    if var in variables_of(c.weight):
        return True
    packed = block_factor(c.weight.indices, c.axis_var(c.vector)) is not None
    return _bytes(c.data.buffer) * (WRITTEN_ELSEWHERE if packed else 1) >= _bytes(c.weight.buffer)


def _axis_of_data(c: Contraction, axes: list[Loop | None], axis: Loop) -> int | None:
    """The subscript of the data that follows a loop of the result."""
    var = c.axis_var(axes.index(axis))
    return next((p for p, i in enumerate(c.data.indices) if var in variables(i)), None)


def _is_even(pieces: int, target: Target) -> bool:
    """Whether no core gets much more of so many pieces than the others."""
    return -(-pieces // target.cores) * target.cores <= UNEVEN * pieces


def _bytes(buffer: Buffer) -> int:
    """The size of a buffer, 0 where that is known late."""
    return math.prod(static_size(n) or 0 for n in buffer.shape) * buffer.dtype.bytes
