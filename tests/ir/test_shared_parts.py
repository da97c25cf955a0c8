"""Names for parts that an expression has several times."""

import pytest

from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Buffer, const, select
from tilewright.ir.loop import Kernel, Store
from tilewright.ir.shared_parts import LONG
from tilewright.ir.text.loop import parse_kernel

X, Y = Buffer("x", f32, (4,)), Buffer("y", f32, (4,))


def doubled(times: int) -> Kernel:
    """x[0] + x[0] added to itself, again and again: 2 ** times terms as a tree."""
    value = X[0]
    for _ in range(times):
        value = value * value + const(1.0, f32)
    return Kernel("k", (X,), (Y,), (Store(Y, (const(0),), value),))


def test_short_texts_are_written_out():
    assert "let" not in str(doubled(3))
    assert LONG > 3 * 2**3


def test_long_texts_name_their_parts():
    kernel = doubled(40)
    lines = str(kernel).splitlines()
    assert lines[1:3] == [
        "    e0 = let(x[0] * x[0] + f32(1.0))",
        "    e1 = let(e0 * e0 + f32(1.0))",
    ]
    assert lines[-1] == "    y[0] = e38 * e38 + f32(1.0)"
    again = parse_kernel(str(kernel))
    assert again == kernel
    assert str(again) == str(kernel)


def test_names_that_are_taken():
    """Buffers and variables keep their names; the parts take others."""
    e0 = Buffer("e0", f32, (4,))
    value = e0[1]
    for _ in range(10):
        value = select(value > e0[0], value, e0[0])
    kernel = Kernel("k", (e0,), (Y,), (Store(Y, (const(0),), value * value),))
    assert "e0_ = let(" in str(kernel)
    assert parse_kernel(str(kernel)) == kernel


def refusal(*lines: str) -> str:
    text = "\n    ".join(["def k(x: f32[4], y: out(f32[4])):", *lines])
    with pytest.raises(CompileError) as caught:
        parse_kernel(text)
    return str(caught.value)


def test_a_part_without_a_statement():
    assert refusal("e0 = let(x[0])") == (
        "line 2: no statement has this part\n"
        "  in: e0 = let(x[0])\n"
        "      ^\n"
        "  hint: expected a store or an accumulation"
    )
    assert refusal("e0 = let(x[0])", "for i in range(4):", "    y[i] = e0") == (
        "line 3: no statement has this part\n"
        "  in: for i in range(4):\n"
        "      ^\n"
        "  hint: expected a store or an accumulation"
    )


def test_a_part_is_known_to_one_statement():
    assert refusal("e0 = let(x[0])", "y[0] = e0", "y[1] = e0").startswith(
        "line 4: there is no variable called 'e0'"
    )
