"""sink: programs before and after, and what is refused."""

from schedule_cases import refused, rewritten

from tilewright.schedule.schedule import Schedule

SUMS = """
def k(x: f32[4, 6], y: out(f32[4])):
    for i in range(4):
        y[i] = f32(0.0)
        for k in range(6):
            y[i] += x[i, k]
        y[i] = y[i] * f32(2.0)
"""
LOCAL = """
def k(x: f32[4, 6], y: out(f32[4])):
    for i in range(4):
        t = alloc(f32[()])
        t[()] = f32(0.0)
        for k in range(6):
            t[()] += x[i, k]
        u = alloc(f32[1])
        u[0] = x[i, 0]
        y[i] = u[0] + x[i, 1]
"""
EMPTY = """
def k(x: f32[4, n], y: out(f32[4])):
    n = symbol(0)
    for i in range(4):
        y[i] = f32(0.0)
        for k in range(n):
            y[i] += x[i, k]
"""


def steps(s: Schedule) -> None:
    s.sink(s.loop("i"), s.loop("k"))


def test_sink():
    rewritten(
        SUMS,
        steps,
        """
        def k(x: f32[4, 6], y: out(f32[4])):
            for i in range(4):
                for k in range(6):
                    if k == 0:
                        y[i] = f32(0.0)
                    y[i] += x[i, k]
                    if k == 5:
                        y[i] = y[i] * f32(2.0)
        """,
    )


def test_buffers():
    """One of one side goes along; one of both must be outside."""

    def apart(s: Schedule) -> None:
        s.multi_buffer(s.buffer("t"), [s.loop("i")], 1)
        steps(s)
        s.fuse(s.loop("i"), s.loop("k"))

    rewritten(
        LOCAL,
        apart,
        """
        def k(x: f32[4, 6], y: out(f32[4])):
            t = alloc(f32[1])
            for i_k in range(24):
                u = alloc(f32[1])
                if i_k % 6 == 0:
                    t[0] = f32(0.0)
                t[0] += x[i_k // 6, i_k % 6]
                if i_k % 6 == 5:
                    u[0] = x[i_k // 6, 0]
                if i_k % 6 == 5:
                    y[i_k // 6] = u[0] + x[i_k // 6, 1]
        """,
    )
    refused(
        LOCAL,
        steps,
        """
        t is needed in more than one iteration of k
          while applying sink(outer=i, inner=k)
          in: …
          hint: multi_buffer moves it out of the loop
        """,
    )


def test_a_loop_that_may_not_run():
    refused(
        EMPTY,
        steps,
        """
        k runs n times, which may be none or differ
          while applying sink(outer=i, inner=k)
          in: …
        """,
    )


def test_another_place():
    refused(
        SUMS,
        lambda s: s.sink(s.loop("k"), s.loop("i")),
        """
        i does not stand in the body of k
          while applying sink(outer=k, inner=i)
          in: …
        """,
    )
