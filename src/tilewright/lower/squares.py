"""Reads across rows, turned in registers.

A vector loop whose lanes read with a stride gathers element by element. Where its body reads a
whole square, as the unrolled copies of a transposition do,

    for i (vectorize, 16):  … X[i, j] … X[i, j + 1] … … X[i, j + 15] …

the rows are read as vectors instead, and shuffled into the columns: first in squares of 128 bits,
which shuffles of all x86 and Arm vectors do in one instruction each, then squares of squares.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analyze.linear import Linear, add
from tilewright.base.dtype import bool_, u8
from tilewright.ir.expr import Binary, BinaryOp, Cast, Expr, Load, cast
from tilewright.ir.lanes import Lane, Shuffle
from tilewright.ir.loop import Accumulate, Block, Store, buffers_written
from tilewright.lower.lane_values import LaneValues, certain
from tilewright.lower.positions import flat

PART = 16  # bytes within which shuffles are cheap


def columns(values: LaneValues, body: Block, width: int) -> dict[Load, Expr]:
    """What a vector loop's body reads in squares and for certain, by the read. `width` is the bytes
    of a register."""
    n = values.count
    if n < 2 or n & (n - 1):
        return {}
    found: dict[Load, Expr] = {}
    for reads in _strided(values, body, width):
        for first in sorted(reads):
            run = [reads.get(first + i) for i in range(n)]
            if any(load is None or load in found for load in run):
                continue
            for load, value in zip(run, _turned(values, reads[first]), strict=True):
                assert load is not None
                found[load] = value
    return found


def _strided(values: LaneValues, body: Block, width: int) -> Iterator[dict[int, Load]]:
    """Reads with a stride, by offset; one group for all that differ in nothing else."""
    groups: dict[object, dict[int, Load]] = {}
    written = buffers_written(body)
    writes = (s for s in body if isinstance(s, (Store, Accumulate)))
    parts = certain(*(e for s in writes for e in (*s.indices, s.value)))
    for load in (x for x in parts if isinstance(x, Load) and x.buffer not in written):
        if load.dtype.bytes * values.count > width or _reads(load.indices):
            continue
        step, rest = values.split(values.positions.of(load.buffer, load.indices))
        if step not in (None, 0, 1):
            key = (load.buffer, step, frozenset((a, k) for a, k in rest.items() if a is not None))
            groups.setdefault(key, {})[rest.get(None, 0)] = load
    yield from groups.values()


def _reads(indices: tuple[Expr, ...]) -> bool:
    return any(isinstance(x, Load) for i in indices for x in i.walk())


def _turned(values: LaneValues, corner: Load) -> list[Expr]:
    """Columns of the square of which the first lane's first element is at `corner`."""
    n, dtype = values.count, corner.dtype
    step, rest = values.split(values.positions.of(corner.buffer, corner.indices))
    assert step is not None
    rows: list[Expr] = []
    for lane in range(n):
        at: Linear = add(rest, {None: step * lane})
        first = values.address(at)
        read = Load(flat(corner.buffer), (Binary(BinaryOp.ADD, first, Lane(n)),))
        rows.append(Cast(u8, read) if dtype == bool_ else read)  # bits are dear to shuffle
    part = max(1, min(n, PART // dtype.bytes))
    return [cast(dtype, column) for column in transpose(rows, part)]


def transpose(rows: list[Expr], part: int) -> list[Expr]:
    """The columns of a square of n vectors of n elements; shuffles stay within `part` elements as
    far as possible."""
    n = len(rows)
    groups = [_within_parts(rows[i : i + part], n, 1, part) for i in range(0, n, part)]
    found = list(rows)
    for i, members in enumerate(zip(*groups, strict=True)):
        for p, column in enumerate(_across_parts(list(members), n, part)):
            found[p * part + i] = column
    return found


def _within_parts(rows: list[Expr], n: int, unit: int, part: int) -> list[Expr]:
    """Row i of the result holds, in each part, element i of that part of every row."""
    if len(rows) == 1:
        return rows
    halves: list[list[Expr]] = [[], []]
    for a, b in zip(rows[::2], rows[1::2], strict=True):
        for half, out in enumerate(halves):
            places: list[int] = []
            for start in range(0, n, part):
                for i in range(part // 2 // unit):
                    at = start + half * part // 2 + i * unit
                    places += [*range(at, at + unit), *range(n + at, n + at + unit)]
            out.append(Shuffle((a, b), tuple(places)))
    return [x for half in halves for x in _within_parts(half, n, 2 * unit, part)]


def _across_parts(rows: list[Expr], n: int, part: int) -> list[Expr]:
    """Row p of the result is made of part p of every row."""
    if len(rows) == 1:
        return rows
    halves: list[list[Expr]] = []
    for odd in (0, 1):
        starts = range(odd * part, 2 * n, 2 * part)
        places = tuple(i for start in starts for i in range(start, start + part))
        pairs = zip(rows[::2], rows[1::2], strict=True)
        some: list[Expr] = [Shuffle((a, b), places) for a, b in pairs]
        halves.append(_across_parts(some, n, part))
    return [x for pair in zip(*halves, strict=True) for x in pair]
