"""What encodings refuse, in full: in the description, in a stream, in words."""

import re

import numpy as np
import pytest

from tilewright import grid, i8
from tilewright.backends.stream.decode import decode
from tilewright.backends.stream.disassemble import disassemble
from tilewright.backends.stream.encode import encode, encode_entries
from tilewright.backends.stream.rows import Rows, stream_of_rows
from tilewright.backends.stream.waits import Waits
from tilewright.base.errors import CompileError, TargetError
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, view
from tilewright.target.encoding import (
    address,
    at,
    bits,
    constant,
    end_entry,
    field,
    first_entry,
    pad,
    pop,
    push,
)
from tilewright.target.target import Target

ROWS, STEP = Range(1, 64), Range(0, 65535, multiple=16)
FIT = (
    constant(1, 4), pop("other"), push("other"), address("src", 20), address("dst", 8),
    field("rows", 6, minus=1), at(64), field("step", 12, unit=16),
)  # fmt: skip


def chip(*parts, other=None, unit: int = 16) -> Target:
    """A copy into a memory of 4 KiB; `other` are the bits of a second instruction."""
    t = TargetBuilder("chip", clock=1e9)
    t.memory("dram", unit=4)
    t.memory("spad", 4 << 10, unit=unit)
    load, also = t.queues("load", "other", depth=8)
    t.tokens((load, also))

    @t.instruction(load, encoding=bits(96, parts or FIT))
    def copy(
        src: view(i8[64, 16] @ "dram", "step"),
        dst: out(i8[64, 16] @ "spad"),
        rows: ROWS,
        step: STEP,
    ):
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]

    @t.instruction(also, encoding=other)
    def clear(dst: out(i8[16] @ "spad")):
        for i in grid(16):
            dst[i] = 0

    return t.build()


def refusal(action) -> str:
    """The words of the error, without the folder and line of the description."""
    with pytest.raises((TargetError, CompileError)) as error:
        action()
    return re.sub(r"^\S*/(\w+\.py):\d+: ", r"\1: ", str(error.value))


# ---------------------------------------------------------------- in the description

NO_FIT = "the encoding of copy of chip does not fit: "
UNKNOWN = "test_encode_refused.py: the encoding of copy: "


def nothing(target: Target) -> np.ndarray:
    """An empty stream, encoded."""
    return encode(stream_of_rows(target, Rows.empty(target, np.zeros(0, np.int64)), {}))


CASES = [
    (
        lambda: bits(12, constant(1, 4)),
        "an encoding has 12 bits: not whole bytes",
    ),
    (
        lambda: nothing(chip(FIT[:6], pad(30), FIT[6:])),
        (
            f"{NO_FIT}the parts before bit 64 take 70 bits\n"
            "  hint: they are constant 4, pop other 1, push other 1, the address of src 20, "
            "the address of dst 8, rows 6, padding 30"
        ),
    ),
    (
        lambda: nothing(chip(FIT, pad(21))),
        (
            f"{NO_FIT}its 96 bits have parts of 97\n"
            "  hint: they are constant 4, pop other 1, push other 1, the address of src 20, "
            "the address of dst 8, rows 6, padding 24, step 12, padding 21"
        ),
    ),
    (
        lambda: bits(16, field("a", 4), field("a", 4)),
        "an encoding has two parts for field a",
    ),
    (
        lambda: bits(16, pop("load"), pop("load")),
        "an encoding has two parts for pop load",
    ),
    (
        lambda: constant(9, 3),
        "constant(9, 3): 3 bits hold 0 … 7\n  hint: give it 4 bits",
    ),
    (lambda: field("a", 65), "field('a', 65): a part has 1 … 64 bits"),
    (lambda: field("a", 6, unit=0), "field('a', 6): its unit is 0, and must be at least 1"),
    (lambda: pad(0), "pad(0): a part has at least one bit"),
    (
        lambda: bits(16, 3),
        (
            "3 is no part of an encoding\n"
            "  hint: parts: constant, field, address, pop, push, awaits, sets, barrier, "
            "first_entry, end_entry, pad, at"
        ),
    ),
    (
        lambda: nothing(chip(FIT[:5], FIT[6:])),
        (f'{NO_FIT}field rows (1 … 64) has no bits\n  hint: add field("rows", 7)'),
    ),
    (
        lambda: nothing(chip(FIT[:5], field("rows", 6), FIT[6:])),
        (
            f"{NO_FIT}field rows goes from 1 to 64, "
            "and its 6 bits hold 0 … 63\n"
            "  hint: give it 7 bits, or store it with minus=1, or limit it to what fits"
        ),
    ),
    (
        lambda: nothing(chip(FIT[:5], field("rows", 7, signed=True), FIT[6:])),
        (
            f"{NO_FIT}field rows goes from 1 to 64, "
            "and its 7 bits hold -64 … 63\n"
            "  hint: give it 8 bits, signed, or limit it to what fits"
        ),
    ),
    (
        lambda: nothing(chip(FIT[:-1], field("step", 11, unit=32))),
        (
            f"{NO_FIT}field step is stored in units "
            "of 32, and may be multiples of 16\n  hint: limit it: Range(0, 65535, multiple=32)"
        ),
    ),
    (
        lambda: nothing(chip(FIT[:4], address("dst", 7), FIT[5:])),
        (
            f"{NO_FIT}the address of dst in spad "
            "(4096 bytes) needs 8 bits, and its 7 bits hold 0 … 2032 in steps of 16\n"
            "  hint: widen it, or limit spad to 2048 bytes"
        ),
    ),
    (
        lambda: nothing(chip(FIT, field("cols", 4), address("out", 3), pop("store"))),
        (
            f"{UNKNOWN}it has no field called 'cols'; "
            "it has no operand called 'out'; it has no queue called 'store'\n"
            "  hint: known: rows, step; known: src, dst; known: load, other"
        ),
    ),
    (
        lambda: nothing(chip(FIT, first_entry(4))),
        (
            f"{UNKNOWN}it has no list of "
            "micro-operations\n  hint: leave out the first entry of the list"
        ),
    ),
]


@pytest.mark.parametrize("make, error", CASES)
def test_encodings_that_cannot_be(make, error: str):
    assert refusal(make) == error


def listed(*parts, entry=None) -> Target:
    """A chip whose only instruction of note goes by lists of at most 64 entries."""
    t = TargetBuilder("listed", clock=1e9)
    t.memory("acc", 4 << 10)
    t.memory("uop", 128)
    (queue,) = t.queues("compute", depth=8)
    uops = t.micro_ops("uop", encoding=bits(16, address("dst", 12) if entry is None else entry))
    (n,) = (dims("n", max=64),)

    @t.instruction(queue, encoding=bits(32, parts))
    def clear(dst: view(out(i8[n, 16] @ "acc"), uops)):
        for i, j in grid(n, 16):
            dst[i, j] = 0

    return t.build()


@pytest.mark.parametrize(
    "parts, entry, error",
    [
        ((end_entry(7),), None, ("it does not say where its list of micro-operations begins\n"
         "  hint: add first_entry(…)")),
        ((first_entry(5), end_entry(6)), None,
         ("the first entry of the list in uop (128 bytes) goes to 63, and its 5 bits hold "
         "0 … 31; "
         "the end of the list in uop (128 bytes) goes to 64, and its 6 bits hold 0 … 63\n"
         "  hint: widen it to 6 bits, or make uop smaller; "
         "widen it to 7 bits, or make uop smaller")),
        ((first_entry(6), end_entry(7), address("dst", 12)), None,
         ("the address of dst comes from a list\n"
         "  hint: leave it out: it stands in the micro-operations")),
        ((first_entry(6),), None, "field n (1 … 64) has no bits\n  hint: add field(\"n\", 7)"),
        ((first_entry(6), end_entry(7)), address("a", 12),
         "a micro-operation has no bits for the address of dst\n  hint: add address(\"dst\", …)"),
        ((first_entry(6), end_entry(7)), address("dst", 11),
         ("the address of dst in acc (4096 bytes) needs 12 bits, and its 11 bits hold 0 … 2047\n"
         "  hint: widen it, or limit acc to 2048 bytes")),
    ],
)  # fmt: skip
def test_lists_that_cannot_be(parts, entry, error: str):
    build = "comes from a list" in error
    place = "test_encode_refused.py: the encoding of clear: "
    place = place if build else "the encoding of clear of listed does not fit: "
    assert refusal(lambda: nothing(listed(*parts, entry=entry))) == place + error
    assert len(nothing(listed(first_entry(6), end_entry(7)))) == 0


def test_two_instructions_of_one_name():
    def twice():
        t = TargetBuilder("chip", clock=1e9)
        for _ in range(2):

            @t.instruction()
            def nothing(a: out(i8[4])):
                for i in grid(4):
                    a[i] = 0

    assert refusal(twice) == (
        "test_encode_refused.py: there is an instruction called nothing already\n"
        '  hint: give it another name: @t.instruction(…, name="…")'
    )


# ---------------------------------------------------------------- in a stream


def rows_of(target: Target, kind: int, fields=(), addresses=(), n: int = 3) -> Rows:
    rows = Rows.empty(target, np.full(n, kind))
    rows.fields[:, : len(fields)] = fields
    rows.addresses[:, : len(addresses)] = addresses
    return rows


@pytest.mark.parametrize(
    "row, error",
    [
        (
            (1, 16, 4 << 20, 0),
            (
                "copy, instruction 2: the address of src is 4194304, and its 20 bits hold "
                "0 … 4194300 in steps of 4\n"
                "  hint: give it more bits or a larger unit, or make the memory smaller"
            ),
        ),
        (
            (1, 16, 1026, 0),
            (
                "copy, instruction 2: the address of src is 1026, and its 20 bits hold "
                "0 … 4194300 in steps of 4\n  hint: it is stored in units of 4 bytes"
            ),
        ),
        (
            (1, 16, 0, 24),
            (
                "copy, instruction 2: the address of dst is 24, and its 8 bits hold "
                "0 … 4080 in steps of 16\n  hint: it is stored in units of 16 bytes"
            ),
        ),
        ((65, 16, 0, 0), "copy, instruction 2: rows is 65, and goes from 1 to 64"),
        (
            (1, 24, 0, 0),
            "copy, instruction 2: step is 24, and goes from 0 to 65535 in steps of 16",
        ),
    ],
)
def test_numbers_that_do_not_fit(row, error: str):
    target = chip(other=bits(32, constant(2, 4), address("dst", 8)))
    rows = rows_of(target, 0, (1, 16))
    rows.fields[2, :2], rows.addresses[2, :2] = row[:2], row[2:]
    assert refusal(lambda: encode(stream_of_rows(target, rows, {}))) == error


def test_what_has_no_bits():
    target = chip(other=bits(32, constant(2, 4)))
    none, one = np.zeros(3, np.uint32), np.array([0, 1, 0], np.uint32)
    stream = stream_of_rows(target, rows_of(target, 1), {})
    assert encode(stream).tolist() == [2, 2, 2]
    for waits, error in (
        (Waits(one, none), ('it waits for load, and the encoding has no bits for that\n'
         '  hint: add pop("load") to it')),
        (Waits(none, one), ('it gives load a token, and the encoding has no bits for that\n'
         '  hint: add push("load") to it')),
    ):  # fmt: skip
        assert refusal(lambda w=waits: encode(stream, w)) == f"clear, instruction 1: {error}"
    placed = stream_of_rows(target, rows_of(target, 1, (), (16,)), {})
    assert refusal(lambda: encode(placed)) == (
        "clear, instruction 0: operand dst lies at 16, and the encoding has no bits for that\n"
        '  hint: add address("dst", …) to it'
    )


def test_no_encoding():
    target = chip()
    stream = stream_of_rows(target, rows_of(target, 0, (1, 16)), {})
    assert refusal(lambda: encode(stream)) == (
        "clear of chip has no encoding\n"
        "  hint: say its bits: @t.instruction(…, encoding=bits(128, …))"
    )
    assert refusal(lambda: encode_entries(target, target.instructions[1], np.zeros((1, 1)))) == (
        "the micro-operations of clear have no encoding\n"
        "  hint: say their bits: t.micro_ops(memory, encoding=bits(32, …))"
    )


# ---------------------------------------------------------------- in words


def test_words_that_are_no_instruction():
    target = chip(other=bits(32, constant(2, 4), address("dst", 8)))
    rows = rows_of(target, 0, (7, 32), (64, 32))
    rows.kinds[1] = 1
    rows.fields[1], rows.addresses[1] = 0, (48, 0)
    words = encode(stream_of_rows(target, rows, {}))
    assert words.dtype == np.uint32
    assert len(words) == 3 + 1 + 3
    found = decode(target, words, sizes={}).stream
    np.testing.assert_array_equal(found.addresses, rows.addresses)
    for at_, value in ((3, 0xF), (0, 0x3)):
        broken = words.copy()
        broken[at_] = value
        assert refusal(lambda w=broken: decode(target, w)) == (
            f"word {at_}, 0x{value:08x}, begins no instruction of chip"
        )
    assert refusal(lambda: decode(target, words[:-1])) == (
        f"word 4, 0x{words[4]:08x}, begins no instruction of chip"
    )


def test_fields_that_have_more_bits_than_values():
    target = chip(FIT[:5], field("rows", 8), FIT[6:], other=bits(32, constant(2, 4)))
    words = encode(stream_of_rows(target, rows_of(target, 0, (64, 32), n=1), {}))
    words[1] |= 1 << 34 - 32  # rows begin at bit 34
    assert refusal(lambda: decode(target, words)) == (
        "copy, instruction 0: rows is 65, and goes from 1 to 64"
    )


def test_instructions_that_cannot_be_told_apart():
    target = chip(other=bits(32, pad(4), address("dst", 8)))
    assert refusal(lambda: decode(target, np.zeros(3, np.uint32))) == (
        "copy and clear of chip cannot be told apart\n"
        "  hint: give them constants that differ, at the same bits"
    )


# ---------------------------------------------------------------- as text


def test_disassembly():
    target = chip(other=bits(32, constant(2, 4), address("dst", 8)))
    rows = rows_of(target, 0, (7, 32), (1600, 32))
    rows.kinds[1] = 1
    rows.fields[1], rows.addresses[1] = 0, (48, 0)
    stream = stream_of_rows(target, rows)
    waits = Waits(np.array([0, 1, 2], np.uint32), np.array([2, 1, 0], np.uint32))
    assert list(disassemble(stream, waits)) == [
        "#  queue  takes  gives  instruction",
        "0  load          other  copy   src=dram[0x640] dst=spad[0x020] rows=7 step=32",
        "1  other  load   load   clear  dst=spad[0x030]",
        "2  load   other         copy   src=dram[0x640] dst=spad[0x020] rows=7 step=32",
    ]  # fmt: skip
    assert next(iter(disassemble(stream))).split() == [
        "#",
        "queue",
        "takes",
        "gives",
        "instruction",
    ]
