"""Random chips with matrix units, for kernels that are built: latencies to 1,000, banks, operands
that come on any queue, results that stall, are forwarded or exposed, several units."""

from dataclasses import dataclass, replace

import numpy as np

from tilewright import cast, grid, i8, i32, kernel, local, reduce
from tilewright.ir.expr import maximum
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Kernel
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target

LATENCIES = (0, 1, 8, 64, 300, 1000)
HAZARDS = ("stall", "forward", "exposed")
COUNTED = ("rows", "rows", "in pairs", "not", "by memory")
DRAM, LEFT, RIGHT, ACC = "dram", "left", "right", "acc"


@dataclass(frozen=True)
class Facts:
    """What is drawn of a chip."""

    mesh: int
    queues: tuple[str, str, str, str]  # of loads of the left, of the right; of the unit; of stores
    latency: int  # of the unit
    memory: int  # of DRAM
    load: int  # of loads, besides
    hazard: str  # of the unit
    after: int
    setup: int
    bus: int
    near: int | None
    banks: int
    units: tuple[int, ...]  # how many times as long each takes
    issue: int
    waits: str
    fetch: bool
    clears: bool  # whether the unit can begin sums; else there is an instruction that clears
    moves: str  # how the bytes of a load are counted: COUNTED
    varies: bool  # whether the unit's latency is least in the middle of what its field can be
    ends: bool  # whether an instruction ends the stream


def random_facts(rng: np.random.Generator) -> Facts:
    def one(*values):
        return values[rng.integers(len(values))]

    names = one(
        ("load", "load", "compute", "store"),
        ("left", "right", "compute", "store"),
        ("compute", "load", "compute", "store"),
        ("compute", "compute", "compute", "store"),
        ("load", "load", "compute", "load"),
        ("all", "all", "all", "all"),
    )
    latency = one(*LATENCIES)
    return Facts(
        mesh=one(4, 8, 16), queues=names, latency=latency, memory=one(*LATENCIES),
        load=one(0, 0, 5, 100), hazard=one(*HAZARDS), after=one(0, 3, 20, latency),
        setup=one(0, 4, 50), bus=one(1, 8, 64), near=one(None, None, 4, 32), banks=one(1, 1, 2, 4),
        units=one((1,), (1,), (1, 1), (3, 1)), issue=one(0, 1, 5),
        waits=one("interlock", "tokens", "events", "barriers"), fetch=one(True, False),
        clears=one(True, False), moves=one(*COUNTED), varies=one(False, False, True),
        ends=one(True, False),
    )  # fmt: skip


def chip_of(f: Facts) -> Target:
    """The chip with these facts."""
    t = TargetBuilder("random", clock=1e9)
    mesh = f.mesh
    t.memory(DRAM, bandwidth=f.bus, latency=f.memory)
    t.memory(LEFT, 16 << 10, bandwidth=f.near, banks=f.banks)
    t.memory(RIGHT, 16 << 10, bandwidth=f.near)
    t.memory(ACC, 16 << 10, banks=f.banks)
    names = list(dict.fromkeys(f.queues))
    t.queues(*names, depth=8)
    if f.waits == "tokens" and len(names) > 1:
        t.tokens(*((a, b) for k, a in enumerate(names) for b in names[k + 1 :]))
    elif f.waits == "events":
        t.events(48)
    elif f.waits == "barriers":
        t.barriers()
    else:
        t.interlock()
    t.issue(f.issue)
    if f.fetch:
        t.fetch(DRAM, bytes=8, burst=4, ahead=16)
    FAR, ROWS = Range(0, 65535), dims("ROWS", max=32)
    moves = ((LEFT, f.queues[0]), (RIGHT, f.queues[1]))
    for memory, queue in moves:

        @t.instruction(queue, name=f"load_{memory}")
        def load(
            src: view(i8[ROWS, mesh] @ DRAM, "far"), dst: out(i8[ROWS, mesh] @ memory), far: FAR
        ):
            for i, j in grid(ROWS, mesh):
                dst[i, j] = src[i, j]
            cost(setup=f.setup, busy=ROWS, latency=f.load)

    for number, times in enumerate(f.units):
        _describe_unit(t, f, f"{number}", times)
    if not f.clears:

        @t.instruction(f.queues[2])
        def clear(dst: out(i32[ROWS, mesh] @ ACC)):
            for i, j in grid(ROWS, mesh):
                dst[i, j] = 0
            cost(busy=ROWS, latency=f.latency)

    @t.instruction(f.queues[3])
    def store(src: i32[ROWS, mesh] @ ACC, dst: view(out(i32[ROWS, mesh] @ DRAM), "far"), far: FAR):
        for i, j in grid(ROWS, mesh):
            dst[i, j] = src[i, j]
        cost(setup=f.setup, bytes=4 * ROWS * max(4, mesh))

    for queue in names:

        @t.instruction(queue, name=f"nothing_{queue}")
        def nothing():
            cost(busy=1)

    if f.ends:

        @t.instruction(names[-1])
        def finish():
            cost(busy=1)

        t.end(finish)
    target = t.build()
    return replace(target, instructions=tuple(_costed(i, f) for i in target.instructions))


def _costed(i: Instruction, f: Facts) -> Instruction:
    """The instruction with the bytes of a load; with the unit's latency, and with what the unit's
    queue does with its results."""
    if i.name.startswith("load"):
        rows = i.field("ROWS").symbol
        memory = i.operands[-1].memory
        count = {
            "rows": {DRAM: rows * max(16, f.mesh), memory: rows * max(16, f.mesh)},
            "in pairs": {DRAM: rows // 2 * 2 * f.mesh, memory: rows * f.mesh},
            "not": {DRAM: 0, memory: 0},
            "by memory": {DRAM: rows * 64, memory: rows * f.mesh},
        }[f.moves]
        return i.with_(cost=i.cost.with_(through=tuple(count.items())))
    if not i.name.startswith("gemm"):
        return i
    hazard = {} if f.hazard == "stall" else {f.hazard: f.after}
    rows = i.field("ROWS").symbol
    far = maximum(rows - 8, 8 - rows) * f.latency if f.varies else f.latency
    return i.with_(cost=i.cost.with_(latency=far, **hazard))


def _describe_unit(t: TargetBuilder, f: Facts, name: str, times: int) -> None:
    mesh = f.mesh
    ROWS = dims("ROWS", max=32)
    if f.clears:

        @t.instruction(f.queues[2], name=f"gemm_{name}")
        def begin_or_add(
            a: i8[ROWS, mesh] @ LEFT, b: i8[mesh, mesh] @ RIGHT, c: out(i32[ROWS, mesh] @ ACC),
            more: flag,
        ):  # fmt: skip
            for i, j in grid(ROWS, mesh):
                if more == 0:
                    c[i, j] = 0
                for k in reduce(mesh):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
            cost(busy=times * ROWS, latency=f.latency)

    else:

        @t.instruction(f.queues[2], name=f"gemm_{name}")
        def add(a: i8[ROWS, mesh] @ LEFT, b: i8[mesh, mesh] @ RIGHT, c: out(i32[ROWS, mesh] @ ACC)):
            for i, j in grid(ROWS, mesh):
                for k in reduce(mesh):
                    c[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
            cost(busy=times * ROWS, latency=f.latency)


def gemm_of(m: int, n: int, k: int) -> Kernel:
    @kernel
    def gemm(A: i8[m, k], B: i8[k, n], C: i32[m, n]):
        total = local(i32[m, n])
        for i, j in grid(m, n):
            total[i, j] = 0
            for d in reduce(k):
                total[i, j] += cast(i32, A[i, d]) * cast(i32, B[d, j])
        for i, j in grid(m, n):
            C[i, j] = total[i, j]

    return gemm.kernel
