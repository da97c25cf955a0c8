"""Traces step by step with other factors: what formulas say, a replay in full says too; and which
factors they are said to hold for."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from schedule_cases import schedule

from tilewright.base.errors import ScheduleError
from tilewright.ir.loop import Alloc, For, walk_statements
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.schedule import Schedule

SUMS = """
def sums(x: f32[12, 24], y: out(f32[12])):
    for i in range(12):
        y[i] = f32(0.0)
        for k in range(24):
            y[i] += x[i, k]
"""
SCALED = """
def scaled(x: f32[12, 24], y: out(f32[12, 24])):
    t = alloc(f32[12, 24])
    for a in range(12):
        for b in range(24):
            t[a, b] = x[a, b] * f32(2.0)
    for i in range(12):
        for j in range(24):
            y[i, j] = t[i, j] + f32(1.0)
"""
NEIGHBOURS = """
def neighbours(x: f32[14, 26], y: out(f32[12, 24])):
    for i in range(12):
        for j in range(24):
            y[i, j] = x[i, j] + x[i + 2, j + 1] + x[i + 1, j + 2]
"""
TURNED = """
def turned(x: f32[24], y: out(f32[12])):
    for i in range(12):
        y[i] = x[i] + x[23 - i]
"""
CHAIN = """
def chain(x: f32[24], y: out(f32[25])):
    y[0] = f32(0.0)
    for i in range(24):
        y[i + 1] = y[i] + x[i]
"""
DIVIDED = """
def divided(x: f32[6, 4], y: out(f32[24])):
    for i in range(24):
        y[i] = x[i // 4, i % 4]
"""
EVERY = FACTORS = (1, 2, 3, 4, 5, 6, 8, 12, 24)


def rfactored(s: Schedule) -> None:
    outer, _ = s.split(s.loop("k"), 4)
    s.rfactor(s.buffer("y"), outer)


def rfactored_inside(s: Schedule) -> None:
    _, inner = s.split(s.loop("k"), 4)
    s.split(s.loop("i"), 3)
    s.rfactor(s.buffer("y"), inner)


def initialised(s: Schedule) -> None:
    s.split(s.loop("i"), 4)
    s.split(s.loop("k"), 6)
    s.cache_write(s.buffer("y"))


def apart(s: Schedule) -> None:
    i_o, i_i = s.split(s.loop("i"), 4)
    j_o, j_i = s.split(s.loop("j"), 6)
    s.reorder(i_o, j_o, i_i, j_i)
    s.compute_at(s.buffer("t"), j_o)


def kept_whole(s: Schedule) -> None:
    s.keep_whole(s.loop("b"))
    i_o, _ = s.split(s.loop("i"), 4)
    s.compute_at(s.buffer("t"), i_o)


def inlined(s: Schedule) -> None:
    s.split(s.loop("i"), 4)
    s.split(s.loop("j"), 4)
    s.inline(s.buffer("t"))
    s.vectorize(s.loop("j_i"))


def copied(s: Schedule) -> None:
    i_o, i_i = s.split(s.loop("i"), 4)
    j_o, j_i = s.split(s.loop("j"), 6)
    s.reorder(i_o, j_o, i_i, j_i)
    s.cache_read(s.buffer("x"), j_o, "sram")


def copy_fused(s: Schedule) -> None:
    copied(s)
    s.parallel(s.fuse(s.loop("x_local_0"), s.loop("x_local_1")))


def copy_split(s: Schedule) -> None:
    copied(s)
    s.split(s.loop("x_local_1"), 2)


def written_and_fused(s: Schedule) -> None:
    apart(s)
    s.fuse(s.loop("a"), s.loop("b"))


def copied_within(s: Schedule) -> None:
    _, i_i = s.split(s.loop("i"), 4)
    s.split(s.loop("j"), 6)
    s.cache_read(s.buffer("x"), i_i)


def fused(s: Schedule) -> None:
    i_o, i_i = s.split(s.loop("i"), 4)
    j_o, j_i = s.split(s.loop("j"), 6)
    s.reorder(i_o, j_o, i_i, j_i)
    s.parallel(s.fuse(i_o, j_o))
    s.vectorize(j_i)


def fused_unsplit(s: Schedule) -> None:
    _, i_i = s.split(s.loop("i"), 4)
    s.fuse(i_i, s.loop("j"))


def copied_around(s: Schedule) -> None:
    i_o, _ = s.split(s.loop("i"), 3)
    s.cache_read(s.buffer("x"), i_o)


def chained(s: Schedule) -> None:
    i_o, _ = s.split(s.loop("i"), 4)
    s.cache_read(s.buffer("x"), i_o)


def divided(s: Schedule) -> None:
    i_o, _ = s.split(s.loop("i"), 4)
    s.cache_read(s.buffer("x"), i_o)


def blocked(s: Schedule) -> None:
    i_o, _ = s.split(s.loop("i"), 4)
    s.split(s.loop("j"), 4)
    t = s.compute_at(s.buffer("t"), i_o)
    s.pack_layout(t, Layout((1, 0), ((1, 4),)))
    s.pack_layout(s.buffer("x"), Layout((0, 1), ((0, 3),)))


def ringed(s: Schedule) -> None:
    i_o, _ = s.split(s.loop("i"), 4)
    t = s.compute_at(s.buffer("t"), i_o)
    s.multi_buffer(t, [i_o], 2)


def initialised_apart(s: Schedule) -> None:
    s.split(s.loop("i"), 4)
    s.split(s.loop("k"), 6)
    s.split_init(s.buffer("y"))


def written_back(s: Schedule) -> None:
    s.split(s.loop("i"), 4)
    s.cache_write(s.buffer("y"))
    s.split(s.loop("k"), 8)


def blocked_parts(s: Schedule) -> None:
    outer, _ = s.split(s.loop("k"), 4)
    s.rfactor(s.buffer("y"), outer)
    s.pack_layout(s.buffer("x"), Layout((1, 0), ((0, 4),)))


CASES: dict[str, tuple[str, Callable[[Schedule], object], dict[str, tuple[int, ...]]]] = {
    "rfactored": (SUMS, rfactored, {"1.factor": (4,)}),
    "rfactored inside": (SUMS, rfactored_inside, {"1.factor": (4,), "2.factor": (3,)}),
    "initialised": (SUMS, initialised, {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12)}),
    "computed at": (SCALED, apart, {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12)}),
    "kept whole": (SCALED, kept_whole, {"2.factor": (4,)}),
    "inlined": (SCALED, inlined, {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12)}),
    "fused": (SCALED, fused, {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12)}),
    "fused unsplit": (SCALED, fused_unsplit, {"1.factor": (2, 3, 4, 6)}),
    "blocked": (SCALED, blocked, {"1.factor": (4,), "2.factor": (4,)}),
    "ringed": (SCALED, ringed, {"1.factor": (4,), "3.depth": (2, 3, 4, 5, 6, 8, 12, 24)}),
    "copied": (
        NEIGHBOURS,
        copied,
        {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12), "4.slack": EVERY},
    ),
    "copied within": (
        NEIGHBOURS,
        copied_within,
        {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12), "3.slack": EVERY},
    ),
    "from both ends": (TURNED, copied_around, {"1.factor": (2, 3, 4, 6), "2.slack": EVERY}),
    "chained": (CHAIN, chained, {"1.factor": (4,), "2.slack": EVERY}),
    "divided": (DIVIDED, divided, {"1.factor": (4,), "2.slack": EVERY}),
    "initialised apart": (
        SUMS,
        initialised_apart,
        {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12)},
    ),
    "written back": (
        SUMS,
        written_back,
        {"1.factor": (2, 3, 4, 6), "3.factor": (2, 3, 4, 6, 8, 12)},
    ),
    "copy fused": (
        NEIGHBOURS,
        copy_fused,
        {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12), "4.slack": EVERY},
    ),
    "copy split": (
        NEIGHBOURS,
        copy_split,
        {
            "1.factor": (2, 3, 4, 6),
            "2.factor": (2, 4, 6, 8, 12),
            "4.slack": EVERY,
            "5.factor": (2, 4),
        },
    ),
    "written and fused": (
        SCALED,
        written_and_fused,
        {"1.factor": (2, 3, 4, 6), "2.factor": (2, 3, 4, 6, 8, 12)},
    ),
    "blocked parts": (SUMS, blocked_parts, {"1.factor": (4,)}),
}


def agree(candidate) -> None:
    """Loops are as long and buffers as large as in the program that a replay in full makes."""
    kernel = candidate.schedule().kernel
    every = list(walk_statements(kernel.body))
    assert candidate.extents == {x.var.name: x.extent for x in every if isinstance(x, For)}
    buffers = (*kernel.params, *(x.buffer for x in every if isinstance(x, Alloc)))
    assert candidate.footprints == {b.name: math.prod(b.shape) * b.dtype.bytes for b in buffers}


def held(text: str, steps: Callable[[Schedule], object]) -> dict[str, tuple[int, ...]]:
    """For each factor the values that the formulas hold for, as a replay in full confirms."""
    s = schedule(text)
    steps(s)
    space = s.trace.space(s.original)
    agree(space.prove())
    found: dict[str, list[int]] = {}
    for d in s.trace.decisions():
        for n in FACTORS if type(d.value) is int else ():
            try:
                candidate = space.candidate({d.name: n})
            except ScheduleError:
                continue
            agree(candidate)
            found.setdefault(d.name, []).append(n)
    return {name: tuple(values) for name, values in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_factors(name: str):
    text, steps, wanted = CASES[name]
    assert held(text, steps) == wanted
