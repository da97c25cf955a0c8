"""tensorize at its edges: loops that an instruction's axes just fit, or do not; fields that have no
value, or change within the call."""

import pytest

from tilewright import cast, f32, grid, i8, i32, reduce
from tilewright.base.errors import ScheduleError
from tilewright.ir.python.words import out
from tilewright.ir.text.loop import parse_kernel
from tilewright.schedule.schedule import Schedule
from tilewright.target.describe import Range, read_instruction, view


@read_instruction
def dot(a: i8[4], b: view(i8[8, 4], "far"), c: out(i32[8]), far: Range(1, 64)):
    for i in grid(8):
        for k in reduce(4):
            c[i] += cast(i32, a[k]) * cast(i32, b[i, k])


@read_instruction
def scale(a: f32[16], c: out(f32[16]), n: Range(1, 16), by: Range(0, 7)):
    for i in grid(n):
        c[i] = a[i] * cast(f32, by)


@read_instruction
def pairs(a: f32[16], c: out(f32[16]), n: Range(2, 16, 2)):
    for i in grid(n):
        c[i] = a[i]


PRODUCT = """
def f(A: i8[6, {k}], B: i8[{n}, {k}], C: out(i32[6, {n}])):
    for i in range(6):
        for j in range({n}):
            C[i, j] = i32(0)
    for i_1 in range(6):
        for j_1 in range({n}):
            for p in range({k}):
                C[i_1, j_1] += cast(i32, A[i_1, p]) * cast(i32, B[j_1, p])
"""
MANY = "3 nested loops (i_1, j_1, p), and dot has 2"
FITS = [
    (8, 4, ["dot(A[i_1, _0], B[_0, _1], C[i_1, _0], far=4)"]),
    (8, 12, ["for p_o in range(3):",
             "dot(A[i_1, p_o * 4 + _0], B[_0, p_o * 4 + _1], C[i_1, _0], far=12)"]),
    (24, 4, ["for j_1_o in range(3):",
             "dot(A[i_1, _0], B[j_1_o * 8 + _0, _1], C[i_1, j_1_o * 8 + _0], far=4)"]),
    (12, 8, (MANY, "axis i is 8, loop j_1 is 12")),
    (16, 6, (MANY, "axis i is 8, loop j_1 is 16")),
    (8, 6, (MANY, "axis k is 4, loop p is 6")),
    (8, 2, (MANY, "axis k is 4, loop p is 2")),
    (4, 4, (MANY, "axis i is 8, loop j_1 is 4")),
]  # fmt: skip


@pytest.mark.parametrize("n, k, found", FITS)
@pytest.mark.parametrize("at", ["i_1", "j_1"])
def test_fixed_axes(n: int, k: int, found: list[str] | tuple[str, str], at: str):
    """A list is what stands inside the loop of rows; the others say what is wrong from the outer
    loop and from the inner one."""
    s = Schedule(parse_kernel(PRODUCT.format(n=n, k=k).strip()))
    if isinstance(found, list):
        s.tensorize(s.loop(at), dot)
        lines = str(s.kernel).split("for i_1 in range(6):\n")[1].splitlines()
        assert [line.strip() for line in lines] == found
        return
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop(at), dot)
    assert error.value.what == f"the nest of {at} is no dot: {found[at == 'j_1']}"


ROW = """
def f(x: f32[{n}], y: out(f32[{n}])):
    for t in range({times}):
        for j in range({n}):
            y[j] = {value}
"""
VALUES = [
    ("x[j] * cast(f32, j)", "by would be j, which changes within the call"),
    ("x[j] * f32(3.0)", "by would be f32(3.0), which is no number that is known when it runs"),
    ("x[j] * cast(f32, t)", "by would be t: the field goes from 0 to 7"),
]


@pytest.mark.parametrize("value, why", VALUES)
def test_values_of_fields(value: str, why: str):
    s = Schedule(parse_kernel(ROW.format(n=16, times=9, value=value).strip()))
    with pytest.raises(ScheduleError) as error:
        s.tensorize(s.loop("j"), scale)
    assert error.value.what == f"the nest of j is no scale: {why}"


def test_a_field_that_changes_from_call_to_call():
    s = Schedule(parse_kernel(ROW.format(n=16, times=8, value="x[j] * cast(f32, t)").strip()))
    s.tensorize(s.loop("j"), scale)
    assert str(s.kernel).splitlines()[-1].strip() == "scale(x[_0], y[_0], n=16, by=t)"


@pytest.mark.parametrize(
    "n, call",
    [(2, "n=2"), (6, "n=6"), (16, "n=16"), (18, "n=6"), (32, "n=16"), (34, "n=2"), (20, "n=10")],
)
def test_the_most_iterations_that_divide(n: int, call: str):
    s = Schedule(parse_kernel(ROW.format(n=n, times=1, value="x[j]").strip()))
    s.tensorize(s.loop("j"), pairs)
    assert f"{call})" in str(s.kernel)


@pytest.mark.parametrize("n", [1, 3, 15, 17])
def test_no_pairs(n: int):
    s = Schedule(parse_kernel(ROW.format(n=n, times=1, value="x[j]").strip()))
    with pytest.raises(ScheduleError):
        s.tensorize(s.loop("j"), pairs)
