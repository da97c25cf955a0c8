"""Primitives on loops: programs before and after."""

from schedule_cases import rewritten, schedule
from schedule_programs import EVEN, LONG, MATRIX, ROWS, SUM

from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule


def test_split_with_a_guard():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4)

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for i_o in range(3):
                for i_i in range(4):
                    if i_o * 4 + i_i < 10:
                        y[i_o * 4 + i_i] = x[i_o * 4 + i_i] * f32(2.0)
        """,
    )


def test_split_without_a_rest():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4, Tail.CUT)

    rewritten(
        EVEN,
        steps,
        """
        def k(x: f32[12], y: out(f32[12])):
            for i_o in range(3):
                for i_i in range(4):
                    y[i_o * 4 + i_i] = x[i_o * 4 + i_i]
        """,
    )


def test_split_with_a_cut():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4, Tail.CUT)

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for i_o in range(2):
                for i_i in range(4):
                    y[i_o * 4 + i_i] = x[i_o * 4 + i_i] * f32(2.0)
            for i_t in range(2):
                y[i_t + 8] = x[i_t + 8] * f32(2.0)
        """,
    )


def test_split_with_a_shift():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4, Tail.SHIFT)

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for i_o in range(3):
                for i_i in range(4):
                    y[i_i + min(i_o * 4, 6)] = x[i_i + min(i_o * 4, 6)] * f32(2.0)
        """,
    )


def test_split_of_a_symbolic_extent():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4)

    rewritten(
        LONG,
        steps,
        """
        def k(x: f32[n], y: out(f32[n])):
            n = symbol(1)
            for i_o in range((n + 3) // 4):
                for i_i in range(4):
                    if i_o * 4 + i_i < n:
                        y[i_o * 4 + i_i] = x[i_o * 4 + i_i]
        """,
    )


def test_split_of_a_symbolic_extent_with_a_cut():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4, Tail.CUT)

    rewritten(
        LONG,
        steps,
        """
        def k(x: f32[n], y: out(f32[n])):
            n = symbol(1)
            for i_o in range(n // 4):
                for i_i in range(4):
                    y[i_o * 4 + i_i] = x[i_o * 4 + i_i]
            for i_t in range(n % 4):
                y[n // 4 * 4 + i_t] = x[n // 4 * 4 + i_t]
        """,
    )


def test_fuse_two_loops():
    def steps(s: Schedule) -> None:
        s.fuse(s.loop("i"), s.loop("j"))

    rewritten(
        MATRIX,
        steps,
        """
        def k(x: f32[4, 6], y: out(f32[4, 6])):
            for i_j in range(24):
                y[i_j // 6, i_j % 6] = x[i_j // 6, i_j % 6]
        """,
    )


def test_fuse_what_was_split():
    def steps(s: Schedule) -> None:
        s.fuse(*s.split(s.loop("i"), 4))

    rewritten(
        EVEN,
        steps,
        """
        def k(x: f32[12], y: out(f32[12])):
            for i_o_i_i in range(12):
                y[i_o_i_i] = x[i_o_i_i]
        """,
    )


def test_reorder_no_loops():
    s = schedule("def k(y: out(f32[2])):\n    for i in range(2):\n        y[i] = f32(0.0)\n")
    before = s.kernel
    s.reorder()
    assert s.kernel is before


def test_reorder_two_loops():
    def steps(s: Schedule) -> None:
        s.reorder(s.loop("j"), s.loop("i"))

    rewritten(
        MATRIX,
        steps,
        """
        def k(x: f32[4, 6], y: out(f32[4, 6])):
            for j in range(6):
                for i in range(4):
                    y[i, j] = x[i, j]
        """,
    )


def test_unroll_a_loop():
    def steps(s: Schedule) -> None:
        s.unroll(s.loop("j"))

    rewritten(
        MATRIX,
        steps,
        """
        def k(x: f32[4, 6], y: out(f32[4, 6])):
            for i in range(4):
                for j in unroll(6):
                    y[i, j] = x[i, j]
        """,
    )


def test_vectorize_a_loop():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("j"))

    rewritten(
        MATRIX,
        steps,
        """
        def k(x: f32[4, 6], y: out(f32[4, 6])):
            for i in range(4):
                for j in vectorize(6):
                    y[i, j] = x[i, j]
        """,
    )


def test_vectorize_a_sum():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("r"))

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in range(4):
                y[i] = f32(0.0)
                for r in vectorize(8):
                    y[i] += x[i, r]
        """,
    )


def test_parallel_rows():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in parallel(4):
                y[i] = f32(0.0)
                for r in range(8):
                    y[i] += x[i, r]
        """,
    )


def test_peel_the_first():
    def steps(s: Schedule) -> None:
        s.peel(s.loop("i"), 2)

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for i_p in range(2):
                y[i_p] = x[i_p] * f32(2.0)
            for i in range(8):
                y[i + 2] = x[i + 2] * f32(2.0)
        """,
    )


def test_peel_the_last():
    def steps(s: Schedule) -> None:
        s.peel(s.loop("i"), -1)

    rewritten(
        ROWS,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for i in range(9):
                y[i] = x[i] * f32(2.0)
            for i_p in range(1):
                y[9] = x[9] * f32(2.0)
        """,
    )
