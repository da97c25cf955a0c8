"""Lanes that write one element, or add into it, under conditions or not: machine code and what an
8-bit float becomes, against the interpreter."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from native import build
from strategies import array, same

from tilewright.backends.native import passes as backends
from tilewright.base.dtype import DTYPES
from tilewright.base.passes import Recorder
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.lower.expand_f8 import expand_f8
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
HEAD = "def f(x: {t}[4, 8], n: i64[8], y: out({t}[4]), z: out({t}[4, 8])):\n"
CLEAR = """\
for o in range(4):
    y[o] = {one}
    for p in range(8):
        z[o, p] = {one}
"""
BODIES = {
    "the last lane's": "for i in range(4):\n    for j in vectorize(8):\n        y[i] = x[i, j]",
    "the last lane's, a number": (
        "for i in range(4):\n    for j in vectorize(8):\n        y[i] = {one} + x[i, 0]"
    ),
    "the last of those that may": (
        "for i in range(4):\n    for j in vectorize(8):\n        if j < 5:\n"
        "            y[i] = x[i, j]"
    ),
    "all of them": "for i in range(4):\n    for j in vectorize(8):\n        y[i] += x[i, j]",
    "those that may": (
        "for i in range(4):\n    for j in vectorize(8):\n        if x[i, j] > {one}:\n"
        "            y[i] += x[i, j]"
    ),
    "those that may, if there are any": (
        "for i in range(8):\n    for j in vectorize(8):\n        if i * 8 + j < 30:\n"
        "            y[i] += x[i, j]"
    ),
    "an extreme of those that may": (
        "for i in range(4):\n    for j in vectorize(8):\n        if x[i, j] > {one}:\n"
        "            accumulate(max, y[i], x[i, j])"
    ),
    "wherever memory says": (
        "for i in range(4):\n    for j in vectorize(8):\n        z[i, n[j]] += x[i, j]"
    ),
    "one place each": "for i in range(4):\n    for j in vectorize(8):\n        z[i, j] += x[i, j]",
    "one after another": "for i in range(4):\n    for j in range(8):\n        y[i] += x[i, j]",
}


def kernel(name: str, dtype: str) -> Kernel:
    body = CLEAR + BODIES[name]
    text = HEAD + textwrap.indent(body, "    ")
    one = f"{dtype}(1.0)" if DTYPES[dtype].is_float else f"{dtype}(1)"
    return parse_kernel(text.format(t=dtype, one=one))


def inputs(made: Kernel) -> list[np.ndarray]:
    x, places = made.inputs
    return [array(3, x.dtype, x.shape), np.array([0, 3, 3, 1, 7, 0, 0, 2], places.dtype.numpy)]


@pytest.mark.parametrize("dtype", ["f32", "i32", "u8", "f64"])
@pytest.mark.parametrize("name", BODIES)
def test_machine_code(name: str, dtype: str):
    made = kernel(name, dtype)
    if made.inputs[0].dtype.is_float:  # sums in any order are the same
        given = [np.arange(32, dtype=made.inputs[0].dtype.numpy).reshape(4, 8) - 9, inputs(made)[1]]
    else:
        given = inputs(made)
    wanted = interpret(made, given, {})
    for a, b in zip(wanted, build(made, HOST)(given), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [n for n in DTYPES if n.startswith("f8")])
@pytest.mark.parametrize("name", BODIES)
def test_8_bit_floats(name: str, dtype: str):
    """They are added one after another, each sum rounded."""
    made = kernel(name, dtype)
    given = inputs(made)
    with np.errstate(all="ignore"):
        wanted, found = (interpret(k, given, {}) for k in (made, expand_f8(made)))
    assert all(same(a, b) for a, b in zip(wanted, found, strict=True))


def test_what_the_last_lane_stores():
    low = backends.lower(
        kernel("the last lane's", "f32"), cpu.cpu("avx2"), Recorder(), verify=False
    )
    text = backends.to_llvm(low, cpu.cpu("avx2"))
    assert "extractelement <8 x float>" in text
    assert ", i64 7" in text
    low = backends.lower(
        kernel("the last lane's, a number", "f32"), cpu.cpu("avx2"), Recorder(), verify=False
    )
    assert "extractelement" not in backends.to_llvm(low, cpu.cpu("avx2"))
