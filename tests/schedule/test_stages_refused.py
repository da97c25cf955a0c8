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
          in: def k(x: f32[8], y: out(f32[7])):
                  t = alloc(f32[8])
                  for i in range(8):
                      t[i] = x[i] + f32(1.0)
                  for j in range(7):
                      y[j] = t[j] * t[j + 1]
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
          in: def k(x: f32[8], y: out(f32[7])):
                  for j in range(7):
                      y[j] = (x[j] + f32(1.0)) * (x[j + 1] + f32(1.0))
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
          in: def k(x: f32[4, 8], y: out(f32[4, 8])):
                  m = alloc(f32[4])
                  for i in range(4):
                      m[i] = f32(-inf)
                      for r in range(8):
                          accumulate(max, m[i], x[i, r])
                  for a in range(4):
                      for b in range(8):
                          y[a, b] = x[a, b] - m[a]
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
          in: def k(x: f32[4], y: out(f32[4])):
                  t = alloc(f32[4])
                  for i in range(4):
                      t[i] = select(0 < i, t[i - 1], f32(0.0)) + x[i]
                  for j in range(4):
                      y[j] = t[j]
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
          in: def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
                  t = alloc(f32[4])
                  for i in range(4):
                      z[i] = x[i]
                  for a in range(4):
                      t[a] = z[a]
                  for b in range(4):
                      z[b] = x[3 - b]
                  for c in range(4):
                      y[c] = t[c]
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
          while applying compute_at(buffer=t: f32[8], loop=i)
          in: def k(x: f32[8], y: out(f32[7])):
                  t = alloc(f32[8])
                  for i in range(8):
                      t[i] = x[i] + f32(1.0)
                  for j in range(7):
                      y[j] = t[j] * t[j + 1]
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
          while applying compute_at(buffer=y: f32[7], loop=j)
          in: def k(x: f32[8], y: out(f32[7])):
                  t = alloc(f32[8])
                  for i in range(8):
                      t[i] = x[i] + f32(1.0)
                  for j in range(7):
                      y[j] = t[j] * t[j + 1]
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
          while applying compute_at(buffer=m: f32[4], loop=a_p)
          in: def k(x: f32[4, 8], y: out(f32[4, 8])):
                  m = alloc(f32[4])
                  for i in range(4):
                      m[i] = f32(-inf)
                      for r in range(8):
                          accumulate(max, m[i], x[i, r])
                  for a_p in range(1):
                      for b_1 in range(8):
                          y[0, b_1] = x[0, b_1] - m[0]
                  for a in range(3):
                      for b in range(8):
                          y[a + 1, b] = x[a + 1, b] - m[a + 1]
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
          while applying compute_at(buffer=t: f32[8], loop=j)
          in: def k(x: f32[8], y: out(f32[7])):
                  t = alloc(f32[8])
                  for i in range(8):
                      t[i] = x[i] + f32(1.0)
                  for j in vectorize(7):
                      y[j] = t[j] * t[j + 1]
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
          while applying compute_at(buffer=t: f32[4], loop=j)
          in: def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
                  t = alloc(f32[4])
                  for i in range(4):
                      t[i] = x[i]
                      z[i] = x[i]
                  for j in range(4):
                      y[j] = t[j]
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
          while applying compute_at(buffer=t: f32[4], loop=c)
          in: def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
                  t = alloc(f32[4])
                  for i in range(4):
                      z[i] = x[i]
                  for a in range(4):
                      t[a] = z[a]
                  for b in range(4):
                      z[b] = x[3 - b]
                  for c in range(4):
                      y[c] = t[c]
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
          while applying compute_at(buffer=t: f32[8], loop=j)
          in: def k(x: f32[8], y: out(f32[7])):
                  t = alloc(f32[8])
                  for i in parallel(8):
                      t[i] = x[i] + f32(1.0)
                  for j in parallel(7):
                      y[j] = t[j] * t[j + 1]
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
          in: def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
                  t = alloc(f32[4])
                  for i in range(4):
                      z[i] = x[i]
                  for a in range(4):
                      t[a] = z[a]
                  for b in range(4):
                      z[b] = x[3 - b]
                  for c in range(4):
                      y[c] = t[c]
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
          in: def k(x: f32[3, 4, 5], y: out(f32[3]), z: out(f32[3, 4])):
                  for i in range(3):
                      for j in range(4):
                          y[i] = f32(0.0)
                          for r in range(5):
                              y[i] += x[i, j, r]
                          z[i, j] = y[i]
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
          in: def k(x: f32[8], y: out(f32[7])):
                  t = alloc(f32[8])
                  for i in range(8):
                      t[i] = x[i] + f32(1.0)
                  for j in range(7):
                      y[j] = t[j] * t[j + 1]
        """,
    )
