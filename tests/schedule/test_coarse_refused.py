"""What tensorize says where no instruction fits: the nearest way, and what is in its way."""

import pytest
from coarse import conv, layer

import tilewright
from tilewright import f32, grid, i8, i32, reduce
from tilewright.base.errors import ScheduleError
from tilewright.ir.instruction import Instruction
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, limit, read_instruction, view

SPAD = "spad"


@read_instruction
def window(
    x: i8[64],
    y: out(i8[64]),
    n: Range(2, 16),
    step: Range(1, 4),
    pad: Range(0, 2),
    present: Range(1, 64),
):
    limit(n * step <= 48)
    for i in grid(n):
        y[i] = x[i * step - pad] if 0 <= i * step - pad < present else 0


@read_instruction
def move(src: i8[64], dst: out(i8[64]), n: Range(2, 16)):
    for i in grid(n):
        dst[i] = src[i]


@read_instruction
def from_spad(src: i8[64] @ SPAD, dst: out(i8[64]), n: Range(2, 16)):
    for i in grid(n):
        dst[i] = src[i]


@read_instruction
def count_up(y: out(i32[64]), n: Range(2, 16), start: Range(0, 9)):
    for i in grid(n):
        y[i] = i32(i + start)


@read_instruction
def total(x: view(f32[16, 16], "far"), y: out(f32[16]), n: Range(2, 16), far: Range(0, 99)):
    for i in grid(n):
        for k in reduce(4):
            y[i] += x[i, k]


SIZE = dims("n", min=2, max=16)


@tilewright.kernel
def plain(
    X: i8[70], V: i8[SIZE],
    A: i8[13], B: i8[12], C: i8[12], D: i8[13], E: i32[16], F: i32[16], G: i8[13], H: i8[6, 16],
    I: i8[SIZE], J: f32[8], K: i8[13], L: i8[11],
):  # fmt: skip
    for a in grid(13):
        A[a] = X[a * 5]
    for b in grid(12):
        B[b] = X[b * 2] if b * 2 >= 3 else 0
    for c in grid(12):
        C[c] = X[c * 2] if c != 3 else 0
    for d in grid(13):
        D[d] = X[d * 4]
    for e in grid(16):
        E[e] = i32(e * 2)
    for f in grid(16):
        F[f] = i32(f + 10)
    for g in grid(13):
        G[g] = X[g] if g < 7 else 0
    for h in grid(6):
        for p in grid(16):
            H[h, p] = X[p] if 2 < p < 9 and p != h else 0
    for i in range(SIZE):
        I[i] = V[i]
    for j in grid(8):
        J[j] = 0.0
        for q in reduce(5):
            J[j] += f32(X[j + q])
    for k in grid(13):
        K[k] = X[k] + 1
    for l in grid(11):
        L[l] = X[l * 3] if l * 3 < 40 and l > 2 else 0


REFUSED: dict[str, tuple[str, Instruction, str]] = {
    "a step that is too long": ("a", window, "step would be 5: the field goes from 1 to 4"),
    "too much padding": ("b", window, "pad would be 3: the field goes from 0 to 2"),
    "a hole": (
        "c",
        window,
        "the condition c != 3 is not (0 <= i * step - pad) & (i * step - pad < present)",
    ),
    "a limit": ("d", window, "the limit n * step <= 48 does not hold: n is 13, step is 4"),
    "a multiple of a loop": (
        "e",
        count_up,
        "the program has the index e * 2, the instruction i + start",
    ),
    "an offset": ("f", count_up, "start would be 10: the field goes from 0 to 9"),
    "a guard and no padding": (
        "g",
        move,
        (
            "X[g] is read under a condition, and operand src without (pad makes room for what lies "
            "outside)"
        ),
    ),
    "a guard that is no window": (
        "p",
        window,
        (
            "the condition (2 < p) & (p < 9) & (p != h) is not (0 <= i * step - pad) & "
            "(i * step - pad < present)"
        ),
    ),
    "the name of a size": ("i", move, "the program has a size of a field's name: n"),
    "more than one statement": (
        "j",
        total,
        "its loops are not perfectly nested: inside j stand 2 statements",
    ),
    "more is computed": (
        "k",
        move,
        "operand src would be X[k] + i8(1), which is not in memory",
    ),
    "another window": (
        "l",
        window,
        "the program reads only where 2 < l, which window cannot",
    ),
    "memory": ("a", from_spad, "operand src must be in spad, and X is in dram"),
    "steps in memory": (
        "a",
        move,
        "a step along axis 0 of operand src is 1 in memory, and 5 in X[_0 * 5]",
    ),
    "no element": (
        "e",
        window,
        "operand x would be cast(i32, e * 2), which is not in memory",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    loop, instruction, wanted = REFUSED[name]
    assert refusal(Schedule(plain.kernel), loop, instruction) == wanted


def refusal(s: Schedule, loop: str, instruction: Instruction) -> str:
    before = s.kernel
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop(loop), instruction)
    assert s.kernel is before
    head = f"the nest of {loop} is no {instruction}: "
    assert error.value.what.startswith(head)
    return error.value.what[len(head) :]


CONVOLUTIONS = {
    "a pad as wide as the window": (
        {"k": 3, "pad": 3, "size": 6},
        "f",
        "the limit top < KH * far does not hold: KH is 3, far is 1, top is 3",
    ),
    "too many channels": (
        {"channels": 9, "size": 4},
        "f",
        "CI would be 9: the field goes from 1 to 8 (for loop c)",
    ),
    "too large a window": (
        {"k": 9, "pad": 0},
        "f",
        "KH would be 9: the field goes from 1 to 8 (for loop r)",
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str):
    sizes, loop, wanted = CONVOLUTIONS[name]
    assert refusal(Schedule(layer(**sizes).kernel), loop, conv) == wanted


def test_sums_that_are_kept():
    """An instruction's own sums are gone behind it."""

    @tilewright.kernel
    def kept(A: i8[4, 6], B: i8[6, 5], S: i32[4, 5], Y: i8[4, 5]):
        for i, j in grid(4, 5):
            S[i, j] = 0
            for k in reduce(6):
                S[i, j] += i32(A[i, k]) * i32(B[k, j])
            Y[i, j] = i8(max(min(S[i, j], 9), -9))

    assert refusal(Schedule(kept.kernel), "i", conv) == (
        "conv keeps acc to itself, and S is not allocated in the same loops (compute_at puts it "
        "there)"
    )


def test_a_clamp_that_cannot_be_left_out():
    @tilewright.kernel
    def wraps(A: i8[4, 6], B: i8[6, 5], Y: i8[4, 5]):
        for i, j in grid(4, 5):
            acc: i32 = 0
            for k in reduce(6):
                acc += i32(A[i, k]) * i32(B[k, j])
            Y[i, j] = i8(acc)

    assert refusal(Schedule(wraps.kernel), "i", conv) == (
        "the program computes acc[()] without max, which low cannot leave out: it goes from -128 "
        "to 127"
    )


def test_a_call_that_would_overlap():
    """A loop reads what it has written; the instruction would read what was there before."""

    @tilewright.kernel
    def shifts(A: i8[13], Y: i8[13]):
        for i in grid(13):
            Y[i] = A[i]
        for j in grid(12):
            Y[j + 1] = Y[j]

    assert refusal(Schedule(shifts.kernel), "j", move) == "operands dst and src would overlap"
