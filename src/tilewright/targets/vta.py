"""VTA: a 16x16 matrix unit with a register file of accumulators and an ALU beside it.

Hardware loops and lists of micro-operations repeat both units' instructions. A parameter for
everything that VTA's own configuration has; the defaults are those of its edge boards.
"""

import operator

from tilewright.base.dtype import i8, i32
from tilewright.ir.kernel import dims
from tilewright.ir.kernel_words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, view
from tilewright.target.target import Target

KIB = 1 << 10


def vta(
    batch: int = 1,
    block: int = 16,
    inp: int = 32 * KIB,
    wgt: int = 256 * KIB,
    acc: int = 128 * KIB,
    uop: int = 32 * KIB,
    bus: int = 8,
    alu: int = 1,
    clock: float = 100e6,
) -> Target:
    """The chip with a (batch x block) x (block x block) unit, these bytes of memory for inputs,
    weights, accumulators and micro-operations, `bus` bytes a cycle to DRAM, and an ALU that takes
    `alu` cycles for a row."""
    t = TargetBuilder("vta", clock=clock)
    t.memory("dram", bandwidth=bus, latency=64)
    for name, size in (("inp", inp), ("wgt", wgt), ("acc", acc), ("uop", uop)):
        t.memory(name, size)
    load, compute, store = t.queues("load", "compute", "store", depth=512)
    t.tokens((load, compute), (compute, store))

    Y, X = dims("Y X", max=65535)  # rows of a transfer, elements of one
    I, J, U = dims("I J U", max=16383)  # two hardware loops, and micro-operations
    FAR = Range(0, (1 << 32) - 1)  # from row to row in DRAM
    DST = Range(0, acc // 4 - 1, multiple=batch * block)  # steps of the hardware loops
    SRC = Range(0, inp - 1, multiple=batch * block)
    WGT = Range(0, wgt - 1, multiple=block * block)
    IMM = Range(-(1 << 15), (1 << 15) - 1)
    listed = t.micro_ops("uop", bytes=4)
    tile, weights = (batch, block), (block, block)
    for name, queue, (rows, columns), kind, memory in (
        ("load_inp", load, tile, i8, "inp"),
        ("load_wgt", load, weights, i8, "wgt"),
        ("load_acc", compute, tile, i32, "acc"),
    ):

        @t.instruction(queue, name=name)
        def load_rows(
            src: view(kind[Y, X, rows, columns] @ "dram", "far"),
            dst: out(kind[Y, X, rows, columns] @ memory),
            far: FAR,
        ):
            for y, x, b, c in grid(Y, X, rows, columns):
                dst[y, x, b, c] = src[y, x, b, c]
            cost(setup=16, bytes=Y * max(64, X * (rows * columns * kind.bytes)))

    @t.instruction(compute)
    def load_uop(src: i32[U] @ "dram", dst: out(i32[U] @ "uop")):
        for u in grid(U):
            dst[u] = src[u]
        cost(setup=16, bytes=max(64, 4 * U))

    @t.instruction(store)
    def store_rows(
        src: i32[Y, X, batch, block] @ "acc",
        dst: view(out(i8[Y, X, batch, block] @ "dram"), "far"),
        far: FAR,
    ):
        for y, x, b, c in grid(Y, X, batch, block):
            dst[y, x, b, c] = cast(i8, src[y, x, b, c])
        cost(setup=16, bytes=Y * max(64, X * (batch * block)))

    @t.instruction(compute)
    def gemm(
        dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
        src: view(i8[I, J, U, batch, block] @ "inp", "src_i", "src_j", listed),
        wgt: view(i8[I, J, U, block, block] @ "wgt", "wgt_i", "wgt_j", listed),
        dst_i: DST,
        dst_j: DST,
        src_i: SRC,
        src_j: SRC,
        wgt_i: WGT,
        wgt_j: WGT,
    ):
        for i, j, u, b, c in grid(I, J, U, batch, block):
            for k in reduce(block):
                dst[i, j, u, b, c] += cast(i32, src[i, j, u, b, k]) * cast(i32, wgt[i, j, u, c, k])
        cost(busy=I * J * U, latency=block)

    @t.instruction(compute)
    def clear(
        dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
        dst_i: DST,
        dst_j: DST,
    ):
        for i, j, u, b, c in grid(I, J, U, batch, block):
            dst[i, j, u, b, c] = 0
        cost(busy=I * J * U, latency=block)

    for name, op in (
        ("min", min),
        ("max", max),
        ("add", operator.add),
        ("shr", operator.rshift),
        ("mul", operator.mul),
    ):

        @t.instruction(compute, name=name)
        def with_rows(
            dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
            src: view(i32[I, J, U, batch, block] @ "acc", "src_i", "src_j", listed),
            dst_i: DST,
            dst_j: DST,
            src_i: DST,
            src_j: DST,
        ):
            for i, j, u, b, c in grid(I, J, U, batch, block):
                dst[i, j, u, b, c] = op(dst[i, j, u, b, c], src[i, j, u, b, c])
            cost(busy=I * J * U * alu, latency=block)

        @t.instruction(compute, name=f"{name}_imm")
        def with_number(
            dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
            dst_i: DST,
            dst_j: DST,
            imm: IMM,
        ):
            for i, j, u, b, c in grid(I, J, U, batch, block):
                dst[i, j, u, b, c] = op(dst[i, j, u, b, c], cast(i32, imm))
            cost(busy=I * J * U * alu, latency=block)

    return t.build()
