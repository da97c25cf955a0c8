"""A small chip with a matrix unit, whose queues wait for each other in all the ways there are."""

from collections.abc import Callable

from tilewright import cast, grid, i8, i32, reduce
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target

DRAM, SPAD, ACC = "dram", "spad", "acc"
ROWS, STEP = Range(1, 64), Range(0, 65535)


def _tokens(t: TargetBuilder) -> None:
    t.tokens(("load", "compute"), ("compute", "store"))


def _all_tokens(t: TargetBuilder) -> None:
    t.tokens(("load", "compute"), ("compute", "store"), ("load", "store"))


def _hub(t: TargetBuilder) -> None:
    """Load and compute can only wait for each other through store."""
    t.tokens(("load", "store"), ("compute", "store"))

    @t.instruction("store")
    def nothing():
        pass


def _none(t: TargetBuilder) -> None:
    pass


KINDS: dict[str, Callable[[TargetBuilder], None]] = {
    "tokens": _tokens,
    "tokens of all": _all_tokens,
    "hub": _hub,
    "events": lambda t: t.events(32),
    "few events": lambda t: t.events(2),
    "tokens and events": lambda t: (t.tokens(("load", "compute")), t.events(32)),
    "barriers": lambda t: t.barriers(),
    "tokens and barriers": lambda t: (t.tokens(("load", "compute")), t.barriers()),
    "interlock": lambda t: t.interlock(),
    "nothing": _none,
}


def chip(
    kind: str, spad: int = 64 << 10, depth: int = 64, issue: int = 1, banks: int = 1
) -> Target:
    """The chip with one of the KINDS of waits."""
    t = TargetBuilder("chip", clock=1e9)
    t.memory("dram", bandwidth=16, latency=64)
    t.memory("spad", spad, banks=banks)
    t.memory("acc", 64 << 10)
    load, compute, store = t.queues("load", "compute", "store", depth=depth)
    t.issue(issue)
    KINDS[kind](t)

    @t.instruction(load)
    def mvin(
        src: view(i8[64, 16] @ DRAM, "stride"),
        dst: out(i8[64, 16] @ SPAD),
        rows: ROWS,
        stride: STEP,
    ):
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * 16, energy=rows * 100)

    @t.instruction(compute)
    def gemm(a: i8[16, 16] @ SPAD, b: i8[16, 16] @ SPAD, c: out(i32[16, 16] @ ACC), more: flag):
        for i, j in grid(16, 16):
            if more == 0:
                c[i, j] = 0
            for k in reduce(16):
                c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
        cost(busy=16, latency=32, energy=4096)

    @t.instruction(store)
    def mvout(
        src: i32[64, 16] @ ACC,
        dst: view(out(i32[64, 16] @ DRAM), "stride"),
        rows: ROWS,
        stride: STEP,
    ):
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * 64)

    return t.build()
