"""Look-ups in tables: their text and meaning, machine code, and functions made of them."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from fit_functions import TABLES, error_of_table
from function_cases import CASES, exact_results, stratified
from native import build

from tilewright.backends.native import passes as backends
from tilewright.backends.native.object_code import compile_assembly
from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.expr import UnaryOp
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.verify.loop import verify_kernel
from tilewright.lower import math_table
from tilewright.lower.expand_math import LOOKED_UP, UNARY, expand_math
from tilewright.targets import cpu

each = pytest.mark.parametrize
WIDE = cpu.cpu("avx512")


def lookups(lanes: int, entries: str = "f32, [-0.0, 1.5, nan, inf]", at: str = "x[i, j]") -> Kernel:
    return parse_kernel(
        textwrap.dedent(
            f"""\
            def k(x: i32[3, {lanes}], y: out(f32[3, {lanes}])):
                for i in range(3):
                    for j in vectorize({lanes}):
                        y[i, j] = lookup({entries}, {at})"""
        )
    )


def function(op: UnaryOp, rows: int = 1) -> Kernel:
    return parse_kernel(
        textwrap.dedent(
            f"""\
            def k(x: f32[{rows}, 16], y: out(f32[{rows}, 16])):
                for i in range({rows}):
                    for j in vectorize(16):
                        y[i, j] = {op.value}(x[i, j])"""
        )
    )


# ---------------------------------------------------------------- the expression


def test_text():
    kernel = lookups(4)
    assert str(kernel).endswith("y[i, j] = lookup(f32, [-0.0, 1.5, nan, inf], x[i, j])")
    assert parse_kernel(str(kernel)) == kernel


def test_a_table_with_a_negative_zero_is_another_one():
    assert lookups(4) != lookups(4, "f32, [0.0, 1.5, nan, inf]")


@each("lanes", [1, 2, 4, 8, 16, 32, 48])
@each("entries", [2, 8, 16, 64])
@each("target", ["host", "sse2", "avx2"])
def test_every_lane_has_its_own_entry(lanes: int, entries: int, target: str):
    """Places are counted modulo the table's length, below 0 as well."""
    table = ", ".join(str(1.5 * i) for i in range(entries))
    kernel = lookups(lanes, f"f32, [{table}]")
    rng = np.random.default_rng(lanes * entries)
    x = rng.integers(-(2**31), 2**31, (3, lanes), dtype=np.int64).astype(np.int32)
    wanted = np.float32(1.5) * (x % entries)
    for (found,) in (
        interpret(kernel, [x]),
        build(kernel, cpu.host(1) if target == "host" else cpu.cpu(target))([x]),
    ):
        np.testing.assert_array_equal(found, wanted)


@each("dtype", ["f64", "f16"])
def test_entries_of_other_types(dtype: str):
    text = str(lookups(8)).replace("out(f32", f"out({dtype}").replace("(f32, ", f"({dtype}, ")
    x = np.arange(24, dtype=np.int32).reshape(3, 8)
    (found,) = build(parse_kernel(text), cpu.host(1))([x])
    (wanted,) = interpret(parse_kernel(text), [x])
    assert found.tobytes() == wanted.tobytes()


@each(
    "entries, at, message",
    [
        ("f32, [1.0, 2.0, 3.0]", "x[i, j]", "has a table of 3 entries"),
        ("f32, [1.0, 2.0, 3.0]", "x[i, j]", "hint: tables have 2, 4, 8, 16 … entries"),
        ("f32, [1.0]", "x[i, j]", "has a table of 1 entries"),
        ("i32, [1, 2]", "x[i, j]", "has entries that are no i32"),
        ("i32, [1, 2]", "x[i, j]", "hint: round them to a type of floats"),
        ("f32, [1.0, 2.0]", "i", "the place of lookup(f32, [1.0, 2.0], i) is i64, not i32"),
    ],
)
def test_what_is_no_lookup(entries: str, at: str, message: str):
    with pytest.raises(CompileError) as caught:
        verify_kernel(lookups(4, entries, at))
    assert message in str(caught.value)


@each("entries", ["f32, [1.0, x]", "f32, 2 * i"])
def test_text_of_what_is_no_table(entries: str):
    with pytest.raises(CompileError) as caught:
        lookups(4, entries)
    assert "this is no entry of a table" in str(caught.value)
    assert "lookup(f32, [1.0, 2.0], place)" in str(caught.value)


# ---------------------------------------------------------------- functions


@each("op", LOOKED_UP, ids=lambda op: op.value)
def test_one_instruction_looks_up_all_lanes(op: UnaryOp):
    lowered = backends.lower(function(op), WIDE, None, verify=True)
    text = compile_assembly(backends.to_llvm(lowered, WIDE), WIDE.native)
    assert text.count("vperm") == len(math_table._TANH.rows)
    assert "vpand" not in text  # places need no mask
    assert "vdiv" not in text
    assert "vpextr" not in text


@each("op", LOOKED_UP, ids=lambda op: op.value)
@each("level", ["sse2", "avx2", "neon", "rvv"])
def test_not_where_tables_are_shorter(op: UnaryOp, level: str):
    kernel = function(op)
    assert cpu.cpu(level).vectors.table < math_table.ENTRIES
    lowered = backends.lower(kernel, cpu.cpu(level), None, verify=True)
    assert "lookup" not in str(lowered)
    assert expand_math(kernel, math_table.ENTRIES - 1) == expand_math(kernel)
    assert expand_math(kernel, math_table.ENTRIES) != expand_math(kernel)


@pytest.mark.sampled(2)
@each("op", LOOKED_UP, ids=lambda op: op.value)
@each("step", [8, pytest.param(1, marks=pytest.mark.long)])
def test_functions_without_fused_multiply_add(op: UnaryOp, step: int):
    """Interpreted, one operator at a time."""
    case = CASES[op.value]
    near = np.linspace(-11, 11, 1 << 14, dtype=np.float32)
    x = np.concatenate([near, stratified(f32, 7)[: 1 << 13]])[::step].reshape(-1, 16)
    kernel = expand_math(function(op, len(x)), math_table.ENTRIES)
    with np.errstate(all="ignore"):
        (found,) = interpret(parse_kernel(str(kernel)), [x])
    assert case.off((x,), found, exact_results(case, (x,))).max() <= case.bound


def test_functions_by_tables_are_those_without():
    assert set(LOOKED_UP) <= set(UNARY)


FITTED = {
    "tanh_pieces": (math_table._TANH, 2**-24.2),
    "erf_pieces": (math_table._ERF, 2**-24.19),
    "erfc_pieces": (math_table._ERFC, 2**-23.19),
    "normal_pieces": (math_table._NORMAL, 2**-23.19),
}


@each("name", TABLES)
def test_tables_are_the_fitted_ones(name: str):
    pieces, error = FITTED[name]
    fitted = TABLES[name]
    assert (pieces.offset, pieces.end, len(pieces.rows)) == (
        fitted.offset,
        fitted.end,
        fitted.terms + 1,
    )
    assert error_of_table(fitted, pieces.rows) <= error
