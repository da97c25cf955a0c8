"""`bind`: loops as the workers of an axis, from a schedule to code."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from executor import run_concurrently
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from native import build
from schedule_cases import refused, rewritten, schedule
from strategies import array, arrays, kernels, same, symbol_values

from tilewright.analyze.workers import axes
from tilewright.base.errors import CompileError, ScheduleError
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Barrier, Kernel, symbols, walk_statements
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.lower.place_barriers import check_barriers, place_barriers
from tilewright.lower.run_in_order import run_in_order
from tilewright.schedule.core.state import attempt
from tilewright.schedule.schedule import Schedule
from tilewright.targets import cpu

GEMM = """
def gemm(a: f32[8, 8], b: f32[8, 8], c: out(f32[8, 8])):
    for i in range(8):
        for j in range(8):
            c[i, j] = f32(0.0)
            for k in range(8):
                c[i, j] += a[i, k] * b[k, j]
"""


def tiled_gemm() -> Schedule:
    """Blocks of 4 x 4 elements, each by as many threads, which copy tiles of a and b together."""
    s = schedule(GEMM)
    io, ii = s.split(s.loop("i"), 4)
    jo, ji = s.split(s.loop("j"), 4)
    s.reorder(io, jo, ii, ji)
    ko, ki = s.split(s.loop("k"), 4)
    init = s.split_init(s.buffer("c"))
    s.reorder(io, jo, ko, ii, ji, ki)
    for name in "ba":
        s.cache_read(s.buffer(name), ko, "shared")
    for outer in (io, jo), init[:2]:
        s.bind(s.fuse(*outer), "block")
    for name in "ab":
        copy = [s.loop(f"{name}_local_{axis}") for axis in range(2)]
        s.bind(s.fuse(*copy), "thread")
    for inner in (ii, ji), init[2:]:
        s.bind(s.fuse(*inner), "thread")
    return s


def test_a_tiled_product_waits_twice_for_each_tile():
    """Once when its tiles are there, once before the next ones come."""
    s = tiled_gemm()
    found = place_barriers(s.kernel)
    check_barriers(found)
    block = "i_o_j_o // 2 * 4 + i_i_j_i // 4, i_o_j_o % 2 * 4 + i_i_j_i % 4"
    text = str(found).split('in bind(4, "block"):\n')[2].replace(block, "…")
    assert textwrap.dedent(text) == textwrap.dedent(
        """\
        for k_o in range(2):
            a_local = alloc(f32[4, 4] @ "shared")
            for a_local_0_a_local_1 in bind(16, "thread"):
                a_local[a_local_0_a_local_1 // 4, a_local_0_a_local_1 % 4] = \
a[i_o_j_o // 2 * 4 + a_local_0_a_local_1 // 4, k_o * 4 + a_local_0_a_local_1 % 4]
            b_local = alloc(f32[4, 4] @ "shared")
            for b_local_0_b_local_1 in bind(16, "thread"):
                b_local[b_local_0_b_local_1 // 4, b_local_0_b_local_1 % 4] = \
b[k_o * 4 + b_local_0_b_local_1 // 4, i_o_j_o % 2 * 4 + b_local_0_b_local_1 % 4]
            barrier("thread")
            for i_i_j_i in bind(16, "thread"):
                for k_i in range(4):
                    c[…] += a_local[i_i_j_i // 4, k_i] * b_local[k_i, i_i_j_i % 4]
            barrier("thread")"""
    )
    assert sum(isinstance(x, Barrier) for x in walk_statements(found.body)) == 2


def test_a_tiled_product_at_any_pace():
    s = tiled_gemm()
    found = place_barriers(s.kernel)
    inputs = [array(n, b.dtype, b.shape) for n, b in enumerate(found.inputs)]
    (wanted,) = interpret(s.original, inputs)
    for seed in range(3):
        (result,) = run_concurrently(found, inputs, {}, seed)
        assert np.allclose(result, wanted)


@pytest.mark.parametrize("placed", [False, True])
def test_a_processor_runs_workers_in_order(placed: bool):
    kernel = tiled_gemm().kernel
    kernel = place_barriers(kernel) if placed else kernel
    inputs = [array(n, b.dtype, b.shape) for n, b in enumerate(kernel.inputs)]
    (wanted,) = interpret(kernel, inputs)
    (result,) = build(kernel, cpu.host(threads=2))(inputs, {})
    assert np.allclose(result, wanted)


def test_bind():
    rewritten(
        """
        def copy(x: f32[8, 4], y: out(f32[8, 4])):
            for i in range(8):
                for j in range(4):
                    y[i, j] = x[i, j]
        """,
        lambda s: (s.bind(s.loop("i"), "block"), s.bind(s.loop("j"), "thread")),
        """
        def copy(x: f32[8, 4], y: out(f32[8, 4])):
            for i in bind(8, "block"):
                for j in bind(4, "thread"):
                    y[i, j] = x[i, j]
        """,
    )


# ---------------------------------------------------------------- what is refused

ROWS = """
def rows(x: f32[8, 4], y: out(f32[8])):
    for i in range(8):
        y[i] = f32(0.0)
        for j in range(4):
            y[i] += x[i, j]
"""


def test_iterations_that_meet():
    refused(
        ROWS,
        lambda s: s.bind(s.loop("j"), "thread"),
        """
        the iterations of j are not independent: write after write: accumulation of y[i],
            then accumulation of y[i], for example at j=0 and at j=1
          while applying bind(loop=j, axis=thread)
          in: …
        """,
    )


def test_workers_of_one_axis_in_each_other():
    def steps(s: Schedule) -> None:
        s.bind(s.loop("i"), "core")
        s.bind(s.loop("j"), "core")

    refused(
        """
        def copy(x: f32[8, 4], y: out(f32[8, 4])):
            for i in range(8):
                for j in range(4):
                    y[i, j] = x[i, j]
        """,
        steps,
        """
        j is inside or around i, which is bound to core
          while applying bind(loop=j, axis=core)
          in: …
        """,
    )


TWO = """
def two(x: f32[8, 4], y: out(f32[8, 4]), z: out(f32[8, 4])):
    for i in range(8):
        for j in range(4):
            y[i, j] = x[i, j]
    for k in range(8):
        for l in range(4):
            z[k, l] = x[k, l]
"""


def test_axes_in_two_orders():
    def steps(s: Schedule) -> None:
        for loop, axis in zip("ijk", ("block", "thread", "thread"), strict=True):
            s.bind(s.loop(loop), axis)
        s.bind(s.loop("l"), "block")

    refused(
        TWO,
        steps,
        """
        block and thread are nested the other way in loop i
          while applying bind(loop=l, axis=block)
          in: …
          hint: the axes of a kernel are nested in one order
        """,
    )


def test_a_loop_that_has_a_kind():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.bind(s.loop("i"), "core")

    refused(
        ROWS,
        steps,
        """
        i is a loop of kind parallel already
          while applying bind(loop=i, axis=core)
          in: …
        """,
    )


def test_around_a_parallel_loop():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("j"))
        s.bind(s.loop("i"), "core")

    refused(
        TWO,
        steps,
        """
        parallel loop j would stand in a bound loop
          while applying bind(loop=i, axis=core)
          in: …
        """,
    )


def test_in_a_vector_loop():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("i"))
        s.bind(s.loop("j"), "thread")

    refused(
        TWO,
        steps,
        """
        j stands in a vector loop
          while applying bind(loop=j, axis=thread)
          in: …
        """,
    )


def test_an_axis_without_a_name():
    refused(
        ROWS,
        lambda s: s.bind(s.loop("i"), ""),
        """
        the axis has no name
          while applying bind(loop=i, axis=)
          in: …
          hint: for example "thread"
        """,
    )


# ---------------------------------------------------------------- what must be true of kernels


@pytest.mark.parametrize(
    "body, error",
    [
        (
            """
            for i in bind(4, "thread"):
                barrier("thread")
                y[i] = x[i]
            """,
            "a barrier of thread stands in a loop bound to thread",
        ),
        (
            """
            for i in bind(2, "thread"):
                for j in bind(2, "thread"):
                    y[i * 2 + j] = x[i * 2 + j]
            """,
            "loop j, bound to thread, stands in another one",
        ),
        (
            """
            for i in bind(2, "block"):
                for j in bind(2, "thread"):
                    y[i * 2 + j] = x[i * 2 + j]
            for k in bind(2, "thread"):
                barrier("block")
            """,
            "a barrier of block stands in a loop bound to thread, an axis inside of block",
        ),
        (
            """
            for i in bind(2, "block"):
                for j in parallel(2):
                    y[i * 2 + j] = x[i * 2 + j]
            """,
            "parallel loop j stands in a bound loop",
        ),
        (
            """
            for i in vectorize(2):
                for j in bind(2, "thread"):
                    y[i * 2 + j] = x[i * 2 + j]
            """,
            "loop j, bound to thread, stands in a vector loop",
        ),
        (
            """
            for i in bind(4, ""):
                y[i] = x[i]
            """,
            "loop i is bound to an axis without a name",
        ),
        (
            """
            for i in bind(2, "block"):
                for j in bind(2, "thread"):
                    y[i * 2 + j] = x[i * 2 + j]
            for k in bind(2, "thread"):
                for l in bind(2, "block"):
                    y[k * 2 + l] = x[k * 2 + l]
            """,
            "loop l, bound to block, stands in one bound to thread, and elsewhere thread in block",
        ),
    ],
)
def test_rules(body: str, error: str):
    head = "def k(x: f32[4], y: out(f32[4])):\n"
    kernel = parse_kernel(head + textwrap.indent(textwrap.dedent(body).strip(), "    "))
    assert parse_kernel(str(kernel)) == kernel
    with pytest.raises(CompileError) as caught:
        verify_kernel(kernel)
    assert caught.value.what == error


@pytest.mark.parametrize(
    "line, error",
    [
        ("for i in bind(4):", "line 2: 1 arguments do not fit"),
        ("for i in bind(4, thread):", "line 2: this is not the name of an axis"),
        ("barrier(4)", "line 2: this is not the name of an axis"),
        ("barrier()", "line 2: 0 arguments do not fit"),
    ],
)
def test_text(line: str, error: str):
    text = f"def k(y: out(f32[4])):\n    {line}\n        pass"
    text = text if line.endswith(":") else text.removesuffix("\n        pass")
    with pytest.raises(CompileError) as caught:
        parse_kernel(text)
    assert str(caught.value).split("\n  in: ")[0] == error


DIAGONALS = """
def diagonals(x: f32[4, 4], y: out(f32[4])):
    for z in range(4):
        y[z] = f32(0.0)
    for k in range(4):
        for t in bind(4, "thread"):
            y[(t + k) % 4] += x[k, t]
"""


def test_a_bound_loop_keeps_its_place():
    """`reorder` lets sums change their order; workers may not meet."""
    s = schedule(DIAGONALS)
    place_barriers(s.kernel)
    with pytest.raises(ScheduleError) as error:
        s.reorder(s.loop("t"), s.loop("k"))
    assert error.value.what == "t is a loop of kind bind already"


PRODUCER = """
def k(x: f32[4], y: out(f32[4])):
    t = alloc(f32[4])
    for i in {}:
        t[i] = x[i]
    for j in {}:
        y[j] = t[j]
"""


@pytest.mark.parametrize(
    "inner, outer, error",
    [
        ('bind(4, "a")', 'bind(4, "a")', "loop i, bound to a, stands in another one"),
        ("parallel(4)", 'bind(4, "a")', "parallel loop i stands in a bound loop"),
        ("parallel(4)", "parallel(4)", "parallel loop i stands in another one"),
    ],
)
def test_workers_are_shared_out_once(inner: str, outer: str, error: str):
    s = schedule(PRODUCER.format(inner, outer))
    with pytest.raises(ScheduleError) as caught:
        s.compute_at(s.buffer("t"), s.loop("j"))
    assert caught.value.what == f"then {error}"


def test_axes_keep_one_order():
    """Moved, j would stand in block and block in j elsewhere."""
    s = schedule(
        """
def k(x: f32[4, 4], y: out(f32[4, 4]), z: out(f32[4, 4])):
    t = alloc(f32[4, 4])
    for a in bind(4, "thread"):
        for b in bind(4, "block"):
            z[a, b] = x[a, b]
    for i in range(4):
        for j in bind(4, "thread"):
            t[i, j] = x[i, j]
    for l in bind(4, "block"):
        for m in range(4):
            y[l, m] = t[l, m]
"""
    )
    with pytest.raises(ScheduleError) as caught:
        s.compute_at(s.buffer("t"), s.loop("l"))
    place = "stands in one bound to block, and elsewhere block in thread"
    assert caught.value.what == f"then loop j, bound to thread, {place}"


def test_workers_that_meet_are_found_when_barriers_are_placed():
    text = DIAGONALS.replace('bind(4, "thread")', "range(4)")
    text = text.replace("for k in range(4)", 'for k in bind(4, "thread")')
    with pytest.raises(CompileError, match="workers of thread meet inside of loop k"):
        place_barriers(schedule(text).kernel)


@settings(max_examples=50)
@given(kernel=kernels(kinds=False), data=st.data())
def test_any_kernel(kernel: Kernel, data: st.DataObject):
    """Loops that may be bound, some of them in tiles: with barriers, the same at any pace."""
    s = Schedule(kernel)
    for loop in s.loops():
        bound = data.draw(st.booleans()) and attempt(s.bind, loop, "thread")
        if bound and data.draw(st.integers(0, 3)) == 0:
            s.split(loop, 2)
    assume(axes(s.kernel))
    verify_kernel(s.kernel)
    found = place_barriers(s.kernel)
    check_barriers(found)
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = data.draw(arrays(kernel.inputs, values))
    wanted = interpret(kernel, inputs, values)
    for seed in range(2):
        results = run_concurrently(found, inputs, values, seed)
        for a, b in zip(wanted, results, strict=True):
            assert same(a, b), f"{b}, not {a}\n{found}"
    results = interpret(run_in_order(found), inputs, values)
    assert all(same(a, b) for a, b in zip(wanted, results, strict=True))
