"""tensorize: which nests become which calls, that nothing changes, and what stands in the way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import array

import tilewright
from tilewright import cast, f32, grid, i8, i32, reduce
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Cast, Load, Var, maximum, minimum
from tilewright.ir.instruction import Instruction
from tilewright.ir.interpret import interpret
from tilewright.ir.python.words import out
from tilewright.ir.tensor_type import Layout
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.schedule.match.unify import Unifier
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, flag, read_instruction, view


@read_instruction
def dot4(a: i8[4], b: i8[8, 4], c: out(i32[8])):
    for i in grid(8):
        for k in reduce(4):
            c[i] += cast(i32, a[k]) * cast(i32, b[i, k])


@read_instruction
def rows(src: view(f32[8, 4], "stride"), dst: out(f32[8, 4]), n: Range(1, 8), stride: Range(0, 99)):
    for i, j in grid(n, 4):
        dst[i, j] = src[i, j]


@read_instruction
def outer4(
    a: f32[4], b: f32[4], c: view(out(f32[4, 4]), "over", "along"),
    over: Range(1, 99), along: Range(1, 99),
):  # fmt: skip
    for i, j in grid(4, 4):
        c[i, j] += a[i] * b[j]


@tilewright.kernel
def gemm(A: i8[6, 8], B: i8[16, 8], C: i32[6, 16]):
    for i, j in grid(6, 16):
        C[i, j] = 0
        for k in reduce(8):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[j, k])


@tilewright.kernel
def turn(X: f32[6, 12], Y: f32[12, 6]):
    for i, j in grid(12, 6):
        Y[i, j] = X[j, i]


@tilewright.kernel
def copy(X: f32[12, 8], Y: f32[3, 2, 4, 4]):
    for t, i, u, j in grid(3, 4, 2, 4):
        Y[t, u, i, j] = X[t * 4 + i, u * 4 + j]


@tilewright.kernel
def product(A: f32[8, 3], B: f32[3, 12], C: f32[8, 12]):
    for i, j in grid(8, 12):
        C[i, j] = 0.0
        for k in reduce(3):
            C[i, j] += A[i, k] * B[k, j]


def prepared() -> Schedule:
    """gemm with sums apart from zeros, and B in blocks."""
    s = Schedule(gemm.kernel)
    s.split_init(s.buffer("C"))
    s.pack_layout(s.cache_read(s.buffer("B"), s.loop("i")), Layout((0, 1), ((0, 8), (1, 4))))
    return s


def check(s: Schedule) -> None:
    verify_kernel(s.kernel)
    inputs = [array(i, b.dtype, b.shape) for i, b in enumerate(s.original.inputs)]
    before, after = interpret(s.original, inputs), interpret(s.kernel, inputs)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def calls(s: Schedule, instruction: Instruction) -> list[str]:
    """The program's last loops and the call in them."""
    lines = s.show().split("\n")
    at = next(n for n, line in enumerate(lines) if f"{instruction.name}(" in line)
    return [line.strip() for line in lines[at - 2 : at + 1]]


def test_loops_are_cut_and_put_innermost():
    s = prepared()
    s.tensorize(s.loop("j"), dot4)
    assert calls(s, dot4) == [
        "for j_o in range(2):",
        "for k_o in range(2):",
        "dot4(A[i, k_o * 4 + _0], B_local[j_o, k_o, _0, _1], C[i, j_o * 8 + _0])",
    ]
    assert [str(step).split("(")[0] for step in s.trace].count("split") == 0  # one step of its own
    check(s)


def test_a_range_takes_the_largest_that_divides():
    s = Schedule(copy.kernel)
    s.reorder(s.loop("u"), s.loop("t"), s.loop("i"), s.loop("j"))
    s.fuse(s.loop("t"), s.loop("i"))
    s.tensorize(s.loops()[1], rows)
    assert "rows(X[t_i_o * 4 + _0, u * 4 + _1], Y[t_i_o, u, _0, _1], n=4, stride=8)" in s.show()
    check(s)


def test_ways_are_numbered():
    """The unit takes either factor first: the result is then written across."""
    found = []
    for way in range(2):
        s = Schedule(product.kernel)
        s.split_init(s.buffer("C"))
        s.reorder(s.loop("k"), s.loop("i"), s.loop("j"))
        s.cache_read(s.buffer("A"), s.loop("k"))
        s.tensorize(s.loop("i"), outer4, way)
        found.append(calls(s, outer4)[-1])
        check(s)
    assert found == [
        (
            "outer4(A_local[i_o * 4 + _0, 0], B[k, j_o * 4 + _0], C[i_o * 4 + _0, j_o * 4 + _1], "
            "over=12, along=1)"
        ),
        (
            "outer4(B[k, j_o * 4 + _0], A_local[i_o * 4 + _0, 0], C[i_o * 4 + _1, j_o * 4 + _0], "
            "over=1, along=12)"
        ),
    ]
    s = Schedule(product.kernel)
    s.split_init(s.buffer("C"))
    s.reorder(s.loop("k"), s.loop("i"), s.loop("j"))
    s.cache_read(s.buffer("A"), s.loop("k"))
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("i"), outer4, 2)
    assert error.value.what == "there are 2 ways to make outer4 of i, counted from 0"


REFUSED = {
    "an extent": (
        lambda s: s.tensorize(s.loop("j_init"), dot4),
        (
            "the nest of j_init is no dot4: C[i_init, j_init] = i32(0) stands where the "
            "instruction has c[i] += cast(i32, a[k]) * cast(i32, b[i, k])"
        ),
    ),
    "two statements": (
        lambda s: s.tensorize(s.loop("i"), dot4),
        "the nest of i is no dot4: its loops are not perfectly nested: inside i stand 2 statements",
    ),
    "another statement": (
        lambda s: s.tensorize(s.loop("B_local_0"), dot4),
        (
            "the nest of B_local_0 is no dot4: B_local[B_local_0 // 8, B_local_1 // 4, "
            "B_local_0 % 8, B_local_1 % 4] = B[B_local_0, B_local_1] stands where the instruction "
            "has c[i] += cast(i32, a[k]) * cast(i32, b[i, k])"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    s = prepared()
    before = s.kernel
    apply, wanted = REFUSED[name]
    with pytest.raises(ScheduleError) as error:
        apply(s)
    assert error.value.what == wanted
    assert s.kernel is before


def test_the_nearest_obstacle():
    """Everything fits but where the elements lie."""
    s = Schedule(gemm.kernel)
    s.split_init(s.buffer("C"))
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("j"), dot4)
    assert error.value.what == (
        "the nest of j is no dot4: a step along axis 0 of operand b is 4 in memory, and 8 in "
        "B[j_o * 8 + _0, k_o * 4 + _1]"
    )


def test_steps_in_memory():
    """A transposition reads rows and writes columns: the instruction does not."""
    s = Schedule(turn.kernel)
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("i"), rows)
    assert error.value.what == (
        "the nest of i is no rows: a step along axis 1 of operand dst is 1 in memory, and 6 in "
        "Y[i_o * 4 + _1, _0]"
    )


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.permutations("ijk"))
def test_any_nest(m: int, n: int, depth: int, order: list[str]):
    """Sizes and orders of loops."""
    s = Schedule(any_gemm.bind(M=m, N=8 * n, K=4 * depth).kernel)
    s.split_init(s.buffer("C"))
    s.pack_layout(s.buffer("B"), Layout((0, 1), ((0, 8), (1, 4))))
    s.reorder(*(s.loop(v) for v in order))
    s.tensorize(s.loop(order[0]), dot4)
    verify_kernel(s.kernel)
    assert s.show().count("dot4(") == s.show().count("+=") + 1 == 1
    a, b = array(0, i8, (m, 4 * depth)), array(1, i8, (8 * n, 4 * depth))
    blocks = b.reshape(n, 8, depth, 4).transpose(0, 2, 1, 3)
    (found,) = interpret(s.kernel, [a, np.ascontiguousarray(blocks)])
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.T.astype(np.int32))


@read_instruction
def add_places(
    src: view(i32[6], "p"), dst: view(out(i32[6]), "q"), p: Range(1, 99), q: Range(1, 99)
):
    for i in grid(6):
        dst[i] += src[i]


@given(*(st.integers(low, 5) for low in (1, 0, 1, 0)))
def test_operands_of_one_buffer(q: int, to: int, p: int, of: int):
    """An instruction may read before it writes: never what another iteration has written, and what
    none writes as well as what is written there itself."""

    @tilewright.kernel
    def moved(X: i32[32], Y: i32[32]):
        T = tilewright.local(i32[32])
        for n in grid(32):
            T[n] = X[n]
        for i in grid(6):
            T[i * q + to] += T[i * p + of]
        for m in grid(32):
            Y[m] = T[m]

    places = [(i * q + to, i * p + of) for i in range(6)]
    apart = not {a for a, _ in places} & {b for _, b in places}
    s = Schedule(moved.kernel)
    if not apart and (q, to) != (p, of):
        with pytest.raises(ScheduleError, match="operands dst and src would overlap"):
            s.tensorize(s.loop("i"), add_places)
        return
    s.tensorize(s.loop("i"), add_places)
    x = array(0, i32, (32,))
    (found,), (expected,) = interpret(s.kernel, [x]), interpret(moved.kernel, [x])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("axes", ["places[n]", "places[n], i + 3"])
def test_operands_of_one_buffer_at_places_that_are_read(axes: str):
    """What a subscript reads from memory may be any place."""
    shape, read = ("4, 9", "n, i") if "," in axes else ("40", "n + i")
    written = axes if "," in axes else f"{axes} + i"
    s = Schedule(
        parse_kernel(
            f"""
def k(places: i64[4], x: i32[{shape}], y: out(i32[{shape}])):
    for n in range(4):
        for i in range(6):
            y[{written}] += y[{read}]
""".strip()
        )
    )
    with pytest.raises(ScheduleError, match="operands dst and src would overlap"):
        s.tensorize(s.loop("i"), add_places)


@read_instruction
def dots(x: i8[8, 4], w: i8[4], y: out(i8[8]), relu: flag):
    for i in grid(8):
        acc: i32 = 0
        for k in reduce(4):
            acc += i32(x[i, k]) * i32(w[k])
        if relu == 1:
            y[i] = i8(max(min(acc >> 7, 127), 0))
        else:
            y[i] = i8(max(min(acc >> 7, 127), -128))


@pytest.mark.parametrize("low, made", [(0, True), (-128, True), (-1, False)])
def test_what_a_flag_chooses_may_be_made_of_sums(low: int, made: bool):
    sums = Buffer("sums", i32, (8,))
    total = Load(sums, (Var("i"),))
    value = Cast(i8, maximum(minimum(total >> 7, 127), low))
    assert Unifier(dots, Simplifier()).makes(value, sums) == made


M, N, K = tilewright.dims("M N K")


@tilewright.kernel
def any_gemm(A: i8[M, K], B: i8[N, K], C: i32[M, N]):
    for i, j in grid(M, N):
        C[i, j] = 0
        for k in reduce(K):
            C[i, j] += cast(i32, A[i, k]) * cast(i32, B[j, k])
