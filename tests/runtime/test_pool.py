"""The thread pool runs every task of a region once, whatever else goes on in the process."""

import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest

from tilewright.runtime import _native
from tilewright.runtime.pool import ThreadPool, shared_pool

TW_PARALLEL = _native.addresses()["tw_parallel"]
TASKS = "/proc/self/task"


@pytest.fixture(params=[1, 2, 3, 16])
def pool(request):
    with ThreadPool(request.param) as pool:
        yield pool


def address(pool: ThreadPool) -> int:
    return _native.pool_address(pool.handle)


def pointers(*arrays) -> np.ndarray:
    """A struct of pointers and numbers, as machine code reads it."""
    return np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in arrays], np.uint64)


def wait_until(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited for 10 seconds"
        time.sleep(0.0005)


def count_tasks(code, parallel, pool, count, grain):
    """How often each task ran, and how many tasks each worker had."""
    tasks, workers = np.zeros(max(count, 1), np.int64), np.zeros(1024, np.int64)
    context = pointers(tasks, workers)
    parallel(pool, code("count"), context.ctypes.data, count, grain)
    return tasks[: max(count, 0)], workers


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("grain", [1, 3, 64, 2000])
def test_every_task_runs_once(code, parallel, pool, count, grain):
    for _ in range(20):
        tasks, workers = count_tasks(code, parallel, address(pool), count, grain)
        assert (tasks == 1).all()
        assert workers.sum() == count
        assert not workers[pool.threads :].any()


def test_more_pieces_than_a_region_may_have(code, parallel, pool):
    """Fewer that are larger take their place, each a multiple of the grain."""
    tasks, workers = count_tasks(code, parallel, address(pool), 200_003, 1)
    assert (tasks == 1).all()
    assert workers.sum() == 200_003
    ends = np.zeros(200_003, np.int64)
    parallel(address(pool), code("cut"), ends.ctypes.data, 200_003, 1)
    assert [*np.flatnonzero(ends)] == [*range(0, 200_003, 4)]


def test_negative_count_is_no_task(code, parallel, pool):
    _, workers = count_tasks(code, parallel, address(pool), -5, 1)
    assert not workers.any()


@pytest.mark.parametrize("threads", [None, 1, 2])
@pytest.mark.parametrize(
    "count, grain, pieces",
    [(10, 4, {0: 4, 4: 8, 8: 10}), (8, 4, {0: 4, 4: 8}), (3, 9, {0: 3}), (2, 0, {0: 1, 1: 2})],
)
def test_pieces_depend_on_count_and_grain_alone(code, parallel, threads, count, grain, pieces):
    ends = np.zeros(count, np.int64)
    pool = shared_pool(threads) if threads else None
    parallel(pool and address(pool), code("cut"), ends.ctypes.data, count, grain)
    assert {i: end for i, end in enumerate(ends.tolist()) if end} == pieces


def test_without_a_pool_all_runs_here(code, parallel):
    tasks, workers = count_tasks(code, parallel, None, 100, 7)
    assert (tasks == 1).all()
    assert workers[0] == 100


def test_workers_help(code, parallel):
    """Two tasks that wait for each other's arrival end only if two threads run them."""
    with ThreadPool(2) as pool:
        for idle in (0, 0, 0.002):  # the last one finds the worker asleep
            time.sleep(idle)
            flags = np.zeros(2, np.int64)
            region = threading.Thread(
                target=parallel, args=(address(pool), code("hold"), flags.ctypes.data, 2, 1)
            )
            region.start()
            wait_until(lambda flags=flags: flags[1] == 2)
            flags[0] = 1
            region.join()


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_every_thread_begins_with_its_share(code, parallel, threads):
    """The same part of every region, which lies in its core's caches."""
    with ThreadPool(threads) as pool:
        for _ in range(5):
            flags = np.zeros(2 + threads, np.int64)
            region = threading.Thread(
                target=parallel,
                args=(address(pool), code("hold_own"), flags.ctypes.data, threads, 1),
            )
            region.start()
            wait_until(lambda flags=flags: flags[1] == threads)
            flags[0] = 1
            region.join()
            assert flags[2:].tolist() == list(range(threads))


def test_regions_after_sleep(code, parallel, pool):
    for _ in range(20):
        time.sleep(0.001)  # workers fall asleep in 50 microseconds
        tasks, _ = count_tasks(code, parallel, address(pool), 64, 1)
        assert (tasks == 1).all()


def test_concurrent_calls(code, parallel, pool):
    lost = []

    def call():
        for _ in range(200):
            tasks, workers = count_tasks(code, parallel, address(pool), 50, 3)
            if not ((tasks == 1).all() and workers.sum() == 50):
                lost.append(tasks)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not lost


def test_a_busy_pool_does_not_block_others(code, parallel):
    with ThreadPool(2) as pool:
        flags = np.zeros(2, np.int64)
        holder = threading.Thread(
            target=parallel, args=(address(pool), code("hold"), flags.ctypes.data, 2, 1)
        )
        holder.start()
        wait_until(lambda: flags[1] == 2)
        tasks, workers = count_tasks(code, parallel, address(pool), 30, 1)
        flags[0] = 1
        holder.join()
    assert (tasks == 1).all()
    assert workers[0] == 30, "the caller runs its region alone, as worker 0"


def test_nested_regions_keep_their_worker(code, parallel, pool):
    """Else two of them would share a worker's scratch."""
    same_and_other = np.zeros(2, np.int64)
    context = pointers(TW_PARALLEL, address(pool), same_and_other, 0)
    for _ in range(200):
        parallel(address(pool), code("outer"), context.ctypes.data, 32, 1)
    assert same_and_other.tolist() == [200 * 32 * 2, 0]


def test_threads_come_and_go():
    def tasks():
        return len(os.listdir(TASKS))

    before = tasks()
    pools = [ThreadPool(3) for _ in range(4)]
    assert tasks() == before + 8
    for pool in pools:
        pool.close()
    wait_until(lambda: tasks() == before)
    for _ in range(100):
        ThreadPool(2).close()


def test_forgotten_pool_is_closed():
    pool = ThreadPool(2)
    handle = pool.handle
    del pool
    with pytest.raises(ValueError, match="no thread pool has the handle"):
        _native.pool_threads(handle)


def test_closed_pool():
    with ThreadPool(2) as pool:
        assert repr(pool) == "ThreadPool(2)"
    pool.close()
    assert repr(pool) == "ThreadPool(2, closed)"
    with pytest.raises(ValueError) as error:
        pool.handle  # noqa: B018
    assert str(error.value) == "this thread pool is closed: make a new one, or keep it open"


@pytest.mark.parametrize("threads", [0, -1, 1025, 2**40])
def test_impossible_sizes(threads):
    with pytest.raises(ValueError) as error:
        ThreadPool(threads)
    assert str(error.value) == f"a thread pool has 1 to 1024 threads, not {threads}"


def test_pool_closed_during_a_call_lives_until_its_end(code):
    pool = ThreadPool(2)
    flags, results = np.zeros(2, np.int64), []
    memories = [TW_PARALLEL, code("hold"), flags.ctypes.data]

    def call():
        results.append(_native.call(code("region"), memories, [2], pool.handle, 0, 0, 0))

    caller = threading.Thread(target=call)
    caller.start()
    wait_until(lambda: flags[1] == 2)
    pool.close()
    flags[0] = 1
    caller.join()
    assert results == [0]


def test_shared_pools():
    assert shared_pool(2) is shared_pool(2)
    assert shared_pool(2) is not shared_pool(3)
    closed = shared_pool(5)
    closed.close()
    assert shared_pool(5) is not closed


def in_fork(work) -> int:
    """The exit status of a forked process that does this: 0 if it returns True."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of what we test here
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that hangs
        try:
            os._exit(0 if work() is True else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1]


def test_fork(code, parallel):
    """The child has none of the workers: old pools run alone there, new ones as ever."""
    held, shared = ThreadPool(2), shared_pool(2)
    flags = np.zeros(2, np.int64)
    region = (address(held), code("hold"), flags.ctypes.data, 2, 1)
    holder = threading.Thread(target=parallel, args=region)
    holder.start()
    wait_until(
        lambda: flags[1] == 2
    )  # the fork happens in the middle of a region of another thread

    def child():
        for old in (held, shared):
            tasks, workers = count_tasks(code, parallel, address(old), 40, 1)
            if not ((tasks == 1).all() and workers[0] == 40):
                return False
            old.close()
        new = shared_pool(2)
        tasks, _ = count_tasks(code, parallel, address(new), 40, 1)
        return new is not shared and bool((tasks == 1).all()) and len(os.listdir(TASKS)) == 2

    assert in_fork(child) == 0
    flags[0] = 1
    holder.join()
    tasks, _ = count_tasks(code, parallel, address(held), 40, 1)
    assert (tasks == 1).all()
    held.close()
