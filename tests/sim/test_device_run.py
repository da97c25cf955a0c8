"""A timed run as what is kept of it: the whole run, in groups, and what the chip can do at best."""

import pytest

import tilewright
from tilewright import cast, grid, i8, i32, kernel, reduce
from tilewright.runtime.device_run import BEGIN, BUSY, COUNT, END, QUEUE
from tilewright.sim.device_run import device_run, peak
from tilewright.targets.chips import CHIPS


@kernel
def product(A: i8[64, 64], B: i8[64, 64], C: i8[64, 64]):
    for i, j in grid(64, 64):
        total: i32 = 0
        for k in reduce(64):
            total += cast(i32, A[i, k]) * cast(i32, B[k, j])
        C[i, j] = cast(i8, min(max(total >> 8, -128), 127))


@pytest.mark.parametrize("chip", ["vta", "gemmini", "conv_engine", "dsp"])
def test_a_run_is_kept_as_it_was(chip):
    built = tilewright.build(product, CHIPS[chip]())
    timeline = built.timeline
    run = device_run(timeline, built.target, built.predicted)
    assert run.facts.cycles == built.cycles
    assert run.facts.queues == tuple(q.name for q in built.stream.target.queues)
    assert run.groups[COUNT].sum() == len(built.stream)
    assert run.groups[BEGIN].min() == timeline.begin.min()
    assert run.groups[END].max() == timeline.leave.max()
    for number, queue in enumerate(run.facts.queues):
        ours = run.groups[:, run.groups[QUEUE] == number]
        assert ours[BUSY].sum() == timeline.busy[queue]
    assert run.facts.moved == timeline.bytes.sum()
    assert {m.name: m.used for m in run.facts.memories} == {
        m.name: built.stream.sizes.get(m.name, 0) for m in built.stream.target.memories
    }
    assert all(m.bytes is None or m.used <= m.bytes for m in run.facts.memories)
    needed = 2 * 64**3 / run.facts.operations_per_second * run.facts.clock
    assert 0.02 < needed / built.cycles <= 1  # the product is no faster than the unit


@pytest.mark.parametrize(
    "chip, giga",
    [("tiny", 256), ("vta", 51.2), ("gemmini", 512), ("conv_engine", 409.6), ("dsp", 128)],
)
def test_what_a_chip_does_at_best(chip, giga):
    target = CHIPS[chip]()
    assert peak(target) == pytest.approx(giga * 1e9)
