"""What no schedule can beat, part by part, on chips that there are and on random ones: it is what
was written down (decisions.py)."""

from __future__ import annotations

import itertools
from dataclasses import fields

import numpy as np
import stream_cases
from decisions import Corpus, Entry
from random_units import chip_of, gemm_of, random_facts

from tilewright.base.errors import TilewrightError
from tilewright.ir.loop import Kernel
from tilewright.plan.analytic_model import analytic_model
from tilewright.plan.bound import find_bound
from tilewright.plan.normal_form import normal_form
from tilewright.target.target import Target
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

TARGETS = {f.__name__: f for f in (tiny, vta, gemmini, conv_engine)} | stream_cases.CHIPS
RANDOM, SIZES = 32, ((1, 1, 1), (3, 1, 5), (2, 6, 1))  # in units of the mesh
KERNELS = {
    "gemm": stream_cases.gemm.bind(M=64, N=32, K=48).kernel,
    "layer": stream_cases.layer.bind(M=48, N=64, K=32).kernel,
    "planes": stream_cases.planes.bind(C=8, F=16, S=10).kernel,
    "conv": stream_cases.conv.kernel,
}


def entry(name: str, kernel: Kernel, target: Target) -> Entry:
    """Each part in cycles, or why there are none."""
    try:
        found = find_bound(analytic_model(normal_form(kernel), target))
    except TilewrightError as error:
        return Entry(name, "refused", error.what)
    numbers = ((f.name, getattr(found, f.name)) for f in fields(found))
    parts = ", ".join(f"{n} {x:.6g}" for n, x in numbers if isinstance(x, (int, float)))
    return Entry(name, f"{found.cycles} cycles: {parts}", parts)


PAIRS = list(itertools.product(KERNELS, TARGETS.items()))


def on_chip(i: int) -> Entry:
    name, (where, make) = PAIRS[i]
    return entry(f"{name} on {where}", KERNELS[name], make())


def on_random_chip(i: int) -> Entry:
    facts = random_facts(np.random.default_rng(9000 + i // len(SIZES)))
    sizes = SIZES[i % len(SIZES)]
    kernel = gemm_of(*(n * facts.mesh for n in sizes))
    return entry(f"{i // len(SIZES)}, {' '.join(map(str, sizes))}", kernel, chip_of(facts))


CORPORA: dict[str, Corpus] = {
    "bounds": Corpus(on_chip, len(PAIRS), 4),
    "random_bounds": Corpus(on_random_chip, len(SIZES) * RANDOM, 12),
}
