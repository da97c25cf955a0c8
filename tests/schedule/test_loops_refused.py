"""Primitives on loops: what is refused, and why."""

from schedule_cases import refused
from schedule_programs import CARRIED, LOCAL, LONG, MATRIX, ROWS, STENCIL, SUM

from tilewright.schedule.primitives.loops import Tail
from tilewright.schedule.schedule import Schedule


def test_unknown_loop():
    def steps(s: Schedule) -> None:
        s.split(s.loop("ii"), 4)

    refused(
        ROWS,
        steps,
        """
        there is no loop called 'ii'
          in: …
          hint: did you mean 'i'?
        """,
    )


def test_loop_that_is_gone():
    def steps(s: Schedule) -> None:
        i = s.loop("i")
        s.split(i, 5)
        s.split(i, 5)

    refused(
        ROWS,
        steps,
        """
        there is no loop i any more
          while applying split(loop=i, factor=5, tail=guard)
          in: …
        """,
    )


def test_split_by_zero():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 0)

    refused(
        ROWS,
        steps,
        """
        the factor must be at least 1, not 0
          while applying split(loop=i, factor=0, tail=guard)
          in: …
        """,
    )


def test_split_of_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("i"))
        s.split(s.loop("i"), 5)

    refused(
        ROWS,
        steps,
        """
        i is a vector loop
          while applying split(loop=i, factor=5, tail=guard)
          in: …
          hint: split it before
        """,
    )


def test_cut_without_a_tile():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 16, Tail.CUT)

    refused(
        ROWS,
        steps,
        """
        i runs 10 times, which is not one tile of 16
          while applying split(loop=i, factor=16, tail=cut)
          in: …
        """,
    )


def test_shift_of_few():
    def steps(s: Schedule) -> None:
        s.split(s.loop("i"), 4, Tail.SHIFT)

    refused(
        LONG,
        steps,
        """
        i may run fewer than 4 times
          while applying split(loop=i, factor=4, tail=shift)
          in: …
        """,
    )


def test_shift_of_a_sum():
    def steps(s: Schedule) -> None:
        s.split(s.loop("r"), 3, Tail.SHIFT)

    refused(
        SUM,
        steps,
        """
        r cannot do an iteration twice: accumulation of y[i]
          while applying split(loop=r, factor=3, tail=shift)
          in: …
        """,
    )


def test_fuse_a_nest_that_is_not_perfect():
    def steps(s: Schedule) -> None:
        s.fuse(s.loop("i"), s.loop("r"))

    refused(
        SUM,
        steps,
        """
        r is not the only statement of i
          while applying fuse(outer=i, inner=r)
          in: …
          hint: fuse needs a perfect nest
        """,
    )


def test_fuse_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.fuse(s.loop("i"), s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        i is a loop of kind parallel already
          while applying fuse(outer=i, inner=j)
          in: …
        """,
    )


def test_reorder_a_stencil():
    def steps(s: Schedule) -> None:
        s.reorder(s.loop("i"), s.loop("t"))

    refused(
        STENCIL,
        steps,
        """
        the order matters: read after write: write of y[i, t + 1], then read of y[(i + 1) % 4,
          t], for example at t=0, i=1 and at t=1, i=0
          while applying reorder(loops=(i, t))
          in: …
        """,
    )


def test_reorder_one_twice():
    def steps(s: Schedule) -> None:
        s.reorder(s.loop("i"), s.loop("i"))

    refused(
        MATRIX,
        steps,
        """
        a loop is named twice
          while applying reorder(loops=(i, i))
          in: …
        """,
    )


def test_reorder_a_nest_that_is_not_perfect():
    def steps(s: Schedule) -> None:
        s.reorder(s.loop("r"), s.loop("i"))

    refused(
        SUM,
        steps,
        """
        r is not perfectly nested in i
          while applying reorder(loops=(r, i))
          in: …
        """,
    )


def test_reorder_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("j"))
        s.reorder(s.loop("j"), s.loop("i"))

    refused(
        MATRIX,
        steps,
        """
        j is a loop of kind vectorize already
          while applying reorder(loops=(j, i))
          in: …
          hint: reorder first
        """,
    )


def test_unroll_a_symbolic_extent():
    def steps(s: Schedule) -> None:
        s.unroll(s.loop("i"))

    refused(
        LONG,
        steps,
        """
        i runs n times, which is not a constant
          while applying unroll(loop=i)
          in: …
        """,
    )


def test_unroll_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.unroll(s.loop("i"))

    refused(
        ROWS,
        steps,
        """
        i is a loop of kind parallel already
          while applying unroll(loop=i)
          in: …
        """,
    )


def test_vectorize_what_is_carried():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("i"))

    refused(
        CARRIED,
        steps,
        """
        the lanes of i are not independent: read after write: write of y[i + 1],
          then read of y[i], for example at i=6 and at i=7
          while applying vectorize(loop=i)
          in: …
        """,
    )


def test_vectorize_allocations():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("i"))

    refused(
        LOCAL,
        steps,
        """
        i allocates in its body
          while applying vectorize(loop=i)
          in: …
          hint: allocate outside of the loop
        """,
    )


def test_vectorize_in_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("i"))
        s.vectorize(s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        j stands in a vector loop
          while applying vectorize(loop=j)
          in: …
        """,
    )


def test_vectorize_around_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("j"))
        s.vectorize(s.loop("i"))

    refused(
        MATRIX,
        steps,
        """
        i contains a vector or parallel loop
          while applying vectorize(loop=i)
          in: …
        """,
    )


def test_parallel_sum():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("r"))

    refused(
        SUM,
        steps,
        """
        the iterations of r are not independent: write after write: accumulation of y[i],
          then accumulation of y[i], for example at r=0 and at r=1
          while applying parallel(loop=r)
          in: …
        """,
    )


def test_parallel_in_parallel():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.parallel(s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        j is inside or around another parallel loop
          while applying parallel(loop=j)
          in: …
        """,
    )


def test_parallel_in_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("i"))
        s.parallel(s.loop("j"))

    refused(
        MATRIX,
        steps,
        """
        j stands in a vector loop
          while applying parallel(loop=j)
          in: …
        """,
    )


def test_peel_more_than_there_is():
    def steps(s: Schedule) -> None:
        s.peel(s.loop("i"), 11)

    refused(
        ROWS,
        steps,
        """
        i cannot be cut after 11 of its 10 iterations
          while applying peel(loop=i, count=11)
          in: …
        """,
    )
