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

from attention_cases import LOWEST, attention, softmax
from chip_kernels import Case
from matrix_bounds import independent_bound
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from attention_chips import ACC, LANES, LOCAL, softmax_engine, vector_core

from tilewright import bf16, cast, exp, f32, grid, kernel, local, reduce
from tilewright.analyze.nests import nests
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, Kernel
from tilewright.ir.tensor_type import Layout
from tilewright.plan.map_values import RowLayout, map_accumulation, map_values
from tilewright.plan.unit_plan import nest_with, nests_with
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop
from tilewright.target.target import Target


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
    map_values(s, target, row, RowLayout((along.var, row.var), ((along.var, LANES),)), PARTS)
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
        map_values(s, target, i, layout, PARTS)
        return
    s.split_init(s.buffer(name))
    (over,) = _loops(s, name)
    outer, inner = s.split(over, LANES)
    map_values(s, target, outer, RowLayout((outer.var, inner.var), ()), PARTS)
    nest = next(n for n in nests_with(s.kernel.body, s.buffer(name)) if n.update is not None)
    (along,) = (x.var for x in nest.reduce)
    map_accumulation(s, target, Loop(nest.axes[0].var), along)


def _instruction(target: Target, name: str) -> Instruction:
    return next(i for i in target.instructions if i.name == name)


# ---------------------------------------------------------------- softmax, requantised addition


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


# ---------------------------------------------------------------- beside build


CELLS: tuple[tuple[Case, Callable[[], Target], Callable[[Target], ChipKernel]], ...] = (
    (attention(128, 64), vector_core, lambda chip: attention_by_hand(128, 64, chip)),
    (softmax(128, 128), softmax_engine, lambda chip: softmax_by_hand(128, 128, 8, chip)),
    (attention(256, 64), vector_core, lambda chip: attention_by_hand(256, 64, chip)),
)


def measure(case: Case, chip: Target, make: Callable[[Target], ChipKernel]) -> Row:
    """A kernel by hand and built, each compared with numpy."""
    hand = make(chip)
    start = time.perf_counter()
    built = build_chip(case.kernel, chip)
    seconds = time.perf_counter() - start
    arguments = case.arguments()
    wanted = case.reference(*arguments[:-1])
    exact = all(case.agrees(x(*case.arguments()), wanted) for x in (hand, built))
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
    rows = [measure(case, chip(), make) for case, chip, make in CELLS]
    Console(highlight=False, width=None if sys.stdout.isatty() else 130).print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2))
    return int(not all(r.exact for r in rows))


if __name__ == "__main__":
    sys.exit(main())
