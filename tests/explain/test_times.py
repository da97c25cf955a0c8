"""Where the cycles of a stream go: by hand, and adding up to the whole run."""

import pytest
from byte_kernels import dots, gemm, layer

from tilewright import Schedule
from tilewright.chip import build_chip
from tilewright.explain.times import longest_chain, memory_times, queue_times
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

ONE_TILE = gemm.bind(M=16, N=16, K=16)


def by_hand():
    """Two loads, a product, a store."""
    chip = tiny()
    s = Schedule(ONE_TILE)
    s.cache_write(s.buffer("C"), "acc")
    whole, rows = s.split(s.loop("i"), 16)
    s.cache_read(s.buffer("A"), whole, "spad")
    s.cache_read(s.buffer("B"), whole, "spad")
    for loop, name in (("A_local_0", "mvin"), ("B_local_0", "mvin"), ("i_c", "mvout")):
        s.tensorize(s.loop(loop), chip.instruction(name))
    s.tensorize(rows, chip.instruction("gemm"))
    return s.build(chip)


def test_a_stream_by_hand():
    """Each load: 16 cycles to set up, 16 for 256 bytes; 64 until they are there; the product 16,
    and 32 behind it; the store 16 to set up, 64 for 1 KiB, 64 until it is there."""
    built = by_hand()
    issue = 1
    assert built.cycles == issue + 2 * (16 + 16) + 64 + 16 + 32 + 16 + 64 + 64
    load, compute, store = queue_times(built.timeline)
    assert (load.setup, load.work, load.fill, load.drain) == (32, 32, issue, 256)
    assert (compute.setup, compute.work, compute.fill) == (0, 16, issue + 64 + 64)
    assert (store.setup, store.work, store.drain) == (16, 64, 64)
    assert load.waits == compute.waits == store.waits == {}
    assert memory_times(built.timeline) == {"dram": 16 + 16 + 64}
    assert longest_chain(built.timeline) == {
        ("store", "latency"): 64,
        ("store", "transfer"): 64,
        ("store", "set-up"): 16,
        ("compute", "latency"): 32,
        ("compute", "work"): 16,
        ("load", "latency"): 64,
        ("load", "transfer"): 32,
        ("load", "set-up"): 32,
        ("load", "issue"): issue,
    }


CHIPS = {"vta": vta, "gemmini": gemmini, "conv_engine": conv_engine}


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "single"])
@pytest.mark.parametrize("name", CHIPS)
def test_they_add_up(name: str, overlap: bool):
    built = build_chip(layer.bind(M=128, N=128, K=128).kernel, CHIPS[name](), overlap=overlap)
    timeline = built.timeline
    for q in queue_times(timeline):
        assert q.busy == timeline.busy[q.name]
        assert q.drain == timeline.stalls[q.name]["done"]
        assert q.waits.get("issue", 0) <= timeline.stalls[q.name]["issue"]
        parts = (q.setup, q.work, q.fill, q.drain, *q.waits.values())
        assert min(parts) >= 0
        assert sum(parts) == built.cycles
    chain = longest_chain(timeline)
    assert sum(chain.values()) == built.cycles
    assert min(chain.values()) > 0


def test_one_after_another_is_a_chain_of_all():
    """Every cycle of every instruction that works is in it."""
    built = build_chip(ONE_TILE.kernel, tiny(), serial=True)
    chain, timeline = longest_chain(built.timeline), built.timeline
    spent = sum(n for (_, what), n in chain.items() if what in ("work", "transfer", "set-up"))
    assert spent == sum(timeline.busy.values())


def test_bundles_add_up():
    """The queue of the bundles themselves is one of them."""
    from_bundles = build_chip(dots.bind(M=32, N=32, K=256).kernel, dsp())
    for q in queue_times(from_bundles.timeline):
        parts = (q.setup, q.work, q.fill, q.drain, *q.waits.values())
        assert min(parts) >= 0
        assert sum(parts) == from_bundles.cycles
