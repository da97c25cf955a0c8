"""Comparing sizes: what is said to hold does, for many values; how far it looks; constants."""

import itertools

import numpy as np
import pytest
from graph_cases import Maker, check_same

from tilewright.base.dtype import f32
from tilewright.ir.dims import canonical
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Symbol, as_expr, maximum
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ops.movement import TransposeAttrs
from tilewright.ops.table import op
from tilewright.optimize.compare_sizes import (
    is_at_least,
    is_never_negative,
    larger_of,
    round_up,
)
from tilewright.optimize.fuse import fuse
from tilewright.optimize.merge_common import attrs_key, merge_common
from tilewright.optimize.pack_slots import Lifetime, pack_slots
from tilewright.optimize.simplify_nodes import simplify_nodes

N, M, K = Symbol("n"), Symbol("m", 3, 40), Symbol("k", -6, 5)
COMBINED = itertools.product((1, 2, 7, 64, 1000), (3, 9, 40), range(-6, 6, 2))
VALUES = [dict(zip("nmk", v, strict=True)) for v in COMBINED]
ATOMS = [as_expr(7), as_expr(N), as_expr(M), as_expr(K), maximum(N, 12), maximum(K, -2)]
ATOMS += [maximum(N - 20, K), (N + 3) // 4, (M * N) // 3, N % 5, (K + 1) // 2, M - 3]


def sizes() -> list:
    pairs = itertools.combinations_with_replacement(ATOMS, 2)
    products = [canonical(a * b) for a, b in pairs]
    return [canonical(a) for a in ATOMS] + products


def test_what_is_never_negative():
    """What is said to be so is; and this is how often it is said."""
    said = []
    for size in sizes():
        least = min(evaluate_dim(size, v) for v in VALUES)
        said.append((least >= 0, is_never_negative(size)))
    counts = {pair: said.count(pair) for pair in sorted(set(said))}
    assert counts == {(False, False): 39, (True, False): 13, (True, True): 38}


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_differences(shift: int):
    """Of all pairs: what is said to be at least as large is; sums and products of sizes that are
    nowhere below 0 are compared in full."""
    some = sizes()[::3]
    for a, b in itertools.product(some, some):
        if is_at_least(a, canonical(as_expr(b) + shift)):
            assert all(evaluate_dim(a, v) >= evaluate_dim(b, v) + shift for v in VALUES), (a, b)


def test_the_larger_of_two():
    some = [s for s in sizes() if min(evaluate_dim(s, v) for v in VALUES) >= 0][::3]
    for a, b in itertools.product(some, some):
        found = larger_of(a, b)
        for v in VALUES[::5]:
            assert evaluate_dim(found, v) >= max(evaluate_dim(x, v) for x in (a, b)), (a, b)


def test_rounding_up():
    for size, unit in itertools.product([*sizes()[::2], canonical(N * 600 + 520)], (1, 64)):
        found = round_up(size, unit)
        for v in VALUES[::3]:
            exact, n = evaluate_dim(size, v), evaluate_dim(found, v)
            assert n % unit == 0, (size, unit)
            assert exact <= n < max(exact + unit, exact * (1 + unit / 512) + 1), (size, unit)


ROUNDED = [(511, "64 * ((63 * n + 63) // 64) + 448 * n"), (512, "512 * n"), (513, "576 * n")]


@pytest.mark.parametrize("coefficient, text", ROUNDED)
def test_large_coefficients_are_rounded(coefficient: int, text: str):
    assert str(round_up(canonical(N * coefficient), 64)) == text


def test_sizes_at_the_edge():
    assert str(round_up(canonical(N * 512), 96)) == "576 * n"
    assert str(round_up(canonical(N * 511), 96)) != "576 * n"
    assert [is_at_least(3, other) for other in (2, 3, 4)] == [True, True, False]


@pytest.mark.parametrize("count, known", [(199, True), (200, False)])
def test_quotients_that_are_replaced(count: int, known: bool):
    """One is replaced after the other, and in the end it must be seen that none is left."""
    total = as_expr(0)
    for k in range(count):
        total = total + Symbol(f"s{k}") // 2
    assert is_at_least(canonical(total + count), 0) == known


@pytest.mark.parametrize("count, known", [(8, True), (9, False)])
def test_maxima_that_are_chosen_from(count: int, known: bool):
    total = as_expr(0)
    for k in range(count):
        total = total + maximum(Symbol(f"s{k}"), Symbol(f"t{k}"))
    assert is_at_least(canonical(total), count) == known


@pytest.mark.parametrize("count, kept", [(3, True), (4, False)])
def test_maxima_within_each_other(count: int, kept: bool):
    """Up to four are kept; a size with more is bounded by a sum."""
    size = as_expr(Symbol("a"))
    for k in range(count):
        size = maximum(size * 2, Symbol(f"s{k}") * 3)
    found = larger_of(canonical(size), canonical(Symbol("z") * 5))
    assert str(found).endswith("+ 5 * z") != kept


# ---------------------------------------------------------------- packing


def smallest(lives: list[Lifetime]) -> int:
    """The least bytes with the slots placed in some order, each as low as it can be."""
    best = None
    for order in itertools.permutations(range(len(lives))):
        low: dict[int, int] = {}
        for i in order:
            beside = [
                j
                for j in low
                if lives[j].first <= lives[i].last and lives[i].first <= lives[j].last
            ]
            starts = sorted({0, *(low[j] + lives[j].size for j in beside)})
            low[i] = next(
                s for s in starts
                if all(s + lives[i].size <= low[j] or low[j] + lives[j].size <= s for j in beside)
            )  # fmt: skip
        total = max(low[i] + lives[i].size for i in low)
        best = total if best is None else min(best, total)
    return best or 0


def test_few_slots_are_packed_as_well_as_in_any_order():
    rng = np.random.default_rng(5)
    for _ in range(60):
        lives = []
        for _ in range(5):
            first = int(rng.integers(0, 6))
            lives.append(
                Lifetime(64 * int(rng.integers(1, 9)), first, first + int(rng.integers(0, 4)))
            )
        assert pack_slots(lives).typical == smallest(lives), lives


# ---------------------------------------------------------------- nodes


def test_constants_without_elements_are_no_number():
    m = Maker()
    y = m.op("add", m.input(0, 3), m.constant(np.zeros((0, 3))))
    assert [n.op.name for n in simplify_nodes(m.graph(y)).nodes] == ["add"]


def test_one_of_two_expansions_goes():
    """Without both the result would lose its rows."""
    m = Maker()
    x, y = (m.op("expand", m.input(1, 4), shape=(3, 4)) for _ in range(2))
    graph = m.graph(m.op("add", x, y))
    found = simplify_nodes(graph)
    check_same(graph, found)
    (total,) = (n for n in found.nodes if n.op.name == "add")
    assert [v.shape for v in total.inputs] == [(1, 4), (3, 4)]


def test_the_expansion_that_adds_rows_stays():
    m = Maker()
    x, y = m.op("expand", m.input(1, 4), shape=(3, 4)), m.op("expand", m.input(4), shape=(1, 4))
    graph = m.graph(m.op("add", x, y))
    found = simplify_nodes(graph)
    check_same(graph, found)
    (total,) = (n for n in found.nodes if n.op.name == "add")
    assert [v.shape for v in total.inputs] == [(3, 4), (4,)]


def test_a_transposition_of_nothing_where_elements_lie_otherwise():
    kind = TensorType(f32, (4, 8), Layout((0, 1), ((1, 4),)))
    x, y, z = (Value(name, kind) for name in "xyz")
    same = GraphNode(op("transpose"), TransposeAttrs((0, 1)), (x,), (y,), "same")
    last = GraphNode(op("relu"), op("relu").make_attrs(), (y,), (z,), "last")
    graph = simplify_nodes(Graph("model", (x,), (z,), (same, last), {}))
    assert [(n.op.name, n.inputs) for n in graph.nodes] == [("relu", (x,))]


def test_a_kernel_whose_results_nobody_reads():
    """It gives the first of them."""
    m = Maker()
    m.ops("max_pool", m.input(1, 1, 6), kernel=(2,), strides=(2,), dilations=(1,), pads_begin=(0,),
          pads_end=(0,), indices=True)  # fmt: skip
    y = m.op("relu", m.input(3))
    found = fuse(m.graph(y))
    assert [len(n.outputs) for n in found.nodes] == [1, 1]


def test_equal_attributes():
    """Numbers are told apart by type and sign."""
    pool = op("leaky_relu")
    keys = [attrs_key(pool.make_attrs(alpha=a)) for a in (0.0, -0.0, 1.0, 1.0)]
    assert len(set(keys)) == 3


def test_large_constants_that_differ_in_one_place_stay_apart():
    """In a place that the sample does not have, too."""
    a = np.arange(4096, dtype=np.float32)
    for place in (0, 1, 77, 4095):
        b = a.copy()
        b[place] += 1
        for other, left in ((b, 2), (a.copy(), 1)):
            m = Maker()
            x = m.input(4096)
            ends = [m.op("mul", x, m.constant(c)) for c in (a, other)]
            assert len(merge_common(m.graph(*ends)).nodes) == left
