"""Barriers: where they are put, that they suffice, that none is too many."""

from __future__ import annotations

import itertools
import textwrap

import numpy as np
import pytest
from executor import run_concurrently
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies_workers import inputs_of, races, without, worker_kernels

from tilewright.analyze.workers import Gap, axes, barriers, needs
from tilewright.base.errors import CompileError
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Barrier, Kernel, walk_statements
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.lower.place_barriers import check_barriers, place_barriers
from tilewright.lower.run_in_order import run_in_order


def kernel(text: str) -> Kernel:
    found = parse_kernel(textwrap.dedent(text).strip())
    verify_kernel(found)
    return found


def placed(before: str, after: str) -> None:
    """Barriers are put as in `after`; they suffice, and without any of them an error says so."""
    found = place_barriers(kernel(before))
    verify_kernel(found)
    assert str(found) == textwrap.dedent(after).strip()
    check_barriers(found)
    assert place_barriers(found) == found
    for less in without(found):
        with pytest.raises(CompileError, match="do not wait for each other"):
            check_barriers(less)


# ---------------------------------------------------------------- by example


def test_a_shared_tile_takes_two():
    """One behind the fill, one before the next."""
    placed(
        """
        def mirror(a: f32[8, 4], y: out(f32[8, 4])):
            for k in range(8):
                tile = alloc(f32[4] @ "shared")
                for i in bind(4, "thread"):
                    tile[i] = a[k, i]
                for j in bind(4, "thread"):
                    y[k, j] = tile[3 - j]
        """,
        """
        def mirror(a: f32[8, 4], y: out(f32[8, 4])):
            for k in range(8):
                tile = alloc(f32[4] @ "shared")
                for i in bind(4, "thread"):
                    tile[i] = a[k, i]
                barrier("thread")
                for j in bind(4, "thread"):
                    y[k, j] = tile[3 - j]
                barrier("thread")
        """,
    )


def test_two_places_in_turn_take_one():
    """The one in the loop is behind the first fill as well."""
    placed(
        """
        def mirror(a: f32[9, 4], y: out(f32[8, 4])):
            tile = alloc(f32[2, 4] @ "shared")
            for i in bind(4, "thread"):
                tile[0, i] = a[0, i]
            for k in range(8):
                for i_1 in bind(4, "thread"):
                    tile[(k + 1) % 2, i_1] = a[k + 1, i_1]
                for j in bind(4, "thread"):
                    y[k, j] = tile[k % 2, 3 - j]
        """,
        """
        def mirror(a: f32[9, 4], y: out(f32[8, 4])):
            tile = alloc(f32[2, 4] @ "shared")
            for i in bind(4, "thread"):
                tile[0, i] = a[0, i]
            for k in range(8):
                barrier("thread")
                for i_1 in bind(4, "thread"):
                    tile[(k + 1) % 2, i_1] = a[k + 1, i_1]
                for j in bind(4, "thread"):
                    y[k, j] = tile[k % 2, 3 - j]
        """,
    )


def test_what_is_needed_later_takes_one_anywhere():
    """Two iterations on: one is passed on the way, wherever it stands."""
    placed(
        """
        def late(a: f32[8, 4], s: out(f32[8, 4]), y: out(f32[8, 4])):
            for k in range(8):
                for i in bind(4, "thread"):
                    s[k, i] = a[k, i]
                for j in bind(4, "thread"):
                    y[k, j] = select(k >= 2, s[k - 2, 3 - j], a[k, j])
        """,
        """
        def late(a: f32[8, 4], s: out(f32[8, 4]), y: out(f32[8, 4])):
            for k in range(8):
                for i in bind(4, "thread"):
                    s[k, i] = a[k, i]
                for j in bind(4, "thread"):
                    y[k, j] = select(k >= 2, s[k - 2, 3 - j], a[k, j])
                barrier("thread")
        """,
    )


def test_a_loop_that_may_not_run_separates_nothing():
    """The barrier in it is passed only if there is an iteration."""
    placed(
        """
        def maybe(a: f32[4], t: out(f32[4]), y: out(f32[4]), z: out(f32[m, 4])):
            m = symbol(0)
            for i in bind(4, "thread"):
                t[i] = a[i]
            for k in range(m):
                for j in bind(4, "thread"):
                    z[k, j] = a[j]
                for l in bind(4, "thread"):
                    y[l] = z[k, 3 - l]
            for h in bind(4, "thread"):
                y[h] = t[3 - h]
        """,
        """
        def maybe(a: f32[4], t: out(f32[4]), y: out(f32[4]), z: out(f32[m, 4])):
            m = symbol(0)
            for i in bind(4, "thread"):
                t[i] = a[i]
            for k in range(m):
                for j in bind(4, "thread"):
                    z[k, j] = a[j]
                barrier("thread")
                for l in bind(4, "thread"):
                    y[l] = z[k, 3 - l]
            barrier("thread")
            for h in bind(4, "thread"):
                y[h] = t[3 - h]
        """,
    )


def test_what_a_worker_wrote_itself_takes_none():
    text = """
        def twice(a: f32[8, 4], y: out(f32[8, 4])):
            for k in range(8):
                tile = alloc(f32[4] @ "shared")
                for i in bind(4, "thread"):
                    tile[3 - i] = a[k, i]
                for j in bind(4, "thread"):
                    y[k, j] = tile[3 - j] + tile[3 - j]
    """
    placed(text, text)


def test_one_covers_as_many_as_can_be():
    """Four tiles filled and used: one barrier between fills and uses."""
    placed(
        """
        def sums(a: f32[4], b: f32[4], y: out(f32[4]), z: out(f32[4])):
            s = alloc(f32[4])
            t = alloc(f32[4])
            for i in bind(4, "thread"):
                s[i] = a[i]
            for i_1 in bind(4, "thread"):
                t[i_1] = b[i_1]
            for j in bind(4, "thread"):
                y[j] = s[3 - j] + a[j]
            for j_1 in bind(4, "thread"):
                z[j_1] = t[3 - j_1]
        """,
        """
        def sums(a: f32[4], b: f32[4], y: out(f32[4]), z: out(f32[4])):
            s = alloc(f32[4])
            t = alloc(f32[4])
            for i in bind(4, "thread"):
                s[i] = a[i]
            for i_1 in bind(4, "thread"):
                t[i_1] = b[i_1]
            barrier("thread")
            for j in bind(4, "thread"):
                y[j] = s[3 - j] + a[j]
            for j_1 in bind(4, "thread"):
                z[j_1] = t[3 - j_1]
        """,
    )


def test_axes_each_have_theirs():
    """Between blocks, what worker 0 does alone, and a condition that all workers read."""
    placed(
        """
        def parts(a: i32[2, 4], y: out(i32[2, 4]), flag: out(i32[()])):
            for b in bind(2, "block"):
                t = alloc(i32[4] @ "shared")
                for i in bind(4, "thread"):
                    t[i] = a[b, i]
                t[0] = t[0] + i32(1)
                for j in bind(4, "thread"):
                    y[b, j] = t[0]
            flag[()] = y[1, 3]
            if flag[()] > i32(0):
                for c in bind(2, "block"):
                    for k in bind(4, "thread"):
                        y[c, k] = i32(1)
        """,
        """
        def parts(a: i32[2, 4], y: out(i32[2, 4]), flag: out(i32[()])):
            for b in bind(2, "block"):
                t = alloc(i32[4] @ "shared")
                for i in bind(4, "thread"):
                    t[i] = a[b, i]
                t[0] = t[0] + i32(1)
                barrier("thread")
                for j in bind(4, "thread"):
                    y[b, j] = t[0]
            barrier("block")
            flag[()] = y[1, 3]
            barrier("block")
            if flag[()] > i32(0):
                for c in bind(2, "block"):
                    for k in bind(4, "thread"):
                        y[c, k] = i32(1)
        """,
    )


def test_sizes_may_be_symbols():
    placed(
        """
        def shift(a: f32[n], y: out(f32[n])):
            n = symbol(1)
            t = alloc(f32[n])
            for i in bind(n, "thread"):
                t[i] = a[i]
            for j in bind(n, "thread"):
                y[j] = select(j > 0, t[j - 1], a[j])
        """,
        """
        def shift(a: f32[n], y: out(f32[n])):
            n = symbol(1)
            t = alloc(f32[n])
            for i in bind(n, "thread"):
                t[i] = a[i]
            barrier("thread")
            for j in bind(n, "thread"):
                y[j] = select(j > 0, t[j - 1], a[j])
        """,
    )


def test_a_buffer_of_each_worker_takes_none():
    text = """
        def own(a: f32[4], y: out(f32[4])):
            for k in range(2):
                for i in bind(4, "thread"):
                    t = alloc(f32[2])
                    for j in range(2):
                        t[j] = a[i]
                    y[i] = t[0] + t[1]
    """
    placed(text, text)


# ---------------------------------------------------------------- errors


def refused(text: str, error: str) -> None:
    with pytest.raises(CompileError) as caught:
        check_barriers(kernel(text))
    assert str(caught.value).split("\n  in: ")[0] == textwrap.dedent(error).strip()


def test_a_missing_barrier():
    refused(
        """
        def mirror(a: f32[4], y: out(f32[4])):
            t = alloc(f32[4])
            for i in bind(4, "thread"):
                t[i] = a[i]
            for j in bind(4, "thread"):
                y[j] = t[3 - j]
        """,
        """
        workers of thread do not wait for each other: read after write: write of t[i], \
then read of t[3 - j], for example at i=0 and at j=3
        """,
    )


def test_threads_that_wait_are_not_blocks():
    refused(
        """
        def turn(a: f32[2, 4], t: out(f32[2, 4]), y: out(f32[2, 4])):
            for b in bind(2, "block"):
                for i in bind(4, "thread"):
                    t[b, i] = a[b, i]
                barrier("thread")
            for c in bind(2, "block"):
                for j in bind(4, "thread"):
                    y[c, j] = t[1 - c, j]
        """,
        """
        workers of block do not wait for each other: read after write: write of t[b, i], \
then read of t[1 - c, j], for example at b=0, i=3 and at c=1, j=3
        """,
    )


def test_workers_that_meet_within_a_loop():
    refused(
        """
        def sum(a: f32[4], y: out(f32[()])):
            y[()] = f32(0.0)
            for i in bind(4, "thread"):
                y[()] += a[i]
        """,
        """
        workers of thread meet inside of loop i: write after write: accumulation of y[()], \
then accumulation of y[()], for example at i=0 and at i=3
        """,
    )


def test_axes_in_two_orders():
    refused(
        """
        def copy(a: f32[4], y: out(f32[4])):
            for b in bind(1, "block"):
                for i in bind(4, "thread"):
                    y[i] = a[i]
            for j in bind(4, "thread"):
                y[j] = a[j]
        """,
        "loops bound to thread stand in block, and loop j in no axis",
    )


# ---------------------------------------------------------------- random kernels


@pytest.mark.long
@settings(max_examples=40)
@given(kernel=worker_kernels(), seed=st.integers(0, 1 << 20))
def test_the_result_does_not_depend_on_who_is_fast(kernel: Kernel, seed: int):
    assume(axes(kernel))
    found = place_barriers(kernel)
    verify_kernel(found)
    assert parse_kernel(str(found)) == found
    inputs = inputs_of(kernel)
    wanted = interpret(kernel, inputs)
    for n in range(3):
        results = run_concurrently(found, inputs, {}, seed + n)
        for a, b in zip(wanted, results, strict=True):
            assert (a == b).all(), f"{a}, not {b}\n{found}"


@settings(max_examples=30)
@given(kernel=worker_kernels(data=False))
def test_no_accesses_race_and_no_barrier_is_idle(kernel: Kernel):
    assume(axes(kernel))
    found = place_barriers(kernel)
    assert next(races(found), None) is None, str(found)
    check_barriers(found)
    for less in without(found):
        with pytest.raises(CompileError, match="do not wait for each other"):
            check_barriers(less)


@settings(max_examples=60)
@given(kernel=worker_kernels(simple=True))
def test_as_few_as_can_be(kernel: Kernel):
    """Against all ways to put barriers into one row of phases, in a loop or not, judged by what
    happens when they run."""
    assume(axes(kernel))
    found = place_barriers(kernel)
    assert next(races(found), None) is None, str(found)
    count = sum(isinstance(s, Barrier) for s in walk_statements(found.body))
    for gaps in itertools.combinations(_gaps(kernel), max(count - 1, 0)):
        fewer = _with_barriers(kernel, gaps)
        assert count == 0 or next(races(fewer), None) is not None, f"{found}\n\n{fewer}"


def _gaps(kernel: Kernel) -> list[int]:
    loop = kernel.body[0]
    row = kernel.body if getattr(loop, "axis", None) or len(kernel.body) > 1 else loop.body
    return list(range(len(row) + 1))


def _with_barriers(kernel: Kernel, gaps: tuple[int, ...]) -> Kernel:
    loop = kernel.body[0]
    whole = getattr(loop, "axis", None) or len(kernel.body) > 1
    row = kernel.body if whole else loop.body
    body = tuple(
        x for n in range(len(row) + 1) for x in ((Barrier("thread"),) * (n in gaps), row[n : n + 1])
    )
    flat = tuple(itertools.chain(*body))
    return kernel.with_(body=flat if whole else (loop.with_(body=flat),))


@given(kernel=worker_kernels())
@settings(max_examples=30)
def test_one_worker_for_all(kernel: Kernel):
    assume(axes(kernel))
    found = run_in_order(place_barriers(kernel))
    assert not axes(found)
    assert "barrier" not in str(found)
    assert found == run_in_order(kernel)
    inputs = inputs_of(kernel)
    for a, b in zip(interpret(kernel, inputs), interpret(found, inputs), strict=True):
        assert np.array_equal(a, b)


def test_gaps_that_are_there_count():
    """`barriers` finds what `needs` asks for, in its coordinates."""
    text = """
        def mirror(a: f32[4], y: out(f32[4])):
            t = alloc(f32[4])
            for i in bind(4, "thread"):
                t[i] = a[i]
            barrier("thread")
            for j in bind(4, "thread"):
                y[j] = t[3 - j]
    """
    gap: Gap = ((), 2)
    assert barriers(kernel(text), "thread") == {gap}
    assert [n.gaps for n in needs(kernel(text), "thread")] == [{gap}]
