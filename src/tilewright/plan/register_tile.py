"""The tile of a contraction's result that is kept in registers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.target.target import Memory, VectorUnit

ROW, VECTOR = 0.1, 0.03  # parts of a step that the tile's rows share, and that its vectors share
REST = 1.01  # for a last tile with code of its own
SLACK = 1.25  # sums by those that hide the latency: with no more, each load that is late stalls


@dataclass(frozen=True)
class RegisterTile:
    """How many rows and how many vectors are kept at once.

    Each step of the reduction loads `vectors` vectors of one operand and broadcasts `rows` elements
    of the other for rows * vectors multiply-adds. The accumulators and the loaded vectors must fit
    the registers; the more accumulators, the fewer loads each multiply-add needs (BLIS, TOMS 2016).
    """

    rows: int
    vectors: int


@dataclass(frozen=True)
class Stream:
    """What all tiles of the same columns read, one after another: a vector for each of `depth`
    steps and each vector of the tile. After the first time it comes from the first of the `caches`
    of which it takes no more than half. The rows that a tile is cut from are there `rows` times, as
    those of a picture are."""

    depth: int
    rows: int
    caches: tuple[Memory, ...]

    def cycles(self, rows: int, tile_rows: int, vectors: int, unit: VectorUnit) -> float:
        """How long one step's vectors take to come, apart from the loads themselves."""
        size = vectors * unit.bytes
        if self.rows * rows <= tile_rows:
            return 0.0
        for cache in self.caches:
            if cache.size is not None and self.depth * size <= cache.size // 2:
                return size * cache.shared_by / (cache.bandwidth or math.inf)
        return 0.0


def register_tile(
    rows: int | None,
    columns: int | None,
    lanes: int,
    unit: VectorUnit,
    *,
    stream: Stream | None = None,
    within: bool = False,
    whole: bool = False,
    sums: int = 1,
    apart: bool = False,
) -> RegisterTile:
    """The tile for a result of rows x columns (None: not known), vectors running along columns;
    with `within`, no tile is wider than the columns, with `whole`, none reaches beyond them. Each
    element has so many `sums`. The `stream` is what comes along the columns. Products that are
    added up `apart`, by an instruction of their own, need a register, and no sum waits for them.
    """
    if apart:
        unit = replace(unit, registers=unit.registers - 1, latency=1)

    def cost_of(r: int, v: int) -> float:
        """As tile_cost, but that a last tile has no more vectors than are left."""
        if columns is None or within:
            return tile_cost(r, v, rows, columns, lanes, unit, stream)
        total = -(-columns // lanes)
        full, rest = divmod(total, v)
        parts = [(full * v, v), (rest, rest)]
        costs = [n * tile_cost(r, w, rows, n * lanes, lanes, unit, stream) for n, w in parts if n]
        return sum(costs) / total * waste(columns, lanes) * (REST if full and rest else 1)

    best, best_cost = RegisterTile(1, 1), float("inf")
    filled = (columns or 0) // lanes if within else -(-(columns or 0) // lanes)
    most_vectors = 8 if columns is None else max(1, filled)
    for vectors in range(1, min(8, most_vectors) + 1):
        if whole and columns is not None and columns % (vectors * lanes):
            continue
        most_rows = (unit.registers - vectors - 1) // (vectors * sums)
        for r in range(1, min(most_rows, rows or most_rows) + 1):
            cost = cost_of(r, vectors)
            if cost < best_cost:
                best, best_cost = RegisterTile(r, vectors), cost
    return best


def separate_tile(rows: int | None, vectors: int, unit: VectorUnit) -> RegisterTile:
    """The tile where products share weights along rows alone, as in windows of channels of their
    own: enough sums to hide the latency, and no more, for code grows with them. Each product loads
    a vector of data; weights are loaded once for all rows of a tile, so that rows save loads."""
    most = 2 * math.ceil(unit.latency)
    tiles = (
        RegisterTile(r, v) for v in range(1, min(most, vectors) + 1) for r in range(1, most + 1)
    )
    fits = [t for t in tiles if t.rows * t.vectors <= most and t.rows <= (rows or most)]

    def order(t: RegisterTile) -> tuple[float, int, int]:
        loads = waste(rows, t.rows) * waste(vectors, t.vectors) * (1 + 1 / t.rows)
        return loads * (1 if 2 * t.rows * t.vectors >= most else 2), -t.rows * t.vectors, -t.rows

    return min(fits, key=order)


def tile_cost(
    r: int,
    v: int,
    rows: int | None,
    columns: int | None,
    lanes: int,
    unit: VectorUnit,
    stream: Stream | None = None,
) -> float:
    """Cycles per useful multiply-add of a vector, up to a constant."""
    rate = max((n for _, n in unit.multiply_adds), default=1.0)
    work = r * v
    comes = 0.0 if stream is None or rows is None else stream.cycles(rows, r, v, unit)
    steps = max(work / rate, (r + v) / 2, SLACK * unit.latency, comes)  # two loads a cycle
    wasted = waste(rows, r) * waste(columns, v * lanes)
    return steps / work * wasted * (1 + ROW / r + VECTOR / v)


def waste(extent: int | None, tile: int) -> float:
    """Iterations done for each one wanted when tiles are whole."""
    if extent is None or extent == 0:
        return 1.0
    return -(-extent // tile) * tile / extent
