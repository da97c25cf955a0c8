"""A convolution, and 15 primitives that tile it."""

from __future__ import annotations

from tilewright.schedule.schedule import Schedule

CONV = """
def conv(x: f32[1, 16, 28, 28], w: f32[16, 16, 3, 3], y: out(f32[1, 16, 28, 28])):
    p = alloc(f32[1, 16, 30, 30])
    for pn in range(1):
        for pc in range(16):
            for ph in range(30):
                for pw in range(30):
                    p[pn, pc, ph, pw] = select(
                        (1 <= ph) & (ph < 29) & (1 <= pw) & (pw < 29),
                        x[pn, pc, ph - 1, pw - 1], f32(0.0))
    c = alloc(f32[1, 16, 28, 28])
    for n in range(1):
        for o in range(16):
            for h in range(28):
                for v in range(28):
                    c[n, o, h, v] = f32(0.0)
                    for i in range(16):
                        for r in range(3):
                            for q in range(3):
                                c[n, o, h, v] += p[n, i, h + r, v + q] * w[o, i, r, q]
    for m in range(1):
        for a in range(16):
            for b in range(28):
                for d in range(28):
                    y[m, a, b, d] = max(c[m, a, b, d], f32(0.0))
"""


def convolution(s: Schedule) -> Schedule:
    """A convolution in tiles: 15 primitives."""
    a_o, a_i = s.split(s.loop("a"), 8)
    b_o, b_i = s.split(s.loop("b"), 4)
    d_o, d_i = s.split(s.loop("d"), 14)
    s.reorder(a_o, b_o, d_o, a_i, b_i, d_i)
    c = s.compute_at(s.buffer("c"), d_o)
    s.compute_at(s.buffer("p"), b_o)
    s.split_init(c)
    i_o, i_i = s.split(s.loop("i"), 8)
    s.reorder(i_o, s.loop("r"), s.loop("q"), i_i, s.loop("o"), s.loop("h"), s.loop("v"))
    s.cache_read(s.buffer("w"), i_o)
    s.set_memory(c, "register")
    s.vectorize(s.loop("v"))
    s.unroll(s.loop("h"))
    s.vectorize(d_i)
    s.parallel(a_o)
    return s
