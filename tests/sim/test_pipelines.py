"""Pipelines over tiles, run step by step without a simulator."""

import numpy as np
import pytest

from tilewright import cast, dims, grid, i8, i32, kernel, reduce
from tilewright.chip import analytic_model
from tilewright.schedule import choose_tiles, pipelines
from tilewright.sim.pipelines import run_pipelines
from tilewright.targets.tiny import tiny

N = dims("N", min=1)


@kernel
def product(A: i8[N, N], B: i8[N, N], C: i32[N, N]):
    for i, j in grid(N, N):
        C[i, j] = 0
        for k in reduce(N):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])


def chosen(n: int) -> dict[tuple[object, ...], float]:
    """What the model expects of tiles, by how they follow each other."""
    model = analytic_model(product.bind(N=n).kernel, tiny())
    found = choose_tiles.choose_tiles(model, run_pipelines, overlap=True)
    return {
        (*c.plan.tile.items(), c.plan.order, c.plan.ahead, c.plan.places): c.cycles for c in found
    }


def test_fewer_turns_tell_what_all_take(monkeypatch):
    short = chosen(256)
    monkeypatch.setattr(pipelines, "STEPS", 1 << 30)
    whole = chosen(256)
    both = short.keys() & whole.keys()
    assert len(both) > 20
    for key in both:
        assert short[key] == pytest.approx(whole[key], rel=0.01)
    assert min(short.values()) == pytest.approx(min(whole.values()), rel=0.002)


def test_long_pipelines_are_run_for_a_few_steps(monkeypatch):
    """However large the work is: 16 times as many loops over tiles, and no more steps."""
    steps = []
    compute = pipelines.Pipelines.compute

    def counted(self, i):
        steps.append(i)
        compute(self, i)

    monkeypatch.setattr(pipelines.Pipelines, "compute", counted)
    cycles = chosen(1 << 13)
    assert max(steps) <= 2 * pipelines.STEPS
    assert min(cycles.values()) == pytest.approx((1 << 39) / 16**2, rel=0.01)


def test_turns_that_are_few_stay():
    turns = np.array([[1, 3, 700], [2, 3, 4], [5, 1, 600]])
    model = analytic_model(product.bind(N=64).kernel, tiny())
    tile = {v: np.array([16] * 3) for v in model.whole}
    plan = choose_tiles.choose_tiles(model, run_pipelines, overlap=True)[0].plan
    times = model.step_times(tile, plan)
    found = pipelines.replace(times, turns=turns)._shortened(512)
    assert found.turns.T.tolist() == [[1, 2, 5], [3, 3, 1], [2, 2, 128]]


def test_of_very_many_sizes_some_are_left_out(monkeypatch):
    everything = chosen(720)  # in steps of 16, 6 sizes of each loop
    monkeypatch.setattr(choose_tiles, "COMBINATIONS", 30)
    some = chosen(720)
    sizes = {tuple(n for _, n in key[:3]) for key in some}
    assert {(n in (720, 144, 48)) for row in sizes for n in row} == {True}
    assert len(some) < len(everything)
    assert min(some.values()) == pytest.approx(min(everything.values()), rel=0.05)
