"""Instructions called in kernels: as text, checked, and run."""

import textwrap

import numpy as np
import pytest

from tilewright.base.dtype import f32, i32
from tilewright.base.errors import CompileError
from tilewright.ir.expr import BinaryOp, Buffer, Var, as_expr
from tilewright.ir.instruction import Field, Instruction, Region, axis
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Accumulate, Call, For, Kernel, Store
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel

A, C = Buffer("a", f32, (4,)), Buffer("c", f32, (4,), "sram")
count, i = Var("count"), Var("i")
SUM = Instruction(
    "add",
    (A, C),
    (Field(count, 0, 4, 2),),
    (For(i, count, (Accumulate(C, (i,), BinaryOp.ADD, A[i]),)),),
)
TEXT = textwrap.dedent(
    """
    def k(x: f32[2, 4], y: out(f32[4])):
        sums = alloc(f32[4] @ "sram")
        for j in range(4):
            sums[j] = f32(0.0)
        for r in range(2):
            add(x[r, 3 - _0], sums[_0], count=r * 2)
        for j_1 in range(4):
            y[j_1] = sums[j_1]
    """
).strip()


def test_text():
    k = parse_kernel(TEXT, [SUM])
    assert str(k) == TEXT
    verify_kernel(k)
    assert k.body[2].body == (
        Call(
            SUM,
            (
                Region(k.inputs[0], (Var("r"), 3 - axis(0))),
                Region(Buffer("sums", f32, (4,), "sram"), (axis(0),)),
            ),
            (Var("r") * 2,),
        ),
    )


def test_meaning():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (y,) = interpret(parse_kernel(TEXT, [SUM]), [x])
    assert y.tolist() == [7, 6, 0, 0]


def error_of(action) -> str:
    with pytest.raises(CompileError) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize(
    "old, new, error",
    [
        ("add(", "sub(", "line 6: there is no statement or instruction called 'sub' here"),
        (", count=r * 2", "", "line 6: the instruction's fields do not fit"),
        ("sums[_0], ", "", "line 6: 1 arguments do not fit"),
        ("3 - _0", "3 - _1", "line 6: there is no variable called '_1' here"),
        ("for r in", "for _0 in", "line 6: '_0' is defined already"),
    ],
)
def test_text_errors(old, new, error):
    assert error_of(lambda: parse_kernel(TEXT.replace(old, new), [SUM])).startswith(error + "\n")


@pytest.mark.parametrize(
    "old, new, error",
    [
        (
            "count=r * 2",
            "count=3",
            "field count of add is 3\n  in: def k(x: f32[2, 4], y: out(f32[4])):\n",
        ),
        ('@ "sram"', '@ "far"', "operand c is f32 in sram, but sums is f32 in far"),
        ("sums[_0]", "x[r, _0]", "operand c is f32 in sram, but x is f32 in dram"),
    ],
)
def test_verify_errors(old, new, error):
    k = parse_kernel(TEXT.replace(old, new), [SUM])
    assert error_of(lambda: verify_kernel(k)).startswith(error)


def test_what_text_cannot_say():
    x, y = Buffer("x", f32, (4,)), Buffer("y", f32, (4,), "sram")
    good = Call(SUM, (Region(x, (axis(0),)), Region(y, (axis(0),))), (as_expr(2),))
    first = Store(y, (as_expr(0),), x[0])

    def error(call: Call, outputs: tuple[Buffer, ...] = (y,)) -> str:
        inputs = tuple(b for b in (x, y) if b not in outputs)
        return error_of(lambda: verify_kernel(Kernel("k", inputs, outputs, (call, first))))

    verify_kernel(Kernel("k", (x,), (y,), (good,)))
    assert error(good, ()).startswith("input y is written\n")
    assert error(good.with_(fields=())).startswith("add takes 2 operands and 1 fields\n")
    wide = good.with_(regions=(Region(x, (axis(1),)), good.regions[1]))
    assert error(wide).startswith("variable '_1' is not bound by any loop here\n")
    odd = good.with_(fields=(as_expr(1.0),))
    assert error(odd).startswith("field count is f32, not i64\n")
    other = SUM.with_(operands=(A.with_(dtype=i32), C))
    assert error(good.with_(instruction=other)).startswith("operand a is i32 in dram, but x is f32")
