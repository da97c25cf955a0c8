"""Matrix multiplication written as a kernel, and scheduled by hand.

    python examples/kernels/gemm.py            1024 x 1024 x 1024, on one core
    python examples/kernels/gemm.py 2048 2     another size, on two cores

The schedule is the classic one (Goto and van de Geijn, TOMS 2008): a tile of C stays in registers
while K is walked once; the columns of B that a tile needs are packed side by side, so that every
read is of the next vector. What it keeps where is said step by step; `s.check()` runs it against
the loops it began with.
"""

import sys
import time

import numpy as np

import tilewright as tw
from tilewright import dims, f32, grid, reduce
from tilewright.ir.graph import Layout
from tilewright.targets import cpu

M, N, K = dims("M N K")
ROWS, BLOCK = 4, 128  # rows of a register tile; rows that share what of B is in the cache


@tw.kernel
def gemm(A: f32[M, K], B: f32[K, N], C: f32[M, N]):
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in reduce(K):
            C[i, j] += A[i, k] * B[k, j]


def schedule(program, target):
    """The program in register tiles of ROWS x (4 vectors). M must be a multiple of BLOCK."""
    lanes = target.vector.lanes(f32)
    columns = lanes * (4 if target.vector.registers >= 32 else 2)
    s = tw.Schedule(program)

    # C is computed tile by tile in registers, and copied out.
    tile = s.cache_write(s.buffer("C"), "register")
    i, j = s.loop("i_c"), s.loop("j_c")
    block, i = s.split(i, BLOCK)
    row, i = s.split(i, ROWS)
    column, j = s.split(j, columns)
    whole, block = s.split(block, s.for_(block).extent)  # one iteration: all of B is packed in it
    s.reorder(whole, block, column, row, i, j)
    tile = s.compute_at(tile, row)

    # B lies in panels as wide as a tile, each row of a panel behind the one before.
    packed = s.cache_read(s.buffer("B"), whole)
    s.pack_layout(packed, Layout((1, 0), ((1, columns),)))
    _, inside = s.split(s.loop("B_local_1"), columns)
    vectors(s, inside, lanes)

    # K outside, the tile's rows and vectors inside, written out.
    s.split_init(tile)
    s.reorder(s.loop("k"), s.loop("i"), s.loop("j"))
    for rows, lane in (("i_init", "j_init"), ("i", "j"), (i, j)):
        s.unroll(s.loop(str(rows)))
        vectors(s, s.loop(str(lane)), lanes)
    if target.cores > 1:
        s.parallel(s.loop("B_local_0"))
        s.parallel(block)
    return s


def vectors(s, loop, lanes):
    """A loop as copies of vectors."""
    outer, inner = s.split(loop, lanes)
    s.unroll(outer)
    s.vectorize(inner)


def measure(f, n):
    """Seconds of the fastest of some calls, which are checked."""
    rng = np.random.default_rng(0)
    a, b = rng.random((2, n, n), np.float32)
    c = np.empty((n, n), np.float32)
    np.testing.assert_allclose(f(a, b, c), a @ b, rtol=1e-4)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        f(a, b, c)
        times.append(time.perf_counter() - start)
    return min(times)


def main(n=1024, cores=1):
    target = cpu.host(threads=cores)
    s = schedule(gemm.bind(M=n, N=n, K=n), target)
    print(s.show(), end="\n\n")
    seconds = measure(s.build(target), n)
    peak = 2 * target.peak(f32)
    rate = 2 * n**3 / seconds
    print(f"{seconds * 1e3:.2f} ms, {rate / 1e9:.1f} GFLOP/s: {rate / peak:.0%} of the peak")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
