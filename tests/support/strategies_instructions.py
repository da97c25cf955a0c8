"""Instructions of no chip in particular, for random schedules: short loops, steps of any length."""

from tilewright.base.dtype import DType, bf16, f16, f32, f64, i8, i16, i32, i64, u8
from tilewright.ir.instruction import Instruction
from tilewright.ir.python.words import grid, out, reduce
from tilewright.target.describe import Range, read_instruction, view

LENGTH, STEP = Range(1, 64), Range(-4096, 4096)


def _of(t: DType) -> list[Instruction]:
    @read_instruction
    def copy(a: view(t[64], "sa"), c: view(out(t[64]), "sc"), n: LENGTH, sa: STEP, sc: STEP):
        for i in grid(n):
            c[i] = a[i]

    @read_instruction
    def clear(c: view(out(t[64]), "sc"), n: LENGTH, sc: STEP):
        for i in grid(n):
            c[i] = 0

    @read_instruction
    def add(
        a: view(t[64], "sa"), b: view(t[64], "sb"), c: view(out(t[64]), "sc"),
        n: LENGTH, sa: STEP, sb: STEP, sc: STEP,
    ):  # fmt: skip
        for i in grid(n):
            c[i] = a[i] + b[i]

    @read_instruction
    def axpy(
        a: t[()], b: view(t[64], "sb"), c: view(out(t[64]), "sc"), n: LENGTH, sb: STEP, sc: STEP
    ):
        for i in grid(n):
            c[i] += a[()] * b[i]

    @read_instruction
    def dot(
        a: view(t[64], "sa"), b: view(t[64], "sb"), c: out(t[()]), n: LENGTH, sa: STEP, sb: STEP
    ):
        for i in reduce(n):
            c[()] += a[i] * b[i]

    @read_instruction
    def total(a: view(t[64], "sa"), c: out(t[()]), n: LENGTH, sa: STEP):
        for i in reduce(n):
            c[()] += a[i]

    return [x.with_(name=f"{x.name}_{t}") for x in (axpy, dot, total, copy, clear, add)]


INSTRUCTIONS = [x for t in (f32, i32, f64, f16, bf16, i8, i16, i64, u8) for x in _of(t)]
