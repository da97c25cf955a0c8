"""What vector loops become: squares turned in registers, accumulators of lanes, lanes combined."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from native import build

from tilewright.base.dtype import DTYPES
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.kernels import _compiled
from tilewright.targets import cpu


def run(kernel: Kernel, *inputs: np.ndarray) -> None:
    """Compares machine code with the interpreter."""
    for target in (cpu.host(threads=1), cpu.cpu("avx2")):
        wanted = interpret(kernel, list(inputs), {})
        found = build(kernel, target)(list(inputs), {})
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(a, b)


def program(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text).strip())


def transposition(dtype: str, lanes: int, unrolled: int) -> Kernel:
    rows, columns, n = 2 * lanes, 2 * unrolled, unrolled
    return program(
        f"""
        def turn(X: {dtype}[{rows}, {columns}], Y: out({dtype}[{columns}, {rows}])):
            for a in range(2):
                for b in range(2):
                    for u in unroll({n}):
                        for v in vectorize({lanes}):
                            Y[b * {n} + u, a * {lanes} + v] = X[a * {lanes} + v, b * {n} + u]
        """
    )


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u16", "f16", "bool"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_squares_are_turned_in_registers(dtype, lanes):
    kernel = transposition(dtype, lanes, lanes)
    too_wide = lanes * DTYPES[dtype].bytes > 64
    assert too_wide or "gather" not in _compiled(kernel, cpu.host(threads=1)).llvm
    run(kernel, numbers(dtype, 2 * lanes, 2 * lanes))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "f16", "bool", "i4"])
@pytest.mark.parametrize("step", [-9, -5, -4, -3, -2, -1, 2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_lanes_a_few_elements_apart_are_shuffled(dtype, step, lanes):
    """Up to four apart, or eight of few bytes; nothing is read in front of the first or behind the
    last of them."""
    span = (lanes - 1) * abs(step) + 1
    at = f"v * {step}" if step > 0 else f"{span - 1} - v * {-step}"
    kernel = program(
        f"""
        def pick(X: {dtype}[3, {span}], Y: out({dtype}[3, {lanes}])):
            for a in range(3):
                for v in vectorize({lanes}):
                    Y[a, v] = X[a, {at}]
        """
    )
    far = abs(step) > (4 if dtype == "f64" else 8)
    assert ("gather" in _compiled(kernel, cpu.host(threads=1)).llvm) == far
    run(kernel, numbers(dtype, 3, span))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "f16", "bool"])
@pytest.mark.parametrize("first, runs", [("min(u * 16, 8)", 2), ("u * 4", 4), ("u * 2", None)])
def test_runs_of_lanes_are_stored_and_read_whole(dtype, first, runs):
    """Blocks of 16 that vectors of 16 begin within: at halves, at quarters, at any even place."""
    read = first.replace("u", "t")
    kernel = program(
        f"""
        def blocks(X: {dtype}[3, 16], Y: out({dtype}[5, 3, 16])):
            for a in range(3):
                for u in range(2):
                    for v in vectorize(16):
                        Y[({first} + v) // 16, a, ({first} + v) % 16] = X[a, v]
                for t in range(2):
                    for w in vectorize(16):
                        Y[2 + t, a, w] = Y[({read} + w) // 16, a, ({read} + w) % 16]
        """
    )
    text = _compiled(kernel, cpu.cpu("avx512")).llvm
    assert ("scatter" in text or "gather" in text) == (runs is None)
    kernel = kernel.with_(body=(*program(ZERO.format(dtype=dtype)).body, *kernel.body))
    run(kernel, numbers(dtype, 3, 16))


ZERO = """
def zero(X: {dtype}[3, 16], Y: out({dtype}[5, 3, 16])):
    for z in range(3):
        for y in range(5):
            for x in range(16):
                Y[y, z, x] = X[z, x]
"""


@pytest.mark.parametrize("lanes", [8, 12, 20, 24, 36, 40, 48, 56])
@pytest.mark.parametrize("first", [0, 4, 8, 10])
def test_runs_of_vectors_of_any_length(lanes, first):
    kernel = program(
        f"""
        def blocks(X: f32[5, 3, 16], Y: out(f32[3, {lanes}]), Z: out(f32[5, 3, 16])):
            for c in range(5):
                for b in range(3):
                    for w in vectorize(16):
                        Z[c, b, w] = f32(0.0)
            for a in range(3):
                for v in vectorize({lanes}):
                    Y[a, v] = X[(v + {first}) // 16, a, (v + {first}) % 16]
                for u in vectorize({lanes}):
                    Z[(u + {first}) // 16, a, (u + {first}) % 16] = X[0, a, u % 16]
        """
    )
    run(kernel, numbers("f32", 5, 3, 16))


def test_what_a_store_in_runs_reads_is_read_before():
    """An element that the first run writes is wanted by the second."""
    kernel = program(
        """
        def shift(X: f32[64], Y: out(f32[4, 2, 16])):
            for c in range(4):
                for b in range(2):
                    for w in vectorize(16):
                        Y[c, b, w] = X[c * 16 + w]
            for u in range(2):
                for v in vectorize(16):
                    Y[(u * 8 + v) // 16, 1, (u * 8 + v) % 16] = Y[(u * 8 + v + 4) // 16, 1, \
(u * 8 + v + 4) % 16] + f32(1.0)
        """
    )
    run(kernel, numbers("f32", 64))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "f16", "bool", "i4"])
@pytest.mark.parametrize("rows", range(2, 10))
@pytest.mark.parametrize("columns", [2, 5, 16])
def test_rows_are_interleaved_in_registers(dtype, rows, columns):
    """Up to eight of them, of which lanes read consecutive elements."""
    kernel = program(
        f"""
        def weave(X: {dtype}[{rows}, {3 * columns}], Y: out({dtype}[3, {columns * rows}])):
            for a in range(3):
                for v in vectorize({columns * rows}):
                    Y[a, v] = X[v % {rows}, a * {columns} + v // {rows}]
        """
    )
    assert ("gather" in _compiled(kernel, cpu.host(threads=1)).llvm) == (rows > 8)
    run(kernel, numbers(dtype, rows, 3 * columns))


@pytest.mark.parametrize(
    "subscript, is_gathered",
    [
        ("v // 8 * 20 + v % 8", False),  # two runs
        ("(v + 3) // 8 * 20 + v % 4", True),  # runs of different lengths
        ("7 - v // 2", False),  # each element twice
        ("v % 4 * v", True),  # no runs
        ("v // 8 * 20 + v % 8 + a % 2", False),  # what does not depend on lanes is added to all
        ("(v + a) // 8 * 20 + v % 8", True),  # it is part of what does
    ],
)
def test_lanes_in_a_few_runs_are_read_run_by_run(subscript, is_gathered):
    kernel = program(
        f"""
        def runs(X: f32[64], Y: out(f32[3, 16])):
            for a in range(3):
                for v in vectorize(16):
                    Y[a, v] = X[{subscript}]
        """
    )
    assert ("gather" in _compiled(kernel, cpu.host(threads=1)).llvm) == is_gathered
    run(kernel, numbers("f32", 64))


@pytest.mark.parametrize("lanes, unrolled", [(8, 20), (8, 5), (6, 6), (3, 3)])
def test_what_is_no_square_is_gathered(lanes, unrolled):
    """Twenty columns are two squares of eight and four columns more."""
    run(transposition("f32", lanes, unrolled), numbers("f32", 2 * lanes, 2 * unrolled))


def test_reads_under_a_condition_are_not_moved():
    kernel = program(
        """
        def some(X: f32[8, 8], Y: out(f32[9, 8])):
            for u in unroll(8):
                for v in vectorize(8):
                    Y[u, v] = select(v < 7, X[v + 1, u], f32(2.0))
            for w in vectorize(8):
                Y[8, w] = f32(0.0)
        """
    )
    run(kernel, numbers("f32", 8, 8))


def test_what_all_sides_of_selects_read_is_read_once():
    """A square of which every side takes something else, as a detection head does."""
    inverse = "(f32(1.0) / X[a * 8 + v, u])"
    kernel = program(
        f"""
        def turn(X: f32[16, 8], W: f32[3], Y: out(f32[8, 16])):
            for a in range(2):
                for u in unroll(8):
                    for v in vectorize(8):
                        Y[u, a * 8 + v] = select(
                            a * 8 + v < 2, {inverse} * f32(8.0),
                            select(a * 8 + v < 5, {inverse} * W[a * 8 + v - 2], {inverse}))
        """
    )
    compiled = _compiled(kernel, cpu.cpu("avx2"))
    assert "gather" not in compiled.llvm
    assert compiled.llvm.count("fdiv") == 8
    run(kernel, numbers("f32", 16, 8), numbers("f32", 3))


def test_a_buffer_that_the_loop_writes_is_read_anew():
    kernel = program(
        """
        def shift(X: f32[4, 4], Y: out(f32[4, 4])):
            P = alloc(f32[4, 8])
            for i in range(4):
                for j in range(8):
                    P[i, j] = f32(0.0)
            for v in vectorize(4):
                for u in unroll(4):
                    P[v, u + 1] = P[v, u] + X[v, u]
                    Y[u, v] = P[v, u + 1]
        """
    )
    run(kernel, numbers("f32", 4, 4))


def test_two_accumulators_beside_a_store():
    kernel = program(
        """
        def sums(X: f32[64], Y: out(f32[64]), S: out(f32[2])):
            S[0] = f32(0.0)
            S[1] = f32(-100.0)
            top = alloc(f32[()])
            top[()] = f32(-100.0)
            for o in range(4):
                for v in vectorize(16):
                    Y[o * 16 + v] = X[o * 16 + v] * f32(2.0)
                    S[0] += Y[o * 16 + v]
                    if o * 16 + v < 50:
                        accumulate(max, top[()], X[o * 16 + v])
            S[1] = top[()]
        """
    )
    lowered = str(_compiled(kernel, cpu.host(threads=1)).lowered)
    assert "S_lanes" in lowered
    assert "top_lanes" in lowered
    run(kernel, numbers("f32", 64))


def test_an_accumulator_that_the_loop_reads_stays():
    kernel = program(
        """
        def running(X: f32[64], Y: out(f32[64])):
            total = alloc(f32[()])
            total[()] = f32(0.0)
            for o in range(4):
                for v in vectorize(16):
                    total[()] += X[o * 16 + v]
                Y[o] = total[()]
            for rest in range(60):
                Y[rest + 4] = f32(0.0)
        """
    )
    run(kernel, numbers("f32", 64))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("lanes", [2, 6, 16, 64])
def test_nan_survives_lanes(op, lanes):
    kernel = program(
        f"""
        def most(X: f32[{4 * lanes}], S: out(f32[()])):
            S[()] = X[0]
            for o in range(4):
                for v in vectorize({lanes}):
                    accumulate({op}, S[()], X[o * {lanes} + v])
        """
    )
    x = numbers("f32", 4 * lanes)
    run(kernel, x)
    for place in (0, 1, lanes, 4 * lanes - 1):
        bad = x.copy()
        bad[place] = np.nan
        run(kernel, bad)


def numbers(dtype: str, *shape: int) -> np.ndarray:
    kind = DTYPES[dtype].numpy
    return np.random.default_rng(0).integers(0, 100, shape).astype(kind)
