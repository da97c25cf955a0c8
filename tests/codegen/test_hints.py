"""Prefetches and stores past the caches, as LLVM and as machine code beside forbidden pages."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from native import build

from tilewright.analyze.linear import Linear, linear
from tilewright.base.dtype import f32
from tilewright.ir.expr import Buffer, Expr, Var, as_expr, minimum, select
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.lower.vectorize import alignment
from tilewright.targets import cpu

COPY = """
def copy(x: f32[8, 48], y: out(f32[8, 48])):
    for i in range(8):
        for j in range(3):
            prefetch(x[i + 1000, j * 16], 3)
            for k in vectorize(16):
                nontemporal(y[i, j * 16 + k], x[i, j * 16 + k])
"""
NARROW = """
def copy(x: f32[8, 50], y: out(f32[8, 50])):
    for i in range(8):
        for j in range(4):
            for k in vectorize(16):
                if j * 16 + k < 50:
                    nontemporal(y[i, j * 16 + k], x[i, j * 16 + k])
"""
SUMS = """
def sums(x: f32[32, 16], y: out(f32[2, 16])):
    for i in vectorize(16):
        nontemporal(y[0, i], f32(0.0))
    for r in range(32):
        for j in vectorize(16):
            y[0, j] += x[r, j]
    for n in vectorize(16):
        nontemporal(y[1, n], y[0, n] * f32(2.0))
"""
PARALLEL = COPY.replace("i in range", "i in parallel")


def program(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text).strip())


@pytest.mark.parametrize("text", [COPY, NARROW, SUMS, PARALLEL])
@pytest.mark.parametrize("target", [cpu.host(threads=2), cpu.cpu("avx2")], ids=["host", "avx2"])
def test_results(text: str, target):
    """The traps put outputs at the start of pages, where lines begin, and at their ends."""
    kernel = program(text)
    (x,) = (np.random.default_rng(0).random(b.shape, np.float32) for b in kernel.inputs)
    (wanted,) = interpret(kernel, [x], {})
    (found,) = build(kernel, target)([x])
    np.testing.assert_array_equal(found, wanted)


def test_whole_vectors_at_multiples_of_their_length():
    """For outputs that begin at a cache line; else they are stored like any."""
    text = build(program(COPY), cpu.host(threads=1)).llvm
    stores = [line.split(", align ")[1] for line in text.splitlines() if "store <16" in line]
    assert stores == ["64, !nontemporal !0", "4"]
    assert text.count("fence seq_cst") == 1
    assert text.count("i32 0, i32 1, i32 1)") == 2  # of each body: read, third cache, data


def test_what_may_lie_across_lines_is_stored_like_any():
    text = build(program(NARROW), cpu.host(threads=1)).llvm
    assert "!nontemporal" not in text


def test_workers_wait_for_their_own_stores():
    text = build(program(PARALLEL), cpu.host(threads=2)).llvm
    ranges = [part for part in text.split("define ") if ".range(" in part.split("\n")[0]]
    assert [part.count("fence seq_cst") for part in ranges] == [1, 0]


def test_lanes_prefetch_nothing():
    lanes = COPY.replace("prefetch(x[i + 1000, j * 16], 3)", "pass").replace(
        "                nontemporal",
        "                prefetch(x[i, k], 1)\n                nontemporal",
    )
    assert "prefetch" not in build(program(lanes), cpu.host(threads=1)).llvm


I, J = Var("i"), Var("j")
POSITIONS = [
    (I * 16, 16, 64),
    (I * 8, 16, None),
    (I * 8, 8, 32),
    (I * 32 + J * 16 + 48, 16, 64),
    (I * 16 + 1, 16, None),
    (I * 16 + J, 16, None),
    (minimum(I * 128, as_expr(96)) + J * 16, 16, 64),
    (minimum(I * 128, as_expr(100)) + J * 16, 16, None),
    (minimum(I * 4, as_expr(8)) * 4, 16, 64),
    (I * 64 % 96, 16, 64),
    (I * 64 % 100, 16, None),
    (select(I < 3, I * 16, J * 32), 16, 64),
    (I // 2, 16, None),
    (as_expr(0), 2, None),  # 8 bytes are no vector
    (as_expr(0), 12, 16),
    (as_expr(0), 32, 64),
]


@pytest.mark.parametrize("position, lanes, wanted", POSITIONS)
def test_alignment(position: Expr, lanes: int, wanted: int | None):
    at: Linear = linear(position)
    assert alignment(Buffer("y", f32, (4096,)), at, lanes, 64) == wanted
