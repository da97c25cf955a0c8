"""Factors of einsums that are transposed, so that vectors read their columns side by side."""

import numpy as np
import pytest
from onnx_models import compute, model, node

from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.graph import Graph
from tilewright.ops.contract import EinsumAttrs
from tilewright.optimize.turn_factors import turn_factors

SIZES = {"a": 2, "b": 3, "i": 40, "j": 30, "d": 16, "s": 2, "n": 1}


def read(equation: str, constant: int | None = None, sizes: dict | None = None) -> Graph:
    known = SIZES | (sizes or {})
    terms = equation.split("->")[0].split(",")
    shapes = {f"x{k}": tuple(known[c] for c in term) for k, term in enumerate(terms)}
    held = {} if constant is None else {f"x{constant}": shapes.pop(f"x{constant}")}
    constants = {name: np.ones(shape, np.float32) for name, shape in held.items()}
    names = [f"x{k}" for k in range(len(terms))]
    nodes = [node("Einsum", names, ["y"], equation=equation)]
    return import_model(model(nodes, shapes, constants=constants))


@pytest.mark.parametrize(
    "equation, terms",
    [
        ("bid,bjd->bij", ("bid", "bdj")),
        ("bjd,bid->bij", ("bid", "bdj")),
        ("biad,bjad->baij", ("biad", "badj")),
        ("bid,bjd->ibj", ("bid", "bdj")),
        ("id,jad->iaj", ("id", "adj")),
        ("id,jda->iaj", ("id", "daj")),
        ("bidn,bjd->bijn", ("bjd", "bidn")),  # columns are the data's own
        ("id,jsd->ijs", None),  # few columns
        ("sd,jd->sj", None),  # few rows: by rows as they lie
        ("sd,dja->saj", ("sd", "daj")),
        ("bid,bdj->bij", None),  # side by side
        ("bdj,bid->bij", ("bid", "bdj")),  # as in a product of matrices
        ("bd,bjd->bj", None),
        ("ibd,jbd->ijb", None),  # the last axis is a batch's
        ("id,jd,jb->ij", None),
        ("i,j->ij", None),
        ("id,jd->", None),
        ("dd,jd->dj", None),
    ],
)
def test_columns_come_last(equation: str, terms: tuple[str, ...] | None):
    graph = read(equation)
    after = turn_factors(graph)
    if terms is None:
        assert after is graph
        return
    (product,) = (n for n in after.nodes if n.op.name == "einsum")
    assert product.attrs_of(EinsumAttrs).terms == terms
    turned = {*terms} != {*equation.split("->")[0].split(",")}
    assert [n.op.name for n in after.nodes] == ["transpose"] * turned + ["einsum"]
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, v.shape).astype(np.float32) for v in graph.inputs]
    (wanted,), (found,) = (evaluate_graph(g, inputs, {}) for g in (graph, after))
    np.testing.assert_array_equal(wanted, found)


def test_constants_and_unknown_sizes_stay():
    constant = read("bid,bjd->bij", constant=1)
    assert turn_factors(constant) is constant
    assert turn_factors(read("bid,bjd->bij", constant=0)) is not constant
    first = read("bdj,bid->bij", constant=0)
    assert turn_factors(first) is first
    unknown = read("bid,bjd->bij", sizes={"i": "N"})
    assert turn_factors(unknown) is unknown


def test_broadcast_axes():
    """An axis of one element is as large as the other operand says."""
    x, y = np.ones((3, 40, 16), np.float32), np.ones((1, 30, 16), np.float32)
    nodes = [node("Einsum", ["x", "y"], ["z"], equation="bid,bjd->bij")]
    source = model(nodes, {"x": x.shape, "y": y.shape}, ["z"])
    after = turn_factors(import_model(source))
    np.testing.assert_array_equal(compute(source, x, y)[0], evaluate_graph(after, [x, y], {})[0])
