"""Random streams on random chips, and streams of products with one thing changed: waits, cycles and
what the checks say are what was written down (decisions.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from decisions import Corpus, Entry
from random_chips import random_chip, random_stream
from random_units import chip_of, gemm_of, random_facts
from stream_cases import CASES
from stream_mutants import KINDS, mutant

from tilewright.backends.stream.boxes import boxes, dependences
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.disassemble import disassemble
from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.faults import Fault
from tilewright.backends.stream.memory import check_memory
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import Waits, synchronise
from tilewright.base.errors import TilewrightError
from tilewright.chip import build_choice
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.instruction import Hazard
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.choose_tiles import choose_tiles
from tilewright.plan.normal_form import normal_form
from tilewright.plan.step_times import Fetches, Loads, Moves, StepTimes
from tilewright.sim import timeline as timelines
from tilewright.sim.events import simulate
from tilewright.sim.run_pipelines import run_pipelines


def _checked(stream: Stream, waits: Waits, inputs: Sequence) -> Iterator[Fault | None]:
    found = boxes(stream)
    yield check_memory(stream, inputs, found)
    yield check_distances(stream, found)
    yield check_waits(stream, dependences(stream, found), waits, found)


def stream(i: int) -> Entry:
    """Random streams on random chips: their waits and cycles; what is wrong without some waits."""
    rng = np.random.default_rng(7000 + i)
    chip = random_chip(rng)
    texts, cycles, faults = [], [], 0
    for _ in range(4):
        try:
            done = synchronise(random_stream(chip, rng, 24))
        except TilewrightError as error:
            texts.append(str(error))
            continue
        texts += disassemble(done.stream, done.waits)
        timeline = simulate(done.stream, done.waits, found=done.boxes)
        texts += [str(timeline), json.dumps(list(timelines.events(timeline)))]
        cycles.append(timeline.cycles)
        found = [
            str(f) for f in _checked(done.stream, _fewer(done.waits, rng), ()) if f is not None
        ]
        faults, texts = faults + len(found), texts + found
    return Entry(f"{i}", f"{cycles} cycles, {faults} faults", "\n".join(texts))


def _fewer(waits: Waits, rng: np.random.Generator) -> Waits:
    """The waits of some instructions are gone."""
    gone = rng.random(len(waits.pops)) < 0.2
    kept = {k: np.where(gone, np.zeros_like(v), v) for k in ("pops", "awaits", "barriers")
            if (v := getattr(waits, k)) is not None}  # fmt: skip
    return replace(waits, **kept)


def damaged(i: int) -> Entry:
    """Streams of products with one thing changed: what the checks say."""
    built, texts, counts = _product(i), [], []
    rng = np.random.default_rng(i)
    for kind in KINDS:
        found = [m for m in (mutant(built, kind, rng) for _ in range(6)) if m is not None]
        for m in found:
            said = list(_checked(m.stream, m.waits, built.kernel.inputs))
            texts += [m.what, *map(str, said)]
            counts.append(any(f is not None for f in said))
    return Entry(f"{i}", f"{sum(counts)} of {len(counts)} are wrong", "\n".join(texts))


def _product(i: int) -> ChipKernel:
    facts = random_facts(np.random.default_rng(i))
    kernel, where = normal_form(gemm_of(*(2 * facts.mesh,) * 3)), chip_of(facts)
    found = choose_tiles(analytic_model(kernel, where), None)
    return build_choice(kernel, where, found[i % len(found)])


REPLAYED = ("tiny", "chip with events", "chip with barriers", "chip with interlock")


def replayed(i: int) -> Entry:
    """Streams with one thing changed, in other orders: what the replay says."""
    case, texts, wrong, count = CASES[REPLAYED[i]], [], 0, 0
    built, rng = case.build(), np.random.default_rng(i)
    inputs, outputs = case.arrays(0)
    for kind in (*KINDS, "wait"):
        for _ in range(3):
            m = mutant(built, kind, rng)
            if m is not None:
                changed = replace(built, stream=m.stream, waits=m.waits)
                fault = changed.replay(*inputs, *outputs, orders=9, seed=i)
                texts.append(f"{m.what}: " + re.sub(r"\S*/", "", str(fault)))  # no paths
                wrong, count = wrong + (fault is not None), count + 1
    return Entry(REPLAYED[i], f"{wrong} of {count} are wrong", "\n".join(texts))


def pipelines(i: int) -> Entry:
    """Random pipelines over tiles: when they are done, and at least, and about."""
    rng, texts = np.random.default_rng(7000 + i), []
    for _ in range(6):
        times = _pipelines(rng)
        found = run_pipelines(times), times.lower_bound(), times.estimate()
        found += (times.expected(lambda t: t.estimate() * 1.5),)
        texts += [str(np.round(x, 6).tolist()) for x in found]
    return Entry(f"{i}", f"the last in {found[0].min():,.0f} cycles", "\n".join(texts))


def _pipelines(rng: np.random.Generator) -> StepTimes:
    """Four that have as many levels, queues and operands."""
    n, levels, queues = 4, int(rng.integers(1, 4)), int(rng.integers(1, 4))
    turns, spatial = rng.integers(1, 6, (levels, n)), int(rng.integers(1, levels + 1))
    steps, tiles = turns.prod(0), turns[:spatial].prod(0)
    ahead = np.minimum(rng.integers(0, 4), steps - 1)
    places = np.minimum(np.minimum(rng.integers(1, 4), tiles), steps - ahead)
    after = rng.integers(0, 2) * rng.integers(1, 100, n)

    def moves(*shape: int) -> list:
        calls = rng.integers(1, 12, shape)
        hazard = (Hazard.STALL, Hazard.FORWARD)[rng.integers(2)]
        return [int(rng.integers(queues)), int(rng.integers(0, 100)), calls,
                *(calls * rng.integers(0, 50, (3, *shape))), hazard, 0]  # fmt: skip

    loads = []
    for _ in range(rng.integers(0, 4)):
        queue, latency, *cycles, hazard, forward = moves(levels + 1, n)
        behind = bool(after.any() and rng.integers(2))
        level = spatial - 1 if behind else int(rng.integers(-1, levels))
        kept = (np.arange(levels + 1) <= level) | (np.arange(levels + 1) == levels)
        cycles = [c * kept[:, None] for c in cycles]
        late = np.zeros(n, bool)
        loads.append(Loads(queue, latency, *cycles, hazard, forward, 1 + ahead, late, behind))
    fetches = (None, Fetches(4, 2, 3, 20), Fetches(64, 16, 32, 5))[rng.integers(3)]
    return StepTimes(
        turns, spatial, tuple(map(int, rng.choice([1, 2, 64], queues))), int(rng.integers(5)),
        fetches, int(rng.integers(queues)), rng.integers(0, 40, (2, n)),
        rng.integers(0, 2) * rng.integers(1, 50, n), rng.integers(0, 100, n),
        rng.integers(1, 12, (3, n)), after, rng.integers(1, 4, n), 1.0 * rng.integers(1, 3, n),
        tuple(loads), Moves(*moves(n)), ahead, rng.integers(0, 2) * ahead, places,
        np.where(places == 1, rng.integers(1, 4), 1), np.zeros(n, int), bool(rng.integers(2)),
    )  # fmt: skip


CORPORA: dict[str, Corpus] = {
    "streams": Corpus(stream, 60, 3),
    "damaged": Corpus(damaged, 16, 1),
    "pipelines": Corpus(pipelines, 60, 6),
    "replayed": Corpus(replayed, len(REPLAYED), 1),
}
