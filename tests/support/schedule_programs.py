"""Short programs to apply primitives to."""

ROWS = """
def k(x: f32[10], y: out(f32[10])):
    for i in range(10):
        y[i] = x[i] * f32(2.0)
"""
EVEN = """
def k(x: f32[12], y: out(f32[12])):
    for i in range(12):
        y[i] = x[i]
"""
LONG = """
def k(x: f32[n], y: out(f32[n])):
    n = symbol(1)
    for i in range(n):
        y[i] = x[i]
"""
MATRIX = """
def k(x: f32[4, 6], y: out(f32[4, 6])):
    for i in range(4):
        for j in range(6):
            y[i, j] = x[i, j]
"""
SUM = """
def k(x: f32[4, 8], y: out(f32[4])):
    for i in range(4):
        y[i] = f32(0.0)
        for r in range(8):
            y[i] += x[i, r]
"""
STENCIL = """
def k(x: f32[4], y: out(f32[4, 5])):
    for s in range(4):
        y[s, 0] = x[s]
    for t in range(3):
        for i in range(4):
            y[i, t + 1] = y[(i + 1) % 4, t]
"""
CARRIED = """
def k(x: f32[8], y: out(f32[9])):
    y[0] = f32(1.0)
    for i in range(8):
        y[i + 1] = y[i] + x[i]
"""
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
TWO = """
def k(x: f32[4], y: out(f32[4]), z: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        t[i] = x[i]
        z[i] = x[i]
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
GATHER = """
def k(x: f32[8], n: i64[4], y: out(f32[4])):
    t = alloc(f32[8])
    for i in range(8):
        t[i] = x[i] + f32(1.0)
    for j in range(4):
        y[j] = t[n[j] % 8]
"""
SCAN = """
def k(x: f32[4], y: out(f32[4])):
    t = alloc(f32[4])
    for i in range(4):
        t[i] = select(0 < i, t[i - 1], f32(0.0)) + x[i]
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
LOCAL = """
def k(x: f32[4, 8], y: out(f32[4, 8])):
    for i in range(4):
        t = alloc(f32[8])
        for a in range(8):
            t[a] = x[i, a]
        for b in range(8):
            y[i, b] = t[7 - b]
"""
MATMUL = """
def k(a: f32[4, 6], b: f32[6, 5], c: out(f32[4, 5])):
    for i in range(4):
        for j in range(5):
            c[i, j] = f32(0.0)
            for p in range(6):
                c[i, j] += a[i, p] * b[p, j]
"""
TILES = """
def k(x: f32[8, 8], y: out(f32[8])):
    for o in range(4):
        for q in range(2):
            y[o * 2 + q] = x[o * 2 + q, 0] + x[o * 2 + q, 1]
"""
