"""Costs of nests, and texts of changes."""

from __future__ import annotations

import pytest
from schedule_cases import schedule
from schedule_programs import LONG, MATMUL, MATRIX, SOFT

from tilewright.base.dtype import f32
from tilewright.base.errors import ScheduleError
from tilewright.target.target import Memory, Target, VectorUnit
from tilewright.targets import tiny

# 8 lanes of f32, one multiply-add a cycle: 16 operations; 4 bytes a cycle from memory.
SMALL = Target(
    "small",
    1,
    1e9,
    VectorUnit(32, 16, ((f32, 1.0),)),
    (Memory("l1", 1 << 15), Memory("dram", None, bandwidth=4.0)),
)


def test_roofline():
    cost = schedule(MATMUL).cost(SMALL)
    (nest,) = cost.nests
    assert nest.nest == "c"
    assert nest.operations == 2 * 4 * 5 * 6
    assert nest.bytes == 4 * (4 * 6 + 6 * 5 + 4 * 5)
    assert nest.seconds == pytest.approx(nest.bytes / 4 * 1e-9)
    assert nest.limit == "dram"
    assert str(cost) == ("nest  operations  bytes  at least\nc            240    296  74 ns (dram)")


def test_nests_follow_each_other():
    cost = schedule(SOFT).cost(SMALL)
    assert [(n.nest, n.operations, n.bytes) for n in cost.nests] == [
        ("m", 32, 4 * (4 + 32)),
        ("y", 32, 4 * (4 + 32 + 32)),
    ]
    assert (cost.operations, cost.bytes) == (64, 416)
    assert cost.seconds == pytest.approx(104e-9)
    assert str(cost).splitlines()[-1].split() == ["all", "64", "416", "104", "ns"]


def test_splitting_changes_nothing():
    s = schedule(MATMUL)
    before = s.cost(SMALL)
    s.split(s.loop("i"), 2)
    s.cache_read(s.buffer("b"), s.loop("j"))
    assert s.cost(SMALL).operations == before.operations
    assert s.cost(SMALL).bytes == before.bytes  # what a nest keeps to itself is not moved


def test_facts_that_are_not_known_limit_nothing():
    cost = schedule(MATRIX).cost(Target("nothing", 1, 1e9))
    assert (cost.nests[0].seconds, cost.nests[0].limit) == (0.0, "")


def test_sizes_must_be_known():
    with pytest.raises(ScheduleError) as caught:
        schedule(LONG).cost(tiny.tiny())
    assert str(caught.value) == "the cost of k depends on n\n  hint: give them numbers: bind(…)"


def test_diff():
    s = schedule(MATRIX)
    assert s.diff() == ""
    s.split(s.loop("i"), 2)
    s.unroll(s.loop("j"))
    assert s.diff().splitlines() == [
        "--- original",
        "+++ after 2 steps",
        "@@ -1,4 +1,5 @@",
        " def k(x: f32[4, 6], y: out(f32[4, 6])):",
        "-    for i in range(4):",
        "-        for j in range(6):",
        "-            y[i, j] = x[i, j]",
        "+    for i_o in range(2):",
        "+        for i_i in range(2):",
        "+            for j in unroll(6):",
        "+                y[i_o * 2 + i_i, j] = x[i_o * 2 + i_i, j]",
    ]
    assert s.diff(1).splitlines() == [
        "--- after 1 steps",
        "+++ after 2 steps",
        "@@ -1,5 +1,5 @@",
        " def k(x: f32[4, 6], y: out(f32[4, 6])):",
        "     for i_o in range(2):",
        "         for i_i in range(2):",
        "-            for j in range(6):",
        "+            for j in unroll(6):",
        "                 y[i_o * 2 + i_i, j] = x[i_o * 2 + i_i, j]",
    ]
    assert s.diff(5) == s.diff().replace("--- original", "--- after 0 steps")


def test_instructions_take_cycles():
    s = schedule("""
def copy(x: i8[128, 16], y: out(i8[128, 16])):
    t = alloc(i8[128, 16] @ "spad")
    for i in range(128):
        for j in range(16):
            t[i, j] = x[i, j]
    for a in range(128):
        for b in range(16):
            y[a, b] = t[a, b]
""")
    target = tiny.tiny()
    s.tensorize(s.loop("i"), next(x for x in target.instructions if x.name == "mvin"))
    first = s.cost(target).nests[0]
    assert first.nest == "t"
    assert first.seconds == pytest.approx(128 * 16 / 16 / 500e6)  # 16 bytes a cycle from memory
    assert first.limit == "dram"
