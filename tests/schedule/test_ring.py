"""Buffers that keep what consecutive iterations share: before and after, and what is refused."""

from schedule_cases import refused, rewritten

from tilewright.base.dtype import f32
from tilewright.ir.expr import Buffer, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, Store
from tilewright.schedule.schedule import Schedule

I, J = Var("i"), Var("j")
A, B = (Buffer(name, f32, (3, 4)) for name in "ab")
R, Q = (Buffer(name, f32, (4,)) for name in "ab")
COPY = Instruction("copy", (A, B), (), (For(I, 3, (For(J, 4, (Store(B, (I, J), A[I, J]),)),)),))
ROW = Instruction("copy_row", (R, Q), (), (For(J, 4, (Store(Q, (J,), R[J]),)),))


WINDOW = """
def k(x: f32[10], w: f32[3], y: out(f32[8])):
    for i in range(8):
        y[i] = f32(0.0)
        for r in range(3):
            y[i] += x[i + r] * w[r]
"""
ROWS_3 = """
def k(x: f32[12, 6], y: out(f32[10, 4])):
    t = alloc(f32[12, 4])
    for a in range(12):
        for b in range(4):
            t[a, b] = f32(0.0)
            for q in range(3):
                t[a, b] += x[a, b + q]
    for i in range(10):
        for j in range(4):
            y[i, j] = t[i, j] - t[i + 2, j]
"""
EDGES = """
def k(x: f32[n], y: out(f32[n]), z: out(f32[n])):
    n = symbol(1)
    for i in range(n):
        y[i] = select(0 < i, x[i - 1], f32(0.0))
        z[i] = select(i + 1 < n, x[i + 1], f32(0.0))
"""
CHANGED = """
def k(x: f32[8], y: out(f32[6]), z: out(f32[8])):
    for s in range(8):
        z[s] = x[s]
    for i in range(6):
        t = alloc(f32[3])
        for a in range(3):
            t[a] = z[i + a]
        y[i] = t[0] + t[2]
        z[i + 1] = f32(5.0)
"""
BEHIND = """
def k(x: f32[8], y: out(f32[6]), z: out(f32[8])):
    for s in range(8):
        z[s] = x[s]
    for i in range(6):
        t = alloc(f32[3])
        for a in range(3):
            t[a] = z[i + a]
        y[i] = t[0] + t[2]
        z[i] = f32(5.0)
"""
TWICE = """
def k(x: f32[8], y: out(f32[6])):
    for i in range(6):
        t = alloc(f32[3])
        for a in range(3):
            t[a] = x[i + a] * f32(2.0)
        u = alloc(f32[2])
        for b in range(2):
            u[b] = t[b] + t[b + 1]
        y[i] = u[0] * u[1]
"""
OWN = """
def k(x: f32[8], y: out(f32[6])):
    for i in range(6):
        t = alloc(f32[3])
        for a in range(3):
            t[a] = select(0 < a, t[a - 1], f32(0.0)) + x[i + a]
        y[i] = t[2]
"""
SCALED = """
def k(x: f32[8], s: f32[6], y: out(f32[6])):
    for i in range(6):
        t = alloc(f32[3])
        for a in range(3):
            t[a] = s[i]
        y[i] = t[0] + t[2]
"""
ROW_BY_ROW = """
def k(x: f32[8, 4], y: out(f32[6, 3, 4])):
    for i in range(6):
        t = alloc(f32[3, 4])
        for a in range(3):
            for b in range(4):
                t[a, b] = x[i + a, b]
        for p in range(3):
            for q in range(4):
                y[i, p, q] = t[p, q]
"""
ALIGNED = """
def k(x: f32[24, 4], y: out(f32[6, 3, 4])):
    for i in range(6):
        t = alloc(f32[6, 4])
        for a in range(6):
            for b in range(4):
                t[a, b] = x[i * 3 + a, b]
        for p in range(3):
            for q in range(4):
                y[i, p, q] = t[p, q]
"""
OUTER = """
def k(x: f32[3, 9], y: out(f32[6, 3, 4])):
    for i in range(6):
        t = alloc(f32[3, 4])
        for a in range(3):
            for b in range(4):
                t[a, b] = x[a, i + b]
        for p in range(3):
            for q in range(4):
                y[i, p, q] = t[p, q]
"""


def test_keep_a_window():
    def steps(s: Schedule) -> None:
        x = s.cache_read(s.buffer("x"), s.loop("i"), "sram")
        s.ring_buffer(x, s.loop("i"))

    rewritten(
        WINDOW,
        steps,
        """
        def k(x: f32[10], w: f32[3], y: out(f32[8])):
            x_local = alloc(f32[3] @ "sram")
            for i in range(8):
                if i == 0:
                    for x_local_0_1 in range(2):
                        x_local[x_local_0_1] = x[x_local_0_1]
                for x_local_0 in range(1):
                    x_local[(i + 2) % 3] = x[i + 2]
                y[i] = f32(0.0)
                for r in range(3):
                    y[i] += x_local[(i + r) % 3] * w[r]
        """,
    )


def test_fill_a_window_at_once():
    def steps(s: Schedule) -> None:
        x = s.cache_read(s.buffer("x"), s.loop("i"), "sram")
        s.ring_buffer(x, s.loop("i"), 10, at_once=True)

    rewritten(
        WINDOW,
        steps,
        """
        def k(x: f32[10], w: f32[3], y: out(f32[8])):
            x_local = alloc(f32[10] @ "sram")
            for i in range(8):
                if i == 0:
                    for x_local_0_1 in range(3):
                        x_local[x_local_0_1] = x[x_local_0_1]
                else:
                    for x_local_0 in range(1):
                        x_local[i + 2] = x[i + 2]
                y[i] = f32(0.0)
                for r in range(3):
                    y[i] += x_local[i + r] * w[r]
        """,
    )


def test_keep_computed_rows():
    def steps(s: Schedule) -> None:
        t = s.compute_at(s.buffer("t"), s.loop("i"))
        s.ring_buffer(t, s.loop("i"), 4)

    rewritten(
        ROWS_3,
        steps,
        """
        def k(x: f32[12, 6], y: out(f32[10, 4])):
            t = alloc(f32[4, 4])
            for i in range(10):
                if i == 0:
                    for a_1 in range(2):
                        for b_1 in range(4):
                            t[a_1, b_1] = f32(0.0)
                            for q_1 in range(3):
                                t[a_1, b_1] += x[a_1, b_1 + q_1]
                for a in range(1):
                    for b in range(4):
                        t[(i + 2) % 4, b] = f32(0.0)
                        for q in range(3):
                            t[(i + 2) % 4, b] += x[i + 2, b + q]
                for j in range(4):
                    y[i, j] = t[i % 4, j] - t[(i + 2) % 4, j]
        """,
    )


def test_keep_a_window_with_edges():
    def steps(s: Schedule) -> None:
        x = s.cache_read(s.buffer("x"), s.loop("i"), "sram")
        s.ring_buffer(x, s.loop("i"))

    rewritten(
        EDGES,
        steps,
        """
        def k(x: f32[n], y: out(f32[n]), z: out(f32[n])):
            n = symbol(1)
            x_local = alloc(f32[3] @ "sram")
            for i in range(n):
                if i == 0:
                    for x_local_0_1 in range(2):
                        if 0 <= x_local_0_1 - 1:
                            x_local[x_local_0_1] = x[x_local_0_1 - 1]
                for x_local_0 in range(1):
                    if i + 1 < n:
                        x_local[(i + 2) % 3] = x[i + 1]
                y[i] = select(0 < i, x_local[i % 3], f32(0.0))
                z[i] = select(i + 1 < n, x_local[(i + 2) % 3], f32(0.0))
        """,
    )


def test_peel_the_first_iteration():
    def steps(s: Schedule) -> None:
        x = s.cache_read(s.buffer("x"), s.loop("i"), "sram")
        s.ring_buffer(x, s.loop("i"))
        s.peel(s.loop("i"), 1)

    rewritten(
        WINDOW,
        steps,
        """
        def k(x: f32[10], w: f32[3], y: out(f32[8])):
            x_local = alloc(f32[3] @ "sram")
            for i_p in range(1):
                for x_local_0_1_1 in range(2):
                    x_local[x_local_0_1_1] = x[x_local_0_1_1]
                for x_local_0_2 in range(1):
                    x_local[2] = x[2]
                y[0] = f32(0.0)
                for r_1 in range(3):
                    y[0] += x_local[r_1] * w[r_1]
            for i in range(7):
                for x_local_0 in range(1):
                    x_local[i % 3] = x[i + 3]
                y[i + 1] = f32(0.0)
                for r in range(3):
                    y[i + 1] += x_local[(i + r + 1) % 3] * w[r]
        """,
    )


def test_a_window_of_a_window():
    def steps(s: Schedule) -> None:
        s.ring_buffer(s.buffer("t"), s.loop("i"))
        s.ring_buffer(s.buffer("u"), s.loop("i"))

    rewritten(
        TWICE,
        steps,
        """
        def k(x: f32[8], y: out(f32[6])):
            t = alloc(f32[3])
            u = alloc(f32[2])
            for i in range(6):
                if i == 0:
                    for a_1 in range(2):
                        t[a_1] = x[a_1] * f32(2.0)
                for a in range(1):
                    t[(i + 2) % 3] = x[i + 2] * f32(2.0)
                if i == 0:
                    for b_1 in range(1):
                        u[0] = t[0] + t[1]
                for b in range(1):
                    u[(i + 1) % 2] = t[(i + 1) % 3] + t[(i + 2) % 3]
                y[i] = u[i % 2] * u[(i + 1) % 2]
        """,
    )


def test_keep_what_is_overwritten_behind():
    def steps(s: Schedule) -> None:
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    rewritten(
        BEHIND,
        steps,
        """
        def k(x: f32[8], y: out(f32[6]), z: out(f32[8])):
            for s in range(8):
                z[s] = x[s]
            t = alloc(f32[3])
            for i in range(6):
                if i == 0:
                    for a_1 in range(2):
                        t[a_1] = z[a_1]
                for a in range(1):
                    t[(i + 2) % 3] = z[i + 2]
                y[i] = t[i % 3] + t[(i + 2) % 3]
                z[i] = f32(5.0)
        """,
    )


def test_keep_rows_for_an_instruction():
    def steps(s: Schedule) -> None:
        s.tensorize(s.loop("q"), ROW)
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    rewritten(
        ROW_BY_ROW,
        steps,
        """
        def k(x: f32[8, 4], y: out(f32[6, 3, 4])):
            t = alloc(f32[3, 4])
            for i in range(6):
                if i == 0:
                    for a_1 in range(2):
                        for b_1 in range(4):
                            t[a_1, b_1] = x[a_1, b_1]
                for a in range(1):
                    for b in range(4):
                        t[(i + 2) % 3, b] = x[i + 2, b]
                for p in range(3):
                    copy_row(t[(i + p) % 3, _0], y[i, p, _0])
        """,
    )


def test_keep_rows_that_an_instruction_takes_together():
    def steps(s: Schedule) -> None:
        s.tensorize(s.loop("p"), COPY)
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    refused(
        ROW_BY_ROW,
        steps,
        """
        the ring's end may stand in the middle of t[_0, _1]
          while applying ring_buffer(buffer=t: f32[3, 4], loop=i, depth=None, at_once=False)
          in: …
        """,
    )


def test_keep_tiles_that_an_instruction_takes_together():
    def steps(s: Schedule) -> None:
        s.tensorize(s.loop("p"), COPY)
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    rewritten(
        ALIGNED,
        steps,
        """
        def k(x: f32[24, 4], y: out(f32[6, 3, 4])):
            t = alloc(f32[6, 4])
            for i in range(6):
                if i == 0:
                    for a_1 in range(3):
                        for b_1 in range(4):
                            t[a_1, b_1] = x[a_1, b_1]
                for a in range(3):
                    for b in range(4):
                        t[(i + 1) % 2 * 3 + a, b] = x[i * 3 + a + 3, b]
                copy(t[i % 2 * 3 + _0, _1], y[i, _0, _1])
        """,
    )


def test_keep_an_axis_inside_of_an_instruction():
    def steps(s: Schedule) -> None:
        s.tensorize(s.loop("p"), COPY)
        s.ring_buffer(s.buffer("t"), s.loop("i"), 8)

    refused(
        OUTER,
        steps,
        """
        t[_0, _1] would be further apart in memory
          while applying ring_buffer(buffer=t: f32[3, 4], loop=i, depth=8, at_once=False)
          in: …
          hint: leave depth out
        """,
    )


def test_keep_what_is_overwritten():
    def steps(s: Schedule) -> None:
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    refused(
        CHANGED,
        steps,
        """
        t would be out of date: read after write: write of z[i + 1], then read of z[a + i],
          for example at i=4 and at i=5, a=0
          while applying ring_buffer(buffer=t: f32[3], loop=i, depth=None, at_once=False)
          in: …
        """,
    )


def test_keep_what_each_iteration_has_anew():
    def steps(s: Schedule) -> None:
        s.ring_buffer(s.buffer("u"), s.loop("i"))

    refused(
        TWICE,
        steps,
        """
        u is computed of t, which each iteration has anew
          while applying ring_buffer(buffer=u: f32[2], loop=i, depth=None, at_once=False)
          in: …
          hint: ring_buffer(t, i) first
        """,
    )


def test_keep_elements_of_their_own():
    def steps(s: Schedule) -> None:
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    refused(
        OWN,
        steps,
        """
        t is computed of elements of its own
          while applying ring_buffer(buffer=t: f32[3], loop=i, depth=None, at_once=False)
          in: …
        """,
    )


def test_keep_what_changes_with_the_loop():
    def steps(s: Schedule) -> None:
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    refused(
        SCALED,
        steps,
        """
        t does not move along an axis by the same step in each iteration of i: t[a] = s[i]
          while applying ring_buffer(buffer=t: f32[3], loop=i, depth=None, at_once=False)
          in: …
        """,
    )


def test_keep_whole_tiles():
    def steps(s: Schedule) -> None:
        outer, _ = s.split(s.loop("a"), 3)
        s.ring_buffer(s.cache_read(s.buffer("x"), outer), outer)

    refused(
        ROWS_3,
        steps,
        """
        no two iterations share an element of x_local: each is 3 places further, along an axis of 3
          while applying ring_buffer(buffer=x_local: f32[3, 6], loop=a_o, depth=None, at_once=False)
          in: …
        """,
    )


def test_keep_in_too_few_places():
    def steps(s: Schedule) -> None:
        x = s.cache_read(s.buffer("x"), s.loop("i"), "sram")
        s.ring_buffer(x, s.loop("i"), 2)

    refused(
        WINDOW,
        steps,
        """
        x_local needs 3 places along axis 0, not 2
          while applying ring_buffer(buffer=x_local: f32[3], loop=i, depth=2, at_once=False)
          in: …
        """,
    )


def test_keep_what_is_allocated_outside():
    def steps(s: Schedule) -> None:
        s.ring_buffer(s.buffer("t"), s.loop("i"))

    refused(
        ROWS_3,
        steps,
        """
        i does not allocate t in its body
          while applying ring_buffer(buffer=t: f32[12, 4], loop=i, depth=None, at_once=False)
          in: …
        """,
    )


def test_keep_for_workers():
    def steps(s: Schedule) -> None:
        x = s.cache_read(s.buffer("x"), s.loop("i"), "sram")
        s.parallel(s.loop("i"))
        s.ring_buffer(x, s.loop("i"))

    refused(
        WINDOW,
        steps,
        """
        i is a loop of kind parallel already
          while applying ring_buffer(buffer=x_local: f32[3], loop=i, depth=None, at_once=False)
          in: …
        """,
    )
