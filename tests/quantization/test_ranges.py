"""Histograms, the ranges that are chosen from them, and scales: against numpy, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.quantization.observer import SIDE, Observer
from tilewright.quantization.ranges import METHODS, find_range
from tilewright.quantization.scales import (
    EXACT,
    Scheme,
    choose_scale,
    quantise_weights,
)


def observed(*arrays):
    observer = Observer()
    for a in arrays:
        observer.add(np.asarray(a, np.float32))
    return observer


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=20), max_size=8))
def test_a_histogram_counts_all_whatever_comes_first(arrays):
    observer = observed(*arrays)
    numbers = np.array([x for a in arrays for x in a], np.float32)
    assert observer.counts.sum() + observer.zeros == len(numbers)
    assert observer.zeros == (numbers == 0).sum()
    if len(numbers):
        assert (observer.low, observer.high) == (numbers.min(), numbers.max())
        assert observer.limit == 0 or observer.limit >= np.abs(numbers).max()


def test_a_range_that_grows_keeps_the_histogram():
    numbers = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    parts = np.split(numbers[np.argsort(np.abs(numbers))], 64)  # each larger than those before
    observer = observed(*parts)
    wanted, _ = np.histogram(numbers, 2 * SIDE, (-observer.limit, observer.limit))
    assert np.abs(observer.counts - wanted).max() <= 1  # a number on an edge


def test_numbers_that_are_not_finite_are_noticed():
    assert not observed([1, np.inf]).is_finite
    assert not observed([np.nan]).is_finite


@pytest.mark.parametrize("method", METHODS)
def test_a_range_has_zero_in_it_and_nothing_beyond_what_occurred(method):
    low, high = find_range(observed(np.linspace(2, 3, 1000)), method, 99.9)
    assert low == 0
    assert 2.9 < high <= 3
    assert find_range(observed(np.zeros(5)), method, 99.9) == (0, 0)
    assert find_range(observed(), method, 99.9) == (0, 0)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_a_few_numbers_far_away_are_given_up(method):
    numbers = np.random.default_rng(0).normal(size=100_000)
    numbers[:2] = (-60, 80)
    low, high = find_range(observed(numbers), method, 99.99)
    assert -40 < low < -2
    assert 2 < high < 60
    assert find_range(observed(numbers), "minmax", 99.99) == (-60, 80)


def test_the_percentile_leaves_out_so_many():
    numbers = np.arange(1, 10_001) / 10_000
    low, high = find_range(observed(numbers), "percentile", 99)
    assert low == 0
    assert high == pytest.approx(0.99, abs=2e-3)


def scheme(name="int8", activations="i8", *, per_tensor=False, method="minmax"):
    return Scheme(name, method, activations, per_tensor, 99.99)


def test_scales_reach_both_ends_and_zero_exactly():
    scale = choose_scale([observed([-1, 3])], scheme())
    assert (scale.low, scale.high) == pytest.approx((-1, 3), abs=scale.step)
    assert scale.zero == -64
    scale = choose_scale([observed([0, 5.1])], scheme(activations="u8"))
    assert (scale.zero.dtype, scale.zero, scale.step) == (np.uint8, 0, np.float32(0.02))
    scale = choose_scale([observed([-1, 3])], scheme(activations="symmetric"))
    assert (scale.zero, scale.step) == (0, np.float32(3 / 127))
    scale = choose_scale([observed([-1, 3])], scheme("pow2"))
    assert (scale.zero, scale.step) == (0, 2**-5)


def test_several_values_share_the_wider_range():
    scale = choose_scale([observed([-1]), observed([2])], scheme())
    assert scale == choose_scale([observed([-1, 2])], scheme())


def test_weights_keep_their_largest_for_each_channel():
    weight = np.array([[1.0, -127], [0, 0], [0.5, 0.25]], np.float32)
    found = quantise_weights(weight, 0, scheme())
    assert found.numbers.tolist() == [[1, -127], [0, 0], [127, 64]]
    assert found.step.tolist() == [1, 1, np.float32(0.5 / 127)]
    found = quantise_weights(weight, 0, scheme(per_tensor=True))
    assert found.numbers.tolist() == [[1, -127], [0, 0], [0, 0]]


def test_steps_of_weights_leave_room_for_a_large_bias():
    weight = np.full((2, 4), 1e-9, np.float32)
    found = quantise_weights(weight, 0, scheme(), np.array([5.0, 0.0]))
    assert found.step[0] == pytest.approx(5 / 2**30)
    assert found.step[1] == pytest.approx(1e-9 / 127)


@given(st.integers(1, 5000), st.floats(0, 1e4))
def test_sums_of_powers_of_two_are_exact_in_floats(count, bias):
    weight = np.random.default_rng(count).uniform(0.5, 1, (2, count)).astype(np.float32)
    found = quantise_weights(weight, 0, scheme("pow2"), np.array([0.0, bias]))
    assert np.frexp(found.step)[0] == 0.5
    sums = np.abs(found.numbers.astype(int)).sum(axis=1) * 128
    assert (sums + np.array([0, bias]) / found.step < EXACT).all()
