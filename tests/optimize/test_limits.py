"""What symbols are taken to be, and how large results may be."""

import numpy as np
import pytest
from graph_cases import Maker

from tilewright.base.dtype import bool_, i32
from tilewright.ir.expr import Symbol
from tilewright.optimize.fold_constants import fold_constants
from tilewright.optimize.merge_common import merge_common
from tilewright.optimize.pack_slots import Lifetime, pack_slots
from tilewright.optimize.recompute import elements, typical

N, FEW, MANY = Symbol("n"), Symbol("few", 1, 10), Symbol("many", 100)


@pytest.mark.parametrize(
    "dim, guess",
    [(7, 7), (N, 64), (FEW, 10), (MANY, 100), (N * 2 + 1, 129), (Symbol("m", 1, 64) * FEW, 640)],
)
def test_what_a_dimension_is_taken_to_be_for_recomputing(dim, guess):
    assert typical(dim) == guess
    assert elements((dim, 3)) == 3 * guess
    assert elements(()) == 1


@pytest.mark.parametrize("dim, guess", [(N, 128), (FEW, 10), (MANY, 128), (Symbol("k", 200), 200)])
def test_what_a_dimension_is_taken_to_be_for_packing(dim, guess):
    found = pack_slots([Lifetime(dim * 64, 0, 1), Lifetime(dim * 64, 1, 2)])
    assert (found.typical, found.least) == (2 * 64 * guess, 2 * 64 * guess)


@pytest.mark.parametrize("count, stays", [(1 << 14, False), ((1 << 14) + 1, True)])
def test_results_of_64_kib_are_worth_keeping(count: int, stays: bool):
    m = Maker()
    one = m.constant(np.ones(()))
    graph = m.graph(m.op("expand", one, shape=(count,)))
    assert len(fold_constants(graph).nodes) == stays


@pytest.mark.parametrize("grows, stays", [(4, False), (5, True)])
def test_larger_results_may_be_four_times_what_they_come_from(grows: int, stays: bool):
    m = Maker()
    weight = m.constant(np.zeros((1, 1 << 15), np.float32))
    graph = m.graph(m.op("expand", weight, shape=(grows, 1 << 15)))
    assert len(fold_constants(graph).nodes) == stays


@pytest.mark.parametrize("name", ["add", "mul", "min", "max", "and", "or", "xor", "equal"])
def test_operands_that_may_change_places(name: str):
    m = Maker()
    dtype = bool_ if name in ("and", "or", "xor") else i32
    x, y = m.input(4, dtype=dtype), m.input(4, dtype=dtype)
    both = m.op(name, x, y), m.op(name, y, x)
    assert len(merge_common(m.graph(*both)).nodes) == 1


@pytest.mark.parametrize("name", ["sub", "div", "less", "pow"])
def test_operands_that_may_not(name: str):
    m = Maker()
    x, y = m.input(4), m.input(4)
    assert len(merge_common(m.graph(m.op(name, x, y), m.op(name, y, x))).nodes) == 2
