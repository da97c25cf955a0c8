"""Sums in blocks: what they look like, what they mean, how exact they are."""

from __future__ import annotations

import random
import textwrap

import numpy as np
import pytest
from native import build

from tilewright.analyze.bounds import faults
from tilewright.backends.native.passes import native_passes
from tilewright.base.dtype import DType, f16, f32, f64
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer
from tilewright.ir.interpret import interpret
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.text.loop import parse_kernel
from tilewright.lower.block_sums import block_sums
from tilewright.ops.table import OPS
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
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


def test_sums_of_lanes_stay_apart():
    """A sum within a loop over lanes has no blocks: all lanes would add to one."""
    text = textwrap.dedent(
        """\
        def sums(x: f32[4, 1200], y: out(f32[4])):
            for j in vectorize(4):
                y[j] = f32(0.0)
                for k in range(1200):
                    y[j] += x[j, k]"""
    )
    kernel = parse_kernel(text)
    assert str(block_sums(kernel)) == text
    x = (np.arange(4800) % 7).astype(np.float32).reshape(4, 1200)
    (y,) = build(kernel, cpu.host())([x])
    np.testing.assert_array_equal(y, x.sum(1))


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


GUARDED = textwrap.dedent(
    """\
    def sums(x: f32[600, 5], y: out(f32[5])):
        for j in range(5):
            y[j] = f32(0.0)
        for k in range(600):
            for j_o in range(2):
                for j_i in vectorize(4):
                    if j_o * 4 + j_i < 5:
                        y[j_o * 4 + j_i] += x[k, j_o * 4 + j_i]"""
)


def test_the_tail_of_what_is_summed_stays_guarded():
    made = block_sums(parse_kernel(GUARDED))
    assert str(made).splitlines()[-4:] == [
        "    for j_o_total_1 in range(2):",
        "        for j_i_total_1 in vectorize(4):",
        "            if j_o_total_1 * 4 + j_i_total_1 < 5:",
        "                y[j_o_total_1 * 4 + j_i_total_1] += y_part[j_o_total_1, j_i_total_1]",
    ]
    x = np.arange(3000, dtype=np.float32).reshape(600, 5) % 17
    np.testing.assert_array_equal(interpret(made, [x])[0], x.sum(axis=0))


@pytest.mark.parametrize(
    "condition, in_blocks",
    [
        ("k < 590", True),  # which terms there are: the sum is there without them
        ("i < 3", True),  # whether there is a sum
        ("k + i < 601", True),  # both, of an element that is always there
        ("k + 600 * i < 1200", False),  # both, and the element may not be there
    ],
)
def test_conditions(condition: str, in_blocks: bool):
    """Rows of y that a condition leaves out stay untouched, those that do not exist above all."""
    rows = 2 if "1200" in condition else 3 if "i < 3" in condition else 4
    text = f"""\
def sums(x: f32[600], y: out(f32[{rows}])):
    for i in range({rows}):
        y[i] = f32(0.0)
    for i_1 in range(4):
        for k in range(600):
            if {condition.replace("i", "i_1")}:
                y[i_1] += x[k]"""
    kernel = parse_kernel(text)
    made = block_sums(kernel)
    assert (made is not kernel) == in_blocks
    x = np.arange(600, dtype=np.float32) % 17
    np.testing.assert_array_equal(interpret(made, [x])[0], interpret(kernel, [x])[0])


def _operator(rng: random.Random, n: int, width: int, dtype: DType) -> TensorProgram:
    """An operator that sums along an axis of n beside one of `width`."""
    name = rng.choice(["softmax", "log_softmax", "reduce_sum", "reduce_mean", "reduce_logsumexp"])
    shape = rng.choice([(n, width), (2, n, width), (n, 1, width), (n, 2, width)])
    attrs = {"axis": shape.index(n)}
    if name.startswith("reduce"):
        attrs = {"axes": (shape.index(n),), "keepdims": rng.random() < 0.5}
    op = OPS[name]
    return op_program(op, op.attrs(**attrs), [Buffer("x", dtype, shape)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", range(1, 71))
def test_nothing_is_touched_outside_of_its_buffer(width: int):
    """Whatever the tail along vectors: every access is proven for all iterations."""
    rng = random.Random(width)
    n, dtype = rng.choice([513, 600, 1024, 1100]), rng.choice([f32, f64, f16])
    target = cpu.cpu(rng.choice(["sse2", "avx2", "avx512"]))
    kernel = default_schedule(create_loops(_operator(rng, n, width, dtype)), target).kernel
    passes = native_passes(target)
    for run in passes[: passes.index(block_sums) + 1]:
        kernel = run(kernel)
    assert [str(fault) for fault in faults(kernel)] == []
