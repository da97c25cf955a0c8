"""Products of a few rows by rows that a transpose would lay side by side: these are read as they
lie, along vectors. All compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_graphs import scheduled_kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import model, node

import tilewright
from tilewright.assemble import target_facts
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.graph import Graph
from tilewright.ir.loop import For, Kernel, LoopKind, walk_statements
from tilewright.plan.rows_by_rows import are_few, tile_of
from tilewright.runtime.processor import runs_here
from tilewright.targets import cpu

AVX2 = cpu.cpu("avx2", cores=2)
LEVELS = [t for t in map(cpu.cpu, ("sse2", "avx2", "avx512")) if runs_here(target_facts(t))]


def scores(
    rows: int, terms: int, columns: int | str, batch: tuple[int, ...] = (), scaled: bool = False
) -> Graph:
    """x [batch, rows, terms] by the transpose of w [batch, columns, terms]."""
    axes = [*range(len(batch)), len(batch) + 1, len(batch)]
    nodes = [node("Transpose", ["w"], ["t"], perm=axes), node("MatMul", ["x", "t"], ["p"])]
    inputs = {"x": (*batch, rows, terms), "w": (*batch, columns, terms)}
    if scaled:
        nodes += [node("Mul", ["p", "s"], ["q"]), node("Add", ["q", "m"], ["y"])]
        inputs["m"] = (columns,)
    else:
        nodes += [node("Identity", ["p"], ["y"])]
    return import_model(model(nodes, inputs, constants={"s": np.array(0.125, np.float32)}))


def kernels_of(graph: Graph) -> dict[str, Kernel]:
    return {
        k: s.kernel for k, s in tilewright.compile(graph, target=AVX2, until="scheduled").items()
    }


def along(kernel: Kernel, kind: LoopKind) -> list[object]:
    return [s.extent for s in walk_statements(kernel.body) if isinstance(s, For) and s.kind is kind]


def test_sums_run_along_vectors_and_a_tile_is_unrolled():
    (kernel,) = scheduled_kernels(scores(4, 40, 24, (6,)), AVX2).values()
    assert along(kernel, LoopKind.UNROLL) == [2, 4]
    assert along(kernel, LoopKind.VECTORIZE) == [8, 8, 8]
    assert along(kernel, LoopKind.PARALLEL) == [18]


def test_what_is_left_of_a_sum_joins_its_tile():
    (kernel,) = scheduled_kernels(scores(4, 37, 24), AVX2).values()
    assert along(kernel, LoopKind.UNROLL) == [2, 4, 2, 4]
    (lowered,) = tilewright.compile(scores(4, 37, 24), target=AVX2, until="lowered").values()
    text = str(lowered)
    assert text.count("across(add") == 8
    assert text.count("lane(5)") == 3 * 8  # sums, data and weights, of 8 pairs


@settings(max_examples=25)
@given(
    st.integers(1, 9), st.integers(16, 75), st.integers(16, 40),
    st.lists(st.integers(1, 3), max_size=2), st.booleans(),
)  # fmt: skip
def test_any_sizes(rows: int, terms: int, columns: int, batch: list[int], scaled: bool):
    graph = scores(rows, terms, columns, tuple(batch), scaled)
    assert len(scheduled_kernels(graph, AVX2)) == 2 - are_few(rows, terms)


@pytest.mark.parametrize("target", LEVELS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    "sizes", [(1, 64, 100), (3, 77, 17), (7, 384, 33), (16, 16, 16), (13, 40, 65)]
)
def test_machine_code(target, sizes: tuple[int, int, int]):
    rows, terms, columns = sizes
    rng = np.random.default_rng(0)
    x, w, m = (
        rng.standard_normal(s).astype(np.float32)
        for s in ((2, rows, terms), (2, columns, terms), (columns,))
    )
    found = tilewright.compile(scores(*sizes, (2,), scaled=True), target=target)(x, w, m)
    wanted = x.astype(np.float64) @ w.astype(np.float64).swapaxes(1, 2) * 0.125 + m
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_an_unknown_number_of_columns():
    graph = scores(1, 64, "n", (4,))
    assert len(kernels_of(graph)) == 1
    module = tilewright.compile(graph, target="host")
    rng = np.random.default_rng(0)
    for n in (1, 7, 16, 33):
        x, w = rng.standard_normal((4, 1, 64)), rng.standard_normal((4, n, 64))
        found = module(x.astype(np.float32), w.astype(np.float32))
        np.testing.assert_allclose(found, x @ w.swapaxes(1, 2), rtol=1e-4, atol=1e-4)


LAID = {
    "many rows": scores(40, 64, 64),
    "short sums": scores(1, 12, 64),
    "sums that are short for so many rows": scores(8, 56, 64),
    "few columns": scores(4, 64, 12),
    "several rows by an unknown number": scores(4, 64, "n"),
}


@pytest.mark.parametrize("name", LAID)
def test_columns_are_laid_side_by_side(name: str):
    assert len(kernels_of(LAID[name])) == 2


EMPTY = [(0, 32, 32), (2, 32, 0), (1, 0, 0), (20, 32, 0), (2, 0, 32), (0, 0, 0)]


@pytest.mark.parametrize("sizes", EMPTY)
@pytest.mark.parametrize("transposed", [False, True])
def test_without_elements(sizes: tuple[int, int, int], transposed: bool):
    rows, terms, columns = sizes
    x, w = np.ones((rows, terms), np.float32), np.ones((columns, terms), np.float32)
    if transposed:
        graph = scores(*sizes)
    else:
        w = w.T.copy()
        graph = import_model(
            model([node("MatMul", ["x", "w"], ["y"])], {"x": x.shape, "w": w.shape})
        )
    found = tilewright.compile(graph, target=AVX2)(x, w)
    np.testing.assert_array_equal(found, np.zeros((rows, columns), np.float32))


def test_a_transpose_that_somebody_else_reads_stays():
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["p"]),
        node("Exp", ["t"], ["y"]),
    ]
    inputs = {"x": (2, 64), "w": (48, 64)}
    graph = import_model(model(nodes, inputs, outputs=["p", "y"]))
    assert len(kernels_of(graph)) == 3


def test_long_sums_have_many_rows():
    assert [are_few(n, 64) for n in (0, 1, 8, 9)] == [False, True, True, False]
    assert [are_few(n, 256) for n in (16, 17)] == [True, False]
    assert [are_few(n, 1024) for n in (64, 65)] == [True, False]
    assert [are_few(n, 4096) for n in (64, 65)] == [True, False]


@pytest.mark.parametrize("rows", range(1, 17))
@pytest.mark.parametrize("registers", [16, 32])
def test_tiles_fit_the_registers(rows: int, registers: int):
    tile = tile_of(rows, 16, registers)
    assert rows % tile.rows == 0
    assert 16 % tile.columns == 0
    assert tile.rows * tile.columns + tile.columns < registers
    if rows in (4, 8, 16):
        assert tile.rows * tile.columns == (16 if registers == 32 else 8)
