"""Primitives on whole stages: programs before and after."""

from schedule_cases import rewritten
from schedule_programs import GATHER, MATMUL, SOFT, STAGES, SUM

from tilewright.schedule.schedule import Schedule


def test_inline_a_stage():
    def steps(s: Schedule) -> None:
        s.inline(s.buffer("t"))

    rewritten(
        STAGES,
        steps,
        """
        def k(x: f32[8], y: out(f32[7])):
            for j in range(7):
                y[j] = (x[j] + f32(1.0)) * (x[j + 1] + f32(1.0))
        """,
    )


def test_compute_where_it_is_read():
    def steps(s: Schedule) -> None:
        s.compute_at(s.buffer("t"), s.loop("j"))

    rewritten(
        STAGES,
        steps,
        """
        def k(x: f32[8], y: out(f32[7])):
            for j in range(7):
                t = alloc(f32[2])
                for i in range(2):
                    t[i] = x[i + j] + f32(1.0)
                y[j] = t[0] * t[1]
        """,
    )


def test_compute_a_reduction_where_it_is_read():
    def steps(s: Schedule) -> None:
        s.compute_at(s.buffer("m"), s.loop("a"))

    rewritten(
        SOFT,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4, 8])):
            for a in range(4):
                m = alloc(f32[1])
                for i in range(1):
                    m[0] = f32(-inf)
                    for r in range(8):
                        accumulate(max, m[0], x[a, r])
                for b in range(8):
                    y[a, b] = x[a, b] - m[0]
        """,
    )


def test_compute_a_tile():
    def steps(s: Schedule) -> None:
        outer, _ = s.split(s.loop("j"), 4)
        s.compute_at(s.buffer("t"), outer)

    rewritten(
        STAGES,
        steps,
        """
        def k(x: f32[8], y: out(f32[7])):
            for j_o in range(2):
                t = alloc(f32[5])
                for i in range(5):
                    t[i] = select(j_o * 4 + i < 8, x[j_o * 4 + i], f32(0.0)) + f32(1.0)
                for j_i in range(4):
                    if j_o * 4 + j_i < 7:
                        y[j_o * 4 + j_i] = t[j_i] * t[j_i + 1]
        """,
    )


def test_leave_out_what_nobody_reads():
    def steps(s: Schedule) -> None:
        outer, _ = s.split(s.loop("j"), 4)
        s.compute_at(s.buffer("t"), outer, clip=True)

    rewritten(
        STAGES,
        steps,
        """
        def k(x: f32[8], y: out(f32[7])):
            for j_o in range(2):
                t = alloc(f32[5])
                for i in range(5):
                    if j_o * 4 + i < 8:
                        t[i] = x[j_o * 4 + i] + f32(1.0)
                for j_i in range(4):
                    if j_o * 4 + j_i < 7:
                        y[j_o * 4 + j_i] = t[j_i] * t[j_i + 1]
        """,
    )


def test_compute_for_a_place_in_memory():
    def steps(s: Schedule) -> None:
        s.compute_at(s.buffer("t"), s.loop("j"))

    rewritten(
        GATHER,
        steps,
        """
        def k(x: f32[8], n: i64[4], y: out(f32[4])):
            for j in range(4):
                t = alloc(f32[1])
                for i in range(1):
                    t[0] = x[n[j] % 8] + f32(1.0)
                y[j] = t[0]
        """,
    )


def test_cache_a_result():
    def steps(s: Schedule) -> None:
        s.cache_write(s.buffer("y"), "register")

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            y_local = alloc(f32[4] @ "register")
            for i in range(4):
                y_local[i] = f32(0.0)
                for r in range(8):
                    y_local[i] += x[i, r]
            for i_c in range(4):
                y[i_c] = y_local[i_c]
        """,
    )


def test_split_an_initialisation():
    def steps(s: Schedule) -> None:
        s.split_init(s.buffer("y"))

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i_init in range(4):
                y[i_init] = f32(0.0)
            for i in range(4):
                for r in range(8):
                    y[i] += x[i, r]
        """,
    )


def test_a_register_tile():
    def steps(s: Schedule) -> None:
        local = s.cache_write(s.buffer("c"), "register")
        local = s.compute_at(local, s.loop("i_c"))
        s.split_init(local)

    rewritten(
        MATMUL,
        steps,
        """
        def k(a: f32[4, 6], b: f32[6, 5], c: out(f32[4, 5])):
            for i_c in range(4):
                c_local = alloc(f32[1, 5] @ "register")
                for i_init in range(1):
                    for j_init in range(5):
                        c_local[0, j_init] = f32(0.0)
                for i in range(1):
                    for j in range(5):
                        for p in range(6):
                            c_local[0, j] += a[i_c, p] * b[p, j]
                for j_c in range(5):
                    c[i_c, j_c] = c_local[0, j_c]
        """,
    )
