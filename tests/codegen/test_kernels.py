"""Kernels as machine code against the interpreter: random ones, and ones where it is easy to touch
what is not there. Memory beside every buffer is trapped (tests/support/native.py)."""

from __future__ import annotations

import functools
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native import build
from strategies import array, arrays, kernels, same, symbol_values

from tilewright.backends.native.passes import native_passes
from tilewright.base.dtype import DTYPES
from tilewright.base.passes import pass_name, run_passes
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, symbols
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.target.target import Target
from tilewright.targets import cpu

TARGETS = {
    "host-1": lambda: cpu.host(threads=1),
    "host-2": lambda: cpu.host(threads=2),
    "avx2": lambda: cpu.cpu("avx2"),
}
RARE = ("f64", "bf16", "f8e4m3fn", "f8e5m2fnuz", "i4", "u4", "u16", "u32", "u64", "bool", "i64")


@functools.cache
def target(name: str) -> Target:
    return TARGETS[name]()


def check(kernel: Kernel, inputs: list[np.ndarray], values: dict[str, int], where: str) -> None:
    wanted = interpret(kernel, inputs, values)
    made = build(kernel, target(where))
    for a, b, buffer in zip(wanted, made(inputs, values), kernel.outputs, strict=True):
        assert same(a, b), f"{buffer.name}: {b}, not {a}\n{values}\n{kernel}"
    check_lanes(kernel, target(where), inputs, values, wanted)


EXPANDED = ("expand_f8", "expand_math")  # whose expressions are exponentially long to interpret


def check_lanes(
    kernel: Kernel,
    where: Target,
    inputs: list[np.ndarray],
    values: dict[str, int],
    wanted: list[np.ndarray],
) -> None:
    """The kernel with explicit lanes, read back from its text, is interpreted to the same."""
    passes = [p for p in native_passes(where) if pass_name(p) not in EXPANDED]
    lowered = run_passes(kernel, passes, stage="lowered", check=verify_kernel)
    again = parse_kernel(str(lowered))
    assert again == lowered
    found = interpret(again, [np.ravel(a) for a in inputs], values)
    for a, b, buffer in zip(wanted, found, kernel.outputs, strict=True):
        assert same(np.ravel(a), b), f"{buffer.name}: {b}, not {a}\n{values}\n{lowered}"


@pytest.mark.parametrize("where", TARGETS)
@settings(max_examples=50)
@given(kernel=kernels(), data=st.data())
def test_any_kernel(where: str, kernel: Kernel, data: st.DataObject):
    values = data.draw(symbol_values(symbols(kernel)))
    check(kernel, data.draw(arrays(kernel.inputs, values)), values, where)


@settings(max_examples=50)
@given(kernel=kernels(dtypes=[DTYPES[t] for t in RARE]), data=st.data())
def test_rare_types(kernel: Kernel, data: st.DataObject):
    values = data.draw(symbol_values(symbols(kernel)))
    check(kernel, data.draw(arrays(kernel.inputs, values)), values, "host-1")


# ---------------------------------------------------------------- one idea each

CASES = {
    "a masked tail": """
        def k(x: f32[n], y: out(f32[n])):
            n = symbol(0)
            for o in range((n + 7) // 8):
                for l in vectorize(8):
                    if o * 8 + l < n:
                        y[o * 8 + l] = x[o * 8 + l] + f32(1.0)
        """,
    "a masked tail, read backwards": """
        def k(x: i16[n], y: out(i16[n])):
            n = symbol(0)
            for o in range((n + 7) // 8):
                for l in vectorize(8):
                    if o * 8 + l < n:
                        y[o * 8 + l] = x[n - 1 - o * 8 - l]
        """,
    "a gather with a guard": """
        def k(x: f32[5], p: i8[16], y: out(f32[16])):
            for l in vectorize(16):
                y[l] = select((p[l] >= i8(0)) & (p[l] < i8(5)), x[cast(i64, p[l])], f32(-1.0))
        """,
    "a guarded read for all lanes": """
        def k(x: f32[4], y: out(f32[8, 6])):
            for i in range(6):
                for l in vectorize(8):
                    y[l, i] = select((i < 4) & (l > 2), x[i], f32(0.0))
        """,
    "a guarded read of one element": """
        def k(x: f32[n], y: out(f32[n])):
            n = symbol(0)
            for i in range(n):
                y[i] = select(i > 0, x[i - 1], f32(0.0)) + select(i + 1 < n, x[i + 1], f32(0.0))
        """,
    "a window with padding": """
        def k(x: f32[9], y: out(f32[11])):
            for o in range(2):
                for l in vectorize(8):
                    if o * 8 + l < 11:
                        y[o * 8 + l] = select((o * 8 + l >= 1) & (o * 8 + l < 10), x[o * 8 + l - 1],
                                              f32(0.0))
        """,
    "places that change between two reads": """
        def k(x: f32[8], p: out(i64[1]), y: out(f32[6])):
            p[0] = 1
            y[0] = x[p[0]]
            p[0] = 3
            y[1] = x[p[0]]
            for i in range(4):
                y[p[0] % 4 + 2] = x[i]
                p[0] = (p[0] * 3 + 1) % 8
                y[2 + i] = x[p[0]] + x[(p[0] + 1) % 8]
        """,
    "a scatter": """
        def k(x: f32[8], p: u8[8], y: out(f32[8])):
            for i in vectorize(8):
                y[i] = f32(0.0)
            for l in vectorize(8):
                y[7 - l] = x[l]
        """,
    "lanes that meet": """
        def k(x: f32[16], p: u8[16], y: out(f32[5])):
            for i in range(5):
                y[i] = f32(0.0)
            for l in vectorize(16):
                if p[l] < u8(200):
                    y[cast(i64, p[l]) % 5] += x[l]
        """,
    "lanes that accumulate in rows": """
        def k(x: i32[4], y: out(i32[4, n])):
            n = symbol(1)
            for i in range(4):
                for j in range(n):
                    y[i, j] = i32(0)
            for l in vectorize(4):
                y[l, n - 1] += x[l]
        """,
    "a sum of lanes that may not be there": """
        def k(x: f32[3, 8], y: out(f32[3])):
            for i in range(3):
                y[i] = f32(0.0)
            for r in range(1100):
                for l in vectorize(8):
                    if r * 8 + l < 24:
                        y[r] += x[r, l]
        """,
    "a nest of lanes that may not be there": """
        def k(x: f32[96], y: out(f32[3])):
            for i in range(3):
                y[i] = f32(0.0)
            for r in range(1100):
                for p in range(4):
                    for l in vectorize(8):
                        if r * 32 + p * 8 + l < 96:
                            y[r] += x[r * 32 + p * 8 + l]
        """,
    "any of some conditions": """
        def k(x: bool[16], y: out(bool[2])):
            y[0] = False
            y[1] = True
            for l in vectorize(16):
                y[0] += x[l]
            for m in vectorize(16):
                accumulate(mul, y[1], x[m])
        """,
    "small floats": """
        def k(x: f8e5m2[16], y: out(f8e5m2[2]), z: out(bf16[2])):
            y[0] = f8e5m2(0.0)
            y[1] = f8e5m2(-inf)
            z[0] = bf16(0.0)
            z[1] = bf16(1.0)
            for i in vectorize(16):
                y[0] += x[i]
                accumulate(max, y[1], x[i])
                z[0] += cast(bf16, x[i])
            for j in range(4):
                accumulate(mul, z[1], cast(bf16, j + 1))
        """,
    "four bits": """
        def k(x: i4[9], y: out(i4[9]), z: out(u4[9]), s: out(i4[()])):
            s[()] = i4(0)
            for i in vectorize(9):
                y[i] = x[i] * x[i] + i4(7)
                z[i] = bitcast(u4, -x[i]) + u4(9)
                s[()] += x[i]
        """,
    "data that wraps around": """
        def k(x: i64[9], y: out(bool[9]), z: out(i64[9]), q: out(i64[9])):
            for i in vectorize(9):
                y[i] = x[i] + 1 > x[i]
                z[i] = x[i] * 2 // 2
                q[i] = x[i] * 9223372036854775807 * 9223372036854775807 + 9223372036854775807
        """,
    "workers below a serial loop": """
        def k(x: f32[m, n], y: out(f32[m, n])):
            m = symbol(0)
            n = symbol(0)
            for i in range(m):
                for j in parallel(n):
                    y[i, j] = x[i, j] * cast(f32, i * n + j)
        """,
    "memory of each worker's own": """
        def k(x: i32[64, n], y: out(i32[64, n])):
            n = symbol(1)
            for i in parallel(64):
                t = alloc(i32[n])
                u = alloc(i32[20000])
                for a in range(n):
                    t[a] = x[i, a] + i32(1)
                    u[a] = x[i, a]
                for b in range(n):
                    y[i, b] = t[n - 1 - b] + u[b]
        """,
    "memory before workers": """
        def k(x: i32[n], y: out(i32[n])):
            n = symbol(0)
            t = alloc(i32[n])
            for a in parallel(n):
                t[a] = x[a] + i32(1)
            for b in parallel(n):
                y[b] = t[n - 1 - b]
        """,
    "nothing at all": """
        def k(x: f32[0, 4], y: out(f32[0, 4]), z: out(f32[2])):
            for i in range(0):
                for j in vectorize(4):
                    y[i, j] = x[i, j]
            for k in range(2):
                z[k] = f32(0.0)
                for r in range(0):
                    z[k] += x[r, k]
        """,
    "a number": """
        def k(x: f32[()], y: out(f32[()])):
            y[()] = x[()] + f32(1.0)
        """,
    "lanes in a loop inside": """
        def k(x: f32[8, 5], y: out(f32[8])):
            for l in vectorize(8):
                y[l] = f32(0.0)
                for r in range(5):
                    if (l + r) % 2 == 0:
                        y[l] += x[l, r]
                    else:
                        y[l] += f32(-1.0)
        """,
    "copies of lanes": """
        def k(x: f32[4, 8], y: out(f32[11])):
            for i in range(11):
                y[i] = f32(0.0)
            for u in unroll(4):
                for l in vectorize(8):
                    y[u + l] = x[u, l]
        """,
}


@functools.cache
def interpreted(name: str, size: int):
    """Sizes, inputs and what the interpreter gives, which is the same for every target."""
    kernel = parse_kernel(textwrap.dedent(CASES[name]).strip())
    values = {s.name: max(size, s.lower) for s in symbols(kernel)}
    inputs = [
        array(2 * size + i, b.dtype, [evaluate_dim(d, values) for d in b.shape])
        for i, b in enumerate(kernel.inputs)
    ]
    return values, inputs, interpret(kernel, inputs, values)


@pytest.mark.parametrize("where", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, where: str):
    kernel = parse_kernel(textwrap.dedent(CASES[name]).strip())
    verify_kernel(kernel)
    made = build(kernel, target(where))
    for size in (5, 1, 0, 17):
        values, inputs, wanted = interpreted(name, size)
        for a, b, buffer in zip(wanted, made(inputs, values), kernel.outputs, strict=True):
            assert same(a, b), f"{buffer.name}: {b}, not {a}"
        check_lanes(kernel, target(where), inputs, values, wanted)


def test_data_at_its_limits():
    kernel = parse_kernel(textwrap.dedent(CASES["data that wraps around"]).strip())
    x = np.array([2**63 - 1, -(2**63), 0, 1, 2**62, -(2**62), 5, 7, -1])
    check(kernel, [x], {}, "host-1")
