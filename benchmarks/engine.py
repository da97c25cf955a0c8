"""A convolution engine, whose instruction is a whole convolution over a tile: in simulated cycles,
the same on every machine.

    python benchmarks/engine.py                 three tables; what `make bench-engine` runs
    python benchmarks/engine.py --json FILE     all figures as well

First a picture of 2048×2048×16 in four tiles: the instructions in the order of their issue, what
stands before the loop over tiles, in it and behind it; loads with their rows and columns. The
picture's padding is the engine's own, or stands around the picture in DRAM. Then 7×7 windows with
little local memory, on the engine and on the signal processor, which keep what consecutive tiles
share in a ring buffer, or do not. Then two convolutions in a chain, whose intermediate never leaves
the local memory, beside one layer after the other. Results are compared with numpy, to the bit.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from dsp import in_bytes
from dsp import layer as channels_last
from rich.console import Console
from rich.table import Table

from tilewright import cast, dims, grid, i8, i32, kernel, local, reduce
from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.chip import build_chip, build_choice, lower_bound
from tilewright.chip_kernel import ChipKernel, stream_kernel
from tilewright.ir.loop import Call, For, Kernel, Store, walk_statements
from tilewright.ir.python.words import out
from tilewright.plan.choose_tiles import Choice
from tilewright.plan.find_mappings import find_mappings
from tilewright.plan.map_values import map_values
from tilewright.plan.one_loop import flatten, stages_of
from tilewright.plan.unit_plan import Plan, nests_with
from tilewright.schedule.core.state import Loop
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp

C, F, G, H, W, R = dims("C F G H W R", min=1)


@kernel
def layer(X: i8[C, H, W], Q: i8[F, C, R, R], B: i32[F], Y: out(i8[F, H, W])):
    """A convolution with padding, and what follows it in a network of bytes."""
    A = local(i32[F, H, W])
    for f, h, w in grid(F, H, W):
        A[f, h, w] = 0
        for c, r, s in reduce(C, R, R):
            i = h + r - R // 2
            j = w + s - R // 2
            x = X[c, i, j] if 0 <= i < H and 0 <= j < W else 0
            A[f, h, w] += cast(i32, x) * cast(i32, Q[f, c, r, s])
    for f, h, w in grid(F, H, W):
        Y[f, h, w] = cast(i8, max(min((A[f, h, w] + B[f]) >> 10, 127), 0))


@kernel
def padded(X: i8[C, H + R - 1, W + R - 1], Q: i8[F, C, R, R], B: i32[F], Y: out(i8[F, H, W])):
    """The same, of a picture with padding around it."""
    A = local(i32[F, H, W])
    for f, h, w in grid(F, H, W):
        A[f, h, w] = 0
        for c, r, s in reduce(C, R, R):
            A[f, h, w] += cast(i32, X[c, h + r, w + s]) * cast(i32, Q[f, c, r, s])
    for f, h, w in grid(F, H, W):
        Y[f, h, w] = cast(i8, max(min((A[f, h, w] + B[f]) >> 10, 127), 0))


@kernel
def two_layers(
    X: i8[C, H, W],
    Q: i8[F, C, R, R],
    B: i32[F],
    P: i8[G, F, R, R],
    D: i32[G],
    Y: out(i8[G, H, W]),
):
    """One after another: around the intermediate there are zeros."""
    first = local(i32[F, H, W])
    middle = local(i8[F, H, W])
    second = local(i32[G, H, W])
    for f, h, w in grid(F, H, W):
        first[f, h, w] = 0
        for c, r, s in reduce(C, R, R):
            i = h + r - R // 2
            j = w + s - R // 2
            x = X[c, i, j] if 0 <= i < H and 0 <= j < W else 0
            first[f, h, w] += cast(i32, x) * cast(i32, Q[f, c, r, s])
    for f_m, h_m, w_m in grid(F, H, W):
        middle[f_m, h_m, w_m] = cast(i8, max(min((first[f_m, h_m, w_m] + B[f_m]) >> 10, 127), 0))
    for g, k, l in grid(G, H, W):
        second[g, k, l] = 0
        for f, r, s in reduce(F, R, R):
            i = k + r - R // 2
            j = l + s - R // 2
            x = middle[f, i, j] if 0 <= i < H and 0 <= j < W else 0
            second[g, k, l] += cast(i32, x) * cast(i32, P[g, f, r, s])
    for g_y, h_y, w_y in grid(G, H, W):
        Y[g_y, h_y, w_y] = cast(i8, max(min((second[g_y, h_y, w_y] + D[g_y]) >> 10, 127), 0))


# ---------------------------------------------------------------- what they compute


def convolved(x: np.ndarray, q: np.ndarray, b: np.ndarray, *, padding: bool = True) -> np.ndarray:
    """In f32, which is exact: no sum reaches 2**24."""
    window = q.shape[2]
    assert q[0].size << 14 < 1 << 24
    around = window // 2 if padding else 0
    wide = np.pad(x, ((0, 0), (around, around), (around, around)))
    h, w = (n - window + 1 for n in wide.shape[1:])
    sums = np.zeros((len(q), h * w), np.float32)
    for r, s in np.ndindex(window, window):
        shifted = wide[:, r : r + h, s : s + w].astype(np.float32).reshape(len(x), -1)
        sums += q[:, :, r, s].astype(np.float32) @ shifted
    scaled = (sums.astype(np.int32) + b[:, None]) >> 10
    return np.clip(scaled, 0, 127).astype(np.int8).reshape(-1, h, w)


def random_arrays(program: Kernel) -> list[np.ndarray]:
    """Inputs for a kernel: bytes, and biases of some thousands."""
    rng = np.random.default_rng(0)
    most = {i8: 128, i32: 4000}
    found = ((b, most[b.dtype]) for b in program.inputs)
    return [rng.integers(-n, n, b.shape).astype(b.dtype.numpy) for b, n in found]


def run(built: ChipKernel, inputs: Sequence[np.ndarray]) -> np.ndarray:
    (made,) = built.source.outputs
    return built(*inputs, np.zeros(made.shape, made.dtype.numpy))


# ---------------------------------------------------------------- schedules


def in_tiles(program: Kernel, chip: Target, rows: int, columns: int, *, rings: bool) -> ChipKernel:
    """A convolution with tiles of so many rows and columns of the result."""
    _, nest, mapping = next(find_mappings(program, chip))
    _, across, along = (x.var for x in nest.axes)
    loops = [*nest.axes, *nest.reduce]
    tile = {x.var: int(x.extent) for x in loops} | {across: rows, along: columns}
    plan = Plan(nest, mapping, tile, tuple(x.var for x in loops), rings=rings)
    return build_choice(program, chip, Choice(plan, 0.0))


def chained(program: Kernel, chip: Target, rows: int, lap: int = 1) -> ChipKernel:
    """Two convolutions, `rows` rows of the second's result at a time. In a lap of several tiles,
    rows of the picture and of the intermediate that tiles share are kept; else they are loaded and
    computed again."""
    s = Schedule(program)
    s.set_memory(s.buffer("middle"), "local")
    s.cache_write(s.buffer("Y"), "local")
    tiles, inner = s.split(s.loop("h_y_c"), rows)
    s.reorder(tiles, s.loop("g_y_c"), inner, s.loop("w_y_c"))
    made = s.compute_at(s.buffer("Y_local"), tiles)
    s.compute_at(s.buffer("second"), s.loop("w_y"))
    s.compute_at(s.buffer("first"), s.loop("w_m"))
    middle = s.compute_at(s.buffer("middle"), tiles, clip=True)
    laps, tiles = s.split(tiles, lap)
    brought = [s.cache_read(s.buffer(b.name), tiles, "local") for b in program.inputs]
    for buffer in brought[1:]:  # weights and biases
        s.hoist(buffer, tiles)
        s.hoist(buffer, laps)
    if lap > 1:
        for buffer in (brought[0], middle):
            s.ring_buffer(buffer, tiles, int(buffer.shape[1]) + (lap - 1) * rows, at_once=True)
    in_instructions(s, chip, [b.name for b in brought])
    once = [brought[0].name, middle.name] if lap > 1 else []
    loop = flatten(s, [laps, tiles], made.name, 2, 2, once)
    if int(s.for_(loop).extent) > 1:
        s.pipeline(loop, stages_of(s, chip, loop, 1))
    return stream_kernel(s, chip)


def in_instructions(s: Schedule, chip: Target, brought: Sequence[str]) -> None:
    """Convolutions, and copies of what is brought and of the result."""
    conv = next(i for i in chip.instructions if i.name == "conv")
    stores = [x for x in walk_statements(s.kernel.body) if isinstance(x, Store)]
    for store in stores:
        if store.buffer.name in ("middle", "Y_local"):
            s.tensorize(Loop(store.indices[0]), conv)
    for name in brought:
        while (nest := next(nests_with(s.kernel.body, s.buffer(name)), None)) is not None:
            map_values(s, chip, Loop(nest.axes[0].var))
    map_values(s, chip, s.loop("g_y_c"))


# ---------------------------------------------------------------- measuring

SMALL = {"memory": 32 << 10, "bus": 2}
NARROW = {"memory": 128 << 10, "bus": 2}
Build = Callable[[], ChipKernel]


@dataclass(frozen=True)
class Row:
    """One way to compute something: cycles, and those that it takes at least; bytes from DRAM and
    to it; microjoules; seconds to build and to run; the order of issue, where that is shown."""

    name: str
    rings: bool
    cycles: int
    bound: int | None
    loaded: int
    stored: int
    microjoules: float
    exact: bool
    build_s: float
    run_s: float
    order: tuple[str, ...] = ()


def measure(
    name: str,
    rings: bool,
    build: Build,
    inputs: Sequence[np.ndarray],
    expected: np.ndarray,
    then: Sequence[np.ndarray] = (),
) -> Row:
    """Builds and runs a kernel; if there are further inputs, a second time, on its result and
    those."""
    start = time.process_time()
    built = build()
    compiled = time.process_time()
    result = run(built, inputs)
    if then:
        result = run(built, [result, *then])
    stop = time.process_time()
    t, times = built.timeline, 2 if then else 1
    return Row(
        name, rings, times * t.cycles, times * built.bound.cycles if built.bound else None,
        times * t.moved["dram", "local"], times * t.moved["local", "dram"],
        times * t.joules * 1e6, np.array_equal(result, expected), compiled - start,
        stop - compiled, phases(built) if built.program is None else (),
    )  # fmt: skip


def four_tiles(size: int = 2048) -> list[Row]:
    """A picture in four tiles, in a local memory that has room for them."""
    chip = conv_engine(memory=8 * (size // 2 + 2) * (size + 2) * 16)
    found = []
    for name, source in (("padding by the engine", layer), ("padding in the picture", padded)):
        program = source.bind(C=16, F=16, H=size, W=size, R=3).kernel
        inputs = random_arrays(program)
        expected = convolved(*inputs, padding=source is layer)
        for rings in (False, True):

            def build(program: Kernel = program, rings: bool = rings) -> ChipKernel:
                built = in_tiles(program, chip, size // 2, size // 2, rings=rings)
                return replace(built, bound=lower_bound(program, chip))

            found.append(measure(name, rings, build, inputs, expected))
    return found


def windows(size: int = 56) -> list[Row]:
    """7×7 on two chips with memories of one size, rings off and on."""
    found = []
    sizes = {"C": 16, "F": 16, "H": size, "W": size, "R": 7}
    for name, source, chip, reference in (
        ("convolution engine", layer, conv_engine(**SMALL), convolved),
        ("signal processor", channels_last, dsp(*SMALL.values()), in_bytes),
    ):
        program = source.bind(**sizes).kernel
        inputs = random_arrays(program)
        expected = reference(*inputs)
        for rings in (False, True):

            def build(
                program: Kernel = program, chip: Target = chip, rings: bool = rings
            ) -> ChipKernel:
                return build_chip(program, chip, rings=rings)

            found.append(measure(name, rings, build, inputs, expected))
    return found


def chains(size: int = 128) -> list[Row]:
    """Two layers of 16 channels: one after the other, and in a chain."""
    chip = conv_engine(**NARROW)
    sizes = {"C": 16, "F": 16, "H": size, "W": size, "R": 3}
    single, both = layer.bind(**sizes).kernel, two_layers.bind(**sizes, G=16).kernel
    inputs = random_arrays(both)
    first, then = inputs[:3], inputs[3:]
    expected = convolved(convolved(*first), *then)
    rows = []
    for rings in (False, True):

        def build(rings: bool = rings) -> ChipKernel:
            return build_chip(single, chip, rings=rings)

        rows.append(measure("layer by layer", rings, build, first, expected, then))
    for rings in (False, True):

        def build(rings: bool = rings) -> ChipKernel:
            return best_chain(both, chip, size, rings=rings)

        rows.append(measure("in a chain", rings, build, inputs, expected))
    return rows


def best_chain(program: Kernel, chip: Target, size: int, *, rings: bool) -> ChipKernel:
    """The fastest of all tiles and laps that fit."""
    found = []
    for rows in (n for n in range(1, size // 2) if size % n == 0):
        turns = size // rows
        for lap in (n for n in range(2, turns + 1) if turns % n == 0) if rings else (1,):
            try:
                found.append(chained(program, chip, rows, lap))
            except (ScheduleError, TargetError, CompileError):  # no room, or no time for a ring
                continue
    return min(found, key=lambda f: f.cycles)


def phases(built: ChipKernel) -> tuple[str, ...]:
    """The order of issue: before the loop over tiles, in it, and behind it. Loads of the picture,
    convolutions and stores are numbered; loads have their rows and columns."""
    bodies = [s.body for s in built.kernel.body if isinstance(s, For)]
    inside = {id(x) for body in bodies for x in walk_statements(body) if isinstance(x, Call)}
    numbers = dict.fromkeys(("load", "conv", "store"), 0)
    found: list[tuple[int, str]] = []
    phase = 0
    for row, k in enumerate(built.stream.site):
        site = built.stream.sites[k]
        name = site.instruction.name
        if name not in numbers or (name == "load" and site.call.regions[0].buffer.name != "X"):
            continue
        phase = 1 if id(site.call) in inside else 2 * min(phase, 1)
        numbers[name] += 1
        names = [f.name for f in site.instruction.fields]
        fields = dict(zip(names, built.stream.fields[row].tolist(), strict=False))
        size = f" ({fields['R']}×{fields['C']})" if name == "load" else ""
        found.append((phase, f"{name}{numbers[name]}{size}"))
    return tuple(
        "  ".join(text for _, text in group) for _, group in groupby(found, lambda f: f[0])
    )


# ---------------------------------------------------------------- tables


def table(rows: Sequence[Row]) -> Table:
    shown = Table(box=None)
    right = ("bound", "cycles", "of bound", "bytes loaded", "stored", "µJ", "exact")
    right += ("build s", "run s")
    for heading in ("", "rings", *right):
        shown.add_column(heading, justify="right" if heading in right else "left")
    for r in rows:
        bound, share = (f"{r.bound:,}", f"{r.bound / r.cycles:.1%}") if r.bound else ("", "")
        shown.add_row(
            r.name, "on" if r.rings else "off", bound, f"{r.cycles:,}", share, f"{r.loaded:,}",
            f"{r.stored:,}", f"{r.microjoules:,.1f}", "✓" if r.exact else "✗",
            f"{r.build_s:.1f}", f"{r.run_s:.1f}",
        )  # fmt: skip
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    tables = {}
    for name, title, rows in (
        ("tiles", "2048×2048×16, 3×3, padding 1, 16 filters, in four tiles:", four_tiles),
        ("windows", f"7×7, 16→16 channels, 56×56, {_chip(SMALL)}:", windows),
        ("chains", f"3×3 behind 3×3, 16→16→16 channels, 128×128, {_chip(NARROW)}:", chains),
    ):
        tables[name] = rows()
        console.print(title, table(tables[name]), "", sep="\n")
        if name == "tiles":
            for r in tables[name]:
                console.print(f"{r.name}, rings {'on' if r.rings else 'off'}:")
                for part, text in zip(("prologue", "body", "epilogue"), r.order, strict=True):
                    console.print(f"  {part:9} {text}")
            console.print()
    if options.json is not None:
        figures = {name: [asdict(r) for r in rows] for name, rows in tables.items()}
        options.json.write_text(json.dumps(figures, indent=2))
    return int(not all(r.exact for rows in tables.values() for r in rows))


def _chip(sizes: dict[str, int]) -> str:
    return f"{sizes['memory'] >> 10} KiB of local memory, {sizes['bus']} bytes a cycle"


if __name__ == "__main__":
    sys.exit(main())
