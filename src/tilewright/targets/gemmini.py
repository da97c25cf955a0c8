"""A systolic array in the manner of Gemmini: a scratchpad and accumulators, a matrix unit that
takes any number of rows, strides and scales in registers. The host's processor issues the
instructions, and the chip itself finds out what they have to wait for.
"""

from tilewright.base.dtype import i8, i32
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, state, view
from tilewright.target.encoding import address, at, bits, constant, field
from tilewright.target.target import Target

KIB = 1 << 10


def gemmini(
    mesh: int = 16,
    spad: int = 256 * KIB,
    acc: int = 64 * KIB,
    bus: int = 16,
    issue: int = 2,
    clock: float = 1e9,
    cores: int = 1,
) -> Target:
    """The chip with a mesh x mesh array, these bytes of scratchpad and accumulators, `bus` bytes a
    cycle to DRAM, and a processor that issues an instruction every `issue` cycles; or several of
    it as the `cores` of one, with one DRAM."""
    t = TargetBuilder("gemmini", clock=clock, cores=cores)
    t.memory("dram", bandwidth=bus, latency=64)
    t.memory("spad", spad)  # banks have two ports: queues that fill and use one are not in the way
    t.memory("acc", acc)
    load, execute, store = t.queues("load", "execute", "store", depth=64)
    t.interlock()
    t.issue(issue)

    M, R, B = dims("M R B", max=64)  # rows of a product, of a transfer; blocks side by side
    STEP, BYTE = Range(0, (1 << 24) - 1), Range(-128, 127)

    def command(number, first, second=()):
        """What the processor hands over: a function and two registers of 64 bits."""
        return bits(192, constant(number, 7), at(64), first, at(128), second)

    far = field("far", 24)
    local = address("dst", 32, unit=mesh), field("R", 7)

    @t.instruction(load, encoding=command(0, (constant(1, 2), far), field("block", 24)))
    def config_load(far: STEP, block: STEP):
        cost(busy=1)

    @t.instruction(load, encoding=command(2, address("src", 48), (local, field("B", 7))))
    def mvin(
        src: view(i8[B, R, mesh] @ "dram", "block", "far"),
        dst: out(i8[B, R, mesh] @ "spad"),
        far: state(config_load, "far"),
        block: state(config_load, "block"),
    ):
        for b, i, j in grid(B, R, mesh):
            dst[b, i, j] = src[b, i, j]
        cost(setup=16, bytes=B * R * max(mesh, min(far, 64)))

    @t.instruction(load, encoding=command(1, address("src", 48), local))
    def mvin_bias(src: i32[mesh] @ "dram", dst: out(i32[R, mesh] @ "acc")):
        for i, j in grid(R, mesh):
            dst[i, j] = src[j]
        cost(setup=16, busy=R, bytes=max(64, 4 * mesh))

    sums = address("c", 24, unit=4 * mesh), field("rows", 24), field("M", 7)
    factors = address("a", 32, unit=mesh), address("b", 31, unit=mesh), field("accumulate", 1)

    @t.instruction(execute, encoding=command(4, factors, sums))
    def matmul(
        a: view(i8[M, mesh] @ "spad", "rows"),
        b: i8[mesh, mesh] @ "spad",
        c: out(i32[M, mesh] @ "acc"),
        rows: Range(mesh, 64 * mesh, multiple=mesh),
        accumulate: flag,
    ):
        for i, j in grid(M, mesh):
            if accumulate == 0:
                c[i, j] = 0
            for k in reduce(mesh):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        cost(busy=M, latency=2 * mesh, forward=M)  # sums are added to where they are kept

    narrow = field("shift", 5), field("low", 8, signed=True), field("high", 8, signed=True)

    @t.instruction(store, encoding=command(0, (constant(2, 2), far, narrow)))
    def config_store(far: STEP, shift: Range(0, 31), low: BYTE, high: BYTE):
        cost(busy=1)

    out_rows = address("src", 32, unit=4 * mesh), field("R", 7)

    @t.instruction(store, encoding=command(3, address("dst", 48), out_rows))
    def mvout(
        src: i32[R, mesh] @ "acc",
        dst: view(out(i8[R, mesh] @ "dram"), "far"),
        far: state(config_store, "far"),
        shift: state(config_store, "shift"),
        low: state(config_store, "low"),
        high: state(config_store, "high"),
    ):
        for i, j in grid(R, mesh):
            scaled = src[i, j] >> cast(i32, shift)
            dst[i, j] = cast(i8, max(min(scaled, cast(i32, high)), cast(i32, low)))
        cost(setup=16, bytes=R * max(mesh, min(far, 64)))

    return t.build()
