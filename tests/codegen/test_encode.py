"""Encodings: VTA's layouts bit by bit, random ones both ways, and what is refused."""

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
from byte_kernels import gemm
from hypothesis import given, settings
from hypothesis import strategies as st
from vta_machine import ALU, FACTORS, HEAD, LOOPS, MOVE, SIZES, UOP, assemble

from tilewright import cast, grid, i8, i32
from tilewright.backends.stream.bits import pack, unpack
from tilewright.backends.stream.decode import decode
from tilewright.backends.stream.disassemble import disassemble
from tilewright.backends.stream.encode import encode, encode_entries
from tilewright.backends.stream.micro_ops import place_lists
from tilewright.backends.stream.registers import place_settings
from tilewright.backends.stream.rows import Rows, stream_of_rows
from tilewright.backends.stream.waits import Waits
from tilewright.base.errors import CompileError, TargetError
from tilewright.chip import build_chip
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.instruction import Field, Instruction
from tilewright.ir.python.kernel import KernelFunction, kernel
from tilewright.ir.python.words import local, out, reduce
from tilewright.sim.data import DataEngine
from tilewright.target.describe import Range, TargetBuilder, state, view
from tilewright.target.encoding import (
    Carries,
    address,
    ambiguous,
    awaits,
    barrier,
    bits,
    constant,
    field,
    pad,
    pop,
    push,
    sets,
)
from tilewright.target.encoding_faults import fit_faults, name_faults
from tilewright.target.packed import packed_encoding
from tilewright.target.target import Memory, Queue, Target
from tilewright.targets import cpu
from tilewright.targets.conv_engine import conv_engine
from tilewright.targets.gemmini import gemmini
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

VTA = vta()
DRAM = "dram"

# ---------------------------------------------------------------- VTA's layouts


def one(instruction: str, addresses=(), first=-1, entries=None, **fields: int):
    """The two words of one instruction of VTA, which waits for every queue that it can."""
    number = [i.name for i in VTA.instructions].index(instruction)
    rows = Rows.empty(VTA, np.array([number]))
    for c, f in enumerate(VTA.instructions[number].fields):
        rows.fields[0, c] = fields.pop(f.name)
    assert not fields
    rows.addresses[0, : len(addresses)] = addresses
    rows.lists[0] = first
    if entries is not None:
        rows.entries[0] = np.array(entries)
    queue = VTA.instructions[number].queue
    beside = {"load": 0b010, "compute": 0b101, "store": 0b010}[queue]
    both = np.array([beside], np.uint32)
    words = encode(stream_of_rows(VTA, rows, {}), Waits(both, both))
    return [int(w) for w in words]


FROM_LOAD = {"pop_next": 1, "push_next": 1}
FROM_COMPUTE = {"pop_prev": 1, "pop_next": 1, "push_prev": 1, "push_next": 1}
FROM_STORE = {"pop_prev": 1, "push_prev": 1}


@pytest.mark.parametrize(
    "name, kind, element, tokens",
    [
        ("load_inp", 2, 16, FROM_LOAD),
        ("load_wgt", 1, 256, FROM_LOAD),
        ("load_acc", 3, 64, FROM_COMPUTE),
        ("load_acc8", 5, 16, FROM_COMPUTE),
    ],
)
def test_loads_of_vta(name: str, kind: int, element: int, tokens):
    number = element // 4 if kind == 3 else element  # elements that a step of x_stride is
    held = 64 if kind == 5 else element  # bytes of an element there
    found = one(name, (77 * element, 19 * held), Y=12, X=34, far=1000 * number)
    head = assemble(MOVE, **tokens, memory_type=kind, sram_base=19, dram_base=77)
    assert found == [head, assemble(SIZES, y_size=12, x_size=34, x_stride=1000)]


def test_loads_of_vta_that_pad():
    pads = {"UP": 1, "DOWN": 2, "LEFT": 3, "RIGHT": 15}
    found = one("load_padded", (77 * 16, 19 * 16), Y=12, X=34, far=1000 * 16, **pads)
    head = assemble(MOVE, **FROM_LOAD, memory_type=2, sram_base=19, dram_base=77)
    around = {"y_pad_0": 1, "y_pad_1": 2, "x_pad_0": 3, "x_pad_1": 15}
    assert found == [head, assemble(SIZES, y_size=12, x_size=34, x_stride=1000, **around)]


def test_the_end_of_a_program_of_vta():
    assert one("finish") == [assemble(HEAD, opcode=3, **FROM_COMPUTE), 0]


def test_loads_of_micro_operations_of_vta():
    found = one("load_uop", (4 * 123456, 4 * 99), U=500)
    head = assemble(MOVE, **FROM_COMPUTE, memory_type=0, sram_base=99, dram_base=123456)
    assert found == [head, assemble(SIZES, y_size=1, x_size=500)]


def test_stores_of_vta():
    found = one("store_rows", (64 * 2047, 16 * 5), Y=65535, X=1, far=16 * 65535)
    head = assemble(MOVE, opcode=1, **FROM_STORE, memory_type=4, sram_base=2047, dram_base=5)
    assert found == [head, assemble(SIZES, y_size=65535, x_size=1, x_stride=65535)]


def test_the_matrix_unit_of_vta():
    steps = {"dst_i": 16 * 2047, "dst_j": 16, "src_i": 32, "src_j": 48, "wgt_i": 0, "wgt_j": 512}
    found = one("gemm", (), 8000, [[64, 16, 256]] * 192, I=16383, J=3, U=192, **steps)
    loops = {"uop_bgn": 8000, "uop_end": 8192, "iter_out": 16383, "iter_in": 3}
    factors = {"dst_out": 2047, "dst_in": 1, "src_out": 2, "src_in": 3, "wgt_in": 2}
    head = assemble(LOOPS, opcode=2, **FROM_COMPUTE, **loops)
    assert found == [head, assemble(FACTORS, **factors)]
    found = one("clear", (), 7, [[64], [128]], I=1, J=2, U=2, dst_i=16, dst_j=32)
    loops = {"uop_bgn": 7, "uop_end": 9, "iter_out": 1, "iter_in": 2}
    head = assemble(LOOPS, opcode=2, reset=1, **FROM_COMPUTE, **loops)
    assert found == [head, assemble(FACTORS, dst_out=1, dst_in=2)]


@pytest.mark.parametrize("op, name", list(enumerate(["min", "max", "add", "shr", "mul"])))
def test_the_alu_of_vta(op: int, name: str):
    loops = {"uop_bgn": 0, "uop_end": 1, "iter_out": 5, "iter_in": 6}
    head = assemble(LOOPS, opcode=4, **FROM_COMPUTE, **loops)
    steps = {"dst_i": 16, "dst_j": 32}
    found = one(f"{name}_imm", (), 0, [[64]], I=5, J=6, U=1, imm=-2, **steps)
    factors = {"dst_out": 1, "dst_in": 2, "op": op}
    assert found == [head, assemble(ALU, use_imm=1, imm=-2, **factors)]
    found = one(name, (), 0, [[64, 0]], I=5, J=6, U=1, src_i=48, src_j=64, **steps)
    assert found == [head, assemble(ALU, src_out=3, src_in=4, **factors)]


def test_micro_operations_of_vta():
    """An entry counts in elements of the memory in which each operand lies: the ALU's second is
    where the matrix unit's sums are."""
    by_name = {i.name: i for i in VTA.instructions}
    places = np.array([[64 * 2047, 16 * 2047, 256 * 1023], [0, 16, 0]])
    found = encode_entries(VTA, by_name["gemm"], places).view("<u4").reshape(-1)
    wanted = [assemble(UOP, dst=2047, src=2047, wgt=1023), assemble(UOP, src=1)]
    assert found.tolist() == wanted
    found = encode_entries(VTA, by_name["add"], places[:, :1] * [[1, 1]]).view("<u4")
    assert found.tolist() == [[assemble(UOP, dst=2047, src=2047)], [0]]
    found = encode_entries(VTA, by_name["clear"], places[:1, :1]).view("<u4")
    assert found.tolist() == [[assemble(UOP, dst=2047)]]


@pytest.mark.parametrize(
    "changed, error",
    [
        (
            {"acc": 256 << 10},
            (
                "the encoding of gemm of vta does not fit: its 128 bits have parts of 130; "
                "of a micro-operation, its 32 bits have parts of 34\n"
                "  hint: they are constant 3, pop load 1, pop store 1, push load 1, push store 1, "
                "constant 1, the first entry of the list 13, the end of the list 14, I 14, J 14, "
                "padding 1, dst_i 12, dst_j 12, src_i 11, src_j 11, wgt_i 10, wgt_j 10; they are "
                "the address of dst 12, the address of src 12, the address of wgt 10"
            ),
        ),
        (
            {"uop": 64 << 10},
            (
                "the encoding of gemm of vta does not fit: the parts before bit 64 take 65 bits\n"
                "  hint: they are constant 3, pop load 1, pop store 1, push load 1, push store 1, "
                "constant 1, the first entry of the list 14, the end of the list 15, I 14, J 14"
            ),
        ),
    ],
)
def test_memories_of_vta_that_are_too_large(changed, error: str):
    """The chip is described, and runs on its simulators; what has too few bits is its encoding."""
    target = vta(**changed)
    with pytest.raises(TargetError) as refused:
        encode(stream_of_rows(target, Rows.empty(target, np.zeros(0, np.int64)), {}))
    assert str(refused.value) == error


# ---------------------------------------------------------------- both ways


@st.composite
def parts_of_fields(draw, names: list[str]) -> list[tuple[Field, object]]:
    """For each name a field that fills its part, with values at both ends."""
    found = []
    for name in names:
        width = draw(st.integers(1, 40))
        unit = draw(st.sampled_from([1, 1, 2, 3, 16]))
        minus = unit * draw(st.integers(-3, 3))
        signed = draw(st.booleans())
        part = field(name, width, unit=unit, minus=minus, signed=signed)[0]
        symbol = Symbol(name, part.low, part.high)
        found.append((Field(symbol, part.low, part.high, unit), part))
    return found


@st.composite
def targets(draw) -> Target:
    """Chips with a few instructions of any widths and layouts, told apart by an opcode."""
    queues = [Queue(f"q{k}", 4) for k in range(draw(st.integers(1, 4)))]
    memories = (Memory("m", None, unit=draw(st.sampled_from([1, 4, 24]))),)
    events = draw(st.sampled_from([0, 1, 5, 64]))
    instructions, encodings = [], []
    widths = draw(st.lists(st.sampled_from([8, 16, 24, 32, 64, 120, 128]), min_size=1, max_size=3))
    for k in range(draw(st.integers(1, 5))):
        fields = draw(parts_of_fields([f"f{n}" for n in range(draw(st.integers(0, 4)))]))
        operands = [Buffer(f"o{n}", i8, (4,), "m") for n in range(draw(st.integers(0, 3)))]
        parts = [part for _, part in fields]
        parts += [address(o.name, draw(st.integers(1, 36))) for o in operands]
        parts += [x for q in queues for x in (pop(q.name), push(q.name))]
        parts += [awaits(events), sets(events)] if events else []
        parts.append(barrier())
        parts += [pad(n) for n in draw(st.lists(st.integers(1, 9), max_size=3))]
        parts = [constant(k, 3), *draw(st.permutations(parts))]
        total = sum(p.width for p in bits(1 << 10, parts).parts[:-1])
        width = max(draw(st.sampled_from(widths)), -(-total // 8) * 8)
        symbols = tuple(f.with_(multiple=f.multiple) for f, _ in fields)
        instructions.append(Instruction(f"i{k}", tuple(operands), symbols, (), "q0"))
        encodings.append((f"i{k}", bits(width, parts)))
    return Target(
        "any", 1, 1e9, memories=memories, queues=tuple(queues),
        instructions=tuple(instructions), encodings=tuple(encodings), events=events, barriers=True,
    )  # fmt: skip


def random_rows(target: Target, n: int, rng: np.random.Generator) -> Rows:
    """Rows with numbers anywhere within their limits, often at the ends."""
    rows = Rows.empty(target, rng.integers(0, len(target.instructions), n))
    for row, k in enumerate(rows.kinds):
        instruction = target.instructions[k]
        encoding = target.encoding(instruction)
        for c, f in enumerate(instruction.fields):
            part = encoding.find(Carries.FIELD, f.name)
            rows.fields[row, c] = _value(part, rng)
        for c, o in enumerate(instruction.operands):
            rows.addresses[row, c] = _value(encoding.find(Carries.ADDRESS, o.name), rng)
    return rows


def _value(part, rng: np.random.Generator) -> int:
    steps = (part.high - part.low) // part.unit
    step = rng.choice([0, steps, rng.integers(0, steps, endpoint=True)])
    return part.low + int(step) * part.unit


@settings(max_examples=150)
@given(target=targets(), n=st.integers(0, 40), seed=st.integers(0, 1 << 20))
def test_random_streams_both_ways(target: Target, n: int, seed: int):
    rng = np.random.default_rng(seed)
    rows = random_rows(target, n, rng)
    most = (1 << len(target.queues)) - 1
    some = [rng.integers(0, most, n, np.uint32, endpoint=True) for _ in range(2)]
    most = (1 << target.events) - 1
    some += [rng.integers(0, most, n, np.uint64, endpoint=True) for _ in range(2)]
    waits = Waits(*some, rng.integers(0, 2, n, np.uint8))
    base = {"m": 24 * int(rng.integers(0, 3))}
    rows.addresses -= base["m"]
    stream = stream_of_rows(target, rows, {})
    words = encode(stream, waits, base)
    found = decode(target, words, bases=base, sizes={})
    names = [found.stream.sites[k].instruction.name for k in found.stream.site]
    assert names == [target.instructions[k].name for k in rows.kinds]
    np.testing.assert_array_equal(found.stream.fields, rows.fields)
    operands = np.array([len(i.operands) for i in target.instructions])[rows.kinds][:, None]
    used = np.arange(rows.addresses.shape[1]) < operands
    np.testing.assert_array_equal(found.stream.addresses[used], rows.addresses[used])
    for name in ("pops", "pushes", "awaits", "sets", "barriers"):
        np.testing.assert_array_equal(getattr(found, name), getattr(waits, name))
    again = encode(found.stream, found, base)
    np.testing.assert_array_equal(again, words)


@given(st.data())
def test_random_records_both_ways(data):
    fields = data.draw(parts_of_fields([f"f{n}" for n in range(6)]))
    encoding = bits(8 * data.draw(st.integers(31, 40)), [part for _, part in fields])
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    columns = {
        (Carries.FIELD, p.name): np.array([_value(p, rng) for _ in range(9)]) for _, p in fields
    }
    found = unpack(encoding, pack(encoding, columns, "record", np.arange(9)))
    for key, values in columns.items():
        np.testing.assert_array_equal(found[key], values)


@kernel
def narrow_gemm(A: i8[48, 32], B: i8[32, 64], C: i8[48, 64]):
    total = local(i32[48, 64])
    for i, j in grid(48, 64):
        total[i, j] = 0
        for k in reduce(32):
            total[i, j] += cast(i32, A[i, k]) * cast(i32, B[k, j])
    for i, j in grid(48, 64):
        C[i, j] = cast(i8, max(min(total[i, j] >> 6, 127), -128))


GEMM = gemm.bind(M=48, N=64, K=32)
CHIPS = [(GEMM, tiny()), (narrow_gemm, gemmini()), (narrow_gemm, conv_engine())]


@pytest.mark.parametrize("function, target", CHIPS, ids=[t.name for _, t in CHIPS])
def test_words_run_as_the_program_that_they_came_from(function: KernelFunction, target: Target):
    built = build_chip(function.kernel, target)
    words = encode(built.stream, built.waits)
    found = decode(target, words, sizes=built.stream.sizes)
    np.testing.assert_array_equal(found.stream.fields, built.stream.fields)
    np.testing.assert_array_equal(found.stream.addresses, built.stream.addresses)
    rng = np.random.default_rng(0)
    start = {m: rng.integers(0, 256, n, np.uint8) for m, n in built.stream.sizes.items()}
    results = []
    for stream in (built.stream, found.stream):
        memories = {m: a.copy() for m, a in start.items()}
        DataEngine(stream, cpu.host(threads=1)).run(memories)
        results.append(memories)
    for memory, array in results[0].items():
        np.testing.assert_array_equal(results[1][memory], array)
    assert (results[0]["dram"] != start["dram"]).any()


@pytest.mark.parametrize("target", [tiny(), VTA, gemmini(), conv_engine()], ids=lambda t: t.name)
def test_packed_encodings_fit(target: Target):
    """Those that follow from the description hold all that it allows, and are told apart."""
    made = [(i.name, packed_encoding(target, i, 32)) for i in target.instructions]
    packed = replace(target, encodings=tuple(made))
    for i in packed.instructions:
        assert name_faults(packed, i) == []
        assert fit_faults(packed, i) == []
    for (_, a), (_, b) in itertools.combinations(made, 2):
        assert not ambiguous(a, b)


def test_a_packed_encoding():
    """An opcode, a token to take and one to give, a field from 16 on in steps of 16, addresses."""
    (load,) = (i for i in VTA.instructions if i.name == "load_inp")
    found = packed_encoding(VTA, load, 32)
    assert [(p.what, p.width) for p in found.parts] == [
        ("constant", 5), ("pop compute", 1), ("push compute", 1), ("far", 16), ("Y", 16), ("X", 16),
        ("the address of src", 32), ("the address of dst", 11), ("padding", 6),
    ]  # fmt: skip


def registered() -> Target:
    """A shift by what a register holds."""
    t = TargetBuilder("registered", clock=1e9)
    t.memory("dram")
    (queue,) = t.queues("q", depth=4)

    @t.instruction(queue, encoding=bits(16, constant(0, 2), field("by", 5), field("far", 8)))
    def config(by: Range(0, 31), far: Range(0, 255)):
        pass

    @t.instruction(queue, encoding=bits(32, constant(1, 2), address("a c", 12), field("n", 3)))
    def shift(
        a: view(i32[8] @ DRAM, "step"), c: out(i32[8] @ DRAM), n: Range(1, 7),
        by: state(config, "by"), step: state(config, "far"),
    ):  # fmt: skip
        for i in grid(n):
            c[i] = a[i] >> cast(i32, by)

    return t.build()


def test_registers_both_ways():
    """What is in registers is not in the instruction: it is set before, where it changes."""
    target, n = registered(), 50
    rng = np.random.default_rng(0)
    rows = Rows.empty(target, np.ones(n, np.int64))
    rows.fields[:, :3] = np.stack([rng.integers(1, 8, n), *rng.integers(0, 2, (2, n)) * 9], 1)
    rows.addresses[:, 1] = 4 * rng.integers(0, 64, n)
    stream = place_settings(stream_of_rows(target, rows))
    settings = [stream.sites[k].instruction.name for k in stream.site].count("config")
    assert 10 < settings < n
    words = encode(stream)
    assert words.nbytes == 2 * settings + 4 * n
    found = decode(target, words, sizes=stream.sizes).stream
    np.testing.assert_array_equal(found.fields, stream.fields)
    lines = list(disassemble(found))[1:]
    assert lines[0].endswith("config  by={} far={}".format(*stream.fields[0]))
    assert not [line for line in lines if "shift" in line and "by=" in line]
    with pytest.raises(CompileError) as error:
        decode(target, words.view("<u2")[1:])
    assert str(error.value) == (
        "shift, instruction 0: nothing has set by\n  hint: config must come before it"
    )


def test_lists_of_micro_operations_both_ways():
    """Lists are read back from the memory from which the stream loads them."""
    rng = np.random.default_rng(1)
    names = [i.name for i in VTA.instructions]
    rows = Rows.empty(VTA, np.array([names.index(rng.choice(["gemm", "clear", "add"]))
                                     for _ in range(60)]))  # fmt: skip
    for row, k in enumerate(rows.kinds):
        count = int(rng.integers(1, 6))
        fields = {"I": 2, "J": 3, "U": count, "dst_i": 16, "dst_j": 64, "src_i": 32, "src_j": 0,
                  "wgt_i": 256, "wgt_j": 512}  # fmt: skip
        for c, f in enumerate(VTA.instructions[k].fields):
            rows.fields[row, c] = fields[f.name]
        units = [64, 64 if names[k] == "add" else 16, 256][: len(VTA.instructions[k].operands)]
        rows.entries[row] = rng.integers(0, 100, (count, len(units))) * units
    stream = place_lists(stream_of_rows(VTA, rows))
    assert len(stream) == 61  # all lists are loaded at once
    words = encode(stream)
    dram = np.zeros(stream.sizes["dram"], np.uint8)
    for buffer, array in stream.constants.items():
        place = stream.places[buffer].offset
        dram[place : place + array.nbytes] = array.view(np.uint8)
    found = decode(VTA, words, sizes=stream.sizes, memories={"dram": dram}).stream
    np.testing.assert_array_equal(found.lists, stream.lists)
    np.testing.assert_array_equal(found.fields, stream.fields)
    np.testing.assert_array_equal(found.addresses, stream.addresses)
    start = {m: rng.integers(0, 256, n, np.uint8) for m, n in stream.sizes.items()}
    results = []
    for each in (stream, found):
        memories = {m: a.copy() for m, a in start.items()}
        DataEngine(each, cpu.host(threads=1)).run(memories)
        results.append(memories)
    np.testing.assert_array_equal(results[0]["acc"], results[1]["acc"])
    assert (results[0]["acc"] != start["acc"]).any()
    with pytest.raises(CompileError) as error:
        decode(VTA, words)
    assert str(error.value) == (
        "the micro-operations of vta are data in dram\n"
        '  hint: give what is in it: decode(…, memories={"dram": bytes})'
    )
    with pytest.raises(TargetError) as refused:
        decode(replace(VTA, entries=()), words, memories={"dram": dram})
    assert str(refused.value) == "the micro-operations of clear have no encoding"


def test_in_bulk():
    """100,000 instructions: an instruction at a time would take seconds."""
    rng = np.random.default_rng(0)
    target, n = tiny(), 100_000
    rows = Rows.empty(target, rng.integers(0, 3, n))
    rows.fields[:, 0] = np.where(rows.kinds == 1, 1, 64)
    rows.addresses[:] = rng.integers(0, 1 << 12, (n, 3)) * 16
    stream = stream_of_rows(target, rows, {})
    start = time.perf_counter()
    words = encode(stream)
    assert time.perf_counter() - start < 0.5
    found = decode(target, words, sizes={}).stream
    np.testing.assert_array_equal(found.fields, rows.fields)
    operands = np.array([2, 3, 2])[rows.kinds][:, None]
    wanted = np.where(np.arange(3) < operands, rows.addresses, 0)
    np.testing.assert_array_equal(found.addresses, wanted)
