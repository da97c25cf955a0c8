"""What is called what in a contraction: the roles of its result's axes, and its register tile.

A loop that only one operand uses is a row or a column; the columns run along vectors. A loop that
both use (a batch, or the channels of a depthwise convolution) may run along vectors as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.analyze.nests import Nest, decoded_factors, nest_of, nests, stride
from tilewright.ir.expr import BinaryOp, Buffer, Const, Dim, Expr, Load, Var
from tilewright.ir.loop import For, walk_statements
from tilewright.ir.substitute import variables
from tilewright.plan.caches import first_cache, lines_apart, near_cache
from tilewright.plan.dot_products import DotProduct, find_dot_product, position_of
from tilewright.plan.elementwise import block_factor
from tilewright.plan.register_tile import (
    RegisterTile,
    Stream,
    register_tile,
    separate_tile,
    tile_cost,
)
from tilewright.plan.variants import Variant
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

# The rows of a tile by the least number that there is, where that is known late. A product of a few
# rows takes as long as its weights take to come from memory: it has them pass once, where registers
# have room. Convolutions read weights again for every row of a picture: there whatever divides the
# rows best is best, and for products of more rows than have room.
SYMBOLIC_ROWS = {48: 6, 11: 6, 9: 5, 8: 4, 7: 4, 6: 6, 5: 5, 4: 4, 3: 3, 2: 2}
SEVERAL_TILES = {11, 9, 8}  # of these numbers the one is taken that takes least
SYMBOLIC_WINDOWS = (14, 8, 7, 6, 5, 4, 3, 2)

FEW = 2  # terms of a sum that takes no longer than its result is written
FEW_OF_MANY = 32  # the same, of results that a cache does not hold
WRITTEN_ROWS = 4  # as many are written at once without loss, as measured

UNALIGNED = 1.5  # times what vectors take that are not packed, as measured


@dataclass(frozen=True)
class Contraction:
    """A sum of products, and the roles of its result's axes: positions in its subscripts."""

    nest: Nest
    vector: int  # the axis that runs along vectors
    row: int | None  # the axis whose tile is unrolled
    data: Load
    weight: Load
    grouped: bool = False  # the vector axis has the places in a group (split_groups.py)
    dot: DotProduct | None = None  # the instruction that does it, where that takes more than lanes
    total: Nest | None = None  # what adds up these sums, of blocks
    in_rows: bool = False  # weights lie row by row, and no tile may reach beyond their ends
    variant: Variant | None = None  # what it is scheduled for, of those that there are
    row_step: int | None = None  # elements of the data from a row to the next, as they lie

    @property
    def buffer(self) -> Buffer:
        return self.nest.buffer

    @property
    def rows(self) -> Dim:
        """How many there are."""
        return 1 if self.row is None else self.extent(self.row)

    def variants(self, target: Target) -> list[Variant]:
        """Tiles for numbers of rows that are known late, those for more rows first."""
        if isinstance(self.rows, int):
            return []
        whole, unit = tile_of(replace(self, variant=None), target).vectors, target.vectors

        def with_cost(least: int, rows: int) -> Variant:
            fits = (v for v in range(whole, 0, -1) if whole % v == 0)
            vectors = next(v for v in fits if v == 1 or (rows + 1) * v < unit.registers)
            cycles = rows * tile_cost(rows, vectors, None, None, self.lanes(target), unit)
            return Variant(least, rows, vectors, round(100 * cycles))

        if len(self.nest.reduce) == 1:
            return [
                with_cost(least, rows) if least in SEVERAL_TILES else Variant(least, rows)
                for least, rows in SYMBOLIC_ROWS.items()
            ]
        return [with_cost(rows, rows) for rows in SYMBOLIC_WINDOWS]

    @property
    def update(self) -> Expr:
        """What is added up."""
        assert self.nest.update is not None
        return self.nest.update.value

    def extent(self, axis: int) -> Dim:
        return self.buffer.shape[axis]

    def axis_var(self, axis: int) -> Var:
        var = self.nest.store.indices[axis]
        assert isinstance(var, Var)
        return var

    def channel(self) -> int:
        """The axis that stands for the channels in the result: that of the groups if there are."""
        at = position_of(self.weight, self.axis_var(self.vector), self.extent(self.vector))
        around = () if at is None else variables(self.weight.indices[at])
        axes = (p for p, i in enumerate(self.nest.store.indices) if i in around)
        return next((p for p in axes if p != self.vector and self.grouped), self.vector)

    def overlaps(self, target: Target) -> bool:
        """Whether the last vectors begin earlier instead of reaching beyond the axis: where weights
        lie in rows, and of a product by groups along a row of the data, and along the places of a
        group where it takes fewer vectors than those that divide it."""
        if self.in_rows:
            return True
        extent = static_size(self.extent(self.vector))
        if not self.grouped or extent is None:
            return False
        is_place = self.vector == len(self.buffer.shape) - 1
        lanes = min(target.vectors.lanes(self.buffer.dtype), _power_of_two_up_to(extent))
        fewer = -(-extent // lanes) < extent // math.gcd(extent, lanes)
        return not is_place or (fewer and self.dot is None)

    def lanes(self, target: Target) -> int:
        """The lanes of a vector: as many as a register has; of products by groups as many as fit
        the axis, or divide it."""
        lanes = target.vectors.lanes(self.buffer.dtype)
        extent = static_size(self.extent(self.vector))
        if not self.grouped or extent is None:
            return lanes
        fits = min(lanes, _power_of_two_up_to(extent))
        return fits if self.overlaps(target) else math.gcd(extent, fits)


def _power_of_two_up_to(n: int) -> int:
    return 1 << (max(1, n).bit_length() - 1)


def find_contraction(s: Schedule, grouped: frozenset[str], target: Target) -> Contraction | None:
    """The kernel's sum of products, with its roles; None if there is none that suits vectors.
    `grouped` are the sums that split_groups took apart."""
    return next(contractions(s, grouped, target, packed=False), None)


def contractions(
    s: Schedule, grouped: frozenset[str], target: Target, *, packed: bool
) -> Iterator[Contraction]:
    """With `packed`, operands are taken to lie in memory as a contraction likes them."""
    for nest in nests(s.kernel.body):
        is_grouped = nest.buffer.name in grouped
        if factors(nest) is None:
            continue
        dot = find_dot_product(nest, target, s.simplifier, packed=packed, grouped=is_grouped)
        if dot is not None:
            yield _with_dot_product(nest, dot, is_grouped)
            continue
        found = on_vectors(s, nest, target, packed=packed, grouped=is_grouped)
        if found is not None:
            yield replace(found, total=_total_of(s, found))


def inner_contractions(s: Schedule, target: Target, *, packed: bool) -> Iterator[Contraction]:
    """Those that stand in other loops, as the steps of a recurrence do."""
    seen = {n.buffer for n in nests(s.kernel.body)}
    for stmt in walk_statements(s.kernel.body):
        nest = nest_of(stmt) if isinstance(stmt, For) else None
        found = None
        if nest is not None and nest.buffer not in seen:
            found = on_vectors(s, nest, target, packed=packed)
        if found is not None:
            seen.add(found.buffer)  # inner loops of it are nests as well
            yield found


def on_vectors(
    s: Schedule, nest: Nest, target: Target, *, packed: bool = False, grouped: bool = False
) -> Contraction | None:
    """A nest as a sum of products of vectors, with its roles; None where it is none. Where vectors
    may run along either operand as it lies, the better one."""
    pair = factors(nest)
    if pair is None:
        return None
    every = (roles(s, nest, data, weight, packed) for data, weight in (pair, pair[::-1]))
    found = [replace(x, grouped=grouped) for x in every if x is not None]
    if packed or len(found) < 2 or any(map(_is_packed, found)):
        return found[0] if found else None
    first, second = found
    # It is stored as it runs; places in a group are the last axis of the sums alone.
    in_order = grouped or all(n == 1 for n in nest.buffer.shape[second.vector + 1 :])
    return second if in_order and rows_are_better(first, second, target) else first


def _is_packed(c: Contraction) -> bool:
    return bool(block_factor(c.weight.indices, c.axis_var(c.vector)))


def rows_are_better(c: Contraction, other: Contraction, target: Target) -> bool:
    """Whether vectors along rows of the data (`other`) are better than those along the columns, of
    which there are few, or few in a group."""
    if static_size(other.extent(other.vector)) is None:
        return False
    dearer = 1 if c.overlaps(target) else UNALIGNED  # vectors that overlap are not aligned either
    return _lane_cost(other, target) * dearer < _lane_cost(c, target)


def _lane_cost(c: Contraction, target: Target) -> float:
    """Cycles per useful multiply-add, up to a constant."""
    tile, lanes = tile_of(c, target), c.lanes(target)
    rows = None if c.row is None else static_size(c.rows)
    columns = static_size(c.extent(c.vector))
    return tile_cost(tile.rows, tile.vectors, rows, columns, lanes, target.vectors) / lanes


def factors(nest: Nest) -> tuple[Load, Load] | None:
    """The factors of a sum of products. A sum of squares reduces one operand; rows that are looked
    up are no rows."""
    update = nest.update
    pair = decoded_factors(update.value) if update is not None else None
    if update is None or pair is None or update.op is not BinaryOp.ADD:
        return None
    if 0 in nest.buffer.shape:  # nothing is multiplied
        return None
    return None if pair[0] == pair[1] or any(_is_indirect(read) for read in pair) else pair


def _total_of(s: Schedule, c: Contraction) -> Nest | None:
    """The sum over blocks, of a contraction's sums within them, if that is all that reads these. It
    has the contraction's rows and columns, and reads every sum once."""
    others = (n for n in nests(s.kernel.body) if n is not c.nest)
    readers = [(n, read) for n in others for read in reads_of(n, c.buffer)]
    if len(readers) != 1:
        return None
    total, read = readers[0]
    is_sum = total.update is not None and total.update.op is BinaryOp.ADD
    kept = {read.indices[p] for p in (c.vector, c.row) if p is not None}
    plain = all(isinstance(i, (Var, Const)) for i in read.indices)
    around = {x.var for x in (*total.axes, *total.reduce) if x.extent != 1}
    once = around <= set(read.indices) and kept <= set(total.store.indices)
    return total if is_sum and plain and once else None


def reads_of(nest: Nest, buffer: Buffer) -> list[Load]:
    return [x for w in nest.writes for x in w.walk() if isinstance(x, Load) and x.buffer == buffer]


def _with_dot_product(nest: Nest, dot: DotProduct, grouped: bool) -> Contraction:
    axes = list(enumerate(nest.store.indices))
    (vector,) = (p for p, i in axes if i == dot.vector)
    own = variables_of(dot.data) - variables_of(dot.weight)
    rows = [p for p, i in axes if i in own and nest.buffer.shape[p] != 1]
    row = rows[-1] if rows else None
    return Contraction(nest, vector, row, dot.data, dot.weight, grouped, dot)


def roles(s: Schedule, nest: Nest, data: Load, weight: Load, packed: bool) -> Contraction | None:
    """Assigns roles (vector, row) to the result's axes; None if none can run along vectors."""
    axes = list(enumerate(nest.store.indices))
    if any(not isinstance(i, Var) and nest.buffer.shape[p] != 1 for p, i in axes):
        return None
    in_data, in_weight = variables_of(data), variables_of(weight)
    long = [(p, i) for p, i in axes if isinstance(i, Var) and nest.buffer.shape[p] != 1]
    columns = [p for p, i in long if i in in_weight - in_data]
    rows = [p for p, i in long if i in in_data - in_weight]
    both = [p for p, i in long if i in in_data & in_weight]
    candidates = columns or [
        p for p in both if packed or _runs_along(s, (data, weight), nest.store.indices[p])
    ]
    if not packed:
        candidates = [p for p in candidates if _runs_along(s, (weight,), nest.store.indices[p])]
    if not candidates:
        return None
    vector = max(candidates, key=lambda p: static_size(nest.buffer.shape[p]) or 1 << 30)
    var = nest.store.indices[vector]
    assert isinstance(var, Var)
    if packed and position_of(weight, var, nest.buffer.shape[vector]) is None:
        return None
    row = rows[-1] if rows else None
    at = None if row is None or packed else nest.store.indices[row]
    step = stride(data.buffer, data.indices, at, s.simplifier) if isinstance(at, Var) else None
    return Contraction(nest, vector, row, data, weight, row_step=step)


def _is_indirect(read: Load) -> bool:
    return any(isinstance(x, Load) for i in read.indices for x in i.walk())


def variables_of(load: Load) -> set[Var]:
    """The loop variables in a read's subscripts."""
    return set().union(*(variables(i) for i in load.indices)) if load.indices else set()


def _runs_along(s: Schedule, reads: tuple[Load, ...], var: object) -> bool:
    return isinstance(var, Var) and all(_vector_readable(s, read, var) for read in reads)


def _vector_readable(s: Schedule, read: Load, var: object) -> bool:
    """Whether neighbours along `var` are neighbours in memory, or every other element there: by
    stride, or within a block."""
    assert isinstance(var, Var)
    if stride(read.buffer, read.indices, var, s.simplifier) in (1, 2):
        return True
    return bool(read.indices) and block_factor(read.indices[-1:], var) is not None


def static_size(extent: Dim) -> int | None:
    return extent if isinstance(extent, int) else None


def size_of(buffer: Buffer) -> int:
    """The bytes of a buffer; 0 where they are known late."""
    return math.prod(static_size(n) or 0 for n in buffer.shape) * buffer.dtype.bytes


def window_rows(c: Contraction) -> set[Var]:
    """Reductions over what is around an element of the data, along axes that no tile is cut from:
    the rows of a window, of whose columns a tile has several."""
    tile = {c.axis_var(a) for a in (c.row, c.vector) if a is not None}
    reduced = {x.var for x in c.nest.reduce if x.extent != 1}
    axes = variables_of(c.data) - variables_of(c.weight) - reduced - tile
    found = set[Var]()
    for i in c.data.indices:
        used = variables(i)
        if used & axes and not used & tile:
            found |= used & reduced
    return found


def tile_of(c: Contraction, target: Target) -> RegisterTile:
    """The register tile for a contraction's rows and columns."""
    rows, symbolic = static_size(c.rows), not isinstance(c.rows, int)
    if c.variant is not None and c.variant.vectors:
        return RegisterTile(c.variant.rows, c.variant.vectors)
    columns, lanes = static_size(c.extent(c.vector)), c.lanes(target)
    sums = 1 if c.total is None else 2
    if symbolic:
        rows = max(SYMBOLIC_ROWS.values() if len(c.nest.reduce) == 1 else SYMBOLIC_WINDOWS)
    is_separate = c.axis_var(c.vector) in variables_of(c.data)
    if is_separate and rows is not None and columns is not None and not symbolic and sums == 1:
        return separate_tile(rows, -(-columns // lanes), target.vectors)
    apart = c.dot is not None and c.dot.instruction.is_sequence
    tile = register_tile(
        rows,
        columns,
        lanes,
        target.vectors,
        stream=_stream(c, target),
        within=c.overlaps(target),
        whole=c.grouped and not c.overlaps(target),
        sums=sums,
        apart=apart,
    )
    if not symbolic:
        return _for_stores(c, _with_near_rows(c, tile, target), target)
    most = 1 if c.variant is None else c.variant.rows
    return RegisterTile(min(most, tile.rows), tile.vectors)


def few_terms(c: Contraction, target: Target, held: int) -> bool:
    """Whether the sums of a product take no longer than to write them. That is so for more terms if
    the result leaves caches that have `held` bytes, and the weights stay in the near ones."""
    depth = math.prod(static_size(x.extent) or 0 for x in c.nest.reduce)
    if not 0 < depth <= FEW_OF_MANY:
        return False
    size = c.buffer.dtype.bytes
    result = size_of(c.buffer)
    weights = depth * (static_size(c.extent(c.vector)) or 0) * size
    stay = 2 * weights <= near_cache(target)
    return depth <= FEW or (stay and result > held)


def _for_stores(c: Contraction, tile: RegisterTile, target: Target) -> RegisterTile:
    """The tile of a product that takes no longer than its result is written, row by row: of few
    rows, and of as many vectors as fit, for lines one behind the other are written fastest."""
    last, columns = len(c.buffer.shape) - 1, static_size(c.extent(c.vector))
    in_rows = (c.row, c.vector) == (last - 1, last) and c.dot is None and not c.grouped
    if not in_rows or columns is None or not few_terms(c, target, first_cache(target)[0]):
        return tile
    rows, total = min(WRITTEN_ROWS, tile.rows), -(-columns // c.lanes(target))
    most = max(1, min((target.vectors.registers - 1) // (rows + 1), total))
    return RegisterTile(rows, -(-total // -(-total // most)))


def _with_near_rows(c: Contraction, tile: RegisterTile, target: Target) -> RegisterTile:
    """The tile with no more rows than the first cache keeps of the data beside the weights' lines:
    of rows a page apart each step brings every line anew otherwise."""
    if c.row_step is None:
        return tile
    places = lines_apart(abs(c.row_step) * c.data.buffer.dtype.bytes, target) - tile.vectors - 1
    if tile.rows <= max(1, places):
        return tile
    rows, columns = static_size(c.rows), static_size(c.extent(c.vector))
    lanes, unit = c.lanes(target), target.vectors

    def cost(r: int) -> float:
        return tile_cost(r, tile.vectors, rows, columns, lanes, unit)

    return RegisterTile(min(range(max(1, places), 0, -1), key=cost), tile.vectors)


def _stream(c: Contraction, target: Target) -> Stream | None:
    """The weights that all rows of a product read for the same columns."""
    depth = math.prod(static_size(x.extent) or 0 for x in c.nest.reduce)
    others = [a for a in range(len(c.buffer.shape)) if a not in (c.row, c.vector)]
    rows = math.prod(static_size(c.extent(a)) or 0 for a in others)
    if not depth or c.grouped or c.dot is not None:
        return None
    return Stream(depth, rows, tuple(m for m in target.memories if m.cached))
