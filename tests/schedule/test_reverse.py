"""Uses moved to where a buffer is computed: programs before and after, and what is refused."""

from schedule_cases import refused, rewritten
from schedule_programs import EVEN, GATHER, SCAN, SOFT, STAGES

from tilewright.schedule.schedule import Schedule

PRODUCT = """
def k(a: f32[10, 3], b: f32[3, 6], c: out(f32[10, 6])):
    t = alloc(f32[10, 6])
    for i in range(10):
        for j in range(6):
            t[i, j] = f32(0.0)
            for p in range(3):
                t[i, j] += a[i, p] * b[p, j]
    for u in range(10):
        for v in range(6):
            c[u, v] = max(t[u, v], f32(0.0))
"""
UNKNOWN = """
def k(x: f32[n], y: out(f32[n])):
    n = symbol(1)
    t = alloc(f32[n])
    for i in range(n):
        t[i] = x[i]
    for j in range(n):
        y[j] = t[j] + f32(1.0)
"""
BETWEEN = """
def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        t[i] = x[i]
    u = alloc(f32[4])
    for a in range(4):
        u[a] = x[3 - a]
    for b in range(4):
        z[b] = u[b]
        y[b] = t[b]
"""
TRANSPOSED = """
def k(x: f32[4, 3], y: out(f32[3, 4])):
    t = alloc(f32[4, 3])
    for i in range(4):
        for j in range(3):
            t[i, j] = x[i, j]
    for u in range(3):
        for v in range(4):
            y[u, v] = t[v, u]
"""
CONDITION = """
def k(x: f32[4], y: out(f32[4])):
    t = alloc(f32[4])
    if x[0] < f32(1.0):
        for i in range(4):
            t[i] = x[i]
    for j in range(4):
        y[j] = t[j]
"""
FURTHER = """
def k(x: f32[6], y: out(f32[6])):
    t = alloc(f32[6])
    for i in range(4):
        t[i] = x[i]
    for j in range(6):
        y[j] = select(j < 4, t[j], f32(0.0))
"""
DIAGONAL = """
def k(x: f32[4, 4], y: out(f32[4])):
    t = alloc(f32[4, 4])
    for i in range(4):
        for j in range(4):
            t[i, j] = x[i, j]
    for u in range(4):
        y[u] = t[u, u]
"""
STRIDED = """
def k(x: f32[4], y: out(f32[8])):
    t = alloc(f32[8])
    for i in range(4):
        t[i * 2] = x[i]
    for j in range(4):
        y[j * 2] = t[j * 2]
"""


def test_use_a_reduction_at_once():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("m"), s.loop("i"))

    rewritten(
        SOFT,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4, 8])):
            for i in range(4):
                m = alloc(f32[1])
                m[0] = f32(-inf)
                for r in range(8):
                    accumulate(max, m[0], x[i, r])
                for a in range(1):
                    for b in range(8):
                        y[i, b] = x[i, b] - m[0]
        """,
    )


def test_use_a_window_one_step_later():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("i"))

    rewritten(
        STAGES,
        steps,
        """
        def k(x: f32[8], y: out(f32[7])):
            t = alloc(f32[8])
            for i in range(8):
                t[i] = x[i] + f32(1.0)
                if 0 <= i - 1:
                    for j in range(1):
                        y[i - 1] = t[i - 1] * t[i]
        """,
    )


def test_use_tiles():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4)
        s.reverse_compute_at(s.buffer("t"), s.loop("i_o"))

    rewritten(
        PRODUCT,
        steps,
        """
        def k(a: f32[10, 3], b: f32[3, 6], c: out(f32[10, 6])):
            for i_o in range(3):
                t = alloc(f32[4, 6])
                for i_i in range(4):
                    if i_o * 4 + i_i < 10:
                        for j in range(6):
                            t[i_i, j] = f32(0.0)
                            for p in range(3):
                                t[i_i, j] += a[i_o * 4 + i_i, p] * b[p, j]
                for u in range(4):
                    if i_o * 4 + u < 10:
                        for v in range(6):
                            c[i_o * 4 + u, v] = max(t[u, v], f32(0.0))
        """,
    )


def test_use_elements():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("j"))

    rewritten(
        PRODUCT,
        steps,
        """
        def k(a: f32[10, 3], b: f32[3, 6], c: out(f32[10, 6])):
            for i in range(10):
                for j in range(6):
                    t = alloc(f32[1, 1])
                    t[0, 0] = f32(0.0)
                    for p in range(3):
                        t[0, 0] += a[i, p] * b[p, j]
                    for u in range(1):
                        for v in range(1):
                            c[i, j] = max(t[0, 0], f32(0.0))
        """,
    )


def test_use_tiles_of_tiles():
    def steps(s: Schedule) -> None:
        t = s.cache_write(s.buffer("y"))
        outer, _ = s.split(s.loop("i"), 2)
        _, inner = s.split(outer, 3)
        s.reverse_compute_at(t, inner)

    rewritten(
        EVEN,
        steps,
        """
        def k(x: f32[12], y: out(f32[12])):
            for i_o_o in range(2):
                for i_o_i in range(3):
                    y_local = alloc(f32[2])
                    for i_i in range(2):
                        y_local[i_i] = x[i_o_o * 6 + i_o_i * 2 + i_i]
                    for i_c in range(2):
                        y[i_o_o * 6 + i_o_i * 2 + i_c] = y_local[i_c]
        """,
    )


def test_use_the_other_way_round():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("j"))

    rewritten(
        TRANSPOSED,
        steps,
        """
        def k(x: f32[4, 3], y: out(f32[3, 4])):
            for i in range(4):
                for j in range(3):
                    t = alloc(f32[1, 1])
                    t[0, 0] = x[i, j]
                    for u in range(1):
                        for v in range(1):
                            y[j, i] = t[0, 0]
        """,
    )


def test_use_tiles_of_unknown_extents():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4)
        s.reverse_compute_at(s.buffer("t"), s.loop("i_o"))

    rewritten(
        UNKNOWN,
        steps,
        """
        def k(x: f32[n], y: out(f32[n])):
            n = symbol(1)
            for i_o in range((n + 3) // 4):
                t = alloc(f32[4])
                for i_i in range(4):
                    if i_o * 4 + i_i < n:
                        t[i_i] = x[i_o * 4 + i_i]
                for j in range(4):
                    if i_o * 4 + j < n:
                        y[i_o * 4 + j] = t[j] + f32(1.0)
        """,
    )


def test_use_a_scan():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("i"))

    rewritten(
        SCAN,
        steps,
        """
        def k(x: f32[4], y: out(f32[4])):
            t = alloc(f32[4])
            for i in range(4):
                t[i] = select(0 < i, t[i - 1], f32(0.0)) + x[i]
                for j in range(1):
                    y[i] = t[i]
        """,
    )


def test_use_before_what_is_between():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("i"))

    refused(
        BETWEEN,
        steps,
        """
        the order matters: read after write: write of u[a], then read of u[b],
          for example at a=0 and at b=0
          while applying reverse_compute_at(buffer=t: f32[4], loop=i)
          in: …
        """,
    )


def test_use_twice():
    def steps(s: Schedule) -> None:
        s.peel(s.loop("a"), 2)
        s.reverse_compute_at(s.buffer("m"), s.loop("i"))

    refused(
        SOFT,
        steps,
        """
        m is used by 2 statements behind its definition, not by one
          while applying reverse_compute_at(buffer=m: f32[4], loop=i)
          in: …
        """,
    )


def test_use_before_it_is_complete():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("m"), s.loop("r"))

    refused(
        SOFT,
        steps,
        """
        m is not complete after an iteration of r
          while applying reverse_compute_at(buffer=m: f32[4], loop=r)
          in: …
        """,
    )


def test_use_at_another_loop():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("m"), s.loop("a"))

    refused(
        SOFT,
        steps,
        """
        a does not stand in the definition: for i in range(4):
          while applying reverse_compute_at(buffer=m: f32[4], loop=a)
          in: …
        """,
    )


def test_use_anywhere():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("i"))

    refused(
        GATHER,
        steps,
        """
        no loop goes along axis 0 of t, one by one: read of t[n[j] % 8]
          while applying reverse_compute_at(buffer=t: f32[8], loop=i)
          in: …
        """,
    )


def test_use_under_a_condition():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("i"))

    refused(
        CONDITION,
        steps,
        """
        i stands under a condition
          while applying reverse_compute_at(buffer=t: f32[4], loop=i)
          in: …
        """,
    )


def test_use_more_than_there_is():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("i"))

    refused(
        FURTHER,
        steps,
        """
        j goes further than what is computed of t
          while applying reverse_compute_at(buffer=t: f32[6], loop=i)
          in: …
        """,
    )


def test_use_a_diagonal():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("j"))

    refused(
        DIAGONAL,
        steps,
        """
        a loop of u goes along two axes of t
          while applying reverse_compute_at(buffer=t: f32[4, 4], loop=j)
          in: …
        """,
    )


def test_use_with_gaps():
    def steps(s: Schedule) -> None:
        s.reverse_compute_at(s.buffer("t"), s.loop("i"))

    refused(
        STRIDED,
        steps,
        """
        the loops do not tile t: write of t[i * 2]
          while applying reverse_compute_at(buffer=t: f32[8], loop=i)
          in: …
        """,
    )


def test_use_for_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.reverse_compute_at(s.buffer("m"), s.loop("i"))

    refused(
        SOFT,
        steps,
        """
        i is a loop of kind parallel already
          while applying reverse_compute_at(buffer=m: f32[4], loop=i)
          in: …
        """,
    )
