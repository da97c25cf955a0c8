"""Kernels that were scheduled by hand, beside what `build` makes of them alone: in simulated
cycles, the same on every machine.

    python benchmarks/by_hand.py                a table; some seconds
    python benchmarks/by_hand.py --json FILE    all figures as well

By hand means: tiles, orders, stages and parts are written down here, with the primitives of
docs/primitives.md; which instructions do an element-wise nest is found (`map_values`). The bound is
counted by matrix_bounds.py, which shares no code with the planner. Results are compared with numpy.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from attention_cases import LOWEST, attention, softmax
from chip_kernels import SHIFT, Case
from engine import chained
from matrix_bounds import independent_bound
from matrix_cases import two_convs
from rich.console import Console
from rich.table import Table
from vector_cases import max_pool, rescaled

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from attention_chips import ACC, LANES, LOCAL, softmax_engine, vector_core

from tilewright import bf16, cast, exp, f32, grid, i8, i32, kernel, local, reduce
from tilewright.analyze.nests import nests
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Accumulate, For, Kernel, Store, walk_statements
from tilewright.ir.tensor_type import Layout
from tilewright.plan.map_values import Parts, RowLayout, map_accumulation, map_values
from tilewright.plan.unit_plan import nest_with, nests_with
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.vta import vta


@dataclass(frozen=True)
class Row:
    """Cycles by hand, of `build`, and of the bound; whether both results are right."""

    kernel: str
    chip: str
    by_hand: int
    built: int
    bound: int
    exact: bool
    compile_s: float


# ---------------------------------------------------------------- attention


def attention_steps(n: int, d: int) -> Kernel:
    """A head with an array for each step, as it lies in a chip's memories."""

    @kernel
    def attention(Q: bf16[n, d], K: bf16[n, d], V: bf16[n, d], Y: bf16[n, d]):
        rows = local(bf16[n, d])
        for i, k in grid(n, d):
            rows[i, k] = Q[i, k]
        keys = local(bf16[n, d])
        for j, k in grid(n, d):
            keys[j, k] = K[j, k]
        scores = local(f32[n, n])
        for i, j in grid(n, n):
            scores[i, j] = 0.0
            for k in reduce(d):
                scores[i, j] += cast(f32, rows[i, k]) * cast(f32, keys[j, k])
        most = local(f32[n])
        for i in grid(n):
            most[i] = LOWEST
            for j in reduce(n):
                most[i] = max(most[i], scores[i, j])
        powers = local(f32[n, n])
        for i, j in grid(n, n):
            powers[i, j] = exp(scores[i, j] - most[i])
        total = local(f32[n])
        for i in grid(n):
            total[i] = 0.0
            for j in reduce(n):
                total[i] += powers[i, j]
        weights = local(bf16[n, n])
        for i, j in grid(n, n):
            weights[i, j] = cast(bf16, powers[i, j] / total[i])
        values = local(bf16[n, d])
        for j, k in grid(n, d):
            values[j, k] = V[j, k]
        found = local(f32[n, d])
        for i, k in grid(n, d):
            found[i, k] = 0.0
            for j in reduce(n):
                found[i, k] += cast(f32, weights[i, j]) * cast(f32, values[j, k])
        for i, k in grid(n, d):
            Y[i, k] = cast(bf16, found[i, k])

    return attention.kernel


TILE, PARTS = 16, 4  # rows; parts of them that take turns in the vector unit
IN_BLOCKS = Layout((1, 0), ((1, LANES),))  # rows of 16 elements, one after the other
KEYS, VALUES = Layout((0, 1), ((1, LANES), (0, LANES))), Layout((1, 0), ((0, LANES), (1, LANES)))
HELD = {
    "rows": (LOCAL, IN_BLOCKS), "keys": (LOCAL, KEYS), "scores": (ACC, IN_BLOCKS),
    "most": (ACC, None), "powers": (ACC, IN_BLOCKS), "total": (ACC, None),
    "weights": (LOCAL, IN_BLOCKS), "values": (LOCAL, VALUES), "found": (ACC, IN_BLOCKS),
}  # fmt: skip
STAGES = (  # of the statements of a tile: steps behind the load of its rows
    0,  # rows
    1,  # scores
    1, 2,  # the number that a maximum begins with, the maxima
    2, 2,  # differences and powers
    1, 2,  # 0, and the totals
    2, 2,  # weights, in 32 bits and in 16
    3,  # values
    4, 5,  # the result in 16 bits, and its store
)  # fmt: skip


def attention_by_hand(n: int, d: int, target: Target) -> ChipKernel:
    """Tiles of 16 rows, of which the load queue, the matrix unit, the vector unit and the store
    queue each have another one; keys come block by block before all, and values."""
    s = Schedule(attention_steps(n, d))
    layouts = {"Q": IN_BLOCKS, "K": KEYS, "V": VALUES, "Y": IN_BLOCKS}
    for name, layout in layouts.items():
        s.pack_layout(s.buffer(name), layout)
    result = next(x for x in nests(s.kernel.body) if x.buffer.name == "Y")
    over, along = (Loop(x.var) for x in result.axes)
    tile, row = s.split(over, TILE)
    s.reorder(tile, row, along)
    for name in reversed(HELD):
        s.compute_at(s.buffer(name), tile)
    for name, (memory, layout) in HELD.items():
        held = s.set_memory(s.buffer(name), memory)
        if layout is not None:
            s.pack_layout(held, layout)
    for name in ("scores", "found"):
        _product(s, target, name, sums_outermost=name == "found")
    for name in ("rows", "values"):
        map_values(s, target, _loops(s, name)[0])
    _in_blocks(s, target, "keys")
    for name in ("most", "powers", "total", "weights"):
        _rows(s, target, name)
    map_values(s, target, row, RowLayout((along.var, row.var), ((along.var, LANES),)), Parts(PARTS))
    for name in ("keys", "values"):
        s.hoist(s.buffer(name), tile)
    s.pipeline(tile, STAGES)
    return stream_kernel(s, target, ("Q", "K", "V", "Y"), layouts)


def _loops(s: Schedule, name: str) -> list[Loop]:
    """The loops of the nest that computes a buffer, those of its sums behind the others."""
    nest = nest_with(s, s.buffer(name))
    return [Loop(x.var) for x in (*nest.axes, *nest.reduce)]


def _product(s: Schedule, target: Target, name: str, *, sums_outermost: bool) -> None:
    """Blocks of 16 columns and 16 terms for the matrix unit, which takes all rows of a tile."""
    i, j, k = _loops(s, name)
    columns, column = s.split(j, LANES)
    terms, term = s.split(k, LANES)
    s.reorder(terms, term)
    s.fold_init(s.buffer(name), terms)
    around = (terms, columns) if sums_outermost else (columns, terms)
    s.reorder(*around, i, column)
    s.tensorize(i, _instruction(target, "matmul"))


def _in_blocks(s: Schedule, target: Target, name: str) -> None:
    """A load for each block of 16 keys, so that scores begin with the first."""
    j, k = _loops(s, name)
    blocks, key = s.split(j, LANES)
    parts, part = s.split(k, LANES)
    s.reorder(blocks, parts, part, key)
    s.tensorize(s.fuse(parts, part), _instruction(target, "load_bf16"))


def _rows(s: Schedule, target: Target, name: str) -> None:
    """An element-wise nest, or a number for each row, on instructions of rows."""
    if HELD[name][1] is not None:
        i, j = _loops(s, name)
        layout = RowLayout((j.var, i.var), ((j.var, LANES),), blocked=True)
        map_values(s, target, i, layout, Parts(PARTS))
        return
    s.split_init(s.buffer(name))
    (over,) = _loops(s, name)
    outer, inner = s.split(over, LANES)
    map_values(s, target, outer, RowLayout((outer.var, inner.var), ()), Parts(PARTS))
    nest = next(n for n in nests_with(s.kernel.body, s.buffer(name)) if n.update is not None)
    (along,) = (x.var for x in nest.reduce)
    map_accumulation(s, target, Loop(nest.axes[0].var), along)


def _instruction(target: Target, name: str) -> Instruction:
    return next(i for i in target.instructions if i.name == name)


# ---------------------------------------------------------------- softmax


def softmax_by_hand(n: int, m: int, rows: int, target: Target) -> ChipKernel:
    """So many rows at a time for an instruction that does all of it, in place."""

    @kernel
    def softmax(X: f32[n, m], Y: f32[n, m]):
        for t in grid(n // rows):
            held = local(f32[rows, m])
            for i, j in grid(rows, m):
                held[i, j] = X[t * rows + i, j]
            for i in grid(rows):
                most: f32 = LOWEST
                for j in reduce(m):
                    most = max(most, held[i, j])
                total: f32 = 0.0
                for j in reduce(m):
                    total += exp(held[i, j] - most)
                for j in grid(m):
                    held[i, j] = exp(held[i, j] - most) / total
            for i, j in grid(rows, m):
                Y[t * rows + i, j] = held[i, j]

    s = Schedule(softmax.kernel)
    s.set_memory(s.buffer("held"), ACC)
    (tiles,) = (x for x in s.kernel.body if isinstance(x, For))
    load, steps, store = (x for x in tiles.body if isinstance(x, For))
    s.tensorize(Loop(steps.var), _instruction(target, "softmax"))
    for move in (load, store):
        (along,) = (x for x in move.body if isinstance(x, For))
        s.split(Loop(along.var), LANES)
        map_values(s, target, Loop(move.var))
    s.pipeline(Loop(tiles.var), (0, 2, 3))
    return stream_kernel(s, target, ("X", "Y"))


# ---------------------------------------------------------------- maxima


def pool_steps(blocks: int, n: int, rows: int) -> Kernel:
    """Maxima of 3x3 windows that move by two, of an array for each phase of rows and columns, so
    many rows of the result at a time."""
    m, high, per = n + 1, rows + 1, n // rows

    @kernel
    def pool(
        A: i8[blocks, m, m, 16], B: i8[blocks, m, n, 16], C: i8[blocks, n, m, 16],
        D: i8[blocks, n, n, 16], Y: i8[blocks, n, n, 16],
    ):  # fmt: skip
        for t in grid(blocks * per):
            a = local(i32[high, m, 16])
            for y, x, l in grid(high, m, 16):
                a[y, x, l] = cast(i32, A[t // per, t % per * rows + y, x, l])
            b = local(i32[high, n, 16])
            for y, x, l in grid(high, n, 16):
                b[y, x, l] = cast(i32, B[t // per, t % per * rows + y, x, l])
            for q in reduce(2):
                for y, x, l in grid(high, n, 16):
                    b[y, x, l] = max(b[y, x, l], a[y, x + q, l])
            c = local(i32[rows, m, 16])
            for y, x, l in grid(rows, m, 16):
                c[y, x, l] = cast(i32, C[t // per, t % per * rows + y, x, l])
            d = local(i32[rows, n, 16])
            for y, x, l in grid(rows, n, 16):
                d[y, x, l] = cast(i32, D[t // per, t % per * rows + y, x, l])
            for q in reduce(2):
                for y, x, l in grid(rows, n, 16):
                    d[y, x, l] = max(d[y, x, l], c[y, x + q, l])
            for q in reduce(2):
                for y, x, l in grid(rows, n, 16):
                    d[y, x, l] = max(d[y, x, l], b[y + q, x, l])
            for y, x, l in grid(rows, n, 16):
                Y[t // per, t % per * rows + y, x, l] = cast(i8, d[y, x, l])

    return pool.kernel


def pool_by_hand(target: Target) -> ChipKernel:
    """Half a picture of 16 channels at a time, compared in place; a tile leaves row by row, so that
    the next one's loads wait for a row alone."""
    rows = 14
    s = Schedule(pool_steps(4, 28, rows))
    for name in "abcd":
        s.set_memory(s.buffer(name), "acc")
    tiles = _in_instructions(s, target, stores=rows)
    s.pipeline(tiles, (0,) * 7 + (1,))
    return stream_kernel(s, target)


def pool_arrays(x: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    """The picture with its border, in blocks of 16 channels, an array for each phase."""
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-128)
    blocks = np.moveaxis(wide.reshape(4, 16, *wide.shape[1:]), 1, -1)
    phases = [blocks[:, i : 57 + i : 2, j : 57 + j : 2] for i, j in np.ndindex(2, 2)]
    sizes = [(29 - i, 29 - j) for i, j in np.ndindex(2, 2)]
    cut = (p[:, :h, :w] for p, (h, w) in zip(phases, sizes, strict=True))
    return [*map(np.ascontiguousarray, cut), np.zeros((4, 28, 28, 16), np.int8)]


def in_channels(result: np.ndarray) -> np.ndarray:
    return np.moveaxis(result, -1, 1).reshape(64, 28, 28)


# ---------------------------------------------------------------- additions, convolutions


def addition_steps(parts: int) -> Kernel:
    """Sums of two arrays times numbers as a convolution of both, 16 channels at a time."""
    size = 784 // parts

    @kernel
    def addition(
        x: i8[128, 784], y: i8[128, 784], w: i8[16, 32, 1, 1], b: i32[16], z: i8[128, 784]
    ):
        weights = local(i8[16, 32, 1, 1])
        for f, c, r, s in grid(16, 32, 1, 1):
            weights[f, c, r, s] = w[f, c, r, s]
        bias = local(i32[16])
        for f in grid(16):
            bias[f] = b[f]
        for t in grid(8 * parts):
            both = local(i8[32, 1, size])
            for c, o, p in grid(16, 1, size):
                both[c, o, p] = x[t // parts * 16 + c, t % parts * size + p]
            for c, o, p in grid(16, 1, size):
                both[c + 16, o, p] = y[t // parts * 16 + c, t % parts * size + p]
            made = local(i8[16, 1, size])
            for f, h, v in grid(16, 1, size):
                total: i32 = 0
                for c, r, s in reduce(32, 1, 1):
                    total += cast(i32, both[c, h + r, v + s]) * cast(i32, weights[f, c, r, s])
                made[f, h, v] = cast(i8, max(min(total + bias[f] >> 7, 127), -128))
            for f, o, p in grid(16, 1, size):
                z[t // parts * 16 + f, t % parts * size + p] = made[f, o, p]

    return addition.kernel


def addition_by_hand(target: Target) -> ChipKernel:
    """Half a picture of 16 channels at a time: it is the bus that takes longest."""
    s = Schedule(addition_steps(2))
    for name in ("weights", "bias", "both", "made"):
        s.set_memory(s.buffer(name), "local")
    s.pipeline(_in_instructions(s, target), (0, 0, 2, 3))
    return stream_kernel(s, target)


def addition_arrays(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    """With the numbers on a diagonal."""
    one = np.eye(16, dtype=np.int8)[..., None, None]
    numbers = np.concatenate((77 * one, 51 * one), 1)
    flat = [a.reshape(128, 784) for a in (x, y, z)]
    return [*flat[:2], numbers, np.full(16, 64, np.int32), flat[2]]


def _in_instructions(s: Schedule, target: Target, stores: int = 1) -> Loop:
    """Gives nests to instructions, stores in so many parts; returns the loop over tiles."""
    first = [x for x in s.kernel.body if isinstance(x, For)]
    *before, tiles = first
    for nest in (*before, *(x for x in tiles.body if isinstance(x, For))):
        inner = list(walk_statements((nest,)))
        made = {x.buffer.name for x in inner if isinstance(x, Store)}
        if "made" in made:
            s.tensorize(Loop(nest.var), _instruction(target, "conv"))
        elif any(isinstance(x, Accumulate) for x in inner):
            map_accumulation(s, target, Loop(nest.var))
        else:
            map_values(s, target, Loop(nest.var), None, Parts(1, stores))
    return Loop(tiles.var)


def chain_steps(n: int, c: int) -> Kernel:
    """A 3x3 convolution behind a 1x1, with an array between them."""

    @kernel
    def chain(
        X: i8[c, n, n], Q: i8[c, c, 1, 1], B: i32[c], P: i8[c, c, 3, 3], D: i32[c], Y: i8[c, n, n]
    ):
        first = local(i32[c, n, n])
        middle = local(i8[c, n, n])
        second = local(i32[c, n, n])
        for f, h, w in grid(c, n, n):
            first[f, h, w] = 0
            for i, r, s in reduce(c, 1, 1):
                first[f, h, w] += cast(i32, X[i, h + r, w + s]) * cast(i32, Q[f, i, r, s])
        for f_m, h_m, w_m in grid(c, n, n):
            total = first[f_m, h_m, w_m] + B[f_m] >> SHIFT
            middle[f_m, h_m, w_m] = cast(i8, max(min(total, 127), 0))
        for g, k, l in grid(c, n, n):
            second[g, k, l] = 0
            for f, r, s in reduce(c, 3, 3):
                i = k + r - 1
                j = l + s - 1
                x = middle[f, i, j] if 0 <= i < n and 0 <= j < n else 0
                second[g, k, l] += cast(i32, x) * cast(i32, P[g, f, r, s])
        for g_y, h_y, w_y in grid(c, n, n):
            total = second[g_y, h_y, w_y] + D[g_y] >> SHIFT
            Y[g_y, h_y, w_y] = cast(i8, max(min(total, 127), -128))

    return chain.kernel


def chain_by_hand(target: Target) -> ChipKernel:
    """Four rows of the result at a time, of seven tiles in which the rows of the picture and of
    what is between that the next ones read as well are kept (engine.py)."""
    return chained(chain_steps(28, 64), target, rows=4, lap=7)


def chain_arrays(*arrays: np.ndarray) -> list[np.ndarray]:
    x, v, *rest = arrays
    return [x, v[..., None, None], *rest]


# ---------------------------------------------------------------- beside build


Pack = Callable[..., list[np.ndarray]]


def as_they_are(*arrays: np.ndarray) -> list[np.ndarray]:
    return [*arrays]


@dataclass(frozen=True)
class Cell:
    """A kernel that was scheduled by hand for a chip: what arrays that schedule takes, made of the
    kernel's, and how its result is read."""

    case: Case
    chip: Callable[[], Target]
    by_hand: Callable[[Target], ChipKernel]
    pack: Pack = as_they_are
    unpack: Callable[[np.ndarray], np.ndarray] = lambda result: result


CELLS = (
    Cell(attention(128, 64), vector_core, lambda chip: attention_by_hand(128, 64, chip)),
    Cell(softmax(128, 128), softmax_engine, lambda chip: softmax_by_hand(128, 128, 8, chip)),
    Cell(max_pool(64, 56, 3, 2, 1), vta, pool_by_hand, pool_arrays, in_channels),
    Cell(
        rescaled(128, 28), conv_engine, addition_by_hand, addition_arrays,
        lambda result: result.reshape(128, 28, 28),
    ),
    Cell(two_convs(28, 64), conv_engine, chain_by_hand, chain_arrays),
    Cell(attention(256, 64), vector_core, lambda chip: attention_by_hand(256, 64, chip)),
)  # fmt: skip


def measure(cell: Cell) -> Row:
    """A kernel by hand and built, each compared with numpy."""
    case, chip = cell.case, cell.chip()
    hand = cell.by_hand(chip)
    start = time.perf_counter()
    built = build_chip(case.kernel, chip)
    seconds = time.perf_counter() - start
    arguments = case.arguments()
    wanted = case.reference(*arguments[:-1])
    exact = case.agrees(cell.unpack(hand(*cell.pack(*arguments))), wanted)
    exact &= case.agrees(built(*case.arguments()), wanted)
    bound = round(independent_bound(case.kernel, chip) or 0)
    return Row(case.name, chip.name, hand.cycles, built.cycles, bound, exact, seconds)


def table(rows: Sequence[Row]) -> Table:
    shown = Table(box=None)
    for name in ("kernel", "chip"):
        shown.add_column(name)
    for name in ("by hand", "of the bound", "build", "build / by hand", "compiled in"):
        shown.add_column(name, justify="right")
    for r in rows:
        cells = (
            f"{r.by_hand:,}", f"{r.bound / r.by_hand:.1%}", f"{r.built:,}",
            f"{r.built / r.by_hand:.3f}", f"{r.compile_s:.1f} s",
        )  # fmt: skip
        shown.add_row(r.kernel, r.chip, *cells if r.exact else ("✗",))
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    rows = [measure(cell) for cell in CELLS]
    Console(highlight=False, width=None if sys.stdout.isatty() else 130).print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2))
    return int(not all(r.exact for r in rows))


if __name__ == "__main__":
    sys.exit(main())
