"""Primitives on buffers and stages of a pipeline: what is refused, and why."""

import pytest
from schedule_cases import refused
from schedule_programs import LOCAL, MATRIX, STAGES, SUM, TILES

from tilewright.ir.tensor_type import Layout
from tilewright.schedule.schedule import Schedule


def test_pack_what_is_gone():
    def steps(s: Schedule) -> None:
        x = s.buffer("x")
        s.pack_layout(x, Layout((1, 0)))
        s.pack_layout(x, Layout((1, 0)))

    refused(
        MATRIX,
        steps,
        """
        there is no buffer x: f32[4, 6] (any more)
          while applying pack_layout(buffer=x: f32[4, 6], layout=layout[1, 0])
          in: …
          hint: did you mean 'y: f32[4, 6]' or 'x: f32[6, 4]'?
        """,
    )


@pytest.mark.parametrize(
    "layout, error",
    [
        (Layout((0, 1, 2)), "layout[0, 1, 2] does not order the 2 axes of x"),
        (
            Layout((0, 1), ((2, 4),)),
            "layout[0, 1, 2:4] has blocks that the 2 axes of x cannot have",
        ),
        (
            Layout((0, 1), ((1, 0),)),
            "layout[0, 1, 1:0] has blocks that the 2 axes of x cannot have",
        ),
    ],
)
def test_pack_as_no_layout(layout: Layout, error: str):
    refused(
        MATRIX,
        lambda s: s.pack_layout(s.buffer("x"), layout),
        f"""
        {error}
          while applying pack_layout(buffer=x: f32[4, 6], layout={layout})
          in: …
        """,
    )


def test_unknown_buffer():
    def steps(s: Schedule) -> None:
        s.pack_layout(s.buffer("z"), Layout((1, 0)))

    refused(
        MATRIX,
        steps,
        """
        there is no buffer called 'z'
          in: …
          hint: known: x, y
        """,
    )


def test_move_a_parameter():
    def steps(s: Schedule) -> None:
        s.set_memory(s.buffer("x"), "sram")

    refused(
        LOCAL,
        steps,
        """
        x is a parameter of the kernel
          while applying set_memory(buffer=x: f32[4, 8], memory=sram)
          in: …
        """,
    )


def test_cache_what_is_not_read():
    def steps(s: Schedule) -> None:
        s.cache_read(s.buffer("y"), s.loop("o"))

    refused(
        TILES,
        steps,
        """
        o writes y
          while applying cache_read(buffer=y: f32[8], loop=o, memory=dram, strided=(), slack=0)
          in: …
        """,
    )


def test_cache_what_is_not_read_here():
    def steps(s: Schedule) -> None:
        s.cache_read(s.buffer("x"), s.loop("j"))

    refused(
        STAGES,
        steps,
        """
        j does not read x
          while applying cache_read(buffer=x: f32[8], loop=j, memory=dram, strided=(), slack=0)
          in: …
        """,
    )


def test_cache_in_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("q"))
        s.cache_read(s.buffer("x"), s.loop("q"))

    refused(
        TILES,
        steps,
        """
        the lanes of q cannot have memory of their own
          while applying cache_read(buffer=x: f32[8, 8], loop=q, memory=dram, strided=(), slack=0)
          in: …
        """,
    )


def test_partial_sums_of_an_axis():
    def steps(s: Schedule) -> None:
        s.rfactor(s.buffer("y"), s.loop("i"))

    refused(
        SUM,
        steps,
        """
        i is no loop of a reduction into y
          while applying rfactor(buffer=y: f32[4], loop=i)
          in: …
        """,
    )


def test_partial_sums_of_no_sum():
    def steps(s: Schedule) -> None:
        s.rfactor(s.buffer("y"), s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        y is no plain reduction
          while applying rfactor(buffer=y: f32[4, 6], loop=j)
          in: …
        """,
    )


def test_a_ring_of_none():
    def steps(s: Schedule) -> None:
        s.multi_buffer(s.buffer("t"), [s.loop("i")], 0)

    refused(
        LOCAL,
        steps,
        """
        a ring of 0 places over 1 loops
          while applying multi_buffer(buffer=t: f32[8], loops=[i], depth=0)
          in: …
        """,
    )


def test_a_ring_for_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.multi_buffer(s.buffer("t"), [s.loop("i")], 2)

    refused(
        LOCAL,
        steps,
        """
        i is a loop of kind parallel already
          while applying multi_buffer(buffer=t: f32[8], loops=[i], depth=2)
          in: …
        """,
    )


def test_a_ring_for_an_inner_loop():
    def steps(s: Schedule) -> None:
        s.multi_buffer(s.buffer("t"), [s.loop("a")], 2)

    refused(
        LOCAL,
        steps,
        """
        a does not allocate t in its body
          while applying multi_buffer(buffer=t: f32[8], loops=[a], depth=2)
          in: …
        """,
    )


def test_fold_nothing():
    def steps(s: Schedule) -> None:
        s.fold_init(s.buffer("y"), s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        no initialisation of y stands right before j
          while applying fold_init(buffer=y: f32[4, 6], loop=j)
          in: …
        """,
    )


def test_pipeline_with_too_few_stages():
    def steps(s: Schedule) -> None:
        s.pipeline(s.loop("i"), (0,))

    refused(
        LOCAL,
        steps,
        """
        2 statements need a stage each, the first of them 0: (0,)
          while applying pipeline(loop=i, stages=(0,), order=())
          in: …
        """,
    )


def test_pipeline_against_the_order():
    def steps(s: Schedule) -> None:
        s.pipeline(s.loop("i"), (1, 0))

    refused(
        LOCAL,
        steps,
        """
        the order matters: read after write: write of t[i % 2, a], then read of t[i % 2,
          7 - b], for example at i=0, a=0 and at i=0, b=7
          while applying pipeline(loop=i, stages=(1, 0), order=())
          in: …
        """,
    )


def test_pipeline_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.pipeline(s.loop("i"), (0, 1))

    refused(
        LOCAL,
        steps,
        """
        i is a loop of kind parallel already
          while applying pipeline(loop=i, stages=(0, 1), order=())
          in: …
        """,
    )
