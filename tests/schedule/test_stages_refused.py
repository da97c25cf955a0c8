"""Primitives on whole stages: what is refused, and why."""

from schedule_cases import refused
from schedule_programs import OVERWRITTEN, REUSED, SCAN, SOFT, STAGES, TWO

from tilewright.schedule.schedule import Schedule


def test_inline_a_parameter():
    def steps(s: Schedule) -> None:
        s.inline(s.buffer("y"))

    refused(
        STAGES,
        steps,
        """
        y is a parameter of the kernel
          while applying inline(buffer=y: f32[7])
          in: …
          hint: use cache_write first
        """,
    )


def test_inline_what_is_gone():
    def steps(s: Schedule) -> None:
        t = s.buffer("t")
        s.inline(t)
        s.inline(t)

    refused(
        STAGES,
        steps,
        """
        there is no buffer t: f32[8] (any more)
          while applying inline(buffer=t: f32[8])
          in: …
          hint: did you mean 'x: f32[8]' or 'y: f32[7]'?
        """,
    )


def test_inline_a_reduction():
    def steps(s: Schedule) -> None:
        s.inline(s.buffer("m"))

    refused(
        SOFT,
        steps,
        """
        m is not defined by a single store
          while applying inline(buffer=m: f32[4])
          in: …
        """,
    )


def test_inline_a_scan():
    def steps(s: Schedule) -> None:
        s.inline(s.buffer("t"))

    refused(
        SCAN,
        steps,
        """
        t is defined by elements of its own: t[i] = select(0 < i, t[i - 1], f32(0.0)) + x[i]
          while applying inline(buffer=t: f32[4])
          in: …
        """,
    )


def test_inline_what_is_overwritten():
    def steps(s: Schedule) -> None:
        s.inline(s.buffer("t"))

    refused(
        OVERWRITTEN,
        steps,
        """
        z is written after it is read
          while applying inline(buffer=t: f32[4])
          in: …
        """,
    )


def test_compute_before():
    def steps(s: Schedule) -> None:
        s.compute_at(s.buffer("t"), s.loop("i"))

    refused(
        STAGES,
        steps,
        """
        i does not stand behind the definition of t
          while applying compute_at(buffer=t: f32[8], loop=i, clip=False)
          in: …
        """,
    )


def test_compute_an_output():
    def steps(s: Schedule) -> None:
        s.compute_at(s.buffer("y"), s.loop("j"))

    refused(
        STAGES,
        steps,
        """
        y is a parameter of the kernel
          while applying compute_at(buffer=y: f32[7], loop=j, clip=False)
          in: …
          hint: use cache_write first
        """,
    )


def test_compute_for_one_reader_of_two():
    def steps(s: Schedule) -> None:
        m = s.buffer("m")
        rest = s.peel(s.loop("a"), 1)
        s.compute_at(m, rest)

    refused(
        SOFT,
        steps,
        """
        m is also read outside of a_p: y[a + 1, b] = x[a + 1, b] - m[a + 1]
          while applying compute_at(buffer=m: f32[4], loop=a_p, clip=False)
          in: …
        """,
    )


def test_compute_in_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("j"))
        s.compute_at(s.buffer("t"), s.loop("j"))

    refused(
        STAGES,
        steps,
        """
        the lanes of j cannot have memory of their own
          while applying compute_at(buffer=t: f32[8], loop=j, clip=False)
          in: …
        """,
    )


def test_compute_two_things():
    def steps(s: Schedule) -> None:
        s.compute_at(s.buffer("t"), s.loop("j"))

    refused(
        TWO,
        steps,
        """
        what computes t computes z as well
          while applying compute_at(buffer=t: f32[4], loop=j, clip=False)
          in: …
        """,
    )


def test_compute_what_is_overwritten():
    def steps(s: Schedule) -> None:
        s.compute_at(s.buffer("t"), s.loop("c"))

    refused(
        OVERWRITTEN,
        steps,
        """
        z is written after it is read
          while applying compute_at(buffer=t: f32[4], loop=c, clip=False)
          in: …
        """,
    )


def test_compute_workers_in_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.parallel(s.loop("j"))
        s.compute_at(s.buffer("t"), s.loop("j"))

    refused(
        STAGES,
        steps,
        """
        then parallel loop i stands in another one
          while applying compute_at(buffer=t: f32[8], loop=j, clip=False)
          in: …
          hint: workers are shared out once; fuse the loops
        """,
    )


def test_cache_what_is_written_twice():
    def steps(s: Schedule) -> None:
        s.cache_write(s.buffer("z"))

    refused(
        OVERWRITTEN,
        steps,
        """
        z is written by 2 statements, not by one
          while applying cache_write(buffer=z: f32[4], memory=dram)
          in: …
        """,
    )


def test_split_an_initialisation_that_is_repeated():
    def steps(s: Schedule) -> None:
        s.split_init(s.buffer("y"))

    refused(
        REUSED,
        steps,
        """
        the order matters: write after write: accumulation of y[i], then write of y[i],
          for example at i=0, j=0, r=0 and at i=0, j=3
          while applying split_init(buffer=y: f32[3])
          in: …
        """,
    )


def test_split_no_initialisation():
    def steps(s: Schedule) -> None:
        s.split_init(s.buffer("t"))

    refused(
        STAGES,
        steps,
        """
        no loop nest begins its body with a store to t
          while applying split_init(buffer=t: f32[8])
          in: …
        """,
    )
