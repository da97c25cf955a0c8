"""hoist and init_with: programs before and after, and what is refused."""

from schedule_cases import refused, rewritten

from tilewright.schedule.schedule import Schedule

SCALED = """
def k(x: f32[4, 8], w: f32[8], y: out(f32[4, 8])):
    for i in range(4):
        t = alloc(f32[8])
        for j in range(8):
            t[j] = w[j] * w[j]
        u = alloc(f32[8])
        for j_1 in range(8):
            u[j_1] = x[i, j_1] * t[j_1]
        for k in range(8):
            y[i, k] = u[k]
"""
CHANGED = """
def k(w: out(f32[8]), y: out(f32[4, 8])):
    for i in range(4):
        t = alloc(f32[8])
        for j in range(8):
            t[j] = w[j] * w[j]
        for k in range(8):
            w[k] = t[k]
            y[i, k] = t[k]
"""
FILLED_TWICE = """
def k(w: f32[8], y: out(f32[4, 8])):
    for i in range(4):
        t = alloc(f32[8])
        for j in range(5):
            t[j] = w[j]
        for j_1 in range(3):
            t[j_1 + 5] = w[j_1 + 5]
        for k in range(8):
            y[i, k] = t[k]
"""
FILLED_AGAIN = """
def k(w: f32[8], y: out(f32[4, 8]), z: out(f32[4, 8])):
    for i in range(4):
        t = alloc(f32[8])
        for j in range(8):
            t[j] = w[j]
        for k in range(8):
            y[i, k] = t[k]
        for j_1 in range(8):
            t[j_1] = w[j_1] * w[j_1]
        for k_1 in range(8):
            z[i, k_1] = t[k_1]
"""
BIASED = """
def k(x: i32[4, 8], b: i32[4], y: out(i32[4])):
    t = alloc(i32[4])
    for i in range(4):
        t[i] = i32(0)
        for r in range(8):
            t[i] += x[i, r]
    for j in range(4):
        y[j] = max(t[j] + b[j], i32(0))
"""


def out_of_i(name: str):
    return lambda s: s.hoist(s.buffer(name), s.loop("i"))


def seeded(s: Schedule) -> None:
    s.init_with(s.buffer("t"))


def test_hoist():
    rewritten(
        SCALED,
        out_of_i("t"),
        """
        def k(x: f32[4, 8], w: f32[8], y: out(f32[4, 8])):
            t = alloc(f32[8])
            for j in range(8):
                t[j] = w[j] * w[j]
            for i in range(4):
                u = alloc(f32[8])
                for j_1 in range(8):
                    u[j_1] = x[i, j_1] * t[j_1]
                for k in range(8):
                    y[i, k] = u[k]
        """,
    )


def test_several_statements_fill_it():
    """What one call does not bring takes several."""
    rewritten(
        FILLED_TWICE,
        out_of_i("t"),
        """
        def k(w: f32[8], y: out(f32[4, 8])):
            t = alloc(f32[8])
            for j in range(5):
                t[j] = w[j]
            for j_1 in range(3):
                t[j_1 + 5] = w[j_1 + 5]
            for i in range(4):
                for k in range(8):
                    y[i, k] = t[k]
        """,
    )


def test_filled_again_behind_what_reads_it():
    refused(
        FILLED_AGAIN,
        out_of_i("t"),
        """
        t is used before it is filled
          while applying hoist(buffer=t: f32[8], loop=i)
          in: …
        """,
    )


def test_another_in_each_iteration():
    refused(
        SCALED,
        out_of_i("u"),
        """
        u is different in each iteration of i
          while applying hoist(buffer=u: f32[8], loop=i)
          in: …
        """,
    )


def test_what_it_reads_changes():
    refused(
        CHANGED,
        out_of_i("t"),
        """
        t is computed of w, which the loop changes
          while applying hoist(buffer=t: f32[8], loop=i)
          in: …
        """,
    )


def test_not_allocated_there():
    refused(
        SCALED,
        lambda s: s.hoist(s.buffer("t"), s.loop("j")),
        """
        j does not allocate t in its body
          while applying hoist(buffer=t: f32[8], loop=j)
          in: …
        """,
    )


def test_init_with():
    rewritten(
        BIASED,
        seeded,
        """
        def k(x: i32[4, 8], b: i32[4], y: out(i32[4])):
            t = alloc(i32[4])
            for i in range(4):
                t[i] = b[i]
                for r in range(8):
                    t[i] += x[i, r]
            for j in range(4):
                y[j] = max(t[j], i32(0))
        """,
    )


def test_init_with_an_axis_of_one():
    """Along which every subscript is 0."""
    rewritten(
        BIASED.replace("t = alloc(i32[4])", "t = alloc(i32[1, 4])").replace("t[", "t[0, "),
        seeded,
        """
        def k(x: i32[4, 8], b: i32[4], y: out(i32[4])):
            t = alloc(i32[1, 4])
            for i in range(4):
                t[0, i] = b[i]
                for r in range(8):
                    t[0, i] += x[i, r]
            for j in range(4):
                y[j] = max(t[0, j], i32(0))
        """,
    )


def test_sums_of_floats():
    refused(
        BIASED.replace("i32", "f32"),
        seeded,
        """
        t is f32: another order of additions rounds otherwise
          while applying init_with(buffer=t: f32[4])
          in: …
        """,
    )


def test_a_sum_that_begins_with_something():
    refused(
        BIASED.replace("t[i] = i32(0)", "t[i] = i32(1)"),
        seeded,
        """
        t begins with i32(1), not with 0
          while applying init_with(buffer=t: i32[4])
          in: …
        """,
    )


def test_a_term_that_is_not_added():
    refused(
        BIASED.replace("t[j] + b[j]", "t[j] * b[j]"),
        seeded,
        """
        t is not read as an operand of one addition alone
          while applying init_with(buffer=t: i32[4])
          in: …
        """,
    )


def test_a_term_that_was_something_else():
    refused(
        BIASED.replace("b: i32[4]", "b: out(i32[4])").replace(
            "    for j in range(4):\n", "    for j in range(4):\n        b[j] = i32(3)\n", 1
        ),
        seeded,
        """
        t is not read by a nest of one store alone
          while applying init_with(buffer=t: i32[4])
          in: …
        """,
    )


def test_padding_begins_with_nothing():
    rewritten(
        BIASED,
        lambda s: (s.pad(s.loop("i"), 3), seeded(s)),
        """
        def k(x: i32[4, 8], b: i32[4], y: out(i32[4])):
            t = alloc(i32[6])
            for i in range(6):
                t[i] = select(i < 4, b[i], i32(0))
                for r in range(8):
                    t[i] += select(i < 4, x[i, r], i32(0))
            for j in range(4):
                y[j] = max(t[j], i32(0))
        """,
    )
