"""Dependences inside a queue, against times counted by hand; what the compiler keeps apart."""

import json

import pytest
from handmade_streams import stream_of

from tilewright import dims, grid, i8, u8
from tilewright.backends.stream.distances import check_distances
from tilewright.backends.stream.faults import FaultKind
from tilewright.backends.stream.stream import Stream
from tilewright.backends.stream.waits import no_waits, synchronise
from tilewright.base.errors import CompileError, TargetError
from tilewright.ir.python.words import out
from tilewright.sim.events import simulate
from tilewright.sim.timeline import REASONS, Timeline
from tilewright.target.describe import Range, TargetBuilder, cost, distance, read_instruction, state
from tilewright.target.target import Target
from tilewright.target.vary import with_costs

M, FAR = "m", "far"
SIZES = {M: 256, FAR: 256}


def machine(*, idle: bool = True, **fetch: int) -> Target:
    """One queue whose copies take 10 cycles, and 30 more until others know."""
    t = TargetBuilder("machine", clock=1e9)
    t.memory(M, 256)
    t.memory(FAR, 256, bandwidth=2, latency=50)
    t.queues("q", "r", depth=8)
    t.interlock()
    if fetch:
        t.fetch(FAR, **fetch)

    @t.instruction("q")
    def stalls(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10, latency=30)

    @t.instruction("q")
    def forwards(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10, latency=30, forward=15)

    @t.instruction("q")
    def exposes(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10, latency=30, exposed=15)

    @t.instruction("q")
    def config(scale: Range(0, 9)):
        cost(busy=1)

    @t.instruction("q")
    def scaled(a: u8[8] @ M, b: out(u8[8] @ M), scale: state(config, "scale")):
        for i in grid(8):
            b[i] = a[i]
        cost(busy=10, latency=30)

    @t.instruction("r")
    def brings(a: u8[8] @ FAR, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(setup=4, bytes={FAR: 20, M: 8})

    if idle:

        @t.instruction("q")
        def nothing():
            cost(busy=2)

    return t.build()


def stream(*rows: tuple, target: Target | None = None) -> Stream:
    """Instructions by name, from where to where."""
    return stream_of(target or machine(), [(name, {}, where) for name, *where in rows], SIZES)


def run(*rows: tuple, target: Target | None = None) -> Timeline:
    s = stream(*rows, target=target)
    return simulate(s, no_waits(s))


def test_a_queue_stalls_until_the_result_is_there():
    t = run(("stalls", 0, 8), ("stalls", 8, 16), ("stalls", 32, 40))
    assert t.begin.tolist() == [1, 41, 51]  # 1 + 10 + 30; the third reads nothing of theirs
    assert t.result.tolist() == [0, 30, 0]
    assert t.stalls["q"]["result"] == 30
    assert t.busy["q"] + sum(t.stalls["q"].values()) == t.cycles


def test_what_is_overwritten_stalls_nobody():
    t = run(("stalls", 0, 8), ("stalls", 16, 8), ("stalls", 32, 0))
    assert t.begin.tolist() == [1, 11, 21]


def test_a_result_is_forwarded():
    t = run(("forwards", 0, 8), ("stalls", 8, 16), ("forwards", 32, 40), ("stalls", 48, 56))
    assert t.begin.tolist() == [1, 16, 26, 36]


def test_the_last_writer_counts():
    """What the first one leaves is overwritten by the second, whose result is forwarded."""
    t = run(("stalls", 0, 8), ("forwards", 16, 8), ("stalls", 8, 32))
    assert t.begin.tolist() == [1, 11, 26]


def test_a_register_has_its_value_at_once():
    """However long what was begun before takes to be done."""
    rows = [
        ("stalls", {}, (0, 8)), ("config", {"scale": 3}, ()), ("scaled", {"scale": 3}, (32, 40)),
    ]  # fmt: skip
    s = stream_of(machine(), rows, SIZES)
    t = simulate(s, no_waits(s))
    assert t.begin.tolist() == [1, 11, 12]


def test_bytes_of_each_memory():
    """20 bytes at 2 a cycle of the far one; the near one has no limit."""
    t = run(("brings", 0, 8))
    assert (t.begin.tolist(), t.leave.tolist(), t.end.tolist()) == ([1], [15], [65])
    assert t.moved == {(FAR, M): 20}


def test_instructions_are_fetched():
    """Two at a time, 6 bytes at 2 a cycle each, 50 cycles away; room for two, so that the next two
    are fetched when those are in their queues."""
    target = machine(bytes=6, burst=2, ahead=2)
    t = run(("stalls", 0, 8), ("stalls", 16, 24), ("stalls", 32, 40), target=target)
    assert t.begin.tolist() == [57, 67, 112]  # 6 + 50 + 1; the third: 58 + 3 + 50 + 1
    assert t.stalls["q"]["issue"] == 57 + 35


def test_fetches_and_moves_share_the_bandwidth():
    alone = run(("brings", 0, 8), target=machine(bytes=100, burst=1, ahead=4))
    assert (alone.begin.tolist(), alone.leave.tolist()) == ([101], [115])
    both = run(("brings", 0, 8), ("brings", 8, 16), target=machine(bytes=100, burst=1, ahead=4))
    assert both.leave.tolist() == [115, 165]  # the second is fetched from 50 to 100


# ---------------------------------------------------------------- exposed results


def test_the_compiler_waits_for_exposed_results():
    """15 cycles after the first begins: 10 of its own, and three instructions of two."""
    done = synchronise(stream(("exposes", 0, 8), ("stalls", 8, 16)))
    names = [done.stream.sites[k].instruction.name for k in done.stream.site]
    assert names == ["exposes", "nothing", "nothing", "nothing", "stalls"]
    assert check_distances(done.stream, done.boxes) is None
    assert simulate(done.stream, done.waits).begin.tolist() == [1, 11, 13, 15, 17]


def test_what_stands_between_counts():
    done = synchronise(stream(("exposes", 0, 8), ("stalls", 32, 40), ("stalls", 8, 16)))
    assert len(done.stream) == 3


def test_an_exposed_result_that_is_read_too_early():
    fault = check_distances(stream(("exposes", 0, 8), ("stalls", 8, 16)))
    assert fault is not None
    assert (fault.kind, fault.rows) == (FaultKind.DISTANCE, (0, 1))
    assert str(fault) == (
        "instruction 1, stalls() of q, may begin 5 cycles before what it reads of instruction 0, "
        "exposes() of q, is there, and machine does not wait"
    )


def test_nothing_to_put_between():
    with pytest.raises(CompileError) as error:
        synchronise(stream(("exposes", 0, 8), ("stalls", 8, 16), target=machine(idle=False)))
    assert str(error.value) == (
        "instruction 1, stalls() of q, comes too soon behind instruction 0, exposes() of q, whose "
        "results it reads, and machine has nothing to put between them\n"
        "  hint: describe an instruction of q that does nothing (`pass`), and takes a cycle: "
        "cost(busy=1)"
    )


def test_what_does_nothing_may_be_set_up():
    """2 cycles of its setup, and 1 of its own."""
    t = TargetBuilder.extend(machine(idle=False), "machine")

    @t.instruction("q")
    def nothing():
        cost(setup=2, busy=1)

    done = synchronise(stream(("exposes", 0, 8), ("stalls", 8, 16), target=t.build()))
    assert len(done.stream) == 4
    assert simulate(done.stream, done.waits).begin.tolist() == [1, 11, 14, 17]


def test_each_queue_is_late_by_itself():
    """What is put before the second one makes the third late, but not that of the other queue."""
    rows = [("exposes", 0, 8), ("stalls", 8, 16), ("exposes", 0, 8), ("brings", 0, 64)]
    rows += [("exposes", 32, 40), ("stalls", 8, 16), ("stalls", 40, 48)]
    done = synchronise(stream(*rows))
    names = [done.stream.sites[k].instruction.name for k in done.stream.site]
    assert names == [
        "exposes", *["nothing"] * 3, "stalls", "exposes", "brings", "exposes",
        "stalls", "stalls",
    ]  # fmt: skip
    assert check_distances(done.stream, done.boxes) is None


def test_an_exposed_result_that_is_never_there():
    far = with_costs(machine(), "exposed", lambda term: 1 << 40, ["exposes"])
    with pytest.raises(CompileError) as error:
        synchronise(stream(("exposes", 0, 8), ("stalls", 8, 16), target=far))
    assert str(error.value) == (
        "instruction 1, stalls() of q, must begin 1,099,511,627,766 cycles later for what it reads "
        "of instruction 0, exposes() of q: more than 1,048,576 instructions that do nothing\n"
        "  hint: correct the cost of exposes, exposed=…, or describe one that does nothing for "
        "longer"
    )


def test_a_register_that_takes_longer_is_still_there_at_once():
    slow = with_costs(machine(), "latency", lambda term: term + 100)
    rows = [
        ("stalls", {}, (0, 8)), ("config", {"scale": 3}, ()), ("scaled", {"scale": 3}, (32, 40)),
    ]  # fmt: skip
    s = stream_of(slow, rows, SIZES)
    assert simulate(s, no_waits(s)).begin.tolist() == [1, 11, 112]  # 1 + 100 of its own


def test_a_trace_has_all_stalls(tmp_path):
    t = run(("stalls", 0, 8), ("stalls", 8, 16))
    assert t.stalls_before(1) == dict.fromkeys(list(REASONS)[:-1], 0) | {"result": 30}
    t.perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    stalled = [e["args"].get("stalled: result") for e in events if e["ph"] == "X"]
    assert stalled == [None, 30]


# ---------------------------------------------------------------- distances

I, J = dims("I J", max=64)


def summing() -> Target:
    t = TargetBuilder("summing", clock=1e9)
    t.memory(M, 256)
    t.queues("q", depth=8)

    @t.instruction("q")
    def add(a: u8[64, 64] @ M, b: out(u8[64] @ M), n: Range(1, 64), m: Range(1, 64)):
        for i, j in grid(n, m):
            b[j] += a[i, j]
        distance(b=3)
        cost(busy=n * m)

    return t.build()


def test_an_element_is_touched_again_too_soon():
    rows = [("add", {"n": 4, "m": 3}, (0, 128)), ("add", {"n": 4, "m": 2}, (0, 128))]
    fault = check_distances(stream_of(summing(), rows, SIZES))
    assert fault is not None
    assert (fault.kind, fault.rows) == (FaultKind.DISTANCE, (1,))
    assert str(fault) == (
        "instruction 1, add(n=4, m=2) of q, comes back to an element of b after 2 of its "
        "iterations, and needs 3"
    )
    once = [("add", {"n": 1, "m": 2}, (0, 128))]
    assert check_distances(stream_of(summing(), once, SIZES)) is None


def of_nothing(a: u8[8], b: out(u8[8])):
    for i in grid(8):
        b[i] = a[i]
    distance(a=3)


def of_no_number(a: u8[8], b: out(u8[8])):
    for i in grid(8):
        b[i] = a[i]
    distance(b=I)


def of_both(a: u8[8], b: out(u8[8])):
    for i in grid(8):
        b[i] = a[i]
    cost(forward=3, exposed=4)


def of_no_memory(a: u8[8], b: out(u8[8])):
    for i in grid(8):
        b[i] = a[i]
    cost(bytes={3: 8})


MOVED, TERMS = {M: 8}, {"busy": 3}


def of_an_unknown_memory(a: u8[8], b: out(u8[8])):
    cost(bytes={nowhere: 8})  # noqa: F821


def of_memories_unpacked(a: u8[8], b: out(u8[8])):
    cost(bytes={**MOVED})


def of_no_memories(a: u8[8], b: out(u8[8])):
    cost(bytes={})


def of_a_memory_twice(a: u8[8], b: out(u8[8])):
    cost(bytes={M: 8, "m": 9})


def of_bytes_twice(a: u8[8], b: out(u8[8])):
    cost(bytes=7)
    cost(bytes={"m": 8})


def of_busy_twice(a: u8[8], b: out(u8[8])):
    cost(busy=1)
    cost(busy=2)


def of_no_term(a: u8[8], b: out(u8[8])):
    cost(16)


def of_terms_unpacked(a: u8[8], b: out(u8[8])):
    cost(**TERMS)


def of_no_cost(a: u8[8], b: out(u8[8])):
    cost()


def of_no_operand(a: u8[8], b: out(u8[8])):
    distance(3)


def of_no_distance(a: u8[8], b: out(u8[8])):
    distance()


def of_true(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        b[i] = 0
    distance(b=True)


def of_none(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        b[i] = 0
    distance(b=1 - 1)


def of_one_twice(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        b[i] = 0
    distance(b=3)
    distance(b=5)


def of_too_many(b: out(u8[8]), n: Range(1, 8)):
    for i in grid(n):
        b[i] = 0
    distance(b=1025)


COST, BYTES = cost.form, 'bytes={"dram": 64, "spad": 16}'
REFUSED = {
    of_nothing: ("a is no operand that is written", "of_nothing writes b"),
    of_no_number: ("I is no distance", "a number of iterations: distance(c=3)"),
    of_both: (
        "a result is forwarded and exposed",
        "forward=… if the chip makes others wait for it, exposed=… if the compiler does",
    ),
    of_no_memory: ("3 is no memory's name", BYTES),
    of_an_unknown_memory: ("nowhere is the name of nothing here", BYTES),
    of_memories_unpacked: ("MOVED is no memory and bytes", BYTES),
    of_no_memories: ("bytes of no memory", BYTES),
    of_a_memory_twice: ("bytes of 'm' are said twice", BYTES),
    of_bytes_twice: ("bytes is said twice", f"say it once: {COST}"),
    of_busy_twice: ("busy is said twice", f"say it once: {COST}"),
    of_no_term: ("16 is said of nothing", COST),
    of_terms_unpacked: ("TERMS is no name and value", f"write it out: {COST}"),
    of_no_cost: ("cost() says nothing", f"{COST}, or leave it out"),
    of_no_operand: ("3 is said of nothing", "distance(c=3)"),
    of_no_distance: ("distance() says nothing", "distance(c=3), or leave it out"),
    of_true: ("True is no distance", "a number of iterations: distance(c=3)"),
    of_none: ("1 - 1 is no distance", "a number of iterations: distance(c=3)"),
    of_one_twice: ("b is said twice", "say it once: distance(c=3)"),
    of_too_many: ("a distance of 1,025 iterations", "distances from 1 to 1,024 are judged"),
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_is_refused(function):
    with pytest.raises(CompileError) as error:
        read_instruction(function)
    what, hint = REFUSED[function]
    assert error.value.what.split(": ", 1)[1] == what
    assert error.value.hint == hint


def test_a_distance_is_arithmetic():
    def adds(b: out(u8[8]), n: Range(1, 8)):
        for i in grid(n):
            b[i] = 0
        distance(b=2 * FEW + 1)

    FEW = 2
    assert read_instruction(adds).distances == (("b", 5),)


def test_bytes_of_a_memory_without_an_operand():
    t = TargetBuilder("odd", clock=1e9)
    t.memory(M, 256)
    t.queues("q", depth=1)

    @t.instruction("q")
    def copy(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]
        cost(bytes={"flash": 8})

    with pytest.raises(TargetError) as error:
        t.build()
    assert str(error.value) == (
        "odd: instruction copy moves bytes of 'flash', where no operand lies\n"
        "  hint: its operands are in m"
    )


def test_bytes_of_an_operand_that_may_lie_anywhere():
    def described(memory: str) -> TargetBuilder:
        t = TargetBuilder("any", clock=1e9)
        t.memory("dram")
        t.memory(M, 256)
        t.queues("q", depth=1)

        @t.instruction("q")
        def copy(a: u8[8], b: out(u8[8] @ M)):
            for i in grid(8):
                b[i] = a[i]
            cost(bytes={memory: 8})

        return t

    described("dram").build()
    with pytest.raises(TargetError) as error:
        described("drum").build()
    assert str(error.value) == (
        "any: instruction copy moves bytes of 'drum', which is no memory\n"
        "  hint: did you mean 'dram'?"
    )


@pytest.mark.parametrize(
    "memory, facts, text",
    [
        (
            "dran", {"bytes": 4},
            ("machine: instructions are fetched from 'dran', which is no memory\n"
             "  hint: did you mean 'dram'?"),
        ),
        (
            "dram", {"bytes": 4, "burst": 8, "ahead": 4},
            ("machine: instructions are fetched with 4 bytes, 8 at a time, with room for 4\n"
             "  hint: at least 1 byte each, and room for a burst: fetch(…, bytes=16, burst=8, "
             "ahead=64)"),
        ),
        *(
            (
                "dram", {"bytes": 4, **facts},
                (f"machine: instructions are fetched with {what}\n"
                 "  hint: whole numbers from 1 on, and room for a burst: fetch(…, bytes=16, "
                 "burst=8, ahead=64)"),
            )
            for facts, what in (
                ({"bytes": "4"}, "'4' bytes, 1 at a time, with room for 64"),
                ({"bytes": 1.5}, "1.5 bytes, 1 at a time, with room for 64"),
                ({"bytes": True}, "True bytes, 1 at a time, with room for 64"),
                ({"bytes": 0}, "0 bytes, 1 at a time, with room for 64"),
                ({"ahead": None}, "4 bytes, 1 at a time, with room for None"),
                ({"burst": 2.5}, "4 bytes, 2.5 at a time, with room for 64"),
            )
        ),
    ],
)  # fmt: skip
def test_fetches_that_are_refused(memory: str, facts: dict, text: str):
    t = TargetBuilder("machine", clock=1e9)
    t.memory("dram")
    t.queues("q", depth=1)
    t.fetch(memory, **facts)
    with pytest.raises(TargetError) as error:
        t.build()
    assert str(error.value) == text


# ---------------------------------------------------------------- large costs

A, B, C, D, E = dims("A B C D E", max=65535)


def huge() -> Target:
    t = TargetBuilder("huge", clock=1e9)
    t.memory(M, bandwidth=1)
    t.queues("q", depth=1)

    @t.instruction("q")
    def fill(b: out(i8[A, B, C, D, E] @ M)):
        for a, b_, c, d, e in grid(A, B, C, D, E):
            b[a, b_, c, d, e] = 0
        cost(busy=A * B * C * D * E, bytes=A)

    return t.build()


def test_costs_beyond_64_bits_are_refused_not_wrong():
    fields = dict.fromkeys("ABCDE", 65535)
    s = stream_of(huge(), [("fill", fields, (0,))], {})
    with pytest.raises(CompileError) as error:
        simulate(s, no_waits(s))
    assert str(error.value) == (
        f"busy of fill is {65535**5:,}\n"
        f"  hint: costs from 0 to {1 << 53:,} are simulated: correct the description"
    )
    ones = {**fields, "D": 1, "E": 1}
    s = stream_of(huge(), [("fill", ones, (0,))], {})
    assert simulate(s, no_waits(s)).cycles == 65535**3 + 1
