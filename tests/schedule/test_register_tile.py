"""Register tiles: how much of a product's result is kept in registers, by what it costs."""

import pytest

from tilewright.plan.register_tile import Stream, register_tile, separate_tile, tile_cost
from tilewright.target.target import Memory
from tilewright.targets import cpu

WIDE = cpu.cpu("avx512").vector  # one multiply-add of 16 lanes a cycle, 32 registers
L1, L2 = Memory("l1", 32 << 10, True), Memory("l2", 512 << 10, True, bandwidth=32)
L3 = Memory("l3", 8 << 20, True, shared_by=2, bandwidth=32)


@pytest.mark.parametrize(
    "depth, vectors, cycles",
    [
        (128, 2, 0.0),  # 128 steps of 128 bytes are half of L1
        (129, 2, 4.0),  # 128 bytes for each step, 32 a cycle
        (2048, 2, 4.0),  # half of L2
        (2049, 2, 8.0),  # of the 32 bytes a cycle of L3, a core has 16
        (585, 7, 14.0),
        (586, 7, 28.0),
    ],
)
def test_a_stream_comes_from_the_first_cache_that_holds_it(depth, vectors, cycles):
    assert Stream(depth, 4, (L1, L2, L3)).cycles(28, 14, vectors, WIDE) == cycles


def test_what_is_read_once_or_fits_no_cache_is_not_counted():
    assert Stream(1000, 1, (L1, L2)).cycles(14, 14, 2, WIDE) == 0.0
    assert Stream(1000, 1, (L1, L2)).cycles(15, 14, 2, WIDE) == 4.0
    assert Stream(1 << 20, 4, (L1, L2)).cycles(15, 14, 2, WIDE) == 0.0


def test_a_few_rows_of_many_vectors_wait_for_their_weights():
    """2 x 7 vectors are 14 multiply-adds, which take as long as 448 bytes from L2, or from L3."""
    near, far = (Stream(depth, 14, (L1, L2, L3)) for depth in (585, 672))
    cost = {s: tile_cost(2, 7, 14, 112, 16, WIDE, s) for s in (None, near, far)}
    assert cost[near] == cost[None]
    assert cost[far] == pytest.approx(2 * cost[None])
    chosen = register_tile(14, 112, 16, WIDE, stream=far)
    assert far.cycles(14, chosen.rows, chosen.vectors, WIDE) <= chosen.rows * chosen.vectors


def test_a_last_tile_counts_by_the_vectors_that_it_has():
    """Of 7 vectors in tiles of 2, the last tile is of 1: nothing is done for 8."""
    tile = register_tile(14, 7 * 16, 16, WIDE, stream=Stream(600, 14, (L1, L2)))
    assert (tile.rows, tile.vectors) == (14, 2)


@pytest.mark.parametrize("rows, vectors", [(28, 6), (29, 6), (31, 1), (112, 9), (5, 12)])
def test_windows_of_channels_of_their_own_share_weights_among_rows(rows: int, vectors: int):
    """A tile of one row reads two vectors for each multiply-add."""
    tile = separate_tile(rows, vectors, WIDE)
    assert tile.rows >= 4, tile
    assert tile.rows * tile.vectors <= 2 * WIDE.latency
