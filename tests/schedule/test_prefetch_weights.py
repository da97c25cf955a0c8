"""Weights that the near caches do not hold come a tile of columns ahead."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import interpret as interpreter
from tilewright.ir.loop import Accumulate, Kernel, Prefetch, Store, walk_statements
from tilewright.ir.text.loop import parse_kernel
from tilewright.kernels import build
from tilewright.plan.default import default_schedule
from tilewright.target.target import Target
from tilewright.targets import cpu


def with_cache(size: int, cores: int = 1) -> Target:
    """A processor of 16 lanes whose near caches have so many bytes."""
    target = replace(cpu.cpu("avx512"), cores=cores)
    memories = (replace(m, size=size) if m.name in ("l1", "l2") else m for m in target.memories)
    return replace(target, memories=tuple(memories))


def product(rows: int = 24, depth: int = 63, columns: int = 96, dtype: str = "f32") -> Kernel:
    return parse_kernel(
        f"""
def product(x: {dtype}[{rows}, {depth}], w: {dtype}[{depth}, {columns}], \
y: out({dtype}[{rows}, {columns}])):
    for m in range({rows}):
        for n in range({columns}):
            y[m, n] = {dtype}(0.0)
            for k in range({depth}):
                y[m, n] += x[m, k] * w[k, n]
""".strip()
    )


def prefetches(kernel: Kernel) -> list[Prefetch]:
    return [x for x in walk_statements(kernel.body) if isinstance(x, Prefetch)]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("depth", [63, 61, 256])
@pytest.mark.parametrize("columns", [96, 240])
def test_the_next_columns_come_once(monkeypatch, cores, depth, columns):
    """Each line of them, in the steps of the tile before."""
    kernel = product(depth=depth, columns=columns)
    s = default_schedule(kernel, with_cache(4 << 10, cores))
    assert len(prefetches(s.kernel)) == 1
    found: dict[int, list[tuple[int, int]]] = {}
    weights = s.buffer("w")

    def note(stmt, env, memory, symbols):
        row, column = (int(interpreter.scalar(i, env, memory)) for i in stmt.indices)
        assert stmt.buffer == weights
        found.setdefault(column // width, []).append((row, column // 16))

    width = next(n for n in (48, 64, 32, 16) if f"* {n}" in str(s.kernel))
    monkeypatch.setitem(interpreter._RUN, Prefetch, note)
    for kind in (Accumulate, Store):
        monkeypatch.setitem(interpreter._RUN, kind, lambda *_: None)
    interpreter.interpret(s.kernel, [np.zeros(b.shape, "f") for b in kernel.inputs])
    tiles = columns // width
    for tile in range(1, tiles):
        lines = [(k, tile * width // 16 + v) for k in range(depth) for v in range(width // 16)]
        assert sorted(found[tile]) == lines
    assert set(found) <= {*range(1, tiles + 1)}


@pytest.mark.parametrize("cache, level", [(4 << 10, 3), (32 << 10, 2)])
def test_they_come_to_the_cache_that_holds_two_tiles(cache, level):
    s = default_schedule(product(columns=240), with_cache(cache))
    assert [x.level for x in prefetches(s.kernel)] == [level]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_results_are_the_same(dtype):
    kernel = product(rows=61, depth=100, columns=144, dtype=dtype)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(b.shape).astype(b.dtype.numpy) for b in kernel.inputs)
    results = []
    for size in (4 << 10, 1 << 20):
        y = np.empty((61, 144), x.dtype)
        s = default_schedule(kernel, with_cache(size))
        assert bool(prefetches(s.kernel)) == (size < 1 << 20)
        host = replace(cpu.host(1), memories=with_cache(size).memories)
        build(default_schedule(kernel, host), host)(x, w, y)
        np.testing.assert_allclose(y, x @ w, rtol=1e-4, atol=1e-5)
        results.append(y)
    assert np.array_equal(*results)


@settings(max_examples=25)
@given(st.integers(1, 70), st.integers(1, 200), st.integers(1, 200), st.sampled_from([1, 2]))
def test_random_sizes(rows, depth, columns, cores):
    kernel = product(rows, depth, columns)
    rng = np.random.default_rng(rows)
    x, w = (rng.standard_normal(b.shape).astype("f") for b in kernel.inputs)
    y = np.empty((rows, columns), "f")
    host = replace(cpu.host(cores), memories=with_cache(1 << 10).memories)
    s = default_schedule(kernel, host)
    assert s.fallback == ""
    build(s, host)(x, w, y)
    np.testing.assert_allclose(y, x @ w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "sizes, cache",
    [
        ({}, 1 << 20),  # the near caches hold all weights
        ({"rows": 2}, 4 << 10),  # each weight is read once
        ({"rows": 2000}, 4 << 10),  # and here so often that it may come late
        ({"columns": 32}, 4 << 10),  # no next columns
    ],
)
def test_what_is_not_prefetched(sizes, cache):
    s = default_schedule(product(**sizes), with_cache(cache))
    assert (s.fallback, prefetches(s.kernel)) == ("", [])
