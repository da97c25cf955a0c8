"""Chips of floats: one whose vector unit has an instruction for each operator of a softmax beside a
matrix unit, and one that does a whole softmax of rows in place."""

import operator

from tilewright import bitcast, exp, sqrt, tanh
from tilewright.base.dtype import bf16, f32, u32
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target

LANES = 16
STEP, BITS = Range(0, (1 << 24) - 1), Range(0, (1 << 32) - 1)  # of a number of 32 bits
LOWEST = -3.0e38
DRAM, LOCAL, ACC = "dram", "local", "acc"


def _base(name: str, local: int, acc: int, bus: int) -> TargetBuilder:
    """Memories, queues, loads, stores and a matrix unit of 16-bit floats with sums of 32 bits."""
    t = TargetBuilder(name, clock=1e9)
    t.memory(DRAM, bandwidth=bus, latency=100)
    t.memory(LOCAL, local)
    t.memory(ACC, acc)
    load, matrix, vector, store = t.queues("load", "matrix", "vector", "store", depth=32)
    t.events(64)
    B, R, M = dims("B R M", max=256)  # blocks of lanes side by side, rows
    for kind, memory, size in ((bf16, LOCAL, 2), (f32, ACC, 4)):

        @t.instruction(load, name=f"load_{kind}")
        def load_rows(
            src: view(kind[B, R, LANES] @ DRAM, "block", "far"),
            dst: out(kind[B, R, LANES] @ memory),
            block: STEP,
            far: STEP,
        ):
            for b, i, j in grid(B, R, LANES):
                dst[b, i, j] = src[b, i, j]
            cost(setup=16, bytes=B * R * LANES * size)

        @t.instruction(store, name=f"store_{kind}")
        def store_rows(
            src: kind[B, R, LANES] @ memory,
            dst: view(out(kind[B, R, LANES] @ DRAM), "block", "far"),
            block: STEP,
            far: STEP,
        ):
            for b, i, j in grid(B, R, LANES):
                dst[b, i, j] = src[b, i, j]
            cost(setup=16, bytes=B * R * LANES * size)

    @t.instruction(matrix)
    def matmul(
        a: bf16[M, LANES] @ LOCAL,
        b: bf16[LANES, LANES] @ LOCAL,
        c: out(f32[M, LANES] @ ACC),
        more: flag,
    ):
        for i, j in grid(M, LANES):
            if more == 0:
                c[i, j] = 0.0
            for k in reduce(LANES):
                c[i, j] += cast(f32, a[i, k]) * cast(f32, b[k, j])
        cost(busy=M, latency=2 * LANES, forward=M)

    @t.instruction(vector)
    def narrow(x: f32[R, LANES] @ ACC, y: out(bf16[R, LANES] @ LOCAL)):
        for i, j in grid(R, LANES):
            y[i, j] = cast(bf16, x[i, j])
        cost(busy=R, latency=8)

    @t.instruction(vector)
    def widen(x: bf16[R, LANES] @ LOCAL, y: out(f32[R, LANES] @ ACC)):
        for i, j in grid(R, LANES):
            y[i, j] = cast(f32, x[i, j])
        cost(busy=R, latency=8)

    @t.instruction(vector)
    def transpose(x: bf16[LANES, LANES] @ LOCAL, y: out(bf16[LANES, LANES] @ LOCAL)):
        for i, j in grid(LANES, LANES):
            y[i, j] = x[j, i]
        cost(busy=LANES, latency=LANES)

    return t


def vector_core(local: int = 128 << 10, acc: int = 128 << 10, bus: int = 32) -> Target:
    """A matrix unit and a vector unit of 16 lanes: operators of elements, of rows with a number for
    each, sums and maxima along rows."""
    t = _base("vector_core", local, acc, bus)
    R = dims("R", max=256)
    near = view(f32[R, LANES] @ ACC, "a")
    made = view(out(f32[R, LANES] @ ACC), "e")
    pairs = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "larger": max}
    pairs |= {"div": operator.truediv}
    for name, op in pairs.items():

        @t.instruction("vector", name=name)
        def rows(p: near, q: view(f32[R, LANES] @ ACC, "c"), z: made, a: STEP, c: STEP, e: STEP):
            for i, j in grid(R, LANES):
                z[i, j] = op(p[i, j], q[i, j])
            cost(busy=R, latency=8)

        @t.instruction("vector", name=f"{name}_number")
        def with_numbers(p: near, q: f32[R] @ ACC, z: made, a: STEP, e: STEP):
            for i, j in grid(R, LANES):
                z[i, j] = op(p[i, j], q[i])
            cost(busy=R, latency=8)

        @t.instruction("vector", name=f"{name}_constant")
        def with_constant(p: near, z: made, a: STEP, e: STEP, bits: BITS):
            for i, j in grid(R, LANES):
                z[i, j] = op(p[i, j], bitcast(f32, cast(u32, bits)))
            cost(busy=R, latency=8)

    for name, op, cycles in (("exponent", exp, 2), ("root", sqrt, 4), ("tangent", tanh, 2)):

        @t.instruction("vector", name=name)
        def function(p: near, z: made, a: STEP, e: STEP):
            for i, j in grid(R, LANES):
                z[i, j] = op(p[i, j])
            cost(busy=cycles * R, latency=16)

    @t.instruction("vector")
    def reciprocal(p: near, z: made, a: STEP, e: STEP):
        for i, j in grid(R, LANES):
            z[i, j] = 1.0 / p[i, j]
        cost(busy=2 * R, latency=16)

    for name, op in (("row_sum", operator.add), ("row_most", max)):

        @t.instruction("vector", name=name)
        def along(p: near, z: out(f32[R] @ ACC), a: STEP):
            for i in grid(R):
                for j in reduce(LANES):
                    z[i] = op(z[i], p[i, j])
            cost(busy=R, latency=16)

    for name, value in (("zero", 0.0), ("lowest", LOWEST)):

        @t.instruction("vector", name=name)
        def fill(z: made, e: STEP):
            for i, j in grid(R, LANES):
                z[i, j] = value
            cost(busy=R, latency=2)

    return t.build()


def softmax_engine(local: int = 128 << 10, acc: int = 128 << 10, bus: int = 32) -> Target:
    """A matrix unit, and one that does a softmax of rows in place."""
    t = _base("softmax_engine", local, acc, bus)
    R, N = dims("R N", max=1024)

    @t.instruction("vector")
    def softmax(x: out(f32[R, N] @ ACC)):
        for i in grid(R):
            most: f32 = LOWEST
            for j in reduce(N):
                most = max(most, x[i, j])
            total: f32 = 0.0
            for j in reduce(N):
                total += exp(x[i, j] - most)
            for j in grid(N):
                x[i, j] = exp(x[i, j] - most) / total
        cost(busy=R * (-(-N // LANES)) * 4, latency=40)

    return t.build()
