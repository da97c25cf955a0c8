"""What keeps a kernel from being faster: known by construction, and named."""

import dataclasses
import json

import pytest
from byte_kernels import dots, gemm

from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.explain.explanation import Explanation
from tilewright.explain.what_if import changes
from tilewright.target.target import Target
from tilewright.target.vary import half, twice, with_bursts, with_costs, with_memory, with_range
from tilewright.targets.dsp import dsp
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny

GEMM = gemm.bind(M=256, N=256, K=256)


def explained(target: Target, **control) -> Explanation:
    return build_chip(GEMM.kernel, target, **control).explain()


@pytest.fixture(scope="module")
def cramped() -> Explanation:
    return explained(tiny(spad=4 << 10))


def test_the_unit_is_the_bottleneck():
    found = explained(tiny())
    assert found.bottleneck == "queue compute"
    assert found.share > 0.95
    assert found.binding is None
    assert found.helps[0].change == "gemm: twice as fast"
    assert found.helps[0].gain > 0.3


def test_the_memory_is_the_bottleneck():
    found = explained(with_memory(tiny(), "dram", bandwidth=2))
    assert found.bottleneck == "memory dram"
    assert found.helps[0].change == "dram: twice the bandwidth"
    assert found.helps[0].gain > 0.3
    assert not any("gemm" in w.change for w in found.helps)


def test_set_up_is_the_bottleneck():
    slow = with_costs(tiny(), "setup", lambda term: term * 32, ["mvin"])
    found = explained(slow)
    assert found.bottleneck == "queue load"
    load = found.queues[0]
    assert load.setup > 2 * load.work
    changed = {w.change: w.gain for w in found.helps}
    assert changed["mvin, mvout: set up in half the time"] > 0.1


def test_a_small_memory_binds(cramped: Explanation):
    """With more of it, tiles are larger: what is expected is what that chip's own is."""
    binding = cramped.binding
    assert binding.change == "spad (4,096 bytes): twice as large"
    assert binding in cramped.helps
    roomy = explained(tiny(spad=8 << 10))
    assert binding.cycles == roomy.expected
    assert binding.cycles == pytest.approx(roomy.cycles, rel=0.05)


def test_banks_and_ranges_bind():
    """A limit that is made up: it is found among all others."""
    banked = with_memory(tiny(spad=8 << 10), "spad", banks=8)
    by_change = {c.what: c for c in changes(banked, build_chip(GEMM.kernel, tiny()).stream)}
    free = by_change["spad (8,192 bytes): one bank, not 8"]
    assert free.limits
    assert free.target == tiny(spad=8 << 10)
    short = with_range(tiny(), "mvin", "rows", 4)
    found = explained(short)
    assert found.binding.change == "rows of mvin (at most 4): twice the range"


def test_what_is_expected_of_a_better_chip_is_never_worse(cramped: Explanation):
    assert [w.gain for w in cramped.helps] == sorted((w.gain for w in cramped.helps), reverse=True)
    assert all(w.gain >= 0.01 for w in cramped.helps)
    for w in cramped.helps:
        assert w.gain == pytest.approx(1 - w.cycles / cramped.expected, abs=1e-4)


def test_one_after_another_is_explained_by_the_simulator():
    """The model knows of no such order; the tiles stay as they are."""
    prompt = with_costs(tiny(), "latency", lambda _: 0, ["gemm"])  # nothing waits for results
    found = explained(prompt, serial=True)
    assert (found.by, found.expected, found.binding) == ("simulator", None, None)
    faster = next(w for w in found.helps if w.change == "gemm: twice as fast")
    compute = next(q for q in found.queues if q.name == "compute")
    assert found.cycles - faster.cycles == compute.work // 2


def test_slots_are_the_bottleneck_of_a_statically_scheduled_chip():
    built = build_chip(dots.bind(M=64, N=64, K=512).kernel, dsp())
    found = built.explain()
    assert found.bottleneck == built.bound.bottleneck == "mac"
    assert found.parts == {**built.bound.slots, "moves": built.bound.moves}
    assert found.chain == ()
    assert found.helps[0].change == "mac: 2 slots in a bundle"


# ---------------------------------------------------------------- how it prints


def test_in_words(cramped: Explanation):
    lines = str(cramped).splitlines()
    assert lines[0] == f"gemm on tiny: {cramped.cycles:,} cycles ({cramped.seconds * 1e6:,.1f} µs)"
    tile = cramped.tile
    assert lines.pop(1) == f"a tile: {tile['i']} of i, {tile['j']} of j, {tile['k']} of k"
    assert lines[1].startswith("bound: 65,841 cycles, ")
    assert lines[1].endswith(
        "of that (work 65,536, moves 24,576, fill 128, drain 176, ends 80, control 1)"
    )
    assert lines[3].split() == [
        "queue",
        "works",
        "set-up",
        "fill",
        "drain",
        "waits",
        "waits",
        "for",
    ]
    assert [line.split()[0] for line in lines[4:7]] == ["load", "compute", "store"]
    gain = f"{cramped.binding.gain:.1%}"
    assert f"what keeps better tiles out: {cramped.binding.change} would save {gain}" in lines
    at = lines.index("what would help, says the model, with the best tiles")
    assert len(lines) - at - 1 == len(cramped.helps)


def test_nothing_helps():
    """A record whose every list is empty prints, too."""
    found = Explanation(
        "k", "chip", 10, 1e-8, {}, None, {}, 10, "queue q", 1.0, (), {}, (), None, (), "model"
    )
    assert str(found) == (
        "k on chip: 10 cycles (0.0 µs)\n"
        "bottleneck: queue q, busy 100.0% of the time\n"
        "queue  works  set-up  fill  drain  waits  waits for\n"
        "bandwidth in use: none\n"
        "what keeps better tiles out: nothing that matters\n"
        "what would help, says the model, with the best tiles: nothing by itself"
    )


def test_as_json(cramped: Explanation):
    found = json.loads(json.dumps(cramped.json()))
    assert found["cycles"] == cramped.cycles
    assert found["of_bound"] == cramped.bound / cramped.cycles
    assert found["binding"] == dataclasses.asdict(cramped.binding)
    assert [q["name"] for q in found["queues"]] == ["load", "compute", "store"]


# ---------------------------------------------------------------- chips with one fact changed


def test_facts_of_a_chip():
    chip = gemmini()
    assert with_memory(chip, "spad", size=512 << 10) == gemmini(spad=512 << 10)
    slower = with_costs(chip, "setup", twice, ["mvin"])
    setups = {i.name: i.cost.setup for i in slower.instructions}
    assert (setups["mvin"], setups["mvout"]) == (32, 16)
    assert with_costs(slower, "setup", half, ["mvin"]) == chip
    assert (half(5), half(4), half(0)) == (3, 2, 0)


def test_bursts():
    """Only the constant of the cost changes: 64 bytes of what lies apart become 128."""
    before = gemmini().instruction("mvin").cost.bytes
    after = with_bursts(gemmini(), 64, 128).instruction("mvin").cost.bytes
    assert str(after) == str(before).replace("64", "128")
    assert str(after) != str(before)


def test_ranges():
    chip = with_range(tiny(), "mvin", "rows", 128)
    wider = chip.instruction("mvin")
    assert wider.field("rows").high == wider.field("rows").symbol.upper == 128
    loop = wider.body[0]
    assert loop.extent == wider.field("rows").symbol
    assert chip.instruction("mvout") == tiny().instruction("mvout")
    assert isinstance(build_chip(GEMM.kernel, chip), ChipKernel)
