"""Models on more cores than there are: how pieces are handed out, and what is lost to what."""

import many_cores
import numpy as np
import pytest
from many_cores import FORK_JOIN, Step, last_done, outcome


def test_each_core_takes_the_next_piece_once_it_is_done():
    pieces = np.array([3.0, 1.0, 1.0, 1.0, 2.0])
    assert last_done(pieces, 1) == 8.0
    assert last_done(pieces, 2) == 5.0  # the second core has three of one; then both are free
    assert last_done(pieces, 3) == 3.0
    assert last_done(pieces, 8) == 3.0


def test_what_is_lost_adds_up():
    steps = [
        Step("a", 1e-3, (np.array([2e-3, 1e-3, 1e-3]), np.array([5e-4])), 0),
        Step("b", 0.0, (), 60_000_000),  # a millisecond of the memory
    ]
    found = outcome("net", steps, 2, alone=5e-3)
    assert found.seconds == pytest.approx(1.5e-3 + 2e-3 + FORK_JOIN + 1e-3)
    lost = (found.more_work, found.serial, found.imbalance, found.fork_join, found.memory)
    assert sum(lost) + found.share == pytest.approx(1)
    assert found.memory == pytest.approx(1e-3 / found.seconds)
    assert found.serial == pytest.approx(0.75e-3 / found.seconds)
    assert found.imbalance == pytest.approx(0.0)


def test_pieces_of_a_small_network(monkeypatch):
    """There are pieces for eight cores, and each takes some time."""
    monkeypatch.setattr(many_cores, "REPEAT", 2)
    steps = many_cores.steps_of("mobilenetv2", 8)
    counts = [len(region) for step in steps for region in step.regions]
    assert max(counts) >= 8
    assert all((region > 0).all() for step in steps for region in step.regions)
    assert all(step.bytes > 0 for step in steps)
