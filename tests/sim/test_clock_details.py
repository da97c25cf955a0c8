"""Times that few streams show, counted by hand: ends, the last burst, several sites of a setter,
transfers of static chips, cycles that do not fit; uops that come back too soon."""

from dataclasses import replace

import numpy as np
import pytest
import vta_machine as v
from handmade_streams import stream_of

from tilewright import grid, u8
from tilewright.backends.bundles.program import run_timed
from tilewright.backends.bundles.sections import CORE
from tilewright.backends.stream.decode import decode
from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import no_waits, synchronise
from tilewright.base.errors import CompileError
from tilewright.ir.python.words import out
from tilewright.sim.events import simulate
from tilewright.target.describe import Range, TargetBuilder, cost, state
from tilewright.target.target import Target
from tilewright.targets.vta import vta

M, FAR = "m", "far"


def machine(*queues: str, bandwidth: float = 60, burst: int = 0, ends: bool = False) -> Target:
    t = TargetBuilder("machine", clock=1e9)
    t.memory(M, 256)
    t.memory(FAR, 256, bandwidth=bandwidth)
    t.queues(*queues, depth=4096)
    if burst:
        t.fetch(FAR, bytes=1, burst=burst, ahead=burst)

    @t.instruction("q")
    def copies(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10, latency=30)

    @t.instruction("q")
    def far(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10, forward=100)

    @t.instruction("q")
    def near(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10, forward=15)

    @t.instruction("q")
    def both(a: u8[24] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i] + a[i + 16]
        cost(busy=10)

    @t.instruction("q")
    def brings(a: u8[8] @ FAR, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(bytes=1024)

    @t.instruction("q")
    def config(scale: Range(0, 9)):
        cost(busy=1, latency=20)

    @t.instruction("q")
    def scaled(a: u8[8] @ M, b: out(u8[8] @ M), scale: state(config, "scale")):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10)

    @t.instruction("q")
    def forever(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=1 << 53)

    if ends:

        @t.instruction("q")
        def finish():
            cost(busy=1)

        t.end(finish)
    return t.build()


def stream(target: Target, *rows: tuple) -> Stream:
    return stream_of(target, list(rows), {M: 256, FAR: 256})


def begins(s: Stream) -> list[int]:
    return simulate(s, no_waits(s)).begin.tolist()


def test_the_end_waits_for_its_own_queue():
    done = synchronise(stream(machine("q", ends=True), ("copies", {}, (0, 8))))
    t = simulate(done.stream, done.waits)
    assert t.begin.tolist() == [1, 41]
    assert t.cycles == 42


def test_a_last_burst_takes_the_time_of_its_bytes():
    """33 bytes at 60 a cycle are there after one."""
    target = machine("q", burst=64)
    s = stream(target, *[("copies", {}, (0, 128))] * 33)
    assert begins(s)[0] == 1 + 1
    assert begins(stream(target, *[("copies", {}, (0, 128))] * 64))[0] == 2 + 1


def test_results_are_forwarded_in_the_order_of_the_queue():
    """What `near` forwards after 15 cycles is behind what `far` does after 100."""
    rows = ("far", {}, (0, 64)), ("near", {}, (0, 80)), ("both", {}, (64, 120))
    assert begins(stream(machine("q"), *rows)) == [1, 11, 101]
    static = stream(machine("q", CORE), *rows)
    assert run_timed(static, [[] for _ in static.sites]).begin.tolist() == [1, 11, 101]


def test_every_site_of_a_setter_counts():
    rows = [("config", {"scale": 3}, ()), ("scaled", {"scale": 3}, (0, 8))]
    rows += [("config", {"scale": 4}, ()), ("scaled", {"scale": 4}, (32, 40))]
    one = stream(machine("q"), *rows)
    again = replace(one.sites[0], call=one.sites[0].call.with_())
    two = replace(one, sites=(*one.sites, again), site=np.array([0, 1, 2, 1], np.int32))
    assert begins(two) == begins(one) == [1, 22, 32, 53]


def test_cycles_that_do_not_fit():
    """2**63 would be negative in 64 bits."""
    s = stream(machine("q"), *[("forever", {}, (0, 8))] * 1024)
    with pytest.raises(CompileError) as caught:
        simulate(s, no_waits(s))
    assert str(caught.value) == (
        "the stream's 1,024 instructions take up to 9.22e+18 cycles\n"
        "  hint: 4.61e+18 are simulated: correct the description's costs"
    )


def test_the_slowest_memory_there_is():
    s = stream(machine("q", bandwidth=2**-20), ("brings", {}, (0, 8)))
    assert simulate(s, no_waits(s)).cycles == 1 + (1024 << 20)


@pytest.mark.parametrize(
    "opcode, factors, values",
    [
        (v.GEMM, v.FACTORS, {}),
        (v.ALU_CODE, v.ALU, {"op": v.ADD}),
        (v.ALU_CODE, v.ALU, {"op": v.ADD, "use_imm": 1}),
    ],
)
def test_two_uops_may_not_write_one_accumulator(opcode: int, factors: str, values: dict):
    """Neither of the two before one may, whatever VTA's instruction is."""
    dram = np.zeros(1 << 16, np.uint8)
    uops = [v.assemble(v.UOP, dst=3, src=1), v.assemble(v.UOP, dst=3, src=2)]
    dram[1 << 15 : (1 << 15) + 8] = np.array(uops, "<u4").view(np.uint8)
    words = [
        v.assemble(v.MOVE, memory_type=v.UOPS, dram_base=(1 << 15) // 4),
        v.assemble(v.SIZES, y_size=1, x_size=2, x_stride=2),
        v.assemble(v.LOOPS, opcode=opcode, uop_end=2, iter_out=1, iter_in=1),
        v.assemble(factors, **values),
        v.assemble(v.HEAD, opcode=v.FINISH),
        0,
    ]
    target = vta()
    sizes = {m.name: m.size or 1 << 16 for m in target.memories}
    s = decode(target, np.array(words, "<u8"), sizes=sizes, memories={"dram": dram}).stream
    assert "comes back to an element of dst after 1 of its iterations, and needs 3" in str(
        check_distances(s)
    )
