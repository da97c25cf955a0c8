"""Matrix multiplication of bytes: u8 by i8 into i32, with a processor's own dot product.

    python examples/kernels/gemm_int8.py          1024 x 1024 x 1024, on one core

The instruction is declared in targets/cpu.py like any chip's: vpdpbusd multiplies
four bytes of A, the same in all lanes, with four bytes of B in each lane, and adds the four
products to a lane of C. `tensorize` finds it in the loops. (Arm's usdot is the same with four
lanes; this schedule takes whichever the target has.)
"""

import sys
import time

import numpy as np

import tilewright as tw
from tilewright import cast, dims, grid, i8, i32, reduce, u8
from tilewright.base.errors import TargetError
from tilewright.ir.tensor_type import Layout
from tilewright.schedule.primitives.loops import Tail
from tilewright.targets import cpu

M, N, K = dims("M N K")
ROWS, VECTORS = 6, 4  # of a register tile: 24 accumulators of 32 registers, and 4 for B
DEPTH = 4  # bytes that the instruction multiplies for one lane
DOTS = ("vpdpbusd", "usdot")


@tw.kernel
def gemm(A: u8[M, K], B: i8[K, N], C: i32[M, N]):
    for i, j in grid(M, N):
        C[i, j] = 0
        for k in reduce(K):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])


def dot_product(target):
    """The target's instruction that multiplies u8 by i8."""
    for instruction in target.instructions:
        if instruction.name in DOTS:
            return instruction
    raise TargetError(f"{target.name} has no dot product of u8 and i8")


def schedule(program, target):
    """The program in register tiles of ROWS x VECTORS. K must be a multiple of DEPTH."""
    dot = dot_product(target)
    lanes = target.vector.lanes(i32)
    columns = VECTORS * lanes
    s = tw.Schedule(program)

    # C is computed tile by tile in registers, and copied out.
    tile = s.cache_write(s.buffer("C"), "register")
    row, i = s.split(s.loop("i_c"), ROWS, Tail.SHIFT)  # the last tile may do rows again
    column, j = s.split(s.loop("j_c"), columns)
    whole, column = s.split(column, s.for_(column).extent)  # one iteration: B is packed in it
    s.reorder(whole, column, row, i, j)
    tile = s.compute_at(tile, row)

    # B lies in panels as wide as a tile; in a panel, the bytes of one lane are side by side.
    packed = s.cache_read(s.buffer("B"), whole)
    s.pack_layout(packed, Layout((1, 0), ((1, columns), (0, DEPTH))))

    # K outside, then rows and vectors written out, then the instruction's own loops.
    s.split_init(tile)
    k, within = s.split(s.loop("k"), DEPTH)
    vector, lane = s.split(s.loop("j"), lanes)
    s.reorder(k, s.loop("i"), vector, lane, within)
    s.tensorize(lane, dot)
    s.unroll(s.loop("i"))
    s.unroll(vector)
    for rows, vectors in ((s.loop("i_init"), s.loop("j_init")), (i, j)):
        outer, inner = s.split(vectors, lanes)
        s.unroll(rows)
        s.unroll(outer)
        s.vectorize(inner)
    return s


def inputs(m, n, k, seed=0):
    """Bytes of all values."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, (m, k), dtype=np.uint8)
    return a, rng.integers(-128, 128, (k, n), dtype=np.int8)


def main(n=1024):
    target = cpu.host(threads=1)
    s = schedule(gemm.bind(M=n, N=n, K=n), target)
    print(s.show(), end="\n\n")
    f = s.build(target)
    a, b = inputs(n, n, n)
    c = f(a, b, np.empty((n, n), np.int32))
    assert np.array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        f(a, b, c)
        times.append(time.perf_counter() - start)
    rate = 2 * n**3 / min(times)
    peak = 2 * DEPTH * target.peak(tw.f32)  # as many instructions as of f32 multiply-adds
    print(f"{min(times) * 1e3:.2f} ms, {rate / 1e9:.0f} Gop/s: {rate / peak:.0%} of the peak")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
