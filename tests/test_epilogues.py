"""What follows a contraction, on chips that do element-wise work in different ways: apart, in
place, and as part of a store. Exact to the bit."""

import numpy as np
import pytest

import tilewright
from tilewright import cast, grid, i8, i32, local, reduce
from tilewright.chip import build_chip
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target

STEP = Range(0, 65535)
ROWS = Range(1, 64)
BYTE = Range(-128, 127)
DRAM, SPAD, ACC, OUT = "dram", "spad", "acc", "out"


def base(name: str) -> tuple[TargetBuilder, str, str, str]:
    """Memories, queues, loads and the matrix unit that all chips here have."""
    t = TargetBuilder(name, clock=1e9)
    t.memory("dram", bandwidth=16, latency=64)
    t.memory("spad", 64 << 10)
    t.memory("acc", 64 << 10)
    load, compute, store = t.queues("load", "compute", "store", depth=64)
    t.tokens((load, compute), (compute, store))

    @t.instruction(load)
    def mvin(
        src: view(i8[64, 16] @ DRAM, "stride"),
        dst: out(i8[64, 16] @ SPAD),
        rows: ROWS,
        stride: STEP,
    ):
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * 16)

    @t.instruction(load)
    def mvin_acc(
        src: view(i32[64, 16] @ DRAM, "stride"),
        dst: out(i32[64, 16] @ ACC),
        rows: ROWS,
        stride: STEP,
    ):
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * 64)

    @t.instruction(compute)
    def gemm(a: i8[16, 16] @ SPAD, b: i8[16, 16] @ SPAD, c: out(i32[16, 16] @ ACC), more: flag):
        for i, j in grid(16, 16):
            if more == 0:
                c[i, j] = 0
            for k in reduce(16):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        cost(busy=16, latency=32)

    return t, load, compute, store


def apart() -> Target:
    """An instruction for each operator, with a result of its own; narrow results have a memory."""
    t, _, compute, store = base("apart")
    t.memory("out", 32 << 10)

    @t.instruction(compute)
    def add(
        a: i32[64, 16] @ ACC,
        b: view(i32[64, 16] @ ACC, "step"),
        c: out(i32[64, 16] @ ACC),
        rows: ROWS,
        step: STEP,
    ):
        for i, j in grid(rows, 16):
            c[i, j] = a[i, j] + b[i, j]
        cost(busy=rows)

    @t.instruction(compute)
    def shift(a: i32[64, 16] @ ACC, c: out(i32[64, 16] @ ACC), rows: ROWS, by: Range(0, 31)):
        for i, j in grid(rows, 16):
            c[i, j] = a[i, j] >> cast(i32, by)
        cost(busy=rows)

    @t.instruction(compute)
    def narrow(a: i32[64, 16] @ ACC, c: out(i8[64, 16] @ OUT), rows: ROWS, low: BYTE, high: BYTE):
        for i, j in grid(rows, 16):
            c[i, j] = cast(i8, max(min(a[i, j], cast(i32, high)), cast(i32, low)))
        cost(busy=rows)

    _narrow_store(t, store)
    return t.build()


def in_place() -> Target:
    """As VTA does it: results take the place of the first operand."""
    t, _, compute, store = base("in_place")
    t.memory("out", 32 << 10)

    @t.instruction(compute)
    def add(c: out(i32[64, 16] @ ACC), b: view(i32[64, 16] @ ACC, "step"), rows: ROWS, step: STEP):
        for i, j in grid(rows, 16):
            c[i, j] = c[i, j] + b[i, j]
        cost(busy=rows)

    @t.instruction(compute)
    def shift(c: out(i32[64, 16] @ ACC), rows: ROWS, by: Range(0, 31)):
        for i, j in grid(rows, 16):
            c[i, j] = c[i, j] >> cast(i32, by)
        cost(busy=rows)

    @t.instruction(compute)
    def smaller(c: out(i32[64, 16] @ ACC), rows: ROWS, by: BYTE):
        for i, j in grid(rows, 16):
            c[i, j] = min(c[i, j], cast(i32, by))
        cost(busy=rows)

    @t.instruction(compute)
    def larger(c: out(i32[64, 16] @ ACC), rows: ROWS, by: BYTE):
        for i, j in grid(rows, 16):
            c[i, j] = max(c[i, j], cast(i32, by))
        cost(busy=rows)

    @t.instruction(compute)
    def narrow(a: i32[64, 16] @ ACC, c: out(i8[64, 16] @ OUT), rows: ROWS):
        for i, j in grid(rows, 16):
            c[i, j] = cast(i8, a[i, j])
        cost(busy=rows)

    _narrow_store(t, store)
    return t.build()


def fused() -> Target:
    """As Gemmini does it: bias added on its own, the rest while storing."""
    t, _, compute, store = base("fused")

    @t.instruction(compute)
    def add(c: out(i32[64, 16] @ ACC), b: view(i32[64, 16] @ ACC, "step"), rows: ROWS, step: STEP):
        for i, j in grid(rows, 16):
            c[i, j] = c[i, j] + b[i, j]
        cost(busy=rows)

    @t.instruction(store)
    def mvout(
        a: i32[64, 16] @ ACC,
        c: view(out(i8[64, 16] @ DRAM), "stride"),
        rows: ROWS,
        by: Range(0, 31),
        low: BYTE,
        high: BYTE,
        stride: STEP,
    ):
        for i, j in grid(rows, 16):
            c[i, j] = cast(i8, max(min(a[i, j] >> cast(i32, by), cast(i32, high)), cast(i32, low)))
        cost(setup=16, bytes=rows * 16)

    return t.build()


def _narrow_store(t: TargetBuilder, store: str) -> None:
    @t.instruction(store)
    def mvout(
        src: i8[64, 16] @ OUT,
        dst: view(out(i8[64, 16] @ DRAM), "stride"),
        rows: ROWS,
        stride: STEP,
    ):
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * 16)


@tilewright.kernel
def layer(A: i8[128, 64], B: i8[64, 96], b: i32[96], Y: i8[128, 96]):
    """The sum, a bias for each column, a shift, clipped."""
    acc = local(i32[128, 96])
    for i, j in grid(128, 96):
        acc[i, j] = 0
        for k in reduce(64):
            acc[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(128, 96):
        Y[i, j] = cast(i8, max(min((acc[i, j] + b[j]) >> 8, 127), -128))


@tilewright.kernel
def conv_layer(X: i8[18, 18, 32], W: i8[3, 3, 32, 32], b: i32[32], Y: i8[16, 16, 32]):
    acc = local(i32[16, 16, 32])
    for h, w, o in grid(16, 16, 32):
        acc[h, w, o] = 0
        for r, s, c in reduce(3, 3, 32):
            acc[h, w, o] += cast(i32, X[h + r, w + s, c]) * cast(i32, W[r, s, c, o])
    for h, w, o in grid(16, 16, 32):
        Y[h, w, o] = cast(i8, max(min((acc[h, w, o] + b[o]) >> 7, 127), -128))


def finished(acc: np.ndarray, b: np.ndarray, by: int) -> np.ndarray:
    return np.clip((acc + b) >> by, -128, 127).astype(np.int8)


def expected_layer(a: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return finished(a.astype(np.int32) @ w.astype(np.int32), b, 8)


def expected_conv(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = [a.astype(np.int32) for a in (x, w)]
    parts = (wide[0][r : r + 16, s : s + 16] @ wide[1][r, s] for r in range(3) for s in range(3))
    return finished(sum(parts), b, 7)


CHIPS = {"apart": apart, "in place": in_place, "fused": fused}


@pytest.mark.parametrize("overlap", [True, False], ids=["overlapped", "single"])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "function, expected",
    [(layer, expected_layer), (conv_layer, expected_conv)],
    ids=["gemm", "conv"],
)
def test_exact(function, expected, chip: str, overlap: bool):
    rng = np.random.default_rng(0)
    built = build_chip(function.kernel, CHIPS[chip](), overlap=overlap)
    arrays = [
        rng.integers(-128, 128, b.shape).astype(b.dtype.numpy)
        if b.dtype == i8
        else rng.integers(-5000, 5000, b.shape).astype(np.int32)
        for b in function.kernel.inputs
    ]
    result = np.zeros(function.kernel.outputs[0].shape, np.int8)
    built(*arrays, result)
    np.testing.assert_array_equal(result, expected(*arrays))
    assert len(np.unique(result)) > 50
