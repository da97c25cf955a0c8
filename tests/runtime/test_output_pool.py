"""Large outputs: memory is used again once nobody holds it, and never before."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from handmade_programs import affine

from tilewright.runtime.arena import LARGE, OutputPool
from tilewright.runtime.module import Module

F32 = np.dtype(np.float32)
MANY = (LARGE // 4,)


def at(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again():
    pool = OutputPool(1)
    array = pool.empty(MANY, F32)
    place = at(array)
    assert place % 64 == 0
    assert array.flags.writeable
    assert array.flags.c_contiguous
    del array
    again = pool.empty((2, LARGE // 8), F32)
    assert at(again) == place


@pytest.mark.parametrize(
    "held",
    [
        lambda a: a,
        lambda a: a[5:],
        lambda a: a.reshape(2, -1).T,
        memoryview,
        lambda a: a.view("i4"),
    ],
    ids=["itself", "a part", "a transpose", "a buffer", "other elements"],
)
def test_what_somebody_holds_is_not_written(held):
    pool = OutputPool(1)
    array = pool.empty(MANY, F32)
    array[:] = 1
    kept, place = held(array), at(array)
    del array
    other = pool.empty(MANY, F32)
    assert at(other) != place
    other[:] = 2
    assert np.asarray(kept).view(F32).min() == 1


def test_no_more_is_kept_than_a_call_returns():
    pool = OutputPool(2)
    arrays = [pool.empty(MANY, F32) for _ in range(3)]
    places = {at(a) for a in arrays}
    arrays.clear()
    again = [pool.empty(MANY, F32) for _ in range(2)]
    assert {at(a) for a in again} <= places
    assert not pool._free


def test_memory_of_another_size_goes():
    pool = OutputPool(2)
    first = pool.empty(MANY, F32)
    del first
    assert len(pool._free) == 1
    pool.empty((LARGE // 2,), F32)
    assert [x.size // LARGE for x in pool._free] == [2]


def test_a_result_outlives_its_module():
    x = np.ones(MANY, F32)
    with Module(affine(), threads=1) as module:
        result = module(x, x)
    del module
    gc.collect()
    assert result.min() == result.max() == 3


def test_results_of_threads_are_their_own():
    module = Module(affine(), threads=1, concurrency=3)

    def calls(k):
        x = np.full(MANY, k, F32)
        results = (module(x, x) for _ in range(6))
        return all((y == 3 * k).all() for y in results)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(calls, range(3)))
