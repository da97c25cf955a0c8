"""Padding loops and buffers: programs before and after, and what is refused."""

from schedule_cases import refused, rewritten
from schedule_programs import EVEN, LONG, MATRIX, ROWS, STAGES, SUM

from tilewright.base.dtype import f32
from tilewright.ir.expr import BinaryOp, Buffer, Var
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.loop import Accumulate, For
from tilewright.schedule.schedule import Schedule

A, B, C = (Buffer(name, f32, (4, 4), "sram") for name in "abc")
I, J, K = (Var(name) for name in "ijk")
STEPS = tuple(Field(Var(f"by_{name}"), 0, 64) for name in "abc")
UPDATE = Accumulate(C, (I, J), BinaryOp.ADD, A[I, K] * B[K, J])
GEMM = Instruction(
    "gemm",
    (A, B, C),
    STEPS,
    (For(I, 4, (For(J, 4, (For(K, 4, (UPDATE,)),)),)),),
    strides=(("a", 0, "by_a"), ("b", 0, "by_b"), ("c", 0, "by_c")),
)


PRODUCT = """
def k(a: f32[3, 3], b: f32[3, 6], c: out(f32[3, 6])):
    p = alloc(f32[3, 3] @ "sram")
    for d in range(3):
        for e in range(3):
            p[d, e] = a[d, e]
    q = alloc(f32[3, 6] @ "sram")
    for f in range(3):
        for g in range(6):
            q[f, g] = b[f, g]
    s = alloc(f32[3, 6] @ "sram")
    for i in range(3):
        for j in range(6):
            s[i, j] = f32(0.0)
            for r in range(3):
                s[i, j] += p[i, r] * q[r, j]
    for u in range(3):
        for v in range(6):
            c[u, v] = s[u, v]
"""
GREATEST = """
def k(x: f32[4, 7], y: out(f32[4])):
    for i in range(4):
        t = alloc(f32[7])
        for a in range(7):
            t[a] = x[i, a]
        y[i] = f32(-inf)
        for r in range(7):
            accumulate(max, y[i], t[r])
"""
KEPT = """
def k(x: f32[10], y: out(f32[10])):
    t = alloc(f32[16])
    for a in range(16):
        t[a] = f32(1.0)
    for i in range(10):
        t[i] = x[i]
    for j in range(10):
        y[j] = t[j] + t[j + 5]
"""
TILED = """
def k(x: f32[10], w: f32[4], y: out(f32[3])):
    for o in range(3):
        t = alloc(f32[4])
        for a in range(4):
            if o * 4 + a < 10:
                t[a] = x[o * 4 + a]
        y[o] = f32(0.0)
        for r in range(4):
            if o * 4 + r < 10:
                y[o] += t[r]
"""
TILE_MAP = """
def k(x: f32[10], y: out(f32[10])):
    for o in range(3):
        t = alloc(f32[4])
        for a in range(4):
            if o * 4 + a < 10:
                t[a] = x[o * 4 + a]
        u = alloc(f32[4])
        for i in range(4):
            u[i] = select(o * 4 + i < 10, t[i], f32(0.0)) * f32(2.0)
        for b in range(4):
            if o * 4 + b < 10:
                y[o * 4 + b] = u[b]
"""
PARTS = """
def k(x: f32[n], y: out(f32[1])):
    n = symbol(1)
    y[0] = f32(0.0)
    for i in range((n + 3) // 4):
        for v in range(4):
            if (n + 3) // 4 * v + i < n:
                y[0] += x[(n + 3) // 4 * v + i]
"""
INDIRECT = """
def k(x: f32[8], n: i64[6], y: out(f32[6])):
    t = alloc(f32[6])
    for i in range(6):
        t[i] = x[n[i] % 8]
    for j in range(6):
        y[j] = t[j]
"""


def test_pad_a_product():
    def steps(s: Schedule) -> None:
        for loop in "ijr":
            s.pad(s.loop(loop), 4)

    rewritten(
        PRODUCT,
        steps,
        """
        def k(a: f32[3, 3], b: f32[3, 6], c: out(f32[3, 6])):
            p = alloc(f32[4, 4] @ "sram")
            for d in range(4):
                for e in range(4):
                    p[d, e] = select((e < 3) & (d < 3), a[d, e], f32(0.0))
            q = alloc(f32[4, 8] @ "sram")
            for f in range(4):
                for g in range(8):
                    q[f, g] = select((f < 3) & (g < 6), b[f, g], f32(0.0))
            s = alloc(f32[4, 8] @ "sram")
            for i in range(4):
                for j in range(8):
                    s[i, j] = f32(0.0)
                    for r in range(4):
                        s[i, j] += p[i, r] * q[r, j]
            for u in range(3):
                for v in range(6):
                    c[u, v] = s[u, v]
        """,
    )


def test_pad_under_a_condition_that_is_not_affine():
    """Blocks of n in four parts, whose length is not known."""
    rewritten(
        PARTS,
        lambda s: s.pad(s.loop("v"), 3),
        """
        def k(x: f32[n], y: out(f32[1])):
            n = symbol(1)
            y[0] = f32(0.0)
            for i in range((n + 3) // 4):
                for v in range(6):
                    y[0] += select((v < 4) & ((n + 3) // 4 * v + i < n), \
x[(n + 3) // 4 * v + i], f32(0.0))
        """,
    )


def test_tensorize_a_padded_product():
    def steps(s: Schedule) -> None:
        for loop in "ijr":
            s.pad(s.loop(loop), 4)
        s.split_init(s.buffer("s"))
        outer, inner = s.split(s.loop("j"), 4)
        s.reorder(outer, s.loop("i"), inner, s.loop("r"))
        s.tensorize(s.loop("i"), GEMM)

    rewritten(
        PRODUCT,
        steps,
        """
        def k(a: f32[3, 3], b: f32[3, 6], c: out(f32[3, 6])):
            p = alloc(f32[4, 4] @ "sram")
            for d in range(4):
                for e in range(4):
                    p[d, e] = select((e < 3) & (d < 3), a[d, e], f32(0.0))
            q = alloc(f32[4, 8] @ "sram")
            for f in range(4):
                for g in range(8):
                    q[f, g] = select((f < 3) & (g < 6), b[f, g], f32(0.0))
            s = alloc(f32[4, 8] @ "sram")
            for i_init in range(4):
                for j_init in range(8):
                    s[i_init, j_init] = f32(0.0)
            for j_o in range(2):
                gemm(p[_0, _1], q[_0, j_o * 4 + _1], s[_0, j_o * 4 + _1], by_a=4, by_b=8, by_c=8)
            for u in range(3):
                for v in range(6):
                    c[u, v] = s[u, v]
        """,
    )


def test_pad_a_reduction():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("r"), 3)

    rewritten(
        SUM,
        steps,
        """
        def k(x: f32[4, 8], y: out(f32[4])):
            for i in range(4):
                y[i] = f32(0.0)
                for r in range(9):
                    y[i] += select(r < 8, x[i, r], f32(0.0))
        """,
    )


def test_pad_with_what_is_neutral():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("r"), 4)

    rewritten(
        GREATEST,
        steps,
        """
        def k(x: f32[4, 7], y: out(f32[4])):
            for i in range(4):
                t = alloc(f32[8])
                for a in range(8):
                    t[a] = select(a < 7, x[i, a], f32(-inf))
                y[i] = f32(-inf)
                for r in range(8):
                    accumulate(max, y[i], t[r])
        """,
    )


def test_pad_a_tile():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("r"), 4)

    rewritten(
        TILED,
        steps,
        """
        def k(x: f32[10], w: f32[4], y: out(f32[3])):
            for o in range(3):
                t = alloc(f32[4])
                for a in range(4):
                    t[a] = select(o * 4 + a < 10, x[o * 4 + a], f32(0.0))
                y[o] = f32(0.0)
                for r in range(4):
                    y[o] += t[r]
        """,
    )


def test_pad_a_tile_with_guarded_reads():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 4)

    rewritten(
        TILE_MAP,
        steps,
        """
        def k(x: f32[10], y: out(f32[10])):
            for o in range(3):
                t = alloc(f32[4])
                for a in range(4):
                    t[a] = select(o * 4 + a < 10, x[o * 4 + a], f32(0.0))
                u = alloc(f32[4])
                for i in range(4):
                    u[i] = t[i] * f32(2.0)
                for b in range(4):
                    if o * 4 + b < 10:
                        y[o * 4 + b] = u[b]
        """,
    )


def test_pad_a_local_map():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 3)

    rewritten(
        STAGES,
        steps,
        """
        def k(x: f32[8], y: out(f32[7])):
            t = alloc(f32[9])
            for i in range(9):
                t[i] = select(i < 8, x[i], f32(0.0)) + f32(1.0)
            for j in range(7):
                y[j] = t[j] * t[j + 1]
        """,
    )


def test_pad_a_gather():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 4)

    rewritten(
        INDIRECT,
        steps,
        """
        def k(x: f32[8], n: i64[6], y: out(f32[6])):
            t = alloc(f32[8])
            for i in range(8):
                t[i] = select(i < 6, x[n[i] % 8], f32(0.0))
            for j in range(6):
                y[j] = t[j]
        """,
    )


def test_pad_nothing():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 4)

    rewritten(
        EVEN,
        steps,
        """
        def k(x: f32[12], y: out(f32[12])):
            for i in range(12):
                y[i] = x[i]
        """,
    )


def test_pad_a_buffer():
    def steps(s: Schedule) -> None:
        s.pad_buffer(s.buffer("t"), 0, 6)

    rewritten(
        STAGES,
        steps,
        """
        def k(x: f32[8], y: out(f32[7])):
            t = alloc(f32[12])
            for i in range(8):
                t[i] = x[i] + f32(1.0)
            for j in range(7):
                y[j] = t[j] * t[j + 1]
        """,
    )


def test_pad_an_output():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 4)

    refused(
        ROWS,
        steps,
        """
        y has no place for padding: write of y[i]
          while applying pad(loop=i, multiple=4)
          in: …
          hint: use cache_write first
        """,
    )


def test_pad_what_others_use():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 4)

    refused(
        KEPT,
        steps,
        """
        what i would store in added iterations counts: read after write: write of t[i],
          then read of t[j + 5], for example at i=10 and at j=5
          while applying pad(loop=i, multiple=4)
          in: …
        """,
    )


def test_pad_what_others_only_store():
    """Sums of added iterations may be anything, where nobody reads what was stored before them."""
    rewritten(
        """
        def k(x: f32[10], w: f32[4, 10], y: out(f32[10])):
            t = alloc(f32[12])
            for a in range(12):
                t[a] = f32(0.0)
            for r in range(4):
                for i in range(10):
                    t[i] += x[r] * w[r, i]
            for j in range(10):
                y[j] = t[j]
        """,
        lambda s: s.pad(s.loop("i"), 4),
        """
        def k(x: f32[10], w: f32[4, 10], y: out(f32[10])):
            t = alloc(f32[12])
            for a in range(12):
                t[a] = f32(0.0)
            for r in range(4):
                for i in range(12):
                    t[i] += x[r] * select(i < 10, w[r, i], f32(0.0))
            for j in range(10):
                y[j] = t[j]
        """,
    )


def test_pad_an_unknown_extent():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 4)

    refused(
        LONG,
        steps,
        """
        i runs n times, which is not a constant
          while applying pad(loop=i, multiple=4)
          in: …
        """,
    )


def test_pad_to_none():
    def steps(s: Schedule) -> None:
        s.pad(s.loop("i"), 0)

    refused(
        ROWS,
        steps,
        """
        the multiple must be at least 1, not 0
          while applying pad(loop=i, multiple=0)
          in: …
        """,
    )


def test_pad_around_lanes():
    def steps(s: Schedule) -> None:
        s.vectorize(s.loop("j"))
        s.pad(s.loop("i"), 3)

    refused(
        MATRIX,
        steps,
        """
        j is a loop of kind vectorize already
          while applying pad(loop=i, multiple=3)
          in: …
          hint: pad first
        """,
    )


def test_pad_around_an_instruction():
    def steps(s: Schedule) -> None:
        for loop in "ijr":
            s.pad(s.loop(loop), 4)
        s.split_init(s.buffer("s"))
        outer, inner = s.split(s.loop("j"), 4)
        s.reorder(outer, s.loop("i"), inner, s.loop("r"))
        s.tensorize(s.loop("i"), GEMM)
        s.pad(outer, 3)

    refused(
        PRODUCT,
        steps,
        """
        j_o contains instructions
          while applying pad(loop=j_o, multiple=3)
          in: …
          hint: pad before tensorize
        """,
    )


def test_pad_the_buffer_of_an_instruction():
    def steps(s: Schedule) -> None:
        for loop in "ijr":
            s.pad(s.loop(loop), 4)
        s.split_init(s.buffer("s"))
        outer, inner = s.split(s.loop("j"), 4)
        s.reorder(outer, s.loop("i"), inner, s.loop("r"))
        s.tensorize(s.loop("i"), GEMM)
        s.pad_buffer(s.buffer("s"), 1, 3)

    refused(
        PRODUCT,
        steps,
        """
        an instruction works on s
          while applying pad_buffer(buffer=s: f32[4, 8], axis=1, multiple=3)
          in: …
          hint: pad before tensorize
        """,
    )


def test_pad_a_parameter():
    def steps(s: Schedule) -> None:
        s.pad_buffer(s.buffer("y"), 0, 3)

    refused(
        ROWS,
        steps,
        """
        y is a parameter of the kernel
          while applying pad_buffer(buffer=y: f32[10], axis=0, multiple=3)
          in: …
          hint: use cache_read or cache_write
        """,
    )


def test_pad_an_axis_that_is_not_there():
    def steps(s: Schedule) -> None:
        s.pad_buffer(s.buffer("t"), 1, 3)

    refused(
        STAGES,
        steps,
        """
        t has no axis 1
          while applying pad_buffer(buffer=t: f32[8], axis=1, multiple=3)
          in: …
        """,
    )


def test_pad_a_buffer_to_none():
    def steps(s: Schedule) -> None:
        s.pad_buffer(s.buffer("t"), 0, 0)

    refused(
        STAGES,
        steps,
        """
        the multiple must be at least 1, not 0
          while applying pad_buffer(buffer=t: f32[8], axis=0, multiple=0)
          in: …
        """,
    )
