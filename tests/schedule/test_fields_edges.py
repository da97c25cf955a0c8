"""Instructions whose fields, conditions and subscripts a program does not quite fit: which call it
is, or what stands in the way."""

from __future__ import annotations

import pytest
from schedule_cases import check_same, schedule

from tilewright import cast, f32, grid, i32, reduce
from tilewright.base.errors import ScheduleError
from tilewright.ir.instruction import Instruction
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, flag, read_instruction, view

FEW = Range(1, 16)


@read_instruction
def square(a: view(f32[16, 16], "far"), c: out(f32[16]), n: FEW, far: Range(1, 99)):
    for i in grid(n):
        for k in reduce(n):
            c[i] += a[i, k]


@read_instruction
def twice(a: i32[16], c: out(i32[16]), n: FEW, by: Range(0, 9)):
    for i in grid(n):
        c[i] = a[i] * cast(i32, by) + cast(i32, by)


@read_instruction
def shifted(c: out(i32[16]), n: FEW, start: Range(0, 9)):
    for i in grid(n):
        c[i] = cast(i32, start + 3)


@read_instruction
def numbered(c: out(i32[16]), n: FEW):
    for i in grid(n):
        c[i] = cast(i32, i + 3)


@read_instruction
def even(a: f32[64], c: out(f32[16]), n: FEW, step: Range(1, 9)):
    for i in grid(n):
        c[i] = a[i * (step * 2)]


@read_instruction
def offset(a: f32[64], c: out(f32[16]), n: FEW, off: Range(2, 9)):
    for i in grid(n):
        c[i] = a[i + off]


@read_instruction
def halves(a: f32[64], c: out(f32[16]), n: FEW):
    for i in grid(n):
        c[i] = a[i // 2]


@read_instruction
def products(a: f32[256], c: view(out(f32[16, 16]), "far"), n: FEW, m: FEW, far: Range(1, 99)):
    for i, j in grid(n, m):
        c[i, j] = a[i * j]


@read_instruction
def behind(a: f32[64], c: out(f32[16]), n: FEW):
    for i in grid(n):
        c[i] = a[i - 1] if i >= 1 else 0.0


@read_instruction
def padded(a: f32[64], c: out(f32[16]), n: FEW, pad: Range(0, 4)):
    for i in grid(n):
        c[i] = a[i - pad * 2] if i - pad * 2 >= 0 else 0.0


@read_instruction
def between(a: f32[64], c: out(f32[16]), n: FEW, p: Range(0, 4), q: Range(0, 4)):
    for i in grid(n):
        c[i] = a[i] if i - p - q >= 0 else 0.0


@read_instruction
def sometimes(a: f32[16], c: out(f32[16]), n: FEW, mode: Range(0, 3)):
    for i in grid(n):
        if mode < 2:
            c[i] = 0.0
        c[i] += a[i]


@read_instruction
def cleared(a: f32[16], c: out(f32[16]), n: FEW, more: flag):
    for i in grid(n):
        if more == 0:
            c[i] = 0.0
        c[i] += a[i]


@read_instruction
def raised(a: i32[16], c: out(i32[16]), n: FEW, plus: flag):
    for i in grid(n):
        c[i] = a[i] + (5 if plus == 1 else 0)


@read_instruction
def raised_always(a: i32[16], c: out(i32[16]), n: FEW, plus: flag):
    for i in grid(n):
        c[i] = a[i] + (5 if plus == 1 else 7)


@read_instruction
def raised_floats(a: f32[16], c: out(f32[16]), n: FEW, plus: flag):
    for i in grid(n):
        c[i] = a[i] + (5.0 if plus == 1 else 0.0)


@read_instruction
def relay(a: f32[16], b: out(f32[16]), c: out(f32[16]), n: FEW):
    for i in grid(n):
        b[i] = a[i]
        c[i] = b[i] + 1.0


@read_instruction
def rows(a: view(f32[16, 16], "far"), c: view(out(f32[16, 16]), "wide"), n: FEW, m: FEW,
         far: Range(1, 99), wide: Range(1, 99)):  # fmt: skip
    for i, j in grid(n, m):
        c[i, j] = a[i, j]


@read_instruction
def columns(a: f32[16], c: view(out(f32[16, 16]), "wide"), n: FEW, m: FEW, wide: Range(1, 99)):
    for i, j in grid(n, m):
        c[i, j] = a[j]


@read_instruction
def same_steps(a: view(f32[16, 4], "far"), c: view(out(f32[16, 4]), "far"), n: FEW,
               far: Range(0, 99)):  # fmt: skip
    for i, j in grid(n, 4):
        c[i, j] = a[i, j]


HEAD = "def f({params}, y: out({result})):\n    "


def program(result: str, body: str, params: str = "x: f32[64]") -> str:
    return HEAD.format(params=params, result=result) + body.replace("; ", "\n    ")


def nest(value: str, result: str = "f32[8]", params: str = "x: f32[64]") -> str:
    return program(result, f"for i in range(8):;     y[i] = {value}", params)


def plane(value: str, params: str = "x: f32[8, 8]") -> str:
    body = f"for i in range(8):;     for j in range(4):;         y[i, j] = {value}"
    return program("f32[8, 8]", body, params)


SUMS = "for o in range({n}):;     y[o] = f32(0.0); for i in range({n}):;     for k in range({k}):"
SUMS += ";         y[i] += x[i, k]"
X = "x: f32[64]"
THROUGH = "     {0}[i] = x[i];     y[i] = {0}[i] + f32(1.0)"
CASES: list[tuple[str, Instruction, str]] = [
    # One field for several things.
    (program("f32[8]", SUMS.format(n=8, k=8), "x: f32[8, 8]"), square,
     "square(x[_0, _1], y[_0], n=8, far=8)"),
    (program("f32[8]", SUMS.format(n=8, k=6), "x: f32[8, 8]"), square,
     "n would be 8 and 6 (for loop k)"),
    (nest("x[i] * i32(3) + i32(3)", "i32[8]", "x: i32[64]"), twice,
     "twice(x[_0], y[_0], n=8, by=3)"),
    (nest("x[i] * i32(3) + i32(4)", "i32[8]", "x: i32[64]"), twice,
     "by would be 3 and 4"),
    (nest("x[i]", "i32[8]", "x: i32[64]"), twice,
     "nothing fits"),
    (plane("x[i, j]", "x: f32[8, 8]"), same_steps,
     "same_steps(x[_0, _1], y[_0, _1], n=8, far=8)"),
    (plane("x[i, j]", "x: f32[8, 16]"), same_steps,
     "same_steps(x[i, _1], y[i, _1], n=1, far=0)"),
    # Numbers that fields make.
    (nest("i32(7)", "i32[8]"), shifted,
     "shifted(y[_0], n=8, start=4)"),
    (nest("i32(2)", "i32[8]"), shifted,
     "start would be -1: the field goes from 0 to 9"),
    (nest("i32(13)", "i32[8]"), shifted,
     "start would be 10: the field goes from 0 to 9"),
    (nest("cast(i32, i + 3)", "i32[8]"), numbered,
     "numbered(y[_0], n=8)"),
    (nest("cast(i32, i + 4)", "i32[8]"), numbered,
     "the program has the index i + 4, the instruction i + 3"),
    (nest("cast(i32, i * 2 + 3)", "i32[8]"), numbered,
     "the program has the index i * 2 + 3, the instruction i + 3"),
    # Steps and offsets.
    (nest("x[i * 6]"), even,
     "even(x[_0], y[_0], n=8, step=3)"),
    (nest("x[i * 3]"), even,
     "step would have to be 3 / 2"),
    (nest("x[i * 20]", params="x: f32[200]"), even,
     "step would be 10: the field goes from 1 to 9"),
    (nest("x[i + 20]"), offset,
     "offset(x[_0 + 18], y[_0], n=8, off=2)"),
    (nest("x[i // 2]"), halves,
     "x is not indexed linearly: i // 2"),
    (nest("x[i]"), halves,
     "subscript i of x moves otherwise than operand a"),
    (plane("x[i * j]", "x: f32[64]"), products,
     "x is not indexed linearly: i * j"),
    # Conditions.
    (nest("select(i >= 1, x[i - 1], f32(0.0))"), behind,
     "behind(x[_0], y[_0], n=8)"),
    (nest("select(i >= 2, x[i - 2], f32(0.0))"), behind,
     "behind reads where i - 1 >= 0, the program not"),
    (nest("select(i >= 2, x[i - 1], f32(0.0))"), behind,
     "behind reads where i - 1 >= 0, the program not"),
    (nest("x[i]"), behind,
     "behind reads where i - 1 >= 0, the program not"),
    (nest("select((i >= 1) & (i < 5), x[i - 1], f32(0.0))"), behind,
     "the program reads only where i < 5, which behind cannot"),
    (nest("select(i >= 2, x[i - 2], f32(0.0))"), padded,
     "pad cannot be found from i - pad * 2 >= 0"),
    (nest("select(i >= 2, x[i], f32(0.0))"), between,
     "i - p - q >= 0 does not say what each field in it is"),
    (nest("select(x[i] > f32(0.0), x[i], f32(0.0))"), between,
     "operand a would be select(x[i] > f32(0.0), x[i], f32(0.0)), which is not in memory"),
    (nest("select(i * i >= 2, x[i], f32(0.0))"), behind,
     "the condition 2 <= i * i is not i >= 1"),
    # Parts that a field chooses.
    (program("f32[8]", "for i in range(8):;     y[i] = f32(0.0);     y[i] += x[i]"), sometimes,
     "the instruction's condition mode < 2 is not a flag"),
    (program("f32[8]", "for i in range(8):;     y[i] = f32(0.0);     y[i] += x[i]"), cleared,
     "cleared(x[_0], y[_0], n=8, more=0)"),
    (program("f32[8]", "for i in range(8):;     y[i] = f32(0.0)"), cleared,
     "the instruction does more: c[i] += a[i]"),
    (nest("x[i] + i32(5)", "i32[8]", "x: i32[64]"), raised,
     "raised(x[_0], y[_0], n=8, plus=1)"),
    (nest("x[i]", "i32[8]", "x: i32[64]"), raised,
     "raised(x[_0], y[_0], n=8, plus=0)"),
    (nest("x[i] + i32(6)", "i32[8]", "x: i32[64]"), raised,
     "the instruction has the constant i32(5), the program i32(6)"),
    (nest("x[i]", "i32[8]", "x: i32[64]"), raised_always,
     "nothing fits"),
    (nest("x[i] + i32(7)", "i32[8]", "x: i32[64]"), raised_always,
     "raised_always(x[_0], y[_0], n=8, plus=0)"),
    (nest("x[i] + f32(5.0)"), raised_floats,
     "raised_floats(x[_0], y[_0], n=8, plus=1)"),
    (nest("x[i]"), raised_floats,
     "nothing fits"),
    # Places.
    (program("f32[8]", f"for i in range(8):;     t = alloc(f32[8]);{THROUGH.format('t')}"), relay,
     "t is gone behind the call"),
    (program("f32[8]", f"for i in range(8):;{THROUGH.format('z')}", f"{X}, z: out(f32[8])"), relay,
     "relay(x[_0], z[_0], y[_0], n=8)"),
    (plane("x[j, i]"), rows,
     "rows(x[j, _0], y[_0, j], n=8, m=1, far=1, wide=8)"),
    (plane("x[i, 2]"), rows,
     "rows(x[_0, 2], y[_0, j], n=8, m=1, far=8, wide=8)"),
    (plane("x[i * j]", "x: f32[64]"), rows,
     "the steps of operand a in x[_0 * _1] are not fixed"),
    (plane("x[i, j]"), columns,
     "columns(x[i, _0], y[i, _1], n=1, m=4, wide=1)"),
    (plane("x[3, j]"), columns,
     "columns(x[3, _0], y[_0, _1], n=8, m=4, wide=8)"),
    (plane("x[i, 3]"), columns,
     "columns(x[i, 3], y[i, _0], n=4, m=1, wide=1)"),
]  # fmt: skip


def found(text: str, instruction: Instruction) -> str:
    """The call that a program becomes, or why it is none."""
    s = schedule(text)
    if "y[o]" in text:
        loop = s.loop("i")
    else:
        loop = s.loops()[0]
    try:
        s.tensorize(loop, instruction)
    except ScheduleError as error:
        return error.what.split(": ", 1)[1]
    check_same(s.original, s.kernel)
    return next(x.strip() for x in str(s.kernel).splitlines() if f"{instruction.name}(" in x)


@pytest.mark.parametrize("text, instruction, wanted", CASES)
def test_calls(text: str, instruction: Instruction, wanted: str):
    assert found(text, instruction) == wanted
