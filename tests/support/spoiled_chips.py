"""A small chip without a fault, and ways to spoil it."""

from tilewright import cast, grid, i8, i32, reduce
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.encoding import address, bits, constant, field, pop, push
from tilewright.target.target import Target

DRAM, SPAD, ACC = "dram", "spad", "acc"
BESIDE = {"load": (None, "compute"), "compute": ("load", "store"), "store": ("compute", None)}


def code(queue: str, opcode: int, *parts, tokens: bool = True):
    """64 bits: an opcode, four bits for tokens, and the rest."""
    waits = [token(q) for token in (pop, push) for q in BESIDE[queue]] if tokens else ()
    return bits(64, constant(opcode, 4), waits, parts)


class Chip:
    """The description in parts: `build` makes those that are not left out or replaced."""

    memories = (("dram", None), ("spad", 4096), ("acc", 4096))
    queues = ("load", "compute", "store")
    tokens = (("load", "compute"), ("compute", "store"))
    encoded = True

    def build(self) -> Target:
        t = TargetBuilder("chip", clock=1e9)
        for name, size in self.memories:
            t.memory(name, size, bandwidth=16 if name == "dram" else None)
        if self.queues:
            t.queues(*self.queues, depth=4)
        t.tokens(*self.tokens)
        for name in ("load", "compute", "store"):
            getattr(self, name)(t)
        return t.build()

    def encoding(self, queue: str, opcode: int, *parts):
        return code(queue, opcode, *parts) if self.encoded else None

    def load(self, t: TargetBuilder) -> None:
        moved = address("src", 20), address("dst", 12), field("rows", 6, minus=1), field("step", 8)

        @t.instruction("load", encoding=self.encoding("load", 0, moved))
        def mvin(
            src: view(i8[64, 4] @ DRAM, "step"),
            dst: out(i8[64, 4] @ SPAD),
            rows: Range(1, 64),
            step: Range(0, 255),
        ):
            for i, j in grid(rows, 4):
                dst[i, j] = src[i, j]
            cost(setup=4, bytes=4 * rows)

    def compute(self, t: TargetBuilder) -> None:
        places = address("a b c", 12), field("more", 1)

        @t.instruction("compute", encoding=self.encoding("compute", 1, places))
        def gemm(a: i8[4, 4] @ SPAD, b: i8[4, 4] @ SPAD, c: out(i32[4, 4] @ ACC), more: flag):
            for i, j in grid(4, 4):
                if more == 0:
                    c[i, j] = 0
                for k in reduce(4):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
            cost(busy=4, latency=4)

    def store(self, t: TargetBuilder) -> None:
        moved = address("src", 12), address("dst", 20), field("rows", 6, minus=1), field("step", 8)

        @t.instruction("store", encoding=self.encoding("store", 2, moved))
        def mvout(
            src: i32[64, 4] @ ACC,
            dst: view(out(i32[64, 4] @ DRAM), "step"),
            rows: Range(1, 64),
            step: Range(0, 255),
        ):
            for i, j in grid(rows, 4):
                dst[i, j] = src[i, j]
            cost(setup=4, bytes=16 * rows)
