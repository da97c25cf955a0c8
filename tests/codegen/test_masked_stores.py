"""Masked stores write their lanes' bytes and no others, also where LLVM knows that it is one lane
and that the values are the low parts of wider ones."""

import numpy as np
import pytest

from tilewright.ir.text.loop import parse_kernel
from tilewright.kernels import build
from tilewright.targets import cpu

GUARD = 64  # bytes behind the result
TYPES = [("i32", "i8"), ("i32", "i16"), ("i64", "i32"), ("i64", "i8"), ("i16", "i8")]


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("wide, narrow", TYPES)
def test_one_lane_is_left(wide: str, narrow: str, lanes: int):
    count = lanes + 1
    kernel = parse_kernel(f"""
def k(x: {wide}[{count}], y: out({narrow}[{count}])):
    for o in unroll(2):
        for l in vectorize({lanes}):
            if o * {lanes} + l < {count}:
                y[o * {lanes} + l] = cast({narrow}, x[o * {lanes} + l])
""")
    result = kernel.outputs[0].dtype
    size = count * result.bytes
    memory = np.full(size + GUARD, 0xA5, np.uint8)
    values = np.arange(-5, count - 5).astype(kernel.inputs[0].dtype.numpy)
    build(kernel, cpu.host(threads=1))(values, memory[:size].view(result.numpy))
    np.testing.assert_array_equal(memory[:size].view(result.numpy), values.astype(result.numpy))
    assert (memory[size:] == 0xA5).all()
