"""Instructions in the order in which their units begin them: no queue's own order changes, nothing
passes what it depends on, and no stream becomes slower."""

import sys
from pathlib import Path

import numpy as np
import pytest
from attention_chips import vector_core
from random_chips import random_chip, random_stream

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from attention_cases import attention

from tilewright.backends.stream.boxes import boxes, dependences, queue_numbers
from tilewright.backends.stream.waits import synchronise
from tilewright.base.errors import CompileError
from tilewright.chip import build_chip
from tilewright.sim import issue_order
from tilewright.sim.events import simulate
from tilewright.sim.issue_order import issue_in_time


@pytest.mark.parametrize("seed", range(30))
def test_nothing_passes_what_it_depends_on(seed):
    rng = np.random.default_rng(seed)
    chip = random_chip(rng)
    for _ in range(8):
        stream = random_stream(chip, rng, 30)
        try:
            done = synchronise(stream)
        except CompileError:  # its queues cannot wait so
            continue
        n = len(stream)
        if not np.array_equal(done.stream.site[:n], stream.site):
            continue
        order = np.argsort(issue_order._begins(done)[:n], kind="stable")
        place = np.argsort(order)
        queue = queue_numbers(stream)
        for number in np.unique(queue):
            rows = np.flatnonzero(queue == number)
            assert np.all(np.diff(place[rows]) > 0)
        need = dependences(stream, boxes(stream))
        late, behind = np.nonzero(need >= 0)
        assert np.all(place[need[late, behind]] < place[late])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(30))
def test_no_stream_becomes_slower(seed, monkeypatch):
    monkeypatch.setattr(issue_order, "WORTH_A_TRY", 0.0)
    rng = np.random.default_rng(1000 + seed)
    chip = random_chip(rng)
    for _ in range(8):
        stream = random_stream(chip, rng, 30)
        try:
            done = synchronise(stream)
        except CompileError:
            continue
        before = simulate(done.stream, done.waits, found=done.boxes).cycles
        assert issue_in_time(stream)[1].cycles <= before


def test_full_queues_hold_up_others(monkeypatch):
    case = attention(128, 64)
    built = build_chip(case.kernel, vector_core())
    monkeypatch.setattr(issue_order, "WORTH_A_TRY", 1.1)  # never
    as_written = build_chip(case.kernel, vector_core())
    assert built.cycles < 0.99 * as_written.cycles
    arrays = case.arguments()
    assert np.array_equal(built(*arrays), as_written(*arrays))
