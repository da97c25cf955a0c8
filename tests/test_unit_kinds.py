"""Chips that are fed in other ways, and kernels of floats: what is built is right, near to what no
schedule can beat, and free of races; and what is said where a chip cannot do one."""

import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from attention_chips import softmax_engine, vector_core
from unit_chips import (
    dram_engine,
    several_cubes,
    sums_that_begin,
    two_pairs,
    weight_fifo,
    weight_register,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from attention_cases import attention, gelu, layer_norm, product_16, softmax
from chip_kernels import Case, gemm
from matrix_cases import conv, dense, two_convs

from tilewright import cast, exp, f32, grid, i8, i32, kernel, local, out, reduce
from tilewright.backends.stream.addresses import bytes_of
from tilewright.backends.stream.lifetimes import lifetimes, packed
from tilewright.base.errors import ScheduleError
from tilewright.chip import build_chip
from tilewright.chip_kernel import ChipKernel
from tilewright.explain.what_if import changes
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.instruction import Region, axis
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Alloc, Block, Call, For, Kernel, format_block, walk_statements
from tilewright.ir.text.loop import parse_kernel
from tilewright.plan.equal_units import equal_instructions
from tilewright.plan.share_values import share_values
from tilewright.target.describe import Range, TargetBuilder, cost
from tilewright.target.pairs import selectable
from tilewright.target.target import Target
from tilewright.targets.gemmini import gemmini

CELLS: dict[str, tuple[Callable[[], Case], Callable[[], Target], float]] = {
    "softmax, operator by operator": (lambda: softmax(64, 64), vector_core, 0.75),
    "softmax at once": (lambda: softmax(64, 64), softmax_engine, 0.6),
    "layer norm": (lambda: layer_norm(32, 128), vector_core, 0.68),
    "layer norm of longer rows": (lambda: layer_norm(128, 256), vector_core, 0.82),
    "GELU": (lambda: gelu(64, 128), vector_core, 0.8),
    "attention, operator by operator": (lambda: attention(64, 32), vector_core, 0.25),
    "attention": (lambda: attention(64, 32), softmax_engine, 0.25),
    "product of 16-bit floats": (lambda: product_16(128, 128, 128), vector_core, 0.8),
    "weights from flash": (lambda: dense(64, 128, 128), weight_fifo, 0.85),
    "convolution, weights from flash": (
        lambda: conv("", 14, 32, 32, 3, before=1),
        weight_fifo,
        0.7,
    ),
    "operands in DRAM": (lambda: dense(64, 128, 128), dram_engine, 0.9),
    "convolution in DRAM": (lambda: conv("", 14, 32, 32, 1), dram_engine, 0.9),
    "strided convolution in DRAM": (lambda: conv("", 14, 32, 32, 1, 2), dram_engine, 0.9),
    "steps, a row of any length": (
        lambda: conv("", 15, 32, 32, 3, 2, before=1),
        weight_fifo,
        0.7,
    ),
    "steps, rows of 16": (lambda: conv("", 32, 32, 32, 1, 2), several_cubes, 0.25),
    "four units": (lambda: gemm(128), several_cubes, 0.75),
    "an instruction that begins sums": (
        lambda: dense(64, 128, 128),
        partial(sums_that_begin, "two"),
        0.85,
    ),
    "weights by way of another memory": (lambda: gemm(128), weight_register, 0.95),
    "convolution, weights by way of another memory": (
        lambda: conv("", 14, 64, 64, 3, before=1),
        weight_register,
        0.95,
    ),
    "one block of weights at a time": (lambda: gemm(128), partial(weight_register, 1), 0.68),
    "rows in DRAM": (lambda: dense(64, 128, 128), partial(sums_that_begin, "two", True), 0.95),
}


def checked(case: Case, target: Target, least: float) -> tuple[ChipKernel, list[np.ndarray]]:
    """A kernel that is built, once its results and its bound are what they should be."""
    built = build_chip(case.kernel, target)
    arguments = case.arguments()
    found = built(*arguments)
    assert case.agrees(found, case.reference(*arguments[:-1]))
    assert built.bound is not None
    assert least * built.cycles <= built.bound.cycles <= built.cycles
    return built, arguments


def allocations(block: Block) -> list[Buffer]:
    return [s.buffer for s in walk_statements(block) if isinstance(s, Alloc)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CELLS)
def test_right_and_near_the_bound(name: str):
    make, chip, least = CELLS[name]
    checked(make(), chip(), least)


@pytest.mark.parametrize(
    "name", ["softmax, operator by operator", "softmax at once", "layer norm", "four units"]
)
def test_any_order_that_waits_allow(name: str):
    make, chip, _ = CELLS[name]
    built, arguments = checked(make(), chip(), 0.0)
    assert built.replay(*arguments, orders=4) is None


# ---------------------------------------------------------------- several equal units


def test_four_units_are_nearly_four_times_as_fast():
    one, two, four = (build_chip(gemm(256).kernel, several_cubes(n)) for n in (1, 2, 4))
    assert one.cycles >= 1.9 * two.cycles
    assert one.cycles >= 3.6 * four.cycles
    used = [site.instruction.name for site in four.stream.sites]
    assert {f"cube_{k}" for k in range(4)} <= set(used)
    assert one.bound is not None
    assert four.bound is not None
    assert one.bound.work == 4 * four.bound.work


@kernel
def shifted(A: i8[64, 128], B: i8[128, 32], Y: out(i8[64, 32])):
    for i, j in grid(64, 32):
        total: i32 = 0
        for k in reduce(128):
            total += cast(i32, A[i, k]) * cast(i32, B[k, j])
        Y[i, j] = cast(i8, max(min(total >> 8, 127), -128))


def checked_product(target: Target) -> ChipKernel:
    """The product on a chip, once it is right in any order that waits allow."""
    built = build_chip(shifted.kernel, target)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape, np.int8) for shape in ((64, 128), (128, 32)))
    y = np.zeros((64, 32), np.int8)
    total = a.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(built(a, b, y), np.clip(total >> 8, -128, 127))
    assert built.replay(a, b, y, orders=4) is None
    return built


def calls_of(built: ChipKernel) -> Counter[str]:
    return Counter(built.stream.sites[k].instruction.name for k in built.stream.site)


@pytest.mark.parametrize("in_dram", [False, True])
def test_two_instructions_for_sums_are_as_good_as_a_flag(in_dram: bool):
    one, two = (checked_product(sums_that_begin(by, in_dram)) for by in ("flag", "two"))
    calls = calls_of(two)
    assert calls["begin"] * 8 == calls["begin"] + calls["add"]
    assert two.cycles == one.cycles


def test_a_pair_that_goes_twice_as_far():
    built = checked_product(sums_that_begin("two"))
    assert built.explain().helps  # some of it with another chip
    found = {x.what: x.target for x in changes(built.target, built.stream)}
    wider = found["M of begin (at most 64): twice the range"]
    (pair,) = set(selectable(wider)) - set(wider.instructions)
    assert pair.field("M").high == 128


def test_equal_pairs_share_calls():
    @kernel
    def product(A: i8[16, 16], B: i8[16, 16], C: i32[16, 16]):
        for i, j in grid(16, 16):
            C[i, j] = cast(i32, 0)
            for d in reduce(16):
                C[i, j] += cast(i32, A[i, d]) * cast(i32, B[d, j])

    built = build_chip(product.kernel, two_pairs())
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (16, 16), np.int8) for _ in range(2))
    found = built(a, b, np.zeros((16, 16), np.int32))
    assert np.array_equal(found, a.astype(np.int32) @ b)
    calls = calls_of(built)
    assert [calls[x] for x in ("begin_0", "begin_1", "add_0", "add_1")] == [8, 8, 24, 24]


def test_sums_that_only_loads_can_begin():
    built = checked_product(sums_that_begin("load"))
    calls = calls_of(built)
    assert calls["load_bias"] > 0
    (start,) = built.form.made.values()
    assert start.of([]).tolist() == [0] * 32


def test_a_pair_has_the_names_of_the_instruction_that_begins():
    target = sums_that_begin("two")
    begin, add = (target.instruction(name) for name in ("begin", "add"))
    (pair,) = set(selectable(target)) - set(target.instructions)
    assert pair.pair == (begin, add)
    assert (pair.name, pair.operands) == ("begin_or_add", begin.operands)
    assert textwrap.dedent("\n".join(format_block(pair.body))).splitlines() == [
        "for i in range(M):",
        "    for j in range(16):",
        "        if adds == 0:",
        "            c[i, j] = i32(0)",
        "        for k in range(16):",
        "            c[i, j] += cast(i32, a[i, k]) * cast(i32, w[k, j])",
    ]
    assert pair.cost == begin.cost


def test_three_units_where_nothing_is_a_multiple_of_three():
    """Of four blocks of columns, or rows, one unit does two."""
    built, _ = checked(gemm(256), several_cubes(3), 0.2)
    one = build_chip(gemm(256).kernel, several_cubes(1))
    assert one.cycles >= 2.5 * built.cycles
    calls = calls_of(built)
    assert calls["cube_0"] + calls["cube_1"] + calls["cube_2"] == 16**3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("units", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("n, f", [(5, 16), (7, 48), (13, 80)])
def test_any_number_of_units(units: int, n: int, f: int):
    """Blocks of rows and columns that no number of units divides."""
    case = conv("", n, 128, f, 1)
    built, arguments = checked(case, several_cubes(units), 0.0)
    assert built.replay(*arguments, orders=2) is None
    assert built.cycles <= build_chip(case.kernel, several_cubes(1)).cycles


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", [18, 21, 28, 40])
def test_blocks_of_rows_overlap_where_there_is_a_border(n: int):
    """The unit does 16 rows at a time, and a line of a picture has fewer or more, with a border
    beside them."""
    built, arguments = checked(two_convs(n, 16), several_cubes(), 0.0)
    assert built.replay(*arguments, orders=2) is None


def test_equal_instructions_are_of_queues_of_their_own():
    target = several_cubes(3)
    one = target.instruction("cube_1")
    names = [i.name for i in equal_instructions(target, one)]
    assert names == ["cube_1", "cube_0", "cube_2"]
    assert equal_instructions(target, target.instruction("load")) == [target.instruction("load")]


def test_a_second_unit_that_nothing_is_linked_to():
    """It is there, and takes no part: loads cannot wait for it."""
    linked = (("load", "cube_0"), ("cube_0", "store"))
    apart = [replace(several_cubes(n), interlock=False, tokens=linked) for n in (1, 2)]
    one, two = (build_chip(gemm(64).kernel, target) for target in apart)
    assert one.cycles == two.cycles


# ---------------------------------------------------------------- memories outside


def test_weights_lie_where_the_unit_takes_them_from():
    built = build_chip(dense(64, 128, 128).kernel, weight_fifo())
    places = {b.name: b.memory for b in built.kernel.params}
    assert places == {"X": "dram", "W": "flash", "bias": "dram", "Y": "dram"}


def test_one_instruction_does_all_of_a_product_in_dram():
    built = build_chip(dense(64, 128, 128).kernel, dram_engine())
    assert [s.instruction.name for s in built.stream.sites] == ["product"]


# ---------------------------------------------------------------- values that are shared


def test_values_are_computed_once():
    @kernel
    def twice(x: f32[4, 8], y: f32[4, 8]):
        total = local(f32[4])
        for i in grid(4):
            total[i] = 0.0
            for j in reduce(8):
                total[i] += exp(x[i, j])
        for i, j in grid(4, 8):
            y[i, j] = exp(x[i, j]) / (total[i] + 1.0)

    shared = share_values(twice.kernel)
    assert str(shared) == str(
        parse_kernel(
            """
def twice(x: f32[4, 8], y: out(f32[4, 8])):
    total = alloc(f32[4])
    x_shared = alloc(f32[4, 8])
    for x_shared_0 in range(4):
        for x_shared_1 in range(8):
            x_shared[x_shared_0, x_shared_1] = exp(x[x_shared_0, x_shared_1])
    for i in range(4):
        total[i] = f32(0.0)
        for j in range(8):
            total[i] += x_shared[i, j]
    total_shared = alloc(f32[4])
    for total_shared_0 in range(4):
        total_shared[total_shared_0] = total[total_shared_0] + f32(1.0)
    for i_1 in range(4):
        for j_1 in range(8):
            y[i_1, j_1] = x_shared[i_1, j_1] / total_shared[i_1]
"""
        )
    )
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    for before, after in zip(interpret(twice.kernel, [x]), interpret(shared, [x]), strict=True):
        np.testing.assert_array_equal(before, after)


def test_what_is_computed_once_stays():
    @kernel
    def once(x: f32[4, 8], y: f32[4, 8]):
        for i, j in grid(4, 8):
            y[i, j] = exp(x[i, j]) + 1.0

    assert share_values(once.kernel) is once.kernel


# ---------------------------------------------------------------- memory that is short


def test_what_is_never_needed_at_the_same_time_shares_memory():
    size = 56 << 10
    built, arguments = checked(layer_norm(32, 128), vector_core(acc=size), 0.0)
    held = [b for b in allocations(built.kernel.body) if b.memory == "acc"]
    assert sum(bytes_of(b) for b in held) > size
    assert lifetimes(built.kernel)
    assert built.replay(*arguments, orders=4) is None


def test_lifetimes():
    """What passes from one instruction to the next is there between them; what is loaded ahead for
    the next iteration is there all the time."""
    alone = build_chip(layer_norm(32, 128).kernel, vector_core(), overlap=False)
    spans = lifetimes(alone.kernel)
    names = {b.name: found for b, found in spans.items()}
    assert all(first <= last for found in names.values() for first, last in found)
    assert len(names["total_rows"]) == len(names["squares_rows"])
    for total, squares in zip(names["total_rows"], names["squares_rows"], strict=True):
        assert total[1] < squares[0]
    built = build_chip(gelu(64, 128).kernel, vector_core())
    ring = next(b for b in allocations(built.kernel.body) if b.name.startswith("X_shared"))
    ((first, last),) = lifetimes(built.kernel)[ring]
    loop = next(s for s in built.kernel.body if isinstance(s, For) and len(s.body) > 1)
    inside = [s for s in loop.body if not isinstance(s, Alloc)]
    assert last - first >= len(inside) - 1


def test_a_half_is_not_the_whole():
    """An instruction that may write 64 rows, and writes 32 of them."""
    t = TargetBuilder("halves", clock=1e9)
    dram, near = t.memory("dram", bandwidth=8), t.memory("near", 4096)
    (load,) = t.queues("load", depth=8)

    @t.instruction(load)
    def mvin(
        src: i8[64, 16] @ dram, dst: out(i8[64, 16] @ near), rows: Range(1, 64)
    ):  # fmt: skip
        for i, j in grid(rows, 16):
            dst[i, j] = src[i, j]
        cost(setup=16, bytes=rows * 16)

    (instruction,) = t.build().instructions
    source, a, b = (
        Buffer(n, i8, (64, 16), m) for n, m in zip("xab", ("dram", "near", "near"), strict=True)
    )

    def fill(buffer: Buffer, row: int, rows: int) -> Call:
        regions = tuple(Region(x, (axis(0) + row, axis(1))) for x in (source, buffer))
        return Call(instruction, regions, (const(rows),))

    body = (Alloc(a), Alloc(b), fill(a, 0, 32), fill(b, 0, 64), fill(a, 32, 32))
    halves = Kernel("halves", (source,), (), body=body)
    assert lifetimes(halves) == {a: [(2, 4)], b: [(3, 3)]}
    row = Var("row")
    moved = Region(a, (row * 32 + axis(0), axis(1)))
    loop = For(row, 2, (Call(instruction, (Region(source, moved.indices), moved), (const(32),)),))
    between = (Alloc(b), fill(b, 0, 64))
    twice = halves.with_(body=(Alloc(a), loop, *between, loop))
    assert lifetimes(twice) == {a: [(1, 1), (4, 4)], b: [(3, 3)]}
    overlapping = Region(a, (row * 16 + axis(0), axis(1)))
    again = Call(instruction, (Region(source, moved.indices), overlapping), (const(32),))
    loop = For(row, 2, (again,))
    assert lifetimes(halves.with_(body=(Alloc(a), loop, *between, loop)))[a] == [(1, 4)]


def test_a_zero_point_is_not_cut_off():
    """A factor that is computed in a wider type is not made as bytes, whatever the stride."""

    @kernel
    def shifted(X: i8[8, 8, 16], W: i8[16, 16], b: i32[16], Y: out(i8[4, 4, 16])):
        s = local(i32[4, 4, 16])
        for y, x, o in grid(4, 4, 16):
            s[y, x, o] = 0
            for i in reduce(16):
                s[y, x, o] += (i32(X[2 * y, 2 * x, i]) - 100) * i32(W[i, o])
        for y, x, o in grid(4, 4, 16):
            Y[y, x, o] = i8(max(min(s[y, x, o] + b[o] >> 8, 127), -128))

    with pytest.raises(ScheduleError):
        build_chip(shifted.kernel, gemmini())


def test_places_that_are_packed():
    a, b, c = (Buffer(name, i8, (100,), "acc") for name in "abc")
    sizes = dict.fromkeys((a, b, c), 100)
    apart = packed([a, b, c], sizes, {a: [(0, 1)], b: [(1, 2)], c: [(2, 3)]}, 64)
    assert apart[a] == apart[c]
    assert abs(apart[a] - apart[b]) >= 100
    kept = packed([a, b, c], sizes, {a: [(0, 1)], c: [(2, 3)]}, 64)
    assert kept[a] == kept[c] == 128
    assert kept[b] == 0


# ---------------------------------------------------------------- what a chip cannot do


def test_types_that_no_unit_multiplies():
    with pytest.raises(ScheduleError) as error:
        build_chip(dense(16, 32, 32).kernel, vector_core())
    assert error.value.what == (
        "total is a sum of products of i8, and the units of vector_core multiply bf16"
    )
    assert error.value.hint == (
        "quantize the kernel, or convert its operands, to what a unit takes"
    )


def test_an_operator_that_no_instruction_computes():
    with pytest.raises(ScheduleError) as error:
        build_chip(gelu(16, 16).kernel, softmax_engine())
    assert error.value.what == ("no instruction of softmax_engine computes tanh, which Y needs")
    assert error.value.hint == "a vector unit would: one instruction for each operator"


def test_pieces_are_called_as_their_author_calls_them():
    with pytest.raises(ScheduleError) as error:
        build_chip(attention(32, 16).kernel, several_cubes())
    assert error.value.what.startswith("scores is a sum of products of bf16")
