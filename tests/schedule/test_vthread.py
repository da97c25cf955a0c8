"""Virtual threads: programs before and after, and what is refused."""

from schedule_cases import refused, rewritten
from schedule_programs import CARRIED, LOCAL, LONG, MATRIX, REUSED, ROWS, SOFT, SUM

from tilewright.schedule.schedule import Schedule

TILE_SUMS = """
def k(x: f32[8, 6], w: f32[6], y: out(f32[8])):
    for i in range(8):
        t = alloc(f32[()])
        t[()] = f32(0.0)
        for p in range(3):
            c = alloc(f32[2])
            for a in range(2):
                c[a] = x[i, p * 2 + a]
            for b in range(2):
                t[()] += c[b] * w[p * 2 + b]
        y[i] = t[()]
"""
TRIANGLE = """
def k(x: f32[4, 4], y: out(f32[4])):
    for i in range(4):
        y[i] = f32(0.0)
        for j in range(i + 1):
            y[i] += x[i, j]
"""


def test_threads_with_copies():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 2)

    rewritten(
        LOCAL,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4, 8])):
            for i in range(2):
                t = alloc(f32[2, 8])
                for i_v in range(2):
                    for a in range(8):
                        t[i_v, a] = x[i_v * 2 + i, a]
                for i_v_1 in range(2):
                    for b in range(8):
                        y[i_v_1 * 2 + i, b] = t[i_v_1, 7 - b]
        """,
    )


def test_threads_through_a_loop():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 2, [s.loop("p")])

    rewritten(
        TILE_SUMS,
        steps,
        """
        def k(x: f32[8, 6], w: f32[6], y: out(f32[8])):
            for i in range(4):
                t = alloc(f32[2])
                for i_v in range(2):
                    t[i_v] = f32(0.0)
                for p in range(3):
                    c = alloc(f32[2, 2])
                    for i_v_1 in range(2):
                        for a in range(2):
                            c[i_v_1, a] = x[i_v_1 * 4 + i, p * 2 + a]
                    for i_v_2 in range(2):
                        for b in range(2):
                            t[i_v_2] += c[i_v_2, b] * w[p * 2 + b]
                for i_v_3 in range(2):
                    y[i_v_3 * 4 + i] = t[i_v_3]
        """,
    )


def test_as_many_threads_as_iterations():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 4, [s.loop("r")])

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in range(1):
                for i_v in range(4):
                    y[i_v] = f32(0.0)
                for r in range(8):
                    for i_v_1 in range(4):
                        y[i_v_1] += x[i_v_1, r]
        """,
    )


def test_threads_of_uneven_length():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 3)

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for i in range(4):
                for i_v in range(3):
                    if i_v * 4 + i < 10:
                        y[i_v * 4 + i] = x[i_v * 4 + i] * f32(2.0)
        """,
    )


def test_threads_in_an_order_that_matters():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 2)

    refused(
        CARRIED,
        steps,
        """
        the order matters: read after write: write of y[i_v * 4 + i + 1],
          then read of y[i_v * 4 + i], for example at i_v=0, i=3 and at i_v=1, i=0
          while applying vthread(loop=i, n=2, through=())
          in: …
        """,
    )


def test_threads_that_share_an_element():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("j"), 2)

    refused(
        REUSED,
        steps,
        """
        the order matters: write after write: write of y[i], then write of y[i],
          for example at j_v=0, j=1 and at j_v=1, j=0
          while applying vthread(loop=j, n=2, through=())
          in: …
        """,
    )


def test_threads_of_unknown_length():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 2)

    refused(
        LONG,
        steps,
        """
        the order matters: write after write: write of y[i_v * ((n + 1) // 2) + i],
          then write of y[i_v * ((n + 1) // 2) + i] (perhaps: their subscripts are not affine)
          while applying vthread(loop=i, n=2, through=())
          in: …
          hint: split i by a constant, and share the tiles
        """,
    )


def test_no_threads():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 0)

    refused(
        ROWS,
        steps,
        """
        there must be at least 1 thread, not 0
          while applying vthread(loop=i, n=0, through=())
          in: …
        """,
    )


def test_threads_of_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.vthread(s.loop("i"), 2)

    refused(
        ROWS,
        steps,
        """
        i is a loop of kind parallel already
          while applying vthread(loop=i, n=2, through=())
          in: …
        """,
    )


def test_threads_in_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("i"))
        s.vthread(s.loop("j"), 2)

    refused(
        MATRIX,
        steps,
        """
        j stands in a vector loop
          while applying vthread(loop=j, n=2, through=())
          in: …
        """,
    )


def test_threads_through_another_loop():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 2, [s.loop("b")])

    refused(
        SOFT,
        steps,
        """
        b does not stand in the body of i, or of a loop in it that is named too
          while applying vthread(loop=i, n=2, through=[b])
          in: …
        """,
    )


def test_threads_through_uneven_loops():
    def steps(s: Schedule) -> None:
        s.vthread(s.loop("i"), 2, [s.loop("j")])

    refused(
        TRIANGLE,
        steps,
        """
        the extent of j may differ from thread to thread
          while applying vthread(loop=i, n=2, through=[j])
          in: …
        """,
    )
