"""tensorize with coarse instructions: whole convolutions with padding, ranges, parts that a program
may leave out. What is accepted computes what the loops computed."""

import random

import pytest
from coarse import almost, call_of, check, conv, fields, layer
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright import grid, i8, i32, local, reduce
from tilewright.base.errors import ScheduleError
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import If, walk_statements
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, flag, read_instruction, view

N = Range(1, 64)
STEP = Range(0, 1 << 16)


def tensorized(s: Schedule, loop: str, instruction: Instruction, way: int = 0) -> Schedule:
    s.tensorize(s.loop(loop), instruction, way)
    check(s)
    return s


def test_a_whole_convolution():
    s = tensorized(Schedule(layer().kernel), "f", conv)
    (line,) = s.show().split("\n")[1:]
    assert line.strip() == (
        "conv(X[_0, _1, _2], W[_0, _1, _2, _3], b[_0], Y[_0, _1, _2], x_plane=144, x_row=12, "
        "y_plane=144, y_row=12, stride=1, far=1, top=1, left=1, bias=1, scale=3, shift=4, "
        "low=-100, high=90, CI=2, IH=12, IW=12, CO=3, KH=3, KW=3, OH=12, OW=12)"
    )


SIZES = [st.integers(1, 3), st.integers(3, 7), st.integers(1, 2), st.integers(1, 3)]


@given(*SIZES, st.integers(1, 3), st.integers(0, 2))
@settings(max_examples=25)
def test_any_convolution(channels: int, size: int, filters: int, k: int, stride: int, pad: int):
    """Whatever a convolution's numbers are, they are the fields' values."""
    kernel = layer(channels, size, filters, k, stride, min(pad, k - 1)).kernel
    found = fields(tensorized(Schedule(kernel), "f", conv))
    made = kernel.outputs[0].shape[1]
    assert found["OH"] == found["OW"] == str(made)
    assert found["top"] == found["left"] == str(min(pad, k - 1))
    assert found["stride"] == (str(stride) if made > 1 else "1")


TILED = {  # of 12 rows: in how many the loop is cut, and what that makes of the fields
    "three tiles": (4, "max(1 - h_o * 4, 0)", "min(13 - h_o * 4, 6)", "4"),
    "a tile that is not full": (
        5,
        "max(1 - h_o * 5, 0)",
        "min(13 - h_o * 5, 7)",
        "min(5, 12 - h_o * 5)",
    ),
    "single rows": (1, "max(1 - h_o, 0)", "min(13 - h_o, 3)", "1"),
}


@pytest.mark.parametrize("name", TILED)
def test_padding_of_a_tile(name: str):
    """Only the first tile has rows above it, only the last has rows below."""
    rows, top, end, made = TILED[name]
    s = Schedule(layer(channels=1, filters=1).kernel)
    s.split(s.loop("h"), rows)
    found = fields(tensorized(s, "h_i", conv))
    assert (found["top"], found["IH"], found["OH"]) == (top, f"{end} - {top}", made)
    assert found["left"] == "1"


def test_what_is_accepted_is_right():
    """Kernels that are convolutions, or nearly: whatever is accepted is the same. Most that are
    refused have a hole in their window, or steps that differ along rows and columns."""
    rng, accepted = random.Random(0), 0
    for _ in range(80):
        s = almost(rng.getrandbits(40))
        loop = s.loops()[rng.randrange(3)].var.name
        for way in range(2):
            t = Schedule(s.kernel)
            try:
                t.tensorize(t.loop(loop), conv, way)
            except ScheduleError:
                break
            accepted += 1
            check(t)
    assert accepted >= 40


# ---------------------------------------------------------------- what a program leaves out


PLAIN, RELU, SCALED = range(3)


def product(follows: int):
    """C = A B, and what follows the sums."""

    @tilewright.kernel
    def matmul(A: i8[6, 8], B: i8[8, 10], b: i32[6], C: i8[6, 10]):
        for i, j in grid(6, 10):
            acc: i32 = 0
            for k in reduce(8):
                acc += i32(A[i, k]) * i32(B[k, j])
            plain = max(min(acc, 127), -128)
            relu = min(max(acc + b[i] >> 5, 0), 127)
            scaled = max(min(acc * 7, 50), -50)
            C[i, j] = i8(plain if follows == PLAIN else relu if follows == RELU else scaled)

    return matmul


FOLLOWS = {  # bias, scale, shift, low, high
    PLAIN: ("0", "1", "0", "-128", "127"),
    RELU: ("1", "1", "5", "0", "127"),
    SCALED: ("0", "7", "0", "-50", "50"),
}


@pytest.mark.parametrize("follows", FOLLOWS, ids=["plain", "relu", "scaled"])
def test_what_changes_nothing(follows: int):
    s = tensorized(Schedule(product(follows).kernel), "i", conv)
    found = fields(s)
    assert tuple(found[f] for f in ("bias", "scale", "shift", "low", "high")) == FOLLOWS[follows]
    used = {o.name: str(r) for o, r in zip(conv.operands, call_of(s).regions, strict=True)}
    assert used["b"] == ("b[_0]" if follows == RELU else "b_unused[0]")
    assert s.show().count("b_unused = alloc(i32[1])") == (follows != RELU)


def test_all_ways_of_a_product():
    """Rows of the result are filters; columns go along one axis of the picture or the other, sums
    along channels or the window."""
    found = []
    for way in range(8):
        values = fields(tensorized(Schedule(product(RELU).kernel), "i", conv, way))
        found.append(tuple(int(values[f]) for f in ("CO", "OH", "OW", "CI", "KH", "KW")))
    assert len(set(found)) == 8
    assert found[:3] == [(6, 10, 1, 8, 1, 1), (6, 1, 10, 8, 1, 1), (6, 1, 10, 1, 8, 1)]
    s = Schedule(product(RELU).kernel)
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("i"), conv, 8)
    assert error.value.what == "there are 8 ways to make conv of i, counted from 0"


# ---------------------------------------------------------------- conditions


@read_instruction
def move(src: i8[64], dst: out(i8[64]), n: N):
    for i in grid(n):
        dst[i] = src[i]


def test_conditions_shorten_an_axis():
    """Where nothing is left there is no call."""

    @tilewright.kernel
    def shifted(X: i8[20], Y: i8[4, 8]):
        for t, i in grid(4, 8):
            Y[t, i] = 0
        for u, j in grid(4, 8):
            if 0 <= u * 5 + j - 3 < 15:
                Y[u, j] = X[u * 5 + j - 3]

    s = tensorized(Schedule(shifted.kernel), "j", move)
    first, last = "max(0, 3 - u * 5)", "min(8, 18 - u * 5)"
    assert [line.strip() for line in s.show().split("\n")[4:]] == [
        "for u in range(4):",
        f"if 1 <= {last} - {first}:",
        f"move(X[u * 5 + _0 + {first} - 3], Y[u, _0 + {first}], n={last} - {first})",
    ]


def test_a_condition_on_the_whole_call():
    @tilewright.kernel
    def some(X: i8[4, 8], Y: i8[4, 8]):
        for t, i in grid(4, 8):
            Y[t, i] = 0
        for u, j in grid(4, 8):
            if u >= 2:
                Y[u, j] = X[u, j]

    s = tensorized(Schedule(some.kernel), "j", move)
    (condition,) = (str(x.cond) for x in walk_statements(s.kernel.body) if isinstance(x, If))
    assert condition == "2 <= u"


# ---------------------------------------------------------------- several statements


@read_instruction
def center(x: i8[64], y: out(i8[64]), n: N, positive: flag):
    total: i32 = 0
    for i in reduce(n):
        total += i32(x[i])
    for i in grid(n):
        y[i] = i8((i32(x[i]) << 3) - (total >> 3))
    if positive == 1:
        for i in grid(n):
            y[i] = max(y[i], 0)


@pytest.mark.parametrize("positive", [0, 1])
def test_an_instruction_of_several_nests(positive: int):
    """It takes what stands beside the loop, with a buffer that nothing else uses."""

    @tilewright.kernel
    def rows(X: i8[5, 16], Y: i8[5, 16]):
        for t in range(5):
            sums = local(i32[1])
            sums[0] = 0
            for k in reduce(16):
                sums[0] += i32(X[t, k])
            for i in grid(16):
                Y[t, i] = i8((i32(X[t, i]) << 3) - (sums[0] >> 3))
            for j in grid(16 * positive):
                Y[t, j] = max(Y[t, j], 0)

    s = tensorized(Schedule(rows.kernel), "i", center)
    assert [line.strip() for line in s.show().split("\n")[1:]] == [
        "for t in range(5):",
        f"center(X[t, _0], Y[t, _0], n=16, positive={positive})",
        *["for j in range(0):", "accumulate(max, Y[t, j], i8(0))"][: 2 - 2 * positive],
    ]


def batched(batch: int) -> Instruction:
    def sums(x: i8[64], y: out(i32[4, 64]), n: N):
        for i in grid(n):
            for b in grid(batch):
                y[b, i] = 1
            for b in grid(batch):
                y[b, i] += i32(x[i])

    return read_instruction(sums)


def test_loops_of_one_in_an_instruction():
    """A description with a parameter of 1 has loops that do a single step; a program has none."""

    @tilewright.kernel
    def rows(X: i8[16], Y: i32[3, 16]):
        for t, i in grid(3, 16):
            Y[t, i] = 1
            Y[t, i] += i32(X[i])

    s = tensorized(Schedule(rows.kernel), "i", batched(1))
    assert "sums(X[_0], Y[t, _1], n=16)" in s.show()
    with pytest.raises(ScheduleError) as error:
        Schedule(rows.kernel).tensorize(s.loop("t"), batched(2))
    assert error.value.what == "the nest of t is no sums: axis b is 2, a single step is 1"


def test_a_buffer_that_others_use_is_kept():
    @tilewright.kernel
    def rows(X: i8[16], Y: i8[16], Z: i32[()]):
        sums = local(i32[1])
        sums[0] = 0
        for k in reduce(16):
            sums[0] += i32(X[k])
        for i in grid(16):
            Y[i] = i8((i32(X[i]) << 3) - (sums[0] >> 3))
        Z[()] = sums[0]

    s = Schedule(rows.kernel)
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("i"), center)
    assert error.value.what == (
        "the nest of i is no center: Z[()] = sums[0] stands where the instruction has "
        "accumulate(max, y[i_2], i8(0))"
    )


def test_names_of_an_instructions_own_buffers():
    """A buffer of the program that is called like one of the instruction's is another."""

    @tilewright.kernel
    def two(X: i8[4, 16], Y: i8[4, 16], Z: i32[()]):
        total = local(i32[()])
        total[()] = 7
        for t in range(4):
            sums = local(i32[()])
            sums[()] = 0
            for k in reduce(16):
                sums[()] += i32(X[t, k])
            for i in grid(16):
                Y[t, i] = i8((i32(X[t, i]) << 3) - (sums[()] >> 3))
        Z[()] = total[()]

    s = tensorized(Schedule(two.kernel), "i", center)
    assert s.show().count("total") == 3


# ---------------------------------------------------------------- places and indices


@read_instruction
def blur(x: i8[64], y: out(i8[64]), n: N):
    for i in grid(n):
        y[i] = x[i + 1] + x[i + 2]


@read_instruction
def count_up(y: out(i32[64]), n: N, start: Range(-100, 100)):
    for i in grid(n):
        y[i] = i32(i + start)


SX, SY = dims("SX SY", max=64)


@read_instruction
def cut(x: i8[8, SX], y: out(i8[8, SY]), rows: Range(1, 8), columns: Range(1, 8)):
    for i, j in grid(rows, columns):
        y[i, j] = x[i, j]


@read_instruction
def spread(x: view(i8[16, 16], "a", "b"), y: out(i8[256]), n: Range(2, 16), a: STEP, b: STEP):
    for i in grid(n):
        y[i] = x[i, i]


@tilewright.kernel
def places(X: i8[40], A: i8[12, 16], Y: i8[8], C: i32[4, 8], P: i8[6, 10], D: i8[8]):
    for i in grid(8):
        Y[i] = X[i + 6] + X[i + 5]
    for t, c in grid(4, 8):
        C[t, c] = i32(c + t * 8 - 3)
    for p, q in grid(6, 8):
        P[p, q + 2] = A[p * 2, q + 5]
    for p, z in grid(6, 2):
        P[p, z] = 0
    for d in grid(8):
        D[d] = A[d, d]


PLACES = {
    "an operand's own offset": ("i", blur, "blur(X[_0 + 4], Y[_0], n=8)"),
    "a loop that is a value": ("c", count_up, "count_up(C[t, _0], n=8, start=t * 8 - 3)"),
    "extents that say how far rows are apart": (
        "p",
        cut,
        "cut(A[_0 * 2, _1 + 5], P[_0, _1 + 2], rows=6, columns=8, SX=32, SY=10)",
    ),
    "one loop along two axes": ("d", spread, "spread(A[_0, _1], D[_0], n=8, a=16, b=1)"),
}


@pytest.mark.parametrize("name", PLACES)
def test_places(name: str):
    loop, instruction, wanted = PLACES[name]
    s = Schedule(places.kernel)
    loop = next(x.var.name for x in s.loops() if x.var.name.split("_")[0] == loop)
    s = tensorized(s, loop, instruction)
    (call,) = (line.strip() for line in s.show().split("\n") if instruction.name in line)
    assert call == wanted
