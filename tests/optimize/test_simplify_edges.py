"""Rules of simplify_nodes where layouts and shapes come in; what is worked out once."""

import numpy as np
import pytest
from graph_cases import Maker, check_same

from tilewright.base.dtype import f32
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor import TensorProgram
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ops.table import op
from tilewright.optimize.edit import remove_dead
from tilewright.optimize.recompute import Costs
from tilewright.optimize.simplify_nodes import simplify_nodes


def names(m: Maker, *outputs: Value) -> list[str]:
    graph = m.graph(*outputs)
    after = remove_dead(simplify_nodes(graph))
    check_same(graph, after)
    return [f"{n.op.name} {list(n.outputs[0].shape)}" for n in after.nodes]


@pytest.mark.parametrize(
    "left, right, found",
    [
        # Together they would lose the first axis: the first one alone is read as it was.
        ((1, 4, 3), (1, 4, 3), ["expand [2, 4, 3]", "add [2, 4, 3]"]),
        ((1, 4, 3), (2, 1, 3), ["add [2, 4, 3]"]),
        ((1, 1, 1), (2, 4, 3), ["add [2, 4, 3]"]),
        ((1, 1, 3), (1, 4, 1), ["expand [2, 4, 3]", "add [2, 4, 3]"]),
    ],
)
def test_operands_that_are_expanded(left, right, found):
    m = Maker()
    x, y = m.input(*left), m.input(*right)
    wide = [m.op("expand", v, shape=(2, 4, 3)) for v in (x, y)]
    assert names(m, m.op("add", *wide)) == found


def test_neutral_numbers_that_broadcast_stay():
    m = Maker()
    x = m.input(1, 3)
    ones = m.constant(np.ones((2, 3)))
    assert names(m, m.op("mul", x, ones)) == ["mul [2, 3]"]
    assert names(m, m.op("div", x, ones)) == ["mul [2, 3]"]  # by 1 / 1


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize(
    "places, found",
    [
        ([0, 2, 4], "slice"),
        ([1], "slice"),
        ([5, 3, 1], "slice"),
        ([-1, -2], "slice"),  # from the end
        ([-2, -1, 0], "gather"),
        ([2, 2], "gather"),
        ([0, 2, 3], "gather"),
        ([4, 5, 6], "gather"),  # the last one is the last element again
        ([], "gather"),
    ],
)
def test_places_that_are_equally_far_apart(places, found, axis):
    m = Maker()
    at = m.constant(np.array(places, np.int64))
    result = m.op("gather", m.input(2, 6, 3), at, axis=axis)
    assert names(m, result) == [f"{found} [2, {len(places)}, 3]"]


def test_places_of_few_bits_that_go_down():
    """Their differences would wrap."""
    m = Maker()
    at = m.constant(np.array([5, 3, 1], np.uint8))
    assert names(m, m.op("gather", m.input(6, 3), at, axis=0)) == ["slice [3, 3]"]


def test_other_gathers_stay():
    m = Maker()
    grid = m.constant(np.array([[0, 1], [2, 3]], np.int64))
    assert names(m, m.op("gather", m.input(6, 3), grid, axis=0)) == ["gather [2, 2, 3]"]
    known = m.constant(np.array([0, 1], np.int64))
    graph = m.graph(m.op("gather", m.input(Symbol("n"), 3), known, axis=0))
    assert [n.op.name for n in simplify_nodes(graph).nodes] == ["gather", "gather"]


@pytest.mark.parametrize(
    "perm, shape, stays",
    [((0, 1, 2), (2, 4, 3), False), ((0, 2, 1), (4, 8, 1), True), ((0, 2, 1), (4, 8, 2), True)],
)
def test_transposes_of_what_lies_in_blocks(perm, shape, stays):
    """One that moves nothing goes; none becomes a reshape."""
    x = Value("x", TensorType(f32, shape, Layout((0, 1, 2), ((1, 2),))))
    transpose = op("transpose")
    attrs = transpose.make_attrs(perm=perm)
    turned = tuple(shape[a] for a in perm)
    y = Value("y", TensorType(f32, turned, x.type.layout))
    graph = Graph("g", (x,), (y,), (GraphNode(transpose, attrs, (x,), (y,)),), {})
    after = remove_dead(simplify_nodes(graph))
    assert [n.op.name for n in after.nodes] == ["transpose"] * stays


class Counting(Costs):
    asked = 0

    def program(self, n: GraphNode) -> TensorProgram:
        self.asked += 1
        return super().program(n)


def test_facts_about_a_node_are_worked_out_once():
    m = Maker()
    x = m.input(4)
    graph = m.graph(m.op("mul", m.op("exp", x), x))
    costs = Counting()
    for n in graph.nodes:
        for _ in range(3):
            assert costs.is_cheap(n) == (n.op.name == "mul")
            assert costs.mentions(n, 0) == 1
            assert costs.reads(n, 0) == 1
    assert costs.asked == 2 * len(graph.nodes)
    assert costs.program(graph.nodes[0]) is costs.program(graph.nodes[0])
