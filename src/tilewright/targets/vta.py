"""VTA: a 16x16 matrix unit with a register file of accumulators and an ALU beside it.

Hardware loops and lists of micro-operations repeat both units' instructions. A parameter for
everything that VTA's own configuration has; the defaults are those of its edge boards.
"""

import operator

from tilewright.base.dtype import i8, i32
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, distance, limit, view
from tilewright.target.encoding import address, at, bits, constant, field, pad, pop, push
from tilewright.target.encoding import end_entry as end
from tilewright.target.encoding import first_entry as first
from tilewright.target.target import Target

KIB = 1 << 10
LARGE, SHIFTS = Range(-(1 << 15), (1 << 15) - 1), Range(-16, 15)  # numbers in an instruction
APART = 3  # neither of the two micro-operations before one writes the same accumulator


def shift(a, b):
    """To the right, or to the left by a negative amount."""
    return a >> b if b >= 0 else a << -b


def vta(
    batch: int = 1, block: int = 16, inp: int = 32 * KIB, wgt: int = 256 * KIB,
    acc: int = 128 * KIB, uop: int = 32 * KIB, bus: int = 8, alu: int = 2, cores: int = 1,
    clock: float = 100e6,
) -> Target:  # fmt: skip
    """The chip with a (batch x block) x (block x block) unit, these bytes of memories, `bus` bytes
    a cycle to DRAM, and an ALU of `alu` cycles for a row; or of so many `cores`, with one DRAM."""
    t = TargetBuilder("vta", clock=clock, cores=cores)
    t.memory("dram", bandwidth=bus, latency=64)
    row, square = batch * block, block * block  # elements that memories count in
    units = (("inp", inp, row), ("wgt", wgt, square), ("acc", acc, 4 * row), ("uop", uop, 4))
    for name, size, unit in units:
        t.memory(name, size, unit=unit)
    load, compute, store = t.queues("load", "compute", "store", depth=512)
    t.tokens((load, compute), (compute, store), depth=8)
    t.fetch("dram", bytes=16, burst=64, ahead=512)
    INP, WGT, ACC, UOP = ((size // unit - 1).bit_length() for _, size, unit in units)
    BESIDE = {load: (None, compute), compute: (load, store), store: (compute, None)}

    def code(queue, opcode, *parts):
        tokens = [token(q) for token in (pop, push) for q in BESIDE[queue]]
        return bits(128, constant(opcode, 3), tokens, parts)

    def move(queue, opcode, memory, here, there, unit, *sizes):
        places = address(here, 16), address(there, 32, unit=unit)
        return code(queue, opcode, constant(memory, 3), places, at(64), sizes)

    def loops(opcode, reset, *parts):
        entries = first(UOP), end(UOP + 1), field("I J", 14), at(64)
        steps = field("dst_i dst_j", ACC, unit=row)
        return code(compute, opcode, constant(reset, 1), entries, steps, parts)

    Y, X = dims("Y X", max=65535)  # rows of a transfer, elements of one
    I, J, U = dims("I J U", max=16383)  # two hardware loops, and micro-operations
    DST = Range(0, acc // 4 - 1, multiple=row)  # steps of the hardware loops
    SRC, WEIGHT = Range(0, inp - 1, multiple=row), Range(0, wgt - 1, multiple=square)
    entry = address("dst", ACC), address("src", max(ACC, INP)), address("wgt", WGT)
    listed = t.micro_ops("uop", encoding=bits(32, entry))
    tile, weights = (batch, block), (block, block)
    for name, queue, (rows, columns), kind, memory, number in (
        ("load_inp", load, tile, i8, "inp", 2),
        ("load_wgt", load, weights, i8, "wgt", 1),
        ("load_acc", compute, tile, i32, "acc", 3),
        ("load_acc8", compute, tile, i8, "acc", 5),
    ):
        held = i32 if memory == "acc" else kind
        each = rows * columns
        FAR = Range(0, 65535 * each, multiple=each)  # from row to row in DRAM
        sizes = field("Y X", 16), field("far", 16, unit=each), constant(0, 16)
        encoding = move(queue, 0, number, "dst", "src", each * kind.bytes, sizes)

        @t.instruction(queue, name=name, encoding=encoding)
        def load_rows(
            src: view(kind[Y, X, rows, columns] @ "dram", "far"),
            dst: out(held[Y, X, rows, columns] @ memory),
            far: FAR,
        ):
            for y, x, b, c in grid(Y, X, rows, columns):
                dst[y, x, b, c] = cast(held, src[y, x, b, c])
            cost(setup=16, bytes=Y * max(64, X * (rows * columns * kind.bytes)))

    UP, DOWN, LEFT, RIGHT = dims("UP DOWN LEFT RIGHT", min=0, max=15)  # zeros around a transfer
    FAR = Range(0, 65535 * row, multiple=row)
    moved = field("Y X", 16), field("far", 16, unit=row)
    padded = *moved, field("UP DOWN LEFT RIGHT", 4)

    @t.instruction(load, encoding=move(load, 0, 2, "dst", "src", row, padded))
    def load_padded(
        src: view(i8[Y, X, batch, block] @ "dram", "far"),
        dst: out(i8[UP + Y + DOWN, LEFT + X + RIGHT, batch, block] @ "inp"),
        far: FAR,
    ):
        limit(UP + DOWN + LEFT + RIGHT > 0)
        for y, x, b, c in grid(UP + Y + DOWN, LEFT + X + RIGHT, batch, block):
            inside = UP <= y < UP + Y and LEFT <= x < LEFT + X
            dst[y, x, b, c] = src[y - UP, x - LEFT, b, c] if inside else 0
        cost(setup=16, busy=(UP + Y + DOWN) * (LEFT + X + RIGHT), bytes=Y * max(64, X * row))

    only = constant(1, 16), field("U", 16)

    @t.instruction(compute, encoding=move(compute, 0, 0, "dst", "src", 4, only))
    def load_uop(src: i32[U] @ "dram", dst: out(i32[U] @ "uop")):
        for u in grid(U):
            dst[u] = src[u]
        cost(setup=16, bytes=max(64, 4 * U))

    @t.instruction(compute, encoding=code(compute, 0, constant(0, 57), constant(0, 64)))
    def nop():
        cost(busy=1)  # loads wait for stores by way of it

    @t.instruction(store, encoding=move(store, 1, 4, "src", "dst", row, moved))
    def store_rows(
        src: i32[Y, X, batch, block] @ "acc",
        dst: view(out(i8[Y, X, batch, block] @ "dram"), "far"),
        far: FAR,
    ):
        for y, x, b, c in grid(Y, X, batch, block):
            dst[y, x, b, c] = cast(i8, src[y, x, b, c])
        cost(setup=16, bytes=Y * max(64, X * (batch * block)))

    source = field("src_i src_j", INP, unit=row)
    factors = source, field("wgt_i wgt_j", WGT, unit=square)

    @t.instruction(compute, encoding=loops(2, 0, factors))
    def gemm(
        dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
        src: view(i8[I, J, U, batch, block] @ "inp", "src_i", "src_j", listed),
        wgt: view(i8[I, J, U, block, block] @ "wgt", "wgt_i", "wgt_j", listed),
        dst_i: DST, dst_j: DST, src_i: SRC, src_j: SRC, wgt_i: WEIGHT, wgt_j: WEIGHT,
    ):  # fmt: skip
        for i, j, u, b, c in grid(I, J, U, batch, block):
            for k in reduce(block):
                dst[i, j, u, b, c] += cast(i32, src[i, j, u, b, k]) * cast(i32, wgt[i, j, u, c, k])
        distance(dst=APART)
        cost(busy=I * J * U, latency=block)

    @t.instruction(compute, encoding=loops(2, 1))
    def clear(
        dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
        dst_i: DST, dst_j: DST,
    ):  # fmt: skip
        for i, j, u, b, c in grid(I, J, U, batch, block):
            dst[i, j, u, b, c] = 0
        distance(dst=APART)
        cost(busy=I * J * U, latency=block)

    OPS = {"min": min, "max": max, "add": operator.add, "shr": shift, "mul": operator.mul}
    for number, (name, op) in enumerate(OPS.items()):
        source = field("src_i src_j", ACC, unit=row)
        other = source, constant(number, 3), constant(0, 1)
        given = pad(2 * ACC), constant(number, 3), constant(1, 1), field("imm", 16, signed=True)
        IMM = SHIFTS if name == "shr" else LARGE

        @t.instruction(compute, name=name, encoding=loops(4, 0, other))
        def with_rows(
            dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
            src: view(i32[I, J, U, batch, block] @ "acc", "src_i", "src_j", listed),
            dst_i: DST, dst_j: DST, src_i: DST, src_j: DST,
        ):  # fmt: skip
            for i, j, u, b, c in grid(I, J, U, batch, block):
                dst[i, j, u, b, c] = op(dst[i, j, u, b, c], src[i, j, u, b, c])
            distance(dst=APART)
            cost(busy=I * J * U * alu, latency=block)

        @t.instruction(compute, name=f"{name}_imm", encoding=loops(4, 0, given))
        def with_number(
            dst: view(out(i32[I, J, U, batch, block] @ "acc"), "dst_i", "dst_j", listed),
            dst_i: DST, dst_j: DST, imm: IMM,
        ):  # fmt: skip
            for i, j, u, b, c in grid(I, J, U, batch, block):
                dst[i, j, u, b, c] = op(dst[i, j, u, b, c], cast(i32, imm))
            distance(dst=APART)
            cost(busy=I * J * U * alu, latency=block)

    @t.instruction(compute, encoding=code(compute, 3))
    def finish():
        cost(busy=1)

    t.end(finish)
    return t.build()
