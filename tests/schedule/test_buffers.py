"""Primitives on buffers and stages of a pipeline: programs before and after."""

from schedule_cases import rewritten
from schedule_programs import EVEN, LOCAL, MATRIX, SUM, TILES

from tilewright.ir.tensor_type import Layout
from tilewright.schedule.schedule import Schedule


def test_pack_an_input():
    def steps(s: Schedule) -> None:
        s.pack_layout(s.buffer("x"), Layout((1, 0)))

    rewritten(
        MATRIX,
        steps,
        """
        def k(x: f32[6, 4], y: out(f32[4, 6])):
            for i in range(4):
                for j in range(6):
                    y[i, j] = x[j, i]
        """,
    )


def test_pack_in_blocks():
    def steps(s: Schedule) -> None:
        s.pack_layout(s.buffer("y"), Layout((0, 1), ((1, 4),)))

    rewritten(
        MATRIX,
        steps,
        """
        def k(x: f32[4, 6], y: out(f32[4, 2, 4])):
            for i in range(4):
                for j in range(6):
                    y[i, j // 4, j % 4] = x[i, j]
        """,
    )


def test_pack_in_blocks_of_blocks():
    def steps(s: Schedule) -> None:
        s.pack_layout(s.buffer("x"), Layout((0,), ((0, 4), (0, 2))))

    rewritten(
        EVEN,
        steps,
        """
        def k(x: f32[2, 4, 2], y: out(f32[12])):
            for i in range(12):
                y[i] = x[i // 8, i // 2 % 4, i % 2]
        """,
    )


def test_pack_a_local_buffer():
    def steps(s: Schedule) -> None:
        s.pack_layout(s.buffer("t"), Layout((0,), ((0, 2),)))

    rewritten(
        LOCAL,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4, 8])):
            for i in range(4):
                t = alloc(f32[4, 2])
                for a in range(8):
                    t[a // 2, a % 2] = x[i, a]
                for b in range(8):
                    y[i, b] = t[(1 - b) // 2 + 3, (1 - b) % 2]
        """,
    )


def test_move_to_another_memory():
    def steps(s: Schedule) -> None:
        s.set_memory(s.buffer("t"), "sram")

    rewritten(
        LOCAL,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4, 8])):
            for i in range(4):
                t = alloc(f32[8] @ "sram")
                for a in range(8):
                    t[a] = x[i, a]
                for b in range(8):
                    y[i, b] = t[7 - b]
        """,
    )


def test_cache_a_tile_that_is_read():
    def steps(s: Schedule) -> None:
        s.cache_read(s.buffer("x"), s.loop("o"), "sram")

    rewritten(
        TILES,
        steps,
        """
        def k(x: f32[8, 8], y: out(f32[8])):
            for o in range(4):
                x_local = alloc(f32[2, 2] @ "sram")
                for x_local_0 in range(2):
                    for x_local_1 in range(2):
                        x_local[x_local_0, x_local_1] = x[o * 2 + x_local_0, x_local_1]
                for q in range(2):
                    y[o * 2 + q] = x_local[q, 0] + x_local[q, 1]
        """,
    )


def test_cache_whole_rows():
    """Two rows of two are read, and the rest of a row is less than 32 bytes; the other rows are
    read in other iterations."""
    rewritten(
        TILES,
        lambda s: s.cache_read(s.buffer("x"), s.loop("o"), "sram", (), 32),
        """
        def k(x: f32[8, 8], y: out(f32[8])):
            for o in range(4):
                x_local = alloc(f32[2, 8] @ "sram")
                for x_local_0 in range(2):
                    for x_local_1 in range(8):
                        x_local[x_local_0, x_local_1] = x[o * 2 + x_local_0, x_local_1]
                for q in range(2):
                    y[o * 2 + q] = x_local[q, 0] + x_local[q, 1]
        """,
    )


def test_partial_sums():
    def steps(s: Schedule) -> None:
        outer, _ = s.split(s.loop("r"), 4)
        s.rfactor(s.buffer("y"), outer)

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            y_partial = alloc(f32[2, 4])
            for i in range(4):
                for r_o in range(2):
                    y_partial[r_o, i] = f32(0.0)
                    for r_i in range(4):
                        y_partial[r_o, i] += x[i, r_o * 4 + r_i]
            for i_1 in range(4):
                y[i_1] = f32(0.0)
                for r_o_1 in range(2):
                    y[i_1] += y_partial[r_o_1, i_1]
        """,
    )


def test_two_places_in_turn():
    def steps(s: Schedule) -> None:
        s.multi_buffer(s.buffer("t"), [s.loop("i")], 2)

    rewritten(
        LOCAL,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4, 8])):
            t = alloc(f32[2, 8])
            for i in range(4):
                for a in range(8):
                    t[i % 2, a] = x[i, a]
                for b in range(8):
                    y[i, b] = t[i % 2, 7 - b]
        """,
    )


def test_start_in_the_first_iteration():
    def steps(s: Schedule) -> None:
        s.fold_init(s.buffer("y"), s.loop("r"))

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in range(4):
                for r in range(8):
                    if r == 0:
                        y[i] = f32(0.0)
                    y[i] += x[i, r]
        """,
    )


def test_overlap_two_stages():
    def steps(s: Schedule) -> None:
        s.pipeline(s.loop("i"), (0, 1))

    rewritten(
        LOCAL,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4, 8])):
            t = alloc(f32[2, 8])
            for a_1 in range(8):
                t[0, a_1] = x[0, a_1]
            for i in range(3):
                for a in range(8):
                    t[(i + 1) % 2, a] = x[i + 1, a]
                for b in range(8):
                    y[i, b] = t[i % 2, 7 - b]
            for b_1 in range(8):
                y[3, b_1] = t[1, 7 - b_1]
        """,
    )
