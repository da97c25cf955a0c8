"""Values that are known by name alone, and instructions that their authors simulate."""

import numpy as np
import pytest

import tilewright
from tilewright import grid, i8, i32, opaque
from tilewright.base.errors import CompileError, ScheduleError, TilewrightError
from tilewright.ir.expr import Opaque
from tilewright.ir.instruction import BlackBox
from tilewright.ir.interpret import interpret
from tilewright.ir.python.kernel import dims
from tilewright.ir.python.words import out
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, TargetBuilder, limit, read_instruction, view
from tilewright.targets import cpu

R, N, M = dims("R N M", max=32)
STEP = Range(0, 4096)


def sharpened(x: np.ndarray) -> np.ndarray:
    """From rows with one more element at each end."""
    wide = 3 * x[:, 1:-1].astype(np.int32) - x[:, :-2] - x[:, 2:]
    return np.clip(wide, -128, 127).astype(np.int8)


def run(fields, arrays):
    assert arrays["x"].shape == (fields["R"], fields["M"])
    arrays["y"][...] = sharpened(arrays["x"])


def described(function: BlackBox | None = run):
    def sharpen(x: view(i8[R, M], "far"), y: out(i8[R, N]), far: STEP):
        limit(M == N + 2)
        for i, j in grid(R, N):
            y[i, j] = opaque("sharpen", i8, x[i, j + 1], x[i, j], x[i, j + 2])

    return read_instruction(sharpen, function)


@tilewright.kernel
def picture(X: i8[12, 18], Y: i8[12, 16]):
    for i, j in grid(12, 16):
        Y[i, j] = opaque("sharpen", i8, X[i, j + 1], X[i, j], X[i, j + 2])


@tilewright.kernel
def other(X: i8[12, 18], Y: i8[12, 16]):
    for i, j in grid(12, 16):
        Y[i, j] = opaque("soften", i8, X[i, j + 1], X[i, j], X[i, j + 2])


def test_text():
    verify_kernel(picture.kernel)
    text = str(picture.kernel)
    assert 'Y[i, j] = opaque("sharpen", i8, X[i, j + 1], X[i, j], X[i, j + 2])' in text
    assert parse_kernel(text) == picture.kernel


def test_equal_names_and_operands_are_equal_values():
    value = next(x for x in picture.kernel.walk() if isinstance(x, Opaque))
    assert value == value.with_(args=tuple(value.args))
    assert value != value.with_(name="soften")
    assert value != value.with_(args=value.args[::-1])


@pytest.mark.parametrize("rows", [12, 4])
def test_the_authors_function_runs(rows: int):
    """In tiles of any size: the meaning says which elements of which belong together."""
    s = Schedule(picture.kernel)
    _, inner = s.split(s.loop("i"), rows)
    s.tensorize(inner, described())
    verify_kernel(s.kernel)
    assert f"R={rows}, M=18, N=16" in s.show()
    x = np.random.default_rng(0).integers(-128, 128, (12, 18)).astype(np.int8)
    (found,) = interpret(s.kernel, [x])
    np.testing.assert_array_equal(found, sharpened(x))


def test_another_name_is_another_function():
    s = Schedule(other.kernel)
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("i"), described())
    assert error.value.what == (
        'the nest of i is no sharpen: the program computes opaque("soften", i8, X[i, j + 1], '
        'X[i, j], X[i, j + 2]) where the instruction has opaque("sharpen", i8, x[i, j + 1], '
        "x[i, j], x[i, j + 2])"
    )


def error_of(action) -> str:
    with pytest.raises(TilewrightError) as caught:
        action()
    return f"{caught.value.what} | {caught.value.hint}"


def test_nothing_else_computes_it():
    x = np.zeros((12, 18), np.int8)
    wanted = (
        "sharpen is opaque: only an instruction can compute it | replace its loops by an "
        "instruction that has it: tensorize"
    )
    assert error_of(lambda: interpret(picture.kernel, [x])) == wanted
    assert error_of(lambda: picture.build(cpu.host(threads=1))) == wanted


def test_descriptions():
    assert error_of(lambda: described(None)) == (
        "sharpen computes sharpen, which is opaque | black_box=function says what simulates it: "
        "function(fields, arrays)"
    )

    def half(x: i8[2 * N], y: out(i8[N])):
        for i in grid(N):
            y[i] = opaque("half", i8, x[i])

    assert error_of(lambda: read_instruction(half, run)) == (
        "half: a black box has operands of numbers and dims(), not x: i8[2 * N] | None"
    )

    def listed(x: view(i8[N, 4], TargetBuilder("t", clock=1.0).micro_ops("m", bytes=4))):
        for i, j in grid(N, 4):
            x[i, j] = opaque("half", i8)

    assert error_of(lambda: read_instruction(listed, run)) == (
        "listed: a black box has no micro-operations | None"
    )


def test_kernels():
    def no_name(Y: i8[4]):
        for i in grid(4):
            Y[i] = opaque(i8, 1)

    def number(Y: i8[4]):
        for i in grid(4):
            Y[i] = opaque("f", i8, 1.5)

    def type_(Y: i8[4]):
        for i in grid(4):
            Y[i] = opaque("f", i32)

    for function, wanted in (
        (no_name, "this is not a name | expected a name, a string in quotes"),
        (number, "1.5 has no type here | give it one: f32(1.5)"),
        (type_, "a value of i32 is stored in Y: i8[4] | convert it: i8(…)"),
    ):
        found = error_of(lambda f=function: tilewright.kernel(f))
        assert found.split(": ", 1)[1] == wanted


def test_arrays_that_are_larger_than_the_region():
    """The function gets what the operand's shape says: that must be in the buffer."""

    def rows(x: i8[R, 20], y: out(i8[R, N])):
        for i, j in grid(R, N):
            y[i, j] = opaque("sharpen", i8, x[i, j + 1], x[i, j], x[i, j + 2])

    @tilewright.kernel
    def wide(X: i8[12, 20], Y: i8[12, 18]):
        for i, j in grid(12, 18):
            Y[i, j] = opaque("sharpen", i8, X[i, j + 1], X[i, j], X[i, j + 2])

    instruction = read_instruction(rows, lambda fields, arrays: None)
    s = Schedule(wide.kernel)
    s.tensorize(s.loop("i"), instruction)
    grown = s.kernel.body[0].instruction.with_(
        operands=(instruction.operands[0].with_(shape=(13, 20)), instruction.operands[1])
    )
    kernel = s.kernel.with_(body=(s.kernel.body[0].with_(instruction=grown),))
    with pytest.raises(CompileError) as error:
        interpret(kernel, [np.zeros((12, 20), np.int8)])
    assert error.value.what == "subscript 0 of X is 12, outside 0 … 11"
