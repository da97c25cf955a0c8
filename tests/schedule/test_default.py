"""Default schedules: for any kernel, layout and target there is one, and it computes the same."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from executor import run_concurrently
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import arrays, same, symbol_values, tensor_programs
from strategies_programs import Program, programs
from strategies_schedule import layouts, packed_inputs, unpacked_outputs

from tilewright.base.dtype import f32
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Unary, UnaryOp, const, select
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    For,
    Kernel,
    LoopKind,
    Store,
    symbols,
    walk_statements,
)
from tilewright.ir.tensor import Builder, TensorProgram
from tilewright.ir.tensor_type import Layout
from tilewright.ir.verify.loop import verify_kernel
from tilewright.ops.reduce import reduce_axes
from tilewright.plan.create_loops import create_loops
from tilewright.plan.default import default_schedule
from tilewright.target.target import Target
from tilewright.targets import cpu

TARGETS = {
    "host-1": lambda: cpu.host(threads=1),
    "host-2": lambda: cpu.host(threads=2),
    "avx2": lambda: cpu.cpu("avx2"),
    "sse2": lambda: cpu.cpu("sse2"),
}


@functools.cache
def target(name: str) -> Target:
    return TARGETS[name]()


def draw_layouts(data: st.DataObject, kernel: Kernel) -> dict[str, Layout]:
    """Arrangements for some of a kernel's parameters."""
    chosen = {}
    for buffer in kernel.params:
        rank = len(buffer.shape)
        if 0 < rank <= 5 and data.draw(st.integers(0, 2)) == 2:
            chosen[buffer.name] = data.draw(layouts(rank))
    return chosen


def scheduled(kernel: Kernel, target: Target, chosen: dict[str, Layout]) -> Kernel:
    found = default_schedule(kernel, target, chosen).kernel
    verify_kernel(found)
    return found


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60)
@given(program=tensor_programs(), data=st.data())
def test_any_tensor_program(name: str, program: TensorProgram, data: st.DataObject):
    """In order and at the same time, to the bit."""
    kernel = create_loops(program)
    chosen = draw_layouts(data, kernel)
    found = scheduled(kernel, target(name), chosen)
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = data.draw(arrays(kernel.inputs, values))
    wanted = interpret(kernel, inputs, values)
    listed = {buffer: [layout] for buffer, layout in chosen.items()}
    there = packed_inputs(kernel.inputs, inputs, listed)
    for run in (interpret, run_concurrently):
        outputs = run(found, there, values)
        logical = unpacked_outputs(kernel.outputs, outputs, listed, [a.shape for a in wanted])
        for a, b in zip(wanted, logical, strict=True):
            assert same(a, b), f"{b}, not {a}\n{kernel}\n{found}"


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=20)
@given(program=programs(most=500), data=st.data())
def test_kernels_of_models(name: str, program: Program, data: st.DataObject):
    """Small ones, interpreted: nothing is read that was not written."""
    kernel = create_loops(program.program)
    chosen = draw_layouts(data, kernel)
    found = scheduled(kernel, target(name), chosen)
    values = data.draw(symbol_values(symbols(kernel)))
    inputs = program.inputs(data.draw(st.integers(0, 9)), values)
    if sum(a.size for a in inputs) > 600:
        return  # too slow to interpret: tests/codegen/test_programs.py runs them
    wanted = program.wanted(inputs, values)
    listed = {buffer: [layout] for buffer, layout in chosen.items()}
    outputs = interpret(found, packed_inputs(kernel.inputs, inputs, listed), values)
    shapes = [np.shape(a) for a in wanted]
    program.compare(unpacked_outputs(kernel.outputs, outputs, listed, shapes), wanted)


def _sum_of_a_function(axes: tuple[int, ...], keepdims: bool, before: str) -> Kernel:
    """The sum along axes of the exponential of a matrix, or of a padded one."""
    b, x = Builder({"x"}), Buffer("x", f32, (40, 67))

    def padded(*i: Expr) -> Expr:
        return select(i[1] > 0, x[i[0], i[1] - 1], const(0.0, f32))

    def exponential(*i: Expr) -> Expr:
        return Unary(UnaryOp.EXP, x[i])

    made = b.compute("made", x.shape, padded if before == "pad" else exponential)
    add = BinaryOp.ADD
    total = reduce_axes(b, "y", x.shape, axes, add, lambda *i: made[i], keepdims=keepdims)
    return create_loops(TensorProgram("k", (x,), b.items, (total,)))


@pytest.mark.parametrize("before", ["exp", "pad"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_what_a_sum_reads_once_is_computed_in_it(
    axes: tuple[int, ...], keepdims: bool, before: str
):
    """Along vectors, and without a buffer of its own: also where axes are kept with extent 1."""
    kernel = default_schedule(_sum_of_a_function(axes, keepdims, before), target("avx2")).kernel
    names = {s.buffer.name for s in walk_statements(kernel.body) if isinstance(s, Alloc)}
    assert "made" not in names
    updates = [s for s in walk_statements(kernel.body) if isinstance(s, Accumulate)]
    assert len(updates) in (1, 2)  # whole vectors, and what is left of a row
    vectors = [
        loop
        for loop in walk_statements(kernel.body)
        if isinstance(loop, For) and loop.kind is LoopKind.VECTORIZE
    ]
    for update in updates:
        assert any(update in walk_statements((loop,)) for loop in vectors)


def test_what_a_sum_reads_many_times_is_computed_once():
    """Of a matrix product's operand that is an exponential."""
    b, x, w = Builder({"x", "w"}), Buffer("x", f32, (8, 16)), Buffer("w", f32, (16, 32))
    made = b.compute("made", x.shape, lambda *i: Unary(UnaryOp.EXP, x[i]))
    y = b.reduce("y", (8, 32), BinaryOp.ADD, (16,), lambda i, j, k: made[i, k] * w[k, j])
    loops = create_loops(TensorProgram("k", (x, w), b.items, (y,)))
    kernel = default_schedule(loops, target("avx2")).kernel
    stores = [s for s in walk_statements(kernel.body) if isinstance(s, Store)]
    assert any(s.buffer.name == "made" for s in stores)


@pytest.mark.parametrize("keepdims", [False, True])
def test_vectors_of_sums_are_shared_among_cores(keepdims: bool):
    """The outer loop of the one along vectors too, and not a loop of one iteration alone."""
    x, b = Buffer("x", f32, (512, 768)), Builder({"x"})
    add = BinaryOp.ADD
    total = reduce_axes(b, "y", x.shape, (0,), add, lambda *i: x[i], keepdims=keepdims)
    mean = b.compute("mean", total.shape, lambda *i: total[i] * const(0.5, f32))
    loops = create_loops(TensorProgram("k", (x,), b.items, (mean,)))
    kernel = default_schedule(loops, target("host-2")).kernel
    found = [s for s in walk_statements(kernel.body) if isinstance(s, For)]
    assert [s.extent > 8 for s in found if s.kind is LoopKind.PARALLEL] == [True]


@pytest.mark.long
@pytest.mark.parametrize(
    "rows, cores, parts",
    [pytest.param(40, 3, 2, marks=pytest.mark.long), (16, 3, 2), (16, 2, 1), (1, 3, 1)],
)
def test_a_last_tile_of_fewer_vectors_stands_alone(rows: int, cores: int, parts: int):
    """Of 11 vectors: shared among cores as the others are, and to the bit. Where nothing reads the
    weights again, or each core has as many of the four tiles, they are one loop."""
    b, x, w = Builder({"x", "w"}), Buffer("x", f32, (rows, 24)), Buffer("w", f32, (24, 11 * 16))
    y = b.reduce("y", (rows, 176), BinaryOp.ADD, (24,), lambda i, j, k: x[i, k] * w[k, j])
    z = b.compute("z", y.shape, lambda *i: y[i] + const(1.0, f32))
    loops = create_loops(TensorProgram("k", (x, w), b.items, (z,)))
    kernel = scheduled(loops, cpu.cpu("avx512", cores=cores), {})
    assert len(kernel.body) == parts
    if parts == 2:
        kinds = [s.kind for s in kernel.body if isinstance(s, For)]
        assert kinds == [LoopKind.PARALLEL] * 2
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(tuple(map(int, p.shape))).astype(np.float32) for p in (x, w)]
    (found,), (wanted,) = interpret(kernel, inputs), interpret(loops, inputs)
    assert same(found, wanted)


@pytest.mark.parametrize("columns", [5, 13, 36, 37])
@pytest.mark.parametrize("name", ["avx2", "sse2"])
def test_sums_of_a_part_of_a_vector_stay_in_registers(name: str, columns: int):
    """Of products of two inputs, each of a batch, whose columns fill no vector."""
    b, where = Builder({"x", "w"}), target(name)
    x, w = Buffer("x", f32, (3, 10, 9)), Buffer("w", f32, (3, 9, columns))
    y = b.reduce(
        "y", (3, 10, columns), BinaryOp.ADD, (9,), lambda n, i, j, k: x[n, i, k] * w[n, k, j]
    )
    loops = create_loops(TensorProgram("k", (x, w), b.items, (y,)))
    kernel = scheduled(loops, where, {})
    lanes = where.vectors.lanes(f32)
    sums = [s.buffer for s in walk_statements(kernel.body) if isinstance(s, Alloc)]
    assert sums
    assert all(int(s.shape[-1]) % lanes == 0 for s in sums)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(tuple(map(int, p.shape))).astype(np.float32) for p in (x, w)]
    (found,), (wanted,) = interpret(kernel, inputs), interpret(loops, inputs)
    assert same(found, wanted)
