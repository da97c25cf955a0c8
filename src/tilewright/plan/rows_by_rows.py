"""Products of rows by rows: sums along vectors, several rows by several rows at a time.

    for batch …, columns in blocks of a vector:                      shared among cores
        for a few columns of the block:
            acc = registers [rows, columns, lanes]; acc = 0
            for k in vectors:
                for row: for column: for lane: acc += data[row, k] * weight[column, k]
            sums = acc, lane by lane
        for row: for lane: out = epilogue(sums)

Both operands are read as they lie, where a contraction (contraction.py) wants neighbouring columns
side by side: the scores of a few queries by many keys. The lanes' accumulators, and what is left of
k, are made by lower/split_accumulators.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, nests, stride
from tilewright.ir.expr import Buffer, Load, Var
from tilewright.plan.contraction import accumulator, loops_of, result_loops, update_loops
from tilewright.plan.contraction_roles import factors, variables_of
from tilewright.plan.parallelize import parallelize
from tilewright.schedule.core.state import attempt
from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target

FEW_ROWS = 16  # of one factor: for more, columns are laid side by side first
MOST_ROWS = 64  # however long a sum is: a pass over the columns counts for little beside as many
TERMS = 16  # of a sum, for each row beyond these
LEAST_TERMS = 8  # for each row: adding up lanes takes as long as so many
TILE_ROWS = 8  # at a time, at most
TILE_COLUMNS = 8


def are_few(rows: int, terms: int) -> bool:
    """Whether so many rows of one factor are few for sums of so many terms: the longer a sum, the
    less it counts that its lanes are added up, which is done for each row and column."""
    most = min(terms // LEAST_TERMS, max(FEW_ROWS, terms // TERMS), MOST_ROWS)
    return 0 < rows <= most


@dataclass(frozen=True)
class RowProduct:
    """A sum of products along the last axis of both factors; positions of the result's axes."""

    nest: Nest
    column: int  # rows of the longer factor
    row: int | None  # rows of the other
    rows: int

    def axis_var(self, axis: int) -> Var:
        var = self.nest.store.indices[axis]
        assert isinstance(var, Var)
        return var


def find_row_product(s: Schedule, target: Target) -> RowProduct | None:
    """The kernel's product of rows by rows, if there is one, of known sizes and few rows."""
    found = (_roles(s, nest, target) for nest in nests(s.kernel.body))
    return next((x for x in found if x is not None), None)


def _roles(s: Schedule, nest: Nest, target: Target) -> RowProduct | None:
    pair = factors(nest)
    reduced = [x for x in nest.reduce if x.extent != 1]
    if pair is None or len(reduced) != 1:
        return None
    (along,) = reduced
    lanes = target.vectors.lanes(nest.buffer.dtype)
    if not isinstance(along.extent, int) or along.extent < lanes or lanes == 1:
        return None
    if any(stride(x.buffer, x.indices, along.var, s.simplifier) != 1 for x in pair):
        return None
    own = [_axes_of(nest, x, other) for x, other in (pair, pair[::-1])]
    sizes = [[nest.buffer.shape[p] for p in axes] for axes in own]
    if any(len(x) > 1 or not all(isinstance(n, int) for n in x) for x in sizes):
        return None
    many = max((0, 1), key=lambda k: sizes[k][0] if sizes[k] else 1)
    columns, rows = sizes[many], sizes[1 - many]
    few = rows[0] if rows else 1
    if not columns or not isinstance(few, int) or not are_few(few, along.extent):
        return None
    if not isinstance(columns[0], int) or columns[0] < lanes:
        return None
    return RowProduct(nest, own[many][0], own[1 - many][0] if rows else None, few)


def _axes_of(nest: Nest, read: Load, other: Load) -> list[int]:
    """The result's axes that one factor alone is read by."""
    alone = variables_of(read) - variables_of(other)
    axes = enumerate(nest.store.indices)
    return [p for p, i in axes if isinstance(i, Var) and i in alone and nest.buffer.shape[p] != 1]


def schedule_row_product(s: Schedule, c: RowProduct, target: Target) -> None:
    """Applies the schedule in the module's docstring."""
    acc, out = accumulator(s, c.nest.buffer)
    lanes = target.vectors.lanes(c.nest.buffer.dtype)
    axes = result_loops(s, acc, out)
    column, row = axes[c.column], None if c.row is None else axes[c.row]
    assert column is not None
    rows = [] if row is None else [row]
    others = [x for x in loops_of(s, out) if x not in (column, *rows)]
    s.reorder(*others, *rows, column)
    whole = s.for_(column).extent % lanes == 0
    block, column = s.split(column, lanes, Tail.GUARD if whole else Tail.SHIFT)
    s.reorder(*others, block, *rows, column)
    local = s.compute_at(acc, block)
    attempt(s.vectorize, column)
    _schedule_sums(s, c, local, lanes, target)
    parallelize(s, [*others, block] if whole else others, target)


def _schedule_sums(s: Schedule, c: RowProduct, local: Buffer, lanes: int, target: Target) -> None:
    """The sums of one block of columns, tile by tile."""
    s.split_init(local)
    reduce, axes = update_loops(s, local)
    (along,) = (x for x in reduce if s.for_(x).extent != 1)
    column = Loop(c.axis_var(c.column))
    row = None if c.row is None else Loop(c.axis_var(c.row))
    others = [x for x in (*axes, *reduce) if x not in (column, row, along)]
    tile = tile_of(c.rows, lanes, target.vectors.registers)
    outer, column = s.split(column, tile.columns)
    around, rows = [*others, outer], []
    if row is not None:
        first, last = s.split(row, tile.rows)
        around, rows = [*around, first], [last]
    s.reorder(*around, along, *rows, column)
    exact = s.for_(along).extent % lanes == 0
    before = {*s.loops()}
    pair = s.split(along, lanes, Tail.GUARD if exact else Tail.CUT)
    _run_along(s, [*rows, column], pair[1])
    if not exact:
        rest, *inside = [x for x in s.loops() if x not in before and x not in pair]
        _run_along(s, inside, rest)


def _run_along(s: Schedule, tile: Sequence[Loop], along: Loop) -> None:
    """Vectors along the sum, innermost, for each element of a tile."""
    s.reorder(*tile, along)
    for loop in tile:
        s.unroll(loop)
    s.vectorize(along)


@dataclass(frozen=True)
class SumTile:
    """How many rows meet how many columns, each pair with a vector of sums."""

    rows: int
    columns: int


def tile_of(rows: int, lanes: int, registers: int) -> SumTile:
    """The tile with the fewest loads for each product that fits the registers: sums, a vector of
    each column, and one of a row. It divides the rows, and a block of columns."""

    def fits(r: int, n: int) -> bool:
        return r * n + n + 1 <= registers and lanes % n == 0

    every = [
        SumTile(r, n)
        for r in range(1, min(rows, TILE_ROWS) + 1)
        for n in range(1, TILE_COLUMNS + 1)
        if rows % r == 0 and (fits(r, n) or r == n == 1)
    ]
    return min(every, key=lambda t: 1 / t.rows + 1 / t.columns)
