"""Primitives on whole stages, as texts: inline, compute_at, cache_write, split_init."""

from schedule_cases import refused, rewritten

from tilewright.schedule.schedule import Schedule

STAGES = """
def k(x: f32[8], y: out(f32[7])):
    t = alloc(f32[8])
    for i in range(8):
        t[i] = x[i] + f32(1.0)
    for j in range(7):
        y[j] = t[j] * t[j + 1]
"""
SOFT = """
def k(x: f32[4, 8], y: out(f32[4, 8])):
    m = alloc(f32[4])
    for i in range(4):
        m[i] = f32(-inf)
        for r in range(8):
            accumulate(max, m[i], x[i, r])
    for a in range(4):
        for b in range(8):
            y[a, b] = x[a, b] - m[a]
"""
GATHER = """
def k(x: f32[8], n: i64[4], y: out(f32[4])):
    t = alloc(f32[8])
    for i in range(8):
        t[i] = x[i] + f32(1.0)
    for j in range(4):
        y[j] = t[n[j] % 8]
"""
SUM = """
def k(x: f32[4, 8], y: out(f32[4])):
    for i in range(4):
        y[i] = f32(0.0)
        for r in range(8):
            y[i] += x[i, r]
"""
MATMUL = """
def k(a: f32[4, 6], b: f32[6, 5], c: out(f32[4, 5])):
    for i in range(4):
        for j in range(5):
            c[i, j] = f32(0.0)
            for p in range(6):
                c[i, j] += a[i, p] * b[p, j]
"""
SCAN = """
def k(x: f32[4], y: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        t[i] = select(0 < i, t[i - 1], f32(0.0)) + x[i]
    for j in range(4):
        y[j] = t[j]
"""
OVERWRITTEN = """
def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        z[i] = x[i]
    for a in range(4):
        t[a] = z[a]
    for b in range(4):
        z[b] = x[3 - b]
    for c in range(4):
        y[c] = t[c]
"""
TWO = """
def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        t[i] = x[i]
        z[i] = x[i]
    for j in range(4):
        y[j] = t[j]
"""
REUSED = """
def k(x: f32[3, 4, 5], y: out(f32[3]), z: out(f32[3, 4])):
    for i in range(3):
        for j in range(4):
            y[i] = f32(0.0)
            for r in range(5):
                y[i] += x[i, j, r]
            z[i, j] = y[i]
"""


# ---------------------------------------------------------------- rewritten


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
                if (n[j] % 8 >= 0) & (n[j] % 8 < 8):
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


# ---------------------------------------------------------------- refused


def test_refused_inline_a_parameter():
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


def test_refused_inline_what_is_gone():
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


def test_refused_inline_a_reduction():
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


def test_refused_inline_a_scan():
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


def test_refused_inline_what_is_overwritten():
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


def test_refused_compute_before():
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


def test_refused_compute_an_output():
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


def test_refused_compute_for_one_reader_of_two():
    def steps(s: Schedule) -> None:
        m = s.buffer("m")
        a, rest = s.loop("a"), s.peel(s.loop("a"), 1)
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


def test_refused_compute_in_lanes():
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


def test_refused_compute_two_things():
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


def test_refused_compute_what_is_overwritten():
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


def test_refused_compute_workers_in_workers():
    def steps(s: Schedule) -> None:
        s.parallel(s.loop("i"))
        s.parallel(s.loop("j"))
        s.compute_at(s.buffer("t"), s.loop("j"))

    refused(
        STAGES,
        steps,
        """
        parallel loop i would stand in j
          while applying compute_at(buffer=t: f32[8], loop=j)
          in: def k(x: f32[8], y: out(f32[7])):
                  t = alloc(f32[8])
                  for i in parallel(8):
                      t[i] = x[i] + f32(1.0)
                  for j in parallel(7):
                      y[j] = t[j] * t[j + 1]
        """,
    )


def test_refused_cache_what_is_written_twice():
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


def test_refused_split_an_initialisation_that_is_repeated():
    def steps(s: Schedule) -> None:
        s.split_init(s.buffer("y"))

    refused(
        REUSED,
        steps,
        """
        the order matters: write after write: accumulation of y[i], then write of y[i], for example at i=0, j=0, r=0 and at i=0, j=3
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


def test_refused_split_no_initialisation():
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
