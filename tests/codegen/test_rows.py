"""Streams from rows: what they touch against the instructions' definitions, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import grid, u8
from tilewright.backends.stream.boxes import boxes
from tilewright.backends.stream.iterations import _Pass
from tilewright.backends.stream.rows import Rows, operand_extents, stream_of_rows
from tilewright.backends.stream.touched import _as_boxes
from tilewright.base.errors import CompileError
from tilewright.ir.instruction import MicroOps
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, limit, view
from tilewright.target.target import Target

I, U = dims("I U", max=6)
LISTED = MicroOps("uop", 4)


def chip() -> Target:
    t = TargetBuilder("chip", clock=1e9)
    t.memory("m", 1 << 12)
    t.memory("uop", 1 << 8)
    t.queues("all", depth=8)
    t.interlock()

    @t.instruction("all")
    def block(
        src: view(u8[16, 16] @ "m", "far"), dst: out(u8[16, 16] @ "m"), n: Range(2, 16, 2),
        k: Range(1, 8), far: Range(0, 64),
    ):  # fmt: skip
        limit(n * k <= 64)
        for i, j in grid(n, k):
            dst[i, j] = src[i, j]

    @t.instruction("all")
    def spread(c: view(out(u8[I, U, 2] @ "m"), "far", LISTED), far: Range(0, 9)):
        for i, u, w in grid(I, U, 2):
            c[i, u, w] = 0

    return t.build()


def rows_of(*given: tuple[tuple[int, ...], tuple[int, ...]]) -> Rows:
    """Rows of `block`: fields and addresses."""
    rows = Rows.empty(chip(), np.zeros(len(given), np.int64))
    for k, (fields, addresses) in enumerate(given):
        rows.fields[k, : len(fields)] = fields
        rows.addresses[k, : len(addresses)] = addresses
    return rows


def touched_bytes(stream) -> list[tuple[set[int], set[int]]]:
    """What each row reads and writes."""
    b = boxes(stream)
    found = []
    for row in range(len(stream)):
        flags = (b.touched.reads, b.touched.writes)
        found.append(tuple(
            {int(x) for k in b.of(row) if flag[k] for x in b.bytes_of(k)} for flag in flags
        ))  # fmt: skip
    return found


def test_blocks():
    given = [((4, 3, 20), (100, 1000)), ((2, 8, 5), (0, 2048)), ((4, 3, 7), (100, 1000))]
    rows = rows_of(*given)
    stream = stream_of_rows(chip(), rows)
    wanted = []
    for (n, k, far), (src, dst) in given:
        places = [(i, j) for i in range(n) for j in range(k)]
        wanted.append(
            ({src + far * i + j for i, j in places}, {dst + 16 * i + j for i, j in places})
        )
    assert touched_bytes(stream) == wanted
    assert stream.sizes == {"m": 2048 + 16 + 8}
    assert len(stream.sites) == 3  # one for each step that a field says
    assert operand_extents(chip(), rows) == [[(n, k), (n, k)] for (n, k, _), _ in given]


def test_given_sizes_stay():
    stream = stream_of_rows(chip(), rows_of(((2, 1, 1), (0, 64))), {"m": 99})
    assert stream.sizes == {"m": 99}


def test_no_rows():
    stream = stream_of_rows(chip(), rows_of())
    assert (len(stream), stream.sizes, stream.sites) == (0, {}, ())


def spread_rows(lists: list[list[int]]) -> Rows:
    rows = Rows.empty(chip(), np.ones(len(lists), np.int64))
    names = [f.name for f in chip().instructions[1].fields]
    for k, entries in enumerate(lists):
        values = {"far": 3, "I": 2, "U": len(entries)}
        rows.fields[k, : len(names)] = [values[n] for n in names]
        rows.entries[k] = np.array(entries, np.int64)[:, None]
        rows.lists[k] = 0
    return rows


def test_lists():
    """An operand is where its list says, entry by entry; the rows stay as they are."""
    lists = [[40, 44, 48], [40, 44, 52], [7, 300, 9, 100], [140, 144, 148], [500]]
    rows = spread_rows(lists)
    before = rows.addresses.copy()
    stream = stream_of_rows(chip(), rows)
    np.testing.assert_array_equal(rows.addresses, before)
    wanted = [{at + 3 * i + w for at in some for i in range(2) for w in range(2)} for some in lists]
    assert [writes for _, writes in touched_bytes(stream)] == wanted
    assert len(stream.sites) == 4  # the first and the fourth move alike
    assert stream.sizes["m"] == 500 + 3 + 2


REFUSED = [
    ((1, 1, 0), "n is 1, and goes from 2 to 16 in steps of 2"),
    ((3, 1, 0), "n is 3, and goes from 2 to 16 in steps of 2"),
    ((18, 1, 0), "n is 18, and goes from 2 to 16 in steps of 2"),
    ((2, 0, 0), "k is 0, and goes from 1 to 8"),
    ((2, 9, 0), "k is 9, and goes from 1 to 8"),
    ((2, 1, 65), "far is 65, and goes from 0 to 64"),
]


@pytest.mark.parametrize("fields, what", REFUSED)
def test_fields_beyond_their_limits(fields: tuple[int, ...], what: str):
    right = ((16, 4, 64), (0, 1024))
    with pytest.raises(CompileError) as error:
        stream_of_rows(chip(), rows_of(right, right, (fields, (0, 0)), (fields, (0, 0))))
    assert error.value.what == f"block, instruction 2: {what}"


@pytest.mark.parametrize(
    "fields, right", [((16, 4, 0), True), ((16, 5, 0), False), ((8, 8, 0), True)]
)
def test_limits(fields: tuple[int, ...], right: bool):
    rows = rows_of(((2, 1, 0), (0, 1024)), (fields, (0, 1024)), (fields, (0, 1024)))
    if right:
        assert len(stream_of_rows(chip(), rows)) == 3
        return
    with pytest.raises(CompileError) as error:
        stream_of_rows(chip(), rows)
    assert error.value.what == "block, instruction 1: its limit n * k <= 64 does not hold"


# ---------------------------------------------------------------- offsets as boxes


def box(first: int, axes: list[tuple[int, int]]) -> list[int]:
    found = [first]
    for count, step in axes:
        found = [x + k * step for x in found for k in range(count)]
    return sorted(found)


@pytest.mark.parametrize(
    "offsets, axes",
    [
        ([5], []),
        ([0, 4, 8], [(3, 4)]),
        ([8, 0, 4, 4], [(3, 4)]),
        ([0, 1, 10, 11], [(2, 1), (2, 10)]),
        ([0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121], [(2, 1), (3, 10), (2, 100)]),
        ([0, 1, 4, 6], None),
        ([0, 1, 3], None),
        ([0, 1, 10, 11, 12], None),
        ([0, 2, 3, 5, 7, 8], None),
        ([0, 1, 2, 10, 12, 14], None),
    ],
)
def test_offsets(offsets: list[int], axes: list[tuple[int, int]] | None):
    """The sums of a few even series are one box; others are one for each."""
    found = _as_boxes(np.array(offsets))
    if axes is None:
        assert found == [(at, []) for at in sorted(offsets)]
    else:
        assert found == [(min(offsets), axes)]
    assert sorted(x for first, some in found for x in box(first, some)) == sorted(set(offsets))


def test_random_offsets():
    rng = np.random.default_rng(1)
    for _ in range(300):
        offsets = rng.integers(0, 12, rng.integers(1, 9))
        found = _as_boxes(offsets)
        covered = sorted(x for first, some in found for x in box(first, some))
        assert covered == sorted(set(offsets.tolist()))


@pytest.mark.parametrize("listed", [None, 0, 1, 2])
def test_bytes_that_iterations_move(listed: int | None):
    """Each from the first, against all of them one after another; and between two of them."""
    counts, steps = (3, 2, 4), (100, 7, 1)
    offsets = np.array([0, 50, 20, 90])[: counts[listed]] if listed is not None else None
    p = _Pass(counts, steps, None if listed is None else (listed, offsets), ())
    at = list(np.ndindex(*counts))
    moved = [
        sum(i * s for i, s in zip(turn, steps, strict=True))
        + (0 if listed is None else int(offsets[turn[listed]]))
        for turn in at
    ]
    assert p.iterations == len(at)
    assert p.moved(range(len(at))).tolist() == moved
    for turns in [(0, 0, 1), (1, 0, 0), (0, 1, -2), (1, -1, 0), (2, 1, 3), (-1, 1, 1)]:
        pairs = [
            moved[at.index(b)] - moved[at.index(a)]
            for a in at
            for b in [tuple(x + y for x, y in zip(a, turns, strict=True))]
            if b in at
        ]
        assert set(pairs) <= set(p.between(turns).tolist())
        assert listed is not None or len(p.between(turns)) == 1
