"""A very small accelerator: a 16x16x16 matrix unit for int8, fed by two DMA queues.

Everything the compiler and the simulators know of it is in this file.
"""

from tilewright.base.dtype import i8, i32
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.encoding import address, bits, constant, field, pop, push
from tilewright.target.target import Target


def tiny(mesh: int = 16, spad: int = 64 << 10, acc: int = 64 << 10) -> Target:
    """The chip with a mesh x mesh unit and these bytes of scratchpad and accumulators."""
    t = TargetBuilder("tiny", clock=500e6)
    t.memory("dram", bandwidth=16, latency=64)
    t.memory("spad", spad)
    t.memory("acc", acc)
    load, compute, store = t.queues("load", "compute", "store", depth=64)
    t.tokens((load, compute), (compute, store))

    def code(opcode, before, behind, *parts):
        """128 bits that begin with an opcode and the tokens of the queues beside its own."""
        tokens = pop(before), pop(behind), push(before), push(behind)
        return bits(128, constant(opcode, 4), tokens, parts)

    moved = address("src dst", 32), field("rows", 6, minus=1), field("stride", 16)

    @t.instruction(load, encoding=code(0, None, compute, moved))
    def mvin(
        src: view(i8[64, mesh] @ "dram", "stride"),
        dst: out(i8[64, mesh] @ "spad"),
        rows: Range(1, 64),
        stride: Range(0, 65535),
    ):
        for i, j in grid(rows, mesh):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * mesh)

    abc = address("a b c", 32), field("accumulate", 1)

    @t.instruction(compute, encoding=code(1, load, store, abc))
    def gemm(
        a: i8[mesh, mesh] @ "spad",
        b: i8[mesh, mesh] @ "spad",
        c: out(i32[mesh, mesh] @ "acc"),
        accumulate: flag,
    ):
        for i, j in grid(mesh, mesh):
            if accumulate == 0:
                c[i, j] = 0
            for k in reduce(mesh):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        cost(busy=mesh, latency=2 * mesh)

    @t.instruction(store, encoding=code(2, compute, None, moved))
    def mvout(
        src: i32[64, mesh] @ "acc",
        dst: view(out(i32[64, mesh] @ "dram"), "stride"),
        rows: Range(1, 64),
        stride: Range(0, 65535),
    ):
        for i, j in grid(rows, mesh):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=4 * rows * mesh)

    return t.build()
