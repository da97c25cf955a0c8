"""Chains of operators that are cut out of networks."""

import numpy as np
import onnx
import pytest
from operator_chains import MOST, Network, most_frequent
from zoo import sample_inputs

import tilewright


@pytest.fixture(scope="module")
def frequent():
    return most_frequent()


def test_the_most_frequent_come_first(frequent):
    counts = [len(chains) for chains in frequent.values()]
    assert len(counts) == MOST
    assert counts == sorted(counts, reverse=True)
    for kind, chains in frequent.items():
        assert {len(c.nodes) for c in chains} == {len(kind)}
        assert [c.elements for c in chains] == sorted(c.elements for c in chains)


def test_nodes_of_a_chain_read_each_other():
    network = Network("densenet")
    for chain in list(network.chains())[:200]:
        for first, second in zip(chain.nodes, chain.nodes[1:], strict=False):
            assert {*network.nodes[first].output} & {*network.nodes[second].input}
        assert tuple(network.nodes[k].op_type for k in chain.nodes) == chain.kind


@pytest.mark.parametrize(
    "kind", [("Conv", "Sigmoid", "Mul"), ("Reshape", "Transpose"), ("Add", "Add")]
)
def test_a_chain_is_a_model(frequent, kind):
    chain = frequent[kind][0]
    model = Network(chain.network).cut(chain)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == list(kind)
    inputs = sample_inputs(model)
    module = tilewright.compile(model, options=tilewright.Options(cache=False))
    (result,) = module.run(inputs).values()
    assert np.isfinite(result).all()
    (declared,) = module.outputs
    assert result.shape == tuple(declared.shape)
