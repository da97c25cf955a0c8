"""Chips whose matrix units are fed in other ways than from one scratchpad: weights that come from a
memory of their own, operands that lie in DRAM, and several equal units."""

from tilewright.base.dtype import i8, i32
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target

MESH = 16
STEP, BYTE = Range(0, (1 << 24) - 1), Range(-128, 127)
DRAM, FLASH, ROWS, FIFO, ACC = "dram", "flash", "rows", "fifo", "acc"


def _stores(t: TargetBuilder, queue: str, rows: int) -> None:
    """Sums, shifted and clipped, to DRAM."""
    R = dims("R", max=rows)

    @t.instruction(queue)
    def store(
        src: i32[R, MESH] @ ACC,
        dst: view(out(i8[R, MESH] @ DRAM), "far"),
        far: STEP,
        by: Range(0, 31),
        low: BYTE,
        high: BYTE,
    ):
        for i, j in grid(R, MESH):
            kept = max(min(src[i, j] >> cast(i32, by), cast(i32, high)), cast(i32, low))
            dst[i, j] = cast(i8, kept)
        cost(setup=16, bytes=R * MESH)


def _loads(t: TargetBuilder, queue: str, rows: int) -> None:
    R = dims("R", max=rows)

    @t.instruction(queue)
    def load(src: view(i8[R, MESH] @ DRAM, "far"), dst: out(i8[R, MESH] @ ROWS), far: STEP):
        for i, j in grid(R, MESH):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=R * MESH)

    @t.instruction(queue)
    def load_bias(src: i32[MESH] @ DRAM, dst: out(i32[R, MESH] @ ACC)):
        for i, j in grid(R, MESH):
            dst[i, j] = src[j]
        cost(setup=16, busy=R, bytes=64)


def _products(t: TargetBuilder, queue: str, taken: str, weights: str, rows: int) -> None:
    """A matrix unit with a flag that begins sums, which takes rows and weights from memories."""
    M = dims("M", max=rows)

    @t.instruction(queue)
    def matmul(
        a: i8[M, MESH] @ taken, w: i8[MESH, MESH] @ weights, c: out(i32[M, MESH] @ ACC),
        more: flag,
    ):  # fmt: skip
        for i, j in grid(M, MESH):
            if more == 0:
                c[i, j] = 0
            for k in reduce(MESH):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, w[k, j])
        cost(busy=M, latency=2 * MESH, forward=M)


def weight_fifo(tiles: int = 32, flash: int = 8, bus: int = 16) -> Target:
    """Weights lie in a flash memory, and go through a queue of so many tiles from which the matrix
    unit takes them; pictures and results lie in DRAM."""
    t = TargetBuilder("weight_fifo", clock=7e8)
    t.memory(DRAM, bandwidth=bus, latency=80)
    t.memory(FLASH, bandwidth=flash, latency=200)
    t.memory(ROWS, 96 << 10)
    t.memory(FIFO, tiles * MESH * MESH)
    t.memory(ACC, 64 << 10)
    load, weigh, matrix, store = t.queues("load", "weigh", "matrix", "store", depth=32)
    t.events(64)
    _loads(t, load, 256)

    @t.instruction(weigh)
    def push(src: i8[MESH, MESH] @ FLASH, dst: out(i8[MESH, MESH] @ FIFO)):
        for i, j in grid(MESH, MESH):
            dst[i, j] = src[i, j]
        cost(setup=4, bytes=MESH * MESH)

    _products(t, matrix, ROWS, FIFO, 256)

    _stores(t, store, 256)
    return t.build()


def dram_engine(bus: int = 32) -> Target:
    """A matrix engine that reads its operands from DRAM and writes its results there, through
    buffers of its own that nobody else sees: start it, and wait."""
    t = TargetBuilder("dram_engine", clock=5e8)
    t.memory(DRAM, bandwidth=bus, latency=60)
    (run,) = t.queues("run", depth=4)
    M, N, K = dims("M N K", max=4096)

    @t.instruction(run)
    def product(
        a: view(i8[M, K] @ DRAM, "a_row"),
        b: view(i8[N, K] @ DRAM, "b_row"),
        bias: i32[N] @ DRAM,
        y: view(out(i8[M, N] @ DRAM), "y_row"),
        a_row: STEP, b_row: STEP, y_row: STEP, add: flag, shift: Range(0, 31), low: BYTE,
        high: BYTE,
    ):  # fmt: skip
        for i, j in grid(M, N):
            acc: i32 = 0
            for k in reduce(K):
                acc += cast(i32, a[i, k]) * cast(i32, b[j, k])
            total = acc + (bias[j] if add == 1 else 0) >> cast(i32, shift)
            y[i, j] = cast(i8, max(min(total, cast(i32, high)), cast(i32, low)))
        cost(setup=100, busy=-(-M // MESH) * -(-N // MESH) * -(-K // MESH) * MESH, latency=40)
        cost(bytes=(M + N) * K + M * N)

    return t.build()


def several_cubes(units: int = 4, bus: int = 64) -> Target:
    """So many equal matrix units of 16x16x16, each behind a queue of its own."""
    t = TargetBuilder(f"cubes_{units}", clock=1e9)
    t.memory(DRAM, bandwidth=bus, latency=80)
    t.memory(ROWS, 512 << 10)
    t.memory(ACC, 256 << 10)
    load, store = t.queues("load", "store", depth=64)
    cubes = t.queues(*(f"cube_{k}" for k in range(units)), depth=64)
    t.interlock()
    _loads(t, load, 256)
    for k, queue in enumerate(cubes):

        @t.instruction(queue, name=f"cube_{k}")
        def cube(
            a: i8[MESH, MESH] @ ROWS, b: i8[MESH, MESH] @ ROWS,
            c: out(i32[MESH, MESH] @ ACC), more: flag,
        ):  # fmt: skip
            for i, j in grid(MESH, MESH):
                if more == 0:
                    c[i, j] = 0
                for k in reduce(MESH):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
            cost(busy=MESH, latency=2 * MESH)

    _stores(t, store, 256)
    return t.build()


def sums_that_begin(by: str, in_dram: bool = False) -> Target:
    """A matrix unit that has one instruction that writes products and one that adds them ("two"),
    one with a flag for that ("flag"), or none that writes them, where loads can write sums
    ("load"). It takes its rows from DRAM or from a memory."""
    t = TargetBuilder("sums_that_begin", clock=7e8)
    t.memory(DRAM, bandwidth=16, latency=80)
    t.memory(ROWS, 64 << 10)
    t.memory(ACC, 64 << 10)
    load, matrix, store = t.queues("load", "matrix", "store", depth=32)
    t.events(64)
    _loads(t, load, 256)
    M = dims("M", max=64)
    taken = DRAM if in_dram else ROWS

    if by == "flag":
        _products(t, matrix, taken, ROWS, 64)
    else:

        @t.instruction(matrix)
        def add(rows: i8[M, MESH] @ taken, b: i8[MESH, MESH] @ ROWS, sums: out(i32[M, MESH] @ ACC)):
            for r, s in grid(M, MESH):
                for d in reduce(MESH):
                    sums[r, s] += cast(i32, rows[r, d]) * cast(i32, b[d, s])
            cost(busy=M, latency=2 * MESH, forward=M)

    if by == "two":

        @t.instruction(matrix)
        def begin(a: i8[M, MESH] @ taken, w: i8[MESH, MESH] @ ROWS, c: out(i32[M, MESH] @ ACC)):
            for i, j in grid(M, MESH):
                c[i, j] = 0
                for k in reduce(MESH):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, w[k, j])
            cost(busy=M, latency=2 * MESH, forward=M)

    _stores(t, store, 64)
    return t.build()


def weight_register(registers: int = 2) -> Target:
    """Weights come to the same memory as pictures, and from there to the register of the matrix
    unit, of which there are several."""
    t = TargetBuilder("weight_register", clock=7e8)
    t.memory(DRAM, bandwidth=16, latency=80)
    t.memory(ROWS, 96 << 10)
    t.memory("weights", registers * MESH * MESH)
    t.memory(ACC, 64 << 10)
    load, weigh, matrix, store = t.queues("load", "weigh", "matrix", "store", depth=32)
    t.events(64)
    _loads(t, load, 256)

    @t.instruction(weigh)
    def fill(src: i8[MESH, MESH] @ ROWS, dst: out(i8[MESH, MESH] @ "weights")):
        for i, j in grid(MESH, MESH):
            dst[i, j] = src[i, j]
        cost(busy=MESH, latency=2)

    _products(t, matrix, ROWS, "weights", 256)

    _stores(t, store, 256)
    return t.build()


def two_pairs() -> Target:
    """Two equal units behind queues of their own, each with an instruction that begins sums and one
    that adds to them."""
    t = TargetBuilder("two_pairs", clock=1e9)
    t.memory(DRAM, bandwidth=64, latency=20)
    t.memory(ROWS, 16384)
    t.memory(ACC, 16384)
    load, store = t.queues("load", "store", depth=16)
    units = t.queues("unit_0", "unit_1", depth=16)
    t.interlock()
    R = dims("R", max=16)

    @t.instruction(load)
    def bring(src: view(i8[R, 4] @ DRAM, "far"), dst: out(i8[R, 4] @ ROWS), far: STEP):
        for i, j in grid(R, 4):
            dst[i, j] = src[i, j]
        cost(setup=4, bytes=4 * R)

    for k, queue in enumerate(units):

        @t.instruction(queue, name=f"begin_{k}")
        def begin(a: i8[4, 4] @ ROWS, b: i8[4, 4] @ ROWS, c: out(i32[4, 4] @ ACC)):
            for i, j in grid(4, 4):
                c[i, j] = 0
                for d in reduce(4):
                    c[i, j] += cast(i32, a[i, d]) * cast(i32, b[d, j])
            cost(busy=16)

        @t.instruction(queue, name=f"add_{k}")
        def add(a: i8[4, 4] @ ROWS, b: i8[4, 4] @ ROWS, c: out(i32[4, 4] @ ACC)):
            for i, j in grid(4, 4):
                for d in reduce(4):
                    c[i, j] += cast(i32, a[i, d]) * cast(i32, b[d, j])
            cost(busy=16)

    @t.instruction(store)
    def leave(src: i32[R, 4] @ ACC, dst: view(out(i32[R, 4] @ DRAM), "far"), far: STEP):
        for i, j in grid(R, 4):
            dst[i, j] = src[i, j]
        cost(setup=4, bytes=16 * R)

    return t.build()
