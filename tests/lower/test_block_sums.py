"""Sums in blocks: what they look like, what they mean, how exact they are."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from native import build

from tilewright.ir.interpret import interpret
from tilewright.ir.text import parse_kernel
from tilewright.lower.block_sums import block_sums
from tilewright.targets import cpu

ROWS = textwrap.dedent(
    """\
    def sums(x: f32[1200, 4], y: out(f32[4])):
        for j in vectorize(4):
            y[j] = f32(0.0)
        for k in range(1200):
            for j_1 in vectorize(4):
                y[j_1] += x[k, j_1]"""
)


def test_text():
    assert str(block_sums(parse_kernel(ROWS))) == textwrap.dedent(
        """\
        def sums(x: f32[1200, 4], y: out(f32[4])):
            for j in vectorize(4):
                y[j] = f32(0.0)
            y_part = alloc(f32[4] @ "register")
            for k_block in range(2):
                for j_1_clear in vectorize(4):
                    y_part[j_1_clear] = f32(0.0)
                for k_step in range(512):
                    for j_1 in vectorize(4):
                        y_part[j_1] += x[k_block * 512 + k_step, j_1]
                for j_1_total in vectorize(4):
                    y[j_1_total] += y_part[j_1_total]
            for j_1_clear_1 in vectorize(4):
                y_part[j_1_clear_1] = f32(0.0)
            for k_last in range(176):
                for j_1_last in vectorize(4):
                    y_part[j_1_last] += x[1024 + k_last, j_1_last]
            for j_1_total_1 in vectorize(4):
                y[j_1_total_1] += y_part[j_1_total_1]"""
    )


def test_the_same_sum():
    kernel = parse_kernel(ROWS.replace("1200", "1030"))
    x = np.arange(1030 * 4, dtype=np.float32).reshape(1030, 4) % 17
    for made in (kernel, block_sums(kernel)):
        np.testing.assert_array_equal(interpret(made, [x])[0], x.sum(axis=0))


@pytest.mark.parametrize(
    "change",
    [
        ("1200", "512"),  # short
        ("f32", "i32"),  # exact
        ("for k in range", "for k in parallel"),
        ("j_1 in vectorize(4)", "j_1 in range(1000)"),  # too much beside one another
        ("y[j_1] += x[k, j_1]", "accumulate(max, y[j_1], x[k, j_1])"),
    ],
)
def test_what_stays(change: tuple[str, str]):
    text = ROWS.replace(*change).replace("i32(0.0)", "i32(0)")
    if change[0].startswith("j_1"):
        text = text.replace("[1200, 4]", "[1200, 1000]").replace("f32[4]", "f32[1000]")
    kernel = parse_kernel(text)
    assert block_sums(kernel) is kernel


def test_a_symbolic_length():
    text = ROWS.replace("1200", "n").replace("f32[4])):\n", "f32[4])):\n    n = symbol(1)\n", 1)
    made = block_sums(parse_kernel(text))
    for n in (1, 511, 512, 1500):
        x = np.ones((n, 4), np.float32)
        np.testing.assert_array_equal(interpret(made, [x], {"n": n})[0], np.full(4, n, np.float32))


def test_a_symbolic_length_that_is_short():
    text = ROWS.replace("1200", "n").replace(
        "f32[4])):\n", "f32[4])):\n    n = symbol(1, 500)\n", 1
    )
    kernel = parse_kernel(text)
    assert block_sums(kernel) is kernel


@pytest.mark.parametrize("columns", [1, 4, 16])
def test_a_million_terms(columns: int):
    """Within the bound of docs/semantics.md, and 100 times nearer for random terms."""
    n = 1_000_000
    x = np.random.default_rng(0).random((n, columns), dtype=np.float32)
    kernel = parse_kernel(ROWS.replace("1200", str(n)).replace("4", str(columns)))
    (y,) = build(kernel, cpu.host(threads=1))([x])
    exact = x.sum(axis=0, dtype=np.float64)
    off = np.abs(y - exact).max() / exact.min()
    assert off <= (1024 + n / 256) * 2**-24
    assert off <= 64 * 2**-24
