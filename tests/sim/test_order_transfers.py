"""Transfers that change places: nothing passes what it must stay behind, and what is needed first
comes first."""

import numpy as np
from random_chips import random_chip, random_stream
from stream_cases import CASES
from stream_order import passed

from tilewright.backends.stream.boxes import queue_numbers
from tilewright.backends.stream.order_transfers import order_transfers, transfer_order


def test_nothing_passes_what_it_must_stay_behind():
    moved = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        chip = random_chip(rng)
        for _ in range(8):
            stream = random_stream(chip, rng, 12)
            order = transfer_order(stream)
            moved += int((order != np.arange(len(stream))).sum())
            queue = queue_numbers(stream)
            np.testing.assert_array_equal(queue[order], queue)
            assert passed(stream, order) == [], seed
    assert moved > 100


def test_what_is_needed_first_comes_first():
    """A run of a kernel's stream is sorted: sorting it again changes nothing."""
    for name in ("vta", "gemmini", "tiny, window"):
        stream = CASES[name].build().stream
        np.testing.assert_array_equal(transfer_order(stream), np.arange(len(stream)))


def test_rows_are_moved_whole():
    rng = np.random.default_rng(3)
    stream = random_stream(random_chip(rng), rng, 12)
    order, moved = transfer_order(stream), order_transfers(stream)
    for name in ("site", "fields", "addresses", "lists"):
        np.testing.assert_array_equal(getattr(moved, name), getattr(stream, name)[order])
