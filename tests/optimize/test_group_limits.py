"""How large a kernel may become: each limit of grouping, at it and one beyond it."""

import pytest
from graph_cases import Maker, check_same

from tilewright.ir.expr import Symbol
from tilewright.ops.function import CALL
from tilewright.optimize.fuse import fuse


def kernels(m: Maker, *outputs) -> list[str]:
    """The operators of each kernel."""
    graph = m.graph(*outputs)
    fused = fuse(graph)
    check_same(graph, fused)
    calls = [n for n in fused.nodes if n.op is CALL]
    return [" ".join(x.op.name for x in n.attrs.body.nodes) for n in calls]


def chain(m: Maker, x, *names: str):
    for name in names:
        x = m.op(name, x)
    return x


@pytest.mark.parametrize("count, found", [(64, [64]), (65, [1, 64]), (130, [2, 64, 64])])
def test_nodes_of_a_chain(count: int, found: list[int]):
    m = Maker()
    y = chain(m, m.input(3), *["neg", "abs"] * (count // 2), *["neg"] * (count % 2))
    assert [len(k.split()) for k in kernels(m, y)] == found


@pytest.mark.parametrize("count, found", [(7, [7]), (8, [1, 7]), (15, [1, 7, 7])])
def test_squares_of_squares(count: int, found: list[int]):
    """The first of seven is written out 64 times."""
    m = Maker()
    y = m.input(3)
    for _ in range(count):
        y = m.op("mul", y, y)
    assert [len(k.split()) for k in kernels(m, y)] == found


@pytest.mark.parametrize("count, found", [(3, [4]), (4, [1, 4]), (5, [2, 4])])
def test_dear_functions_count_three_times(count: int, found: list[int]):
    """tanh of tanh of …: operands are written out 3, 9, 27 and 81 times; 81 are too many."""
    m = Maker()
    y = chain(m, m.input(3), "neg", *["tanh"] * count)
    assert [len(k.split()) for k in kernels(m, y)] == found


@pytest.mark.parametrize("count, found", [(6, ["matmul" + " mul" * 6]), (7, 2)])
def test_what_follows_an_anchor_is_stored_once(count: int, found: object):
    """The anchor's result counts once, however often it is read."""
    m = Maker()
    y = m.op("matmul", m.input(2, 3), m.input(3, 2))
    for _ in range(count):
        y = m.op("mul", y, y)
    got = kernels(m, y)
    assert (got if isinstance(found, list) else len(got)) == found


@pytest.mark.parametrize("readers, kernels_left", [(2, 2), (4, 4), (5, 6)])
def test_readers_that_a_cheap_node_moves_into(readers: int, kernels_left: int):
    m = Maker()
    x = m.input(4, 6)
    shared = m.op("neg", x)
    ways = [("reduce_sum", 0), ("reduce_sum", 1), ("reduce_max", 0), ("reduce_max", 1)]
    ways = [*ways, ("reduce_min", 0)][:readers]
    found = kernels(m, *(m.op(n, shared, axes=(a,), keepdims=True) for n, a in ways))
    assert len(found) == kernels_left
    assert sum("neg" in k for k in found) == (readers if readers <= 4 else 1)


@pytest.mark.parametrize("count, moves", [(4, True), (5, False)])
def test_nodes_of_a_cheap_group_that_moves(count: int, moves: bool):
    m = Maker()
    shared = chain(m, m.input(4, 6), *["neg", "abs", "neg", "relu", "floor"][:count])
    ends = [m.op("reduce_sum", shared, axes=(k,), keepdims=True) for k in range(2)]
    assert len(kernels(m, *ends)) == (2 if moves else 3)


@pytest.mark.parametrize("name, moves", [("neg", True), ("tanh", False)])
def test_a_dear_group_does_not_move(name: str, moves: bool):
    m = Maker()
    shared = m.op(name, m.input(4, 6))
    ends = [m.op("reduce_sum", shared, axes=(k,), keepdims=True) for k in range(2)]
    assert len(kernels(m, *ends)) == (2 if moves else 3)


@pytest.mark.parametrize("shape, moves", [((4, 6), False), ((1, 6), True), ((4, 1), True)])
def test_a_group_that_reads_two_large_tensors_does_not_move(shape, moves):
    """The second operand is as large as the result, or is broadcast."""
    m = Maker()
    shared = m.op("add", m.input(4, 6), m.input(*shape))
    ends = [m.op("reduce_sum", shared, axes=(k,), keepdims=True) for k in range(2)]
    assert len(kernels(m, *ends)) == (2 if moves else 3)


@pytest.mark.parametrize("rows, moves", [(1, False), (2, True), (3, True)])
def test_half_as_large_is_not_large(rows: int, moves: bool):
    """One row, of 12 elements, beside 12, 24 or 36."""
    m = Maker()
    shared = m.op("add", m.input(rows, 12), m.input(1, 12))
    ends = [m.op(n, shared, axes=(1,), keepdims=True) for n in ("reduce_sum", "reduce_max")]
    assert len(kernels(m, *ends)) == (2 if moves else 3)


@pytest.mark.parametrize("width, joins", [(1, True), (4, True), (5, False)])
def test_times_that_a_window_may_compute_a_node(width: int, joins: bool):
    """A pooling reads each element as often as its window is wide."""
    m = Maker()
    x = m.op("neg", m.input(1, 1, 40))
    y = m.op("max_pool", x, kernel=(width,), strides=(1,), dilations=(1,), pads_begin=(0,),
             pads_end=(width - 1,))  # fmt: skip
    assert len(kernels(m, y)) == (1 if joins else 2)


@pytest.mark.parametrize("count, found", [(4, 1), (5, 2)])
def test_nodes_that_are_computed_again(count: int, found: int):
    """A column that is broadcast along rows: every node of it is computed for each row."""
    m = Maker()
    column = chain(m, m.input(8, 1), *["neg", "abs", "floor", "neg", "relu"][:count])
    y = m.op("add", m.input(8, 2), column)
    assert len(kernels(m, y)) == found


@pytest.mark.parametrize("count, found", [(3, 2), (4, 3)])
def test_nodes_that_two_readers_compute_again(count: int, found: int):
    """Each of the two computes one node of its own again as well, and no more than four."""
    m = Maker()
    column = chain(m, m.input(8, 1), *["neg", "abs", "floor", "neg"][:count])
    ends = [m.op("add", m.input(8, 2), m.op(name, column)) for name in ("relu", "ceil")]
    assert len(kernels(m, *ends)) == found


def test_a_dear_column_without_a_size():
    """A dear column of n elements is not computed again for a second one."""
    m = Maker()
    x = m.input(Symbol("n"), 1)
    wide = m.op("add", m.op("tanh", x), m.input(Symbol("n"), 2))
    graph = m.graph(wide)
    calls = [n for n in fuse(graph).nodes if n.op is CALL]
    assert [[x.op.name for x in n.attrs.body.nodes] for n in calls] == [["tanh"], ["add"]]
