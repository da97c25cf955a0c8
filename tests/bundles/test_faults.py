"""What is wrong is said: by the proof of bundles, by the machine, by what reads and places
operations, by descriptions. The whole texts."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from bundle_programs import KEPT, LANES, LOCAL, SIZE, M, V, small, whole

from tilewright.backends.bundles.check import check
from tilewright.backends.bundles.code import Code, Issue, LoopControl, Repeat
from tilewright.backends.bundles.fill_bundles import OutOfRegisters
from tilewright.backends.bundles.program import make_program
from tilewright.backends.bundles.run_bundles import Machine
from tilewright.backends.bundles.sections import Section
from tilewright.base.dtype import i8
from tilewright.base.errors import CompileError, TargetError
from tilewright.ir.expr import Buffer, Expr, Var, as_expr, const
from tilewright.ir.instruction import Region, axis
from tilewright.ir.loop import Alloc, Block, Call, For, If
from tilewright.target.describe import TargetBuilder
from tilewright.target.target import Target
from tilewright.targets import cpu

CHIP = small(ls=2, ready=3, done=2)
BY_NAME = {i.name: i for i in CHIP.instructions}
HOST = cpu.host(threads=1)
A = Buffer("A", i8, (KEPT * LANES,), V)
K = Var("k")
E0 = axis(0)


def ld(place: Expr | int, j: int) -> Call:
    return Call(BY_NAME["ld"], (Region(M, (as_expr(place) + E0,)), register(j)))


def st(j: int, place: Expr | int) -> Call:
    return Call(BY_NAME["st"], (register(j), Region(M, (as_expr(place) + E0,))))


def add(a: int, b: int, c: int) -> Call:
    return Call(BY_NAME["add"], (register(a), register(b), register(c)))


def register(j: int) -> Region:
    return Region(A, (E0 + LANES * j,))


def section(*body: Call | For, chip: Target = CHIP) -> Section:
    (found,) = make_program(whole(chip, (Alloc(A), *body)), chip).sections
    return found


STRAIGHT = section(ld(0, 0), ld(16, 1), add(0, 1, 2), st(2, 32))
LOOP = section(ld(0, 0), For(K, 9, (ld(K * 16, 1), add(0, 1, 0))), st(0, 32))
MEMORY = section(ld(0, 0), st(0, 32), ld(32, 1), st(1, 48))


def issues(code: Code) -> list[Issue]:
    return [x for b in code if isinstance(b, tuple) for x in b if isinstance(x, Issue)]


def without(code: Code, name: str) -> tuple[Code, Issue]:
    """The code, and the first operation of this name, which it has no more."""
    gone = next(x for x in issues(code) if x.operation.call.instruction.name == name)
    return tuple(tuple(x for x in b if x is not gone) if isinstance(b, tuple) else b
                 for b in code), gone  # fmt: skip


def put(code: Code, at: int, x: Issue | LoopControl) -> Code:
    bundle = code[at]
    assert isinstance(bundle, tuple)
    return (*code[:at], (*bundle, x), *code[at + 1 :])


def early(code: Code) -> Code:
    rest, gone = without(code, "add")
    return put(rest, 1, gone)


def other_register(code: Code) -> Code:
    rest, gone = without(code, "add")
    return put(rest, 3, replace(gone, registers=(gone.registers[0], 7, gone.registers[2])))


def meanwhile(code: Code) -> Code:
    rest, gone = without(code, "ld")
    target = next(x for x in issues(code) if x.operation.call.instruction.name == "add")
    return put(rest, 4, replace(gone, registers=(None, target.registers[2])))


def begin_again(code: Code) -> Code:
    return tuple(replace(x, count=x.count + 1) if isinstance(x, Repeat) else x for x in code)


def never_begun(code: Code) -> Code:
    return tuple(
        tuple(x for x in b if not isinstance(x, LoopControl)) if isinstance(b, tuple) else b
        for b in code
    )


FAULTS: dict[str, tuple[Section, Callable[[Code], Code], str]] = {
    "left out": (
        STRAIGHT,
        lambda code: without(code, "st")[0],
        "st (operation 3) is issued 0 of 1 times",
    ),
    "twice": (
        STRAIGHT,
        lambda code: put(code, 1, issues(code)[0]),
        "ld (operation 0) is issued twice",
    ),
    "too early": (
        STRAIGHT,
        early,
        (
            "add (operation 2) reads v0 at cycle 1, and the result of ld (operation 0) is there at "
            "cycle 3"
        ),
    ),
    "another register": (
        STRAIGHT,
        other_register,
        (
            "add (operation 2) reads v7 at cycle 3, which has the result of nothing, not of ld"
            " (operation 1)"
        ),
    ),
    "the slots": (
        STRAIGHT,
        lambda code: put(code, 3, LoopControl("loop", 2)),
        "cycle 3 has 2 operations in slot alu",
    ),
    "the end": (
        STRAIGHT,
        lambda code: code[:-1] + code[-1:] * 0,
        "st (operation 3) is issued 0 of 1 times",
    ),
    "a loop begun for nothing": (LOOP, never_begun, "nothing begins loop k of 8"),
    "a loop too often": (LOOP, begin_again, "nothing begins loop k of 9"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_bundles(name: str):
    given, change, text = FAULTS[name]
    assert check(given.body, given.code, CHIP) is None
    assert check(given.body, change(given.code), CHIP) == text


def reloaded(code: Code) -> Code:
    """The second load stands where the store does."""
    store = next(x for x in issues(code) if x.operation.call.instruction.name == "st")
    load = [x for x in issues(code) if x.operation.call.instruction.name == "ld"][1]
    moved = tuple(tuple(x for x in b if x is not load) for b in code if isinstance(b, tuple))
    return put(moved, next(i for i, b in enumerate(moved) if store in b), load)


def test_what_is_stored_must_be_there_to_be_loaded():
    assert check(MEMORY.body, reloaded(MEMORY.code), CHIP) == (
        "ld (operation 2) does not wait for st (operation 1), and both touch M"
    )


# ---------------------------------------------------------------- the machine


def run(code: Code, chip: Target = CHIP) -> None:
    memory = np.zeros(SIZE, np.uint8)
    program = make_program(whole(chip, (Alloc(A), ld(0, 0), st(0, 16))), chip)
    Machine(chip, HOST, {LOCAL: memory}, program.stream.places).run(code, {})


def test_the_machine_says_what_is_read_too_early():
    with pytest.raises(CompileError) as error:
        run(early(STRAIGHT.code))
    assert error.value.what == (
        "add (operation 2) reads byte 0 of v at cycle 1, and the result of ld (operation 0) is"
        " there at cycle 3"
    )


def test_the_machine_has_so_many_slots():
    with pytest.raises(CompileError) as error:
        run(put(STRAIGHT.code, 3, LoopControl("loop", 2)))
    assert error.value.what == (
        "the bundle of cycle 3 has 2 operations in slot alu, and there are 1"
    )


# ---------------------------------------------------------------- operations


def refused(*body: Call | For | If) -> CompileError:
    with pytest.raises(CompileError) as error:
        make_program(whole(CHIP, (Alloc(A), *body)), CHIP)
    return error.value


def test_registers_that_a_long_loop_tells_apart():
    """They have numbers only: loops over them are unrolled, whatever their length."""
    wide = Buffer("A", i8, (40 * LANES,), V)
    places = Region(wide, (K * LANES + E0,))
    memory = Region(M, (K * 8 + E0,))
    body: Block = (
        Alloc(wide),
        For(K, 40, (Call(BY_NAME["ld"], (memory, places)),)),
        For(K, 40, (Call(BY_NAME["st"], (places, memory)),)),
    )
    with pytest.raises(OutOfRegisters) as error:
        make_program(whole(CHIP, body), CHIP)
    assert error.value.what == ("A: i8[640] needs a register, and of the 16 of v 0 are free")


def test_an_iteration_that_needs_too_many():
    own = Buffer("P", i8, (18 * LANES,), V)
    place = Region(M, (K * 8 + E0,))
    registers = [Region(own, (E0 + LANES * j,)) for j in range(18)]
    loads = tuple(Call(BY_NAME["ld"], (place, r)) for r in registers)
    stores = tuple(Call(BY_NAME["st"], (r, place)) for r in registers)
    error = refused(ld(0, 0), For(K, 9, (Alloc(own), *loads, *stores)))
    assert isinstance(error, OutOfRegisters)
    assert error.what.startswith("no schedule of loop k with ")
    assert error.hint == "let an iteration do less"


def test_a_register_begins_where_it_begins():
    place = Region(A, (E0 + 8,))
    error = refused(Call(BY_NAME["ld"], (Region(M, (E0,)), place)))
    assert error.what == ("A[_0 + 8] fills registers of 16 bytes, and begins inside of one")


def test_conditions_belong_outside():
    inner = If(as_expr(K).equals(0), (ld(0, 0),))
    error = refused(ld(0, 0), For(K, 4, (inner, st(0, 16))))
    assert error.what == "a statement is left that no operation of a bundle does"


def test_registers_are_not_kept_while_transfers_are_started():
    again = Call(BY_NAME["get"], (Region(Buffer("X", i8, (SIZE,), "dram"), (E0,)),
                                  Region(M, (E0,))), (const(SIZE),))  # fmt: skip
    error = refused(ld(0, 0), again, st(0, 16))
    assert error.what == "A: i8[48] is in registers, and used behind a transfer"
    assert error.hint == "registers hold nothing while transfers are started: load it again"


# ---------------------------------------------------------------- descriptions


def described(**bundles: int) -> Target:
    t = TargetBuilder("odd", clock=1e9)
    t.memory(LOCAL, 4096)
    t.register_file(V, 4, bytes=16)
    t.queues("dma", depth=1)
    control = str(bundles.pop("control", "alu"))
    t.bundles(control=control, **bundles)
    return t.build()


@pytest.mark.parametrize(
    "bundles, text",
    [
        ({"alu": 0}, "odd: a bundle has 0 slots called alu\n  hint: alu=1 or more"),
        (
            {"dma": 1, "alu": 1},
            "odd: dma is a queue and a slot\n  hint: give each a name of its own",
        ),
        (
            {"alu": 1, "control": "go"},
            "odd: the control slot is 'go', which is no slot\n  hint: slots are alu",
        ),
        (
            {"alu": 1, "loops": -1},
            "odd: -1 hardware loops, and 1 cycles behind a branch\n  hint: 0 or more",
        ),
    ],
)
def test_descriptions_that_cannot_be(bundles: dict[str, int], text: str):
    with pytest.raises(TargetError) as error:
        described(**bundles)
    assert str(error.value) == text
