"""Chains of element-wise nests that read what others made at neighbouring places, on a chip whose
instructions overwrite an operand: to the bit, or refused in words."""

import numpy as np
import pytest
from form_kernels import arrays_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import ScheduleError, TargetError
from tilewright.chip import build_chip
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.targets.vta import vta

CHIP = vta()
Array = tuple[str, str, int, int]  # name, type, rows, columns


@st.composite
def chains(draw) -> Kernel:
    """Up to three nests, of bytes or wider numbers, each of up to three elements of arrays before
    it."""
    channels, rows, columns = draw(st.sampled_from([5, 16, 32])), *draw(SIZES)
    arrays: list[Array] = [("x", "i8", rows, columns), ("y", "i8", rows, columns)]
    body = ""
    count = draw(st.integers(1, 3))
    for k in range(count):
        result = "z" if k == count - 1 else f"t{k}"
        kind = "i8" if k == count - 1 else draw(st.sampled_from(["i8", "i32"]))
        sources = [arrays[-1], *draw(st.lists(st.sampled_from(arrays), max_size=2))]
        down, right = draw(st.integers(0, 1)), draw(st.integers(0, 1))
        height = min(a[2] for a in sources) - down
        width = min(a[3] for a in sources) - right

        def element(array: Array, down: int = down, right: int = right) -> str:
            place = f"{array[0]}[c, h + {draw(st.integers(0, down))}, "
            place += f"w + {draw(st.integers(0, right))}]"
            return f"cast(i32, {place})" if array[1] == "i8" else place

        value = element(sources[0])
        for source in sources[1:]:
            pattern = draw(
                st.sampled_from(["max({}, {})", "min({}, {})", "({} + {})", "({} - {})"])
            )
            value = pattern.format(value, element(source))
        value = draw(st.sampled_from(["{}", "({} * i32(3))", "({} >> i32(2))"])).format(value)
        limits = draw(st.sampled_from(["{}", "max(min({}, i32(127)), i32(-128))",
                                       "max(min({}, i32(200)), i32(0))"]))  # fmt: skip
        value = limits.format(value)
        if kind == "i8":
            value = f"cast(i8, {value})"
        if result != "z":
            body += f"    {result} = alloc({kind}[{channels}, {height}, {width}])\n"
        body += f"    for c in range({channels}):\n        for h in range({height}):\n"
        body += f"            for w in range({width}):\n"
        body += f"                {result}[c, h, w] = {value}\n"
        arrays.append((result, kind, height, width))
    _, _, height, width = arrays[-1]
    given = f"{channels}, {rows}, {columns}"
    head = f"x: i8[{given}], y: i8[{given}], z: out(i8[{channels}, {height}, {width}])"
    return parse_kernel(f"def chain({head}):\n{body}")


PATTERNS = ["max({}, {})", "min({}, {})", "({} + {})", "({} - {})"]
SIZES = st.tuples(st.integers(4, 8), st.integers(4, 8))


def check(program: Kernel) -> None:
    message = ""
    try:
        built = build_chip(program, CHIP)
    except (ScheduleError, TargetError) as refusal:
        message = str(refusal)
    if message:
        assert "while applying" not in message
        return
    arrays = arrays_of(program)
    (output,) = program.outputs
    result = built(*arrays, np.zeros([int(n) for n in output.shape], np.int8))
    np.testing.assert_array_equal(result, interpret(program, arrays)[0])
    assert built.bound is not None
    assert built.bound.cycles <= built.cycles


@settings(max_examples=5, deadline=None)
@given(chains())
def test_random_chains(program: Kernel):
    check(program)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(chains())
def test_more_random_chains(program: Kernel):
    check(program)
