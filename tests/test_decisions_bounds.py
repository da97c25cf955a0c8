"""What no schedule can beat, part by part, on chips that there are and on random ones: it is what
was written down (decisions.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
import stream_cases
from decisions import written
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


def line(name: str, kernel: Kernel, target: Target) -> str:
    try:
        found = find_bound(analytic_model(normal_form(kernel), target))
    except TilewrightError as error:
        return f"{name}: {error.what}"
    parts = ", ".join(f"{f.name} {getattr(found, f.name):.6g}" for f in fields(found))
    return f"{name}: {found.cycles} ({parts})"


def on_chips(name: str) -> Iterator[str]:
    return (line(f"{name} on {n}", KERNELS[name], make()) for n, make in TARGETS.items())


def on_random_chips(first: int) -> Iterator[str]:
    for i in range(first, first + 4):
        facts = random_facts(np.random.default_rng(9000 + i))
        target = chip_of(facts)
        for sizes in SIZES:
            kernel = gemm_of(*(n * facts.mesh for n in sizes))
            yield line(f"{i}, {' '.join(map(str, sizes))}", kernel, target)


PARTS = [*((on_chips, name) for name in KERNELS)]
PARTS += [(on_random_chips, k) for k in range(0, RANDOM, 4)]


@pytest.mark.parametrize("make, which", PARTS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_as_written(make, which):
    assert list(make(which)) == [
        x for x in written("bounds") if x.split(":")[0] in _names(make, which)
    ]


def _names(make, which) -> set[str]:
    if make is on_chips:
        return {f"{which} on {n}" for n in TARGETS}
    ranges = itertools.product(range(which, which + 4), SIZES)
    return {f"{i}, {' '.join(map(str, sizes))}" for i, sizes in ranges}
