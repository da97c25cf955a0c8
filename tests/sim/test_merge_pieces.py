"""Kernels of one stream that go along with each other: nothing passes what it must stay behind, and
what a queue does for others no longer waits for all of the kernel before."""

import ml_dtypes
import numpy as np
from attention_cases import attention
from attention_chips import softmax_engine
from random_chips import random_chip, random_stream
from stream_order import passed

from tilewright import chip_kernel
from tilewright.backends.stream.boxes import queue_numbers
from tilewright.backends.stream.merge_pieces import merged_order, stands_still
from tilewright.chip import build_chip


def test_nothing_passes_what_it_must_stay_behind():
    moved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chip = random_chip(rng)
        for _ in range(8):
            stream = random_stream(chip, rng, 16)
            n = len(stream)
            piece = np.sort(rng.integers(0, 5, n))
            order = merged_order(stream, piece)
            if order is None:
                continue
            np.testing.assert_array_equal(np.sort(order), np.arange(n))
            moved += int((order != np.arange(n)).sum())
            assert passed(stream, order) == [], seed
            number = queue_numbers(stream) * 5 + piece
            for k in np.unique(number):  # those of a queue and a kernel keep their order
                assert (np.diff(order[number[order] == k]) > 0).all(), seed
    assert moved > 300


def test_one_kernel_stays_as_it_is():
    rng = np.random.default_rng(5)
    stream = random_stream(random_chip(rng), rng, 16)
    assert merged_order(stream, np.zeros(len(stream), np.int64)) is None


def test_products_go_along_with_a_softmax(monkeypatch):
    """Both products of a head wait for rows of the softmax between them, and not for all."""
    case = attention(128, 64)
    rng = np.random.default_rng(2)
    arrays = [(rng.standard_normal((128, 64)) / 4).astype(ml_dtypes.bfloat16) for _ in range(3)]
    merged = build_chip(case.kernel, softmax_engine())
    monkeypatch.setattr(chip_kernel, "stands_still", lambda stream, cycles: False)
    one_by_one = build_chip(case.kernel, softmax_engine())
    assert merged.cycles < 0.9 * one_by_one.cycles
    assert merged.bound.cycles <= merged.cycles
    out = np.zeros((128, 64), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        merged(*arrays, out).astype(np.float32), one_by_one(*arrays, out).astype(np.float32)
    )
    assert merged.replay(*arrays, out) is None


def test_a_stream_that_keeps_something_busy_is_left_alone():
    built = build_chip(attention(64, 32).kernel, softmax_engine())
    assert stands_still(built.stream, built.cycles)
    busiest = max(built.timeline.busy.values())
    assert not stands_still(built.stream, int(busiest * 1.04))
