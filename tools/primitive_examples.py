"""An example of each schedule primitive, for docs/primitives.md: a program, and lines of Python."""

from __future__ import annotations

VECTOR = """
def scale(x: f32[10], y: out(f32[10])):
    for i in range(10):
        y[i] = x[i] * f32(2.0)
"""
MATRIX = """
def copy(x: f32[4, 6], y: out(f32[4, 6])):
    for i in range(4):
        for j in range(6):
            y[i, j] = x[i, j]
"""
TABLE = """
def scale(x: f32[8, 128], y: out(f32[8, 128])):
    for i in range(8):
        for j in range(4):
            for k in range(32):
                y[i, j * 32 + k] = x[i, j * 32 + k] * f32(2.0)
"""
SUM = """
def sums(x: f32[4, 8], y: out(f32[4])):
    for i in range(4):
        y[i] = f32(0.0)
        for r in range(8):
            y[i] += x[i, r]
"""
PADDED = """
def padded(x: f32[7], w: finite(f32[3]), y: out(f32[7])):
    p = alloc(f32[9])
    for h in range(9):
        p[h] = select((1 <= h) & (h < 8), x[h - 1], f32(0.0))
    for i in range(7):
        y[i] = f32(0.0)
        for k in range(3):
            y[i] += p[i + k] * w[k]
"""
STAGES = """
def pairs(x: f32[8], y: out(f32[7])):
    t = alloc(f32[8])
    for i in range(8):
        t[i] = x[i] + f32(1.0)
    for j in range(7):
        y[j] = t[j] * t[j + 1]
"""
BOTH = """
def both(x: f32[4, 8], y: out(f32[4, 8])):
    t = alloc(f32[4, 8])
    for i in range(4):
        for j in range(8):
            t[i, j] = x[i, j] + f32(1.0)
    for a in range(4):
        for b in range(8):
            y[a, b] = t[a, b] * t[a, b]
"""
TILES = """
def tiles(x: f32[4, 8], y: out(f32[4, 8])):
    for i in range(4):
        t = alloc(f32[8])
        for a in range(8):
            t[a] = x[i, a]
        for b in range(8):
            y[i, b] = t[7 - b]
"""
WINDOW = """
def window(x: f32[10], y: out(f32[8])):
    for i in range(8):
        t = alloc(f32[3])
        for a in range(3):
            t[a] = x[i + a] * f32(2.0)
        y[i] = t[0] + t[1] + t[2]
"""
CHAIN = """
def chain(x: f32[8], y: out(f32[8])):
    t = alloc(f32[8])
    u = alloc(f32[8])
    for i in range(8):
        t[i] = x[i] * f32(2.0)
    for j in range(8):
        u[j] = t[j] + f32(1.0)
    for k in range(8):
        y[k] = u[7 - k]
"""
RELU = """
def relu(x: f32[8], b: f32[8], y: out(f32[8])):
    for i in range(8):
        y[i] = max(x[i] + b[i], f32(0.0))
"""
SQUARES = """
def squares(x: f32[10], y: out(f32[1])):
    p = alloc(f32[10])
    for a in range(10):
        p[a] = x[a] + f32(1.0)
    y[0] = f32(0.0)
    for i in range(10):
        y[0] += p[i] * p[i]
"""
ROWS = """
def rows(x: i8[32, 16], y: out(i8[32, 16])):
    t = alloc(i8[32, 16] @ "spad")
    for i in range(32):
        for j in range(16):
            t[i, j] = x[i, j]
    for a in range(32):
        for b in range(16):
            y[a, b] = t[a, b]
"""

TABLES = """
def scaled(x: f32[4, 8], w: f32[8], y: out(f32[4, 8])):
    for i in range(4):
        t = alloc(f32[8])
        for j in range(8):
            t[j] = w[j] * w[j]
        for k in range(8):
            y[i, k] = x[i, k] * t[k]
"""
BIASED = """
def biased(x: i32[4, 8], b: i32[4], y: out(i32[4])):
    t = alloc(i32[4])
    for i in range(4):
        t[i] = i32(0)
        for r in range(8):
            t[i] += x[i, r]
    for j in range(4):
        y[j] = max(t[j] + b[j], i32(0))
"""
# What each shows, in the order of the page; a step may use `target` (the tiny accelerator).
EXAMPLES: dict[str, tuple[str, str]] = {
    "split": (VECTOR, 'outer, inner = s.split(s.loop("i"), 4, Tail.CUT)'),
    "fuse": (MATRIX, 's.fuse(s.loop("i"), s.loop("j"))'),
    "reorder": (MATRIX, 's.reorder(s.loop("j"), s.loop("i"))'),
    "unroll": (MATRIX, 's.unroll(s.loop("i"))'),
    "vectorize": (MATRIX, 's.vectorize(s.loop("j"))'),
    "parallel": (MATRIX, 's.parallel(s.loop("i"))'),
    "bind": (MATRIX, 's.bind(s.loop("i"), "core")'),
    "inline": (STAGES, 's.inline(s.buffer("t"))'),
    "compute_at": (STAGES, 's.compute_at(s.buffer("t"), s.loop("j"))'),
    "reverse_compute_at": (BOTH, 's.reverse_compute_at(s.buffer("t"), s.loop("i"))'),
    "cache_write": (SUM, 's.cache_write(s.buffer("y"), "register")'),
    "split_init": (SUM, 's.split_init(s.buffer("y"))'),
    "cache_read": (SUM, 's.cache_read(s.buffer("x"), s.loop("i"))'),
    "rfactor": (
        SUM,
        'outer, inner = s.split(s.loop("r"), 4)\ns.rfactor(s.buffer("y"), inner)',
    ),
    "peel": (VECTOR, 's.peel(s.loop("i"), 2)'),
    "fold_init": (SUM, 's.fold_init(s.buffer("y"), s.loop("r"))'),
    "sink": (SUM, 's.sink(s.loop("i"), s.loop("r"))'),
    "hoist": (TABLES, 's.hoist(s.buffer("t"), s.loop("i"))'),
    "multi_buffer": (TILES, 's.multi_buffer(s.buffer("t"), [s.loop("i")], 2)'),
    "pipeline": (TILES, 's.pipeline(s.loop("i"), (0, 1))'),
    "ring_buffer": (WINDOW, 's.ring_buffer(s.buffer("t"), s.loop("i"))'),
    "vthread": (TILES, 's.vthread(s.loop("i"), 2)'),
    "tensorize": (
        ROWS,
        's.tensorize(s.loop("i"), next(x for x in target.instructions if x.name == "mvin"))',
    ),
    "pack_layout": (MATRIX, 's.pack_layout(s.buffer("y"), Layout((1, 0), ((1, 2),)))'),
    "set_memory": (STAGES, 's.set_memory(s.buffer("t"), "sram")'),
    "prefetch": (TABLE, 's.prefetch(s.buffer("x"), s.loop("i"), s.loop("j"))'),
    "store_nontemporal": (
        TABLE,
        's.vectorize(s.loop("k"))\ns.store_nontemporal(s.buffer("y"))',
    ),
    "split_value": (RELU, 's.split_value(s.loop("i"), (0,))'),
    "init_with": (BIASED, 's.init_with(s.buffer("t"))'),
    "skip_zeros": (PADDED, 's.skip_zeros(s.loop("k"))'),
    "reuse": (CHAIN, 's.reuse(s.buffer("u"), s.buffer("t"))'),
    "pad": (SQUARES, 's.pad(s.loop("i"), 4)'),
    "pad_buffer": (STAGES, 's.pad_buffer(s.buffer("t"), 0, 16)'),
    "annotate": (VECTOR, 's.annotate(s.loop("i"), "note", "hot")'),
    "keep_whole": (VECTOR, 's.keep_whole(s.loop("i"))'),
}
