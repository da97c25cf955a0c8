"""A statically scheduled signal processor: a bundle is two loads or stores, a vector operation and
a scalar one. Latencies are exposed; a DMA engine fills the local memory.

Addresses of loads and stores are generated beside the slots: expressions of the loop counters,
which step as the loops around the operation do, and wrap where a ring buffer or a fused loop does.
"""

from tilewright.base.dtype import DType, i8, i16, i32
from tilewright.ir.python.words import cast, grid, out, reduce
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target

DRAM, LOCAL, V, S = "dram", "local", "v", "s"  # V, S: vector registers, words
PITCH, LANES, BYTE = Range(0, (1 << 24) - 1), Range(1, 64), Range(-128, 127)


def dsp(local: int = 256 << 10, bandwidth: float = 32) -> Target:
    """The chip with `local` bytes of local memory, and `bandwidth` bytes a cycle to fill it."""
    t = TargetBuilder("dsp", clock=1e9)
    t.memory(DRAM, bandwidth=bandwidth, latency=100)
    t.memory(LOCAL, local)
    t.register_file(V, 32, bytes=64)
    t.register_file(S, 32, bytes=4)
    t.queues("fetch", "send", depth=16)
    t.bundles(ls=2, mac=1, scalar=1, control="scalar", loops=4, branch=4)
    for kind in (i8, i16, i32):
        transfer(t, f"get_{kind}", "fetch", kind, DRAM, LOCAL)
        transfer(t, f"put_{kind}", "send", kind, LOCAL, DRAM)
        access(t, f"vld_{kind}", kind, LOCAL, V, 4)
        access(t, f"vst_{kind}", kind, V, LOCAL, 1)
    words(t)
    products(t)
    lanes(t)
    return t.build()


def transfer(t: TargetBuilder, name: str, queue: str, kind: DType, a: str, b: str) -> None:
    """Rows between memories, while bundles are issued."""
    wide = kind.bytes

    @t.instruction(queue, name=name)
    def move(
        src: view(kind[4096, 65536] @ a, "src_pitch"),
        dst: view(out(kind[4096, 65536] @ b), "dst_pitch"),
        rows: Range(1, 4096),
        size: Range(1, 65536),
        src_pitch: PITCH,
        dst_pitch: PITCH,
    ):
        for i, j in grid(rows, size):
            dst[i, j] = src[i, j]
        cost(setup=32, busy=rows, bytes=rows * size * wide, energy=20 * rows * size * wide)


def access(t: TargetBuilder, name: str, kind: DType, a: str, b: str, ready: int) -> None:
    """A vector register, or the first lanes of one, at any place of the local memory."""
    most = 64 // kind.bytes

    @t.instruction("ls", name=name)
    def move(src: kind[most] @ a, dst: out(kind[most] @ b), n: Range(1, most)):
        for i in range(n):
            dst[i] = src[i]
        cost(latency=ready, energy=60)


def words(t: TargetBuilder) -> None:
    """Four bytes that meet all lanes."""

    @t.instruction("ls")
    def lds(src: i8[4] @ LOCAL, dst: out(i8[4] @ S)):
        for i in range(4):
            dst[i] = src[i]
        cost(latency=4, energy=10)


def products(t: TargetBuilder) -> None:
    """64 products of bytes, added by fours to 16 sums; without `more` these begin anew."""

    @t.instruction("mac")
    def vdot(a: i8[16, 4] @ V, b: i8[16, 4] @ V, c: out(i32[16] @ V), more: flag):
        """Each lane's bytes with the other's."""
        for i in range(16):
            if more == 0:
                c[i] = 0
            for k in reduce(4):
                c[i] += cast(i32, a[i, k]) * cast(i32, b[i, k])
        cost(latency=3, energy=80)

    @t.instruction("mac")
    def vdots(a: i8[16, 4] @ V, b: i8[4] @ S, c: out(i32[16] @ V), more: flag):
        """Each lane's bytes with the same word."""
        for i in range(16):
            if more == 0:
                c[i] = 0
            for k in reduce(4):
                c[i] += cast(i32, a[i, k]) * cast(i32, b[k])
        cost(latency=3, energy=80)

    @t.instruction("mac")
    def vslide(a: i8[19] @ V, b: i8[4] @ S, c: out(i32[16] @ V), more: flag):
        """Four neighbours, from each byte on, with the same word: a window that slides."""
        for i in range(16):
            if more == 0:
                c[i] = 0
            for k in reduce(4):
                c[i] += cast(i32, a[i + k]) * cast(i32, b[k])
        cost(latency=3, energy=80)


def lanes(t: TargetBuilder) -> None:
    """64 bytes, each on its own; their sums fill four registers."""

    @t.instruction("mac")
    def vmac(a: i8[64] @ V, b: i8[64] @ V, c: out(i32[64] @ V), more: flag):
        for i in range(64):
            if more == 0:
                c[i] = 0
            c[i] += cast(i32, a[i]) * cast(i32, b[i])
        cost(latency=3, energy=80)

    @t.instruction("mac")
    def vadd(a: i32[16] @ V, b: i32[16] @ V, c: out(i32[16] @ V)):
        for i in range(16):
            c[i] = a[i] + b[i]
        cost(latency=2, energy=30)

    @t.instruction("mac")
    def vpack(a: i32[64] @ V, c: out(i8[64] @ V), n: LANES, by: Range(0, 31), low: BYTE):
        """Scaled down, and limited to bytes from `low` on."""
        for i in range(n):
            c[i] = cast(i8, max(min(a[i] >> cast(i32, by), 127), cast(i32, low)))
        cost(latency=2, energy=40)
