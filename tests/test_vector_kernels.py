"""Kernels without a contraction on chips: to the bit, no faster than their bound, near to it; and
what is said where a chip cannot do one."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_kernels import CASES, arguments, softmax, vector_chip, wide, windows

from tilewright import grid, i8, i32, kernel, local, reduce
from tilewright.base.errors import ScheduleError, TargetError
from tilewright.chip import build_chip, lower_bound
from tilewright.chip_kernel import ChipKernel
from tilewright.ir.interpret import interpret
from tilewright.ir.python.words import out
from tilewright.ir.text.loop import parse_kernel
from tilewright.plan.bound import ContractionBound
from tilewright.targets.tiny import tiny
from tilewright.targets.vta import vta

LEAST = 0.5  # of the bound, for kernels of a few hundred cycles
# Sums of one or two rows are too few to be added to in each cycle, and two passes of 9 take more
# operations than one for each element: the bound does not know either.
FURTHER = {"global average": 0.4, "large average": 0.45, "large pool": 0.24}
CHIPS = {"16": vta(), "32": vta(block=32, inp=64 << 10, wgt=1 << 20, acc=256 << 10, bus=16)}


@cache
def built_case(name: str, chip: str = "16") -> ChipKernel:
    return build_chip(CASES[name].kernel, CHIPS[chip])


@pytest.mark.sampled(10)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", CASES)
def test_exact_and_near_the_bound(name: str, chip: str):
    case = CASES[name]
    built = built_case(name, chip)
    *inputs, result = arguments(case.kernel)
    built(*inputs, result)
    np.testing.assert_array_equal(result, case.expected(*wide(*inputs)).astype(np.int8))
    assert built.bound is not None
    assert built.bound.cycles == lower_bound(case.kernel, CHIPS[chip]).cycles
    assert FURTHER.get(name, LEAST) * built.cycles <= built.bound.cycles <= built.cycles


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["add", "max pool", "large average", "centred"])
def test_without_overlap(name: str):
    case = CASES[name]
    built = build_chip(case.kernel, CHIPS["16"], overlap=False)
    *inputs, result = arguments(case.kernel)
    built(*inputs, result)
    np.testing.assert_array_equal(result, case.expected(*wide(*inputs)).astype(np.int8))
    assert built.cycles >= built_case(name).cycles


@pytest.mark.parametrize("name", ["add", "max pool", "large average"])
def test_any_order_that_waits_allow(name: str):
    """Every byte is watched while instructions run in other orders."""
    case, built = CASES[name], built_case(name)
    *inputs, result = arguments(case.kernel)
    result[...] = case.expected(*wide(*inputs)).astype(np.int8)
    assert built.replay(*inputs, result, orders=6) is None


def test_a_softmax_from_instructions_alone():
    built = build_chip(softmax.kernel, vector_chip())
    x = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    y = np.zeros_like(x)
    built(x, y)
    e = np.exp(x - x.max(0))
    np.testing.assert_allclose(y, e / e.sum(0), rtol=1e-5)
    used = {site.instruction.name for site in built.stream.sites}
    assert used == {
        "load_rows", "lowest", "most", "sub", "exponent", "zero", "sum", "div", "store_rows"
    }  # fmt: skip
    assert built.bound is not None
    assert 0.8 * built.cycles <= built.bound.cycles <= built.cycles


def test_windows_share_work():
    """9 x 9 maxima as two passes of 9: 81 additions to each row would be 2 cycles each."""
    kernel = CASES["large pool"].kernel
    rows = 32 * 7 * 7 // 16
    assert build_chip(kernel, CHIPS["16"]).cycles < 81 * 2 * rows / 2
    # Loads and 8 of 9 maxima for each of 15 x 7 rows; with a copy, for each of 7 x 7.
    least = 2 * (15 * 15 * 2 + (15 * 7 + 7 * 7) * (1 + 2 + 8 * 2))
    assert least <= build_chip(kernel, CHIPS["16"]).cycles <= 1.1 * least


@kernel
def pool_3(x: i8[16, 29, 29], y: out(i8[16, 14, 14])):
    for c, h, w in grid(16, 14, 14):
        found: i8 = -128
        for r, s in reduce(3, 3):
            found = max(found, x[c, 2 * h + r, 2 * w + s])
        y[c, h, w] = found


def test_maxima_are_left_in_the_place_of_the_middle_element():
    """Two maxima for each of 29 x 14 rows in the place of what is brought, and two for each of
    14 x 14: nothing is copied, as the elements in the middle are an array. A row of two operands
    takes 2 cycles."""
    built = build_chip(pool_3.kernel, CHIPS["16"])
    assert len(built.form.made) == 4
    x = np.random.default_rng(0).integers(-128, 128, (16, 29, 29)).astype(np.int8)
    y = np.zeros((16, 14, 14), np.int8)
    built(x, y)
    np.testing.assert_array_equal(y, np.max(windows(x, 3, 2, 14), 0))
    done = Counter[str]()
    for k, site in enumerate(built.stream.sites):
        fields = [f.name for f in site.instruction.fields]
        if site.instruction.name in ("max", "add", "add_imm", "clear"):
            sizes = built.stream.fields[built.stream.rows(k)][:, [fields.index(n) for n in "IJU"]]
            done[site.instruction.name] += int(np.prod(sizes, 1).sum())
    assert done == {"max": 2 * 29 * 14 + 2 * 14 * 14}
    # 29 x 29 rows of 16 bytes come at 8 a cycle; n elements become m by n - m maxima.
    parts = built.bound
    assert isinstance(parts, ContractionBound)
    assert parts.work == 29 * 29 * 2 + (29 * 29 - 14 * 14) * 2
    assert built.replay(x, y, orders=6) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", [2, 3, 4, 6])
def test_what_lies_between_windows_is_not_bound_to_be_brought(step: int):
    n = 8 * step

    @kernel
    def pool(x: i8[16, n, n], y: out(i8[16, 8, 8])):
        for c, h, w in grid(16, 8, 8):
            found: i8 = -128
            for r, s in reduce(2, 2):
                found = max(found, x[c, step * h + r, step * w + s])
            y[c, h, w] = found

    check_random(pool.kernel, step)
    parts = lower_bound(pool.kernel, CHIPS["16"])
    # 16 x 16 rows of 16 bytes come at 8 a cycle, and become 8 x 8.
    assert parts.work == 16 * 16 * 2 + (16 * 16 - 8 * 8) * 2


def test_tiles_as_the_author_says():
    built = build_chip(CASES["max pool"].kernel, CHIPS["16"], tile={"h_1": 1})
    assert built.tile["h_1"] == 1
    with pytest.raises(ScheduleError) as error:
        build_chip(CASES["max pool"].kernel, CHIPS["16"], tile={"r": 1})
    assert error.value.what.startswith("'r' is no loop of ")


# ---------------------------------------------------------------- random kernels


def check_random(kernel, seed: int) -> None:
    *inputs, result = arguments(kernel, seed)
    built = build_chip(kernel, CHIPS["16"])
    built(*inputs, result)
    np.testing.assert_array_equal(result, interpret(kernel, inputs)[0])
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles


@st.composite
def pools(draw):
    """A reduction over windows, with what follows it."""
    c, rows, step, size = (draw(st.integers(m, n)) for m, n in ((2, 40), (1, 6), (1, 2), (1, 3)))
    before = draw(st.integers(0, size - 1))
    n = step * (rows - 1) + size - before
    sums, shift = draw(st.booleans()), draw(st.integers(0, 4))
    fill, start = 0 if sums else -128, draw(st.sampled_from([-128, -128, 5]))

    if sums:

        @kernel
        def pool(x: i8[c, n, n], y: out(i8[c, rows, rows])):
            for k, h, w in grid(c, rows, rows):
                found: i32 = 3
                for r, s in reduce(size, size):
                    i = h * step + r - before
                    j = w * step + s - before
                    found += i32(x[k, i, j] if 0 <= i < n and 0 <= j < n else fill)
                y[k, h, w] = i8(max(min(found >> shift, 127), -128))

        return pool.kernel

    @kernel
    def largest(x: i8[c, n, n], y: out(i8[c, rows, rows])):
        for k, h, w in grid(c, rows, rows):
            found: i8 = start
            for r, s in reduce(size, size):
                i = h * step + r - before
                j = w * step + s - before
                found = max(found, x[k, i, j] if 0 <= i < n and 0 <= j < n else fill)
            y[k, h, w] = found

    return largest.kernel


@pytest.mark.long
@settings(max_examples=5)
@given(pools(), st.integers(0, 99))
def test_random_pools(pool, seed: int):
    check_random(pool, seed)


@pytest.mark.long
@settings(max_examples=50)
@given(pools(), st.integers(0, 99))
def test_more_random_pools(pool, seed: int):
    check_random(pool, seed)


@st.composite
def chains(draw):
    """Operators one after another, of bytes at a place and numbers of its channel."""
    shape = [draw(st.integers(2, n)) for n in (34, 6, 9)]
    place = draw(st.sampled_from(["a, b, c", "a, b, c", "b, a, c"]))

    def number(least: int, most: int) -> str:
        return f"i32({draw(st.integers(least, most))})"

    def value(depth: int) -> str:
        if depth == 0 or draw(st.integers(0, 4)) == 0:
            leaves = ["cast(i32, x[a, b, c])", "cast(i32, y[a, b, c])", "s[a]", number(-99, 99)]
            return draw(st.sampled_from(leaves))
        one, other = value(depth - 1), value(depth - 1)
        forms = [f"({one} + {other})", f"({one} - {other})", f"max({one}, {other})"]
        forms += [f"min({one}, {other})", f"abs({one})", f"({one} >> {number(0, 9)})"]
        forms += [f"({one} * {number(-9, 9)})"]
        return draw(st.sampled_from(forms))

    dims = {"a": shape[0], "b": shape[1], "c": shape[2]}
    sizes = ", ".join(str(dims[v]) for v in place.split(", "))
    n, m, k = shape
    total = f"{value(3)} + cast(i32, x[a, b, c])"
    return parse_kernel(
        f"def chain(x: i8[{n}, {m}, {k}], y: i8[{n}, {m}, {k}], s: i32[{n}],"
        f" z: out(i8[{sizes}])):\n"
        f"    for a in range({n}):\n"
        f"        for b in range({m}):\n"
        f"            for c in range({k}):\n"
        f"                z[{place}] = cast(i8, max(min({total}, i32(127)), i32(-128)))\n"
    )


@pytest.mark.long
@settings(max_examples=5)
@given(chains(), st.integers(0, 99))
def test_random_chains(chain, seed: int):
    check_random(chain, seed)


@pytest.mark.long
@settings(max_examples=50)
@given(chains(), st.integers(0, 99))
def test_more_random_chains(chain, seed: int):
    check_random(chain, seed)


# ---------------------------------------------------------------- what a chip cannot do


def test_a_chip_without_rows():
    with pytest.raises(ScheduleError) as error:
        build_chip(CASES["add"].kernel, tiny())
    assert error.value.what == (
        "add has no contraction, and no instruction of tiny works on rows of its own memories"
    )
    assert error.value.hint == "an ALU or a vector unit would: one instruction for each operator"


def test_an_operator_that_no_instruction_has():
    with pytest.raises(ScheduleError) as error:
        build_chip(softmax.kernel, vta())
    assert error.value.what == "no instruction of vta computes with f32"


def test_a_result_that_no_instruction_stores():
    @kernel
    def sums(x: i8[64, 32], z: out(i32[32])):
        for i in grid(32):
            total: i32 = 0
            for j in reduce(64):
                total += i32(x[j, i])
            z[i] = total

    with pytest.raises(ScheduleError) as error:
        build_chip(sums.kernel, vta())
    assert error.value.what == "no instructions of vta make z: i32[32] of total_rows: i32[2, 16]"


def test_no_loop_that_goes_along_rows():
    @kernel
    def turned(x: i8[32, 32], y: i8[32, 32], z: out(i8[32, 32])):
        for i, j in grid(32, 32):
            z[i, j] = max(x[i, j], y[31 - j, 31 - i])

    with pytest.raises(ScheduleError) as error:
        build_chip(turned.kernel, vta())
    assert error.value.what == (
        "no loop of turned goes along rows of 16 elements in all of its arrays, as instructions of"
        " vta do"
    )
    assert error.value.hint == (
        "a loop of the result has to be a subscript of every array, as it is"
    )


def test_an_array_in_parts():
    """Both parts would be one array in the chip's memory."""

    @kernel
    def joined(x: i8[4, 16], z: out(i8[8, 16])):
        t = local(i8[8, 16])
        for i, j in grid(4, 16):
            t[i, j] = x[i, j]
        for i, j in grid(4, 16):
            t[i + 4, j] = max(x[i, j], i8(0))
        for i, j in grid(8, 16):
            z[i, j] = min(t[i, j], t[7 - i, j])

    with pytest.raises(ScheduleError) as error:
        build_chip(joined.kernel, vta())
    assert error.value.what == (
        "t is computed in several parts, and a chip's tiles need one nest of loops for each array"
    )


def test_a_condition():
    @kernel
    def half(x: i8[8, 16], z: out(i8[8, 16])):
        t = local(i32[16])
        for j in grid(16):
            t[j] = 0
            for i in reduce(8):
                if i < 4:
                    t[j] += i32(x[i, j])
        for i, j in grid(8, 16):
            z[i, j] = i8(min(t[j], 127))

    with pytest.raises(ScheduleError) as error:
        build_chip(half.kernel, vta())
    assert error.value.what == (
        "half does something under a condition, and instructions of vta do all of their elements"
    )


def test_values_that_depend_on_where_they_are():
    @kernel
    def ramp(x: i8[8, 16], z: out(i8[8, 16])):
        for i, j in grid(8, 16):
            z[i, j] = i8(min(i32(x[i, j]) + i32(j), 127))

    *inputs, result = arguments(ramp.kernel)
    build_chip(ramp.kernel, vta())(*inputs, result)
    np.testing.assert_array_equal(result, interpret(ramp.kernel, inputs)[0])


@pytest.mark.parametrize("op", ["mul", "add", "min"])
def test_reductions_of_few_rows(op: str):
    """They are done in parts, which begin with what changes nothing."""

    @kernel
    def product(x: i8[12, 16], z: out(i8[16])):
        for j in grid(16):
            total: i32 = 3
            for i in reduce(12):
                total *= i32(x[i, j])
            z[j] = i8(total & 127)

    @kernel
    def total(x: i8[12, 16], z: out(i8[16])):
        for j in grid(16):
            total: i32 = 3
            for i in reduce(12):
                total += abs(i32(x[i, j]))
            z[j] = i8(min(total >> 4, 127))

    @kernel
    def least(x: i8[12, 16], z: out(i8[16])):
        for j in grid(16):
            found: i8 = 5
            for i in reduce(12):
                found = min(found, x[i, j])
            z[j] = found

    chosen = {"mul": product, "add": total, "min": least}[op].kernel
    if op == "mul":  # a conjunction is nothing that VTA has
        with pytest.raises(ScheduleError):
            build_chip(chosen, vta())
        chosen = parse_kernel(str(chosen).replace("& i32(127)", ">> i32(0)"))
    *inputs, result = arguments(chosen)
    built = build_chip(chosen, vta())
    built(*inputs, result)
    np.testing.assert_array_equal(result, interpret(chosen, inputs)[0])


def test_a_memory_too_small():
    small = vta(acc=2 << 10)
    with pytest.raises(TargetError) as error:
        build_chip(CASES["centred"].kernel, small, whole=["c"])
    assert error.value.what == (
        "no tile of centred with c whole fits the memories of vta, in bytes (inp 32,768,"
        " wgt 262,144, acc 2,048, uop 32,768): several are too small"
    )
