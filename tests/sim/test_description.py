"""What a description says of queues and their waits, and what is refused."""

import pytest

from tilewright import grid, u8
from tilewright.base.errors import TargetError
from tilewright.ir.kernel_words import out
from tilewright.target.describe import TargetBuilder, cost

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
