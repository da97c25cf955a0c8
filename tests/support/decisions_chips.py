"""Contractions on chips that there are and on random ones: what the analytic model says of many
tiles, and kernels with other tiles than the best, are what was written down (decisions.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

import byte_kernels
import numpy as np
import stream_cases
from decisions import Corpus, Entry
from random_units import chip_of, gemm_of, random_facts

from tilewright.backends.stream.disassemble import disassemble
from tilewright.base.errors import TilewrightError
from tilewright.chip import build_choice
from tilewright.ir.loop import Kernel
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.choose_tiles import choose_tiles
from tilewright.plan.find_mappings import find_mappings
from tilewright.plan.normal_form import normal_form
from tilewright.plan.tile_model import TileModel, Tiles, cartesian, tile_sizes
from tilewright.plan.unit_plan import Plan
from tilewright.schedule.trace.cost import kernel_cost
from tilewright.sim.run_pipelines import run_pipelines
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

# ---------------------------------------------------------------- contractions on chips

ONES = ("tiny", "tiny, window", "vta", "gemmini", "engine", "apart, small", "in place, square")
ONES += ("fused, small", "chip with barriers")
RANDOM, TILES = 40, 12  # chips; tiles of each that are looked at


def on_chip(i: int) -> tuple[str, Kernel, Target]:
    """Kernels on the chips that there are, then on random ones."""
    if i < len(ONES):
        case = stream_cases.CASES[ONES[i]]
        return ONES[i], normal_form(case.source), case.target()
    rng = np.random.default_rng(i)
    facts = random_facts(rng)
    m, n, k = (int(facts.mesh * rng.integers(1, 9)) for _ in range(3))
    return f"random {i}", normal_form(gemm_of(m, n, k)), chip_of(facts)


def plans(model: TileModel) -> Iterator[Plan]:
    """All orders of the loops over tiles, and ways to overlap them."""
    result = [x.var for x in model.nest.axes if x.extent != 1]
    sums = [x.var for x in model.nest.reduce]
    with_addend = model.accumulator_work.starts_with_addend
    any_ = Plan(model.nest, model.mapping, {}, starts_with_addend=with_addend)
    paces = itertools.cycle([(0, 1), (1, 1), (2, 3), (1, 2), (4, 2), (4, 4)])
    for order in itertools.permutations(result):
        for flag in (False, True):
            for distance, buffers in itertools.islice(paces, 3):
                preloaded, rings = flag and bool(model.epilogue_loads), flag and model.unit.whole
                yield replace(
                    any_,
                    order=(*order, *sums),
                    prefetch_distance=distance,
                    result_buffers=buffers,
                    preloaded=preloaded,
                    rings=rings,
                )


def shown(x: object) -> str:
    """A record, all arrays in it as lists."""
    if isinstance(x, np.ndarray):
        return str(np.round(x.astype(float), 6).tolist())
    if isinstance(x, tuple):
        return f"({', '.join(map(shown, x))})"
    if is_dataclass(x):
        return f"({', '.join(f'{f.name}: {shown(getattr(x, f.name))}' for f in fields(x))})"
    return str(x)


def model(i: int) -> Entry:
    """Which tiles there are and which fit; what their steps take, and at least."""
    name, kernel, target = on_chip(i)
    found = analytic_model(kernel, target)
    sizes = tile_sizes(found)
    every = cartesian(sizes)
    count = len(next(iter(every.values())))
    some = {v: n[:: max(1, count // TILES)] for v, n in every.items()}
    texts, fitting, looked_at = [str(sizes)], 0, 0
    for plan in itertools.islice(plans(found), 12):
        fits = np.broadcast_to(found.fits(every, plan), count)
        times = found.step_times(Tiles(some), plan)
        bounds = times.lower_bound(), times.estimate()
        texts += [shown(fits), shown(times), *map(shown, bounds)]
        texts.append(shown(run_pipelines(times.only(np.array([0])))))
        fitting, looked_at = fitting + int(fits.sum()), looked_at + count
    summary = f"{count} tiles, {fitting} of {looked_at} fit; at least {bounds[0].min():,.0f} cycles"
    return Entry(name, summary, "\n".join(texts))


def plan(i: int) -> Entry:
    """Kernels with other tiles than the best."""
    name, kernel, target = on_chip(i)
    found = choose_tiles(analytic_model(kernel, target), None, overlap=bool(i % 5))
    texts, cycles, refused = [], [], 0
    near = [c for c in found if c.cycles < 4 * found[0].cycles]
    for choice in near[1 :: max(1, len(found) // 3)]:
        try:
            built = build_choice(kernel, target, choice)
        except TilewrightError as error:
            texts.append(str(error))
            refused += 1
            continue
        cycles.append(built.cycles)
        texts += [str(built.kernel), *disassemble(built.stream, built.waits)]
        texts.append(str(kernel_cost(built.kernel, target)))
    return Entry(
        name, f"{len(found)} choices, {refused} refused; {cycles} cycles", "\n".join(texts)
    )


CONTRACTIONS = {
    "gemm": (byte_kernels.gemm, ("M", "N", "K"), ((64, 32, 48), (30, 17, 20), (1, 64, 16))),
    "layer": (byte_kernels.layer, ("M", "N", "K"), ((48, 64, 32), (20, 30, 40), (33, 1, 16))),
    "planes": (byte_kernels.planes, ("C", "F", "S"), ((8, 16, 10), (3, 5, 7), (16, 32, 6))),
    "conv": (stream_cases.conv, (), ((),)),
}
TARGETS = (tiny, vta, gemmini, conv_engine, *stream_cases.CHIPS.values())
FITTED = [(n, k) for n, (_, _, sizes) in CONTRACTIONS.items() for k in range(len(sizes))]


def fitted(i: int) -> Entry:
    """The ways for a chip's units to do a contraction, and the first tiles of the best one."""
    (name, k), make = FITTED[i // len(TARGETS)], TARGETS[i % len(TARGETS)]
    function, letters, sizes = CONTRACTIONS[name]
    kernel, where = function.bind(**dict(zip(letters, sizes[k], strict=True))).kernel, make()
    texts, tiles = [], []
    try:
        kernel = normal_form(kernel)
        for changed, nest, mapping in find_mappings(kernel, where):
            axes = {axis.name: loop.var.name for axis, loop in mapping.axes}
            texts.append(
                f"{axes} {mapping.swapped} {mapping.waste} {mapping.extents} {nest.buffer}"
            )
            texts.append(str(changed))
        found = choose_tiles(analytic_model(kernel, where), None, overlap=k != 1)
        tiles = [c.plan.tile for c in found[:5]]
        for c in found[:40]:
            p, order = c.plan, " ".join(map(str, c.plan.order))
            pace = f"{p.prefetch_distance} {p.result_buffers} {p.store_chunks} {p.preloaded}"
            texts.append(f"{order} {pace} {p.interleave}")
            texts.append(str(c.cycles))
        texts += [str({v.name: n for v, n in t.items()}) for t in tiles]
    except TilewrightError as error:
        texts.append(str(error))
    best = " ".join(f"{v.name}={n}" for v, n in tiles[0].items()) if tiles else "refused"
    return Entry(f"{name} {sizes[k]} {where.name}", best, "\n".join(texts))


CORPORA: dict[str, Corpus] = {
    "chip_models": Corpus(model, len(ONES) + RANDOM, 1),
    "fitted": Corpus(fitted, len(FITTED) * len(TARGETS), 2),
    "chip_plans": Corpus(plan, len(ONES) + RANDOM, 1),
}
