"""How many values a subscript takes in a tile, how far apart they are and how far they reach,
against all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.ir.expr import Symbol, Var
from tilewright.plan.pieces import _different, _reach, _step

X, Y, Z = Var("x"), Var("y"), Var("z")
STEPS, COUNTS = (-6, -1, 1, 2, 3, 6, 8), (1, 2, 3, 5)
FORMS = [*itertools.product(STEPS, STEPS, COUNTS, COUNTS)]


def values(form: dict, tile: dict) -> list[int]:
    loops = [v for v in form if v in tile]
    ranges = [range(int(tile[v][0])) for v in loops]
    offset = form.get(None, 0)
    return sorted({
        offset + sum(form[v] * i for v, i in zip(loops, at, strict=True))
        for at in itertools.product(*ranges)
    })  # fmt: skip


def sizes(*counts: int) -> dict:
    return {v: np.array([n]) for v, n in zip((X, Y, Z), counts, strict=False)}


@pytest.mark.parametrize("first", STEPS)
def test_two_loops(first: int):
    exact = 0
    for a, b, n, m in (f for f in FORMS if f[0] == first):
        form, tile = {X: a, Y: b, None: 7}, sizes(n, m)
        every = values(form, tile)
        assert _reach(form, tile)[0] == every[-1] - every[0] + 1, (a, b, n, m)
        gaps = np.gcd.reduce(np.diff(every)) if len(every) > 1 else 1
        assert gaps % _step(form, tile)[0] == 0, (a, b, n, m)
        assert _different(form, tile) <= len(every), (a, b, n, m)
        exact += _different(form, tile) == len(every)
    assert exact == len(COUNTS) ** 2 * len(STEPS) - INEXACT[first]


INEXACT = dict.fromkeys(STEPS, 0) | {-6: 6, 2: 6, 3: 9, 6: 6, 8: 15}


def test_three_loops():
    rng = np.random.default_rng(2)
    for _ in range(400):
        form = {v: int(rng.choice(STEPS)) for v in (X, Y, Z)}
        tile = sizes(*(int(rng.choice(COUNTS)) for _ in range(3)))
        every = values(form, tile)
        assert _reach(form, tile)[0] == every[-1] - every[0] + 1
        assert _different(form, tile) <= len(every), (form, tile)


EXACT = [
    ((1, 4, 8), (4, 2, 3), 24), ((1, 3, 9), (3, 3, 3), 27), ((1, 1, 1), (4, 3, 2), 7),
    ((2, 2, 4), (3, 2, 2), 6), ((1, 10, 100), (5, 5, 5), 125), ((3, 2, 1), (2, 2, 2), 7),
    ((5, 1, 1), (1, 4, 2), 5), ((1, 2, 8), (2, 2, 2), 8), ((4, 6, 1), (2, 2, 1), 4),
]  # fmt: skip


@pytest.mark.parametrize("steps, counts, number", EXACT)
def test_numbers_of_values(steps: tuple[int, ...], counts: tuple[int, ...], number: int):
    form, tile = dict(zip((X, Y, Z), steps, strict=True)), sizes(*counts)
    assert len(values(form, tile)) == number
    assert _different(form, tile) == number


@pytest.mark.parametrize(
    "form, step, reach",
    [
        ({X: 4, Y: 6}, 2, 25), ({X: 4}, 4, 13), ({Y: 6, None: 3}, 6, 13), ({}, 1, 1),
        ({Z: 5}, 1, 1), ({Symbol("n"): 2, X: 4}, 1, 13), ({X: 4, Var("outside"): 3}, 1, 13),
        ({X: -4}, 4, 13),
    ],
)  # fmt: skip
def test_steps_in_tiles_of_four_and_three(form: dict, step: int, reach: int):
    """A loop of one iteration moves nothing; what is outside may be anything."""
    tile = sizes(4, 3, 1)
    assert (int(_step(form, tile)[0]), int(_reach(form, tile)[0])) == (step, reach)


def test_many_tiles_at_once():
    tile = {X: np.array([1, 2, 4]), Y: np.array([3, 1, 1])}
    assert _step({X: 4, Y: 6}, tile).tolist() == [6, 4, 4]
    assert _reach({X: 4, Y: 6}, tile).tolist() == [13, 5, 13]
