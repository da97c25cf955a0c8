"""A convolution engine: one instruction is a whole convolution over a tile in local memory, with
padding, stride, bias, scale and clamp of its own, beside queues that load and store tiles.

Everything the compiler and the simulators know of it is in this file.
"""

from tilewright.base.dtype import i8, i32
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, limit, view
from tilewright.target.target import Target


def conv_engine(
    memory: int = 512 << 10, inputs: int = 16, outputs: int = 16, bus: int = 16,
    clock: float = 8e8, cores: int = 1,
) -> Target:  # fmt: skip
    """The chip with so many bytes of local memory, `inputs` x `outputs` channels multiplied in a
    cycle, and `bus` bytes a cycle to DRAM; or several of it as the `cores` of one, with one
    DRAM."""
    t = TargetBuilder("conv_engine", clock=clock, cores=cores)
    dram, local = t.memory("dram", bandwidth=bus, latency=64), t.memory("local", memory)
    load, compute, store = t.queues("load", "compute", "store", depth=16)
    t.tokens((load, compute), (compute, store))

    P, SR, SC, DR, DC, N = dims("P SR SC DR DC N", max=65535)  # a transfer, and what it is cut from
    CO, CI = dims("CO CI", max=4096)
    IH, IW, OH, OW = dims("IH IW OH OW", max=1026)  # rows and columns that are read, or made
    KH, KW = dims("KH KW", max=11)
    SIZE, STEP, BYTE = Range(1, 65535), Range(0, (1 << 24) - 1), Range(-128, 127)

    for name, queue, here, there in (("load", load, dram, local), ("store", store, local, dram)):

        @t.instruction(queue, name=name)
        def move(src: i8[P, SR, SC] @ here, dst: out(i8[P, DR, DC] @ there), R: SIZE, C: SIZE):
            limit(R <= SR, C <= SC, R <= DR, C <= DC)
            for p, r, c in grid(P, R, C):
                dst[p, r, c] = src[p, r, c]
            cost(setup=32, bytes=P * R * max(64, C), energy=20 * P * R * max(64, C))

    @t.instruction(load)
    def load_bias(src: i32[N] @ dram, dst: out(i32[N] @ local)):
        for n in grid(N):
            dst[n] = src[n]
        cost(setup=32, bytes=max(64, 4 * N), energy=20 * max(64, 4 * N))

    @t.instruction(compute)
    def conv(
        x: view(i8[CI, IH, IW] @ local, "x_plane", "x_row"),
        w: i8[CO, CI, KH, KW] @ local,
        b: i32[CO] @ local,
        y: view(out(i8[CO, OH, OW] @ local), "y_plane", "y_row"),
        x_plane: STEP, x_row: STEP, y_plane: STEP, y_row: STEP,
        stride: Range(1, 4),
        top: Range(0, 10), left: Range(0, 10),
        bias: flag,
        scale: Range(1, 65535),
        shift: Range(0, 31),
        low: BYTE,
        high: BYTE,
    ):  # fmt: skip
        limit(top < KH, left < KW)
        for f, h, v in grid(CO, OH, OW):
            acc: i32 = 0
            for c, r, s in reduce(CI, KH, KW):
                i = h * stride + r - top
                j = v * stride + s - left
                acc += i32(x[c, i, j] if 0 <= i < IH and 0 <= j < IW else 0) * i32(w[f, c, r, s])
            total = (acc + (b[f] if bias == 1 else 0)) * i32(scale) >> i32(shift)
            y[f, h, v] = i8(max(min(total, i32(high)), i32(low)))
        cost(busy=-(-CO // outputs) * -(-CI // inputs) * KH * KW * OH * OW, latency=32)
        cost(energy=CO * CI * KH * KW * OH * OW // 2)

    @t.instruction(compute)
    def nop():
        cost(busy=1)  # loads wait for stores by way of it

    return t.build(packed=40)
