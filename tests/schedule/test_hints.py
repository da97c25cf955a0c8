"""prefetch and store_nontemporal: programs before and after, and what is refused."""

import pytest
from schedule_cases import refused, rewritten, schedule
from schedule_programs import LOCAL, MATRIX, ROWS, SUM
from strategies_instructions import INSTRUCTIONS

from tilewright.base.errors import ScheduleError
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.schedule import Schedule

(COPY,) = (x for x in INSTRUCTIONS if x.name == "copy_f32")

BANDS = """
def k(x: f32[8, 96], y: out(f32[96, 8])):
    for b in range(4):
        for j in range(3):
            for i in range(2):
                for e in range(32):
                    y[j * 32 + e, b * 2 + i] = x[b * 2 + i, j * 32 + e]
"""
GATHER = """
def k(x: f32[8], n: i64[4], y: out(f32[4])):
    for i in range(4):
        for j in range(1):
            y[i] = x[n[i] % 8]
"""
SYMBOLIC = """
def k(x: f32[4, n], y: out(f32[4, n])):
    n = symbol(1)
    for i in range(4):
        for j in range(n):
            y[i, j] = x[i, j]
"""
POINT = """
def k(x: f32[()], y: out(f32[4])):
    for i in range(4):
        y[i] = x[()]
"""


def test_a_share_for_each_iteration_inside():
    """Two rows of 6 lines: 2 lines in each of 3 x 2 iterations, in the order of memory."""
    rewritten(
        BANDS,
        lambda s: s.prefetch(s.buffer("x"), s.loop("b"), s.loop("i")),
        """
        def k(x: f32[8, 96], y: out(f32[96, 8])):
            for b in range(4):
                for j in range(3):
                    for i in range(2):
                        for x_line in range(2):
                            prefetch(x[b * 2 + (j * 2 + i) // 3 + 2, \
(j * 2 + i) % 3 * 32 + x_line * 16], 2)
                        for e in range(32):
                            y[j * 32 + e, b * 2 + i] = x[b * 2 + i, j * 32 + e]
        """,
    )


def test_shares_that_do_not_come_out_even():
    rewritten(
        BANDS,
        lambda s: s.unroll(s.prefetch(s.buffer("x"), s.loop("j"), s.loop("e"), 1)),
        """
        def k(x: f32[8, 96], y: out(f32[96, 8])):
            for b in range(4):
                for j in range(3):
                    for i in range(2):
                        for e in range(32):
                            for x_line in unroll(1):
                                if i * 32 + e < 4:
                                    prefetch(x[i * 16 + b * 2 + e // 2, \
j * 32 + e % 2 * 16 + 32], 1)
                            y[j * 32 + e, b * 2 + i] = x[b * 2 + i, j * 32 + e]
        """,
    )


def test_all_of_it_at_the_beginning():
    rewritten(
        SUM,
        lambda s: s.prefetch(s.buffer("x"), s.loop("i"), s.loop("i"), 3),
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in range(4):
                for x_line in range(1):
                    prefetch(x[i + 1, 0], 3)
                y[i] = f32(0.0)
                for r in range(8):
                    y[i] += x[i, r]
        """,
    )


def test_prefetch_one_element():
    rewritten(
        POINT,
        lambda s: s.prefetch(s.buffer("x"), s.loop("i"), s.loop("i")),
        """
        def k(x: f32[()], y: out(f32[4])):
            for i in range(4):
                for x_line in range(1):
                    prefetch(x[()], 2)
                y[i] = x[()]
        """,
    )


def test_what_is_copied_is_prefetched_where_it_comes_from():
    def steps(s: Schedule) -> None:
        s.prefetch(s.buffer("x"), s.loop("i"), s.loop("i"))
        s.cache_read(s.buffer("x"), s.loop("i"))

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in range(4):
                x_local = alloc(f32[1, 8])
                for x_local_0 in range(1):
                    for x_local_1 in range(8):
                        x_local[0, x_local_1] = x[i, x_local_1]
                for x_line in range(1):
                    prefetch(x[i + 1, 0], 2)
                y[i] = f32(0.0)
                for r in range(8):
                    y[i] += x_local[0, r]
        """,
    )


def test_what_is_packed_is_prefetched_where_it_lies():
    def steps(s: Schedule) -> None:
        s.prefetch(s.buffer("x"), s.loop("i"), s.loop("i"))
        s.pack_layout(s.buffer("x"), Layout((1, 0)))

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[8, 4], y: out(f32[4])):
            for i in range(4):
                for x_line in range(1):
                    prefetch(x[0, i + 1], 2)
                y[i] = f32(0.0)
                for r in range(8):
                    y[i] += x[r, i]
        """,
    )


def test_store_nontemporal():
    rewritten(
        SUM,
        lambda s: s.store_nontemporal(s.buffer("y")),
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in range(4):
                nontemporal(y[i], f32(0.0))
                for r in range(8):
                    y[i] += x[i, r]
        """,
    )


def test_what_is_copied_out_goes_past_the_caches():
    def steps(s: Schedule) -> None:
        s.store_nontemporal(s.buffer("y"))
        s.cache_write(s.buffer("y"))

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            y_local = alloc(f32[10])
            for i in range(10):
                y_local[i] = x[i] * f32(2.0)
            for i_c in range(10):
                nontemporal(y[i_c], y_local[i_c])
        """,
    )


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "program, arguments, error",
    [
        (LOCAL, "tii2", "t is no parameter of the kernel"),
        (SUM, "xir0", "there is no cache 0"),
        (SUM, "xir4", "there is no cache 4"),
        (SUM, "xri2", "i does not stand in r"),
        (SUM, "yrr2", "r does not read y"),
        (GATHER, "xij2", "where i reads x is read from memory"),
        (SYMBOLIC, "xij2", "j runs n times, which is not a constant"),
        (SYMBOLIC, "xii2", "how much i reads of x is not constant"),
    ],
)
def test_what_cannot_be_prefetched(program: str, arguments: str, error: str):
    s = schedule(program)
    buffer, loop, at, level = arguments
    with pytest.raises(ScheduleError) as caught:
        s.prefetch(s.buffer(buffer), s.loop(loop), s.loop(at), int(level))
    assert caught.value.what == error


def test_prefetch_in_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("j"))
        s.prefetch(s.buffer("x"), s.loop("i"), s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        the lanes of j fetch together what they read
          while applying prefetch(buffer=x: f32[4, 6], loop=i, at=j, level=2)
          in: …
        """,
    )


def test_store_an_input():
    refused(
        ROWS,
        lambda s: s.store_nontemporal(s.buffer("x")),
        """
        x is no output of the kernel
          while applying store_nontemporal(buffer=x: f32[10])
          in: …
        """,
    )


def test_store_what_an_instruction_writes():
    def steps(s: Schedule) -> None:
        s.tensorize(s.loop("j"), COPY)
        s.store_nontemporal(s.buffer("y"))

    refused(
        MATRIX,
        steps,
        """
        y is not written by stores
          while applying store_nontemporal(buffer=y: f32[4, 6])
          in: …
        """,
    )
