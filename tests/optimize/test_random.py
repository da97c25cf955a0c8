"""Every pass keeps what a graph computes."""

import pytest
from graph_cases import check_same, graphs
from hypothesis import given, settings

from tilewright.optimize.edit import remove_dead
from tilewright.optimize.fold_constants import fold_constants
from tilewright.optimize.fold_scales import fold_scales
from tilewright.optimize.fuse import fuse
from tilewright.optimize.merge_common import merge_common
from tilewright.optimize.move_reshapes import move_reshapes
from tilewright.optimize.simplify_nodes import simplify_nodes

EXACT = [fold_constants, simplify_nodes, remove_dead, merge_common, move_reshapes, fuse]


@pytest.mark.parametrize("function", EXACT)
@settings(max_examples=100)
@given(graph=graphs())
def test_pass_is_exact(function, graph):
    after = function(graph)
    check_same(graph, after)
    assert str(function(after)) == str(after)  # nothing is left for a second run


@settings(max_examples=100)
@given(graph=graphs())
def test_fold_scales_rounds(graph):
    check_same(graph, fold_scales(graph), exact=False)


@settings(max_examples=100)
@given(graph=graphs())
def test_all_together(graph):
    after = graph
    for function in (simplify_nodes, fold_constants, fold_scales, *EXACT):
        after = function(after)
    check_same(graph, after, exact=False)
