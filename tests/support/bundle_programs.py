"""Small statically scheduled chips, and random programs of their operations."""

from hypothesis import strategies as st

from tilewright.base.dtype import i8
from tilewright.ir.expr import Buffer, Expr, Var, as_expr, const
from tilewright.ir.instruction import Region, axis
from tilewright.ir.loop import Alloc, Block, Call, For, Kernel
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost
from tilewright.target.target import Target

DRAM, LOCAL, V = "dram", "local", "v"
SIZE = 512  # bytes of local memory that programs use
LANES = 16


def small(
    ls: int = 1, alu: int = 1, ready: int = 3, done: int = 2, busy: int = 1, loops: int = 2
) -> Target:
    """Loads and stores of 16 bytes, sums and products of bytes, and a window over two registers,
    of which one is begun every `busy` cycles."""
    t = TargetBuilder("small", clock=1e9)
    t.memory(DRAM, bandwidth=8, latency=20)
    t.memory(LOCAL, 4096)
    t.register_file(V, 16, bytes=LANES)
    t.queues("dma", depth=4)
    t.bundles(ls=ls, alu=alu, control="alu", loops=loops, branch=2)

    @t.instruction("dma")
    def get(src: i8[4096] @ DRAM, dst: out(i8[4096] @ LOCAL), n: Range(1, 4096)):
        for i in range(n):
            dst[i] = src[i]
        cost(setup=8, bytes=n, energy=10 * n)

    @t.instruction("dma")
    def put(src: i8[4096] @ LOCAL, dst: out(i8[4096] @ DRAM), n: Range(1, 4096)):
        for i in range(n):
            dst[i] = src[i]
        cost(setup=8, bytes=n, energy=10 * n)

    @t.instruction("ls")
    def ld(src: i8[16] @ LOCAL, dst: out(i8[16] @ V)):
        for i in range(16):
            dst[i] = src[i]
        cost(latency=ready, energy=3)

    @t.instruction("ls")
    def st(src: i8[16] @ V, dst: out(i8[16] @ LOCAL)):
        for i in range(16):
            dst[i] = src[i]
        cost(latency=1, energy=3)

    @t.instruction("alu")
    def add(a: i8[16] @ V, b: i8[16] @ V, c: out(i8[16] @ V)):
        for i in range(16):
            c[i] = a[i] + b[i]
        cost(latency=done, energy=2)

    @t.instruction("alu")
    def mac(a: i8[16] @ V, b: i8[16] @ V, c: out(i8[16] @ V)):
        for i in range(16):
            c[i] += a[i] * b[i]
        cost(latency=done, energy=4)

    @t.instruction("alu")
    def window(a: i8[17] @ V, c: out(i8[16] @ V)):
        for i in range(16):
            c[i] = a[i] + a[i + 1]
        cost(busy=busy, latency=done + 1, energy=4)

    return t.build()


X, Y = Buffer("X", i8, (SIZE,), DRAM), Buffer("Y", i8, (SIZE,), DRAM)
M = Buffer("M", i8, (SIZE,), LOCAL)
KEPT, OWN = 3, 2  # registers that a program keeps, and that each iteration has


def whole(target: Target, body: Block) -> Kernel:
    """A kernel that does something to an array in local memory."""
    by_name = {i.name: i for i in target.instructions}
    all_of = axis(0)
    get = Call(by_name["get"], (Region(X, (all_of,)), Region(M, (all_of,))), (const(SIZE),))
    put = Call(by_name["put"], (Region(M, (all_of,)), Region(Y, (all_of,))), (const(SIZE),))
    return Kernel("random", (X,), (Y,), (Alloc(M), get, *body, put))


@st.composite
def programs(draw: st.DrawFn, target: Target) -> Kernel:
    """Loops over loads, stores and arithmetic, on registers that are kept and some that each
    iteration has anew; places in memory move with the loops, and may wrap."""
    return whole(target, draw(_Bodies(target).body()))


class _Bodies:
    def __init__(self, target: Target) -> None:
        self.by_name = {i.name: i for i in target.instructions}
        self.kept = Buffer("A", i8, (KEPT * LANES,), V)
        self.spare = Buffer("S", i8, (LANES,), V)  # for what has no other place
        self.count = 0

    def body(self) -> st.SearchStrategy[Block]:
        @st.composite
        def make(draw: st.DrawFn) -> Block:
            start = tuple(
                self.call("ld", self.memory(const(LANES * j)), self.register(self.kept, j))
                for j in range(KEPT)
            )
            middle = draw(self.loops(()))
            if draw(st.booleans()):
                middle = (*middle, *draw(self.loops(())))
            if draw(st.booleans()):
                outer = self.variable()
                middle = (For(outer, draw(st.integers(1, 3)), draw(self.loops((outer,)))),)
            end = tuple(
                self.call("st", self.register(self.kept, j), self.memory(const(64 * j)))
                for j in range(KEPT)
            )
            spare = self.call("ld", self.memory(const(0)), self.register(self.spare, 0))
            body = (*start, spare, *middle, *end)
            if draw(st.booleans()):
                body = (*body, self.call("st", self.register(self.spare, 0), self.memory(const(9))))
            return (Alloc(self.kept), Alloc(self.spare), *body)

        return make()

    def loops(self, around: tuple[Var, ...]) -> st.SearchStrategy[Block]:
        @st.composite
        def make(draw: st.DrawFn) -> Block:
            var, own = self.variable(), Buffer(f"P{self.count}", i8, (OWN * LANES,), V)
            loops = (*around, var)
            body: list[Call] = []
            for j in range(OWN):
                place = draw(self.places(loops))
                body.append(self.call("ld", self.memory(place), self.register(own, j)))
            body += draw(st.lists(self.operation(own, loops), min_size=1, max_size=6))
            before = draw(st.lists(self.operation(self.kept, around), max_size=2))
            loop = For(var, draw(st.integers(1, 14)), (Alloc(own), *body))
            return (*before, loop)

        return make()

    def variable(self) -> Var:
        self.count += 1
        return Var(f"k{self.count}")

    def operation(self, own: Buffer, loops: tuple[Var, ...]) -> st.SearchStrategy[Call]:
        @st.composite
        def make(draw: st.DrawFn) -> Call:
            def register() -> Region:
                buffer = draw(st.sampled_from([self.kept, own]))
                return self.register(buffer, draw(st.integers(0, buffer.shape[0] // LANES - 1)))

            name = draw(st.sampled_from(["ld", "st", "add", "mac", "window"]))
            if name == "ld":
                return self.call(name, self.memory(draw(self.places(loops))), register())
            if name == "st":
                return self.call(name, register(), self.memory(draw(self.places(loops))))
            if name == "window":
                first = draw(st.integers(0, LANES - 1))
                other = self.spare if own == self.kept else self.kept
                result = self.register(other, draw(st.integers(0, other.shape[0] // LANES - 1)))
                return self.call(name, Region(own, (axis(0) + first,)), result)
            return self.call(name, register(), register(), register())

        return make()

    def places(self, loops: tuple[Var, ...]) -> st.SearchStrategy[Expr]:
        """The first of 16 bytes in memory."""

        @st.composite
        def make(draw: st.DrawFn) -> Expr:
            place: Expr = const(draw(st.integers(0, 10)) * 8)
            for var in loops:
                place = place + var * draw(st.sampled_from([0, 8, 16, 24]))
            if draw(st.integers(0, 4)) == 0:
                place = as_expr(place) % 128
            return place

        return make()

    def memory(self, place: Expr) -> Region:
        return Region(M, (place + axis(0),))

    def register(self, buffer: Buffer, j: int) -> Region:
        return Region(buffer, (axis(0) + LANES * j,))

    def call(self, name: str, *regions: Region) -> Call:
        return Call(self.by_name[name], regions)
