"""What a description says of queues and their waits, and what is refused."""

from dataclasses import replace

import pytest

from tilewright import grid, u8
from tilewright.base.errors import TargetError
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost
from tilewright.target.vary import twice, with_costs

M = "m"


def begun() -> TargetBuilder:
    t = TargetBuilder("chip", clock=1e9)
    t.memory("m", 1024)
    t.queues("a", "b", depth=8)
    return t


def refused(t: TargetBuilder) -> str:
    with pytest.raises(TargetError) as error:
        t.build()
    return str(error.value)


def test_nothing_is_said():
    target = begun().build()
    assert (target.interlock, target.events, target.barriers, target.issue) == (False, 0, False, 1)


def test_a_chip_is_no_processor():
    target = begun().build()
    with pytest.raises(TargetError) as error:
        _ = target.llvm
    assert str(error.value) == "chip runs streams of instructions, and no machine code"
    with pytest.raises(TargetError) as error:
        _ = target.vectors
    assert str(error.value) == "chip has no vector unit"


def test_everything_is_said():
    t = begun()
    t.events(16)
    t.barriers()
    t.tokens(("a", "b"))
    t.issue(7)
    target = t.build()
    assert (target.events, target.barriers, target.tokens) == (16, True, (("a", "b"),))
    assert target.issue == 7


def test_an_interlock_is_alone():
    for other in (lambda t: t.tokens(("a", "b")), lambda t: t.events(3), lambda t: t.barriers()):
        t = begun()
        t.interlock()
        other(t)
        assert refused(t) == (
            "chip: an interlock, and other ways to wait as well\n"
            "  hint: leave out tokens, events and barriers: the chip does not need them"
        )


def test_tokens_are_for_queues():
    t = begun()
    t.tokens(("a", "c"))
    assert refused(t) == ("chip: tokens of 'c', which is no queue\n  hint: queues are a, b")
    t = begun()
    t.tokens(("a", "a"))
    assert refused(t) == (
        "chip: queue a has tokens for itself\n  hint: a queue runs in order: leave the pair out"
    )


def test_queues_have_names_and_room():
    t = begun()
    t.queues("a", depth=8)
    assert refused(t) == "chip: two queues are called a\n  hint: give each a name of its own"
    t = begun()
    t.queues("c", depth=0)
    assert refused(t) == "chip: queue c holds 0 instructions\n  hint: depth=1 or more"
    t = begun()
    t.queues(*(f"q{k}" for k in range(15)), depth=1)
    assert refused(t) == "chip: 17 queues, and at most 16 are simulated"


def test_numbers_of_events_and_cycles():
    for count in (-1, 65):
        t = begun()
        t.events(count)
        assert refused(t) == f"chip: {count} events, and 0 to 64 are simulated"
    t = begun()
    t.issue(-2)
    assert refused(t) == "chip: an instruction is issued in -2 cycles\n  hint: issue(0) or more"


def test_instructions_run_on_queues():
    t = begun()

    @t.instruction("c")
    def copy(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]

    assert refused(t) == (
        "chip: instruction copy runs on 'c', which is no queue\n  hint: queues are a, b"
    )


def test_banks_are_equal_parts():
    for size, banks in ((1024, 3), (None, 2), (1024, 0)):
        t = begun()
        t.memory("n", size, banks=banks)
        assert refused(t) == (
            f"chip: memory n has {banks} banks of {size} bytes together\n"
            "  hint: banks are equal parts of a memory of known size"
        )
    t = begun()
    for k in range(3):
        t.memory(f"n{k}", 1024, banks=32)
    assert refused(t) == "chip: 96 banks, and at most 64 are simulated"


def test_an_instruction_that_does_nothing():
    t = begun()

    @t.instruction("a")
    def nothing():
        """Only waits."""
        cost(busy=1)

    @t.instruction("b")
    def copy(a: u8[8] @ M, b: out(u8[8] @ M)):
        for i in grid(8):
            b[i] = a[i]

    target = t.build()
    assert [i.is_idle for i in target.instructions] == [True, False]
    assert target.idle("a") == target.instructions[0]
    assert target.idle("b") is None


def test_an_instruction_knows_its_lines():
    t = begun()

    @t.instruction("a")
    def copy(a: u8[8] @ M, b: out(u8[8] @ M)):
        """A docstring."""
        for i in grid(8):
            b[i] = a[i]
        cost(busy=1)

    found = t.build().instructions[0]
    assert found.file == __file__
    first = found.lines[0]
    with open(__file__) as file:
        lines = file.read().split("\n")
    assert lines[first - 1].strip().startswith("def copy")
    assert [n - first for n in found.lines] == [0, 2, 3]


# ---------------------------------------------------------------- memories


@pytest.mark.parametrize("latency", [(1 << 63) - 1, 1 << 63, 2.5, -5, True, "64", None])
def test_latencies_of_memories_are_whole(latency):
    t = begun()
    t.memory("n", latency=latency)
    assert refused(t) == (
        f"chip: memory n has a latency of {latency!r} cycles\n"
        "  hint: a whole number from 0 to 9,007,199,254,740,992"
    )


@pytest.mark.parametrize("bandwidth", [0, -1, 1e-17, float("inf"), float("nan"), True, "16"])
def test_bandwidths_of_memories_are_numbers(bandwidth):
    t = begun()
    t.memory("n", bandwidth=bandwidth)
    assert refused(t) == (
        f"chip: memory n has a bandwidth of {bandwidth!r} bytes a cycle\n"
        "  hint: a number from 1/1,048,576 on; leave it out for no limit"
    )


# ---------------------------------------------------------------- ends


def ending() -> TargetBuilder:
    """Three queues; programs end on the first."""
    t = begun()
    t.queues("c", depth=8)
    for queue in "abc":

        @t.instruction(queue, name=f"copy_{queue}")
        def copy(src: u8[8] @ M, dst: out(u8[8] @ M)):
            for i in grid(8):
                dst[i] = src[i]

    @t.instruction("a")
    def finish():
        cost(busy=1)

    t.end(finish)
    return t


def test_what_ends_a_program_is_changed_with_the_others():
    t = ending()
    t.events(4)
    target = t.build()
    slow = with_costs(target, "busy", twice)
    for chip, busy in ((target, 1), (slow, 2)):
        assert chip.end == chip.instruction("finish")
        assert chip.end.cost.busy == busy
        assert chip.idle("a") is None
    assert TargetBuilder.extend(slow, "more").build().end == slow.end


def test_what_ends_a_program_can_wait_for_all():
    t = ending()
    t.tokens(("a", "b"))
    assert refused(t) == (
        "chip: programs end with finish of a, which nothing links to c\n"
        "  hint: it waits for all queues: describe tokens of a and each, or events, or barriers; "
        "or end with an instruction of a queue that has them"
    )
    t = ending()
    t.tokens(("a", "b"), ("b", "c"))
    assert refused(t).startswith("chip: programs end with finish of a, which nothing links to c\n")

    @t.instruction("b")
    def relay():
        cost(busy=1)

    assert t.build().waits_for("a") == {"a", "b", "c"}
    for link in (lambda t: t.events(4), lambda t: t.barriers(), lambda t: t.interlock()):
        t = ending()
        link(t)
        assert t.build().end is not None


def test_what_ends_a_program_is_the_chips_own():
    other = ending()
    other.barriers()
    for given, shown in ((other.build().end, "finish"), ("finish", "'finish'")):
        t = begun()
        with pytest.raises(TargetError) as error:
            t.end(given)
        what = error.value.what.split(": ", 1)
        assert what[1] == f"{shown} is no instruction of chip"
        assert what[0].startswith(__file__)
        assert error.value.hint == "t.end(…) takes one that is declared above it: none"
    with pytest.raises(TargetError) as error:
        replace(other.build(), ends_with="finnish")
    assert str(error.value) == (
        "chip: programs end with 'finnish', which is no instruction\n  hint: did you mean 'finish'?"
    )


def test_what_ends_a_program_does_nothing():
    def of_fields(n: Range(3, 4)):
        cost(busy=n)

    def of_operands(src: u8[8] @ M):
        cost(busy=1)

    def of_a_meaning(dst: out(u8[8] @ M), n: Range(3, 4)):
        for i in grid(n):
            dst[i] = 0

    for function, has in ((of_fields, "fields"), (of_operands, "operands"),
                          (of_a_meaning, "operands")):  # fmt: skip
        t = begun()
        t.end(t.instruction("a")(function))
        assert refused(t) == (
            f"chip: programs end with {function.__name__}, which has {has}\n"
            "  hint: what ends a program does nothing: def finish(): cost(busy=1)"
        )
    t = begun()

    @t.instruction()
    def nowhere():
        pass

    t.end(nowhere)
    assert refused(t) == (
        "chip: programs end with nowhere, which runs on no queue\n  hint: queues are a, b"
    )


# ---------------------------------------------------------------- bundles


def test_bundles_are_issued_not_fetched():
    def bundled() -> TargetBuilder:
        t = begun()
        t.register_file("v", 4, bytes=16)
        t.bundles(scalar=1, control="scalar")
        return t

    bundled().build()
    t = bundled()
    t.fetch("m", bytes=4)
    assert refused(t) == (
        "chip: bundles, and instructions that are fetched from m\n"
        "  hint: leave out t.fetch(…): a bundle is issued in every cycle, wherever it comes from"
    )
    t = bundled()

    @t.instruction("a")
    def finish():
        pass

    t.end(finish)
    assert refused(t) == (
        "chip: bundles, and programs that end with finish\n"
        "  hint: leave out t.end(…): a program of bundles ends with its last bundle"
    )
