"""The timed simulator beside a slow clock that shares no code with it (support/slow_clock.py), and
what is built beside its bound; `make fuzz-clocks` does many more."""

import pytest
from clock_trials import build_random, run_chip


@pytest.mark.parametrize("seed", range(12))
def test_clocks_agree(seed: int):
    tally = run_chip(seed, 25)
    assert tally.streams >= 10


def test_streams_stand_still_for_results_of_their_queue():
    assert sum(run_chip(seed, 10).stalled for seed in range(5)) > 5


@pytest.mark.parametrize("seed", range(100, 112))
def test_nothing_beats_its_bound(seed: int):
    assert build_random(seed).cycles
