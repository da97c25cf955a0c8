"""Chips that do element-wise work in different ways: apart, in place, and as part of a store."""

from tilewright import cast, grid, i8, i32, reduce
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


CHIPS = {"apart": apart, "in place": in_place, "fused": fused}
