"""How a device ran a kernel, as it is kept: grouped, written, read, and damaged."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from tilewright.base.errors import ArtifactError
from tilewright.runtime.device_run import (
    BEGIN,
    BUSY,
    COUNT,
    END,
    GROUPS,
    INSTRUCTION,
    QUEUE,
    DeviceRun,
    MemoryUse,
    RunFacts,
    find_run,
    group,
)
from tilewright.runtime.program import DevicePart
from tilewright.runtime.records import to_json

FACTS = RunFacts(
    cycles=100, clock=10**9, expected=90, moved=4096, operations_per_second=None,
    bytes_per_second=8 * 10**9, queues=("load", "compute"), instructions=("get", "mul"),
    memories=(MemoryUse("dram", None, 9000), MemoryUse("local", 1024, 512)),
)  # fmt: skip
ROWS = np.array(
    [[0, 0, 1, 0, 10, 10], [0, 0, 1, 10, 30, 15], [0, 1, 1, 60, 70, 10], [1, 1, 1, 35, 100, 60]]
).T


def many(count, seed=0):
    """Instructions of two queues, one after another."""
    rng = np.random.default_rng(seed)
    gaps, lengths = rng.integers(0, 4, (2, count)), rng.integers(1, 9, count)
    ends = np.cumsum(gaps[0] + lengths)
    return np.stack(
        [
            rng.integers(0, 2, count), rng.integers(0, 2, count), np.ones(count, np.int64),
            ends - lengths, ends, lengths,
        ]
    ), int(ends[-1])  # fmt: skip


def test_groups_are_instructions_that_begin_in_the_same_part_of_the_time():
    found = group(ROWS, 100, 4)
    assert found.T.tolist() == [[0, 0, 2, 0, 30, 25], [0, 1, 1, 60, 70, 10], [1, 1, 1, 35, 100, 60]]
    assert group(ROWS, 100, 100).T.tolist() == ROWS.T.tolist()
    assert group(ROWS[:, :0], 0, 4).shape == (6, 0)


@pytest.mark.parametrize("bins", [1, 7, 256, GROUPS])
def test_groups_of_a_long_stream_are_few_and_add_up(bins):
    rows, cycles = many(100_000)
    found = group(rows, cycles, bins)
    for queue in (0, 1):
        ours, all_of_it = found[:, found[QUEUE] == queue], rows[:, rows[QUEUE] == queue]
        assert ours.shape[1] <= bins
        assert ours[COUNT].sum() == all_of_it.shape[1]
        assert ours[BUSY].sum() == all_of_it[BUSY].sum()
        assert (ours[BEGIN].min(), ours[END].max()) == (
            all_of_it[BEGIN].min(),
            all_of_it[END].max(),
        )
        assert (np.diff(ours[BEGIN]) > 0).all()
        assert (ours[BUSY] <= ours[END] - ours[BEGIN]).all()
    again = group(found, cycles, bins)
    assert np.array_equal(again, found)
    assert set(found[INSTRUCTION]) <= {0, 1}


def part(data, name="k.run"):
    return DevicePart("npu", "simulator", ((name, data),))


def test_what_is_written_is_read():
    run = DeviceRun(FACTS, ROWS)
    found = find_run(part(run.to_bytes()), "k")
    assert found.facts == FACTS
    assert np.array_equal(found.groups, ROWS)
    assert find_run(part(run.to_bytes()), "other") is None
    rows, cycles = many(100_000)
    long = DeviceRun(replace(FACTS, cycles=cycles), group(rows, cycles, GROUPS))
    assert len(long.to_bytes()) < 100_000


def refused(data):
    with pytest.raises(ArtifactError) as caught:
        find_run(part(data), "k")
    return str(caught.value)


def test_damage_is_said_in_words():
    assert refused(b"no zip").startswith("'k.run' of 'npu' cannot be read: ")
    out_of_range = "'k.run' of 'npu' cannot be read: a number is out of range"
    for row, value in ((QUEUE, 2), (INSTRUCTION, -1), (BUSY, -5), (END, 1 << 60)):
        rows = ROWS.copy()
        rows[row, 1] = value
        assert refused(DeviceRun(FACTS, rows).to_bytes()) == out_of_range
    assert refused(DeviceRun(replace(FACTS, clock=0), ROWS).to_bytes()) == out_of_range
    assert (
        refused(table_of_five())
        == "'k.run' of 'npu' cannot be read: its groups are no table of six rows"
    )


def table_of_five():
    file = io.BytesIO()
    facts = np.frombuffer(json.dumps(to_json(FACTS)).encode(), np.uint8)
    np.savez_compressed(file, facts=facts, groups=ROWS[:5])
    return file.getvalue()
