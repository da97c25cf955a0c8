"""Sums of two quantised values in whole numbers: shifts and roundings move to the finer one."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_models import residual_model

from tilewright.base.dtype import i8
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.optimize.fold_constants import fold_constants
from tilewright.optimize.simplify_nodes import simplify_nodes
from tilewright.optimize.use_integers import use_integers

EXPONENT = st.integers(-4, 3)


def residual(exponents, *, half_up=True, **named):
    """What is imported of such a model."""
    model = residual_model(exponents, **named)
    imported = import_model(model.SerializeToString(), half_up=half_up)
    return simplify_nodes(fold_constants(imported))


@given(
    exponents=st.tuples(EXPONENT, EXPONENT, EXPONENT, EXPONENT),
    both=st.booleans(),
    relu=st.booleans(),
    kept=st.booleans(),
    half_up=st.booleans(),
)
@example((1, 0, 0, 1), False, True, False, True)
@example((0, 1, 0, 3), False, True, False, True)
@example((0, -2, 1, 1), True, False, True, True)
@example((0, -2, 1, 1), True, True, False, False)
def test_residuals(exponents, both, relu, kept, half_up):
    graph = residual(exponents, both=both, relu=relu, kept=kept, half_up=half_up)
    after = use_integers(graph)
    rng = np.random.default_rng(1)
    for low in (-128, 100, -3):
        x = rng.integers(low, min(128, low + 256), (1, 4, 5, 5)).astype(np.int8)
        pairs = zip(evaluate_graph(after, [x]), evaluate_graph(graph, [x]), strict=True)
        for found, wanted in pairs:
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "exponents,shifts,products", [((1, 0, 0, 1), 1, 0), ((0, 0, 0, 1), 2, 0), ((2, 0, 0, 1), 1, 1)]
)
def test_a_coarse_operand_is_not_multiplied(exponents, shifts, products):
    """(x >> 6) + (r << 1) + 1 >> 1 is (x >> 7) + r, its rounding part of the bias. A branch is
    small integers still: a chip that cannot add them makes it, and another adds."""
    nodes = use_integers(residual(exponents)).nodes
    names = [n.op.name for n in nodes]
    assert sum(n.op.name == "cast" and n.outputs[0].dtype == i8 for n in nodes) == 2
    assert names.count("shr") == shifts
    assert names.count("mul") - 1 == products  # one makes floats of the result


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("result,products", [(0, 0), (-1, 1)])
def test_what_has_no_finer_step_is_not_rounded(result, products, relu):
    """A sum of two steps of 1 for a step of 1, or of 1/2: there is nothing to shift away."""
    nodes = use_integers(residual((0, 0, 0, result), relu=relu)).nodes
    names = [n.op.name for n in nodes]
    assert names.count("shr") == 1  # the branch's own
    assert names.count("mul") - 1 == products
