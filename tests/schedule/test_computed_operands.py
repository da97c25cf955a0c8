"""Products of two tensors that are both computed, and repeats: what is copied, in which order
results are written. All compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_graphs import scheduled_kernels
from onnx_models import model, node

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.expr import Binary, BinaryOp, Buffer, Const, Select
from tilewright.ir.graph import Graph
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    For,
    Kernel,
    LoopKind,
    Store,
    expressions,
    walk_statements,
)
from tilewright.targets import cpu

AVX2 = cpu.cpu("avx2")


def product(rows: int, terms: int, columns: int, *batch: int) -> Graph:
    inputs = {"x": (*batch, rows, terms), "w": (*batch, terms, columns)}
    return import_model(model([node("MatMul", ["x", "w"], ["y"])], inputs))


def convolution(channels: int, filters: int, size: tuple[int, int], window: int) -> Graph:
    w = np.ones((filters, channels, window, window), np.float32)
    conv = node("Conv", ["x", "w"], ["y"], pads=[window // 2] * 4)
    return import_model(model([conv], {"x": (1, channels, *size)}, constants={"w": w}))


def tiled(shape: tuple[int, ...], repeats: list[int]) -> Graph:
    tile = node("Tile", ["x", "r"], ["y"])
    return import_model(model([tile], {"x": shape}, constants={"r": np.array(repeats)}))


def kernels_of(graph: Graph) -> dict[str, Kernel]:
    found = tilewright.compile(graph, target=AVX2, until="scheduled")
    return {name: s.kernel for name, s in found.items()}


def only(graph: Graph) -> Kernel:
    (kernel,) = scheduled_kernels(graph, AVX2).values()
    return kernel


def copies(kernel: Kernel) -> list[Buffer]:
    """The arrays in memory that are made within a kernel."""
    every = (s.buffer for s in walk_statements(kernel.body) if isinstance(s, Alloc))
    return [b for b in every if b.memory != "register"]


def tile_of(kernel: Kernel) -> tuple[int, int]:
    """Rows and columns of the sums in registers."""
    every = (s.buffer for s in walk_statements(kernel.body) if isinstance(s, Alloc))
    sums = next(b for b in every if b.memory == "register")
    return int(sums.shape[0]), int(sums.shape[1])


# ---------------------------------------------------------------- sums of a part of a vector


@pytest.mark.parametrize("columns", [3, 5, 13])
def test_masks_are_on_weights_alone(columns: int):
    """What lies beyond the columns is summed up as well, and nobody reads it: products stay what
    multiplies and adds at once."""
    kernel = only(product(20, 9, columns))
    (sums,) = (s for s in walk_statements(kernel.body) if isinstance(s, Accumulate))
    assert isinstance(sums.value, Binary)
    assert sums.value.op is BinaryOp.MUL
    masks = [x for e in expressions(sums) for x in e.walk() if isinstance(x, Select)]
    assert len(masks) == 1


def test_what_lies_beyond_may_be_no_number():
    """A row of infinities times the zeros beyond the columns."""
    graph = product(4, 3, 5)
    x = np.full((4, 3), np.inf, np.float32)
    w = np.ones((3, 5), np.float32)
    module = tilewright.compile(graph, target=cpu.host(threads=1))
    np.testing.assert_array_equal(module(x, w), np.full((4, 5), np.inf, np.float32))


# ---------------------------------------------------------------- sums along a batch


@pytest.mark.parametrize("batch", [2, 8, 19])
def test_one_column_for_each_place_of_a_batch(batch: int):
    """Vectors go along what is added up, and no array is arranged by blocks of the batch."""
    kernel = only(product(6, 32, 1, batch))
    vectors = [
        s
        for s in walk_statements(kernel.body)
        if isinstance(s, For) and s.kind is LoopKind.VECTORIZE
    ]
    assert vectors


# ---------------------------------------------------------------- copies of columns


def test_columns_are_copied_where_several_tiles_of_rows_read_them():
    kernel = only(product(24, 64, 256))
    (copy,) = copies(kernel)
    assert copy.shape == (64, tile_of(kernel)[1])


@pytest.mark.parametrize(
    "sizes", [(8, 64, 256), (24, 32, 256), (24, 64, 128)], ids=["few rows", "few terms", "near"]
)
def test_columns_are_read_where_they_lie(sizes: tuple[int, int, int]):
    assert not copies(only(product(*sizes)))


def test_constants_are_packed_while_compiling():
    w = np.ones((64, 256), np.float32)
    nodes, constants = [node("MatMul", ["x", "w"], ["y"])], {"w": w}
    assert not copies(only(import_model(model(nodes, {"x": (24, 64)}, constants=constants))))


def test_what_is_packed_is_not_copied_again():
    """Weights of 5x5 windows, of which a step down is far."""
    kernels = scheduled_kernels(convolution(32, 64, (12, 24), 5), AVX2)
    assert not [b for k in kernels.values() for b in copies(k) if b.name.startswith("x1")]


def test_columns_of_a_last_tile_are_fewer():
    (copy,) = copies(only(product(24, 64, 257, 2)))
    assert copy.shape[-2] == 64


# ---------------------------------------------------------------- results larger than caches


def innermost_is_along_columns(kernel: Kernel) -> bool:
    """Whether a tile beside the last comes after it."""
    around = [s for s in kernel.body if isinstance(s, For)]
    inner = [s for s in around[0].body if isinstance(s, For)]
    return around[0].var.name.startswith("m") and inner[0].var.name.startswith("n")


@pytest.mark.parametrize(
    "sizes, along",
    [((3000, 20, 1000), True), ((100, 20, 1000), False), ((3000, 40, 1000), False)],
    ids=["large", "small", "many terms"],
)
def test_sums_of_few_terms_are_written_row_by_row(sizes: tuple[int, int, int], along: bool):
    (kernel,) = kernels_of(product(*sizes)).values()
    assert innermost_is_along_columns(kernel) == along


def test_rows_that_are_written_at_once_are_few():
    few, many = (tile_of(*kernels_of(product(3000, terms, 1000)).values()) for terms in (20, 40))
    assert few == (4, 3 * 8)
    assert many == (6, 2 * 8)


def test_rows_of_data_a_page_apart_are_few():
    """More than the ways of the first cache, of 32 KiB with 8 ways, would push out one another."""
    near, apart = (tile_of(*kernels_of(product(96, k, 8)).values()) for k in (1000, 1024))
    assert near[0] > 8 >= apart[0] + apart[1] // 8


# ---------------------------------------------------------------- data that meets in a cache


@pytest.mark.parametrize(
    "channels, filters, size, copied",
    [
        (64, 32, (16, 16), True),  # 1 KiB apart, of which the first cache holds 32 lines
        (64, 32, (14, 14), False),  # 784 bytes apart: 512
        (32, 32, (16, 16), False),
        (64, 16, (16, 16), False),  # a single tile of filters
    ],
)
def test_data_is_arranged_by_blocks(
    channels: int, filters: int, size: tuple[int, int], copied: bool
):
    kernels = scheduled_kernels(convolution(channels, filters, size, 1), AVX2)
    assert sum("relayout" in name for name in kernels) == 1 + copied  # one is the result's


# ---------------------------------------------------------------- repeats


@pytest.mark.parametrize(
    "shape, repeats",
    [((6, 1, 19), [1, 2, 2]), ((4, 10, 6), [1, 3, 1]), ((3, 4, 2, 48), [3, 2, 1, 3]), ((5,), [7])],
)
def test_what_is_repeated_is_read_in_runs(shape: tuple[int, ...], repeats: list[int]):
    kernel = only(tiled(shape, repeats))
    store = next(s for s in walk_statements(kernel.body) if isinstance(s, Store))
    divisors = {
        int(x.b.value)
        for x in store.value.walk()
        if isinstance(x, Binary) and x.op is BinaryOp.MOD and isinstance(x.b, Const)
    }
    periods = {n for n, times in zip(shape, repeats, strict=True) if times > 1 and n > 1}
    assert bool(divisors & periods) == (shape == (5,))  # a run of five is no better than any places


def reduced(layers: bool) -> Kernel:
    """The largest of 256 places for each of 64 channels: as they lie in memory, or in blocks, as a
    convolution leaves them."""
    nodes, inputs, constants = [], {"x": (1, 256, 64)}, {"a": np.array([1])}
    if layers:
        nodes, inputs = [node("Conv", ["x", "w"], ["c"])], {"x": (1, 16, 256)}
        constants = {"w": np.ones((64, 16, 1), np.float32), "a": np.array([2])}
    nodes += [node("ReduceMax", ["c" if layers else "x", "a"], ["y"], keepdims=0)]
    found = kernels_of(import_model(model(nodes, inputs, constants=constants)))
    (name,) = (n for n in found if "reduce_max" in n)
    return found[name]


@pytest.mark.parametrize("layers, side_by_side", [(False, [4, 4]), (True, [])])
def test_vectors_side_by_side_are_reduced_together(layers: bool, side_by_side: list[int]):
    every = [s for s in walk_statements(reduced(layers).body) if isinstance(s, For)]
    assert [s.extent for s in every if s.kind is LoopKind.UNROLL] == side_by_side
    assert any(s.kind is LoopKind.VECTORIZE for s in every)
